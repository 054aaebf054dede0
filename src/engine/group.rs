//! The engine of a group of limiters: each of its calls takes permits from all of them or from none.
//!
//! A group has queues, calls and attempts of its own, just as a limiter does. Only a call's requests, the
//! knowledge gained from its reply, and the return of its permits concern the individual limiters, and
//! their own engines handle those.

use std::sync::Arc;

use rand::RngExt;

use super::answer::Decided;
use super::flight::Flight;
use super::knowledge::Knowledge;
use super::{Core, Engine};
use crate::error::Error;
use crate::options::LimiterOptions;
use crate::rate::Rate;
use crate::rt;
use crate::store::{AcquireReply, RequestGroup};

pub(crate) struct GroupMember {
    pub(crate) engine: Arc<Engine>,
    /// The rate to create the limiter with if it does not exist.
    pub(crate) create: Option<Rate>,
}

impl Engine {
    pub(crate) fn of_group(members: Vec<GroupMember>, core: Arc<Core>) -> Arc<Engine> {
        let names: Vec<&str> = members.iter().map(|member| &*member.engine.name).collect();
        let keys = members[0].engine.keys.clone();
        let mut engine =
            Engine::new(names.join(" + ").into(), crate::engine::Rules::Redisson, keys, core, None);
        engine.members = members;
        // Replies name the holders of permits for a single limiter only, so a group cannot limit itself to
        // a share.
        engine.opt_ins.options = LimiterOptions::new().greedy().into();
        Arc::new(engine)
    }

    /// The limiters that its calls take permits from: itself, or those of a group.
    pub(super) fn limiters(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Engine>> {
        let alone = self.members.is_empty().then_some(self);
        self.members.iter().map(|member| &member.engine).chain(alone)
    }

    /// The longest log that a call at this date should sum; all limiters of a group are audited together.
    pub(super) fn audit_limit(&self, known: &Knowledge, date: i64) -> u64 {
        let random = || 1.0 - rt::rng().random::<f64>();
        let members = self.members.iter().map(|it| it.engine.knowledge().audit_limit(date, random));
        members.max().unwrap_or_else(|| known.audit_limit(date, random))
    }

    pub(crate) fn has_policies(&self) -> bool {
        self.members.first().is_some_and(|member| member.engine.rules.policy().is_some())
    }

    /// Names the limiter of a group that an error is about: a store identifies limiters by their keys.
    pub(super) fn name_member(&self, error: Error) -> Error {
        let is_meant = |it: &&GroupMember| error.limiter() == Some(&*it.engine.keys.hash);
        match self.members.iter().find(is_meant) {
            Some(member) => error.in_limiter(&member.engine.name),
            None => error,
        }
    }
}

impl Flight {
    /// The limiters that the call takes permits from, and what it asks of each.
    pub(super) fn limits(&self) -> impl Iterator<Item = (&Arc<Engine>, Vec<RequestGroup>)> {
        self.engine.limiters().enumerate().map(|(at, engine)| {
            let mut groups = self.call.groups.clone();
            // Only a group's requests have costs.
            for (group, costs) in groups.iter_mut().zip(&self.call.costs) {
                group.permits = costs[at].into();
            }
            (engine, groups)
        })
    }

    /// Passes each limiter of a group its part of the reply, and returns what each has decided, and those whose rate
    /// has changed.
    pub(super) fn settle_members(
        &self,
        reply: &AcquireReply,
        audited: bool,
    ) -> (Box<[Arc<Decided>]>, Vec<&Arc<Engine>>) {
        let mut other_rates = Vec::new();
        if self.engine.members.is_empty() {
            return (Box::default(), other_rates);
        }
        let entries = self.limits().zip(reply.limits()).map(|((engine, groups), limit)| {
            if engine.knowledge().learn(&groups, limit, audited) {
                other_rates.push(engine);
            }
            let entry = self.entry(limit, reply.granted(&groups));
            let left = u64::try_from(limit.left).unwrap_or(0);
            Arc::new(Decided::new(engine, entry, limit.rate, left))
        });
        (entries.collect(), other_rates)
    }
}

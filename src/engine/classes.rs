//! Classes of callers of one limiter, by the part of the rate that their grants leave to others.
//!
//! Each class has its own engine, and so its own queue: a waiting request of a class that leaves more never
//! delays one of a class that leaves less. The first class, which leaves nothing, uses the limiter's own
//! engine, which knows the others.

use std::sync::{Arc, Weak};

use super::Engine;
use crate::error::{Error, ErrorKind, Execution};
use crate::options::Fraction;
use crate::rate::Rate;
use crate::rt::{Mutex, lock};
use crate::store::{AcquireReply, RequestGroup};

/// An engine's class, and its links to the limiter's other classes.
#[derive(Default)]
pub(super) struct Classes {
    /// The part of the rate that its grants leave to others.
    pub(super) headroom: Option<Fraction>,
    /// The engine of the first class; dangling in the first class itself.
    first: Weak<Engine>,
    /// In the first class: the engines of the others. There are as many as the program names.
    others: Mutex<Vec<Arc<Engine>>>,
}

impl Engine {
    /// The engine of the same limiter for callers that leave this part of the rate. Called on the first
    /// class only.
    pub(crate) fn class(self: &Arc<Self>, headroom: Fraction) -> Arc<Engine> {
        let remembered = self.remember();
        let mut others = lock(&self.classes.others);
        let known = others.iter().find(|class| class.classes.headroom == Some(headroom));
        if let Some(class) = known {
            return class.clone();
        }
        let (name, keys, core) = (self.name.clone(), self.keys.clone(), self.core.clone());
        let mut class =
            Engine::new(name, crate::engine::Rules::Redisson, keys, core, Some(remembered));
        class.classes.headroom = Some(headroom);
        class.classes.first = Arc::downgrade(self);
        let class = Arc::new(class);
        // All classes share the stand-in used during an outage; otherwise each of them would be granted a
        // part of the rate.
        class.outage.get_or_init(|| self.outage.get_or_init(Arc::default).clone());
        let _ = class.set_options(&self.options());
        others.push(class.clone());
        drop(others);
        // Closing this engine closes those that it finds here.
        if self.is_closed() {
            class.close();
        }
        class
    }

    /// The engines of the limiter's other classes; empty unless called on the first class.
    pub(crate) fn other_classes(&self) -> Vec<Arc<Engine>> {
        lock(&self.classes.others).clone()
    }

    /// The engines of all classes, the first one first.
    pub(crate) fn all_classes(self: &Arc<Self>) -> Vec<Arc<Engine>> {
        let first = self.first_class().unwrap_or_else(|| self.clone());
        let mut all = first.other_classes();
        all.insert(0, first);
        all
    }

    /// The engine of the first class, if this engine belongs to another one.
    pub(super) fn first_class(&self) -> Option<Arc<Engine>> {
        self.classes.first.upgrade()
    }

    /// Takes over what an answer says of the limiter, for all classes.
    pub(super) fn learn(
        self: &Arc<Self>,
        groups: &[RequestGroup],
        reply: &AcquireReply,
        audited: bool,
    ) {
        let is_other_rate = self.knowledge().learn(groups, reply, audited);
        if is_other_rate {
            self.rate_changed();
        }
    }

    /// A call has met another rate than the one before, and fitted the value to it. The other classes have not seen that:
    /// if the old rate came back, they would take what the other one allowed for theirs.
    pub(super) fn rate_changed(self: &Arc<Self>) {
        let classes = self.all_classes();
        let others = classes.iter().filter(|class| !Arc::ptr_eq(class, self));
        others.for_each(|class| class.knowledge().seen = None);
    }

    /// Like [`rate_changed`](Engine::rate_changed), for a call whose answer was lost, and which may have met any rate;
    /// for a group, at each of its limiters.
    pub(super) fn rate_may_have_changed(self: &Arc<Self>) {
        let members = self.members.iter().map(|member| &member.engine);
        let classes = members.chain([self]).flat_map(Engine::all_classes);
        classes.for_each(|class| class.knowledge().seen = None);
    }

    /// Whether the class leaves a part of the rate to others.
    pub(crate) fn has_headroom(&self) -> bool {
        self.classes.headroom.is_some()
    }

    /// The number of permits of `rate` that the grants of this class leave to others.
    pub(crate) fn headroom(&self, rate: Rate) -> u64 {
        self.classes.headroom.map_or(0, |part| part.headroom(rate.permits()))
    }

    /// The permits for this class of those that the server has left: less than nothing if more than the rate are in use.
    pub(super) fn left_of(&self, rate: Rate, left: i64) -> u64 {
        u64::try_from(left).unwrap_or(0).saturating_sub(self.headroom(rate))
    }

    /// The error for a request of more than the rate.
    pub(crate) fn exceeds(&self, requested: u64, rate: Rate, execution: Execution) -> Error {
        let rate = self.most_permits(rate);
        Error::new(ErrorKind::ExceedsRate { requested, rate }, execution)
    }

    /// The most permits that a request of this class can be granted.
    pub(crate) fn most_permits(&self, rate: Rate) -> u64 {
        rate.permits().saturating_sub(self.headroom(rate))
    }
}

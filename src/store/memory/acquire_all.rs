//! Acquire from several limiters: all limiters are read, it is decided what becomes of each request, and all
//! limiters are written.
//!
//! `lua/acquire_all.lua` is its twin.

use crate::error::Error;
use crate::rate::{MAX_EXACT, exact};
use crate::store::limits::{DROP_LIMIT, EXACT_WAITS};
use crate::store::memory::acquire::{Attempt, Changes, Entries};
use crate::store::memory::attempt::{find_earlier, find_overtaking};
use crate::store::memory::config::{Config, Pair, read_value};
use crate::store::memory::heal::{audit_limit, heal};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::live_log::{LiveLog, expiry_cutoff};
use crate::store::memory::log::{Log, Part};
use crate::store::memory::settle::{Value, settle};
use crate::store::memory::wait::WaitScan;
use crate::store::{
    AcquireAllReply, AcquireCall, LimitReply, Outcome, OutcomeGroup, Wait, push_outcome,
};
use crate::wire::keys::Keys;

/// A limiter's state that does not depend on the call's own entries.
struct ReadLimiter<'a> {
    config: Config,
    before: Option<i64>,
    log: &'a Log,
    /// The entries of earlier attempts; or of those that overtook this one.
    own: Vec<Part>,
    own_total: i64,
    overtaken: Option<i64>,
}

/// A limiter as the requests see it.
struct OpenLimiter<'a> {
    found: &'a ReadLimiter<'a>,
    call: &'a AcquireCall,
    live: LiveLog<'a>,
    value: Value,
    deficit: i64,
    debt: i64,
    /// The permits that are free for the requests, asked for by those that wait, and granted.
    budget: i64,
    queued: i64,
    granted: i64,
}

pub(crate) fn acquire_all(
    space: &mut Keyspace,
    calls: &[(Keys, AcquireCall)],
) -> Result<AcquireAllReply, Error> {
    // Read.
    let none = Log::default();
    let found: Vec<_> = calls.iter().map(|(keys, call)| find(space, keys, call, &none)).collect();
    let t = Attempt::time(&calls[0].1, space.time(calls[0].1.now));
    let mut limits = found
        .iter()
        .zip(calls)
        .map(|(found, (keys, call))| {
            let found = found.as_ref().map_err(Clone::clone);
            let limit = found.and_then(|found| read(found, call, t));
            limit.map_err(|error| error.in_limiter(&keys.hash))
        })
        .collect::<Result<Vec<_>, Error>>()?;

    // Decide.
    let overtaken = limits.iter().filter_map(|limit| limit.found.overtaken).min();
    if overtaken.is_some() {
        limits.iter_mut().for_each(|limit| limit.budget = limit.found.own_total);
    }
    let (outcomes, is_within) = decide(&mut limits, t, overtaken.is_some())
        .map_err(|(at, error)| error.in_limiter(&calls[at].0.hash))?;
    let is_written = overtaken.is_none() && is_within;
    let states = limits.iter().map(|limit| LimitReply {
        rate: limit.found.config.to_rate(),
        left: limit.found.before.filter(|_| !is_written).unwrap_or(limit.budget),
        repaired: exact(limit.deficit),
        mark: None,
    });
    let reply = AcquireAllReply {
        now: overtaken.map_or(t, |date| date.min(MAX_EXACT as i64)),
        outcomes,
        limits: states.collect(),
    };
    if !is_written {
        return Ok(reply);
    }
    let changes: Vec<_> = limits.into_iter().map(OpenLimiter::into_changes).collect();

    // Write.
    for ((keys, call), (config, before, changes)) in calls.iter().zip(changes) {
        let pair = Pair::of(keys, config.mode);
        Attempt::new(call, &config, t).write(space, keys, &pair, before, changes)?;
    }
    Ok(reply)
}

fn find<'a>(
    space: &'a Keyspace,
    keys: &Keys,
    call: &AcquireCall,
    none: &'a Log,
) -> Result<ReadLimiter<'a>, Error> {
    let config = Config::read(space, keys, call.create.as_ref())?;
    let pair = Pair::of(keys, config.mode);
    let before = read_value(space, &pair)?;
    let log = space.log(pair.log)?.unwrap_or(none);
    let date = Attempt::time(call, space.time(call.now));
    let later = find_overtaking(log, call, date);
    let overtaken = later.iter().map(|part| part.score).min();
    let own = if later.is_empty() { find_earlier(log, call) } else { later };
    let own_total = own.iter().map(|part| part.permits).sum();
    Ok(ReadLimiter { config, before, log, own, own_total, overtaken })
}

fn read<'a>(
    found: &'a ReadLimiter<'a>,
    call: &'a AcquireCall,
    t: i64,
) -> Result<OpenLimiter<'a>, Error> {
    let ReadLimiter { config, before, log, own, own_total, .. } = found;
    // What earlier attempts were granted is free again, and all requests are decided anew.
    let known = before.map(|value| value + own_total);
    let cutoff = expiry_cutoff(t, config);
    let mut live = LiveLog::read(log, cutoff, (own, false), |_| false, DROP_LIMIT);
    live.look_at_oldest()?;
    let mut value = settle(config, call.seen, known, &live)?;
    let demand = crate::store::total_permits(&call.groups);
    let refuses = i64::try_from(demand).unwrap_or(i64::MAX) > value.v;
    let audit_limit = audit_limit(call.seen, call.audit_limit);
    let healed = heal(config, &mut value, &mut live, refuses, audit_limit)?;
    let (deficit, debt, budget) = (healed.deficit, healed.debt, value.v);
    Ok(OpenLimiter { found, call, live, value, deficit, debt, budget, queued: 0, granted: 0 })
}

/// Decides the requests; also returns whether one of them is within all rates. An error comes with the number of
/// the limiter whose log cannot be read.
fn decide(
    limits: &mut [OpenLimiter<'_>],
    t: i64,
    is_overtaken: bool,
) -> Result<(Vec<OutcomeGroup>, bool), (usize, Error)> {
    let is_settled = limits.iter().all(|limit| limit.live.dropped.all);
    let mut outcomes = Vec::new();
    let (mut waiting, mut undecided, mut last, mut by) = (0, false, 1, 0);
    let mut is_within = false;
    for k in 0..limits[0].call.groups.len() {
        let group = limits[0].call.groups[k];
        let mut count = group.count;
        let max_wait_ms = if is_overtaken { 0 } else { group.max_wait_ms };
        let exceeds = limits.iter().any(|limit| limit.permits(k) > limit.found.config.rate);
        is_within |= !exceeds;
        if exceeds && !undecided {
            push_outcome(&mut outcomes, count, Outcome::ExceedsRate);
            continue;
        }
        if !undecided {
            let fits = |limit: &OpenLimiter<'_>| (limit.budget / limit.permits(k)).max(0) as u64;
            let most = if waiting > 0 { 0 } else { count };
            let fit = limits.iter().map(fits).fold(most, u64::min);
            for limit in &mut *limits {
                let permits = limit.permits(k) * fit as i64;
                limit.budget -= permits;
                limit.granted += permits;
            }
            push_outcome(&mut outcomes, fit, Outcome::Granted);
            count -= fit;
            undecided = count > 0 && !is_settled;
        }
        if undecided {
            push_outcome(&mut outcomes, count, Outcome::Undecided);
            continue;
        }
        while count > 0 {
            let is_exact = waiting < EXACT_WAITS && !is_overtaken;
            let wait = match is_exact {
                true => longest_wait(limits, k, t, &mut by)?,
                false if is_overtaken => Wait::of_ms(1, true),
                false => Wait::of_ms(last, true),
            };
            if max_wait_ms < wait.ms() {
                push_outcome(&mut outcomes, count, Outcome::RefusedBy(by, wait));
                break;
            }
            let several = if is_exact { 1 } else { count };
            push_outcome(&mut outcomes, several, Outcome::Waiting(wait));
            for limit in &mut *limits {
                let permits = limit.permits(k).saturating_mul(several as i64);
                limit.queued = limit.queued.saturating_add(permits);
            }
            (last, waiting, count) = (wait.ms(), waiting + 1, count - several);
        }
    }
    Ok((outcomes, is_within))
}

/// How long a request has to wait until all limiters have its permits, and for which longest. It may take longer
/// if one of them may.
fn longest_wait(
    limits: &[OpenLimiter<'_>],
    k: usize,
    t: i64,
    by: &mut u8,
) -> Result<Wait, (usize, Error)> {
    let mut longest = Wait::of_ms(0, false);
    for (at, limit) in limits.iter().enumerate() {
        let lacking = limit.queued.saturating_add(limit.permits(k)).saturating_sub(limit.budget);
        if lacking > 0 {
            let mut scan = WaitScan::new(&limit.live, t, &limit.found.config, limit.debt);
            let wait = scan.wait_for(lacking, (t, limit.granted)).map_err(|error| (at, error))?;
            longest.at_least |= wait.at_least;
            if wait.us > longest.us {
                (longest.us, *by) = (wait.us, at as u8);
            }
        }
    }
    Ok(longest)
}

impl OpenLimiter<'_> {
    /// What each request of the k-th group asks of this limiter.
    fn permits(&self, k: usize) -> i64 {
        self.call.groups[k].permits as i64
    }

    /// What is written to the limiter, whose rate and value were these.
    fn into_changes(self) -> (Config, Option<i64>, Changes) {
        let ReadLimiter { config, before, own, own_total, .. } = self.found;
        let changes = Changes {
            own: own.clone(),
            gives_back: *own_total,
            log: self.live.into_changes(),
            debt: self.debt,
            entries: Entries::Granted(self.granted),
            value: Value { v: self.budget, ..self.value },
        };
        (*config, *before, changes)
    }
}

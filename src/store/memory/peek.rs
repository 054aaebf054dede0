//! Peek: an acquire without its writes.

use crate::error::Error;
use crate::store::memory::acquire::{Pair, read_value, time};
use crate::store::memory::config::Config;
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::log::Log;
use crate::store::memory::rules::{Rest, edge, most_debt, phase_1, phase_2, readable};
use crate::store::memory::walk::Walk;
use crate::store::{PeekCall, PeekReply, Wait};
use crate::wire::keys::Keys;

pub(super) fn peek(space: &Keyspace, keys: &Keys, call: &PeekCall) -> Result<PeekReply, Error> {
    let config = Config::read(space, keys, None)?;
    let pair = Pair::of(keys, config.mode);
    let value = read_value(space, &pair)?;
    let t = time(call.now, space);
    let edge = edge(t, &config);
    let none = Log::default();
    let log = space.log(pair.log)?.unwrap_or(&none);

    let (rest, dropped) = Rest::without_expired(log, edge);
    rest.look()?;
    let value = phase_1(&config, call.seen_rate, value, dropped, &rest)?;
    let permits = i64::try_from(call.permits).unwrap_or(i64::MAX);
    let refuses = permits > value.v.max(0);
    let lack = phase_2(&config, &value, &rest, refuses, false)?;
    // An excess that the log cannot give comes out of the value.
    let v = if lack < 0 { value.v.min(config.rate) } else { value.v };

    let wait = if permits <= v.max(0) {
        Wait { ms: 0, at_least: false }
    } else {
        // What an acquire that is refused would walk: the excess taken out, the debt at its end.
        let mut excess = (-lack).max(0);
        let entries = log
            .before_epoch()
            .chain(log.later_than(edge.max(-1)))
            .map(|(score, member)| Ok((score, readable(score, member, edge)?)))
            .filter_map(move |entry| match entry {
                Ok((score, permits)) => {
                    let taken = permits.min(excess);
                    excess -= taken;
                    (permits > taken || taken == 0).then_some(Ok((score, permits - taken)))
                }
                Err(failure) => Some(Err(failure)),
            });
        let debt = lack.clamp(0, most_debt());
        Walk::new(entries, t, config.interval, config.rate).wait(permits - v, (t, debt))?
    };
    let available = v.clamp(0, config.rate) as u64;
    Ok(PeekReply { rate: config.to_rate(), available, wait })
}

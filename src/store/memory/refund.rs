//! Refund: the permits of one grant go back, exactly.
//!
//! `lua/refund.lua` is its twin.

use crate::error::Error;
use crate::store::limits::SHORT_LOG;
use crate::store::memory::config::{Config, Pair, read_value};
use crate::store::memory::grant::give_back;
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::lifetime::refresh_lifetime;
use crate::store::memory::log::Log;
use crate::store::{RefundCall, RefundReply};
use crate::wire::keys::Keys;

pub(super) fn refund(
    space: &mut Keyspace,
    keys: &Keys,
    call: &RefundCall,
) -> Result<RefundReply, Error> {
    if space.hash(&keys.hash)?.is_none() {
        return Ok(RefundReply { credited: 0, left: 0 });
    }
    let config = Config::read(space, keys, None)?;
    let pair = Pair::of(keys, config.mode);
    let value = read_value(space, &pair)?;
    let none = Log::default();
    let log = space.log(pair.log)?.unwrap_or(&none);
    let mut parts = log.of_id(call.id);
    parts.retain(|part| part.score == call.entry_date);
    if parts.is_empty() {
        return Ok(RefundReply { credited: 0, left: 0 });
    }
    let held: i64 = parts.iter().map(|part| part.permits).sum();
    let may_keep = i64::try_from(call.granted.saturating_sub(call.returned)).unwrap_or(i64::MAX);
    let credit = held - held.min(may_keep);
    let raised = value.filter(|_| credit > 0).map(|v| {
        let is_short = log.len() <= SHORT_LOG;
        let most = if is_short { config.rate - (log.sum() - credit) } else { config.rate };
        v.max(most.min(v + credit))
    });

    // Write.
    space.with_log(pair.log, |log| give_back(log, parts, credit, call.id, call.entry_date))?;
    if let Some(v) = raised.filter(|v| value != Some(*v)) {
        space.change_number(pair.value, v);
    }
    refresh_lifetime(space, keys, &pair, config.keep_alive);
    Ok(RefundReply { credited: credit as u64, left: (held - credit) as u64 })
}

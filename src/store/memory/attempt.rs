//! The entries in the log under a call's own id: of its earlier attempts, or of an earlier call for the same key.
//!
//! `lua/part/attempt.lua` and `lua/part/once.lua` are its twins.

use super::*;

/// The entries written by earlier attempts of this call, which asks for `total` permits. If this attempt, whose date is
/// `date`, is a duplicate, or a later one came first: the entries that those wrote, and their date.
pub(super) fn find_own(
    log: &Log,
    call: &AcquireCall,
    total: u64,
    date: i64,
) -> (Vec<Part>, Option<i64>) {
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    let Earlier { is_again, since, dates, reserved } = &call.earlier;
    let since = since.unwrap_or(date.saturating_sub(1));
    let mut own = log.of_id(call.id);
    // An entry with more permits than the call asks for is not its own.
    own.retain(|part| (1..=total).contains(&part.permits));
    own.retain(|part| part.score > since || dates.contains(&part.score));
    // A late attempt must not give up permits that were granted to a later one.
    let is_later = |part: &&Part| {
        let is_known = !dates.is_empty() || call.reserve && *reserved != Some(part.score);
        !is_again || part.score >= date && is_known
    };
    let later: Vec<Part> = own.iter().filter(is_later).cloned().collect();
    match later.iter().map(|part| part.score).min() {
        Some(first) => (later, Some(first)),
        None => (own, None),
    }
}

/// The permits of these entries of earlier attempts, without those that expired by `cutoff`, that may be in use: if
/// the attempt does not know their dates, they may have been granted to a later one.
pub(super) fn may_be_in_use(own: &[Part], call: &AcquireCall, cutoff: i64) -> i64 {
    if call.earlier.since.is_none() {
        return 0;
    }
    let is_grant = |part: &&Part| {
        let number = call.id.part_number(&part.member[1..=ID_LEN]);
        part.score > cutoff && number.is_some_and(|number| number <= MAX_PARTS)
    };
    own.iter().filter(is_grant).map(|part| part.permits).sum()
}

/// The answer if the log has a live entry of the call's id: what is left of that grant, whatever the call asks for.
pub(super) fn granted_before(
    space: &Keyspace,
    call: &AcquireCall,
) -> Result<Option<AcquireReply>, Error> {
    let Ok(limiter) = StoredLimiter::read(space, &call.limits[0].keys, None) else {
        return Ok(None);
    };
    let left = limiter.read_value(space)?.unwrap_or(0);
    let now = space.time(call.now);
    let cutoff = limiter.cutoff(now);
    let is_earlier = |part: &Part| {
        part.score > cutoff && part.permits > 0 && part.member[1..=ID_LEN] == call.id.0
    };
    let found = space.log_or_empty(limiter.log)?.of_id(call.id).into_iter().filter(is_earlier);
    let earlier = found.min_by(|a, b| (a.score, &a.member).cmp(&(b.score, &b.member)));
    let granted = vec![OutcomeGroup { count: 1, outcome: Outcome::Granted }];
    Ok(earlier.map(|earlier| AcquireReply {
        entry_date: earlier.score.min(MAX_EXACT as i64),
        granted_before: Some(earlier.permits as u64),
        ..AcquireReply::new(now, limiter.to_rate(), left, granted)
    }))
}

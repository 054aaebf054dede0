//! Permits that come back, and leases that are renewed.
//!
//! The twins are `lua/semaphore/release.lua` and `lua/semaphore/renew.lua`.

use super::*;

impl StoreCall for SemaphoreReleaseCall {
    type Reply = SemaphoreReleased;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<SemaphoreReleased, Error> {
        let now = self.at.unwrap_or(space.now());
        let mut state = State::read(space, keys, self.kind, self.lane.as_ref(), false)?;
        let returned = match (self.kind, state.value) {
            (SemaphoreKind::Plain, value) => {
                let mut gave = value.is_some();
                if let Some(took) = state.replay {
                    gave = took < 0;
                } else {
                    state.value = value.map(|value| value.saturating_add_unsigned(self.count));
                    state.record = Some(if gave { -(self.count as i64) } else { 0 });
                }
                vec![if gave { Returned::InTime } else { Returned::Gone }]
            }
            (SemaphoreKind::Expirable, value) => {
                space.log(&keys.value)?;
                value.map_or(Ok(()), |value| check(value + self.permits.len() as i64))?;
                let ends = space.with_log(&keys.value, |log| {
                    let mut remove = |id: &[u8]| log.score(id).filter(|_| log.remove(id));
                    // Redisson 3.16 and earlier write ids as text.
                    let ends = self.permits.iter();
                    ends.map(|id| remove(&id.0).or_else(|| remove(id.to_string().as_bytes())))
                        .collect()
                });
                let ends: Vec<Option<i64>> = ends?;
                state.value = value.map(|value| value + ends.iter().flatten().count() as i64);
                let returned = |end: Option<i64>| match end {
                    Some(end) if value.is_some() && now > 0 && (0..=now).contains(&end) => {
                        Returned::Late
                    }
                    Some(_) if value.is_some() => Returned::InTime,
                    _ => Returned::Gone,
                };
                ends.into_iter().map(returned).collect()
            }
        };
        let listeners = state.write(space, keys, self.lane.as_ref())?;
        Ok(SemaphoreReleased { returned, listeners })
    }

    fn command(&self, keys: &Keys, in_cluster: bool) -> ServerCommand {
        let lane = self.lane.as_ref();
        let command = semaphore_script(&RELEASE, keys, self.at, self.kind, in_cluster, lane);
        match self.kind {
            SemaphoreKind::Plain => command.arg(numbers(lane, &[self.count])),
            SemaphoreKind::Expirable => command.arg(pack(&self.permits)),
        }
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<SemaphoreReleased> {
        let returned = |place| match answer.integer(place)? {
            0 => Some(Returned::Gone),
            1 => Some(Returned::InTime),
            2 => Some(Returned::Late),
            _ => None,
        };
        let last = answer.len().checked_sub(1)?;
        let returned = (1..last).map(returned).collect::<Option<_>>()?;
        Some(SemaphoreReleased { returned, listeners: answer.integer(last)?.try_into().ok() })
    }
}

impl StoreCall for RenewCall {
    type Reply = Vec<bool>;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<Vec<bool>, Error> {
        let now = self.at.unwrap_or(space.now());
        let end = end_of(now, self.lease_ms);
        space.log(&keys.value)?;
        let are_out = space.with_log(&keys.value, |log| {
            let mut renew = |id: &PermitId| {
                let old = log.score(&id.0);
                if old.is_some_and(|old| old < end || self.may_shorten && old > end) {
                    log.add(end, id.0);
                }
                old.is_some()
            };
            self.permits.iter().map(&mut renew).collect()
        })?;
        live_on(space, keys, now, self.keep_alive_ms, end)?;
        if self.keep_alive_ms == Some(0)
            && space.has(&keys.hash)
            && space.expires_at(&keys.hash).is_none()
        {
            // Redisson's `addPermits` ends the value's time to live, and not that of the permits that are out.
            space.persist(&keys.value);
        }
        Ok(are_out)
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::script(&RENEW, &[&keys.value, &keys.hash])
            .opt(self.at)
            .opt(self.lease_ms)
            .arg(if self.may_shorten { "1" } else { "" })
            .arg(pack(&self.permits))
            .opt(self.keep_alive_ms)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<Vec<bool>> {
        (1..answer.len()).map(|place| answer.flag(place)).collect()
    }
}

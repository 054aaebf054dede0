//! The numbers of permits: read, and changed.
//!
//! The twins are `lua/semaphore/counts.lua` and `lua/semaphore/set.lua`.

use super::*;

impl StoreCall for SemaphoreCountsCall {
    type Reply = SemaphoreCounts;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<SemaphoreCounts, Error> {
        let value = State::read(space, keys, self.kind, None, false)?.value;
        let (out, ended) = count(space, keys, self.at.unwrap_or(space.now()))?;
        Ok(SemaphoreCounts {
            exists: value.is_some(),
            available: value.map_or(0, |value| value + ended),
            acquired: (out - ended) as u64,
            total: value.map_or(0, |value| value + out),
        })
    }

    fn command(&self, keys: &Keys, in_cluster: bool) -> ServerCommand {
        semaphore_script(&COUNTS, keys, self.at, self.kind, in_cluster, None)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<SemaphoreCounts> {
        Some(SemaphoreCounts {
            exists: answer.flag(1)?,
            available: answer.integer(2)?,
            acquired: answer.unsigned(3)?,
            total: answer.integer(4)?,
        })
    }
}

impl StoreCall for SetPermitsCall {
    type Reply = i64;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<i64, Error> {
        let mut state = State::read(space, keys, self.kind, None, false)?;
        let (out, _) = count(space, keys, 0)?;
        let (value, answer) = match (self.rule, state.value) {
            (SetPermits::Add, value) => (Some(value.unwrap_or(0).saturating_add(self.permits)), 0),
            (SetPermits::Set, _) => (Some(self.permits.saturating_sub(out)), 0),
            (SetPermits::Try, None) => (Some(self.permits.saturating_sub(out)), 1),
            (SetPermits::Drain, Some(value)) => (Some(0), value),
            (SetPermits::Try, Some(_)) | (SetPermits::Drain, None) => (state.value, 0),
        };
        state.value = value;
        state.write(space, keys, None)?;
        Ok(answer)
    }

    fn command(&self, keys: &Keys, in_cluster: bool) -> ServerCommand {
        let rule = match self.rule {
            SetPermits::Try => "try",
            SetPermits::Set => "set",
            SetPermits::Add => "add",
            SetPermits::Drain => "drain",
        };
        // It does the same at any time.
        semaphore_script(&SET, keys, Some(0), self.kind, in_cluster, None)
            .arg(rule)
            .arg(self.permits)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<i64> {
        answer.integer(1)
    }
}

//! Lifetimes of keys in virtual time.
//!
//! The server counts lifetimes on its own clock, which does not follow a
//! test's. So the harness keeps the virtual deadline of every key: it derives
//! them from the times to live after each operation, and when virtual time
//! advances, it deletes expired keys and gives every other key with a deadline
//! the time it has left. Little real time passes in between.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::state::{State, TTL_TOLERANCE_MS};
use super::subject::Fate;

/// The age up to which real time cannot have changed a time to live noticeably.
const SOON: Duration = Duration::from_millis(TTL_TOLERANCE_MS / 2);

/// The virtual deadlines of keys.
#[derive(Debug, Default)]
pub struct Lifetimes {
    deadlines: HashMap<String, Deadline>,
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    /// In virtual milliseconds.
    at: u64,
    /// The real time at which the server's time to live was set.
    told: Instant,
    /// That time to live.
    ttl: u64,
}

impl Lifetimes {
    /// Updates the deadlines from the state at `now`. A key whose time to live
    /// has only decreased with real time keeps its deadline.
    pub fn observe(&mut self, now: u64, state: &State) {
        self.deadlines.retain(|name, _| state.0.get(name).is_some_and(|key| key.ttl.is_some()));
        for (name, key) in &state.0 {
            let Some(ttl) = key.ttl else { continue };
            let unchanged = self.deadlines.get(name).is_some_and(|known| {
                let elapsed = known.told.elapsed().as_millis() as u64;
                let expected = known.ttl.saturating_sub(elapsed);
                expected.abs_diff(ttl) <= TTL_TOLERANCE_MS / 2
            });
            if !unchanged {
                // Keys to which a script gives the same time to live expire
                // together, even if a millisecond passed between its commands.
                let at = now + ttl;
                let twin = self
                    .deadlines
                    .values()
                    .find(|d| d.at.abs_diff(at) <= TTL_TOLERANCE_MS / 2 && d.told.elapsed() < SOON);
                let deadline =
                    Deadline { at: twin.map_or(at, |twin| twin.at), told: Instant::now(), ttl };
                self.deadlines.insert(name.clone(), deadline);
            }
        }
    }

    /// What happens to each key with a deadline when the time is `now`. A key
    /// with almost no time left expires at once: otherwise real time would
    /// decide when it does.
    pub fn advance(&mut self, now: u64) -> Vec<(String, Fate)> {
        let fates = self.deadlines.iter_mut().map(|(name, deadline)| {
            let left = deadline.at.saturating_sub(now);
            let fate = if left < 2 * TTL_TOLERANCE_MS {
                Fate::Gone
            } else {
                (deadline.ttl, deadline.told) = (left, Instant::now());
                Fate::Left(left)
            };
            (name.clone(), fate)
        });
        let fates: Vec<_> = fates.collect();
        for (name, fate) in &fates {
            if *fate == Fate::Gone {
                self.deadlines.remove(name);
            }
        }
        fates
    }

    /// The milliseconds that a key has left, if it expires.
    pub fn left(&self, name: &str, now: u64) -> Option<u64> {
        self.deadlines.get(name).map(|d| d.at.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::state::{Content, Key};

    fn state(ttl: Option<u64>) -> State {
        let content = Content::Text("1".into());
        State([("k".to_owned(), Key { content, ttl })].into())
    }

    #[test]
    fn a_key_expires_in_virtual_time() {
        let mut lifetimes = Lifetimes::default();
        lifetimes.observe(10_000, &state(Some(5_000)));
        assert_eq!(lifetimes.advance(12_000), [("k".into(), Fate::Left(3_000))]);
        lifetimes.observe(12_000, &state(Some(2_999)));
        assert_eq!(lifetimes.advance(14_000), [("k".into(), Fate::Left(1_000))]);
        assert_eq!(lifetimes.advance(15_000), [("k".into(), Fate::Gone)]);
        assert_eq!(lifetimes.advance(16_000), []);
    }

    #[test]
    fn a_new_time_to_live_is_a_new_deadline() {
        let mut lifetimes = Lifetimes::default();
        lifetimes.observe(10_000, &state(Some(5_000)));
        lifetimes.observe(10_000, &state(Some(9_000)));
        assert_eq!(lifetimes.left("k", 11_000), Some(8_000));
        lifetimes.observe(11_000, &state(None));
        assert_eq!(lifetimes.left("k", 11_000), None);
    }
}

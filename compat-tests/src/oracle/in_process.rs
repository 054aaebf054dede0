//! The in-process store as a [`Site`].

use redisson_rate_limiter::raw_store as raw;
use redisson_rate_limiter::{InProcessStore, ManualClock};

use super::state::{Content, Key, State};
use super::subject::{Fate, Site};

/// An in-process store of this crate as a [`Site`].
#[derive(Clone, Debug)]
pub struct InProcess {
    store: InProcessStore,
    clock: ManualClock,
}

impl InProcess {
    /// A store, and the handle of the clock by which its keys expire.
    pub fn new(store: InProcessStore, clock: ManualClock) -> InProcess {
        InProcess { store, clock }
    }
}

impl Site for InProcess {
    async fn clear(&self) {
        self.store.flush();
    }

    async fn capture(&self, keys: &[String]) -> State {
        let mut all = self.store.snapshot();
        let mut state = State::default();
        for name in keys {
            if let Some(key) = all.remove(name) {
                state.0.insert(name.clone(), of(key));
            }
        }
        assert!(all.is_empty(), "keys that belong to no limiter of the program: {all:?}");
        state
    }

    /// The fates are applied here too, so that a key that is about to expire
    /// disappears on both sides at the same step.
    async fn advance(&self, now: u64, fates: &[(String, Fate)]) {
        self.clock.set(now as i64);
        if fates.is_empty() {
            return;
        }
        let mut all = self.store.snapshot();
        for (name, fate) in fates {
            let ttl_ms = match fate {
                Fate::Gone => None,
                Fate::Left(ms) => Some(*ms as i64),
            };
            let kept = all.remove(name).filter(|_| ttl_ms.is_some());
            self.store.raw_put(name, kept.map(|key| raw::Key { ttl_ms, ..key }));
        }
    }

    async fn restore(&self, keys: &[String], state: &State) -> bool {
        if state.0.values().any(|key| matches!(key.content, Content::Other(_))) {
            return false;
        }
        for name in keys {
            self.store.raw_put(name, state.0.get(name).map(to));
        }
        true
    }
}

fn of(key: raw::Key) -> Key {
    Key {
        content: match key.content {
            raw::Content::Hash(fields) => Content::Hash(fields),
            raw::Content::Text(text) => Content::Text(text),
            raw::Content::Log(entries) => {
                Content::Log(entries.into_iter().map(|(at, member)| (at as f64, member)).collect())
            }
        },
        ttl: key.ttl_ms.map(|ms| ms.max(0) as u64),
    }
}

fn to(key: &Key) -> raw::Key {
    raw::Key {
        content: match &key.content {
            Content::Hash(fields) => raw::Content::Hash(fields.clone()),
            Content::Text(text) => raw::Content::Text(text.clone()),
            Content::Log(entries) => raw::Content::Log(
                entries.iter().map(|(at, member)| (*at as i64, member.clone())).collect(),
            ),
            Content::Other(kind) => unreachable!("{kind}"),
        },
        ttl_ms: key.ttl.map(|ms| ms as i64),
    }
}

//! Finding the limiters on a server.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::client::Client;
use crate::client::builder::is_uuid;
use crate::error::{Error, Operation};
use crate::limiters::Limiters;
use crate::policy::Policy;
use crate::store::Store;
use crate::wire::keys::untagged;

impl Client {
    /// Walks over all keys of the servers with `SCAN` (all masters of a cluster) to find limiters by the names of
    /// their values and logs, or of the key of a [`Policy`]. Each step looks at about `count` keys, which takes a
    /// server about a microsecond each; pause between steps to keep the load low. Nothing is sent yet.
    ///
    /// Only its name says that a key belongs to a limiter: another program may have a key `{cart:5}:value`. A limiter
    /// that has not been used, or whose keys have expired, has no value and no log, and is not found. Besides the
    /// usual access rules (docs/deployment.md) the user needs `+scan`.
    ///
    /// ```
    /// use redisson_rate_limiter::{Client, InProcessStore, Rate};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
    /// let client = Client::builder().in_process(&InProcessStore::new())?;
    /// client.limiter("api")?.with_rate(Rate::per_second(10)).acquire(1).await?;
    /// let mut scan = client.scan_limiters(500);
    /// while let Some(found) = scan.next().await? {
    ///     assert!(found.iter().all(|key| key.limiter == "api"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_limiters(&self, count: u32) -> LimiterScan {
        LimiterScan {
            limiters: self.0.clone(),
            count,
            parts: None,
            cursor: 0,
            steps: 0,
            unreadable: 0,
            servers: 0,
        }
    }
}

/// A walk over the keys of the servers, from [`Client::scan_limiters`].
pub struct LimiterScan {
    limiters: Arc<Limiters>,
    count: u32,
    /// The remaining servers, the current one first; `None` before the first step.
    parts: Option<VecDeque<Arc<str>>>,
    cursor: u64,
    steps: u64,
    unreadable: u64,
    servers: usize,
}

/// A key that belongs to a limiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct FoundKey {
    /// The limiter's name, without the client's prefix. Limiters called `api` and `{api}` have the same value
    /// and log; for both this is `api`.
    pub limiter: String,
    /// Whether the key is that of a [`Policy`]: see [`Client::policies_of`].
    pub is_policy: bool,
    /// Whether the key is the log; otherwise it is the value, or a policy's.
    pub is_log: bool,
    /// In the mode [`Mode::PerClient`](crate::Mode::PerClient), the id of the client that owns the budget.
    pub client_id: Option<String>,
}

impl LimiterScan {
    /// Makes one step, and returns the keys that it found, possibly none; `None` at the end. A key may be
    /// found more than once.
    ///
    /// # Errors
    ///
    /// The errors [of the server](crate::RateLimiter#errors-of-the-server). The step can be repeated.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time; the next call makes the same step again.
    pub async fn next(&mut self) -> Result<Option<Vec<FoundKey>>, Error> {
        self.limiters.check_open(Operation::Scan)?;
        if self.parts.is_none() {
            let parts = self.limiters.call(Operation::Scan, Store::scan_parts).await?;
            self.servers = parts.len();
            self.parts = Some(parts.into());
        }
        let Some(parts) = &mut self.parts else { return Ok(None) };
        let Some(part) = parts.front().cloned() else { return Ok(None) };
        let (cursor, count) = (self.cursor, self.count);
        let step = move |store: &Store, limit| store.scan(&part, cursor, count, limit);
        let (cursor, keys) = self.limiters.call(Operation::Scan, step).await?;
        self.cursor = cursor;
        self.steps += 1;
        if cursor == 0 {
            parts.pop_front();
        }
        let prefix = &*self.limiters.key_prefix;
        let mut found = Vec::new();
        for key in keys {
            match std::str::from_utf8(&key) {
                Ok(key) => found.extend(found_key(key, prefix)),
                Err(_) => self.unreadable += 1,
            }
        }
        Ok(Some(found))
    }

    /// The approximate number of keys looked at.
    pub fn looked_at(&self) -> u64 {
        self.steps.saturating_mul(u64::from(self.count.max(1)))
    }

    /// The number of keys left out because their names are not UTF-8: this crate and Redisson cannot use them.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// The number of servers, and how many of them are finished. 0 before the first step.
    pub fn servers(&self) -> (usize, usize) {
        let left = self.parts.as_ref().map_or(0, VecDeque::len);
        (self.servers, self.servers - left)
    }
}

fn found_key(key: &str, prefix: &str) -> Option<FoundKey> {
    let (rest, last) = key.rsplit_once(':')?;
    let (base, suffix, client_id) = match (last, rest.rsplit_once(':')) {
        ("value" | "permits", _) => (rest, last, None),
        (id, Some((base, suffix @ ("value" | "permits")))) => {
            // Redisson clients have UUIDs as ids: another program's `{api}:value:draft` is not a budget.
            if !is_uuid(id) {
                return None;
            }
            (base, suffix, Some(id.to_owned()))
        }
        _ if Policy::one_of_each().iter().any(|it| it.word() == last) => (rest, last, None),
        _ => return None,
    };
    let full_name = untagged(base).or_else(|| base.contains('{').then_some(base))?;
    let limiter = full_name.strip_prefix(prefix).filter(|name| !name.is_empty())?.to_owned();
    let (is_log, is_policy) = (suffix == "permits", !matches!(suffix, "value" | "permits"));
    Some(FoundKey { limiter, is_policy, is_log, client_id })
}

impl fmt::Debug for LimiterScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterScan")
            .field("count", &self.count)
            .field("looked_at", &self.looked_at())
            .field("servers", &self.servers())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::keys::Keys;

    #[test]
    fn the_name_of_a_key_tells_its_limiter() {
        let id = "0b1f4f0e-8c7e-4d6a-9d53-3a1f6f1f7c11";
        for name in ["api", "a:b", "a}b", "a{b}c", "a{b", "{a", "x:value", "{a}b", "ü", " "] {
            let keys = Keys::new(name, id);
            let found = |is_log, id: Option<&str>| {
                let (limiter, client_id) = (name.to_owned(), id.map(str::to_owned));
                Some(FoundKey { limiter, is_policy: false, is_log, client_id })
            };
            assert_eq!(found_key(&keys.value, ""), found(false, None), "{name}");
            assert_eq!(found_key(&keys.permits, ""), found(true, None), "{name}");
            assert_eq!(found_key(&keys.client_value, ""), found(false, Some(id)), "{name}");
            assert_eq!(found_key(&keys.client_permits, ""), found(true, Some(id)), "{name}");
        }
        let tagged = Keys::new("{api}", id);
        assert_eq!(found_key(&tagged.value, "").unwrap().limiter, "api");
        for key in
            ["api", "api:value", "value", ":value", "{}:value", "{api}:values", "{a}:value:x:y"]
        {
            let found = found_key(key, "");
            assert!(found.is_none() || key == "{}:value", "{key}: {found:?}");
        }
        assert_eq!(found_key("{api}:value:draft", ""), None);
        let of_policy = found_key("{p:api}:bucket", "p:").unwrap();
        assert_eq!((&*of_policy.limiter, of_policy.is_policy), ("api", true));
    }
}

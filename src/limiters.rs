//! The limiters of one client by name, and what is remembered of those without a handle.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::engine::group::GroupMember;
use crate::engine::{self, Core, Engine, Knowledge, Rules};
use crate::error::{Error, Operation};
use crate::policy::{Followed, Kind, Policy};
use crate::rate::Rate;
use crate::store::{Reply, Store};
use crate::wire::keys::{Keys, suffixed};

/// Limiters without a handle are dropped once the client has this many.
const MANY_LIMITERS: usize = 1024;

/// So many limiters without a handle are remembered, in about 30 MB: keys can be made up, and an interval can be a day.
const MOST_REMEMBERED: usize = 65_536;

/// State shared by all handles of one client.
pub(crate) struct Limiters {
    pub(crate) client_id: Box<str>,
    pub(crate) key_prefix: Box<str>,
    pub(crate) deadline: Duration,
    pub(crate) core: Arc<Core>,
    table: Mutex<Table>,
}

/// State shared by all handles of one name, until the last one is dropped.
pub(crate) struct LimiterHandle {
    pub(crate) limiters: Arc<Limiters>,
    pub(crate) engine: Arc<Engine>,
}

#[derive(Default)]
struct Table {
    by_name: Cache<LimiterKey, Named>,
    /// The groups that have a handle.
    groups: Cache<GroupKey, Weak<LimiterHandle>>,
    /// Facts about dropped limiters that were used less than an interval ago.
    remembered: Cache<LimiterKey, Knowledge>,
    is_closed: bool,
}

/// A map whose unused entries are dropped when it reaches a size: twice what was in use the last time.
struct Cache<K, V> {
    map: HashMap<K, V>,
    limit: usize,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Cache { map: HashMap::new(), limit: MANY_LIMITERS }
    }
}

impl<K: Eq + Hash, V> Cache<K, V> {
    fn make_room(&mut self, is_used: impl FnMut(&K, &mut V) -> bool) {
        if self.map.len() >= self.limit {
            self.map.retain(is_used);
            self.limit = (self.map.len() * 2).max(MANY_LIMITERS);
        }
    }
}

/// The addresses of its limiters' engines, which a group keeps alive, and the rates to create these with. Names would not
/// do: a limiter may have another engine once its last handle was dropped, or follow several policies.
type GroupKey = Vec<(usize, Option<Rate>)>;

/// A name, and the rules of its permits: with other parameters requests cannot share a call.
type LimiterKey = (Arc<str>, Rules);

struct Named {
    engine: Arc<Engine>,
    handle: Weak<LimiterHandle>,
}

impl Limiters {
    pub(crate) fn new(
        client_id: String,
        key_prefix: String,
        deadline: Duration,
        core: Core,
    ) -> Arc<Self> {
        Arc::new(Limiters {
            client_id: client_id.into(),
            key_prefix: key_prefix.into(),
            deadline,
            core: Arc::new(core),
            table: Mutex::default(),
        })
    }

    /// The handle of this name, shared by everybody who uses the name at the same time.
    pub(crate) fn handle(
        self: &Arc<Self>,
        name: &str,
        rules: Rules,
    ) -> Result<Arc<LimiterHandle>, Error> {
        let (handle, replaced) = {
            let mut table = self.table();
            if table.is_closed {
                return Err(engine::closed().of(Operation::Limiter, Some(name.into())));
            }
            table.handle(self, (name.into(), rules))?
        };
        // Dropped after the lock is released, because ending leases gives permits back.
        if let Some(engine) = replaced {
            engine.leases().suspend(&engine);
        }
        Ok(handle)
    }

    /// The handle of the group of these limiters, shared by everybody who uses it at the same time.
    pub(crate) fn group(
        self: &Arc<Self>,
        members: Vec<GroupMember>,
    ) -> Result<Arc<LimiterHandle>, Error> {
        let mut table = self.table();
        if table.is_closed {
            return Err(engine::closed().of(Operation::Limiter, None));
        }
        let key = members.iter().map(|it| (Arc::as_ptr(&it.engine) as usize, it.create)).collect();
        table.groups.make_room(|_, group| group.strong_count() > 0);
        if let Some(group) = table.groups.map.get(&key).and_then(Weak::upgrade) {
            return Ok(group);
        }
        let engine = Engine::of_group(members, self.core.clone());
        let group = Arc::new(LimiterHandle { limiters: self.clone(), engine });
        table.groups.map.insert(key, Arc::downgrade(&group));
        Ok(group)
    }

    /// The keys of the limiter of this name, which must not be empty. One with a policy has a single key, the first.
    pub(crate) fn keys(
        &self,
        name: &str,
        rules: &Rules,
        operation: Operation,
    ) -> Result<Keys, Error> {
        if name.is_empty() {
            return Err(Error::invalid(
                operation,
                "an empty name: must have at least one character",
            ));
        }
        let full_name = format!("{}{name}", self.key_prefix);
        let invalid =
            |detail: &str| Error::invalid(operation, detail).of(operation, Some(name.into()));
        let keys = match rules {
            Rules::Redisson => Keys::new(&full_name, &self.client_id),
            Rules::Semaphore(_) => Keys::of_semaphore(&full_name),
            Rules::Policy(Followed { rules: Policy(Kind::Foreign(foreign)), is_stored }) => {
                if *is_stored || self.core.store.is_in_process() {
                    return Err(invalid(
                        "a limit that other services enforce: must be on a server, and its parameters where the \
                         format has them",
                    ));
                }
                let key = foreign.key(&full_name).map_err(|detail| invalid(&detail))?;
                Keys::new(&key, &self.client_id)
            }
            Rules::Policy(Followed { rules, is_stored }) if rules.is_rgcra() => {
                if !is_stored {
                    return Err(invalid(
                        "a limit with the configuration of Redisson's RGcra: must be made by stored_limiter_of, \
                         because its parameters are on the server",
                    ));
                }
                Keys::of_rgcra(&full_name)
            }
            Rules::Policy(Followed { rules, .. }) => {
                Keys::new(&suffixed(&full_name, rules.word()), &self.client_id)
            }
        };
        let checked = self.core.store.check(&keys);
        checked.map_err(|error| error.of(operation, Some(name.into())))?;
        Ok(keys)
    }

    pub(crate) fn recheck_waiters(&self) {
        let engines = self.table().engines();
        for engine in engines {
            engine.leases().look(&engine);
            engine.permits_came_back();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.table().is_closed
    }

    pub(crate) async fn close(&self) {
        let engines = {
            let mut table = self.table();
            // In one critical section with the list of engines: otherwise a limiter could be added in between
            // and stay open.
            table.is_closed = true;
            table.engines()
        };
        for engine in engines {
            engine.close();
        }
        self.core.close(self.deadline).await;
    }

    /// Makes a call that does not concern one limiter.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        operation: Operation,
        call: impl Fn(&Store, Duration) -> Reply<T> + Send + 'static,
    ) -> Result<T, Error> {
        self.check_open(operation)?;
        let observer = self.core.observers.call(operation);
        let answer = self.core.call(operation.is_idempotent(), self.deadline, observer, call).await;
        answer.map_err(|error| self.error(operation, error))
    }

    pub(crate) fn check_open(&self, operation: Operation) -> Result<(), Error> {
        match self.is_closed() {
            true => Err(self.error(operation, engine::closed())),
            false => Ok(()),
        }
    }

    fn error(&self, operation: Operation, error: Error) -> Error {
        error.of(operation, None).with_server(self.core.store.address())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Limiters {
    fn drop(&mut self) {
        // Tasks of a parked runtime may keep the core alive, and its thread with it.
        self.core.end_own_thread();
    }
}

impl Table {
    /// Those of the limiters, and of the groups.
    fn engines(&self) -> Vec<Arc<Engine>> {
        let groups = self.groups.map.values().filter_map(Weak::upgrade);
        let groups = groups.map(|group| group.engine.clone());
        self.by_name.map.values().map(|named| named.engine.clone()).chain(groups).collect()
    }

    /// The handle of this name, and the engine that it replaces, if any.
    fn handle(
        &mut self,
        limiters: &Arc<Limiters>,
        key: LimiterKey,
    ) -> Result<(Arc<LimiterHandle>, Option<Arc<Engine>>), Error> {
        let core = &limiters.core;
        let known = self.by_name.map.get(&key);
        if let Some(handle) = known.and_then(|named| named.handle.upgrade()) {
            return Ok((handle, None));
        }
        let known = known.map(|named| named.engine.clone());
        // Options end with the last handle, so an engine that has some is replaced. Its knowledge of the
        // limiter stays.
        let (engine, replaced) = match known {
            Some(engine) if !engine.has_options() => (engine, None),
            known => {
                if known.is_none() {
                    self.make_room(core);
                }
                let (name, rules) = &key;
                let keys = limiters.keys(name, rules, Operation::Limiter)?;
                let remembered = match &known {
                    Some(engine) => Some(engine.remember()),
                    None => self.remembered.map.remove(&key),
                };
                let rules = rules.clone();
                let engine = Engine::new(name.clone(), rules, keys, core.clone(), remembered);
                let engine = Arc::new(engine);
                if let Some(known) = &known {
                    known.hand_over_outage(&engine);
                }
                (engine, known)
            }
        };
        let handle = Arc::new(LimiterHandle { limiters: limiters.clone(), engine: engine.clone() });
        let named = Named { engine: engine.clone(), handle: Arc::downgrade(&handle) };
        self.by_name.map.insert(key, named);
        Ok((handle, replaced))
    }

    /// Drops limiters without a handle, because a service that names a limiter for each of its users must not
    /// keep them all. For those used less than an interval ago, what the next call needs is remembered:
    /// otherwise each call would have to sum the log, or permits that went missing would never come back.
    fn make_room(&mut self, core: &Core) {
        let now = core.epoch_ms();
        let Table { by_name, remembered, .. } = self;
        by_name.make_room(|key, Named { engine, handle }| {
            let in_use = handle.strong_count() > 0 || Arc::strong_count(engine) > 1;
            if in_use || engine.leases().held() > 0 || engine.needs_stand_in() {
                return true;
            }
            let known = engine.remember();
            if known.is_recent(now) {
                remembered.map.insert(key.clone(), known);
            }
            false
        });
        remembered.make_room(|_, known| known.is_recent(now));
        if remembered.map.len() > MOST_REMEMBERED {
            // The next call of each sums its log.
            remembered.map.clear();
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::{Client, InProcessStore};

    impl Limiters {
        pub(crate) fn len(&self) -> usize {
            self.table().by_name.map.len()
        }

        #[cfg(feature = "tower")]
        pub(crate) fn groups(&self) -> usize {
            self.table().groups.map.len()
        }
    }

    #[test]
    fn not_every_key_that_is_made_up_is_remembered_for_a_day() {
        let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
        let remembered = |most: usize| {
            let last_answer = client.0.core.epoch_ms();
            let known =
                Knowledge { rate: Some(Rate::per_day(1)), last_answer, ..Knowledge::default() };
            let keys = (0..most).map(|key| (key.to_string().into(), Rules::Redisson));
            client.0.table().remembered.map.extend(keys.map(|key| (key, known)));
            // Makes room.
            for name in 0..2 * MANY_LIMITERS {
                drop(client.limiter(&format!("{most} {name}")).unwrap());
            }
            client.0.table().remembered.map.len()
        };
        assert_eq!(remembered(MOST_REMEMBERED), MOST_REMEMBERED);
        assert_eq!(remembered(MOST_REMEMBERED + 1), 0);
    }
}

//! The limiters of one client by name, and what is remembered of those that it has dropped.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::engine::group::GroupMember;
use crate::engine::{self, Core, Engine, Knowledge, Rules};
use crate::error::{Error, Operation};
use crate::policy::{Followed, Kind, Policy};
use crate::rate::Rate;
use crate::rt;
use crate::store::{Reply, Store};
use crate::wire::keys::{Keys, suffixed};

/// Limiters that are not in use are dropped while the client has this many.
const MANY_LIMITERS: usize = 8192;

/// So many limiters that were dropped are remembered, in about 30 MB: keys can be made up, and an interval can be a day.
const MOST_REMEMBERED: usize = 65_536;

/// State shared by all handles of one client.
pub(crate) struct Limiters {
    pub(crate) client_id: Box<str>,
    pub(crate) key_prefix: Box<str>,
    pub(crate) deadline: Duration,
    pub(crate) core: Arc<Core>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_name: Cache<LimiterKey, Arc<Engine>>,
    groups: Cache<GroupKey, Arc<Engine>>,
    /// Facts about dropped limiters that were used less than an interval ago.
    remembered: Cache<LimiterKey, Knowledge>,
    is_closed: bool,
}

/// A map that drops what is not used, bit by bit: to drop thousands of limiters at once took tens of milliseconds, for which
/// all callers of the client waited.
struct Cache<K, V> {
    map: HashMap<K, V>,
    /// All keys, in the order in which they are looked at.
    order: VecDeque<K>,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Cache { map: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V> Cache<K, V> {
    fn has_many(&self) -> bool {
        self.map.len() >= MANY_LIMITERS
    }

    /// Looks at the next two entries, for each that is added, and drops those that are not used.
    fn make_room(&mut self, mut is_used: impl FnMut(&K, &V) -> bool) {
        for _ in 0..2 {
            let Some(key) = self.order.pop_front() else { return };
            match is_used(&key, &self.map[&key]) {
                true => self.order.push_back(key),
                false => drop(self.map.remove(&key)),
            }
        }
    }

    fn insert(&mut self, key: K, value: V) {
        if self.map.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
    }
}

/// The addresses of its limiters' engines, which a group keeps alive, and the rates to create these with. Names would not
/// do: a limiter may have another engine once it was dropped, or follow several policies.
type GroupKey = Vec<(usize, Option<Rate>)>;

/// A name, and the rules of its permits: with other parameters requests cannot share a call.
type LimiterKey = (Arc<str>, Rules);

/// Whether anything but the client's table holds it: a handle, a grant, a call, or a group.
fn is_in_use(engine: &Arc<Engine>) -> bool {
    Arc::strong_count(engine) > 1
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

    /// The limiter of this name, the same for everybody who uses the name at the same time.
    pub(crate) fn limiter(&self, name: &str, rules: Rules) -> Result<Arc<Engine>, Error> {
        let mut table = self.table();
        if table.is_closed {
            return Err(engine::closed().of(Operation::Limiter, Some(name.into())));
        }
        table.limiter(self, (name.into(), rules))
    }

    /// Whether there is a limiter of this name already.
    #[cfg(feature = "_web")]
    pub(crate) fn has_limiter(&self, name: &str, rules: Rules) -> bool {
        self.table().by_name.map.contains_key(&(name.into(), rules))
    }

    /// The group of these limiters, the same for everybody who uses it at the same time.
    pub(crate) fn group(&self, members: Vec<GroupMember>) -> Result<Arc<Engine>, Error> {
        let mut table = self.table();
        if table.is_closed {
            return Err(engine::closed().of(Operation::Limiter, None));
        }
        let key: GroupKey =
            members.iter().map(|it| (Arc::as_ptr(&it.engine) as usize, it.create)).collect();
        if let Some(group) = table.groups.map.get(&key) {
            return Ok(group.clone());
        }
        if table.groups.has_many() {
            table.groups.make_room(|_, it| is_in_use(it));
        }
        let group = Engine::of_group(members, self.core.clone());
        table.groups.insert(key, group.clone());
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
                if !is_stored || self.core.store.is_in_process() {
                    return Err(invalid(
                        "a limit with the configuration of Redisson's RGcra: must be on a server, where its \
                         parameters are, and be made by stored_limiter_of",
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
        // A forked child does not have the client's thread, whose locks may be held for ever.
        if rt::current_id().is_none() && self.core.check_process().is_err() {
            return;
        }
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
        self.by_name.map.values().chain(self.groups.map.values()).cloned().collect()
    }

    fn limiter(&mut self, limiters: &Limiters, key: LimiterKey) -> Result<Arc<Engine>, Error> {
        if let Some(engine) = self.by_name.map.get(&key) {
            return Ok(engine.clone());
        }
        if self.by_name.has_many() {
            self.make_room(&limiters.core);
        }
        let (name, rules) = key.clone();
        let keys = limiters.keys(&name, &rules, Operation::Limiter)?;
        let remembered = self.remembered.map.get(&key).copied();
        let engine = Arc::new(Engine::new(name, rules, keys, limiters.core.clone(), remembered));
        self.by_name.insert(key, engine.clone());
        Ok(engine)
    }

    /// Drops limiters that are not in use, because a service that names a limiter for each of its users must not
    /// keep them all. For those used less than an interval ago, what the next call needs is remembered:
    /// otherwise each call would have to sum the log, or permits that went missing would never come back.
    fn make_room(&mut self, core: &Core) {
        let now = core.epoch_ms();
        let Table { by_name, groups, remembered, .. } = self;
        // A group keeps its limiters in use.
        groups.make_room(|_, group| is_in_use(group));
        by_name.make_room(|key, engine| {
            let is_used =
                is_in_use(engine) || engine.leases().held() > 0 || engine.needs_stand_in();
            if !is_used {
                // The next call of one beyond the most sums its log.
                let has_room = remembered.map.len() < MOST_REMEMBERED;
                if remembered.has_many() {
                    remembered.make_room(|_, known| has_room && known.is_recent(now));
                }
                remembered.insert(key.clone(), engine.remember());
            }
            is_used
        });
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

        fn has(&self, name: &str) -> bool {
            self.table().by_name.map.contains_key(&(name.into(), Rules::Redisson))
        }
    }

    #[test]
    fn a_name_drops_two_others_at_most_and_none_that_is_in_use() {
        let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
        let name = |number: usize| client.limiter(&format!("{number}")).unwrap();
        let first = name(0);
        for number in 1..MANY_LIMITERS {
            drop(name(number));
        }
        assert_eq!(client.0.len(), MANY_LIMITERS);
        drop(name(MANY_LIMITERS));
        // It has looked at the one that is in use, and at another.
        assert_eq!(client.0.len(), MANY_LIMITERS);
        drop(name(MANY_LIMITERS + 1));
        assert_eq!(client.0.len(), MANY_LIMITERS - 1);
        for number in 0..MANY_LIMITERS {
            drop(name(2 * MANY_LIMITERS + number));
        }
        assert!(Arc::ptr_eq(first.engine(), name(0).engine()));
        assert!(!client.0.has(&format!("{MANY_LIMITERS}")) && client.0.len() <= MANY_LIMITERS);
    }

    #[test]
    fn not_every_key_that_is_made_up_is_remembered_for_a_day() {
        let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
        let remembered = |most: usize| {
            let last_answer = client.0.core.epoch_ms();
            let known =
                Knowledge { rate: Some(Rate::per_day(1)), last_answer, ..Knowledge::default() };
            let keys = (0..most).map(|key| (key.to_string().into(), Rules::Redisson));
            keys.for_each(|key| client.0.table().remembered.insert(key, known));
            // Makes room.
            for name in 0..2 * MANY_LIMITERS {
                drop(client.limiter(&format!("{most} {name}")).unwrap());
            }
            let remembered = &client.0.table().remembered;
            assert_eq!(remembered.map.len(), remembered.order.len());
            remembered.map.len()
        };
        assert!(remembered(MOST_REMEMBERED - 10) > MOST_REMEMBERED / 2);
        assert!(remembered(MOST_REMEMBERED + 10) <= MOST_REMEMBERED);
    }
}

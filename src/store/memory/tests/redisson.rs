//! A small Redisson 4.7.0, by what it does to the keys: for tests where it shares a limiter with
//! this crate. Its faults are kept; those that make permits out of nothing say how many. It can also be
//! a 4.8.0, by what that release is said to change: its recount leaves what a release gave back.

use super::*;

/// One `RedissonClient`'s view of the limiter.
pub(super) struct Redisson {
    store: InProcessStore,
    keys: Keys,
    /// Each grant has an id of its own.
    ids: u32,
    pub(super) is_4_8: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted,
    Refused,
    ExceedsRate,
    /// The log is empty where its first entry is asked for.
    NilError,
}

impl Redisson {
    pub(super) fn new(store: &InProcessStore, keys: Keys) -> Self {
        Redisson { store: store.clone(), keys, ids: 0, is_4_8: false }
    }

    fn field(&self, name: &str) -> i64 {
        self.store.raw_hget(&self.keys.hash, name).unwrap().parse().unwrap()
    }

    fn pair(&self) -> (&str, &str) {
        match self.field("type") {
            0 => (&self.keys.value, &self.keys.permits),
            _ => (&self.keys.client_value, &self.keys.client_permits),
        }
    }

    fn value(&self) -> Option<i64> {
        self.store.raw_get(self.pair().0).map(|text| text.parse().unwrap())
    }

    fn left(&self) -> i64 {
        self.store.raw_log(self.pair().1).iter().map(|(_, member)| permits_of(member)).sum()
    }

    /// Permits that a call takes for free though they are in use: only where the value is gone.
    pub(super) fn makes(&self) -> i64 {
        if self.value().is_none() { self.left() } else { 0 }
    }

    /// Drops entries up to this score; returns their permits.
    fn drop_to(&self, from: i64, edge: i64) -> i64 {
        let log = self.pair().1;
        let mut sum = 0;
        for (score, member) in self.store.raw_log(log) {
            if (from..=edge).contains(&score) {
                sum += permits_of(&member);
                self.store.raw_zrem(log, &member);
            }
        }
        sum
    }

    /// One attempt; `twice`: its script runs twice, as when a reply is lost on the way.
    pub(super) fn acquire(&mut self, t: i64, permits: i64, twice: bool) -> Answer {
        self.ids += 1;
        let mut id = [0xee; 16];
        id[..4].copy_from_slice(&self.ids.to_be_bytes());
        let answer = self.attempt(t, permits, EntryId(id));
        if twice { self.attempt(t, permits, EntryId(id)) } else { answer }
    }

    fn attempt(&self, t: i64, permits: i64, id: EntryId) -> Answer {
        let (rate, interval) = (self.field("rate"), self.field("interval"));
        if rate < permits {
            return Answer::ExceedsRate;
        }
        let (value_key, log) = self.pair();
        let edge = t - interval;
        let v = match self.value() {
            None => rate,
            Some(v) => {
                let expired: i64 = self
                    .store
                    .raw_log(log)
                    .iter()
                    .filter(|(score, _)| (0..=edge).contains(score))
                    .map(|(_, member)| permits_of(member))
                    .sum();
                if expired > 0 {
                    self.drop_to(0, edge);
                    let keeps = self.is_4_8 && v + self.left() > rate;
                    let v = match v + expired <= rate || keeps {
                        true => v + expired,
                        false => rate - self.left(),
                    };
                    self.store.raw_set(value_key, &v.to_string());
                    v
                } else {
                    v
                }
            }
        };
        if v < permits {
            return match self.store.raw_log(log).first() {
                Some(_) => Answer::Refused,
                None => Answer::NilError,
            };
        }
        self.store.raw_zadd(log, t, &pack(id, permits as u32));
        self.store.raw_set_keeping_ttl(value_key, &(v - permits).to_string());
        Answer::Granted
    }

    pub(super) fn available(&self, t: i64) -> i64 {
        let v = match self.value() {
            None => self.field("rate"),
            Some(v) => v + self.drop_to(0, t - self.field("interval")),
        };
        self.store.raw_set(self.pair().0, &v.to_string());
        v
    }

    /// Returns how far the value rose; the log does not fall with it.
    pub(super) fn release(&self, permits: i64) -> i64 {
        let rate = self.field("rate");
        let old = self.value().unwrap_or(rate);
        let new = rate.min(old + permits);
        self.store.raw_set(self.pair().0, &new.to_string());
        (new - old).max(0)
    }

    /// `updateRate` with keep-state; answers by how much it clamps the value.
    pub(super) fn update_rate(&self, t: i64, rate: i64) -> i64 {
        let hash = &self.keys.hash;
        self.store.raw_hset(hash, "rate", &rate.to_string());
        self.drop_to(i64::MIN, t - self.field("interval"));
        let v = rate - self.left();
        self.store.raw_set(self.pair().0, &v.max(0).to_string());
        (-v).max(0)
    }
}

/// The model goes wrong where the page says that Redisson does.
#[test]
fn the_model_has_redissons_faults() {
    let c = limiter(10);
    let mut java = Redisson::new(&c.store, c.keys.clone());
    // 1: for ever
    c.set_value("0");
    for n in 0..5 {
        assert_eq!(java.acquire(T0 + n * I, 1, false), Answer::NilError);
    }
    // 2: twice the rate
    c.store.flush();
    let c = limiter(10);
    let mut java = Redisson::new(&c.store, c.keys.clone());
    assert_eq!(java.acquire(T0, 10, false), Answer::Granted);
    assert_eq!(java.acquire(T0, 1, false), Answer::Refused);
    assert_eq!(java.acquire(T0, 11, false), Answer::ExceedsRate);
    c.store.raw_del(&c.keys.value);
    assert_eq!(java.makes(), 10);
    assert_eq!(java.acquire(T0 + 1, 10, false), Answer::Granted);
    // 3 and 4: lowered twice, logged once
    let c = limiter(10);
    let mut java = Redisson::new(&c.store, c.keys.clone());
    java.acquire(T0, 3, true);
    assert_eq!((c.value(), c.sum()), (Some(7 - 3), 3));
    // 5: back twice
    assert_eq!(java.release(3), 3);
    assert_eq!((c.value(), c.sum(), java.available(T0 + I)), (Some(7), 3, 10));
    // and its recount takes away what was given back, until 4.8.0
    for (is_4_8, left) in [(false, 1), (true, 10)] {
        let c = limiter(10);
        let mut java = Redisson::new(&c.store, c.keys.clone());
        java.is_4_8 = is_4_8;
        for n in 0..10 {
            assert_eq!(java.acquire(T0 + n * 100, 1, false), Answer::Granted);
            java.release(1);
        }
        assert_eq!(java.acquire(T0 + I, 1, false), Answer::Granted);
        assert_eq!(c.value(), Some(left - i64::from(!is_4_8)), "{is_4_8}");
    }
    // 6: clamped
    let c = limiter(10);
    let mut java = Redisson::new(&c.store, c.keys.clone());
    java.acquire(T0, 9, false);
    assert_eq!(java.update_rate(T0, 4), 5);
    assert_eq!(c.value(), Some(0));
}

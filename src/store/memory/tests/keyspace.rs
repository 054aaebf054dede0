//! The keyspace against a naive one.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::store::memory::log::Log;

#[derive(Clone, Debug)]
enum Step {
    Add(i64, u8, u32),
    Remove(u8, u32),
    Foreign(i64, u8),
    Expire(i64, usize),
    Lower(usize, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (-3..20i64, 0..6u8, 1..4u32).prop_map(|(s, id, p)| Step::Add(s, id, p)),
        1 => (0..6u8, 1..4u32).prop_map(|(id, p)| Step::Remove(id, p)),
        1 => (-3..20i64, 0..3u8).prop_map(|(s, id)| Step::Foreign(s, id)),
        1 => (-2..20i64, 0..4usize).prop_map(|(edge, limit)| Step::Expire(edge, limit)),
        1 => (0..5usize, 1..4u32).prop_map(|(at, p)| Step::Lower(at, p)),
    ]
}

proptest! {
    #![proptest_config(cases(4))]

    /// Members are unique, in the order (score, bytes), and the sum is that of a fresh count.
    #[test]
    fn a_log_is_a_sorted_set(steps in prop::collection::vec(step(), 0..40)) {
        let mut log = Log::default();
        let mut naive: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Add(score, id, permits) => {
                    log.add(score, pack(EntryId([id; 16]), permits));
                    naive.insert(pack(EntryId([id; 16]), permits), score);
                }
                Step::Remove(id, permits) => {
                    let member = pack(EntryId([id; 16]), permits);
                    prop_assert_eq!(log.remove(&member), naive.remove(&member).is_some());
                }
                Step::Foreign(score, id) => {
                    log.add(score, vec![id; 20]);
                    naive.insert(vec![id; 20], score);
                }
                Step::Expire(edge, limit) => {
                    let mut expired: Vec<_> =
                        naive.iter().map(|(m, s)| (*s, m.clone())).collect();
                    expired.sort();
                    expired.retain(|(score, _)| *score <= edge);
                    expired.truncate(limit);
                    let found: Vec<_> =
                        log.expired(edge).take(limit).map(|(s, m)| (s, m.to_vec())).collect();
                    prop_assert_eq!(&found, &expired);
                    log.drop_oldest(found.len());
                    naive.retain(|member, _| !expired.iter().any(|(_, m)| m == member));
                }
                Step::Lower(at, permits) => {
                    let entry = log.iter().nth(at).map(|(s, m)| (s, m.to_vec()));
                    if let Some((score, member)) = entry
                        && permits_of(&member) >= i64::from(permits)
                    {
                        log.lower(score, &member, permits_of(&member) - i64::from(permits));
                        naive.remove(&member);
                        let left = permits_of(&member) as u32 - permits;
                        if left > 0 {
                            let id = EntryId(member[1..17].try_into().unwrap());
                            naive.insert(pack(id, left), score);
                        }
                    }
                }
            }
            let mut all: Vec<_> = naive.iter().map(|(member, score)| (*score, &**member)).collect();
            all.sort();
            prop_assert_eq!(log.iter().collect::<Vec<_>>(), all.clone());
            prop_assert_eq!(log.sum(), all.iter().map(|(_, m)| permits_of(m).max(0)).sum::<i64>());
            prop_assert_eq!(log.has_foreign(), all.iter().any(|(_, m)| permits_of(m) < 0));
        }
    }
}

#[test]
fn an_emptied_log_is_gone_with_its_time_to_live() {
    let mut c = limiter(10);
    c.grant(1);
    c.store.raw_pexpire(&c.keys.permits, 5000);
    c.clock.advance(I);
    c.grant(1);
    assert_eq!(c.store.raw_pttl(&c.keys.permits), None);
    c.store.raw_pexpire(&c.keys.permits, 5000);
    c.grant(1);
    assert_eq!(c.store.raw_pttl(&c.keys.permits), Some(5000));
    assert_eq!(c.release(2), 2);
    assert_eq!(c.store.key_names(), ["api", "{api}:value"]);
}

#[test]
fn keys_that_nobody_asks_for_again_go_too() {
    let c = client();
    for n in 0..10_000 {
        let keys = Keys::new(&format!("limiter{n}"), "a");
        let keep = Rate::from_wire(Mode::Overall, 1, 1, 10);
        c.store.run(&keys, &TrySetRateCall(keep)).unwrap();
        c.clock.advance(1);
    }
    assert!(c.store.0.space.lock().unwrap().len() < 300);
}

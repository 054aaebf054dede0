//! A batch equals its requests one after the other: a property, over random limiters.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct Case {
    rate: u64,
    /// Entries logged before: ms before now, permits.
    log: Vec<(i64, u32)>,
    /// How far the value is off from what the log says.
    off: Option<i64>,
    seen: Option<Rate>,
    groups: Vec<RequestGroup>,
}

fn case() -> impl Strategy<Value = Case> {
    let groups = (1..9u64, prop_oneof![Just(0), 1..2500u64], 1..6u64)
        .prop_map(|(permits, max_wait_ms, count)| group_of(permits, max_wait_ms, count));
    (
        prop_oneof![Just(4u64), Just(10), 11..80u64],
        prop::collection::vec((0..1500i64, 1..5u32), 0..14),
        prop_oneof![4 => Just(Some(0)), 1 => (-5..6i64).prop_map(Some), 1 => Just(None)],
        prop_oneof![Just(None), Just(Some(4)), Just(Some(10))],
        prop::collection::vec(groups, 1..7),
    )
        .prop_map(|(rate, log, off, permits, groups)| Case {
            rate,
            log,
            off,
            seen: permits.map(seen),
            groups,
        })
}

fn build(case: &Case) -> Client {
    let mut c = limiter(case.rate);
    c.seen = case.seen;
    c.clock.advance(2 * I);
    for (ago, permits) in &case.log {
        c.log_entry(2 * I - ago, *permits);
    }
    if let Some(off) = case.off {
        let sum: i64 = c.log().iter().map(|(_, permits)| permits).sum();
        c.set_value(&(case.rate as i64 - sum + off).to_string());
    }
    c
}

fn flat(reply: &AcquireReply) -> Vec<Outcome> {
    let groups = reply.outcomes.iter();
    groups.flat_map(|group| std::iter::repeat_n(group.outcome, group.count as usize)).collect()
}

/// The log's dates with the permits of each.
fn by_date(c: &Client) -> std::collections::BTreeMap<i64, i64> {
    let mut sums = std::collections::BTreeMap::new();
    for (date, permits) in c.log() {
        *sums.entry(date).or_default() += permits;
    }
    sums
}

proptest! {
    #![proptest_config(cases(3))]

    #[test]
    fn runs_are_their_requests(case in case()) {
        let (mut whole, mut single) = (build(&case), build(&case));
        let one_by_one: Vec<RequestGroup> = case
            .groups
            .iter()
            .flat_map(|group| std::iter::repeat_n(RequestGroup { count: 1, ..*group }, group.count as usize))
            .collect();
        let (a, b) = (whole.ask(&case.groups), single.ask(&one_by_one));
        prop_assert_eq!(a, b);
        prop_assert_eq!(whole.store.snapshot(), single.store.snapshot());
    }

    /// In a sound limiter, that is: what is off is looked for once a call.
    #[test]
    fn a_batch_is_its_requests(case in case()) {
        let case = Case { off: case.off.map(|_| 0), ..case };
        let (mut whole, mut single) = (build(&case), build(&case));
        let batch = flat(&whole.ask(&case.groups));
        let mut queue: Vec<RequestGroup> = Vec::new();
        let mut outcomes = Vec::new();
        for one in case.groups.iter().flat_map(|group| vec![RequestGroup { count: 1, ..*group }; group.count as usize]) {
            // Those that wait stand before it, so that they are asked for again with it.
            let mut asked = queue.clone();
            asked.push(one);
            let outcome = *flat(&single.ask(&asked)).last().unwrap();
            if matches!(outcome, Outcome::Waiting(_)) {
                queue.push(one);
            }
            outcomes.push(outcome);
        }
        prop_assert_eq!(&batch, &outcomes);
        prop_assert_eq!(whole.value(), single.value());
        prop_assert_eq!(by_date(&whole), by_date(&single));
    }

    /// The head's wait is exact: one millisecond earlier it does not fit, then it does.
    #[test]
    fn the_wait_is_exact(case in case()) {
        let mut c = build(&Case { off: Some(0), ..case.clone() });
        for permits in 1..=case.rate {
            if let Outcome::Refused(wait, _) = c.take(permits) {
                prop_assert!(!wait.at_least || c.value() < Some(0), "{:?}", wait);
                prop_assert_eq!(c.peek(permits).unwrap().wait, wait);
                if !wait.at_least {
                    let t = c.clock.now();
                    c.clock.advance(wait.ms() as i64 - 1);
                    prop_assert!(c.available() < permits);
                    prop_assert_eq!(
                        c.peek(permits).unwrap().wait, Wait::of_ms(1, false));
                    c.clock.advance(1);
                    prop_assert!(c.available() >= permits);
                    c.clock.set(t);
                }
            }
        }
    }
}

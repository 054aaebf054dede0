//! Random events: no request and no permit is lost.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Arrive(u64, Option<Time>),
    Cancel(usize),
    Advance(Time),
    Free(u64),
    Slow,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..6u64, prop_oneof![
            2 => Just(Some(0)),
            3 => (1..400u64).prop_map(|ms| Some(ms * MS)),
            2 => Just(None),
        ]).prop_map(|(permits, max_wait)| Event::Arrive(permits, max_wait)),
        2 => (0..100usize).prop_map(Event::Cancel),
        3 => (0..30_000u64).prop_map(Event::Advance),
        1 => (50_000..300_000u64).prop_map(Event::Advance),
        1 => (1..4u64).prop_map(Event::Free),
        1 => Just(Event::Slow),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// In any order of events every request gets one outcome, grants are made in order, each
    /// granted permit has reached its caller or is counted as unwanted, and no request remains
    /// pending.
    #[test]
    fn nothing_is_lost(
        events in prop::collection::vec(event(), 1..80),
        latency in prop_oneof![Just(0), 1..20_000u64],
        rate in 1..8u64,
    ) {
        let mut world = World::new(Server::new(rate, 100), latency);
        for event in events {
            match event {
                Event::Arrive(permits, max_wait) => { world.arrive(permits, max_wait); }
                Event::Cancel(nth) if !world.callers.is_empty() => {
                    world.cancel(nth % world.callers.len());
                }
                Event::Cancel(_) => {}
                Event::Advance(time) => world.advance(time),
                Event::Slow => world.call_is_slow(),
                // Another process gives permits back.
                Event::Free(permits) => {
                    if let Some((_, front)) = world.server.log.front_mut() {
                        let freed = permits.min(*front);
                        *front -= freed;
                        world.server.left += freed;
                        world.server.log.retain(|(_, permits)| *permits > 0);
                    }
                }
            }
        }
        world.advance(60_000_000);
        prop_assert!(world.queue.is_idle());
        prop_assert_eq!(world.permits(Fate::Pending), 0);
        prop_assert_eq!(world.server.granted, world.permits(Fate::Granted) + world.unwanted);
        let latest = world.callers.iter().map(|c| c.arrived).max().unwrap_or(0);
        prop_assert!(latest <= world.now);
    }
}

//! Random events: nothing is lost.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Arrive(u64, Option<Time>),
    Cancel(usize),
    Advance(Time),
    Free(u64),
    Slow,
    /// As many at once, with permits and timeouts of their own, so that they are as many groups.
    Crowd(u64),
    /// The same in one group.
    Alike(u64),
    /// One that creates the limiter.
    Create(u64),
    Delete,
    /// The call in flight fails.
    Fail,
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

fn event_past_the_limits() -> impl Strategy<Value = Event> {
    prop_oneof![
        30 => event(),
        4 => (200..600u64).prop_map(Event::Crowd),
        1 => (8_000..8_400u64).prop_map(Event::Alike),
        3 => (1..6u64).prop_map(Event::Create),
        2 => Just(Event::Delete),
        3 => Just(Event::Fail),
    ]
}

fn happens(world: &mut World, event: Event) {
    match event {
        Event::Arrive(permits, max_wait) => {
            world.arrive(permits, max_wait);
        }
        Event::Create(permits) => {
            world.arrive_with(permits, Some(0), Some(crate::Rate::per_second(1)));
        }
        Event::Crowd(count) => {
            for nth in 0..count {
                let max_wait = [Some(0), Some((1 + nth % 90) * MS), None][nth as usize % 3];
                world.arrive(1 + nth % 9, max_wait);
            }
        }
        Event::Alike(count) => (0..count).for_each(|_| {
            world.arrive(1, Some(5 * MS));
        }),
        Event::Cancel(nth) if !world.callers.is_empty() => {
            world.cancel(nth % world.callers.len());
        }
        Event::Cancel(_) => {}
        Event::Advance(time) => world.advance(time),
        Event::Slow => world.call_is_slow(),
        // Another process gives permits back before their time.
        Event::Free(permits) => {
            if let Some((_, front)) = world.server.log.front_mut() {
                let freed = permits.min(*front);
                *front -= freed;
                world.server.left += freed;
                world.server.log.retain(|(_, permits)| *permits > 0);
            }
        }
        Event::Delete => {
            world.has_limiter = false;
            world.server.left = world.server.rate;
            world.server.log.clear();
        }
        Event::Fail => world.fail_call(),
    }
}

fn run(mut world: World, events: Vec<Event>) {
    events.into_iter().for_each(|event| happens(&mut world, event));
    // The largest crowds take a minute at the lowest rate.
    world.advance(180_000_000);
    assert!(world.queue.is_idle());
    assert_eq!(world.permits(Fate::Pending), 0);
    assert_eq!(world.server.granted, world.permits(Fate::Granted) + world.unwanted);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever happens when: everybody learns its outcome once and in order, what is granted is either told
    /// or unwanted, and nobody is left standing.
    #[test]
    fn nothing_is_lost(
        events in prop::collection::vec(event(), 1..80),
        latency in prop_oneof![Just(0), 1..20_000u64],
        rate in 1..8u64,
    ) {
        run(World::new(Server::new(rate, 100), latency), events);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// The same with more requests and groups than a call has room for, calls that fail, and a
    /// limiter that is not there.
    #[test]
    fn nothing_is_lost_past_the_limits(
        events in prop::collection::vec(event_past_the_limits(), 1..60),
        latency in prop_oneof![Just(0), 1..20_000u64],
        rate in 1..200u64,
    ) {
        run(World::new(Server::new(rate, 100), latency), events);
    }
}

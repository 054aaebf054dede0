//! Random programs: the others' calls and ours in turn on one key.
//!
//! No script of the others fails. What we grant, they would have granted at that moment, alone; and together no more
//! is granted than the format allows.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::others::{dump, restore};
use super::*;
use crate::store::Outcome;

/// What can be granted at most.
#[derive(Clone, Copy, Debug)]
enum Ceiling {
    /// So many in each window of this width on the grid, in µs.
    Windows(i64),
    /// In the life of the key.
    Life,
    /// In each window that ends at the same value of the field `expire`.
    Expire,
    /// In any time shorter than this, in µs.
    Within(i64),
    /// Besides so many at once, this many a µs, and a rest.
    Rate(f64, f64),
}

struct Case {
    policy: Policy,
    name: &'static str,
    other: Other,
    limit: u64,
    ceiling: Ceiling,
    /// The time in which the limit comes back.
    span: i64,
    /// What is on the server before.
    config: Vec<String>,
}

fn case(format: u64, random: &mut StdRng) -> Case {
    let mut one_of = |numbers: &[u64]| numbers[random.random_range(0..numbers.len())];
    let limit = one_of(&[1, 2, 3, 5, 8]);
    let seconds = one_of(&[1, 2, 10]);
    let width = Duration::from_secs(seconds);
    let span = seconds as i64 * 1_000_000;
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let windows = Ceiling::Windows(span);
    let (policy, name, other, ceiling) = match format {
        0 => {
            let rate = one_of(&[1, 3, 7]);
            let other = Other::RedisRateGcra { burst: limit, rate, period_s: seconds };
            let policy = Policy::redis_rate_gcra(limit, rate, width).unwrap();
            (policy, "api", other, Ceiling::Rate(rate as f64 / span as f64, 0.5))
        }
        1 | 2 => {
            let policy = match format {
                1 => Policy::redis_rate_fixed(limit, width),
                _ => Policy::envoy(limit, width),
            };
            let other = Other::Window { key: String::new(), limit, life_s: seconds };
            (policy.unwrap(), "api", other, windows)
        }
        3 => {
            let other = Other::OrgPathCounter { limit, expire: seconds.to_string() };
            (Policy::org_path_counter(), "org1/user/list", other, Ceiling::Life)
        }
        4 => (Policy::org_path_funnel(), "org1/user/list", Other::OrgPathFunnel, windows),
        5 => {
            let policy = Policy::sliding_log(limit, width).unwrap();
            let other = Other::SlidingLog { limit, interval_ms: seconds * 1000, id: String::new() };
            (policy, "k", other, Ceiling::Within(span + 1))
        }
        6 => {
            let policy = Policy::mixer_fixed(limit, width).unwrap();
            let other = Other::MixerFixed { limit, window_ns: seconds * 1_000_000_000 };
            (policy, "q", other, Ceiling::Expire)
        }
        7 => {
            let other = Other::Living { limit, life_s: 2 };
            (Policy::seconds_counter(limit).unwrap(), "k", other, Ceiling::Life)
        }
        8 => {
            let other = Other::AllowList { app: "a".to_owned() };
            (Policy::allow_list_bucket("a").unwrap(), "k", other, windows)
        }
        9 => {
            let bucket = Duration::from_secs(seconds) / 5;
            let (window_ns, bucket_ns) = (seconds * 1_000_000_000, seconds * 200_000_000);
            let policy = Policy::mixer_rolling(limit, width, bucket).unwrap();
            let other = Other::MixerRolling { limit, window_ns, bucket_ns };
            (policy, "q", other, Ceiling::Within(span - span / 5))
        }
        10 => {
            let policy = Policy::multi_window(limit, width).unwrap();
            let other = Other::MultiWindow { limit, period_s: seconds };
            // Times are cut to milliseconds.
            (policy, "hist:u:a", other, Ceiling::Within(span - 999))
        }
        _ => unreachable!(),
    };
    let mut case = Case { policy, name, other, limit, ceiling, span, config: Vec::new() };
    let capacity = limit.to_string();
    match format {
        3 => case.config = texts(&[name, "limitReq", &capacity, "expire", &seconds.to_string()]),
        4 => {
            let rate = [0.0013, 0.002, 0.7, 1.0 / 3.0][random.random_range(0..4)];
            let (text, last) = (format!("{rate:?}"), (T0 / 1000).to_string());
            case.config = texts(&[name, "Capacity", &capacity, "LeakingRate", &text]);
            case.config.extend(texts(&["RemainingCapacity", "1", "LastLeakingTime", &last]));
            (case.ceiling, case.span) =
                (Ceiling::Rate(rate / 1000.0, 1.0), (limit as f64 / rate * 1000.0) as i64);
        }
        8 => {
            let rate = [0.7, 2.5, 3.0, 700.0][random.random_range(0..4)];
            let text = format!("{rate:?}");
            case.config = texts(&[name, "max_permits", &capacity, "rate", &text]);
            case.config.extend(texts(&["curr_permits", "1", "apps", "b,a"]));
            (case.ceiling, case.span) =
                (Ceiling::Rate(rate / 1e6, 1.0), (limit as f64 / rate * 1e6) as i64);
        }
        _ => {}
    }
    case
}

/// Permits of one call: when, how many, and in which window or life.
struct Grant {
    at: i64,
    permits: u64,
    window: String,
}

struct Program<'a> {
    world: &'a mut World,
    case: Case,
    random: StdRng,
    grants: Vec<Grant>,
    /// Marks of our grants, and what is left of them.
    ours: Vec<(Mark, u64)>,
    lives: u64,
    is_plain: bool,
}

/// A test for each format, by its place in [`case`].
macro_rules! formats {
    ($($name:ident: $format:literal,)+) => {
        $(
            #[test]
            fn $name() {
                take_turns($format);
            }
        )+
    };
}

formats! {
    redis_rate_gcra_in_turns: 0,
    redis_rate_fixed_in_turns: 1,
    envoy_in_turns: 2,
    org_path_counter_in_turns: 3,
    org_path_funnel_in_turns: 4,
    sliding_log_in_turns: 5,
    mixer_fixed_in_turns: 6,
    seconds_counter_in_turns: 7,
    allow_list_bucket_in_turns: 8,
    mixer_rolling_in_turns: 9,
    multi_window_in_turns: 10,
}

fn take_turns(format: u64) {
    let programs = std::env::var("PROGRAMS").map_or(12, |count| count.parse().unwrap());
    let mut world = World::new();
    let (mut granted, mut denied) = (0, 0);
    for seed in 0..programs {
        let mut random = StdRng::seed_from_u64(seed * 100 + format);
        let case = case(format, &mut random);
        let context = format!("seed {seed}, {:?}", case.policy);
        let mut program = Program {
            world: &mut world,
            case,
            random,
            grants: Vec::new(),
            ours: Vec::new(),
            lives: 0,
            is_plain: seed % 2 == 0,
        };
        let (all_granted, all_denied) = program.run(&context);
        (granted, denied) = (granted + all_granted, denied + all_denied);
    }
    assert!(granted > 20 && denied > 20, "{granted} granted, {denied} denied");
}

impl Program<'_> {
    fn run(&mut self, context: &str) -> (u64, u64) {
        self.world.begin(T0 + self.random.random_range(0..5_000_000));
        if let Some((key, fields)) = self.case.config.split_first() {
            cmd("HSET").arg(key).arg(fields).exec(&mut self.world.raw).unwrap();
        }
        let (mut granted, mut denied) = (0, 0);
        for step in 0..30 {
            let context = format!("{context}, step {step}");
            let limit = self.case.limit as i64;
            let gaps =
                [0, 0, 1, 999, self.case.span / (limit + 1), self.case.span / 3, self.case.span];
            let gap = gaps[self.random.random_range(0..gaps.len())];
            self.world.go_to(self.world.now + gap);
            match self.random.random_range(0..10) {
                0..4 => self.others_turn(&context),
                4 if !self.is_plain && !self.ours.is_empty() => self.refund(&context),
                _ => match self.our_turn(&context) {
                    0 => denied += 1,
                    _ => granted += 1,
                },
            }
        }
        if self.is_plain {
            self.check_ceiling(context);
        }
        (granted, denied)
    }

    /// The keys that the other uses now.
    fn others_keys(&self) -> Vec<String> {
        let foreign = foreign(&self.case.policy);
        let mut keys = foreign.keys(&foreign.key(self.case.name).unwrap(), Some(self.world.now));
        keys.remove(1);
        if let Other::OrgPathCounter { .. } = self.case.other {
            keys.truncate(1);
        }
        keys
    }

    /// The other asks for permits, one by one if it takes one only; whether it gets them all.
    fn others_take(&mut self, permits: u64, context: &str) -> bool {
        let keys = self.others_keys();
        let (calls, each) = if self.case.other.takes_many() { (1, permits) } else { (permits, 1) };
        (0..calls).all(|_| {
            let mut other = self.case.other.clone();
            match &mut other {
                Other::SlidingLog { id, .. } => {
                    *id = format!("{:032x}", self.random.random::<u64>());
                }
                Other::Window { key, .. } => key.clone_from(&keys[0]),
                _ => {}
            }
            let answer = other.take(&mut self.world.raw, &keys, self.world.now, each);
            answer.unwrap_or_else(|error| panic!("{context}: their script fails: {error}"))
        })
    }

    fn others_turn(&mut self, context: &str) {
        let most = if self.case.other.takes_many() { self.case.limit } else { 1 };
        let permits = self.random.random_range(1..=most);
        self.look_for_life();
        if let Other::MultiWindow { .. } = self.case.other {
            // Calls in one millisecond are one entry.
            let next = (self.world.now / 1000 + 1) * 1000;
            self.world.go_to(next);
        }
        if self.others_take(permits, context) {
            self.note(permits);
        }
    }

    fn our_turn(&mut self, context: &str) -> u64 {
        let permits = self.random.random_range(1..=self.case.limit);
        let count = self.random.random_range(1..=3);
        self.look_for_life();
        let before = dump(&mut self.world.raw);
        let call = self.world.call(&self.case.policy, self.case.name, "aaaaaaaa0", permits, count);
        let reply = self.world.run(&self.case.policy, self.case.name, call.clone());
        let reply = reply.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(reply.granted_before.is_none(), "{context}");
        let granted = granted(&reply);
        let after = dump(&mut self.world.raw);
        if granted < count {
            self.check_wait(&reply, permits, context);
        }
        if granted == 0 {
            let contents = |keys: &others::Contents| -> Vec<(String, Vec<u8>)> {
                keys.iter().map(|(key, content, _)| (key.clone(), content.clone())).collect()
            };
            assert_eq!(contents(&before), contents(&after), "{context}: a denial wrote");
            return 0;
        }
        // The same call again.
        let again = self.world.run(&self.case.policy, self.case.name, call.clone()).unwrap();
        assert!(
            again.granted_before.is_some() && self::granted(&again) == granted,
            "{context}: {again:?}"
        );
        assert_eq!(mark(&again), mark(&reply), "{context}");
        let again = dump(&mut self.world.raw);
        for (once, twice) in after.iter().zip(&again) {
            assert_eq!((&once.0, &once.1), (&twice.0, &twice.1), "{context}: it counted twice");
        }
        // The others alone.
        restore(&mut self.world.raw, &before);
        assert!(self.others_take(granted * permits, context), "{context}: more than the others");
        restore(&mut self.world.raw, &after);
        self.ours.push((mark(&reply), granted * permits));
        self.note(granted * permits);
        granted
    }

    /// One microsecond before the end of the wait the request would be denied, and then it would be granted.
    fn check_wait(&mut self, reply: &AcquireReply, permits: u64, context: &str) {
        let Some(Outcome::Refused(wait, _)) = reply.outcomes.last().map(|group| group.outcome)
        else {
            panic!("{context}: {reply:?}")
        };
        assert!(!wait.at_least && wait.us > 0, "{context}");
        // Peeks take the time to live that is real.
        if let Ceiling::Life = self.case.ceiling {
            return;
        }
        let at = self.world.now + wait.us as i64;
        for (at, is_granted) in [(at - 1, false), (at, true)] {
            let peek = self.world.peek(&self.case.policy, self.case.name, at, permits).unwrap();
            assert_eq!(peek.available >= permits, is_granted, "{context}, {wait:?}: {peek:?}");
        }
    }

    fn refund(&mut self, context: &str) {
        let place = self.random.random_range(0..self.ours.len());
        let (mark, left) = self.ours[place];
        if left == 0 {
            return;
        }
        let permits = self.random.random_range(1..=left);
        let credit = self.world.give(&self.case.policy, self.case.name, mark, permits);
        assert!(credit <= permits, "{context}");
        self.ours[place].1 -= permits;
    }

    /// Counts the lives of a key that has ended since.
    fn look_for_life(&mut self) {
        let key = &self.others_keys()[0];
        let exists: bool = cmd("EXISTS").arg(key).query(&mut self.world.raw).unwrap();
        if !exists {
            self.lives += 1;
        }
    }

    fn note(&mut self, permits: u64) {
        let key = &self.others_keys()[0];
        let window = match self.case.ceiling {
            Ceiling::Windows(width) => (self.world.now / width).to_string(),
            Ceiling::Life => self.lives.to_string(),
            Ceiling::Expire => {
                cmd("HGET").arg(key).arg("expire").query(&mut self.world.raw).unwrap()
            }
            _ => String::new(),
        };
        self.grants.push(Grant { at: self.world.now, permits, window });
    }

    fn check_ceiling(&self, context: &str) {
        for (place, first) in self.grants.iter().enumerate() {
            let mut sum = 0;
            for grant in &self.grants[place..] {
                let time = grant.at - first.at;
                let (counts, most) = match self.case.ceiling {
                    Ceiling::Within(span) => (time < span, self.case.limit as f64),
                    Ceiling::Rate(rate, rest) => {
                        (true, self.case.limit as f64 + rate * time as f64 + rest)
                    }
                    _ => (grant.window == first.window, self.case.limit as f64),
                };
                sum += if counts { grant.permits } else { 0 };
                assert!(!counts || sum as f64 <= most, "{context}: {sum} in {time} us");
            }
        }
    }
}

/// The number of requests that were granted.
fn granted(reply: &AcquireReply) -> u64 {
    let granted = reply.outcomes.iter().filter(|group| group.outcome == Outcome::Granted);
    granted.map(|group| group.count).sum()
}

/// A call that is abandoned gives back what it was granted, and has no effect if it comes again after that.
#[test]
fn abandoned_calls_give_back_and_late_ones_do_nothing() {
    let mut world = World::new();
    for format in 0..11 {
        for seed in 0..3 {
            let Case { policy, name, config, span, ceiling, .. } =
                case(format, &mut StdRng::seed_from_u64(seed));
            world.is_real = matches!(ceiling, Ceiling::Life);
            let context = format!("seed {seed}, {policy:?}");
            world.begin(T0);
            if let Some((key, fields)) = config.split_first() {
                cmd("HSET").arg(key).arg(fields).exec(&mut world.raw).unwrap();
            }
            world.go_to(T0 + 2 * span);
            // Refunds to a time of arrival are rounded by a microsecond.
            let available =
                |world: &World| world.peek(&policy, name, world.now + 3, 0).unwrap().available;
            let at_first = available(&world);
            let call = world.call(&policy, name, "aaaaaaaa0", 1, 1);
            let reply = world.run(&policy, name, call.clone()).unwrap();
            assert_eq!((granted(&reply), available(&world)), (1, at_first - 1), "{context}");

            let mut next = world.call(&policy, name, "aaaaaaaa0", 1, 1);
            next.limits[0].groups.clear();
            next.lane.abandon = Some(call.lane.number);
            world.run(&policy, name, next).unwrap();
            assert_eq!(available(&world), at_first, "{context}");
            let late = world.run(&policy, name, call).unwrap_err();
            assert_eq!(late.kind(), ErrorKind::Server, "{context}: {late}");
            assert_eq!(available(&world), at_first, "{context}");

            let call = world.call(&policy, name, "aaaaaaaa0", 1, 1);
            let mark = mark(&world.run(&policy, name, call).unwrap());
            assert_eq!(world.give(&policy, name, mark, 1), 1, "{context}");
            assert_eq!(available(&world), at_first, "{context}");
        }
    }
}

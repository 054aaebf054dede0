//! Semaphores of this crate and of releases of Redisson in lock-step: random programs, on a name for each, whose answers
//! and keys are compared after every step.
//!
//! Redisson itself runs, by the machine's clock: the ids are its own, and ends of leases are minutes away, or passed
//! before the next step. So they are compared with a tolerance, and permits by their place. What differs on purpose
//! (docs/semaphores.md, "Differences") is levelled before the comparison, or left out of the programs; [`NOT_COMPARED`]
//! lists it.

use std::sync::Arc;
use std::time::Duration;

use compat_tests::oracle::campaign::{Campaign, budget, releases};
use compat_tests::oracle::lockstep::number;
use compat_tests::peer::{Kind, Limiter, Options, Peer};
use compat_tests::scenario::{fresh_name, now_ms};
use compat_tests::server::Server;
use proptest::prelude::*;
use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{Client, Error, ErrorKind, Semaphore, SemaphoreOptions};
use serde_json::{Value, json};

/// The numbers in "Differences", and what the comparison does about them.
const NOT_COMPARED: [(u32, &str); 5] = [
    (8, "too many permits: an error counts as a refusal"),
    (9, "who takes expired permits back: they count as free on both sides"),
    (10, "a plain release without a semaphore is left out"),
    (12, "after add and drain both sides lose their times to live"),
    (14, "the renewal of an expired permit is left out"),
];

/// Times that are minutes apart are the same if they are this close.
const TOLERANCE_MS: i64 = 60_000;
const TTL_MS: u64 = 900_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lease {
    /// Without an end.
    None,
    Long,
    Longer,
    /// It has ended before the next step.
    Ended,
}

impl Lease {
    fn ms(self) -> Option<u64> {
        match self {
            Lease::None => None,
            Lease::Long => Some(600_000),
            Lease::Longer => Some(1_200_000),
            Lease::Ended => Some(20),
        }
    }

    async fn passes(self) {
        if self == Lease::Ended {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    TrySet(u64),
    /// Only with leases.
    Set(u64),
    Add(i64),
    /// Only plain.
    Drain,
    /// The number counts for plain ones; a permit with a lease is taken alone.
    Take(u64, Lease),
    /// The number of permits, or the place of one among those ever taken.
    GiveBack(usize),
    Renew(usize, Lease),
    Counts,
    Expire,
    ClearExpire,
    Delete,
}

fn op() -> impl Strategy<Value = Op> {
    let lease = || {
        prop_oneof![
            1 => Just(Lease::None), 3 => Just(Lease::Long), 1 => Just(Lease::Longer), 1 => Just(Lease::Ended)
        ]
    };
    prop_oneof![
        3 => (0_u64..5).prop_map(Op::TrySet),
        2 => (0_u64..6).prop_map(Op::Set),
        2 => (-2_i64..4).prop_map(Op::Add),
        1 => Just(Op::Drain),
        12 => (1_u64..4, lease()).prop_map(|(permits, lease)| Op::Take(permits, lease)),
        8 => (0_usize..12).prop_map(Op::GiveBack),
        4 => (0_usize..12, lease()).prop_map(|(place, lease)| Op::Renew(place, lease)),
        5 => Just(Op::Counts),
        1 => Just(Op::Expire),
        1 => Just(Op::ClearExpire),
        1 => Just(Op::Delete),
    ]
}

/// A permit with an id for each side.
#[derive(Clone, Debug)]
struct Taken {
    ours: String,
    theirs: String,
    lease: Lease,
}

/// The keys of one side, with expired permits as free ones.
#[derive(Debug)]
struct State {
    value: Option<i64>,
    ends: Vec<i64>,
    /// Of the value and the permits, in ms; negative as in PTTL.
    ttls: [i64; 2],
}

impl State {
    async fn of(name: &str, connection: &mut MultiplexedConnection) -> State {
        let out = out(name);
        let ends: Vec<(Vec<u8>, f64)>;
        let (value, first, second): (Option<i64>, i64, i64);
        (value, ends, first, second) = redis::pipe()
            .get(name)
            .zrange_withscores(&out, 0, -1)
            .pttl(name)
            .pttl(&out)
            .query_async(connection)
            .await
            .expect("the keys");
        for (id, end) in &ends {
            assert!(id.len() == 16 && end.fract() == 0.0, "{id:?} {end}");
        }
        let now = now_ms();
        let (ended, lasting): (Vec<i64>, _) =
            ends.iter().map(|(_, end)| *end as i64).partition(|end| *end <= now);
        let mut ttls = [first, second];
        if lasting.is_empty() {
            // The key is there only for what Redisson takes back later.
            ttls[1] = -2;
        }
        State { value: value.map(|value| value + ended.len() as i64), ends: lasting, ttls }
    }

    fn is_like(&self, other: &State) -> bool {
        let like = |a: &[i64], b: &[i64]| {
            let close =
                |(a, b): (&i64, &i64)| a == b || a.min(b) > &0 && (a - b).abs() < TOLERANCE_MS;
            a.len() == b.len() && a.iter().zip(b).all(close)
        };
        self.value == other.value && like(&self.ends, &other.ends) && like(&self.ttls, &other.ttls)
    }
}

fn out(name: &str) -> String {
    format!("{{{name}}}:timeout")
}

/// A program's two semaphores.
struct World {
    is_plain: bool,
    client: Client,
    name: String,
    theirs: Limiter,
    connection: MultiplexedConnection,
    taken: Vec<Taken>,
}

impl World {
    fn ours(&self, lease: Lease) -> Semaphore {
        let options = SemaphoreOptions::new();
        let options = match lease.ms() {
            None => options.without_lease(),
            Some(ms) => options.fixed_lease(Duration::from_millis(ms)),
        };
        let opened = match self.is_plain {
            true => self.client.semaphore(&self.name),
            false => self.client.concurrency_with(&self.name, options),
        };
        opened.expect("a semaphore")
    }

    /// An answer of Redisson, in which fewer than no permits are none.
    async fn java(&self, op: &str, arguments: Value) -> Value {
        let kind = if self.is_plain { "sem" } else { "pxs" };
        let answer: Value =
            self.theirs.call(&format!("{kind}{op}"), arguments).await.expect("an answer");
        answer.as_i64().map_or(answer, |number| number.max(0).into())
    }

    async fn states(&mut self) -> [State; 2] {
        [
            State::of(&self.name, &mut self.connection).await,
            State::of(self.theirs.name(), &mut self.connection).await,
        ]
    }

    /// Both answers; `None` if the step is left out.
    async fn step(&mut self, op: &Op) -> Result<Option<[Value; 2]>, Error> {
        let ours = self.ours(Lease::None);
        let [before, _] = self.states().await;
        Ok(Some(match *op {
            Op::TrySet(permits) => [
                ours.try_set_permits(permits).await?.into(),
                self.java("TrySetPermits", json!({"permits": permits})).await,
            ],
            Op::Set(_) if self.is_plain => return Ok(None),
            Op::Set(permits) => {
                ours.set_permits(permits).await?;
                [Value::Null, self.java("SetPermits", json!({"permits": permits})).await]
            }
            Op::Add(permits) => {
                ours.add_permits(permits).await?;
                let theirs = self.java("AddPermits", json!({"permits": permits})).await;
                self.persist().await;
                [Value::Null, theirs]
            }
            Op::Drain if !self.is_plain => return Ok(None),
            Op::Drain => {
                let answers = [ours.drain().await?.into(), self.java("Drain", Value::Null).await];
                self.persist().await;
                answers
            }
            Op::Take(permits, _) if self.is_plain => {
                let granted = taken(&ours, permits).await?.is_some();
                let theirs = self.java("TryAcquire", json!({"permits": permits})).await;
                [granted.into(), theirs]
            }
            Op::Take(_, lease) => {
                let granted = taken(&self.ours(lease), 1).await?;
                let theirs = self.java(
                    "TryAcquire",
                    json!({"waitMs": 0, "leaseMs": lease.ms().map_or(-1, |ms| ms as i64)}),
                );
                let theirs = theirs.await;
                lease.passes().await;
                let both = [granted.is_some(), theirs.is_string()].map(Value::from);
                if let (Some(ours), Value::String(theirs)) = (granted, theirs) {
                    self.taken.push(Taken { ours: ours[0].clone(), theirs, lease });
                }
                both
            }
            Op::GiveBack(_) if self.is_plain && before.value.is_none() => return Ok(None),
            Op::GiveBack(permits) if self.is_plain => {
                let permits = permits as u64 % 3 + 1;
                ours.release_permits(permits).await?;
                [Value::Null, self.java("Release", json!({"permits": permits})).await]
            }
            Op::GiveBack(place) => {
                let Some(permit) = self.taken.get(place) else { return Ok(None) };
                let theirs = self.java("Release", json!({"permit": permit.theirs})).await;
                [ours.release(&permit.ours).await?.into(), theirs]
            }
            Op::Renew(place, lease) => {
                let Some(permit) = self.taken.get(place).filter(|it| it.lease != Lease::Ended)
                else {
                    return Ok(None);
                };
                let arguments = json!({
                    "permit": permit.theirs, "leaseMs": lease.ms().map_or(-1, |ms| ms as i64)
                });
                let theirs = self.java("UpdateLease", arguments).await;
                let renewed =
                    ours.update_lease(&permit.ours, lease.ms().map(Duration::from_millis)).await?;
                lease.passes().await;
                self.taken[place].lease = lease;
                [renewed.into(), theirs]
            }
            Op::Counts => {
                let mut both = [
                    vec![ours.available_permits().await?],
                    vec![self.java("Available", Value::Null).await.as_u64().expect("a number")],
                ];
                if !self.is_plain {
                    both[0].extend([ours.acquired_permits().await?, ours.permits().await?]);
                    for count in ["Acquired", "Permits"] {
                        both[1]
                            .push(self.java(count, Value::Null).await.as_u64().expect("a number"));
                    }
                }
                both.map(Value::from)
            }
            Op::Expire => [
                ours.expire(Duration::from_millis(TTL_MS), None).await?.into(),
                self.java("Expire", json!({"ttlMs": TTL_MS})).await,
            ],
            Op::ClearExpire => {
                [ours.clear_expire().await?.into(), self.java("ClearExpire", Value::Null).await]
            }
            Op::Delete => [ours.delete().await?.into(), self.java("Delete", Value::Null).await],
        }))
    }

    /// All keys of both lose their times to live.
    async fn persist(&mut self) {
        for name in [self.name.clone(), self.theirs.name().to_owned()] {
            let mut both = redis::pipe();
            both.persist(&name).ignore().persist(out(&name)).ignore();
            both.exec_async(&mut self.connection).await.expect("an answer");
        }
    }
}

/// The ids of the permits, if there were enough.
async fn taken(semaphore: &Semaphore, permits: u64) -> Result<Option<Vec<String>>, Error> {
    match semaphore.try_acquire_now(permits).await {
        Ok(answer) => Ok(answer.ok().map(|permit| permit.keep())),
        Err(error)
            if [ErrorKind::InvalidArgument, ErrorKind::NotInitialized].contains(&error.kind()) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// How many steps were compared; an error is the first difference, with the steps before it.
async fn run(mut world: World, program: &[Op]) -> Result<usize, String> {
    let (mut done, mut trace) = (0, String::new());
    for op in program {
        let answers = match world.step(op).await {
            Ok(None) => continue,
            Ok(Some(answers)) => answers,
            Err(error) => return Err(format!("{trace}{op:?}: {error}")),
        };
        let states = world.states().await;
        trace += &format!("{op:?} -> {answers:?}\n    {:?}\n", states[0]);
        if answers[0] != answers[1] || !states[0].is_like(&states[1]) {
            let kind = if world.is_plain { "plain" } else { "with leases" };
            return Err(format!("{kind}: ours and Redisson's differ\n{trace}    {:?}", states[1]));
        }
        done += 1;
    }
    Ok(done)
}

#[test]
fn semaphores_in_lockstep() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    // Before that, there are no counts, and nothing sets permits.
    let releases: Vec<_> =
        releases().into_iter().filter(|release| number(release) >= [3, 19, 1]).collect();
    println!("not compared: {NOT_COMPARED:?}");
    for release in &releases {
        let campaign = Campaign {
            name: &format!("semaphores and {release}"),
            budget: budget(0.1 / releases.len() as f64),
        };
        campaign.run(
            || prop::collection::vec(op(), 1..60).boxed(),
            async |worker| {
                let options = Options::new(Kind::Java, server.url()).release(release);
                let java = Arc::new(Peer::start_with(options).await);
                let client = Client::connect(&server.url()).await.expect("a client");
                (worker == 0, java, client, server.connect().await)
            },
            async |(is_plain, java, client, connection), program| {
                let world = World {
                    is_plain: *is_plain,
                    client: client.clone(),
                    name: fresh_name(),
                    theirs: java.limiter(fresh_name()),
                    connection: connection.clone(),
                    taken: Vec::new(),
                };
                run(world, program).await
            },
        );
    }
}

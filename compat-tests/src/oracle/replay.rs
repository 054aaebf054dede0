//! Replays a recording with names, numbers, times and ids that the test chooses.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::database::Database;
use super::layout::{Role, Template, Word, key_facts};
use super::lockstep::Side;
use super::ops::{Condition, Failure, Op, Outcome, Rate, Shape};
use super::record::{Answered, Edge, Recording, arguments, now_ms, recording};
use super::subject::{Call, Subject};
use crate::server::{Server, connect};

/// Counts oracles, so that no two of them make the same ids: an entry with the
/// same id and permits as another one would replace it in the log.
static ORACLES: AtomicU64 = AtomicU64::new(1);

/// A Redisson release on one database of one server, with several clients.
#[derive(Clone, Debug)]
pub struct Oracle {
    recording: Arc<Recording>,
    clients: Arc<[String]>,
    connection: MultiplexedConnection,
    digests: Arc<HashMap<Vec<u8>, String>>,
    ids: Arc<AtomicU64>,
}

impl Oracle {
    /// A release whose clients have these ids. Loads the scripts.
    pub async fn new(
        recording: Arc<Recording>,
        clients: &[String],
        mut connection: MultiplexedConnection,
    ) -> Oracle {
        let mut digests = HashMap::new();
        for template in recording.templates.values().flatten() {
            if let Some(text) = &template.script
                && !digests.contains_key(text)
            {
                let load = redis::cmd("SCRIPT").arg("LOAD").arg(text).take();
                let digest: String = load
                    .query_async(&mut connection)
                    .await
                    .expect("the server accepts a recorded script");
                digests.insert(text.clone(), digest);
            }
        }
        Oracle {
            recording,
            clients: clients.into(),
            connection,
            digests: Arc::new(digests),
            ids: Arc::new(AtomicU64::new(ORACLES.fetch_add(1, Ordering::Relaxed) << 28)),
        }
    }

    /// A release on one database of a server, and that database.
    pub async fn on(
        server: &Server,
        database: usize,
        release: &str,
        clients: &[String],
    ) -> Side<Oracle, Database> {
        let url = format!("{}/{database}", server.admin_url());
        let connection = connect(&url).await.expect("the server takes connections");
        let recording = recording(release).await;
        Side {
            subject: Oracle::new(recording, clients, connection.clone()).await,
            site: Database::new(connection).await,
        }
    }

    /// The release.
    pub fn release(&self) -> &str {
        &self.recording.release
    }

    /// One limiter of one client at the time `now`.
    pub fn at<'a>(&'a self, client: usize, name: &'a str, now: u64) -> At<'a> {
        At { oracle: self, client, name, now }
    }

    async fn run(&self, call: Call<'_>, id: Option<&[u8]>) -> Outcome {
        let shape = call.op.shape();
        let Some(templates) = self.recording.templates.get(&shape) else {
            return Outcome::Unsupported;
        };
        let edge = Edge::of(call.op).and_then(|edge| self.recording.edges.get(&(shape, edge)));
        match edge {
            Some(Answered::Ignored) => return Outcome::Done,
            Some(Answered::Refused(kind)) => {
                let message = format!("{} refuses {:?}", self.recording.release, call.op);
                return Outcome::Failed(Failure { kind: *kind, message });
            }
            Some(Answered::Sent) | None => {}
        }
        let mut reply = Value::Nil;
        for template in templates {
            let command = self.fill(template, call, id);
            match command.query_async(&mut self.connection.clone()).await {
                Ok(value) => reply = value,
                Err(e) => return Outcome::Failed(Failure::from_server(e.to_string())),
            }
        }
        interpret(shape, reply)
    }

    /// The command of a template for a call.
    fn fill(&self, template: &Template, call: Call<'_>, id: Option<&[u8]>) -> Cmd {
        // Keys expire by the server's clock, which is the same as this process's.
        let epoch = match call.op {
            Op::ExpireAt(ms, _) => now_ms().saturating_add_signed(*ms),
            _ => 0,
        };
        let mut facts = key_facts(call.name, &self.clients[call.client]);
        facts.extend(arguments(call.op, epoch));
        facts.push((Role::Now, call.now.to_string().into()));
        let mut command = Cmd::new();
        if let Some(text) = &template.script {
            command.arg("EVALSHA").arg(&self.digests[text]);
        }
        for word in &template.words {
            match word {
                Word::Literal(bytes) => command.arg(bytes),
                Word::Slot(Role::EntryId(length)) => match id {
                    Some(id) => command.arg(id),
                    None => command.arg(self.next_id(*length)),
                },
                Word::Slot(role) => {
                    let fact = facts.iter().find(|(r, _)| r == role);
                    let (_, bytes) = fact.unwrap_or_else(|| panic!("no {role:?} in {call:?}"));
                    command.arg(bytes)
                }
            };
        }
        command
    }

    /// Ids that differ, in no particular order: entries with the same score are
    /// ordered by their ids.
    fn next_id(&self, length: usize) -> Vec<u8> {
        let count = self.ids.fetch_add(1, Ordering::Relaxed);
        let mut state = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut id = count.to_be_bytes()[2..].to_vec();
        while id.len() < length {
            state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            id.extend(state.to_be_bytes());
        }
        id.truncate(length);
        id.reverse();
        id
    }
}

impl Subject for Oracle {
    fn label(&self) -> String {
        format!("Redisson {}", self.recording.release)
    }

    fn supports(&self, shape: Shape) -> bool {
        self.recording.templates.contains_key(&shape)
    }

    async fn apply(&self, call: Call<'_>) -> Outcome {
        self.run(call, None).await
    }
}

/// How Redisson interprets a reply.
fn interpret(shape: Shape, reply: Value) -> Outcome {
    match (shape, reply) {
        (Shape::TryAcquire, Value::Nil) => Outcome::Granted,
        (Shape::TryAcquire, Value::Int(delay)) => Outcome::Denied(delay),
        (Shape::SetRate(..) | Shape::SetRateArgs(..) | Shape::Release | Shape::Rename, _) => {
            Outcome::Done
        }
        (Shape::AvailablePermits | Shape::RemainTimeToLive, number) => {
            match redis::from_redis_value(number) {
                Ok(number) => Outcome::Count(number),
                Err(e) => Outcome::Failed(Failure::from_server(e.to_string())),
            }
        }
        (Shape::GetConfig, hash) => {
            let hash: BTreeMap<String, String> =
                redis::from_redis_value(hash).expect("a hash of text");
            Outcome::Config((!hash.is_empty()).then_some(hash))
        }
        (_, Value::Int(n)) => Outcome::Flag(n > 0),
        (_, Value::Nil) => Outcome::Flag(false),
        (shape, reply) => panic!("unexpected reply to {shape:?}: {reply:?}"),
    }
}

/// The calls of an oracle as methods: one limiter, one client, one time.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    oracle: &'a Oracle,
    client: usize,
    name: &'a str,
    now: u64,
}

impl At<'_> {
    /// Any operation.
    pub async fn apply(&self, op: &Op) -> Outcome {
        self.oracle.run(self.call(op), None).await
    }

    /// `trySetRate`
    pub async fn try_set_rate(&self, rate: Rate) -> Outcome {
        self.apply(&Op::TrySetRate(rate)).await
    }

    /// `setRate`
    pub async fn set_rate(&self, rate: Rate) -> Outcome {
        self.apply(&Op::SetRate(rate)).await
    }

    /// `setRate(args)`
    pub async fn set_rate_args(&self, rate: Rate, keep_state: bool) -> Outcome {
        self.apply(&Op::SetRateArgs(rate, keep_state)).await
    }

    /// `updateRate(args)`
    pub async fn update_rate(&self, rate: Rate, keep_state: bool) -> Outcome {
        self.apply(&Op::UpdateRate(rate, keep_state)).await
    }

    /// One attempt of `tryAcquire`.
    pub async fn try_acquire_once(&self, permits: i64) -> Outcome {
        self.apply(&Op::TryAcquire(permits)).await
    }

    /// One attempt under an id that the caller chooses, as in a retried command.
    pub async fn try_acquire_as(&self, permits: i64, id: &[u8]) -> Outcome {
        let op = Op::TryAcquire(permits);
        self.oracle.run(self.call(&op), Some(id)).await
    }

    /// `release`
    pub async fn release(&self, permits: i64) -> Outcome {
        self.apply(&Op::Release(permits)).await
    }

    /// `availablePermits`
    pub async fn available_permits(&self) -> Outcome {
        self.apply(&Op::AvailablePermits).await
    }

    /// `getConfig`
    pub async fn get_config(&self) -> Outcome {
        self.apply(&Op::GetConfig).await
    }

    /// `delete`
    pub async fn delete(&self) -> Outcome {
        self.apply(&Op::Delete).await
    }

    /// `expire`
    pub async fn expire(&self, ttl_ms: i64, condition: Option<Condition>) -> Outcome {
        self.apply(&Op::Expire(ttl_ms, condition)).await
    }

    /// `expireAt`, this many milliseconds from now.
    pub async fn expire_at(&self, in_ms: i64, condition: Option<Condition>) -> Outcome {
        self.apply(&Op::ExpireAt(in_ms, condition)).await
    }

    /// `clearExpire`
    pub async fn clear_expire(&self) -> Outcome {
        self.apply(&Op::ClearExpire).await
    }

    /// `rename`
    pub async fn rename(&self, to: &str) -> Outcome {
        self.apply(&Op::Rename(to.into())).await
    }

    fn call<'a>(&'a self, op: &'a Op) -> Call<'a> {
        Call { client: self.client, name: self.name, op, now: self.now }
    }
}

//! Runs each operation of a Redisson release once and records what it sent.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::layout::{Role, Sample, Sent, Template, deduce, key_facts};
use super::ops::{ErrorKind, Op, Rate, Shape};
use crate::monitor::{Command, Monitor};
use crate::peer::{Kind, Options, Peer};
use crate::server::Server;

/// What a release sends for each of its operations.
#[derive(Debug)]
pub struct Recording {
    /// The release, as in `4.7.0`.
    pub release: String,
    /// The commands of each operation that the release has, and that the server can run.
    pub templates: HashMap<Shape, Vec<Template>>,
    /// What it does with arguments that it may refuse.
    pub edges: BTreeMap<(Shape, Edge), Answered>,
}

/// An argument that a client may refuse before sending anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Edge {
    /// 0 permits.
    Zero,
    /// Fewer than 0 permits.
    Negative,
    /// A keep-alive shorter than the interval.
    ShortKeepAlive,
}

/// What a client does with such an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It sends the call like any other.
    Sent,
    /// It returns without an error and sends nothing.
    Ignored,
    /// It fails with this kind of error.
    Refused(ErrorKind),
}

impl Edge {
    /// The edge case that this operation is, if it is one.
    pub fn of(op: &Op) -> Option<Edge> {
        match op {
            Op::TryAcquire(0) | Op::Release(0) => Some(Edge::Zero),
            Op::TryAcquire(n) | Op::Release(n) if *n < 0 => Some(Edge::Negative),
            _ => {
                let rate = op.rate()?;
                let short = rate.keep_alive_ms.is_some_and(|k| k < rate.interval_ms);
                short.then_some(Edge::ShortKeepAlive)
            }
        }
    }
}

/// The recording of a release, made once per process.
pub async fn recording(release: &str) -> Arc<Recording> {
    static MADE: LazyLock<Mutex<HashMap<String, Arc<Recording>>>> = LazyLock::new(Mutex::default);
    let mut made = MADE.lock().await;
    if let Some(recording) = made.get(release) {
        return recording.clone();
    }
    let recording = Arc::new(record(release).await);
    made.insert(release.into(), recording.clone());
    recording
}

/// Records a release on a server of its own. Operations for which the server
/// lacks a command are left out, and with them all comparisons of them.
///
/// Panics if a command cannot be explained, naming the release, the operation
/// and the word.
async fn record(release: &str) -> Recording {
    let server = Server::start().await;
    let options = Options::new(Kind::Java, server.url()).release(release);
    let conditions = server.has_expire_conditions().await;
    let mut session = Session {
        peer: Peer::start_with(options).await,
        monitor: Monitor::start(&server).await,
        server,
        scripts: HashMap::new(),
    };
    let mut templates = HashMap::new();
    let mut edges = BTreeMap::new();
    for shape in Shape::all() {
        if matches!(shape, Shape::Expire(Some(_)) | Shape::ExpireAt(Some(_))) && !conditions {
            continue;
        }
        let samples = [0, 1].map(|round| example(shape, round));
        let [first, second] = &samples;
        let Some(first) = session.sample(first).await else {
            continue;
        };
        let second = session.sample(second).await.expect("the first sample succeeded");
        let deduced = deduce(&first, &second)
            .unwrap_or_else(|why| panic!("Redisson {release}, {shape:?}: {why}"));
        assert!(!deduced.is_empty(), "Redisson {release}, {shape:?}: nothing was sent");
        templates.insert(shape, deduced);
        for edge in [Edge::Zero, Edge::Negative, Edge::ShortKeepAlive] {
            if let Some(op) = at_edge(shape, edge) {
                edges.insert((shape, edge), session.probe(&op).await);
            }
        }
    }
    Recording { release: release.into(), templates, edges }
}

struct Session {
    server: Server,
    peer: Peer,
    monitor: Monitor,
    /// Texts by digest.
    scripts: HashMap<Vec<u8>, Vec<u8>>,
}

/// A call with arguments that occur nowhere else.
struct Example {
    name: &'static str,
    op: Op,
}

fn example(shape: Shape, round: usize) -> Example {
    let pick = |pair: [i64; 2]| pair[round];
    let rate = |mode, keep_alive: bool| Rate {
        mode,
        rate: pick([1_000_003, 2_000_029]),
        interval_ms: pick([70_001, 80_021]),
        keep_alive_ms: keep_alive.then(|| pick([900_007, 950_009])),
    };
    let op = match shape {
        Shape::TrySetRate(mode, ka) => Op::TrySetRate(rate(mode, ka)),
        Shape::SetRate(mode, ka) => Op::SetRate(rate(mode, ka)),
        Shape::SetRateArgs(mode, ka, keep) => Op::SetRateArgs(rate(mode, ka), keep),
        Shape::UpdateRate(mode, ka, keep) => Op::UpdateRate(rate(mode, ka), keep),
        Shape::TryAcquire => Op::TryAcquire(pick([1_009, 1_013])),
        Shape::Release => Op::Release(pick([1_019, 1_021])),
        Shape::AvailablePermits => Op::AvailablePermits,
        Shape::GetConfig => Op::GetConfig,
        Shape::Delete => Op::Delete,
        Shape::IsExists => Op::IsExists,
        Shape::Expire(condition) => Op::Expire(pick([500_009, 500_029]), condition),
        Shape::ExpireAt(condition) => Op::ExpireAt(pick([600_011, 600_043]), condition),
        Shape::ClearExpire => Op::ClearExpire,
        Shape::RemainTimeToLive => Op::RemainTimeToLive,
        Shape::Rename => Op::Rename(["new1", "new{2}"][round].into()),
        Shape::Touch => Op::Touch,
        Shape::Extra => unreachable!("no Redisson has these"),
    };
    Example { name: ["limiter", "limiter {of} two"][round], op }
}

fn at_edge(shape: Shape, edge: Edge) -> Option<Op> {
    let mut op = example(shape, 0).op;
    match (&mut op, edge) {
        (Op::TryAcquire(n) | Op::Release(n), Edge::Zero) => *n = 0,
        (Op::TryAcquire(n) | Op::Release(n), Edge::Negative) => *n = -1,
        (
            Op::TrySetRate(rate)
            | Op::SetRate(rate)
            | Op::SetRateArgs(rate, _)
            | Op::UpdateRate(rate, _),
            Edge::ShortKeepAlive,
        ) => *rate.keep_alive_ms.as_mut()? = rate.interval_ms - 1,
        _ => return None,
    }
    Some(op)
}

impl Session {
    /// One call and everything that can explain its words; `None` if the release lacks it.
    async fn sample(&mut self, example: &Example) -> Option<Sample> {
        self.prepare(example.name).await;
        let start = now_ms();
        let epoch = match example.op {
            Op::ExpireAt(ms, _) => start + ms as u64,
            _ => 0,
        };
        let request = request(&example.op, example.name, epoch);
        let answer = self.peer.call(request).await;
        let sent = self.sent().await;
        match answer {
            Err(e) if e.message.contains("not in this release") => return None,
            Err(e) => panic!("{:?}: {e:?}", example.op),
            Ok(_) => {}
        }
        let mut facts = key_facts(example.name, self.peer.client_id());
        facts.extend(arguments(&example.op, epoch));
        Some(Sample { facts, now: start - 1..=now_ms() + 1, sent })
    }

    /// What the client does with an argument that it may refuse.
    async fn probe(&mut self, op: &Op) -> Answered {
        let name = "limiter";
        self.prepare(name).await;
        let answer = self.peer.call(request(op, name, 0)).await;
        match (answer, self.sent().await.is_empty()) {
            (_, false) => Answered::Sent,
            (Ok(_), true) => Answered::Ignored,
            (Err(e), true) => Answered::Refused(e.kind),
        }
    }

    /// A limiter in use, so that every operation has something to act on.
    async fn prepare(&mut self, name: &str) {
        self.server.flush().await;
        let rate = Rate::overall(5_000, 60_000);
        for op in [Op::TrySetRate(rate), Op::TryAcquire(3)] {
            let answer = self.peer.call(request(&op, name, 0)).await;
            answer.unwrap_or_else(|e| panic!("{op:?}: {e:?}"));
        }
        self.sent().await;
    }

    /// What the peer has sent since the last time, without housekeeping.
    async fn sent(&mut self) -> Vec<Sent> {
        let sent = without_housekeeping(self.monitor.take().await, &mut self.scripts);
        sent.into_iter().map(|command| self.resolve(command)).collect()
    }

    fn resolve(&self, command: Command) -> Sent {
        let mut words = command.words.clone().into_iter();
        let script = if command.is("EVALSHA") {
            let digest = words.nth(1).expect("a digest");
            let text = self.scripts.get(&digest);
            Some(text.unwrap_or_else(|| panic!("{command:?}: unknown script")).clone())
        } else if command.is("EVAL") {
            words.nth(1)
        } else {
            None
        };
        Sent { script, words: words.collect() }
    }
}

/// What was called for the limiter's sake. Scripts that were loaded are added to `scripts`, by digest.
fn without_housekeeping(
    commands: Vec<Command>,
    scripts: &mut HashMap<Vec<u8>, Vec<u8>>,
) -> Vec<Command> {
    let mut sent: Vec<Command> = Vec::new();
    for command in commands {
        let housekeeping = ["PING", "CLIENT", "HELLO", "SELECT", "FLUSHALL", "QUIT"];
        if command.by_script || housekeeping.iter().any(|name| command.is(name)) {
            continue;
        }
        if !command.is("SCRIPT") {
            sent.push(command);
            continue;
        }
        if let [_, what, text] = &command.words[..]
            && what.eq_ignore_ascii_case(b"LOAD")
        {
            let digest = sha1_smol::Sha1::from(text).digest().to_string().into_bytes();
            let was_unknown = scripts.insert(digest.clone(), text.clone()).is_none();
            // The call by this digest before it failed, as the server did not know the script.
            // Redisson sends a command again that is not answered for long: a script that is loaded
            // a second time follows a call that succeeded.
            let failed = |last: &mut Command| last.is("EVALSHA") && last.words[1] == digest;
            sent.pop_if(|last| was_unknown && failed(last));
        }
    }
    sent
}

/// The line of the peer protocol for an operation.
pub fn request(op: &Op, name: &str, epoch: u64) -> Value {
    let rated = |op: &str, rate: &Rate| {
        let mut request = json!(rate);
        request["op"] = op.into();
        request
    };
    let kept = |op: &str, rate: &Rate, keep: bool| {
        let mut request = rated(op, rate);
        request["keepState"] = keep.into();
        request
    };
    let mut request = match op {
        Op::TrySetRate(rate) => rated("trySetRate", rate),
        Op::SetRate(rate) => rated("setRate", rate),
        Op::SetRateArgs(rate, keep) => kept("setRateArgs", rate, *keep),
        Op::UpdateRate(rate, keep) => kept("updateRate", rate, *keep),
        Op::TryAcquire(permits) => json!({"op": "tryAcquire", "permits": permits}),
        Op::Release(permits) => json!({"op": "release", "permits": permits}),
        Op::AvailablePermits => json!({"op": "availablePermits"}),
        Op::GetConfig => json!({"op": "getConfig"}),
        Op::Delete => json!({"op": "delete"}),
        Op::IsExists => json!({"op": "isExists"}),
        Op::Expire(ttl, _) => json!({"op": "expire", "ttlMs": ttl}),
        Op::ExpireAt(..) => json!({"op": "expireAt", "epochMs": epoch}),
        Op::ClearExpire => json!({"op": "clearExpire"}),
        Op::RemainTimeToLive => json!({"op": "remainTimeToLive"}),
        Op::Rename(to) => json!({"op": "rename", "to": to}),
        Op::Touch => json!({"op": "touch"}),
        Op::Extra(_) => unreachable!("no Redisson has these"),
    };
    if let Op::Expire(_, Some(condition)) | Op::ExpireAt(_, Some(condition)) = op {
        request["condition"] = condition.name().into();
    }
    request["name"] = name.into();
    request
}

/// The roles that an operation's arguments can have, with their bytes.
pub fn arguments(op: &Op, epoch: u64) -> Vec<(Role, Vec<u8>)> {
    let number = |role, n: i64| (role, n.to_string().into_bytes());
    match op {
        Op::TryAcquire(n) | Op::Release(n) => vec![number(Role::Permits, *n)],
        Op::Expire(ttl, _) => vec![number(Role::Ttl, *ttl)],
        Op::ExpireAt(..) => vec![number(Role::ExpireAt, epoch as i64)],
        Op::Rename(to) => vec![(Role::NewName, to.clone().into_bytes())],
        _ => op.rate().map_or(Vec::new(), |rate| {
            let keep_alive = rate.keep_alive_ms.map(|ms| number(Role::KeepAlive, ms));
            [number(Role::Rate, rate.rate), number(Role::Interval, rate.interval_ms)]
                .into_iter()
                .chain(keep_alive)
                .collect()
        }),
    }
}

/// The real time, in milliseconds since the epoch.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is past 1970").as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Command {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        Command { at_us: 0, by_script: false, words }
    }

    /// On a busy machine the first load is answered late, and sent again.
    #[test]
    fn a_script_that_is_loaded_twice_hides_no_call() {
        let text = "return 1";
        let digest = sha1_smol::Sha1::from(text).digest().to_string();
        let call = command(&["EVALSHA", &digest, "0"]);
        let load = command(&["SCRIPT", "LOAD", text]);
        let mut scripts = HashMap::new();
        let commands = vec![call.clone(), load.clone(), call.clone(), load];
        assert_eq!(without_housekeeping(commands, &mut scripts), [call]);
        assert_eq!(scripts[digest.as_bytes()], text.as_bytes());
    }
}

//! One connection for each runtime, shared by all calls made in it: opened when a call needs it,
//! dropped when it fails, and never awaited beyond a call's deadline.
//!
//! A connection's tasks run on the runtime that opened it. If other runtimes shared it, they would
//! get no answers while that runtime is parked, and lose the connection when it ends.

use std::collections::HashMap;
use std::io;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Instant;

use redis::{Cmd, Pipeline};

use super::*;

/// The time after a failed attempt to connect for which all calls fail with its error: otherwise each caller
/// would make its own attempt on a server that is away.
const BACKOFF: Duration = Duration::from_millis(100);

/// How long an attempt to connect may take, at least and at most, whatever the deadline of the call that begins it. With
/// less, a client with a short deadline would never connect over a distant link, and would end the attempts that others
/// await; with more, an attempt at an address that hangs would keep the next one waiting.
const CONNECT: Duration = Duration::from_secs(1);
const LONGEST_CONNECT: Duration = Duration::from_secs(5);

/// A call that is given up sooner says nothing about its connection.
const PATIENCE: Duration = Duration::from_millis(250);

/// The connections to the server that takes calls, by runtime.
pub(crate) struct Connections {
    pub(super) topology: Topology,
    pub(super) access: Arc<Access>,
    /// The address for calls, without credentials.
    pub(super) address: Arc<str>,
    by_runtime: Mutex<HashMap<RuntimeId, Arc<Connection>>>,
}

/// The connection of one runtime, which is opened again after a failure.
struct Connection {
    /// The last attempt to connect, unless its connection is of no more use.
    last: Mutex<Option<Opening>>,
    /// The time at which a connection was last left because its server is a replica.
    left_replica: Mutex<Option<Instant>>,
    /// The server of the last connection, and how many attempts have failed since.
    history: Mutex<(Option<Arc<str>>, u32)>,
    observers: Observers,
    listening: Arc<Listening>,
}

/// An attempt to connect, under way or ended, shared by all calls; each awaits it until its own deadline. An error
/// comes with the time of the failure.
type Opening = Joint<Result<Arc<OpenConnection>, (Instant, Error)>>;

impl Connections {
    pub(super) fn new(topology: Topology, access: Arc<Access>) -> Self {
        let address = topology.to_string().into();
        Connections { topology, access, address, by_runtime: Mutex::default() }
    }

    fn of_current_runtime(&self) -> Arc<Connection> {
        let runtime =
            rt::current_id().unwrap_or_else(|| unreachable!("the engine makes calls in a runtime"));
        let mut by_runtime = lock(&self.by_runtime);
        if let Some(connection) = by_runtime.get(&runtime) {
            return connection.clone();
        }
        // A call made while its runtime ends leaves a connection behind that nobody else removes: drop such
        // connections before the table grows.
        let left_behind: Vec<_> = match by_runtime.len() == by_runtime.capacity() {
            true => by_runtime.extract_if(|_, connection| !connection.is_in_use()).collect(),
            false => Vec::new(),
        };
        let connection = Arc::new(Connection {
            last: Mutex::new(None),
            left_replica: Mutex::new(None),
            history: Mutex::default(),
            observers: self.access.observers.clone(),
            listening: Arc::default(),
        });
        by_runtime.insert(runtime, connection.clone());
        drop(by_runtime);
        // Only now, because a connection may run foreign code when it is dropped.
        drop(left_behind);
        connection
    }

    pub(super) fn runtime_ended(&self, runtime: RuntimeId) {
        // Dropped after the lock is released.
        let _ended = lock(&self.by_runtime).remove(&runtime);
    }

    /// Sends a command and awaits its reply until the deadline. A server's error counts as a reply
    /// ([`Value::ServerError`]).
    pub(super) async fn send(
        self: &Arc<Self>,
        cmd: &Cmd,
        deadline: Duration,
    ) -> Result<Value, Error> {
        let mut one = Pipeline::with_capacity(1);
        one.add_command(cmd.clone());
        let replies = self.send_all(&one, deadline).await?;
        Ok(replies.into_iter().next().unwrap_or(Value::Nil))
    }

    /// Sends a command; if it calls a script that the server does not know, then sends the script in full.
    pub(super) async fn call(
        self: &Arc<Self>,
        command: &ServerCommand,
        deadline: Duration,
    ) -> Result<Value, Error> {
        let started = tokio::time::Instant::now();
        let value = self.send(&command.cmd, deadline).await?;
        let script = command.script.filter(|_| reply::is_no_script(&value));
        let Some(script) = script else { return Ok(value) };
        let left = deadline.saturating_sub(started.elapsed());
        self.send(&command.in_full(script), left).await
    }

    /// Sends commands without other callers' commands in between, and awaits their replies.
    pub(super) async fn send_all(
        self: &Arc<Self>,
        commands: &Pipeline,
        deadline: Duration,
    ) -> Result<Vec<Value>, Error> {
        if deadline.is_zero() {
            // The call would be given up as soon as it is handed over, and the connection with it.
            return Err(Error::new(ErrorKind::Timeout, Execution::NotExecuted));
        }
        let connection = self.of_current_runtime();
        let mut handed_over = None;
        let attempt = async {
            let open = connection.open(self, deadline).await?;
            handed_over = Some(HandedOver {
                connection: &connection,
                open: open.clone(),
                replies: open.replies.load(Ordering::Relaxed),
                dead_at: Instant::now() + deadline.min(PATIENCE),
            });
            let mut stream = open.connection.clone();
            let result = stream.send_packed_commands(commands, 0, commands.len()).await;
            open.replies.fetch_add(1, Ordering::Relaxed);
            let values = result.map_err(|error| {
                connection.forget(&open, "an error");
                reply::error_of(error, true).with_server(Some(open.server.clone()))
            })?;
            if values.iter().any(reply::closes) {
                // The next call would be sent into it, and its outcome unknown.
                connection.forget(&open, "the server closes it");
            } else if values.iter().any(reply::is_of_replica) && connection.may_leave_replica() {
                connection.forget(&open, "it is a replica");
            }
            Ok(values)
        };
        if let Some(result) = rt::in_time(tokio::time::sleep(deadline), attempt).await {
            return result;
        }
        let timeout = |execution| Error::new(ErrorKind::Timeout, execution);
        let Some(handed_over) = handed_over else {
            return Err(timeout(Execution::NotExecuted));
        };
        Err(timeout(Execution::Unknown).with_server(Some(handed_over.open.server.clone())))
    }

    /// Hears what is announced on this channel of the server, until the connection for it is lost.
    pub(super) async fn listen(self: &Arc<Self>, channel: &Arc<str>, heard: &Heard) {
        self.of_current_runtime().listening.listen(self, channel, heard).await;
    }
}

/// The connection that commands were handed to, and the number of its replies until then.
struct HandedOver<'a> {
    connection: &'a Connection,
    open: Arc<OpenConnection>,
    replies: u64,
    dead_at: Instant,
}

impl Drop for HandedOver<'_> {
    /// Also if the caller gives up: without any reply since then the connection may be dead, and the next call opens
    /// another.
    fn drop(&mut self) {
        let is_silent = self.open.replies.load(Ordering::Relaxed) == self.replies;
        if is_silent && Instant::now() >= self.dead_at {
            self.connection.forget(&self.open, "no answer");
        }
    }
}

impl Connection {
    /// The open connection, or a new one. An attempt to connect may take up to `limit`, within [`CONNECT`] and
    /// [`LONGEST_CONNECT`].
    async fn open(
        self: &Arc<Self>,
        connections: &Arc<Connections>,
        limit: Duration,
    ) -> Result<Arc<OpenConnection>, Error> {
        loop {
            let (attempt, dead) = {
                let mut last = lock(&self.last);
                match last.as_ref().map(|attempt| (attempt, attempt.peek())) {
                    Some((_, Some(Ok(open)))) if !open.is_closed() => return Ok(open.clone()),
                    Some((_, Some(Err((at, error))))) if at.elapsed() < BACKOFF => {
                        return Err(error.clone());
                    }
                    Some((under_way, None)) => (under_way.clone(), None),
                    _ => {
                        let attempt = self
                            .connect(connections.clone(), limit.clamp(CONNECT, LONGEST_CONNECT));
                        let before = last.replace(attempt.clone());
                        (attempt, before)
                    }
                }
            };
            if let Some(Ok(dead)) = dead.as_ref().and_then(Opening::peek) {
                self.tell_lost(&dead.server, "closed");
            }
            // Then look again: it may have ended long ago, if all that awaited it had given up before.
            _ = attempt.await;
        }
    }

    fn connect(self: &Arc<Self>, connections: Arc<Connections>, limit: Duration) -> Opening {
        let this = Arc::downgrade(self);
        let work = async move {
            let opened = connections.topology.open(&connections.access, limit);
            let result = match tokio::time::timeout(limit, opened).await {
                Ok(result) => result.map(Arc::new),
                Err(_) => Err(reply::no_stream(io::ErrorKind::TimedOut.into())),
            };
            // Events about it must name the server, which in a cluster is the node.
            let result =
                result.map_err(|error| error.with_server(Some(connections.address.clone())));
            if let Some(this) = Weak::upgrade(&this) {
                this.tell_opened(&result);
            }
            result.map_err(|error| (Instant::now(), error))
        };
        joint(work, |why| Err((Instant::now(), reply::no_stream(why))))
    }

    /// Tells observers what became of an attempt to connect.
    fn tell_opened(&self, result: &Result<Arc<OpenConnection>, Error>) {
        match result {
            Ok(open) => {
                let server = &open.server;
                let now = (Some(server.clone()), 0);
                let (before, failures) = std::mem::replace(&mut *lock(&self.history), now);
                let before = before.as_deref();
                self.observers.event(&Event::Connected { server, before, failures });
            }
            Err(error) => {
                let failures = {
                    let (_, failures) = &mut *lock(&self.history);
                    *failures = failures.saturating_add(1);
                    *failures
                };
                self.observers.event(&Event::ConnectFailed { error, failures });
            }
        }
    }

    fn tell_lost(&self, server: &str, why: &'static str) {
        self.observers.event(&Event::ConnectionLost { server, why });
    }

    /// Whether the connection is open, or held by a call.
    fn is_in_use(self: &Arc<Self>) -> bool {
        let is_open = |last: &Opening| matches!(last.peek(), Some(Ok(open)) if !open.is_closed());
        Arc::strong_count(self) > 1 || lock(&self.last).as_ref().is_some_and(is_open)
    }

    /// Whether to look for the master now, which is done once in a while: if the server found is still a replica, every
    /// call would open another connection.
    fn may_leave_replica(&self) -> bool {
        let mut left = lock(&self.left_replica);
        let may_leave = left.is_none_or(|at| at.elapsed() >= BACKOFF);
        if may_leave {
            *left = Some(Instant::now());
        }
        may_leave
    }

    /// Lets the next call open a new connection.
    fn forget(&self, open: &Arc<OpenConnection>, why: &'static str) {
        // The caller holds the connection, so it is not dropped under the lock.
        let is_it =
            |last: &mut Opening| matches!(last.peek(), Some(Ok(last)) if Arc::ptr_eq(last, open));
        if lock(&self.last).take_if(is_it).is_some() {
            self.tell_lost(&open.server, why);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::store::redis::Access;

    #[test]
    fn what_ended_runtimes_leave_behind_is_dropped() {
        let topology = Topology::try_from("redis://127.0.0.1:1").unwrap();
        let access = Access::default().to(&topology).unwrap();
        let connections = Connections::new(topology, access);
        let in_use = in_a_runtime(async { connections.of_current_runtime() });
        for _ in 0..1000 {
            in_a_runtime(async { drop(connections.of_current_runtime()) });
        }
        let by_runtime = lock(&connections.by_runtime);
        assert!(by_runtime.len() < 10, "{} entries", by_runtime.len());
        assert!(by_runtime.values().any(|kept| Arc::ptr_eq(kept, &in_use)));
    }

    fn in_a_runtime<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }
}

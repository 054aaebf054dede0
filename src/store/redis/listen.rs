//! Listening to channels of a server, over a second connection for each runtime.
//!
//! Releases of semaphores are announced with PUBLISH, and in clusters of 7.0 and later by some clients with
//! SPUBLISH, which is heard only at the node that has the channel's slot. Each channel is therefore subscribed to in
//! both ways, at that node. When the connection is lost, or the node loses a slot, all subscriptions end, and each
//! listener starts anew: in a cluster at the node that has the slot by then.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::AsyncPushSender;
use redis::{Pipeline, PushInfo, PushKind};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout, timeout_at};

use super::*;

/// How often to ask whether the server still answers, to give up what nobody listens to any more, and to ask again
/// for refused subscriptions.
const TICK: Duration = Duration::from_secs(2);

/// How long the server may take to answer, or to accept a connection.
const LIMIT: Duration = Duration::from_secs(5);

/// The channels of one server that are listened to in one runtime.
#[derive(Default)]
pub(super) struct Listening {
    channels: Channels,
    /// Whether a task subscribes to them.
    is_served: AtomicBool,
    /// Signals that there is a new channel, or that the connection is lost.
    changed: Notify,
}

impl RedisStore {
    /// Hears what is announced on this channel, and never ends.
    pub(crate) async fn listen(&self, channel: &Arc<str>, heard: &Heard) {
        loop {
            match &self.nodes {
                None => self.one.listen(channel, heard).await,
                Some(nodes) => {
                    if nodes.listen(channel, heard, LIMIT).await.is_err() {
                        sleep(pause()).await;
                    }
                }
            }
        }
    }
}

impl Listening {
    /// Hears what is announced on this channel until the subscription ends.
    pub(super) async fn listen(
        self: &Arc<Self>,
        connections: &Arc<Connections>,
        channel: &Arc<str>,
        heard: &Heard,
    ) {
        let listener = self.channels.listen(channel, false);
        if !self.is_served.swap(true, Ordering::AcqRel) {
            let (serving, connections) = (Serving(self.clone()), connections.clone());
            tokio::spawn(async move {
                if serving.serve(&connections).await.is_none() {
                    sleep(pause()).await;
                }
            });
        }
        if !listener.stands() {
            self.changed.notify_one();
        }
        listener.hear(heard).await;
    }

    /// Takes what the server sends unasked, or about a channel that this side gives up; returns whether the connection
    /// is still the right one.
    fn take(&self, push: &PushInfo, given_up: &Mutex<HashSet<Arc<str>>>) -> bool {
        let channel = match push.data.first() {
            Some(Value::BulkString(name)) => std::str::from_utf8(name).unwrap_or_default(),
            _ => "",
        };
        match push.kind {
            PushKind::Message | PushKind::SMessage => self.channels.announce(channel),
            // Unasked, if the channel's slot has moved. What was given up may be wanted again by now.
            PushKind::SUnsubscribe => return lock(given_up).remove(channel),
            PushKind::Disconnection => return false,
            _ => {}
        }
        true
    }
}

/// The task that subscribes. When it ends, for whatever reason, all subscriptions do.
struct Serving(Arc<Listening>);

impl Drop for Serving {
    fn drop(&mut self) {
        // In this order: a listener that comes in between starts another task, even if it is then ended as well.
        self.0.is_served.store(false, Ordering::Release);
        self.0.channels.end();
    }
}

impl Serving {
    /// Serves all listeners over one connection until there are none; `None` if it is lost before.
    async fn serve(&self, connections: &Connections) -> Option<()> {
        let is_lost = Arc::new(AtomicBool::new(false));
        let given_up = Arc::<Mutex<HashSet<Arc<str>>>>::default();
        let (listening, lost, gives_up) = (self.0.clone(), is_lost.clone(), given_up.clone());
        let pushes = Arc::new(move |push: PushInfo| {
            if !listening.take(&push, &gives_up) {
                lost.store(true, Ordering::Release);
                listening.changed.notify_one();
            }
            Ok::<(), ()>(())
        });
        // Observers hear of the other connections alone.
        let (observers, pushes) = (Observers::default(), Some(pushes as Arc<dyn AsyncPushSender>));
        let access = Access { observers, pushes, ..Access::clone(&connections.access) };
        let open = timeout(LIMIT, connections.topology.open(&access, LIMIT)).await.ok()?.ok()?;
        let mut refused = HashSet::new();
        let mut tick = Instant::now() + TICK;
        while !is_lost.load(Ordering::Acquire) && !open.is_closed() {
            self.subscribe(&open, &mut refused).await?;
            _ = timeout_at(tick, self.0.changed.notified()).await;
            // Not the timeout's result: with enough new channels it would never time out.
            if Instant::now() < tick {
                continue;
            }
            tick = Instant::now() + TICK;
            refused.clear();
            let Some(unused) = self.0.channels.remove_unused() else { return Some(()) };
            let mut commands = redis::pipe();
            commands.cmd("PING");
            for channel in &unused {
                commands.cmd("UNSUBSCRIBE").arg(&**channel);
                commands.cmd("SUNSUBSCRIBE").arg(&**channel);
            }
            // The answers to those of the last time have come.
            *lock(&given_up) = unused.into_iter().collect();
            answers(&open, &commands).await?;
        }
        None
    }

    /// Subscribes to the channels that are new; `None` if this is not the right connection for all of them.
    async fn subscribe(
        &self,
        open: &OpenConnection,
        refused: &mut HashSet<Arc<str>>,
    ) -> Option<()> {
        let mut channels = self.0.channels.pending();
        channels.retain(|channel| !refused.contains(channel));
        if channels.is_empty() {
            return Some(());
        }
        let mut commands = redis::pipe();
        for channel in &channels {
            commands.cmd("SUBSCRIBE").arg(&**channel);
            commands.cmd("SSUBSCRIBE").arg(&**channel);
        }
        let answers = answers(open, &commands).await?;
        for (channel, both) in channels.into_iter().zip(answers.chunks(2)) {
            if both.iter().any(is_of_wrong_node) {
                return None;
            } else if both.iter().any(|answer| matches!(answer, Value::Push { .. })) {
                self.0.channels.stands(&channel);
            } else {
                refused.insert(channel);
            }
        }
        Some(())
    }
}

/// Sends commands, and awaits their answers; `None` if the connection is lost.
async fn answers(open: &OpenConnection, commands: &Pipeline) -> Option<Vec<Value>> {
    let mut connection = open.connection.clone();
    let answers = connection.send_packed_commands(commands, 0, commands.len());
    timeout(LIMIT, answers).await.ok()?.ok()
}

/// Whether a subscription is refused because the slot is not at this node. A server that does not know SSUBSCRIBE, or
/// does not allow it, is not meant.
fn is_of_wrong_node(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if !matches!(error.code(), "ERR" | "NOPERM"))
}

/// The time until the next attempt to connect, which differs between clients.
fn pause() -> Duration {
    Duration::from_millis(500 + rt::random_below(500))
}

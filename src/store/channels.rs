//! The channels that somebody listens to: those who wait for permits hear there that some have come back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// What is called when something is heard, with the number of messages since the last time.
pub(crate) type Heard = Arc<dyn Fn(u64) + Send + Sync>;

/// Each channel, and 0 until the subscription to it stands, then one more than the messages so far.
#[derive(Debug, Default)]
pub(super) struct Channels(Mutex<HashMap<Arc<str>, watch::Sender<u64>>>);

pub(super) struct Listener(watch::Receiver<u64>);

impl Channels {
    /// Adds a listener. If it is the channel's first, the subscription `stands` or not.
    pub(super) fn listen(&self, channel: &Arc<str>, stands: bool) -> Listener {
        let new = || watch::channel(stands.into()).0;
        Listener(self.lock().entry(channel.clone()).or_insert_with(new).subscribe())
    }

    /// Has the listeners of a channel hear something. Its subscription stands from now on.
    pub(super) fn announce(&self, channel: &str) {
        let channel = self.lock().get(channel).cloned();
        if let Some(channel) = channel {
            channel.send_modify(|messages| *messages += 1);
        }
    }

    pub(super) fn listeners(&self, channel: &str) -> u64 {
        self.lock().get(channel).map_or(0, |channel| channel.receiver_count() as u64)
    }

    #[cfg(test)]
    pub(super) fn has(&self, channel: &str) -> bool {
        self.lock().contains_key(channel)
    }

    /// The channels whose subscription does not stand.
    pub(super) fn pending(&self) -> Vec<Arc<str>> {
        let channels = self.lock();
        let pending = channels.iter().filter(|(_, messages)| *messages.borrow() == 0);
        pending.map(|(channel, _)| channel.clone()).collect()
    }

    /// Removes the channels that nobody listens to any more, and returns them; `None` if there are no others.
    pub(super) fn remove_unused(&self) -> Option<Vec<Arc<str>>> {
        let mut channels = self.lock();
        let unused = channels.extract_if(|_, channel| channel.receiver_count() == 0);
        let unused = unused.map(|(channel, _)| channel).collect();
        (!channels.is_empty()).then_some(unused)
    }

    /// Ends all subscriptions, and with them what the listeners hear.
    pub(super) fn end(&self) {
        // Dropped after the lock is released, because listeners are woken.
        let _ended = std::mem::take(&mut *self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, watch::Sender<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    pub(super) fn stands(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Calls `heard` when the subscription stands, and after messages, until the subscription ends.
    pub(super) async fn hear(mut self, heard: &Heard) {
        let mut known = *self.0.borrow_and_update();
        if known > 0 {
            heard(0);
        }
        while self.0.changed().await.is_ok() {
            let before = std::mem::replace(&mut known, *self.0.borrow_and_update());
            heard(known - before.max(1));
        }
    }
}

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

    /// The subscription to a channel stands from now on, of which its listeners hear.
    pub(super) fn stands(&self, channel: &str) {
        self.change(channel, |messages| *messages = (*messages).max(1));
    }

    /// Has the listeners of a channel hear something. If the subscription does not stand, it is of the one before, which
    /// is being given up.
    pub(super) fn announce(&self, channel: &str) {
        self.change(channel, |messages| *messages += u64::from(*messages > 0));
    }

    fn change(&self, channel: &str, change: impl FnOnce(&mut u64)) {
        let channel = self.lock().get(channel).cloned();
        if let Some(channel) = channel {
            channel.send_modify(change);
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
            if known > before {
                heard(known - before.max(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise nobody would subscribe for those who want the channel again.
    #[test]
    fn a_message_of_a_subscription_that_is_given_up_does_not_stand_for_the_next() {
        let channels = Channels::default();
        let name: Arc<str> = "s".into();
        drop(channels.listen(&name, false));
        channels.stands(&name);
        assert_eq!(channels.remove_unused(), None);
        let listener = channels.listen(&name, false);
        channels.announce(&name);
        assert!(!listener.stands());
        assert_eq!(channels.pending().len(), 1);
        channels.stands(&name);
        assert!(listener.stands() && channels.pending().is_empty());
    }
}

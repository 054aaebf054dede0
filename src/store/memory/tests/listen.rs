//! Listening to what calls announce.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::*;

/// A call that announces something on the channel of its semaphore: the next one.
fn announce(store: &InProcessStore, keys: &Keys) {
    store.enter().announce(&keys.permits);
    store.run(keys, &KeysCall::Exists).unwrap();
}

/// It counts how often it hears something by hundreds, and adds the messages.
fn ear(store: &InProcessStore, keys: &Keys) -> (Arc<AtomicU32>, BoxFuture<'static, ()>) {
    let heard = Arc::new(AtomicU32::new(0));
    let (count, own) = (heard.clone(), store.clone());
    let listen = Store::InProcess(store.clone()).listen(
        keys,
        Arc::new(move |messages| {
            // The store is not locked.
            own.live_keys();
            count.fetch_add(100 + messages as u32, Ordering::SeqCst);
        }),
    );
    (heard, listen)
}

#[test]
fn what_calls_announce_is_heard() {
    let (store, keys) = (InProcessStore::new(), Keys::of_semaphore("s"));
    announce(&store, &keys);
    let ((one, mut first), (two, mut second)) = (ear(&store, &keys), ear(&store, &keys));
    let mut hear = || {
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        (one.load(Ordering::SeqCst), two.load(Ordering::SeqCst))
    };
    assert_eq!(hear(), (100, 100), "they listen");
    announce(&store, &Keys::of_semaphore("other"));
    assert_eq!(hear(), (100, 100));
    announce(&store, &keys);
    assert_eq!(hear(), (201, 201));
    announce(&store, &keys);
    announce(&store, &keys);
    assert_eq!(hear(), (303, 303), "they hear of two at once");
    drop(first);
    announce(&store, &keys);
    assert!((&mut second).now_or_never().is_none());
    assert_eq!((one.load(Ordering::SeqCst), two.load(Ordering::SeqCst)), (303, 404));
}

#[test]
fn channels_that_nobody_listens_to_are_forgotten() {
    let store = InProcessStore::new();
    for nth in 0..100 {
        let (_, mut listen) = ear(&store, &Keys::of_semaphore(&format!("s{nth}")));
        assert!((&mut listen).now_or_never().is_none());
    }
    assert_eq!(store.0.channels.remove_unused(), None);
    assert!(!store.0.channels.has("redisson_sc:{s99}"));
}

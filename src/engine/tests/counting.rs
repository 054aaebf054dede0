//! A store that keeps the books of what it grants and takes back, and can lose its answers.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures::FutureExt;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Execution};
use crate::rate::Rate;
use crate::store::memory::MemoryStore;
use crate::store::*;
use crate::wire::keys::Keys;

#[derive(Clone)]
pub(super) struct Counting {
    store: MemoryStore,
    books: Arc<Books>,
}

#[derive(Default)]
pub(super) struct Books {
    pub(super) calls: AtomicU64,
    /// Attempts, answered or not.
    pub(super) attempts: AtomicU64,
    /// It is away: no attempt is carried out.
    pub(super) away: AtomicBool,
    /// The most dates of earlier attempts that one came with.
    pub(super) dates: AtomicUsize,
    pub(super) credited: AtomicU64,
    /// So many answers to acquire calls are lost from now on.
    pub(super) lose: AtomicU64,
    /// So many times whoever looks for an answer finds none, and is not woken for it.
    pub(super) silent_for: AtomicU64,
    /// How long a refund is on its way, in ms.
    pub(super) refunds_take: AtomicU64,
    /// What calls were granted, by their ids: an attempt made again can be granted less, and then
    /// the store has taken the rest back itself.
    granted: Mutex<HashMap<[u8; 16], u64>>,
}

impl Counting {
    pub(super) fn new(clock: Clock) -> Self {
        Counting { store: MemoryStore::with_clock(clock), books: Arc::default() }
    }

    pub(super) fn books(&self) -> &Books {
        &self.books
    }

    /// What was granted and has not come back.
    pub(super) fn out(&self) -> u64 {
        let granted: u64 = self.books.granted.lock().unwrap().values().sum();
        granted - self.books.credited.load(Ordering::SeqCst)
    }

    pub(super) fn calls(&self) -> u64 {
        self.books.calls.load(Ordering::SeqCst)
    }
}

fn granted(runs: &[Run], outcomes: &[OutcomeRun]) -> u64 {
    let mut outcomes = outcomes.iter().flat_map(|run| (0..run.count).map(|_| run.outcome));
    let requests = runs.iter().flat_map(|run| (0..run.count).map(|_| run.permits));
    requests.filter(|_| outcomes.next() == Some(Outcome::Granted)).sum()
}

impl Store for Counting {
    fn acquire(&self, keys: &Keys, call: AcquireCall) -> Reply<AcquireReply> {
        let (runs, id) = (call.runs.clone(), call.id.0);
        self.books.attempts.fetch_add(1, Ordering::SeqCst);
        if let Earlier::Dated(dates) = &call.earlier {
            self.books.dates.fetch_max(dates.len(), Ordering::SeqCst);
        }
        if self.books.away.load(Ordering::SeqCst) {
            let failure = Error::new(ErrorKind::Unavailable, Execution::NotExecuted);
            return async { Err(failure) }.boxed();
        }
        let reply = self.store.acquire(keys, call);
        let books = self.books.clone();
        async move {
            // As if a way lay between.
            tokio::task::yield_now().await;
            let mut silent = books.silent_for.load(Ordering::SeqCst);
            poll_fn(|_| {
                silent = silent.saturating_sub(1);
                if silent > 0 { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            let reply = reply.await?;
            books.calls.fetch_add(1, Ordering::SeqCst);
            let granted = granted(&runs, &reply.outcomes);
            books.granted.lock().unwrap().insert(id, granted);
            let lose = |n: u64| n.checked_sub(1);
            if books.lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose).is_ok() {
                return Err(Error::new(ErrorKind::Unavailable, Execution::Unknown));
            }
            Ok(reply)
        }
        .boxed()
    }

    fn refund(&self, keys: &Keys, call: RefundCall) -> Reply<RefundReply> {
        assert!(call.returned <= call.granted, "more given back than was granted");
        let (store, books, keys) = (self.store.clone(), self.books.clone(), keys.clone());
        async move {
            tokio::task::yield_now().await;
            match books.refunds_take.load(Ordering::SeqCst) {
                0 => {}
                takes => tokio::time::sleep(super::ms(takes)).await,
            }
            let reply = store.refund(&keys, call).await?;
            books.credited.fetch_add(reply.credited, Ordering::SeqCst);
            Ok(reply)
        }
        .boxed()
    }

    fn release(&self, keys: &Keys, call: ReleaseCall) -> Reply<ReleaseReply> {
        self.store.release(keys, call)
    }
    fn peek(&self, keys: &Keys, call: PeekCall) -> Reply<PeekReply> {
        self.store.peek(keys, call)
    }
    fn try_set_rate(&self, keys: &Keys, rate: Rate) -> Reply<bool> {
        self.store.try_set_rate(keys, rate)
    }
    fn set_rate(&self, keys: &Keys, call: SetRate) -> Reply<bool> {
        self.store.set_rate(keys, call)
    }
    fn config(&self, keys: &Keys) -> Reply<Option<Rate>> {
        self.store.config(keys)
    }
    fn expire(&self, keys: &Keys, to: Lifetime, when: Option<ExpireCondition>) -> Reply<bool> {
        self.store.expire(keys, to, when)
    }
    fn clear_expire(&self, keys: &Keys) -> Reply<bool> {
        self.store.clear_expire(keys)
    }
    fn time_to_live(&self, keys: &Keys) -> Reply<TimeToLive> {
        self.store.time_to_live(keys)
    }
    fn exists(&self, keys: &Keys) -> Reply<bool> {
        self.store.exists(keys)
    }
    fn delete(&self, keys: &Keys) -> Reply<bool> {
        self.store.delete(keys)
    }
    fn rename(&self, from: &Keys, to: &Keys) -> Reply<()> {
        self.store.rename(from, to)
    }
    fn touch(&self, keys: &Keys) -> Reply<bool> {
        self.store.touch(keys)
    }
    fn size_in_memory(&self, keys: &Keys) -> Reply<u64> {
        self.store.size_in_memory(keys)
    }
    fn server_time(&self) -> Reply<i64> {
        self.store.server_time()
    }
}

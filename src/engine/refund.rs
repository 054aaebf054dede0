//! Giving permits back: a grant's own, and those that nobody took.
//!
//! Refunds of one log entry are made one call at a time, and those asked for meanwhile share the
//! next: a call says how much of the entry has been given back in all, so that repeating it changes
//! nothing, and its answer, how much that freed, is shared out among those who asked.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, Shared, WeakShared, select};
use tokio::time::Instant;

use super::cell::Entry;
use super::rt::{Mutex, MutexGuard};
use super::{Engine, FIRST_PAUSE, LONGEST_PAUSE, Tasks, rt};
use crate::error::{Error, ErrorKind, Execution};
use crate::store::{RefundCall, RefundReply};
use crate::wire::entry::EntryId;

/// How long a refund that nobody waits for is attempted.
const BACKGROUND_DEADLINE: Duration = Duration::from_secs(10);

/// The refunds of one entry.
#[derive(Debug, Default)]
pub(crate) struct Refunds(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// What calls have asked back that were carried out, or may have been.
    returned: u64,
    /// How much of that was asked back with an unknown outcome since the last known one.
    unsure: u64,
    /// What is left of the entry as far as is known; `None` for all of it.
    left: Option<u64>,
    /// The call that whoever comes now joins: it has not been sent.
    open: Option<Open>,
    /// The last call that was made ready.
    last: Option<WeakShared<Sending>>,
}

#[derive(Debug)]
struct Open {
    asked: u64,
    /// The last of those of its callers.
    deadline: Instant,
    /// A task sees it through.
    in_background: bool,
}

/// A call, as all who asked for it hold it: it goes on while one of them does. It answers how many
/// permits it freed.
type Sending = BoxFuture<'static, Result<u64, Error>>;
pub(super) type Flight = Shared<Sending>;

/// A place in a call.
struct Place {
    flight: Flight,
    /// What was asked back in the same call by those before.
    before: u64,
    /// A task saw the call through before this place was taken.
    attended: bool,
}

impl Engine {
    /// Gives permits of an entry back; answers how many were credited.
    pub(crate) async fn refund(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        deadline: Duration,
    ) -> Result<u64, Error> {
        let deadline = rt::now() + deadline;
        let place = self.ask_back(entry, permits, deadline, false);
        let late = rt::sleep_until(deadline);
        futures::pin_mut!(late);
        let freed = match select(place.flight, late).await {
            Either::Left((answer, _)) => answer?,
            Either::Right(_) => {
                return Err(Error::new(ErrorKind::Timeout, Execution::Unknown));
            }
        };
        Ok(freed.saturating_sub(place.before).min(permits))
    }

    /// Gives permits of an entry back in the background. Without a runtime they expire as any
    /// other, an interval after they were granted.
    pub(crate) fn give_back(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64) {
        drop(self.begin_to_give_back(entry, permits));
    }

    /// Gives back, in the background, all that attempts may have been granted whose answers were
    /// lost; the dates are those of their entries. One that is still on its way then is granted for
    /// nothing, and expires; and so is one that the server's clock has dated.
    pub(super) fn give_back_lost(self: &Arc<Self>, id: EntryId, dates: &[i64], permits: u64) {
        for &date in dates {
            let entry = Arc::new(Entry { id, date, granted: permits, refunds: Refunds::default() });
            self.give_back(&entry, permits);
        }
    }

    /// Gives permits of an entry back in the background; answers what to await where it matters
    /// when.
    pub(super) fn begin_to_give_back(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64) -> Flight {
        let has_runtime = rt::can_spawn();
        let deadline = rt::now() + BACKGROUND_DEADLINE;
        let place = self.ask_back(entry, permits, deadline, has_runtime);
        if has_runtime && !place.attended {
            let (flight, guard) = (place.flight.clone(), Tasks::begin(&self.core));
            rt::spawn(async move {
                let _guard = guard;
                // What cannot be given back expires.
                let _ = flight.await;
            });
        }
        place.flight
    }

    /// Adds to the next call.
    fn ask_back(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        deadline: Instant,
        in_background: bool,
    ) -> Place {
        let mut book = entry.refunds.lock();
        let book = &mut *book;
        let joined = book.open.is_some().then(|| book.last.as_ref()?.upgrade()).flatten();
        let open = book.open.get_or_insert(Open { asked: 0, deadline, in_background: false });
        let before = open.asked;
        open.asked += permits;
        open.deadline = open.deadline.max(deadline);
        let flight = joined.unwrap_or_else(|| {
            // Whoever asked before may have gone away before it was sent; theirs come along.
            open.in_background = false;
            let previous = book.last.as_ref().and_then(WeakShared::upgrade);
            let (engine, entry) = (self.clone(), entry.clone());
            let sending = async move {
                if let Some(previous) = previous {
                    let _ = previous.await;
                }
                engine.send(&entry).await
            };
            let flight = sending.boxed().shared();
            book.last = flight.downgrade();
            flight
        });
        let attended = open.in_background;
        open.in_background |= in_background;
        Place { flight, before, attended }
    }

    /// Makes the call that stands open; answers how many permits it freed.
    async fn send(&self, entry: &Entry) -> Result<u64, Error> {
        let (asked, deadline, unsure, known, returned) = {
            let mut book = entry.refunds.lock();
            let Some(open) = book.open.take() else { return Ok(0) };
            let unsure = book.unsure;
            // Dropped from here on, its outcome is unknown.
            book.returned += open.asked;
            book.unsure += open.asked;
            let known = book.left.unwrap_or(entry.granted);
            (open.asked, open.deadline, unsure, known, book.returned)
        };
        let call =
            RefundCall { id: entry.id, entry_date: entry.date, granted: entry.granted, returned };
        let mut lost = unsure > 0;
        let answer = self.attempt_refund(call, deadline, &mut lost).await;
        let mut book = entry.refunds.lock();
        match answer {
            Ok(reply) => {
                book.unsure = 0;
                book.left = Some(reply.left);
                // A call whose answer was lost may have done it before this one. An entry that
                // should not be empty and is has expired, or was reset.
                let is_there = reply.left > 0 || returned >= entry.granted;
                let freed = if lost && is_there {
                    reply.credited.max(known.saturating_sub(reply.left))
                } else {
                    reply.credited
                };
                drop(book);
                if freed > 0 {
                    self.ask_again();
                }
                Ok(freed.saturating_sub(unsure))
            }
            Err(failure) => {
                if failure.execution() != Execution::Unknown {
                    book.returned -= asked;
                    book.unsure = unsure;
                }
                Err(failure)
            }
        }
    }

    /// Repeating a refund changes nothing, so it is attempted until the deadline.
    async fn attempt_refund(
        &self,
        call: RefundCall,
        deadline: Instant,
        lost: &mut bool,
    ) -> Result<RefundReply, Error> {
        let mut unknown = false;
        let mut pause = FIRST_PAUSE;
        loop {
            let failure = match self.core.store.refund(&self.keys, call).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            unknown |= failure.execution() == Execution::Unknown;
            *lost |= unknown;
            let execution = if unknown { Execution::Unknown } else { failure.execution() };
            let failure = failure.with_execution(execution);
            if !failure.may_be_retried() || rt::now() + pause >= deadline {
                return Err(failure);
            }
            rt::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Refunds {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The codec and the queue for this project's own benchmarks: not part of the API.

pub mod sizing;

use crate::queue::{MaxWait, NO_COSTS, Queue, Request, Step};
use crate::store::{Outcome, OutcomeGroup, Wait};
use crate::wire::entry::{self, EntryId, Member};
use crate::wire::keys::Keys;

/// Packs a log entry.
pub fn pack(id: [u8; 16], permits: u32) -> Vec<u8> {
    entry::pack(EntryId(id), permits)
}

/// The permits of a log entry.
pub fn unpack(member: &[u8]) -> Option<u64> {
    match entry::unpack(member) {
        Member::Entry { permits, .. } => Some(permits),
        _ => None,
    }
}

/// The bytes of a limiter's key names.
pub fn keys(name: &str, client: &str) -> usize {
    Keys::new(name, client).all().iter().map(|key| key.len()).sum()
}

/// A queue, and a server that answers as the benchmark says.
#[derive(Default)]
pub struct Rounds {
    queue: Queue<()>,
    now: u64,
}

impl Rounds {
    /// A queue in which this many requests wait behind a head that does not fit.
    pub fn blocked(waiting: u64) -> Self {
        let mut rounds = Rounds::default();
        rounds.arrive(waiting, MaxWait::Unbounded);
        rounds.answer(0);
        rounds
    }

    /// Requests arrive, share one call and are granted.
    pub fn granted(&mut self, requests: u64) {
        self.now += 1000;
        self.arrive(requests, MaxWait::None);
        self.answer(requests);
    }

    /// The head is served, and a new request joins the end.
    pub fn head_served(&mut self) {
        self.now += 2000;
        self.answer(1);
        self.arrive(1, MaxWait::Unbounded);
    }

    fn arrive(&mut self, requests: u64, max_wait: MaxWait) {
        let request =
            Request { permits: 1, max_wait, deadline: 3_000_000, costs: NO_COSTS, create: None };
        for _ in 0..requests {
            assert!(self.queue.arrive(|| self.now, request, ()).is_ok());
        }
    }

    /// Sends the next call; `granted` of its requests are granted, the others wait for a
    /// millisecond.
    fn answer(&mut self, granted: u64) {
        let Step::Call(call) = self.queue.step(self.now).step else { panic!("nothing to send") };
        let requested = call.groups.iter().map(|group| group.count).sum::<u64>();
        let waiting = Outcome::Waiting(Wait { ms: 1, at_least: false });
        let outcomes = [(granted, Outcome::Granted), (requested - granted, waiting)]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, outcome)| OutcomeGroup { count, outcome })
            .collect();
        let settled =
            self.queue.replied(self.now, self.now, (1000, 1_000_000, 0), outcomes, 0, None);
        assert_eq!(settled.decided.len() as u64, granted);
    }
}

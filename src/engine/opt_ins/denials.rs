//! Cached denials: calls that would certainly be denied again need not ask the server.

use std::time::Duration;

use crate::engine::micros;
use crate::queue::Time;
use crate::rate::Rate;
use crate::rt::{Mutex, lock};
use crate::store::{Outcome, OutcomeGroup, RequestGroup, Wait, decided};

/// The last denial of one limiter in one client.
#[derive(Debug)]
pub(crate) struct Denials {
    longest: Duration,
    state: Mutex<DenialState>,
}

#[derive(Debug, Default)]
struct DenialState {
    last: Option<LastDenial>,
    /// Incremented when permits may have come back or the limiter may have been replaced: decisions made
    /// before that no longer say anything.
    generation: u64,
}

#[derive(Clone, Copy, Debug)]
struct LastDenial {
    permits: u64,
    at_least: bool,
    /// The time at which the refused permits become available.
    free_at: Time,
    /// The denial may be used before this time.
    until: Time,
    rate: Rate,
}

/// The fewest permits that this answer refuses, and their wait. `None` if a request of the call waits, because
/// requests refused behind it may fit once it gives up.
pub(super) fn fewest_refused(
    groups: &[RequestGroup],
    outcomes: &[OutcomeGroup],
) -> Option<(u64, Wait)> {
    let mut fewest = None;
    for (permits, _, outcome) in decided(groups, outcomes) {
        match outcome {
            Outcome::Waiting(_) | Outcome::Reserved(_) | Outcome::Undecided => return None,
            Outcome::Refused(wait, _) if fewest.is_none_or(|(few, _)| permits < few) => {
                fewest = Some((permits, wait));
            }
            _ => {}
        }
    }
    fewest
}

impl Denials {
    pub(crate) fn new(longest: Duration) -> Self {
        Denials { longest, state: Mutex::default() }
    }

    /// The generation that a call made now must pass to [`answered`](Self::answered).
    pub(crate) fn generation(&self) -> u64 {
        lock(&self.state).generation
    }

    /// The wait and the rate, if a request that does not wait is known to be denied. Requests for more
    /// permits than the rate are left to the server, which answers with an error.
    pub(crate) fn denial(&self, permits: u64, now: impl FnOnce() -> Time) -> Option<(Wait, Rate)> {
        let LastDenial { permits: fewest, at_least, free_at, until, rate } =
            lock(&self.state).last?;
        if !(fewest..=rate.permits()).contains(&permits) {
            return None;
        }
        let now = now();
        let ms = (now < until).then(|| (free_at - now).div_ceil(1000))?;
        Some((Wait::of_ms(ms, at_least || permits > fewest), rate))
    }

    /// Records the answer to a call of this generation. Its waits count from `dated`; `outdated` means that
    /// earlier knowledge no longer holds.
    pub(crate) fn answered(
        &self,
        generation: u64,
        now: Time,
        dated: Time,
        refused: Option<(u64, Wait)>,
        outdated: bool,
        rate: Rate,
    ) {
        let mut state = lock(&self.state);
        state.last.take_if(|last| outdated || now >= last.until);
        // The answer does not account for permits that came back after the call was made.
        let refused = refused.filter(|_| generation == state.generation);
        let Some((permits, Wait { us, at_least })) = refused else { return };
        if state.last.is_some_and(|last| permits > last.permits) {
            return;
        }
        let free_at = dated.saturating_add(us);
        let longest = match rate.keep_alive_ms().saturating_mul(1000) {
            0 => micros(self.longest),
            // A call renews the keep-alive. Without any calls, the limiter would expire while in use.
            keep_alive => micros(self.longest).min(keep_alive / 2),
        };
        let until = free_at.min(now.saturating_add(longest));
        if permits <= rate.permits() && until > now {
            state.last = Some(LastDenial { permits, at_least, free_at, until, rate });
        }
    }

    /// Forgets the denial, because permits may have come back.
    pub(crate) fn clear(&self) {
        let mut state = lock(&self.state);
        (state.last, state.generation) = (None, state.generation + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Mode;

    const MS: Time = 1000;

    fn rate() -> Rate {
        Rate::from_wire(Mode::PerClient, 10, 1000, 5000)
    }

    fn refusal(permits: u64, ms: u64) -> Option<(u64, Wait)> {
        Some((permits, Wait::of_ms(ms, false)))
    }

    fn wait(denials: &Denials, permits: u64, now: Time) -> Option<(u64, bool)> {
        denials.denial(permits, || now).map(|(wait, found)| {
            assert_eq!(found, rate());
            (wait.ms(), wait.at_least)
        })
    }

    #[test]
    fn a_denial_holds_for_as_many_permits_or_more_until_its_wait_ends() {
        let denials = Denials::new(Duration::from_secs(60));
        assert_eq!(wait(&denials, 3, 0), None);
        denials.answered(denials.generation(), 20 * MS, 10 * MS, refusal(3, 100), false, rate());
        assert_eq!(wait(&denials, 3, 20 * MS), Some((90, false)));
        assert_eq!(wait(&denials, 4, 20 * MS + 1), Some((90, true)));
        assert_eq!(wait(&denials, 2, 20 * MS), None, "fewer may fit");
        assert_eq!(wait(&denials, 11, 20 * MS), None, "more than the rate is an error");
        assert_eq!(wait(&denials, 3, 110 * MS - 1), Some((1, false)));
        assert_eq!(wait(&denials, 3, 110 * MS), None);
    }

    #[test]
    fn it_is_remembered_no_longer_than_the_bound() {
        let denials = Denials::new(Duration::from_millis(50));
        denials.answered(denials.generation(), 0, 0, refusal(1, 100), false, rate());
        assert_eq!(wait(&denials, 1, 50 * MS - 1), Some((51, false)));
        assert_eq!(wait(&denials, 1, 50 * MS), None);
    }

    #[test]
    fn it_is_remembered_no_longer_than_half_of_the_keep_alive() {
        let denials = Denials::new(Duration::from_secs(60));
        denials.answered(denials.generation(), 0, 0, refusal(1, 10_000), false, rate());
        assert_eq!(wait(&denials, 1, 2500 * MS - 1), Some((7501, false)));
        assert_eq!(wait(&denials, 1, 2500 * MS), None);
    }

    #[test]
    fn it_is_forgotten_when_permits_come_back() {
        let denials = Denials::new(Duration::from_secs(60));
        denials.answered(denials.generation(), 0, 0, refusal(1, 100), false, rate());
        denials.clear();
        assert_eq!(wait(&denials, 1, 0), None);
        denials.answered(denials.generation(), 0, 0, refusal(2, 100), false, rate());
        denials.answered(denials.generation(), 0, 0, None, true, rate());
        assert_eq!(wait(&denials, 2, 0), None, "a grant shows that permits are available");
    }

    #[test]
    fn a_denial_of_fewer_permits_says_more() {
        let denials = Denials::new(Duration::from_secs(60));
        denials.answered(denials.generation(), 0, 0, refusal(2, 100), false, rate());
        denials.answered(denials.generation(), 0, 0, refusal(5, 300), false, rate());
        assert_eq!(wait(&denials, 2, 0), Some((100, false)));
        denials.answered(denials.generation(), 0, 0, refusal(1, 50), false, rate());
        assert_eq!(wait(&denials, 1, 0), Some((50, false)));
        denials.answered(denials.generation(), 50 * MS, 50 * MS, refusal(5, 300), false, rate());
        assert_eq!(
            wait(&denials, 5, 50 * MS),
            Some((300, false)),
            "a denial that has ended is replaced"
        );
    }

    #[test]
    fn the_fewest_permits_refused_are_found_in_an_answer() {
        let groups = [(5, 2), (1, 1), (2, 3)].map(|(permits, count)| RequestGroup {
            permits,
            max_wait_ms: 0,
            count,
        });
        let short = Wait::of_ms(3, false);
        let long = Wait::of_ms(9, true);
        let answer = |outcomes: &[(u64, Outcome)]| {
            let groups_of = |&(count, outcome): &(u64, Outcome)| OutcomeGroup { count, outcome };
            fewest_refused(&groups, &outcomes.iter().map(groups_of).collect::<Vec<_>>())
        };
        let (granted, refused) = (Outcome::Granted, |wait| Outcome::Refused(wait, 0));
        assert_eq!(answer(&[(6, granted)]), None);
        assert_eq!(
            answer(&[(1, granted), (1, refused(long)), (2, granted), (2, refused(short))]),
            Some((2, short))
        );
        assert_eq!(answer(&[(2, refused(long)), (4, refused(short))]), Some((1, short)));
        assert_eq!(
            answer(&[(2, refused(long)), (1, Outcome::Waiting(long)), (3, refused(long))]),
            None
        );
    }
}

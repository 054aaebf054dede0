//! Self tests of the list of divergences: it excuses what the crate does and
//! nothing else, so that each of these flaws is found.

use compat_tests::oracle::campaign::NEWEST;
use compat_tests::oracle::divergence::of_this_crate;
use compat_tests::oracle::lockstep::{Rules, Side, run};
use compat_tests::oracle::ops::{Op, Outcome, Rate, Shape};
use compat_tests::oracle::ours::Ours;
use compat_tests::oracle::program::{Profile, Program};
use compat_tests::oracle::replay::Oracle;
use compat_tests::oracle::subject::{Call, Subject};
use compat_tests::oracle::world::client_ids;
use compat_tests::server::Server;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// A flaw of a subject.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    /// Entries expire a millisecond early.
    Edge,
    /// Waits are a millisecond too long.
    Wait,
    /// One permit more is released.
    Release,
    /// One permit too few is available.
    Available,
    /// The usage is reset although it should be kept.
    Kept,
    /// Half of a rename: the hash is renamed, value and log are not.
    Renamed,
    /// Clearing the expiry sets a short one.
    Cleared,
}

/// This crate with a flaw.
struct Flawed(Ours, Flaw);

impl Subject for Flawed {
    fn label(&self) -> String {
        format!("{:?}", self.1)
    }

    fn supports(&self, shape: Shape) -> bool {
        self.0.supports(shape)
    }

    async fn apply(&self, call: Call<'_>) -> Outcome {
        let op = match (self.1, call.op) {
            (Flaw::Release, Op::Release(n)) if *n > 0 => &Op::Release(n + 1),
            (Flaw::Kept, Op::UpdateRate(rate, true)) => &Op::UpdateRate(*rate, false),
            (Flaw::Renamed, Op::Rename(to)) => {
                let done = self.0.apply(call).await;
                if done == Outcome::Done {
                    let rate = Rate::overall(1, 1_000);
                    let op = Op::SetRate(rate);
                    self.0.apply(Call { op: &op, name: to, ..call }).await;
                }
                return done;
            }
            (Flaw::Cleared, Op::ClearExpire) => {
                let done = self.0.apply(call).await;
                self.0.apply(Call { op: &Op::Expire(9_000_000, None), ..call }).await;
                return done;
            }
            (_, op) => op,
        };
        let now = match (self.1, call.op) {
            (Flaw::Edge, Op::TryAcquire(_)) => call.now + 1,
            _ => call.now,
        };
        match (self.1, self.0.apply(Call { op, now, ..call }).await) {
            (Flaw::Wait, Outcome::Denied(wait)) => Outcome::Denied(wait + 1),
            (Flaw::Available, Outcome::Count(n)) if *call.op == Op::AvailablePermits && n > 0 => {
                Outcome::Count(n - 1)
            }
            (_, outcome) => outcome,
        }
    }

    async fn forget(&self) {
        self.0.forget().await;
    }
}

fn programs() -> Vec<Program> {
    let mut runner = TestRunner::deterministic();
    let mut next =
        || Profile::EVERYTHING.programs().new_tree(&mut runner).expect("a program").current();
    (0..40).map(|_| next()).collect()
}

#[tokio::test]
async fn every_flaw_is_found() {
    let server = Server::start().await;
    let clients = client_ids(3);
    let theirs = Oracle::on(&server, 0, NEWEST, &clients).await;
    let flaws = [
        Flaw::None,
        Flaw::Edge,
        Flaw::Wait,
        Flaw::Release,
        Flaw::Available,
        Flaw::Kept,
        Flaw::Renamed,
        Flaw::Cleared,
    ];
    for flaw in flaws {
        let ours = Ours::in_process(&clients);
        let ours = Side { subject: Flawed(ours.subject, flaw), site: ours.site };
        let mut found = 0;
        for program in programs() {
            let sides = (&theirs, &ours);
            let done = run(&program, &clients, sides, Rules::ALL, &of_this_crate).await;
            found += usize::from(done.is_err());
        }
        println!("{flaw:?}: found by {found} of 40 programs");
        assert_eq!(found > 0, flaw != Flaw::None, "{flaw:?}");
    }
}

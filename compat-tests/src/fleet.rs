//! Processes of both kinds that use one limiter as fast as they can, and the ledger of what each kind
//! was granted beside what the log holds of it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;

use crate::dump::Dump;
use crate::peer::{Kind, Peer, Rate};
use crate::scenario::kinds;
use crate::server::Server;

/// More permits than any load takes, in an interval that outlasts it: the log holds all grants.
pub const RATE: i64 = 100_000_000;
const INTERVAL_MS: i64 = 600_000;

/// The tasks of each process.
const TASKS: u64 = 4;

/// How long a Rust client gives back what it may have been granted without an answer.
const GIVES_BACK: Duration = Duration::from_secs(12);

/// Processes on the same servers.
#[derive(Debug)]
pub struct Fleet {
    /// Each of them.
    pub peers: Vec<Arc<Peer>>,
}

/// What the processes of one kind saw, and what the log holds of it.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// Which kind.
    pub kind: Kind,
    /// Permits of calls that were granted.
    pub granted: i64,
    /// Permits in the log that this kind wrote.
    pub logged: i64,
    /// Calls that failed.
    pub errors: u64,
    /// The longest call.
    pub longest: Duration,
}

/// The account of each kind.
#[derive(Clone, Debug)]
pub struct Accounts(pub Vec<Account>);

impl Fleet {
    /// This many processes of each kind that takes part, on the servers at `url`.
    pub async fn start(url: &str, of_each: usize) -> Fleet {
        let each = kinds().into_iter().flat_map(|kind| std::iter::repeat_n(kind, of_each));
        let peers = each.map(|kind| Peer::start(kind, url));
        Fleet { peers: join_all(peers).await.into_iter().map(Arc::new).collect() }
    }

    /// All take permits of a new limiter for this long, while `disturbance` goes on, which gets the
    /// limiter's name, and returns the server that has the limiter in the end.
    pub async fn load<'s>(
        &self,
        name: &str,
        ms: u64,
        disturbance: impl Future<Output = &'s Server>,
    ) -> Accounts {
        let limiters: Vec<_> = self.peers.iter().map(|peer| peer.limiter(name)).collect();
        limiters[0].set_rate(Rate::overall(RATE, INTERVAL_MS)).await.expect("the rate");
        let loads = join_all(limiters.iter().map(|limiter| limiter.load(1, TASKS, ms)));
        let (loads, server) = futures::join!(loads, disturbance);
        let loads: Vec<_> = loads.into_iter().map(|load| load.expect("a load")).collect();
        let of_kind = |kind: Kind| {
            let its = limiters.iter().zip(&loads).filter(|(one, _)| one.peer().kind() == kind);
            let its: Vec<_> = its.map(|(_, load)| load).collect();
            Account {
                kind,
                granted: its.iter().map(|load| load.granted as i64).sum(),
                logged: 0,
                errors: its.iter().map(|load| load.errors).sum(),
                longest: Duration::from_micros(
                    its.iter().map(|load| load.max_us).fold(0.0, f64::max) as u64,
                ),
            }
        };
        let mut accounts: Vec<_> = kinds().into_iter().map(of_kind).collect();
        let begun = Instant::now();
        loop {
            read_log(&mut accounts, server, name).await;
            let is_given_back = |account: &Account| account.logged <= account.granted;
            let ours = accounts.iter().find(|account| account.kind == Kind::Rust);
            if ours.is_none_or(is_given_back) || begun.elapsed() > GIVES_BACK {
                return Accounts(accounts);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Panics if the value and the log are not the rate together, which one call counted twice would do.
async fn read_log(accounts: &mut [Account], server: &Server, name: &str) {
    let dump = Dump::read(&mut server.connect().await, name).await;
    let budget = dump.overall();
    let logged = budget.logged() as i64;
    for account in accounts {
        let is_its = |ours: bool| if account.kind == Kind::Rust { ours } else { !ours };
        let entries = budget.entries().iter().map(|seen| &seen.entry);
        let its = entries.filter(|entry| is_its(entry.is_of_this_crate()));
        account.logged = its.map(|entry| entry.permits() as i64).sum();
    }
    assert!(budget.left().expect("a value") + logged <= RATE, "more than the rate: {dump}");
}

impl Accounts {
    /// The account of a kind, if it took part.
    pub fn of(&self, kind: Kind) -> Option<Account> {
        self.0.iter().find(|account| account.kind == kind).copied()
    }
}

impl fmt::Display for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, account) in self.0.iter().enumerate() {
            let Account { kind, granted, logged, errors, longest } = account;
            let separator = if nth == 0 { "" } else { "; " };
            write!(
                f,
                "{separator}{kind:?} {granted} granted, {logged} in the log, {errors} errors, \
                 longest call {} ms",
                longest.as_millis()
            )?;
        }
        Ok(())
    }
}

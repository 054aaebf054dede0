//! This crate as a subject: through its public API, over a server or over its
//! in-process store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use redisson_rate_limiter::topology::Topology;
use redisson_rate_limiter::{
    Client, Clock, Decision, Error, ExpireCondition, InProcessStore, ManualClock, RateLimiter,
    RemainingTime, Usage,
};

use super::database::Database;
use super::in_process::InProcess;
use super::lockstep::Side;
use super::ops::{Condition, ErrorKind, Extra, Failure, Mode, Op, Outcome, Rate, Shape};
use super::record::now_ms;
use super::subject::{Call, Subject};
use crate::server::{Server, connect};

/// This crate, with several clients.
#[derive(Clone)]
pub struct Ours {
    backend: Backend,
    ids: Arc<[String]>,
    clients: Arc<Mutex<Vec<Option<ClockedClient>>>>,
}

/// Where the limiters are stored.
#[derive(Clone, Debug)]
enum Backend {
    /// On these servers, in this database if it is not the first, or the one that the address names.
    Servers(Topology, Option<u32>),
    /// In this store, whose keys expire by this clock.
    InProcess(InProcessStore, ManualClock),
}

/// A client and its clock.
#[derive(Clone)]
struct ClockedClient(Client, ManualClock);

impl Ours {
    /// Clients with these ids on one database of a server, and that database.
    pub async fn on(server: &Server, database: usize, ids: &[String]) -> Side<Ours, Database> {
        let url = format!("{}/{database}", server.url());
        let admin = format!("{}/{database}", server.admin_url());
        let connection = connect(&admin).await.expect("the server accepts connections");
        Side { subject: Ours::by(&url, None, ids), site: Database::new(connection).await }
    }

    /// Clients with these ids of the servers at this address, whatever the topology.
    pub fn by(url: &str, database: Option<u32>, ids: &[String]) -> Ours {
        Ours::over(Backend::Servers(url.try_into().expect("an address"), database), ids)
    }

    /// Clients with these ids on an in-process store, and that store.
    pub fn in_process(ids: &[String]) -> Side<Ours, InProcess> {
        let (clock, handle) = Clock::manual(0);
        let store = InProcessStore::with_clock(clock);
        Side {
            subject: Ours::over(Backend::InProcess(store.clone(), handle.clone()), ids),
            site: InProcess::new(store, handle),
        }
    }

    fn over(backend: Backend, ids: &[String]) -> Ours {
        let clients = Arc::new(Mutex::new(vec![None; ids.len()]));
        Ours { backend, ids: ids.into(), clients }
    }

    /// The client, created if necessary, with its clock set, and whether it is new.
    fn client(&self, client: usize, now: u64) -> (Client, bool) {
        let mut clients = self.clients.lock().expect("the clients");
        let is_new = clients[client].is_none();
        let ClockedClient(client, clock) = clients[client].get_or_insert_with(|| {
            let (clock, handle) = Clock::manual(0);
            let builder = Client::builder().id(&self.ids[client]).clock(clock);
            // Long enough that a busy machine does not cause a retry.
            let builder = builder.deadline(Duration::from_secs(60));
            let client = match &self.backend {
                Backend::Servers(topology, database) => {
                    let builder = match database {
                        Some(database) => builder.database(*database),
                        None => builder,
                    };
                    builder.connect_lazy(topology.clone())
                }
                Backend::InProcess(store, _) => builder.in_process(store),
            };
            ClockedClient(client.expect("a client"), handle)
        });
        clock.set(now as i64);
        (client.clone(), is_new)
    }

    /// The time of the clock by which keys expire.
    fn keys_time(&self) -> u64 {
        match &self.backend {
            Backend::Servers(..) => now_ms(),
            Backend::InProcess(_, clock) => clock.now() as u64,
        }
    }

    async fn run(&self, call: Call<'_>) -> Result<Outcome, Error> {
        let (client, is_new) = self.client(call.client, call.now);
        let limiter = client.limiter(call.name)?;
        if is_new {
            // Connected first: an answer that is late for that would be confirmed by a second attempt,
            // which moves the entry to a later date.
            limiter.exists().await?;
        }
        Ok(match call.op {
            Op::TryAcquire(permits) => acquire(&limiter, *permits, 0).await?,
            Op::Release(permits) => match u64::try_from(*permits) {
                Ok(permits) => limiter.release(permits).await.map(|_| Outcome::Done)?,
                Err(_) => unsigned(),
            },
            Op::AvailablePermits => Outcome::Count(limiter.available_permits().await? as i64),
            Op::TrySetRate(rate) => Outcome::Flag(limiter.try_set_rate(of(rate)?).await?),
            Op::SetRate(rate) => limiter.set_rate(of(rate)?).await.map(|()| Outcome::Done)?,
            Op::SetRateArgs(rate, keep) => {
                limiter.set_rate_with(of(rate)?, state(*keep)).await.map(|()| Outcome::Done)?
            }
            Op::UpdateRate(rate, keep) => {
                Outcome::Flag(limiter.update_rate(of(rate)?, state(*keep)).await?)
            }
            Op::GetConfig => Outcome::Config(limiter.config().await?.as_ref().map(fields)),
            Op::Delete => Outcome::Flag(limiter.delete().await?),
            Op::IsExists => Outcome::Flag(limiter.exists().await?),
            Op::Expire(ms, condition) => {
                let ttl = Duration::from_millis(u64::try_from(*ms).expect("a time in the future"));
                Outcome::Flag(limiter.expire(ttl, condition.map(condition_of)).await?)
            }
            Op::ExpireAt(ms, condition) => {
                let at = self.keys_time().saturating_add_signed(*ms);
                let at = UNIX_EPOCH + Duration::from_millis(at);
                Outcome::Flag(limiter.expire_at(at, condition.map(condition_of)).await?)
            }
            Op::ClearExpire => Outcome::Flag(limiter.clear_expire().await?),
            Op::RemainTimeToLive => {
                Outcome::Count(match limiter.remaining_time_to_live().await? {
                    RemainingTime::NoLimiter => -2,
                    RemainingTime::Endless => -1,
                    RemainingTime::Ends(left) => left.as_millis() as i64,
                })
            }
            Op::Rename(to) => limiter.rename(to).await.map(|()| Outcome::Done)?,
            Op::Touch => Outcome::Flag(limiter.touch().await?),
            Op::Extra(Extra::Pause(ms)) => limiter
                .pause_for(Duration::from_millis(*ms as u64))
                .await
                .map(|()| Outcome::Done)?,
            Op::Extra(Extra::Resume) => limiter.resume().await.map(|()| Outcome::Done)?,
            Op::Extra(Extra::Settle(more)) => acquire(&limiter, 1, *more as u64).await?,
        })
    }
}

impl Subject for Ours {
    fn label(&self) -> String {
        match self.backend {
            Backend::Servers(..) => "this crate".into(),
            Backend::InProcess(..) => "this crate's in-process store".into(),
        }
    }

    fn supports(&self, _: Shape) -> bool {
        true
    }

    async fn apply(&self, call: Call<'_>) -> Outcome {
        self.run(call).await.unwrap_or_else(|error| {
            Outcome::Failed(Failure { kind: kind_of(&error), message: error.to_string() })
        })
    }

    async fn forget(&self) {
        self.clients.lock().expect("the clients").fill(None);
    }
}

impl fmt::Debug for Ours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ours").field("backend", &self.backend).finish_non_exhaustive()
    }
}

/// Acquires permits; a grant is settled with so many more.
async fn acquire(limiter: &RateLimiter, permits: i64, more: u64) -> Result<Outcome, Error> {
    let Ok(permits) = u64::try_from(permits) else { return Ok(unsigned()) };
    Ok(match limiter.try_acquire_now(permits).await? {
        Decision::Granted(mut grant) => {
            if more > 0 {
                grant.settle(grant.permits() + more).await?;
            }
            Outcome::Granted
        }
        Decision::Denied(denial) => {
            let wait = denial.retry_after();
            assert_eq!(wait.subsec_nanos() % 1_000_000, 0, "the waits of a store are in whole ms");
            Outcome::Denied(wait.as_millis() as i64)
        }
    })
}

/// For an argument that the API's types rule out.
fn unsigned() -> Outcome {
    Outcome::Failed(Failure::invalid_argument("permits are unsigned"))
}

fn of(rate: &Rate) -> Result<redisson_rate_limiter::Rate, Error> {
    let mode = match rate.mode {
        Mode::Overall => redisson_rate_limiter::Mode::Overall,
        Mode::PerClient => redisson_rate_limiter::Mode::PerClient,
    };
    let ms = |ms: i64| Duration::from_millis(u64::try_from(ms).expect("a time"));
    let plain = redisson_rate_limiter::Rate::new(mode, rate.rate as u64, ms(rate.interval_ms))?;
    rate.keep_alive_ms.map_or(Ok(plain), |keep_alive| plain.with_keep_alive(ms(keep_alive)))
}

fn state(keep: bool) -> Usage {
    if keep { Usage::Keep } else { Usage::Reset }
}

/// The rate as fields of Redisson's hash.
fn fields(rate: &redisson_rate_limiter::Rate) -> BTreeMap<String, String> {
    let mode = match rate.mode() {
        redisson_rate_limiter::Mode::Overall => 0,
        redisson_rate_limiter::Mode::PerClient => 1,
    };
    let keep_alive = rate.keep_alive().unwrap_or_default();
    let fields = [
        ("rate", rate.permits().to_string()),
        ("interval", rate.interval().as_millis().to_string()),
        ("type", mode.to_string()),
        ("keepAliveTime", keep_alive.as_millis().to_string()),
    ];
    fields.map(|(field, text)| (field.to_owned(), text)).into()
}

fn condition_of(condition: Condition) -> ExpireCondition {
    match condition {
        Condition::Nx => ExpireCondition::IfNotSet,
        Condition::Xx => ExpireCondition::IfSet,
        Condition::Gt => ExpireCondition::IfGreater,
        Condition::Lt => ExpireCondition::IfLess,
    }
}

fn kind_of(error: &Error) -> ErrorKind {
    use redisson_rate_limiter::ErrorKind as Ours;

    match error.kind() {
        Ours::NotInitialized => ErrorKind::NotInitialized,
        Ours::ExceedsRate { .. } => ErrorKind::ExceedsRate,
        Ours::InvalidArgument => ErrorKind::InvalidArgument,
        Ours::ForeignEntry => ErrorKind::ForeignEntry,
        Ours::WrongType => ErrorKind::WrongType,
        Ours::CorruptState => ErrorKind::CorruptState,
        Ours::Auth => ErrorKind::Auth,
        Ours::Unavailable => ErrorKind::Unavailable,
        Ours::Timeout => ErrorKind::Timeout,
        _ => ErrorKind::Other,
    }
}

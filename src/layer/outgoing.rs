//! Limiting what a client sends: no more than a limiter grants, and nothing while the other side asks for a
//! pause.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use tokio::time::{Instant, sleep_until};
use tower_layer::Layer;
use tower_service::Service;

use super::retry_after;
use crate::decision::{Decision, Denial};
use crate::error::Error;
use crate::limiter::RateLimiter;
use crate::observe::Event;
use crate::rt::{Mutex, lock};
use crate::web::LONGEST_WAIT;

/// Limits what a client sends to one server: by a limiter, which all processes that use its name share, and by that
/// server's answers. An answer 429 or 503 with `Retry-After`, in seconds or as a date, holds back all further
/// requests of this layer for that long.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use redisson_rate_limiter::layer::OutgoingLayer;
/// use redisson_rate_limiter::{Client, InProcessStore, Rate};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// let client = Client::builder().in_process(&InProcessStore::new())?;
/// let limiter = client.limiter("their-api")?.with_rate(Rate::per_second(10));
/// # let http_client = service_fn(async |_: http::Request<()>| Ok::<_, std::io::Error>(http::Response::new(())));
/// let mut service = ServiceBuilder::new()
///     .layer(OutgoingLayer::new(limiter).wait_up_to(Duration::from_secs(30)))
///     .service(http_client);
/// let request = http::Request::get("http://127.0.0.1/").body(())?;
/// let response = service.ready().await?.call(request).await?;
/// # Ok(())
/// # }
/// ```
///
/// - Requests are sent within a tokio runtime, whose timer they wait with.
/// - A request that was answered 429 is not sent again; that is the task of a layer outside this one. Requests that
///   have already been sent are not held back. After the pause, the limiter paces what follows.
/// - Use a separate layer for each server: all clones of a layer, and the services it makes, are held back together.
///   Other processes are not, unless [`pause_for_all_up_to`](Self::pause_for_all_up_to) is set.
///
/// reqwest's client is such a service, but its responses have a type of their own: see [`reading`](Self::reading),
/// and the example `reqwest_client`.
#[must_use = "a layer does nothing until a service has it"]
pub struct OutgoingLayer<R> {
    gate: Gate,
    read: ReadFn<R>,
}

/// The limiter is paused again if an answer asks for this much more than the one before.
const PAUSED_AGAIN_AFTER: Duration = Duration::from_secs(1);

type ReadFn<R> = fn(&R) -> (StatusCode, &HeaderMap);

/// The gate that every request passes through. Clones are held back together.
#[derive(Clone, Debug)]
struct Gate {
    limiter: RateLimiter,
    permits: u64,
    wait: Duration,
    longest_hold: Duration,
    /// For how long the limiter is paused at most; `None` if only this layer is held back.
    longest_pause: Option<Duration>,
    held: Arc<Mutex<HeldBack>>,
}

#[derive(Debug, Default)]
struct HeldBack {
    /// Nothing is sent before this.
    until: Option<Instant>,
    /// The end of the last pause that was asked for.
    paused_until: Option<Instant>,
}

impl<B> OutgoingLayer<http::Response<B>> {
    /// A layer whose requests each take a permit of this limiter without waiting for it. A `Retry-After`
    /// counts for at most five minutes.
    pub fn new(limiter: RateLimiter) -> Self {
        OutgoingLayer::reading(limiter, |response| (response.status(), response.headers()))
    }
}

impl<R> OutgoingLayer<R> {
    /// A layer for a client whose responses have a type of their own. For reqwest, `read` is
    /// `|response: &reqwest::Response| (response.status(), response.headers())`.
    pub fn reading(limiter: RateLimiter, read: fn(&R) -> (StatusCode, &HeaderMap)) -> Self {
        let gate = Gate {
            limiter,
            permits: 1,
            wait: Duration::ZERO,
            longest_hold: Duration::from_secs(300),
            longest_pause: None,
            held: Arc::default(),
        };
        OutgoingLayer { gate, read }
    }

    /// Lets a request wait at most this long in total, for permits and while requests are held back. A
    /// request that would have to wait longer fails at once.
    pub fn wait_up_to(mut self, wait: Duration) -> Self {
        self.gate.wait = wait.min(LONGEST_WAIT);
        self
    }

    /// Sets what each request costs, in permits: 1 to 2^32 − 1.
    pub fn cost(mut self, permits: u64) -> Self {
        self.gate.permits = permits;
        self
    }

    /// The longest time for which a `Retry-After` counts, by default five minutes. A longer one is cut to
    /// this; otherwise a single answer could stop a client for years.
    pub fn longest_hold(mut self, longest: Duration) -> Self {
        self.gate.longest_hold = longest.min(LONGEST_WAIT);
        self
    }

    /// Also [pauses the limiter](RateLimiter::pause_for), and so all processes that use it, in Java as well:
    /// for as long as a `Retry-After` says, and if an answer's `RateLimit` field says that nothing is left,
    /// until the time that it names; `longest` at most. By default each process finds out by itself.
    ///
    /// Answers of one server then stop a whole fleet: choose a limiter of that server alone. A limiter with a
    /// [`Policy`](crate::Policy) cannot be paused: with it this changes nothing.
    pub fn pause_for_all_up_to(mut self, longest: Duration) -> Self {
        let can_pause = self.gate.limiter.engine().is_redissons_limiter();
        self.gate.longest_pause = can_pause.then_some(longest.min(LONGEST_WAIT));
        self
    }
}

impl Gate {
    async fn pass<E>(&self) -> Result<(), OutgoingError<E>> {
        let due = Instant::now() + self.wait;
        loop {
            // Wait for the pause before taking the permit: a permit used long after it was granted would
            // count in an interval that has passed.
            if let Some(until) = self.held_until() {
                if until > due {
                    let retry_after = until.saturating_duration_since(Instant::now());
                    return Err(OutgoingError::HeldBack { retry_after });
                }
                sleep_until(until).await;
            }
            let rest = due.saturating_duration_since(Instant::now());
            let mut grant = match self.limiter.try_acquire(self.permits, rest).await {
                Ok(Decision::Granted(grant)) => grant,
                Ok(Decision::Denied(denial)) => return Err(OutgoingError::Denied(denial)),
                Err(error) => return Err(OutgoingError::Limiter(error)),
            };
            if self.held_until().is_none() {
                return Ok(());
            }
            // If that fails, the permit expires.
            let _ = grant.refund_all().await;
        }
    }

    /// The time until which requests are held back, if they are.
    fn held_until(&self) -> Option<Instant> {
        lock(&self.held).until.filter(|until| *until > Instant::now())
    }

    /// Notes if an answer says when to come back.
    fn note_retry_after(&self, status: StatusCode, headers: &HeaderMap) {
        let Gate { limiter, longest_hold, longest_pause, .. } = self;
        let asked = retry_after::of(status, headers, SystemTime::now())
            .or_else(|| Some(retry_after::of_exhausted(headers)?.min((*longest_pause)?)));
        let Some(asked) = asked else { return };
        let (now, hold) = (Instant::now(), asked.min(*longest_hold));
        let pause = longest_pause.map(|longest| asked.min(longest)).filter(|it| !it.is_zero());
        let (is_first, pause) = {
            let mut held = lock(&self.held);
            let is_first = held.until.is_none_or(|until| until <= now);
            // Answers overtake each other, so the latest time counts.
            held.until = held.until.max(Some(now + hold));
            // The answers of requests that were in flight together differ by little.
            let is_later =
                |until: Instant| held.paused_until.is_none_or(|it| it + PAUSED_AGAIN_AFTER < until);
            let pause = pause.filter(|pause| is_later(now + *pause));
            held.paused_until = pause.map(|pause| now + pause).or(held.paused_until);
            (is_first, pause)
        };
        // Told once for all requests in flight, and never of a time that is over.
        if is_first && !hold.is_zero() {
            limiter.engine().observer.event(&Event::HeldBack { status: status.as_u16(), hold });
        }
        if let Some(pause) = pause {
            let (limiter, held) = (limiter.clone(), self.held.clone());
            // No answer waits for it. If it fails, observers are told, and this layer is held back.
            tokio::spawn(async move {
                if limiter.pause_for(pause).await.is_err() {
                    // The next answer that asks for it tries again.
                    lock(&held).paused_until = None;
                }
            });
        }
    }
}

impl<R> Clone for OutgoingLayer<R> {
    fn clone(&self) -> Self {
        OutgoingLayer { gate: self.gate.clone(), read: self.read }
    }
}

impl<R> fmt::Debug for OutgoingLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutgoingLayer").field(&self.gate).finish()
    }
}

impl<S, R> Layer<S> for OutgoingLayer<R> {
    type Service = Outgoing<S, R>;

    fn layer(&self, inner: S) -> Outgoing<S, R> {
        Outgoing { inner, layer: self.clone() }
    }
}

/// A client's service limited by an [`OutgoingLayer`].
#[derive(Debug)]
pub struct Outgoing<S, R> {
    inner: S,
    layer: OutgoingLayer<R>,
}

impl<S: Clone, R> Clone for Outgoing<S, R> {
    fn clone(&self) -> Self {
        Outgoing { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, Req> Service<Req> for Outgoing<S, S::Response>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Response: 'static,
    S::Future: Send,
    Req: Send + 'static,
{
    type Response = S::Response;
    type Error = OutgoingError<S::Error>;
    type Future = BoxFuture<'static, Result<S::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(OutgoingError::Service)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let clone = self.inner.clone();
        // The service that is ready goes with the request.
        let mut ready = mem::replace(&mut self.inner, clone);
        let OutgoingLayer { gate, read } = self.layer.clone();
        async move {
            gate.pass().await?;
            let response = ready.call(request).await.map_err(OutgoingError::Service)?;
            let (status, headers) = read(&response);
            gate.note_retry_after(status, headers);
            Ok(response)
        }
        .boxed()
    }
}

/// Why a request was not sent, or how it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutgoingError<E> {
    /// The limiter denied it, because it would have to wait longer than it may. Not sent.
    #[error("{0}")]
    Denied(Denial),
    /// The server asked for a pause longer than this request may wait. Not sent.
    #[error("held back: the other side wants no requests for {retry_after:?}")]
    HeldBack {
        /// The time until requests may be sent again.
        retry_after: Duration,
    },
    /// The limiter could not decide. Not sent.
    #[error(transparent)]
    Limiter(Error),
    /// The client's own error.
    #[error(transparent)]
    Service(E),
}

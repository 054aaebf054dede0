//! One client's way to the server: what becomes of each message is drawn when it is sent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::history::History;
use super::random::SeededRandom;
use super::scenario::Weather;
use super::server::{Away, Effect, SimServer, name_of};
use crate::error::{Error, ErrorKind, Execution};
use crate::store::{Heard, StoreCall};
use crate::wire::keys::Keys;

pub(super) struct Link {
    client: usize,
    server: Arc<SimServer>,
    history: Arc<History>,
    state: Mutex<LinkState>,
}

struct LinkState {
    random: SeededRandom,
    weather: Weather,
    /// No message gets through until then.
    cut_until: Option<Instant>,
    /// The client's process has been killed.
    is_dead: bool,
}

/// What becomes of a message and its answer.
#[derive(Clone, Copy, Debug)]
struct Fate {
    there: Duration,
    back: Duration,
    /// The server receives it once more, this much later.
    again_after: Option<Duration>,
    request: Passage,
    answer: Passage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    Arrives,
    /// Nobody learns that it does not.
    IsLost,
    /// The connection is lost with it, which the client notices.
    IsReset,
}

impl Link {
    pub(super) fn new(
        client: usize,
        server: &Arc<SimServer>,
        history: &Arc<History>,
        weather: Weather,
        random: SeededRandom,
    ) -> Arc<Self> {
        let state = LinkState { random, weather, cut_until: None, is_dead: false };
        Arc::new(Link {
            client,
            server: server.clone(),
            history: history.clone(),
            state: Mutex::new(state),
        })
    }

    pub(super) fn cut_for(&self, ms: u64) {
        self.state().cut_until = Some(Instant::now() + Duration::from_millis(ms));
    }

    pub(super) fn kill(&self) {
        self.state().is_dead = true;
    }

    /// From now on every message arrives, and on time.
    pub(super) fn repair(&self) {
        let mut state = self.state();
        state.cut_until = None;
        let Weather { one_way_ms, .. } = state.weather;
        state.weather = Weather { one_way_ms, ..Weather::default() };
    }

    /// Sends a call, and awaits its answer for this long. What is on its way goes on if the future
    /// is dropped.
    pub(super) async fn send<C: StoreCall>(
        self: Arc<Self>,
        keys: Keys,
        call: C,
        limit: Duration,
    ) -> Result<C::Reply, Error> {
        if self.state().is_dead {
            return Err(unavailable(Execution::NotExecuted));
        }
        let attempt = self.history.attempt_begins(self.client, name_of::<C>());
        let (done, answer) = oneshot::channel();
        tokio::spawn(self.clone().carry(keys, call, done));
        let answer = async {
            match answer.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        };
        match timeout(limit, answer).await {
            Ok(answer) => {
                self.history.attempt_ends(attempt, answer.is_ok());
                answer
            }
            Err(_) => Err(Error::new(ErrorKind::Timeout, Execution::Unknown)),
        }
    }

    /// Hears the server's announcements, as far as they arrive.
    pub(super) async fn listen(self: Arc<Self>, channel: Arc<str>, heard: Heard) {
        let server = self.server.clone();
        let announced: Heard = Arc::new(move |messages| {
            let (link, heard, fate) = (self.clone(), heard.clone(), self.draw(Effect::Once));
            tokio::spawn(async move {
                pass(fate.back).await;
                if link.passage(fate.answer) == Passage::Arrives && !link.state().is_dead {
                    heard(messages);
                }
            });
        });
        server.listen(&channel, &announced).await;
    }

    /// Carries a call to the server, and its answer back. If either is lost, `done` is dropped.
    async fn carry<C: StoreCall>(
        self: Arc<Self>,
        keys: Keys,
        call: C,
        done: oneshot::Sender<Result<C::Reply, Error>>,
    ) {
        let (what, effect) = (name_of::<C>(), Effect::of::<C>());
        let fate = self.draw(effect);
        self.history.event(self.client, what, "sent", &fate);
        if self.server.is_away() {
            pass(fate.there + fate.back).await;
            let _ = done.send(Err(unavailable(Execution::NotExecuted)));
            return;
        }
        pass(fate.there).await;
        match self.passage(fate.request) {
            Passage::Arrives => {}
            Passage::IsLost => return,
            Passage::IsReset => {
                let _ = done.send(Err(unavailable(Execution::Unknown)));
                return;
            }
        }
        let life = self.server.life();
        let answer = self.server.execute(&keys, &call).await;
        self.history.event(self.client, what, "executed", &answer.is_ok());
        if let Some(later) = fate.again_after {
            let link = self.clone();
            tokio::spawn(async move {
                pass(later).await;
                link.history.event(link.client, what, "executed again", &());
                let _ = link.server.execute(&keys, &call).await;
            });
        }
        pass(fate.back).await;
        let is_reset = self.server.life() != life;
        let answer = match (answer, self.passage(fate.answer)) {
            (_, Passage::IsLost) => return,
            (Ok(answer), Passage::Arrives) if !is_reset => answer,
            (Ok(_) | Err(Away), _) => Err(unavailable(Execution::Unknown)),
        };
        self.history.event(self.client, what, "answered", &answer);
        if !self.state().is_dead {
            let _ = done.send(answer);
        }
    }

    fn draw(&self, effect: Effect) -> Fate {
        let mut state = self.state();
        let weather = state.weather;
        let random = &mut state.random;
        let mut way = || {
            let mut ms = weather.one_way_ms + random.between(0..=weather.jitter_ms);
            if random.per_mille(weather.delays) {
                ms += random.between(0..=weather.delay_ms);
            }
            Duration::from_millis(ms)
        };
        let (there, back, again) = (way(), way(), way());
        let is_duplicated = random.per_mille(weather.duplicates);
        let mut passage = |chance| match (random.per_mille(chance), random.per_mille(500)) {
            (false, _) => Passage::Arrives,
            (true, true) => Passage::IsLost,
            (true, false) => Passage::IsReset,
        };
        Fate {
            there,
            back,
            again_after: (is_duplicated && effect == Effect::Idempotent).then_some(again),
            request: passage(weather.loses_request),
            answer: passage(weather.loses_answer),
        }
    }

    /// What becomes of a message that arrives now, if it is not held up.
    fn passage(&self, drawn: Passage) -> Passage {
        let is_cut = self.state().cut_until.is_some_and(|until| Instant::now() < until);
        if is_cut { Passage::IsLost } else { drawn }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LinkState> {
        self.state.lock().unwrap()
    }
}

async fn pass(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

fn unavailable(execution: Execution) -> Error {
    Error::new(ErrorKind::Unavailable, execution)
}

//! What a seed draws: the limiter, the clients with their callers, the network, and the faults.

use super::policy::Plan;
use super::random::SeededRandom;
use crate::options::Fraction;

/// One run.
#[derive(Clone, Debug)]
pub(super) struct SimScenario {
    pub(super) seed: u64,
    /// Permits per interval.
    pub(super) rate: u64,
    pub(super) interval_ms: u64,
    /// All clients date their grants by the server's clock.
    pub(super) uses_server_clock: bool,
    /// Callers take from a second limiter too, of a higher rate, in one decision.
    pub(super) uses_group: bool,
    /// The part of the rate that every other caller leaves to the rest.
    pub(super) headroom: Option<Fraction>,
    /// Callers take from limiters with policies.
    pub(super) policy: Option<Plan>,
    pub(super) clients: Vec<ClientPlan>,
    /// By the time at which each begins.
    pub(super) faults: Vec<(u64, Fault)>,
    /// For this long callers come and faults happen; then everything is repaired.
    pub(super) lasts_ms: u64,
    /// The server keeps its state this often, for crashes that lose later writes.
    pub(super) saves_every_ms: u64,
}

#[derive(Clone, Debug)]
pub(super) struct ClientPlan {
    pub(super) callers: u64,
    /// A caller pauses for up to this long before its next call.
    pub(super) think_ms: u64,
    pub(super) deadline_ms: u64,
    /// Permits and hold.
    pub(super) lease: Option<(u32, u64)>,
    pub(super) denial_memory_ms: Option<u64>,
    /// It takes whatever is free of an exhausted limiter.
    pub(super) is_greedy: bool,
    /// How far its clock is ahead.
    pub(super) skew_ms: u64,
    pub(super) weather: Weather,
    /// How many calls in a thousand set another rate.
    pub(super) sets_rates: u64,
    /// How many calls in a thousand are dropped before they are answered.
    pub(super) cancels: u64,
    /// How many grants in a thousand are given back.
    pub(super) refunds: u64,
    /// How many grants in a thousand are settled with another number of permits.
    pub(super) settles: u64,
    /// How many calls in a thousand pause the limiter, or end a pause.
    pub(super) pauses: u64,
    /// How many calls in a thousand are for a key.
    pub(super) keys: u64,
    /// The lease of a semaphore's permits, and whether it is renewed.
    pub(super) permits: Option<(u64, bool)>,
    /// The semaphore's permits have no leases, and no ids either.
    pub(super) is_plain: bool,
}

/// What happens to the messages of one client; chances in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    /// One way takes this long, and up to `jitter_ms` more. With jitter messages overtake each other.
    pub(super) one_way_ms: u64,
    pub(super) jitter_ms: u64,
    pub(super) loses_request: u64,
    pub(super) loses_answer: u64,
    /// The server receives a message that may be repeated twice.
    pub(super) duplicates: u64,
    /// A message is held up, for up to `delay_ms`.
    pub(super) delays: u64,
    pub(super) delay_ms: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// The server does nothing for this long, and then everything at once.
    Freeze { ms: u64 },
    /// The server is away for this long, and comes back with what it had saved.
    Crash { away_ms: u64, lost: Lost },
    /// One of the limiter's keys is gone.
    Evict(Evicted),
    /// No message of this client gets through, in either direction.
    CutOff { client: usize, ms: u64 },
    /// The client's process is killed, and another one takes its place.
    Kill { client: usize },
}

/// What a crash loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    Nothing,
    /// What was written since the state was last saved.
    SinceSaved,
    Everything,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Evicted {
    Value,
    Log,
}

impl SimScenario {
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let random = &mut random;
        let kind = random.between(0..=9);
        // One client and no faults: for these the strictest promises hold.
        let is_alone = kind < 2;
        let is_calm = kind < 4;
        let has_leases = !is_alone && random.per_mille(400);
        let interval_ms = random.one_of(&[100, 250, 500, 1000]);
        let lasts_ms = (4 * interval_ms).max(1000);
        let clients = if is_alone { 1 } else { random.between(2..=3) as usize };
        let mut uses_server_clock = random.per_mille(250);
        let has_skew = !is_alone && random.per_mille(200);
        let sets_rates = random.one_of(&[0, 0, 20]);
        // Drawn on their own: the other draws are as they were.
        let mut more = SeededRandom::new(seed ^ 0x6d6f_7265);
        let [settles, pauses, keys] = [300, 30, 200].map(|chance| more.one_of(&[0, 0, 0, chance]));
        let parts = more.one_of(&[0, 0, 0, 0, 2, 3, 5]);
        let is_semaphore = more.per_mille(250);
        let is_plain = is_semaphore && SeededRandom::new(seed ^ 0x70_6c61_696e).per_mille(400);
        let mut of_policy = SeededRandom::new(seed ^ 0x706f_6c69_6379);
        let has_policy = !is_semaphore && of_policy.per_mille(250);
        let policy = has_policy.then(|| Plan::draw(&mut of_policy));
        let is_numbered = is_plain || has_policy;
        // A semaphore's leases end by the server's clock, and policies count by it.
        uses_server_clock |= is_semaphore || has_policy;
        let mut plans = Vec::new();
        for _ in 0..clients {
            let mut weather = match is_alone {
                true => Weather { one_way_ms: random.between(0..=2), ..Weather::default() },
                false => Weather::draw(random, is_calm),
            };
            if is_numbered {
                // A denied call leaves no record, so that a copy of it of which its client knows nothing may take
                // permits. No connection makes one.
                weather.duplicates = 0;
            }
            // The first call takes two round trips, three by the server's clock: it asks for the time, and
            // confirms its answer, as nothing is known yet of how long one usually takes. The second one
            // waits for it.
            let is_slow_at_first = weather.round_trip_ms() > 30;
            plans.push(ClientPlan {
                callers: random.between(2..=6),
                think_ms: random.one_of(&[5, 40, 150]),
                deadline_ms: random.one_of(if is_slow_at_first {
                    &[900, 1500]
                } else {
                    &[300, 900, 1500]
                }),
                lease: has_leases.then(|| {
                    (random.between(1..=8) as u32, random.one_of(&[interval_ms / 10, interval_ms]))
                }),
                denial_memory_ms: random.per_mille(150).then(|| random.between(1..=interval_ms)),
                skew_ms: if has_skew { random.between(0..=interval_ms / 10) } else { 0 },
                is_greedy: is_alone && random.per_mille(500),
                weather,
                // A request for more permits than are left of a plain one would wait for ever.
                sets_rates: if is_plain { 0 } else { sets_rates },
                cancels: random.one_of(&[0, 50, 200]),
                refunds: random.one_of(&[0, 100, 400]),
                settles,
                pauses,
                keys,
                permits: is_semaphore
                    .then(|| (more.one_of(&[600, 2000, 20_000]), more.per_mille(800))),
                is_plain,
            });
        }
        let mut faults = match is_calm {
            true => Vec::new(),
            false => draw_faults(random, lasts_ms, clients),
        };
        if is_numbered {
            // What a server forgot is held too often for ever, and what a dead holder took is lost.
            let may_kill = !is_plain;
            faults.retain(|(_, fault)| match fault {
                Fault::Kill { .. } => may_kill,
                fault => !loses_state(fault),
            });
        }
        SimScenario {
            seed,
            rate: random.one_of(&[3, 10, 30]),
            interval_ms,
            uses_server_clock,
            // Drawn by the seed alone: the other draws are as they were.
            uses_group: seed % 4 == 3,
            headroom: (parts > 0).then(|| Fraction::one_of(parts as u32)),
            policy,
            clients: plans,
            faults,
            lasts_ms,
            saves_every_ms: random.between(20..=300),
        }
    }

    /// No message is lost or late, and nothing breaks.
    pub(super) fn is_calm(&self) -> bool {
        self.faults.is_empty() && self.clients.iter().all(|client| client.weather.is_calm())
    }

    /// The store's state is never damaged from outside.
    pub(super) fn keeps_state(&self) -> bool {
        !self.faults.iter().any(|(_, fault)| loses_state(fault))
    }

    /// Whatever is given back arrives, and nothing takes permits after that: no message arrives twice, or when its
    /// client has given up.
    pub(super) fn gives_back_at_once(&self) -> bool {
        let is_in_time = |weather: &Weather| weather.duplicates + weather.delays == 0;
        let mut faults = self.faults.iter();
        self.clients.iter().all(|client| is_in_time(&client.weather))
            && self.keeps_state()
            && !faults.any(|(_, fault)| matches!(fault, Fault::Kill { .. } | Fault::Freeze { .. }))
    }

    /// Clients share a semaphore, not a limiter.
    pub(super) fn is_semaphore(&self) -> bool {
        self.clients.iter().any(|client| client.permits.is_some())
    }

    pub(super) fn is_plain(&self) -> bool {
        self.clients.iter().any(|client| client.is_plain)
    }

    pub(super) fn leases(&self) -> bool {
        self.clients.iter().any(|client| client.lease.is_some())
    }

    pub(super) fn longest_hold_ms(&self) -> u64 {
        self.clients
            .iter()
            .filter_map(|client| client.lease)
            .map(|(_, hold)| hold)
            .max()
            .unwrap_or(0)
    }

    /// The difference of the clocks that date grants.
    pub(super) fn skew_ms(&self) -> u64 {
        let skews = || self.clients.iter().map(|client| client.skew_ms);
        match self.uses_server_clock {
            true => 0,
            false => skews().max().unwrap_or(0) - skews().min().unwrap_or(0),
        }
    }
}

fn loses_state(fault: &Fault) -> bool {
    match fault {
        Fault::Crash { lost, .. } => *lost != Lost::Nothing,
        Fault::Evict(_) => true,
        Fault::Freeze { .. } | Fault::CutOff { .. } | Fault::Kill { .. } => false,
    }
}

fn draw_faults(random: &mut SeededRandom, lasts_ms: u64, clients: usize) -> Vec<(u64, Fault)> {
    let mut faults = Vec::new();
    for _ in 0..random.between(0..=3) {
        let at = random.between(0..=lasts_ms * 3 / 4);
        let ms = random.one_of(&[30, 150, 600, 1200]);
        let client = random.between(0..=clients as u64 - 1) as usize;
        faults.push((
            at,
            match random.between(0..=9) {
                0..=1 => Fault::Freeze { ms },
                2..=4 => {
                    let lost = random.one_of(&[Lost::Nothing, Lost::SinceSaved, Lost::Everything]);
                    Fault::Crash { away_ms: ms, lost }
                }
                5 => Fault::Evict(random.one_of(&[Evicted::Value, Evicted::Log])),
                6..=7 => Fault::CutOff { client, ms },
                _ => Fault::Kill { client },
            },
        ));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

impl Weather {
    fn draw(random: &mut SeededRandom, is_calm: bool) -> Self {
        let one_way_ms = random.one_of(&[0, 1, 1, 5, 20]);
        let calm = Weather { one_way_ms, jitter_ms: random.between(0..=2), ..Weather::default() };
        match is_calm || random.per_mille(200) {
            true => calm,
            false => Weather {
                jitter_ms: random.between(0..=8),
                loses_request: random.one_of(&[0, 10, 60]),
                loses_answer: random.one_of(&[0, 10, 60]),
                duplicates: random.one_of(&[0, 50]),
                delays: random.one_of(&[0, 10, 40]),
                delay_ms: random.one_of(&[50, 400, 1500]),
                ..calm
            },
        }
    }

    fn is_calm(&self) -> bool {
        self.loses_request + self.loses_answer + self.duplicates + self.delays == 0
    }

    /// The longest round trip that nothing holds up.
    pub(super) fn round_trip_ms(&self) -> u64 {
        2 * (self.one_way_ms + self.jitter_ms)
    }
}

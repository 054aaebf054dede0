//! The rows of the table.

mod latency;
mod local;
mod policies;
mod semaphores;
mod shares;
mod throughput;
mod waiting;

use crate::fleet::{Contestant, Fleet, Sample, Work};
use crate::options::Options;
use crate::table::{Line, Series};

/// One piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    OneLimiter,
    Workers,
    Exhausted,
    ManyLimiters,
    SeveralLimits,
    Policies,
    OneTask,
    RoundTrip,
    Waiters,
    BigRequest,
    Shares,
    Leases,
    DenialMemory,
    Semaphores,
    PermitShares,
    Renewal,
}

impl Row {
    pub(crate) const ALL: [Row; 16] = [
        Row::OneLimiter,
        Row::Workers,
        Row::Exhausted,
        Row::ManyLimiters,
        Row::SeveralLimits,
        Row::Policies,
        Row::OneTask,
        Row::RoundTrip,
        Row::Waiters,
        Row::BigRequest,
        Row::Shares,
        Row::Leases,
        Row::DenialMemory,
        Row::Semaphores,
        Row::PermitShares,
        Row::Renewal,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Row::OneLimiter => "one-limiter",
            Row::Workers => "workers",
            Row::Exhausted => "exhausted",
            Row::ManyLimiters => "many-limiters",
            Row::SeveralLimits => "several-limits",
            Row::Policies => "policies",
            Row::OneTask => "one-task",
            Row::RoundTrip => "round-trip",
            Row::Waiters => "waiters",
            Row::BigRequest => "big-request",
            Row::Shares => "shares",
            Row::Leases => "leases",
            Row::DenialMemory => "denial-memory",
            Row::Semaphores => "semaphores",
            Row::PermitShares => "permits-beside-java",
            Row::Renewal => "renewal",
        }
    }

    /// The rows whose name contains this text.
    pub(crate) fn matching(text: &str) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |row| row.name().contains(text))
    }

    /// Whether this contestant takes part in it.
    pub(crate) fn needs(self, contestant: Contestant) -> bool {
        match contestant {
            Contestant::Rust => self != Row::Workers,
            Contestant::OneWorker | Contestant::TwoWorkers | Contestant::FourWorkers => {
                self == Row::Workers
            }
            Contestant::Redisson => {
                let without = [
                    Row::Workers,
                    Row::SeveralLimits,
                    Row::Policies,
                    Row::RoundTrip,
                    Row::Leases,
                    Row::Renewal,
                ];
                !without.contains(&self)
            }
            Contestant::Bucket4j => self == Row::OneLimiter,
            Contestant::Empty => matches!(self, Row::OneTask | Row::RoundTrip),
        }
    }

    pub(crate) async fn run(self, fleet: &Fleet, options: &Options) -> Vec<Line> {
        match self {
            Row::OneLimiter => throughput::one_limiter(fleet, options).await,
            Row::Workers => throughput::workers(fleet, options).await,
            Row::Exhausted => throughput::exhausted(fleet, options).await,
            Row::ManyLimiters => throughput::many_limiters(fleet, options).await,
            Row::SeveralLimits => throughput::several_limits(fleet, options).await,
            Row::Policies => policies::policies(fleet, options).await,
            Row::OneTask => latency::one_task(fleet, options).await,
            Row::RoundTrip => latency::round_trip(fleet, options).await,
            Row::Waiters => waiting::waiters(fleet, options).await,
            Row::BigRequest => waiting::big_request(fleet, options).await,
            Row::Shares => shares::shares(fleet, options).await,
            Row::Leases => local::leases(fleet, options).await,
            Row::DenialMemory => local::denial_memory(fleet, options).await,
            Row::Semaphores => semaphores::pairs(fleet, options).await,
            Row::PermitShares => semaphores::shares(fleet, options).await,
            Row::Renewal => semaphores::renewal(fleet, options).await,
        }
    }
}

/// The samples of some contestants, round by round.
struct Rounds(Vec<(Contestant, Vec<Sample>)>);

impl Rounds {
    /// Lets the contestants take turns at the same work.
    async fn run(
        fleet: &Fleet,
        options: &Options,
        contestants: &[Contestant],
        work: Work,
    ) -> Rounds {
        let here = contestants.iter().copied().filter(|contestant| fleet.has(*contestant));
        let mut rounds = Rounds(here.map(|contestant| (contestant, Vec::new())).collect());
        for _ in 0..options.rounds {
            for (contestant, samples) in &mut rounds.0 {
                samples.push(fleet.load(*contestant, work, options.ms()).await);
            }
        }
        rounds
    }

    /// One number per round; empty for a contestant that does not take part.
    fn of(&self, contestant: Contestant, number: impl Fn(&Sample) -> f64) -> Series {
        let samples = self.0.iter().find(|(who, _)| *who == contestant);
        samples.map_or_else(Series::new, |(_, samples)| samples.iter().map(number).collect())
    }

    fn foreign(&self) -> Series {
        self.0.iter().flat_map(|(_, samples)| samples).map(|sample| sample.usage.foreign).collect()
    }
}

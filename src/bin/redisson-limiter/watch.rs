//! `watch`: looks at limiters again and again.

use std::collections::VecDeque;
use std::fmt::Write;
use std::io;
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};
use redisson_rate_limiter::admin::{Inspection, StoredPolicy, Writer};
use redisson_rate_limiter::{Mode, Peek, RateLimiter};

use crate::Session;
use crate::args::WatchArgs;
use crate::exit::{Exit, Failure, Result};
use crate::found::policies_of;
use crate::out::{Out, Tone};
use crate::text::{bar, duration, quoted, sparkline};

/// The most looks that a sparkline shows.
const KEPT: usize = 60;

/// The result of one look at a limiter.
pub struct Sample {
    /// The rate or the policy, as text.
    pub rate: String,
    pub permits: u64,
    /// The permits that an acquire finds; `None` if that is unknown.
    pub free: Option<u64>,
    /// The interval of the rate; `None` for a policy.
    interval: Option<Duration>,
    /// Permits granted per second in the time before the look; `None` for a policy, which does not keep when permits were
    /// granted, and for a log of which only the oldest entries were read.
    pub granted_per_second: Option<f64>,
    /// The wait of a request for one permit, as text.
    pub wait: Option<String>,
}

/// A limiter, and the results of the last looks.
struct WatchRow {
    limiter: RateLimiter,
    /// The permits that were free and those granted per second, for the sparklines.
    past: VecDeque<(u64, u64)>,
    /// The last sample, or why there is none.
    last: Result<Sample, String>,
}

impl Sample {
    /// `window` is the time before the look to evaluate, cut to the interval. `None` if there is no rate.
    pub fn of(inspection: &Inspection, window: Duration) -> Option<Sample> {
        let (rate, budget) = inspection.in_force()?;
        let window =
            i64::try_from(window.min(rate.interval()).as_millis().max(1)).unwrap_or(i64::MAX);
        let since = inspection.now_ms.saturating_sub(window);
        let recent = budget
            .entries()
            .iter()
            .filter(|entry| entry.date_ms > since && entry.date_ms <= inspection.now_ms)
            // Nobody was granted these.
            .filter(|entry| !matches!(entry.writer, Writer::Debt | Writer::Pause));
        let granted: u64 = recent.filter_map(|entry| entry.permits).sum();
        let peek = inspection.peek.as_ref().ok();
        Some(Sample {
            rate: rate.to_string(),
            permits: rate.permits(),
            free: peek.map(Peek::available),
            interval: Some(rate.interval()),
            granted_per_second: budget
                .is_complete()
                .then_some(granted as f64 * 1000.0 / window as f64),
            wait: peek.filter(|peek| !peek.wait().is_zero()).map(|peek| {
                let least = if peek.is_lower_bound() { "at least " } else { "" };
                format!("{least}{}", duration(peek.wait()))
            }),
        })
    }

    pub fn of_policy(stored: &StoredPolicy) -> Sample {
        Sample {
            rate: stored.policy.to_string(),
            permits: stored.limit,
            free: Some(stored.available),
            interval: None,
            granted_per_second: None,
            wait: None,
        }
    }

    /// The permits in use, as far as that is known.
    pub fn used(&self) -> u64 {
        self.free.map_or(0, |free| self.permits.saturating_sub(free))
    }

    pub fn used_part(&self) -> f64 {
        self.used() as f64 / self.permits.max(1) as f64
    }

    /// How much is granted per second, for comparisons: where that is not known, nearly all that is in use was granted
    /// within an interval. Negative for a policy.
    pub fn busyness(&self) -> f64 {
        let about = |interval: Duration| self.used() as f64 / interval.as_secs_f64();
        self.granted_per_second.or(self.interval.map(about)).unwrap_or(-1.0)
    }

    pub fn granted(&self) -> String {
        self.granted_per_second.map_or("-".to_owned(), |rate| format!("{rate:.1}"))
    }

    /// The permits that are free, and the wait.
    fn texts(&self) -> [String; 2] {
        let free = self.free.map_or("?".to_owned(), |free| free.to_string());
        let wait = self.wait.as_deref().unwrap_or("-");
        [format!("{free} of {} free", self.permits), format!("wait {wait}")]
    }
}

pub async fn run(session: &Session<'_>, args: &WatchArgs) -> Result<Exit> {
    let Session { client, out, .. } = session;
    if args.every < Duration::from_millis(50) {
        return Err(Failure::Usage("--every must be at least 50ms".to_owned()));
    }
    let mut rows = Vec::new();
    for name in &args.names {
        let (limiter, last) = (client.limiter(name)?, Err(String::new()));
        rows.push(WatchRow { limiter, past: VecDeque::new(), last });
    }
    let screen = (out.is_terminal && !args.lines).then(Screen::open).transpose()?;
    let mut looks = 0;
    let mut ticks = tokio::time::interval(args.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // One signal stream for all looks: a Ctrl-C that arrives while nobody listens would be lost.
    let mut ended = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let look = async {
            ticks.tick().await;
            for row in &mut rows {
                row.look(session, args).await?;
            }
            Ok::<_, Failure>(())
        };
        tokio::select! {
            looked = look => looked?,
            ended = &mut ended => {
                ended.map_err(|error| Failure::Io("the signal".to_owned(), error))?;
                return Ok(Exit::Done);
            }
        }
        let is_read = if screen.is_some() {
            queue!(io::stdout(), MoveTo(0, 0), Clear(ClearType::All)).map_err(terminal)?;
            out.print(&drawn(&rows, args, out))?
        } else {
            out.print(&rows.iter().map(WatchRow::line).collect::<String>())?
        };
        looks += 1;
        if !is_read || args.count.is_some_and(|count| looks >= count) {
            return Ok(Exit::Done);
        }
    }
}

impl WatchRow {
    async fn look(
        &mut self,
        Session { client, common, .. }: &Session<'_>,
        args: &WatchArgs,
    ) -> Result<()> {
        let inspection = self.limiter.inspect(args.entries).await?;
        self.last = match (&inspection.rate, Sample::of(&inspection, args.every)) {
            // The budget of a client that exists only here would be meaningless.
            (Ok(Some(rate)), _) if rate.mode() == Mode::PerClient && common.client_id.is_none() => {
                Err(format!("{rate}: name a client with --client-id; `inspect` lists them"))
            }
            (_, Some(sample)) => Ok(sample),
            (Ok(_), None) => Err(match policies_of(client, self.limiter.name()).await {
                Some(policies) => {
                    format!("follows a policy ({policies}), and is not watched; see top")
                }
                None => "no limiter of this name; see --key-prefix".to_owned(),
            }),
            (Err(_), None) => Err("its hash cannot be read: see doctor".to_owned()),
        };
        let granted = |last: &Sample| last.granted_per_second.unwrap_or(0.0).round() as u64;
        let numbers = |last: &Sample| (last.free.unwrap_or(0), granted(last));
        self.past.push_back(self.last.as_ref().map_or((0, 0), numbers));
        if self.past.len() > KEPT {
            self.past.pop_front();
        }
        Ok(())
    }

    fn line(&self) -> String {
        let name = quoted(self.limiter.name());
        match &self.last {
            Err(problem) => format!("{name}: {problem}\n"),
            Ok(last) => {
                let ([free, wait], granted) = (last.texts(), last.granted());
                format!("{name}: {}, {free}, {granted} granted/s, {wait}\n", last.rate)
            }
        }
    }
}

fn drawn(rows: &[WatchRow], args: &WatchArgs, out: &Out) -> String {
    // Some terminals do not report a size.
    let size = crossterm::terminal::size().ok().filter(|(columns, rows)| *columns > 0 && *rows > 0);
    let (columns, height) = size.unwrap_or((80, 24));
    let chart = usize::from(columns).saturating_sub(24).clamp(10, KEPT);
    let every = duration(args.every);
    let mut text =
        out.paint(Tone::Quiet, format!("every {every}, the most used first; Ctrl-C ends"));
    text.push_str("\r\n");
    let mut order: Vec<&WatchRow> = rows.iter().collect();
    let used_part = |row: &WatchRow| row.last.as_ref().map_or(0.0, Sample::used_part);
    order.sort_by(|a, b| used_part(b).total_cmp(&used_part(a)));
    for row in order.iter().take(usize::from(height.saturating_sub(2)) / 4) {
        let title = out.paint(Tone::Strong, quoted(row.limiter.name()));
        let last = match &row.last {
            Ok(last) => last,
            Err(problem) => {
                let _ = write!(text, "{title}  {}\r\n\r\n", out.paint(Tone::Bad, problem));
                continue;
            }
        };
        let ([free_text, wait], Sample { rate, permits, .. }) = (last.texts(), last);
        let past = row.past.iter().skip(row.past.len().saturating_sub(chart));
        let used = out.paint(Tone::Doubtful, bar(last.used(), *permits, 20));
        let free = sparkline(past.clone().map(|(free, _)| *free), *permits);
        let granted = sparkline(past.map(|(_, granted)| *granted), 1);
        let [free, granted] = [free, granted].map(|line| out.paint(Tone::Good, line));
        let per_second = last.granted();
        let _ = write!(
            text,
            "{title}  {rate}  {free_text}  {used}  {wait}\r\n  free     {free}\r\n  granted  {granted} \
             {per_second}/s\r\n"
        );
    }
    text
}

/// The terminal while it is drawn on; dropping this restores it.
struct Screen;

impl Screen {
    fn open() -> Result<Self> {
        execute!(io::stdout(), EnterAlternateScreen, Hide).map_err(terminal)?;
        Ok(Screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    }
}

fn terminal(error: io::Error) -> Failure {
    Failure::Io("the terminal".to_owned(), error)
}

//! `watch`: looks at limiters again and again.

use std::collections::VecDeque;
use std::fmt::Write;
use std::io;
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};
use redisson_rate_limiter::admin::Inspection;
use redisson_rate_limiter::{Mode, Rate, RateLimiter};

use crate::Session;
use crate::args::{Common, WatchArgs};
use crate::exit::{Exit, Failure};
use crate::found::expires_in;
use crate::out::{Out, Tone};
use crate::text::{bar, duration, quoted, sparkline};

/// The most looks that a sparkline shows.
const KEPT: usize = 60;

/// What one look at a limiter shows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// The permits that an acquire finds; `None` if that is unknown.
    pub free: Option<u64>,
    pub rate: u64,
    /// Permits granted per second in the time before the look.
    pub granted_per_second: f64,
    /// The wait of a request for one permit.
    pub wait: Option<Duration>,
}

/// A limiter, and the results of the last looks.
struct WatchRow {
    limiter: RateLimiter,
    /// The rate at the last look.
    rate: Option<Rate>,
    samples: VecDeque<Sample>,
    problem: Option<String>,
}

impl Sample {
    /// `window` is the time before the look to evaluate, cut to the interval.
    pub fn of(inspection: &Inspection, window: Duration) -> Option<Sample> {
        let (rate, budget) = inspection.in_force()?;
        let window = window.min(rate.interval()).as_millis().max(1);
        let window = i64::try_from(window).unwrap_or(i64::MAX);
        let since = inspection.now_ms.saturating_sub(window);
        let recent = budget
            .entries()
            .iter()
            .filter(|entry| entry.date_ms > since && entry.date_ms <= inspection.now_ms);
        let granted: u64 = recent.filter_map(|entry| entry.permits).sum();
        let free = inspection.available();
        let oldest = inspection.live(rate, budget).next();
        let wait = oldest.filter(|_| free == Some(0)).map(|oldest| {
            expires_in(inspection, rate, oldest.date_ms).max(Duration::from_millis(1))
        });
        Some(Sample {
            free,
            rate: rate.permits(),
            granted_per_second: granted as f64 * 1000.0 / window as f64,
            wait,
        })
    }

    pub fn free_text(&self) -> String {
        self.free.map_or("?".to_owned(), |free| free.to_string())
    }

    pub fn wait_text(&self) -> String {
        self.wait.map_or("-".to_owned(), duration)
    }
}

pub async fn run(session: &Session<'_>, args: &WatchArgs) -> Result<Exit, Failure> {
    let Session { client, common, out } = session;
    if args.every < Duration::from_millis(50) {
        return Err(Failure::Usage("--every must be at least 50ms".to_owned()));
    }
    let mut rows = Vec::new();
    for name in &args.names {
        let limiter = client.limiter(name)?;
        rows.push(WatchRow { limiter, rate: None, samples: VecDeque::new(), problem: None });
    }
    let screen = match out.is_terminal() && !args.lines {
        true => Some(Screen::open()?),
        false => None,
    };
    let mut looks = 0;
    let mut ticks = tokio::time::interval(args.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // One signal stream for all looks: a Ctrl-C that arrives while nobody listens would be lost.
    let mut ended = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let look = async {
            ticks.tick().await;
            for row in &mut rows {
                row.look(args, common).await?;
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
        let text = match &screen {
            Some(_) => drawn(&rows, args, out),
            None => lines(&rows),
        };
        if screen.is_some() {
            queue!(io::stdout(), MoveTo(0, 0), Clear(ClearType::All)).map_err(terminal)?;
        }
        out.write(text.as_bytes())?;
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(Exit::Done);
        }
    }
}

impl WatchRow {
    async fn look(&mut self, args: &WatchArgs, common: &Common) -> Result<(), Failure> {
        let inspection = self.limiter.inspect(args.entries).await?;
        let sample = Sample::of(&inspection, args.every);
        self.problem = match &inspection.rate {
            // The budget of a client that exists only here would be meaningless.
            Ok(Some(rate)) if rate.mode() == Mode::PerClient && common.client_id.is_none() => {
                Some(format!("{rate}: name a client with --client-id; `inspect` lists them"))
            }
            Ok(Some(_)) => None,
            Ok(None) => Some("no limiter of this name; see --key-prefix".to_owned()),
            Err(_) => Some("its hash cannot be read: see doctor".to_owned()),
        };
        self.rate = inspection.rate.ok().flatten();
        self.samples.push_back(sample.unwrap_or_default());
        if self.samples.len() > KEPT {
            self.samples.pop_front();
        }
        Ok(())
    }

    fn rate_text(&self) -> String {
        self.rate.map_or(String::new(), |rate| rate.to_string())
    }

    fn last(&self) -> Sample {
        self.samples.back().copied().unwrap_or_default()
    }

    /// The fraction of the rate in use, for sorting.
    fn use_of_rate(&self) -> f64 {
        let last = self.last();
        last.free.map_or(0.0, |free| 1.0 - free as f64 / last.rate.max(1) as f64)
    }
}

fn lines(rows: &[WatchRow]) -> String {
    let mut text = String::new();
    for row in rows {
        let (name, last) = (quoted(row.limiter.name()), row.last());
        let _ = match &row.problem {
            Some(problem) => writeln!(text, "{name}: {problem}"),
            None => writeln!(
                text,
                "{name}: {}, {} of {} free, {:.1} granted/s, wait {}",
                row.rate_text(),
                last.free_text(),
                last.rate,
                last.granted_per_second,
                last.wait_text()
            ),
        };
    }
    text
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
    order.sort_by(|a, b| b.use_of_rate().total_cmp(&a.use_of_rate()));
    for row in order.iter().take(usize::from(height.saturating_sub(2)) / 4) {
        let last = row.last();
        let title = out.paint(Tone::Strong, quoted(row.limiter.name()));
        if let Some(problem) = &row.problem {
            let _ = write!(text, "{title}  {}\r\n\r\n", out.paint(Tone::Bad, problem));
            continue;
        }
        let used = last.rate.saturating_sub(last.free.unwrap_or(0));
        let _ = write!(
            text,
            "{title}  {}  {} of {} free  {}  wait {}\r\n",
            row.rate_text(),
            last.free_text(),
            last.rate,
            out.paint(Tone::Doubtful, bar(used, last.rate, 20)),
            last.wait_text()
        );
        let recent = row.samples.iter().skip(row.samples.len().saturating_sub(chart));
        let free = recent.clone().map(|sample| sample.free.unwrap_or(0));
        let granted = recent.map(|sample| sample.granted_per_second.round() as u64);
        let _ = write!(
            text,
            "  free     {}\r\n  granted  {} {:.1}/s\r\n",
            out.paint(Tone::Good, sparkline(free, last.rate)),
            out.paint(Tone::Good, sparkline(granted, 1)),
            last.granted_per_second
        );
    }
    text
}

/// The terminal while it is drawn on; dropping this restores it.
struct Screen;

impl Screen {
    fn open() -> Result<Self, Failure> {
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

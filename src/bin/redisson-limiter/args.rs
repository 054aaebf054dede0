//! The command line, and its completions and manual pages.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args, ColorChoice, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use redisson_rate_limiter::Rate;

use crate::exit::{EXIT_CODES, Exit, Failure, Result};
use crate::out::Out;
use crate::text::parse_duration;

/// clap's own usage leaves out `--all`, and shows the URL as required if the environment has it.
const DOCTOR_USAGE: &str = "\
redisson-limiter doctor [OPTIONS] <NAME>...
       redisson-limiter doctor [OPTIONS] --all";

/// Inspects and repairs Redisson's rate limiters on a server.
#[derive(Debug, Parser)]
#[command(name = "redisson-limiter", bin_name = "redisson-limiter", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// When to use colours; auto is on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    #[arg(help_heading = None::<&str>)]
    pub color: ColorChoice,
    #[command(subcommand)]
    pub command: Command,
}

/// The servers, and how to log in. Values from the environment are not shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers", mut_args(common))]
pub struct Common {
    /// The servers: redis://, rediss://, unix://, redis+sentinel://host,host/name, redis+cluster://host,host.
    /// Do not put the password here: others can see the arguments. By default redis://127.0.0.1:6379
    #[arg(long, env = "REDISSON_LIMITER_URL")]
    pub url: Vec<String>,
    /// The URLs name a master and its replicas, without sentinels
    #[arg(long, conflicts_with_all = ["address_map", "redisson_yaml", "sentinel_user"])]
    pub replicated: bool,
    /// The Java side's configuration file, instead of a URL
    #[arg(long, env = "REDISSON_LIMITER_REDISSON_YAML", value_name = "FILE")]
    pub redisson_yaml: Option<PathBuf>,
    /// The user to log in as
    #[arg(long, env = "REDISSON_LIMITER_USER")]
    pub user: Option<String>,
    /// A file with the password; or set REDISSON_LIMITER_PASSWORD
    #[arg(long, env = "REDISSON_LIMITER_PASSWORD_FILE", value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// The user for the sentinels; their password is REDISSON_LIMITER_SENTINEL_PASSWORD
    #[arg(long, env = "REDISSON_LIMITER_SENTINEL_USER", conflicts_with = "redisson_yaml")]
    pub sentinel_user: Option<String>,
    /// How to reach a server that announces another address, as announced=reachable
    #[arg(long, value_parser = parse_pair, value_name = "PAIR", conflicts_with = "redisson_yaml")]
    pub address_map: Vec<(String, String)>,
    /// The database number
    #[arg(long, env = "REDISSON_LIMITER_DATABASE")]
    pub database: Option<u32>,
    /// The certificate authorities to trust instead of the platform's, in PEM format
    #[arg(long, env = "REDISSON_LIMITER_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// This client's certificate, in PEM format
    #[arg(long, env = "REDISSON_LIMITER_CERT", value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// The certificate's key, in PEM format
    #[arg(long, env = "REDISSON_LIMITER_KEY", value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// The name that the servers' certificates must be valid for
    #[arg(long, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// The prefix of all names on the server: Redisson's name mapper
    #[arg(long, env = "REDISSON_LIMITER_KEY_PREFIX", value_name = "PREFIX")]
    pub key_prefix: Option<String>,
    /// In the mode PER_CLIENT, the client whose budget to use
    #[arg(long, value_name = "UUID")]
    pub client_id: Option<String>,
    /// The clock that dates grants and decides what has expired
    #[arg(long, value_enum, default_value = "server")]
    pub clock: Dated,
    /// How long an operation may take
    #[arg(long, value_parser = parse_duration, default_value = "3s", value_name = "TIME")]
    pub timeout: Duration,
}

/// The clock to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dated {
    /// The server's clock, because an operator's machine may have a wrong one.
    Server,
    /// This machine's clock.
    Machine,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show everything that is stored of a limiter
    Inspect(InspectArgs),
    /// Watch limiters live
    Watch(WatchArgs),
    /// Show the busiest limiters on the servers, or these semaphores
    Top(TopArgs),
    /// List the limiters on the servers, with their rates
    List(ListArgs),
    /// Find what is wrong with limiters, and repair it
    #[command(override_usage = DOCTOR_USAGE)]
    Doctor(DoctorArgs),
    /// Set the rate of a limiter, and create the limiter if there is none
    Set(SetArgs),
    /// Change the rate of an existing limiter
    Update(UpdateArgs),
    /// Take permits
    Acquire(AcquireArgs),
    /// Forget the usage of a limiter, or remove it
    Reset(ResetArgs),
    /// Measure the servers for some seconds, with a limiter made for this
    Bench(BenchArgs),
    /// Replay an exported log under other rates, without a server
    Replay(ReplayArgs),
    /// Print the completions of a shell
    Completions { shell: Shell },
    /// Print the manual page of the program, or of a command
    Man { command: Option<String> },
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The limiter
    pub name: String,
    /// The name is that of a semaphore
    #[arg(long)]
    pub semaphore: bool,
    /// Print JSON, with all entries
    #[arg(long)]
    pub json: bool,
    /// The most entries of a log to read
    #[arg(long, default_value_t = 20_000, value_name = "NUMBER")]
    pub entries: u64,
    #[command(flatten)]
    pub scan: ScanArgs,
}

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The limiters
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// The time between two updates
    #[arg(long, value_parser = parse_duration, default_value = "1s", value_name = "TIME")]
    pub every: Duration,
    /// Stop after this many updates
    #[arg(long, value_name = "NUMBER")]
    pub count: Option<u64>,
    /// Print lines even on a terminal
    #[arg(long)]
    pub lines: bool,
    /// The most entries of a log to read
    #[arg(long, default_value_t = 5_000, value_name = "NUMBER")]
    pub entries: u64,
}

/// How keys are searched.
#[derive(Debug, Args)]
pub struct ScanArgs {
    /// How many keys each SCAN step looks at
    #[arg(long, default_value_t = 500, value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub scan_count: u32,
    /// The pause between two steps
    #[arg(long, value_parser = parse_duration, default_value = "5ms", value_name = "TIME")]
    pub scan_pause: Duration,
}

#[derive(Debug, Args)]
pub struct TopArgs {
    /// The semaphores
    #[arg(value_name = "NAME", requires = "semaphore")]
    pub names: Vec<String>,
    /// Show semaphores, which must be named: no key says that it is one's
    #[arg(long, requires = "names")]
    pub semaphore: bool,
    /// How many limiters to show
    #[arg(long, default_value_t = 20, value_name = "NUMBER")]
    pub limit: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub scan: ScanArgs,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub scan: ScanArgs,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The limiters
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "NAME")]
    pub names: Vec<String>,
    /// All limiters that SCAN finds
    #[arg(long)]
    pub all: bool,
    /// The names are those of semaphores
    #[arg(long, conflicts_with_all = ["all", "fix"])]
    pub semaphore: bool,
    /// How many permits the semaphore should have, if nobody held any
    #[arg(long, requires = "semaphore", value_name = "NUMBER")]
    pub permits: Option<u32>,
    /// Repair what can be repaired, after asking
    #[arg(long)]
    pub fix: bool,
    /// Repair without asking
    #[arg(long, requires = "fix")]
    pub yes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How old the last grant of a limiter without a hash must be before its keys are removed: longer than
    /// the longest interval in use
    #[arg(long, value_parser = parse_duration, default_value = "1d", value_name = "TIME")]
    pub orphan_age: Duration,
    #[command(flatten)]
    pub scan: ScanArgs,
}

#[derive(Debug, Args)]
pub struct SetArgs {
    #[command(flatten)]
    pub update: UpdateArgs,
    /// Only if there is no limiter of that name
    #[arg(long, conflicts_with = "reset_usage")]
    pub if_absent: bool,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// The limiter
    pub name: String,
    /// For example "100/s", "5 per 10s" or "10/m per client, keep-alive 1h"
    pub rate: Rate,
    /// Forget the usage, so that all permits are available; otherwise the last interval's usage counts
    #[arg(long)]
    pub reset_usage: bool,
}

#[derive(Debug, Args)]
pub struct AcquireArgs {
    /// The limiter
    pub name: String,
    /// How many permits to take
    #[arg(default_value_t = 1)]
    pub permits: u64,
    /// Wait up to this long for them
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub wait: Option<Duration>,
    /// Create the limiter with this rate if there is none
    #[arg(long)]
    pub rate: Option<Rate>,
}

#[derive(Debug, Args)]
pub struct ResetArgs {
    /// The limiter
    pub name: String,
    /// Remove the limiter with all its keys; in the mode PER_CLIENT for all clients, but leave their values
    /// and logs
    #[arg(long)]
    pub delete: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// How many seconds to measure
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub seconds: u64,
    /// The number of concurrent callers
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub callers: u32,
    /// The name of the limiter, which must not exist yet
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The output of `inspect --json`, or lines with a date in ms and a number of permits; - for standard
    /// input
    pub file: PathBuf,
    /// A rate to replay under; can be repeated
    #[arg(long, required = true)]
    pub rate: Vec<Rate>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// An empty variable is none: deployments set variables for which they have no value.
fn common(arg: Arg) -> Arg {
    let arg = arg.global(true).hide_env_values(true);
    match arg.get_env().and_then(std::env::var_os) {
        Some(value) if value.is_empty() => arg.env(None),
        _ => arg,
    }
}

fn parse_pair(text: &str) -> Result<(String, String), &'static str> {
    let (announced, reachable) = text.split_once('=').ok_or("must be like announced=reachable")?;
    Ok((announced.to_owned(), reachable.to_owned()))
}

pub fn completions(shell: Shell, out: &Out) -> Result<Exit> {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    // clap-rs/clap#6421: for a program whose name has a hyphen, clap writes one name for a subcommand's options in
    // bash, and looks for another.
    let script = String::from_utf8_lossy(&script);
    out.print(&script.replace("redisson__subcmd__limiter", "redisson__limiter"))?;
    Ok(Exit::Done)
}

/// The manual page of the program, or of one of its commands.
pub fn man(of: Option<&str>, out: &Out) -> Result<Exit> {
    let mut command = Arguments::command();
    command.build();
    if let Some(name) = of {
        let found = command.find_subcommand(name).cloned();
        command = found.ok_or_else(|| Failure::Usage(format!("there is no command {name:?}")))?;
    }
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command).render(&mut page);
    rendered.map_err(|error| Failure::Io("the manual page".to_owned(), error))?;
    out.print(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Done)
}

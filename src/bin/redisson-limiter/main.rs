//! `redisson-limiter`: a tool for those who operate limiters.
//!
//! Each command is a module. All of them use the crate's public API. docs/cli.md shows what they print.

mod args;
mod bench;
mod connect;
mod doctor;
mod exit;
mod findings;
mod found;
mod inspect;
mod json;
mod list;
mod out;
mod rates;
mod replay;
mod semaphore;
mod text;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use redisson_rate_limiter::Client;

use args::{Arguments, Command, Common};
use exit::{Exit, Failure, Result};
use out::Out;

/// The client and the terminal of a command.
struct Session<'a> {
    client: Client,
    common: &'a Common,
    out: &'a Out,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let out = Out::new(arguments.color);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(run(&arguments, &out)),
        Err(error) => Err(Failure::Io("the runtime".to_owned(), error)),
    };
    let exit = ended.unwrap_or_else(|failure| {
        out.complain(&failure.to_string());
        if let Failure::Missing(_, name) = &failure {
            out.complain(&connect::other_names(name, &arguments.common));
        }
        failure.exit()
    });
    ExitCode::from(exit as u8)
}

async fn run(arguments: &Arguments, out: &Out) -> Result<Exit> {
    let common = &arguments.common;
    match &arguments.command {
        Command::Completions { shell } => return args::completions(*shell, out),
        Command::Man { command } => return args::man(command.as_deref(), out),
        Command::Replay(args) => return replay::run(args, out).await,
        _ => {}
    }
    let session = Session { client: connect::connect(common, out).await?, common, out };
    let ended = match &arguments.command {
        Command::Inspect(args) if args.semaphore => semaphore::inspect(&session, args).await,
        Command::Inspect(args) => inspect::run(&session, args).await,
        Command::Watch(args) => watch::run(&session, args).await,
        Command::Top(args) if args.semaphore => semaphore::top(&session, args).await,
        Command::Top(args) => list::top(&session, args).await,
        Command::List(args) => list::list(&session, args).await,
        Command::Doctor(args) => doctor::run(&session, args).await,
        Command::Set(args) => rates::set(&session, args).await,
        Command::Update(args) => rates::update(&session, args).await,
        Command::Reset(args) => rates::reset(&session, args).await,
        Command::Acquire(args) => rates::acquire(&session, args).await,
        Command::Bench(args) => bench::run(&session, args).await,
        Command::Completions { .. } | Command::Man { .. } | Command::Replay(_) => Ok(Exit::Done),
    };
    let ended = match ended {
        Err(Failure::Missing("limiter", name)) => {
            Err(found::why_missing(&session.client, &name).await)
        }
        ended => ended,
    };
    session.client.close().await;
    ended
}

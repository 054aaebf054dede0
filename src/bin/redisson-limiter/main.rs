//! `redisson-limiter`: a tool for those who operate limiters.
//!
//! Each command is a module. All of them use the crate's public API, and two of its hidden methods, `sibling`
//! and `reset_usage`. docs/cli.md shows what they print.

mod acquire;
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
mod shell;
mod text;
mod top;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};
use exit::{Exit, Failure};
use out::Out;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut out = Out::new(arguments.common.color);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(run(&arguments, &mut out)),
        Err(error) => Err(Failure::Io("the runtime".to_owned(), error)),
    };
    match ended {
        Ok(exit) => exit.into(),
        // The reader of the output has seen enough.
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            out.complain(&failure.to_string());
            if let Some(name) = failure.unknown_limiter() {
                out.complain(&connect::other_names(name, &arguments.common));
            }
            failure.exit().into()
        }
    }
}

async fn run(arguments: &Arguments, out: &mut Out) -> Result<Exit, Failure> {
    let common = &arguments.common;
    match &arguments.command {
        Command::Completions { shell } => return shell::completions(*shell, out),
        Command::Man { command } => return shell::man(command.as_deref(), out),
        Command::Replay(replay) => return replay::run(replay, out).await,
        _ => {}
    }
    let client = connect::connect(common, out).await?;
    let ended = match &arguments.command {
        Command::Inspect(args) if args.semaphore => semaphore::inspect(&client, args, out).await,
        Command::Inspect(inspect) => inspect::run(&client, inspect, common, out).await,
        Command::Watch(watch) => watch::run(&client, watch, common, out).await,
        Command::Top(args) if args.semaphore => semaphore::top(&client, args, out).await,
        Command::Top(top) => top::run(&client, top, out).await,
        Command::List(list) => list::run(&client, list, out).await,
        Command::Doctor(doctor) => doctor::run(&client, doctor, out).await,
        Command::Set(set) => rates::set(&client, set, common, out).await,
        Command::Update(update) => rates::update(&client, update, common, out).await,
        Command::Reset(reset) => rates::reset(&client, reset, common, out).await,
        Command::Acquire(acquire) => acquire::run(&client, acquire, common, out).await,
        Command::Bench(bench) => bench::run(&client, bench, out).await,
        Command::Completions { .. } | Command::Man { .. } | Command::Replay(_) => Ok(Exit::Done),
    };
    client.close().await;
    ended
}

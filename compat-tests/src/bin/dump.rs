//! Prints one limiter as a server stores it, or the difference between two:
//!
//! ```text
//! dump redis://host:port NAME [--key-prefix PREFIX]
//! dump redis://host:port NAME --diff redis://host:port/1 [NAME2] [--key-prefix PREFIX]
//! ```
//!
//! With `--diff` the exit status is 1 if they differ.

use std::process::ExitCode;

use compat_tests::dump::Dump;
use compat_tests::server::connect;

const USAGE: &str = "dump URL NAME [--key-prefix PREFIX] [--diff URL [NAME]]";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()).await {
        Ok(code) => code,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(2)
        }
    }
}

async fn run(mut arguments: Vec<String>) -> Result<ExitCode, String> {
    let mut prefix = String::new();
    if let Some(at) = arguments.iter().position(|word| word == "--key-prefix") {
        prefix = arguments.get(at + 1).ok_or(USAGE)?.clone();
        arguments.drain(at..at + 2);
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (url, name, second) = match words[..] {
        [url, name] => (url, name, None),
        [url, name, "--diff", other] => (url, name, Some((other, name))),
        [url, name, "--diff", other, other_name] => (url, name, Some((other, other_name))),
        _ => return Err(USAGE.into()),
    };
    let first = read(url, &prefix, name).await?;
    let Some((url, name)) = second else {
        print!("{first:#}");
        return Ok(ExitCode::SUCCESS);
    };
    let lines = first.diff(&read(url, &prefix, name).await?);
    for line in &lines {
        println!("{line}");
    }
    Ok(ExitCode::from(u8::from(!lines.is_empty())))
}

async fn read(url: &str, prefix: &str, name: &str) -> Result<Dump, String> {
    let told = |e: redis::RedisError| format!("{url}: {e}");
    let mut connection = connect(url).await.map_err(told)?;
    let name = format!("{prefix}{name}");
    Dump::try_read(&mut connection, &name).await.map_err(told)
}

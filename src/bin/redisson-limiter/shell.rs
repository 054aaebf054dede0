//! Shell completions and manual pages.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Arguments;
use crate::exit::{Exit, Failure, Result};
use crate::out::Out;

pub fn completions(shell: Shell, out: &Out) -> Result<Exit> {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    if shell == Shell::Bash {
        // clap-rs/clap#6421: for a program whose name has a hyphen, clap writes one name for a subcommand's
        // options and looks for another.
        script = String::from_utf8_lossy(&script)
            .replace("redisson__subcmd__limiter", "redisson__limiter")
            .into_bytes();
    }
    out.write(&script)?;
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
    out.write(&page)?;
    Ok(Exit::Done)
}

//! Completions and the manual page.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Arguments;
use crate::exit::{Exit, Failure};
use crate::out::Out;

pub fn completions(shell: Shell, out: &mut Out) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    out.write(&script)?;
    Ok(Exit::Done)
}

pub fn man(out: &mut Out) -> Result<Exit, Failure> {
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(Arguments::command()).render(&mut page);
    rendered.map_err(|error| Failure::Io("the manual page".to_owned(), error))?;
    out.write(&page)?;
    Ok(Exit::Done)
}

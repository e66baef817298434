//! `completions` and `man`: what a shell and `man` know of the options, from the options
//! themselves.

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use super::args;
use super::outcome::Outcome;
use crate::error::Error;
use crate::io::stdio;

/// Prints what a shell needs to complete the options.
pub fn run(shell: Shell) -> Result<Outcome, Error> {
    let mut command = args::command();
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    print(text)
}

/// Prints the man page of the program, or of one of its commands.
pub fn man(name: Option<&str>) -> Result<Outcome, Error> {
    let root = args::command();
    let command = match name {
        None => root,
        Some(name) => find(&root, name)?.clone(),
    };
    let mut text = Vec::new();
    Man::new(command).render(&mut text).expect("memory takes everything");
    print(text)
}

fn find<'a>(root: &'a Command, name: &str) -> Result<&'a Command, Error> {
    root.find_subcommand(name).ok_or_else(|| {
        let names = root.get_subcommands().map(Command::get_name);
        let known: Vec<_> = names.filter(|name| *name != "help").collect();
        Error::usage_of(
            "man",
            format!("no command `{name}`; the commands are {}", known.join(", ")),
        )
    })
}

fn print(text: Vec<u8>) -> Result<Outcome, Error> {
    stdio::print(&String::from_utf8(text).expect("options are text"))?;
    Ok(Outcome::Right)
}

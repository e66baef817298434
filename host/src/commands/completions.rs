//! `completions` and `man`, made from the options themselves.

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use host::format::alternatives;
use host::nearest_names;

use super::args;
use super::outcome::Outcome;
use crate::error::Error;
use crate::io::stdio;

/// Prints completions for a shell.
pub fn run(shell: Shell) -> Result<Outcome, Error> {
    let mut command = args::command();
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    print(text)
}

/// Prints the man page of the program or of a command.
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
        let known: Vec<_> = root.get_subcommands().map(Command::get_name).collect();
        let nearest = alternatives(&nearest_names(name, &known));
        Error::usage_of("man", format!("no command `{name}`; the nearest are {nearest}"))
    })
}

fn print(text: Vec<u8>) -> Result<Outcome, Error> {
    stdio::print(&String::from_utf8(text).expect("options are text"))?;
    Ok(Outcome::Right)
}

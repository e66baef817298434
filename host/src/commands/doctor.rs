//! `doctor`: what this machine has, what works because of it, and what to type for the rest.

pub mod args;

use std::env;
use std::time::Duration;

use host::doctor::{self, Examination, Finding, State};
use host_system::program;

use super::outcome::Outcome;
use crate::error::Error;
use crate::io::progress;
use crate::io::stdio::{self, Accent};
use crate::report::format::Format;
use crate::report::json;
use args::DoctorArgs;

/// A driver that answers at all does so in less, also with a kernel to compile.
const LIMIT: Duration = Duration::from_secs(60);

/// What the README's commands need.
const NEEDED: &str = "soft";

/// Does what the options say.
pub fn run(args: &DoctorArgs) -> Result<Outcome, Error> {
    if args.devices {
        stdio::print(&json::line(&doctor::devices()))?;
        return Ok(Outcome::Right);
    }
    let examination = progress::step("looking", || Examination::new(devices()));
    match args.format {
        Format::Json => stdio::print(&json::line(&examination))?,
        Format::Table => {
            section("This machine", &examination.machine)?;
            section("What works", &examination.abilities)?;
            remedies(&examination)?;
        }
    }
    let required: Vec<_> = args.require.iter().map(String::as_str).chain([NEEDED]).collect();
    let missing = examination.missing(&required);
    if missing.is_empty() {
        return Ok(Outcome::Right);
    }
    let names: Vec<_> = missing.iter().map(|finding| finding.name.as_str()).collect();
    stdio::say(format_args!("missing: {}", names.join(", ")));
    Ok(Outcome::Wrong)
}

/// What the devices say, in a process of its own: the driver may crash, or never answer.
fn devices() -> Vec<Finding> {
    let answer = env::current_exe().map_err(|error| error.to_string()).and_then(|program| {
        program::ask(&program, &["doctor", "--devices"], LIMIT)
            .map_err(|failure| format!("whoever loads it {failure}"))
    });
    let findings = answer.and_then(|text| {
        serde_json::from_str(&text).map_err(|error| format!("its answer is odd ({error})"))
    });
    findings.unwrap_or_else(|reason| {
        let broken = |name: &str, value: &str, remedy: Option<&str>| Finding {
            name: name.to_owned(),
            state: State::Broken,
            value: value.to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let remedy = "reinstall NVIDIA's driver, or remove it";
        vec![
            broken("driver", &reason, Some(remedy)),
            broken("gpu", "the driver does not work", None),
            broken("cublas", "the driver does not work", None),
            broken("soft", "the driver ends each program that loads it", Some(remedy)),
            broken("gpu-run", "the driver does not work", None),
            broken("sm-90a", "the driver does not work", None),
        ]
    })
}

/// A mark, a name and a value on each line.
fn section(title: &str, findings: &[Finding]) -> Result<(), Error> {
    stdio::print(&format!("{title}\n"))?;
    for Finding { name, state, value, .. } in findings {
        let (mark, verdict) = match state {
            State::Ok => ("\u{2714}", "PASS"),
            State::Missing => ("-", ""),
            State::Broken => ("\u{2718}", "FAIL"),
        };
        let text = format!("  {mark} {name:<20}{value}\n");
        let style = stdio::accent(verdict).style;
        stdio::print_styled(&text, &[Accent { word: mark, style }])?;
    }
    Ok(())
}

/// What to do, and for what.
fn remedies(examination: &Examination) -> Result<(), Error> {
    let mut remedies: Vec<(&str, Vec<&str>)> = Vec::new();
    for Finding { name, remedy, .. } in examination.machine.iter().chain(&examination.abilities) {
        let Some(remedy) = remedy else { continue };
        match remedies.iter_mut().find(|(known, _)| known == remedy) {
            Some((_, names)) => names.push(name),
            None => remedies.push((remedy, vec![name])),
        }
    }
    if !remedies.is_empty() {
        stdio::print("For the rest\n")?;
    }
    for (remedy, names) in remedies {
        stdio::print(&format!("  {}: {remedy}\n", names.join(", ")))?;
    }
    Ok(())
}

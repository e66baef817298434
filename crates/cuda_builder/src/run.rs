//! Running cargo for a build: what it says, and what it has built.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use crate::diagnose::LLVM_ERROR;

/// The format of cargo's messages that [`run`] reads.
pub(crate) const MESSAGES: &str = "--message-format=json-render-diagnostics";

/// How cargo ended.
pub(crate) struct Ended {
    pub success: bool,
    /// What it said from its first error on, which nobody has seen yet.
    pub errors: String,
    /// What it says of each crate and of each build script, the crate that was asked for last.
    built: Vec<String>,
}

/// Runs cargo. What it says in front of the first error goes to stderr as it comes.
pub(crate) fn run(cargo: &mut Command) -> io::Result<Ended> {
    let mut child = cargo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let messages = child.stdout.take();
    let messages = thread::spawn(move || {
        let mut text = String::new();
        messages.map(|mut messages| messages.read_to_string(&mut text)).transpose().map(|_| text)
    });
    let mut errors = String::new();
    for line in
        child.stderr.take().map(BufReader::new).into_iter().flat_map(|said| said.split(b'\n'))
    {
        let line = String::from_utf8_lossy(&line?).into_owned() + "\n";
        let is_error = line.starts_with("error") || line.contains(LLVM_ERROR);
        if errors.is_empty() && !is_error {
            // Nobody need listen.
            let _ = io::stderr().write_all(line.as_bytes());
        } else {
            errors += &line;
        }
    }
    let success = child.wait()?.success();
    let messages = messages.join().map_err(|_| io::Error::other("cargo's messages are lost"))??;
    let of_builds = ["compiler-artifact", "build-script-executed"];
    let is_of_build = |line: &&str| {
        of_builds.iter().any(|reason| line.starts_with(&format!("{{\"reason\":\"{reason}\"")))
    };
    let built = messages.lines().filter(is_of_build).map(str::to_owned).collect();
    Ok(Ended { success, errors, built })
}

const FRESH: &str = "\"fresh\":true";

impl Ended {
    /// Whether cargo ran no rustc for the crate that was asked for.
    pub fn is_fresh(&self) -> bool {
        self.built.last().is_some_and(|crate_| crate_.contains(FRESH))
    }

    /// What was built, as a number: the features, profiles and files of all crates, whose names
    /// hold a hash of the version and of all that cargo tells builds apart by.
    pub fn digest(&self) -> String {
        let of_line = |line: &String| line.replace(FRESH, "\"fresh\":false");
        let mut built: Vec<String> = self.built.iter().map(of_line).collect();
        // They are built side by side.
        built.sort();
        let mut hasher = DefaultHasher::new();
        built.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// The name of the file that the crate was built to.
    pub fn file_name(&self) -> Option<&str> {
        let (_, files) = self.built.last()?.split_once("\"filenames\":[\"")?;
        files.split('"').next()?.rsplit(['/', '\\']).next()
    }
}

/// What went wrong, in front of what cargo and rustc say of it.
pub(crate) fn say(cause: &str, errors: &str) {
    // Nobody need listen.
    let _ = io::stderr().write_all(format!("error: {cause}\n\n{errors}").as_bytes());
}

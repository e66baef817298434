//! Programs that are asked something short, and may not be there, fail, or never answer.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The most that is read of an answer.
const MAX_BYTES: u64 = 1 << 20;

/// Between two looks at whether a program has ended.
const INTERVAL: Duration = Duration::from_millis(5);

/// Why a program gave no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no such program.
    NotFound,
    /// It cannot be started, in the system's words.
    NotStarted(String),
    /// It ended with an error, or by a signal.
    Failed(String),
    /// It did not end in time, and was ended.
    Hung(Duration),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => write!(f, "not found"),
            Self::NotStarted(reason) => write!(f, "cannot be started: {reason}"),
            Self::Failed(status) => write!(f, "fails ({status})"),
            Self::Hung(limit) => write!(f, "gives no answer in {} s", limit.as_secs()),
        }
    }
}

/// What a program writes to stdout, within a time; it reads nothing.
///
/// # Errors
///
/// [`Failure`].
///
/// ```
/// use std::time::Duration;
/// use host_system::program::{Failure, ask};
///
/// let nobody = ask("no-such-program".as_ref(), &["--version"], Duration::from_secs(5));
/// assert_eq!(nobody, Err(Failure::NotFound));
/// ```
pub fn ask(program: &Path, arguments: &[&str], limit: Duration) -> Result<String, Failure> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::NotFound,
        _ => Failure::NotStarted(error.to_string()),
    })?;
    // Read by another thread, which nobody waits for: a program that hangs, or one that it started,
    // may keep the pipe open for ever.
    let (answer, answered) = mpsc::channel();
    let stdout = child.stdout.take();
    let reader = thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stdout) = stdout {
            // What is cut short is an answer, too.
            let _ = stdout.take(MAX_BYTES).read_to_end(&mut bytes);
        }
        let _ = answer.send(bytes);
    });
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if reader.is_ok() && Instant::now() < end => thread::sleep(INTERVAL),
            Ok(None) => {
                kill(&mut child);
                break Err(match reader {
                    Ok(_) => Failure::Hung(limit),
                    Err(error) => Failure::NotStarted(error.to_string()),
                });
            }
            Err(error) => break Err(Failure::Failed(error.to_string())),
        }
    }?;
    let left = end.saturating_duration_since(Instant::now()).max(INTERVAL);
    match answered.recv_timeout(left) {
        _ if !status.success() => Err(Failure::Failed(status.to_string())),
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(_) => Err(Failure::Hung(limit)),
    }
}

/// How long a program that was killed may take to be gone. One that hangs in a driver may never be.
const GRACE: Duration = Duration::from_millis(500);

/// Ends a program, and on Unix what it has started; it may have ended meanwhile.
fn kill(child: &mut Child) {
    #[cfg(unix)]
    if let Ok(group) = i32::try_from(child.id()) {
        // SAFETY: a signal to the process group that the child was made the leader of; it is not
        // waited for yet, so that no other has its number.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = child.kill();
    let last = Instant::now() + GRACE;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < last {
        thread::sleep(INTERVAL);
    }
}

/// The first version in a text, as in `13.0`.
///
/// ```
/// use host_system::program::version;
///
/// assert_eq!(version("rustc 1.95.0 (59807616e 2026-04-14)"), Some("1.95.0"));
/// assert_eq!(version("Cuda compilation tools, release 13.0, V13.0.88"), Some("13.0"));
/// assert_eq!(version("Copyright (c) 2005-2025 NVIDIA Corporation"), None);
/// ```
pub fn version(text: &str) -> Option<&str> {
    let trimmed = text.split_whitespace().map(|word| word.trim_matches(['V', 'v', '(', ')', ',']));
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    trimmed.into_iter().find(is_version)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str, seconds: u64) -> Result<String, Failure> {
        ask("/bin/sh".as_ref(), &["-c", script], Duration::from_secs(seconds))
    }

    #[test]
    fn answers_and_their_absence() {
        assert_eq!(shell("echo 1.2.3", 10).as_deref(), Ok("1.2.3\n"));
        let Err(Failure::Failed(status)) = shell("echo 1.2.3; exit 3", 10) else { panic!() };
        assert!(status.contains('3'), "{status}");
        let Err(Failure::Failed(status)) = shell("kill -SEGV $$", 10) else { panic!() };
        assert!(status.contains("signal"), "{status}");
        // Far more than a pipe holds, and no end.
        assert_eq!(shell("yes | head -c 300000", 10).map(|text| text.len()), Ok(300_000));
        let clock = Instant::now();
        assert_eq!(shell("sleep 30", 1), Err(Failure::Hung(Duration::from_secs(1))));
        // What it has started is ended, too.
        let pid = std::env::temp_dir().join(format!("ask-{}", std::process::id()));
        let script = format!("sleep 30 & echo $! > {0}; wait", pid.display());
        assert!(matches!(shell(&script, 1), Err(Failure::Hung(_))));
        let started: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        std::fs::remove_file(&pid).unwrap();
        thread::sleep(Duration::from_millis(100));
        let state = std::fs::read_to_string(format!("/proc/{started}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
        // The program ends at once, and one that it started keeps the pipe.
        assert_eq!(shell("sleep 30 & exit 0", 1), Err(Failure::Hung(Duration::from_secs(1))));
        assert!(clock.elapsed() < Duration::from_secs(15));
    }
}

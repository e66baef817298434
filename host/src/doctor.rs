//! What a machine has, what works, and what to do about the rest.
//!
//! [`devices`] loads NVIDIA's driver into this process, even if only the software device is used.
//! The driver may crash or hang, so `rungs doctor` asks it in a process of its own.

mod driver;
mod finding;
mod system;
mod tools;
mod work;

use serde::Serialize;

pub use driver::devices;
pub use finding::{Finding, State};

/// What was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// What the machine has.
    pub machine: Vec<Finding>,
    /// What works because of it.
    pub abilities: Vec<Finding>,
}

/// What a finding can be about: the machine's, and from `soft` on what works.
pub const NAMES: [&str; 22] = [
    "memory",
    "cores",
    "driver",
    "gpu",
    "cublas",
    "nccl",
    "links",
    "rustc",
    "rust-src",
    "ptxas",
    "cuobjdump",
    "compute-sanitizer",
    "ncu",
    "soft",
    "gpu-run",
    "sm-90a",
    "bench",
    "next-to-cublas",
    "build-ptx",
    "spills",
    "sass",
    "sanitize",
];

impl Examination {
    /// Looks at everything except the devices, whose findings [`devices`] made.
    ///
    /// ```no_run
    /// use host::doctor::{self, Examination};
    ///
    /// let examination = Examination::new(doctor::devices());
    /// for finding in examination.missing(&["gpu", "cublas"]) {
    ///     println!("{}: {}", finding.name, finding.value);
    /// }
    /// ```
    pub fn new(devices: Vec<Finding>) -> Self {
        let mut machine = system::findings();
        machine.extend(devices);
        machine.extend(tools::findings());
        let mut abilities = work::findings(&machine);
        // Runs on a device belong to the abilities.
        abilities.extend(
            machine.extract_if(.., |finding| driver::RUNS.contains(&finding.name.as_str())),
        );
        abilities.sort_by_key(|finding| NAMES.iter().position(|name| *name == finding.name));
        Self { machine, abilities }
    }

    /// Of these names, what does not work. Of several GPUs one is enough.
    pub fn missing<'a>(&'a self, names: &[&str]) -> Vec<&'a Finding> {
        let all = || self.machine.iter().chain(&self.abilities);
        let works =
            |name: &str| all().any(|finding| finding.name == name && finding.state == State::Ok);
        let wanted = |finding: &&Finding| names.contains(&finding.name.as_str());
        all().filter(wanted).filter(|finding| !works(&finding.name)).collect()
    }
}

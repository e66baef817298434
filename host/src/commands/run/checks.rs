//! The checks and schedules of the software device.

use cuda_driver::soft::{self, AlreadyInUse, Settings};
use cuda_driver::soft_cuda::{Checks, Schedule};
use host::{Device, DeviceChoice};

use crate::error::Error;
use crate::io::stdio;

/// At how many places of a kernel something may be wrong before its launch ends.
const MAX_FINDINGS: usize = 100;

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Checks of the software device: none, all, or a list of races, memory, sync and proxies
    /// [default: $SOFT_CUDA_CHECK, or none].
    ///
    /// races: unordered accesses of one address; memory: reads of unwritten memory and registers;
    /// sync: misuse of barriers and member masks; proxies, with races: bulk copies over data that
    /// threads read, without a fence in between. Findings go to stderr and into the JSON. A right
    /// result then says FINDINGS instead of PASS, and the exit status is 1.
    #[arg(long, value_name = "CHECKS")]
    check: Option<Checks>,

    /// The order of warps and blocks on the software device: in-order, random:SEED or adversarial
    /// [default: $SOFT_CUDA_SCHEDULE, or in-order].
    #[arg(long, value_name = "ORDER")]
    schedule: Option<Schedule>,

    /// Warp instructions after which the software device ends a launch
    /// [default: $SOFT_CUDA_INSTRUCTION_BUDGET, or none].
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = budget)]
    instruction_budget: Option<u64>,
}

/// A number of warp instructions.
fn budget(text: &str) -> Result<u64, String> {
    let budget = text.parse().ok().filter(|&budget| budget > 0);
    budget
        .ok_or_else(|| format!("a budget is a number of warp instructions from 1 to {}", u64::MAX))
}

impl CheckArgs {
    /// Makes the software device so, before it is opened.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if `choice` is a GPU.
    pub fn configure(&self, choice: DeviceChoice) -> Result<(), Error> {
        let Some(option) = self.given() else { return Ok(()) };
        let is_gpu = match choice {
            DeviceChoice::Gpu => true,
            DeviceChoice::Auto => cuda_driver::gpu_count().is_ok(),
            _ => false,
        };
        if is_gpu {
            let message = format!("{option} is for the software device: add --device soft");
            return Err(Error::usage(message));
        }
        let done = soft::configure_with(Settings {
            checks: self.check,
            schedule: self.schedule,
            instruction_budget: self.instruction_budget,
            max_findings: self.check.map(|_| MAX_FINDINGS),
        });
        done.map_err(|error: AlreadyInUse| Error::usage(format!("{option}: {error}")))
    }

    /// An option that was given.
    fn given(&self) -> Option<&'static str> {
        let options = [
            ("--check", self.check.is_some()),
            ("--schedule", self.schedule.is_some()),
            ("--instruction-budget", self.instruction_budget.is_some()),
        ];
        options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }
}

/// Says that the checks found nothing, if there were any.
pub fn conclude(device: &Device) {
    let config = soft::device().config();
    if device.is_soft() && config.checks != Checks::NONE {
        let (checks, schedule) = (config.checks, config.schedule);
        stdio::say(format_args!("note: checks ({checks}), order {schedule}: nothing was found"));
    }
}

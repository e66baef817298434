//! The GPU's state: clocks, power, temperature, and the reasons for low clocks.
//!
//! The values come from NVIDIA's management library, if it is installed.

use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

use cuda_gemm::Device;
use gemm_report::row::Bench;

/// The shortest time between two readings.
///
/// A reading lasts up to some milliseconds, and power is averaged over a longer time anyway.
const INTERVAL: Duration = Duration::from_millis(20);

/// The reasons for lower clocks, in words; idleness is not one.
const REASONS: [(ThrottleReasons, &str); 8] = [
    (ThrottleReasons::SW_POWER_CAP, "power cap"),
    (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "too hot (software)"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "too hot (hardware)"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
    (ThrottleReasons::SYNC_BOOST, "sync boost"),
    (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "application clocks"),
    (ThrottleReasons::DISPLAY_CLOCK_SETTING, "display clocks"),
];

/// One reading; `None` for values that the GPU does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Reading {
    sm_mhz: Option<u32>,
    memory_mhz: Option<u32>,
    watts: Option<f64>,
    celsius: Option<u32>,
    reasons: Option<ThrottleReasons>,
}

/// Reads a GPU's state from time to time.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice};
/// use gemm_bench::telemetry::Telemetry;
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Auto)?;
/// match Telemetry::open(&device) {
///     Ok(mut telemetry) => {
///         // Here something runs.
///         telemetry.observe();
///         let found = telemetry.take();
///         println!("{:?} MHz or more, {:?} W", found.sm_mhz_min, found.watts);
///     }
///     Err(reason) => println!("clocks are not recorded, because {reason}"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Telemetry {
    nvml: Nvml,
    pci_bus_id: String,
    last: Option<Instant>,
    readings: Vec<Reading>,
}

impl Telemetry {
    /// Loads the management library, and finds the GPU there.
    ///
    /// # Errors
    ///
    /// The reason why nothing can be read, in words.
    pub fn open(device: &Device) -> Result<Self, String> {
        let pci_bus_id = device.info().pci_bus_id.clone();
        let pci_bus_id = pci_bus_id.ok_or("the software device has no clocks")?;
        let explain = |error: NvmlError| format!("NVIDIA's management library: {error}");
        let nvml = Nvml::init().map_err(explain)?;
        nvml.device_by_pci_bus_id(pci_bus_id.as_str()).map_err(explain)?;
        Ok(Self { nvml, pci_bus_id, last: None, readings: Vec::new() })
    }

    /// Takes a reading, unless the last one is too recent.
    pub fn observe(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return;
        }
        self.last = Some(Instant::now());
        // The bus address of a GPU does not change.
        let Ok(gpu) = self.nvml.device_by_pci_bus_id(self.pci_bus_id.as_str()) else { return };
        self.readings.push(Reading {
            sm_mhz: gpu.clock_info(Clock::SM).ok(),
            memory_mhz: gpu.clock_info(Clock::Memory).ok(),
            watts: gpu.power_usage().ok().map(|milliwatts| f64::from(milliwatts) * 1e-3),
            celsius: gpu.temperature(TemperatureSensor::Gpu).ok(),
            reasons: gpu.current_throttle_reasons().ok(),
        });
    }

    /// The GPU's state since the last call, as part of a row.
    pub fn take(&mut self) -> Bench {
        self.last = None;
        summarise(&std::mem::take(&mut self.readings))
    }
}

fn summarise(readings: &[Reading]) -> Bench {
    let all = |value: fn(&Reading) -> Option<u32>| readings.iter().filter_map(value);
    let reasons = readings.iter().filter_map(|reading| reading.reasons).reduce(|a, b| a | b);
    Bench {
        sm_mhz_min: all(|reading| reading.sm_mhz).min(),
        sm_mhz_max: all(|reading| reading.sm_mhz).max(),
        memory_mhz: all(|reading| reading.memory_mhz).min(),
        watts: readings.iter().filter_map(|reading| reading.watts).reduce(f64::max),
        celsius: all(|reading| reading.celsius).max(),
        throttled: reasons.map(|reasons| {
            let held = REASONS.iter().filter(|(reason, _)| reasons.contains(*reason));
            held.map(|(_, words)| *words).collect::<Vec<_>>().join("; ")
        }),
        ..Bench::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::DeviceChoice;

    #[test]
    fn readings_are_summed_up() {
        assert_eq!(summarise(&[]), Bench::default());
        let cool = Reading {
            sm_mhz: Some(1980),
            memory_mhz: Some(3201),
            watts: Some(400.0),
            celsius: Some(40),
            reasons: Some(ThrottleReasons::GPU_IDLE),
        };
        let quiet = summarise(&[cool]);
        assert_eq!(quiet.throttled, Some(String::new()), "to be idle is no reason");
        let hot = Reading {
            sm_mhz: Some(1755),
            watts: Some(698.5),
            celsius: Some(71),
            reasons: Some(ThrottleReasons::SW_POWER_CAP | ThrottleReasons::HW_THERMAL_SLOWDOWN),
            ..Reading::default()
        };
        assert_eq!(
            summarise(&[cool, hot]),
            Bench {
                sm_mhz_min: Some(1755),
                sm_mhz_max: Some(1980),
                memory_mhz: Some(3201),
                watts: Some(698.5),
                celsius: Some(71),
                throttled: Some("power cap; too hot (hardware)".to_owned()),
                ..Bench::default()
            }
        );
    }

    #[test]
    fn the_software_device_has_none() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        assert!(Telemetry::open(&device).is_err_and(|reason| reason.contains("no clocks")));
    }
}

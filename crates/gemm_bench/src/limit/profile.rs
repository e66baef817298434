//! What each kernel does for an FMA, as Nsight Compute counted it on an H200: a warp's instructions,
//! and the cycles of the shared memory and L1 cache that its accesses take.
//!
//! Both belong to the machine code: the assembler merges loads, so they cannot be read off the PTX,
//! and where an access has bank conflicts, or touches many lines, it takes several cycles. They are
//! of the loop over K, and so the same for every large product. A test compares them with the run
//! they are from, `runs/2026-11-22-h200-limits`, whose README says how to count again after a kernel
//! has changed.

use cuda_gemm::kernels::{KernelDescriptor, Shared};

/// Threads whose instruction a multiprocessor issues per cycle: four schedulers, a warp each.
const ISSUED: f64 = 128.0;

/// Threads that the shared memory and the L1 cache serve per cycle: one warp, with 128 bytes.
const SERVED: f64 = 32.0;

/// What a kernel does for an FMA of each thread of a warp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Instructions that are issued, the FMA included.
    pub instructions: f64,
    /// Cycles of the shared memory and L1 cache (wavefronts of 128 bytes at most).
    pub l1_cycles: f64,
    /// Whether any of them are of shared memory.
    pub uses_shared: bool,
}

/// Instructions and cycles for 32 FMAs of a warp.
const COUNTED: &[(&str, f64, f64)] = &[
    ("naive", 5.362, 17.005),
    ("coalesced", 5.269, 2.001),
    ("smem_full", 3.949, 2.132),
    ("smem_tile", 3.044, 1.639),
    ("rows2", 2.464, 1.132),
    ("tile1d", 1.756, 0.742),
    ("tile2d", 1.421, 0.246),
    ("vec4", 2.721, 0.75),
    ("regtile", 1.596, 0.375),
    ("smem2d", 1.141, 0.228),
    ("transposed", 1.135, 0.251),
    ("frag_prefetch", 1.135, 0.251),
    ("prefetch", 1.126, 0.251),
    ("warptile", 1.092, 0.189),
    ("async_copy", 1.133, 0.222),
    ("tma", 1.076, 0.17),
    ("warp_specialized", 1.078, 0.172),
    ("persistent", 1.077, 0.167),
    ("tile_64x128", 1.127, 0.218),
    ("tile_64x64", 1.134, 0.24),
    ("tile_32x128", 1.172, 0.228),
    ("tile_64x32", 1.207, 0.282),
    ("tile_32x64", 1.186, 0.251),
    ("tile_32x32", 1.3, 0.362),
    ("tile_128x16", 1.239, 0.305),
    ("tile_16x128", 1.189, 0.235),
    ("tile_8x128", 1.31, 0.315),
    ("tile_4x128", 1.525, 0.448),
    ("skinny_m_8x128", 1.822, 0.331),
    ("skinny_m_4x128", 2.233, 0.488),
    ("skinny_m_2x32", 3.503, 0.951),
    ("skinny_n_32x8", 2.006, 0.604),
    ("skinny_n_32x4", 2.41, 0.945),
    ("skinny_n_32x2", 3.279, 1.577),
    ("skinny_n_32x1", 5.195, 2.97),
];

impl Profile {
    /// That of a kernel; `None` for one that was not counted.
    ///
    /// ```
    /// use cuda_gemm::find_kernel;
    /// use gemm_bench::limit::profile::Profile;
    ///
    /// # fn main() -> Result<(), cuda_gemm::Error> {
    /// // Two 128-bit lines for each FMA of a warp, and no shared memory.
    /// let coalesced = Profile::of(find_kernel("coalesced")?).expect("counted");
    /// assert_eq!((coalesced.l1_cycles.round(), coalesced.uses_shared), (2.0, false));
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(descriptor: &KernelDescriptor) -> Option<Self> {
        let (_, instructions, l1_cycles) =
            *COUNTED.iter().find(|(name, ..)| *name == descriptor.name())?;
        let uses_shared = !matches!(descriptor.shared(), Shared::Static(0));
        Some(Self { instructions, l1_cycles, uses_shared })
    }

    /// The most of the peak of FMAs that the kernel can reach, in percent, where a multiprocessor has
    /// so many FP32 lanes: when the issue slots or the shared memory and L1 cache are full.
    pub fn bound(&self, lanes: u32) -> f64 {
        let fullest = self.percent_of_issue(100.0, lanes).max(self.percent_of_l1(100.0, lanes));
        100.0 * 100.0 / fullest.max(100.0)
    }

    /// Issue slots, in percent, of a kernel whose FMAs are so many percent of the peak, where a
    /// multiprocessor has so many FP32 lanes.
    pub fn percent_of_issue(&self, percent_of_ffma: f64, lanes: u32) -> f64 {
        percent_of_ffma * self.instructions * f64::from(lanes) / ISSUED
    }

    /// Likewise cycles of the shared memory and L1 cache.
    pub fn percent_of_l1(&self, percent_of_ffma: f64, lanes: u32) -> f64 {
        percent_of_ffma * self.l1_cycles * f64::from(lanes) / SERVED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::find_kernel;
    use serde_json::Value;
    use std::collections::HashMap;
    use std::fs;
    use std::path::Path;

    fn recorded(name: &str) -> String {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/2026-11-22-h200-limits");
        fs::read_to_string(runs.join(name)).unwrap()
    }

    /// What Nsight Compute says of each kernel, by the names of its metrics.
    fn counted(name: &str) -> HashMap<String, HashMap<String, f64>> {
        let text = recorded(name);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let mut kernels: HashMap<String, HashMap<String, f64>> = HashMap::new();
        for row in reader.deserialize::<HashMap<String, String>>() {
            let row = row.unwrap();
            // Some rows say nothing but the launch.
            let Ok(value) = row["Metric Value"].replace(',', "").parse() else { continue };
            let metrics = kernels.entry(row["Kernel Name"].clone()).or_default();
            metrics.insert(row["Metric Name"].clone(), value);
        }
        kernels
    }

    #[test]
    fn counts_are_those_of_the_run() {
        let mut compared = 0;
        for size in [4096u64, 2048, 512] {
            let fmas = size.pow(3) as f64 / 32.0;
            for (name, metrics) in counted(&format!("ncu-{size}.csv")) {
                let Some(profile) = find_kernel(&name).ok().and_then(Profile::of) else { continue };
                for (count, metric) in [
                    (profile.instructions, "smsp__inst_executed.sum"),
                    (profile.l1_cycles, "l1tex__data_pipe_lsu_wavefronts.sum"),
                ] {
                    let error = (count - metrics[metric] / fmas).abs();
                    assert!(error < 6e-4, "{name}: {metric}: {count}");
                }
                compared += 1;
            }
        }
        assert_eq!(compared, COUNTED.len());
    }

    /// Shares that follow from a time, next to what the hardware counted in another run.
    #[test]
    fn shares_are_what_the_profiler_sees() {
        let profiled = counted("ncu-4096.csv");
        let mut compared = 0;
        for line in recorded("ladder-4096.jsonl").lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let Some(ffma) = line["percent_of_ffma"].as_f64() else { continue };
            let name = line["kernel"].as_str().unwrap();
            let Some(profile) = find_kernel(name).ok().and_then(Profile::of) else { continue };
            assert!(ffma < profile.bound(128) * 1.03, "{name}: {ffma}");
            let metrics = &profiled[name];
            for (share, metric) in [
                (profile.percent_of_issue(ffma, 128), "smsp__issue_active"),
                (profile.percent_of_l1(ffma, 128), "l1tex__data_pipe_lsu_wavefronts"),
            ] {
                let seen = metrics[&format!("{metric}.avg.pct_of_peak_sustained_elapsed")];
                // The peak of FMAs is measured, and 2 % below what the clock gives.
                assert!((share / seen - 1.0).abs() < 0.06, "{name}: {share} {seen}");
            }
            compared += 1;
        }
        assert_eq!(compared, 17);
    }
}

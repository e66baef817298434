//! What NVIDIA's driver and libraries say, and what runs on devices.

use cuda_driver::GpuUnavailable;
use cuda_driver::sys::{self, CUdevice, CUresult};
use cuda_gemm::kernels::ladder::tensor::sm_90a::wgmma_persistent;
use cuda_gemm::{Device, DeviceChoice, Environment, Error as GemmError};
use gemm_bench::{Cublas, Error};
use host_system::format::bytes;

use super::finding::Finding;
use super::work;

/// The names of the findings about what ran on devices.
pub const RUNS: [&str; 3] = ["soft", GPU_RUN, SM_90A];
const GPU_RUN: &str = "gpu-run";
const SM_90A: &str = "sm-90a";

/// The driver, the GPUs, the libraries that run on them, and whether a product is right there, and
/// on the software device.
///
/// ```
/// let findings = host::doctor::devices();
/// assert_eq!((findings[0].name.as_str(), findings[1].name.as_str()), ("soft", "driver"));
/// assert_eq!(findings.iter().filter(|finding| finding.name == "cublas").count(), 1);
/// ```
pub fn devices() -> Vec<Finding> {
    let mut findings = vec![work::soft()];
    let count = match cuda_driver::gpu_count() {
        Ok(count) => count,
        Err(reason) => {
            findings.push(match &reason {
                GpuUnavailable::LibraryNotFound { library, reason } => {
                    let value = format!("none: {library} could not be loaded ({reason})");
                    Finding::missing("driver", value, "install NVIDIA's driver to run on a GPU")
                }
                other => {
                    let remedy = "check that `nvidia-smi` shows a GPU";
                    Finding::broken("driver", other.to_string(), remedy)
                }
            });
            findings.push(Finding::needs("gpu", "the driver"));
            0
        }
    };
    let mut first = None;
    for ordinal in 0..count {
        let opened = Device::open(DeviceChoice::GpuOrdinal(ordinal));
        if ordinal == 0 {
            findings.push(driver(opened.as_ref().ok()));
        }
        findings.push(match &opened {
            Ok(device) => {
                let info = device.info();
                let (major, minor) = info.capability;
                let memory = bytes(info.total_memory.into());
                let value = format!("{}, compute capability {major}.{minor}, {memory}", info.name);
                Finding::ok("gpu", value)
            }
            Err(error) => {
                Finding::broken("gpu", error.to_string(), "`--device soft` runs without one")
            }
        });
        if ordinal == 0 {
            first = opened.ok();
        }
    }
    findings.push(match first.as_ref().map(Cublas::open) {
        None => Finding::needs("cublas", "gpu"),
        Some(Ok(cublas)) => Finding::ok("cublas", cublas.version()),
        Some(Err(Error::CublasNotFound { .. })) => {
            let remedy = "install CUDA's libraries, or add their folder to LD_LIBRARY_PATH";
            Finding::missing("cublas", "not found", remedy)
        }
        Some(Err(error)) => {
            Finding::broken("cublas", error.to_string(), "reinstall CUDA's libraries")
        }
    });
    findings.push(nccl());
    findings.push(links(count));
    let run = "rungs --kernel tile2d --size 4096 --device gpu";
    findings.push(match first.as_ref().map(work::check) {
        None => Finding::needs(GPU_RUN, "gpu"),
        Some(Ok(())) => Finding::ok(GPU_RUN, run),
        Some(Err(reason)) => Finding::broken(GPU_RUN, reason, "update NVIDIA's driver"),
    });
    findings.push(sm_90a(first.as_ref()));
    findings
}

/// Whether a GPU runs the kernels whose PTX is for compute capability 9.0 alone.
fn sm_90a(device: Option<&Device>) -> Finding {
    let Some(device) = device else { return Finding::needs(SM_90A, "gpu") };
    let elsewhere = "`--device soft-sm90` runs the kernels for Hopper, too";
    match device.kernel(&wgmma_persistent::DESCRIPTOR) {
        Ok(_) => Finding::ok(SM_90A, "rungs --kernel auto --compute bf16 --size 4096 --device gpu"),
        Err(error @ GemmError::NeedsTensorMaps { .. }) => {
            Finding::broken(SM_90A, error.to_string(), "update NVIDIA's driver to CUDA 12")
        }
        Err(GemmError::NeedsHopper { capability: (major, minor), .. }) => {
            let value = format!("needs compute capability 9.0, and the GPU has {major}.{minor}");
            Finding::missing(SM_90A, value, elsewhere)
        }
        Err(error) => Finding::broken(SM_90A, error.to_string(), elsewhere),
    }
}

fn driver(device: Option<&Device>) -> Finding {
    match device.map(Environment::of) {
        Some(Ok(Environment { driver_version, cuda_version, .. })) => {
            let driver = driver_version.unwrap_or_else(|| "of an unknown version".to_owned());
            let cuda = cuda_version.map(|version| format!(", CUDA {version}")).unwrap_or_default();
            Finding::ok("driver", driver + &cuda)
        }
        _ => Finding::ok("driver", "loaded"),
    }
}

/// NCCL, with which several GPUs talk to each other.
fn nccl() -> Finding {
    match cuda_distributed::nccl_version() {
        Ok(version) => Finding::ok("nccl", version),
        Err(error) => {
            let remedy = "one process needs none for several GPUs; several processes need NVIDIA's \
                          NCCL (libnccl2), 2.22 or newer";
            let value = match error {
                cuda_distributed::Error::NoNccl { reason } => reason,
                error => error.to_string(),
            };
            Finding::missing("nccl", value, remedy)
        }
    }
}

/// Whether GPUs access each other's memory directly.
fn links(count: u32) -> Finding {
    if count < 2 {
        return Finding::needs("links", "two GPUs");
    }
    let pairs = (0..count).flat_map(|device| (0..count).map(move |peer| [device, peer]));
    let reaches = |[device, peer]: &[u32; 2]| {
        let mut can = 0;
        let [device, peer] = [*device, *peer].map(|ordinal| CUdevice(ordinal.cast_signed()));
        // SAFETY: `can` is valid for the write.
        let code = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, device, peer) };
        code == CUresult::CUDA_SUCCESS && can != 0
    };
    match pairs.filter(|[device, peer]| device != peer).find(|pair| !reaches(pair)) {
        None => Finding::ok("links", format!("each of {count} GPUs reaches each directly")),
        Some([device, peer]) => {
            let value = format!("GPU {device} reaches GPU {peer} through the host's memory");
            Finding::missing("links", value, "NVLink or PCI peer access make `--gpus` faster")
        }
    }
}

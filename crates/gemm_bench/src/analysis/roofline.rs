//! Measures the two peaks of a GEMM, FMAs and copied bytes, at the GPU's current clocks.

use std::ffi::c_void;

use kernels_gpu::utility::roofline::{
    COPY_PER_BLOCK, COPY_THREADS, FFMA_BLOCKS, FFMA_PER_ROUND, FFMA_THREADS,
};

use crate::error::Error;
use crate::stats;
use cuda_gemm::{Device, DeviceMatrix, EntryPoint, Timer};

/// Milliseconds per sample of the FMA loop.
const SAMPLE_MS: f64 = 3.0;
/// Samples of each kernel per measurement.
const SAMPLES: usize = 3;
/// Milliseconds of a trial that measures a GPU's speed, after its clocks have risen.
const TRIAL_MS: f64 = 20.0;
/// Copies per sample, so that the overhead of launches is negligible.
const COPIES: u32 = 8;
/// Consecutive launches of one block that measure the overhead of a launch, and the milliseconds
/// that the host may need to enqueue them.
const LAUNCHES: u32 = 200;
const LAUNCHES_MS: f64 = 5.0;
/// The multiple of the L2 cache that a copy must exceed to measure memory.
const COPY_TURNOVER: f64 = 4.0;
/// The most multiprocessors for which the loop is launched: it counts threads in 32 bits.
const MAX_MULTIPROCESSORS: u32 = 1 << 16;
/// Bytes that the copy reads, at most an eighth of the free memory.
const COPY_BYTES: u64 = 512 << 20;
/// Operands with which sums neither overflow nor stagnate.
const OPERANDS: (f32, f32) = (0.999, 0.37);

/// The measured peaks.
///
/// ```
/// use gemm_bench::roofline::Rates;
///
/// let before = Rates { ffma: 60_000.0, copy: 4000.0 };
/// let after = Rates { ffma: 58_000.0, copy: 4000.0 };
/// assert_eq!(before.mean(&after), Rates { ffma: 59_000.0, copy: 4000.0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// The rate of FMAs in GFLOP/s, two FLOP each.
    pub ffma: f64,
    /// Bytes read plus bytes written, in GB/s (10^9).
    ///
    /// NaN if memory was too short for a copy that is far larger than the L2 cache.
    pub copy: f64,
}

impl Rates {
    /// The mean of two measurements, before and after some work.
    #[must_use]
    pub fn mean(&self, other: &Self) -> Self {
        Self {
            ffma: f64::midpoint(self.ffma, other.ffma),
            copy: f64::midpoint(self.copy, other.copy),
        }
    }
}

/// The loaded kernels that measure peaks, and their memory.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice};
/// use gemm_bench::roofline::Peaks;
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let peaks = Peaks::of(&Device::open(DeviceChoice::Soft)?)?;
/// let rates = peaks.measure(peaks.speed()?)?;
/// println!("FMAs: {:.0} GFLOP/s, copies: {:.0} GB/s", rates.ffma, rates.copy);
/// # Ok(())
/// # }
/// ```
pub struct Peaks {
    device: Device,
    timer: Timer,
    ffma: EntryPoint,
    copy: EntryPoint,
    /// Blocks of the loop, and of the copy.
    ffma_blocks: u32,
    copy_blocks: u32,
    out: DeviceMatrix<f32>,
    from: DeviceMatrix<f32>,
    to: DeviceMatrix<f32>,
}

impl Peaks {
    /// Loads the kernels, for all multiprocessors and a copy of 512 MiB.
    ///
    /// The copy has at most an eighth of the free memory. On the software device both are as small
    /// as possible: its rates say nothing.
    ///
    /// # Errors
    ///
    /// See [`Peaks::new`].
    pub fn of(device: &Device) -> Result<Self, Error> {
        Self::beside(device, 0)
    }

    /// Loads the kernels, and leaves `bytes` of the free memory: see [`Peaks::of`].
    ///
    /// # Errors
    ///
    /// See [`Peaks::new`].
    pub fn beside(device: &Device, bytes: u64) -> Result<Self, Error> {
        let copy_bytes = match device.is_soft() {
            true => 0,
            false => COPY_BYTES.min(device.free_memory()?.saturating_sub(bytes) / 8),
        };
        Self::new(device, multiprocessors(device), copy_bytes)
    }

    /// Loads the kernels, for a loop on `multiprocessors`, at most 65536, and a copy of
    /// `copy_bytes`.
    ///
    /// `copy_bytes` are rounded down to whole blocks, at least one, and should be well above the L2
    /// cache.
    ///
    /// # Errors
    ///
    /// The errors of [`Device::kernel`], and [`cuda_gemm::Error::Driver`] if memory is short.
    pub fn new(device: &Device, multiprocessors: u32, copy_bytes: u64) -> Result<Self, Error> {
        let ffma_blocks = multiprocessors.clamp(1, MAX_MULTIPROCESSORS) * FFMA_BLOCKS;
        let blocks = copy_bytes / (4 * u64::from(COPY_PER_BLOCK));
        let copy_blocks = blocks.clamp(1, i32::MAX as u64) as u32;
        let buffer = |blocks: u32, per_block: u32| {
            DeviceMatrix::zeros(device, [blocks as usize, per_block as usize])
        };
        Ok(Self {
            device: device.clone(),
            timer: Timer::new(device)?,
            ffma: device.entry_point("peak_ffma")?,
            copy: device.entry_point("peak_copy")?,
            ffma_blocks,
            copy_blocks,
            out: buffer(ffma_blocks, FFMA_THREADS)?,
            from: buffer(copy_blocks, COPY_PER_BLOCK)?,
            to: buffer(copy_blocks, COPY_PER_BLOCK)?,
        })
    }

    /// Measures both peaks, as medians of a few interleaved samples.
    ///
    /// # Errors
    ///
    /// [`cuda_gemm::Error::Driver`].
    pub fn measure(&self, speed: Speed) -> Result<Rates, Error> {
        let rounds = speed.rounds(SAMPLE_MS);
        let [mut ffma, mut copy] = [[0.0; SAMPLES]; 2];
        for i in 0..SAMPLES {
            ffma[i] = self.time_ffma(rounds)?;
            copy[i] = self.timer.milliseconds(|| {
                (0..COPIES).try_for_each(|_| self.enqueue_copy(self.copy_blocks))
            })?;
        }
        let copy_rate = f64::from(COPIES) * self.copy_bytes() / stats::median(&copy) * 1e-6;
        // The software device has no cache.
        let cache = if self.device.is_soft() { 0 } else { self.device.info().l2_bytes };
        let is_of_memory = self.copy_bytes() >= COPY_TURNOVER * cache as f64;
        Ok(Rates {
            ffma: self.ffma_flops(rounds) / stats::median(&ffma) * 1e-6,
            copy: if is_of_memory { copy_rate } else { f64::NAN },
        })
    }

    /// Measures the GPU's approximate speed; needed once.
    ///
    /// # Errors
    ///
    /// [`cuda_gemm::Error::Driver`].
    pub fn speed(&self) -> Result<Speed, Error> {
        // The first launch is slow.
        self.time_ffma(1)?;
        let mut rounds = 1;
        loop {
            let ms = self.time_ffma(rounds)?;
            if ms >= TRIAL_MS || rounds > u32::MAX / 8 {
                let mut speed = Speed { rounds_per_ms: f64::from(rounds) / ms, launch_ms: 0.0 };
                speed.launch_ms = self.launch_ms(speed)?;
                return Ok(speed);
            }
            rounds *= 8;
        }
    }

    /// The milliseconds of an empty launch: one block of the copy, repeated without gaps.
    fn launch_ms(&self, speed: Speed) -> Result<f64, Error> {
        let count = if self.device.is_soft() { 1 } else { LAUNCHES };
        self.enqueue_delay(LAUNCHES_MS, speed)?;
        let all = self.timer.milliseconds(|| (0..count).try_for_each(|_| self.enqueue_copy(1)))?;
        Ok(all / f64::from(count))
    }

    /// Keeps the GPU busy for about `ms` milliseconds, with almost no memory accesses.
    ///
    /// # Errors
    ///
    /// [`cuda_gemm::Error::Driver`].
    pub fn enqueue_delay(&self, ms: f64, speed: Speed) -> Result<(), Error> {
        self.enqueue_ffma(speed.rounds(ms), OPERANDS)
    }

    fn time_ffma(&self, rounds: u32) -> Result<f64, Error> {
        self.timer.milliseconds(|| self.enqueue_ffma(rounds, OPERANDS))
    }

    /// The FLOP of one launch of the loop.
    fn ffma_flops(&self, rounds: u32) -> f64 {
        let threads = f64::from(self.ffma_blocks) * f64::from(FFMA_THREADS);
        2.0 * threads * f64::from(rounds) * f64::from(FFMA_PER_ROUND)
    }

    /// Bytes that one copy reads and writes.
    fn copy_bytes(&self) -> f64 {
        2.0 * 4.0 * f64::from(self.copy_blocks) * f64::from(COPY_PER_BLOCK)
    }

    fn enqueue_ffma(&self, rounds: u32, (x, y): (f32, f32)) -> Result<(), Error> {
        let out = self.out.address();
        let mut arguments = (rounds, x, y, out);
        let pointers: [*mut c_void; 4] = [
            (&raw mut arguments.0).cast(),
            (&raw mut arguments.1).cast(),
            (&raw mut arguments.2).cast(),
            (&raw mut arguments.3).cast(),
        ];
        let stream = self.device.stream();
        // SAFETY: these are the parameters of the loop, which the driver copies during the call.
        // `out` has an element per thread. Only this stream, on which launches follow each other,
        // accesses it.
        unsafe { self.ffma.launch(&stream, self.ffma_blocks, FFMA_THREADS, 0, &pointers)? };
        Ok(())
    }

    /// Enqueues a copy by `blocks` blocks, at most `copy_blocks`.
    fn enqueue_copy(&self, blocks: u32) -> Result<(), Error> {
        let [from, to] = [&self.from, &self.to].map(|place| place.address());
        let mut arguments = [from, to];
        let pointers = arguments.each_mut().map(|argument| (&raw mut *argument).cast());
        let (stream, blocks) = (self.device.stream(), blocks.min(self.copy_blocks));
        // SAFETY: these are the copy's parameters, which the driver copies during the call. Both
        // buffers have `COPY_PER_BLOCK` elements per block, and are distinct. Like all device
        // allocations, they are aligned to 256 bytes.
        unsafe { self.copy.launch(&stream, blocks, COPY_THREADS, 0, &pointers)? };
        Ok(())
    }
}

/// The multiprocessors of a GPU; one for the software device.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice};
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// assert_eq!(gemm_bench::roofline::multiprocessors(&device), 1);
/// # Ok(())
/// # }
/// ```
pub fn multiprocessors(device: &Device) -> u32 {
    device.info().peak.map_or(1, |peak| peak.multiprocessors)
}

/// A GPU's rounds of FMAs per millisecond and its launch overhead, from [`Peaks::speed`].
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    rounds_per_ms: f64,
    launch_ms: f64,
}

impl Speed {
    /// The milliseconds of a nearly empty kernel, when launches follow each other without a gap.
    pub fn launch_ms(self) -> f64 {
        self.launch_ms
    }

    /// The rounds that last about `ms` milliseconds; at least one.
    fn rounds(self, ms: f64) -> u32 {
        (self.rounds_per_ms * ms).clamp(1.0, f64::from(i32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::{DeviceChoice, Matrix};

    #[test]
    fn the_loop_does_every_multiply_add() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let peaks = Peaks::new(&device, 1, 0).unwrap();
        for rounds in [0, 1, 3] {
            // 32 sums that begin at 0, 1, ... 31, and grow by 1 with each FMA.
            peaks.enqueue_ffma(rounds, (1.0, 1.0)).unwrap();
            let fmas = rounds * FFMA_PER_ROUND;
            expect_everywhere(&peaks.out, (31 * 32 / 2 + fmas) as f32);
        }
        assert_eq!(peaks.ffma_flops(3), 2.0 * 2.0 * 256.0 * 3.0 * 512.0);
    }

    fn expect_everywhere(out: &DeviceMatrix<f32>, value: f32) {
        let out = out.download().unwrap();
        assert!(out.as_slice().iter().all(|&x| x == value), "{} {value}", out.at(0, 0));
    }

    #[test]
    fn the_copy_copies_everything() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let bytes = 3 * 4 * u64::from(COPY_PER_BLOCK) + 5;
        let mut peaks = Peaks::new(&device, 1, bytes).unwrap();
        let matrix = Matrix::random(3, COPY_PER_BLOCK as usize, 1, 1);
        peaks.from.upload(&matrix).unwrap();
        peaks.enqueue_copy(peaks.copy_blocks).unwrap();
        assert_eq!(peaks.to.download().unwrap(), matrix);
        assert_eq!(peaks.copy_bytes(), 2.0 * (bytes - 5) as f64);
    }

    #[test]
    fn threads_fit_32_bits() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let peaks = Peaks::new(&device, u32::MAX, 0).unwrap();
        assert!(peaks.ffma_blocks.checked_mul(FFMA_THREADS).is_some());
        assert_eq!(peaks.out.rows(), peaks.ffma_blocks as usize);
    }

    #[test]
    fn delays_are_whole_rounds() {
        let speed = Speed { rounds_per_ms: 800.0, launch_ms: 0.0 };
        assert_eq!((speed.rounds(2.0), speed.rounds(0.0)), (1600, 1));
        assert_eq!(speed.rounds(1e30), i32::MAX as u32);
        assert_eq!(
            Speed { rounds_per_ms: f64::INFINITY, launch_ms: 0.0 }.rounds(1.0),
            i32::MAX as u32
        );
    }
}

//! Times the launches of an example on a GPU, beside a copy from device to device: a kernel that is
//! bound by memory cannot be much faster than that.

use std::error::Error;

use cust::event::{Event, EventFlags};
use cust::memory::{AsyncCopyDestination, DeviceBuffer};
use cust::stream::Stream;

/// Launches, or copies, between two events.
const BATCH: usize = 10;
/// Batches of each kind, which take turns.
const BATCHES: usize = 15;

/// Elements to work on: more than the L2 cache holds on a GPU, few on the software device.
pub fn elements() -> usize {
    if is_gpu() { 1 << 27 } else { 1 << 14 }
}

/// Whether there is a GPU to run on, rather than the software device.
fn is_gpu() -> bool {
    cuda_driver::gpu_count().is_ok_and(|count| count > 0)
}

/// Prints the bytes per second that `launch`, which moves `bytes`, and a copy moved: the medians
/// of batches that took turns. Says nothing on the software device, whose times are not a GPU's.
///
/// # Errors
/// If a launch or a copy fails.
pub fn report<E: Error + 'static>(
    bytes: usize,
    stream: &Stream,
    mut launch: impl FnMut() -> Result<(), E>,
) -> Result<(), Box<dyn Error>> {
    if !is_gpu() {
        return Ok(());
    }
    let from = DeviceBuffer::from_slice(&vec![1.0f32; elements()])?;
    let mut to = DeviceBuffer::<f32>::zeroed(from.len())?;
    let (mut of_launch, mut of_copy) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        of_launch.push(seconds(stream, || Ok(launch()?))?);
        of_copy.push(seconds(stream, || {
            // SAFETY: `seconds` waits, and both buffers outlive it.
            Ok(unsafe { to.async_copy_from(&from, stream) }?)
        })?);
    }
    let [launch, copy] = [of_launch, of_copy].map(median);
    let copied = 2.0 * size_of::<f32>() as f64 * from.len() as f64 / copy;
    let moved = bytes as f64 / launch;
    println!(
        "{:.4} ms, {:.0} GB/s; a copy moves {:.0} GB/s: {:.1} % of that",
        launch * 1e3,
        moved * 1e-9,
        copied * 1e-9,
        100.0 * moved / copied
    );
    Ok(())
}

/// Seconds of one call, when a batch of them follow each other; waits for it.
fn seconds(
    stream: &Stream,
    mut enqueue: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let [start, end] = [Event::new(EventFlags::DEFAULT)?, Event::new(EventFlags::DEFAULT)?];
    start.record(stream)?;
    for _ in 0..BATCH {
        enqueue()?;
    }
    end.record(stream)?;
    end.synchronize()?;
    Ok(f64::from(end.elapsed_time_f32(&start)?) * 1e-3 / BATCH as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

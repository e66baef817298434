//! Measures the link between devices.

use std::time::Instant;

use crate::communicator::Piece;
use crate::error::Error;
use crate::link::Link;
use crate::world::World;

/// Bytes of a message whose time is that of its bytes.
const LARGE: usize = 64 << 20;
/// Bytes of a message whose time is the latency.
const SMALL: usize = 16;
/// The buffers of a measurement.
const BUFFERS: [&str; 2] = ["sent by the measurement", "received by the measurement"];
/// Messages of one measurement, all enqueued at once.
const MESSAGES: u32 = 8;

impl World {
    /// Measures the link: every rank sends to the next one at once. The slowest rank counts.
    ///
    /// Products choose their schedule for this link from then on.
    ///
    /// # Errors
    ///
    /// [`Error::Unfit`] on a software device, whose times say nothing, or if there is one rank.
    /// [`Error::Refused`] if a rank has no memory for 128 MiB. [`Error::Lost`].
    pub fn measure_link(&self) -> Result<Link, Error> {
        let operation = "measuring the link";
        let workspace = &mut *self.workspace();
        let stream = self.transfers();
        let mut ready = || -> Result<_, Error> {
            if self.device().is_soft() || self.size() == 1 {
                let reason = "a link is measured between GPUs".to_owned();
                return Err(Error::Unfit { what: "the world", reason });
            }
            let [from, to] = BUFFERS.map(|name| workspace.buffer(stream, name, LARGE));
            Ok([from?, to?])
        };
        let (ready, buffers) = match ready() {
            Ok(buffers) => (Ok(()), buffers),
            Err(error) => (Err(error), [0; 2]),
        };
        self.agree(operation, "", ready)?;
        let own = self.time_messages(buffers);
        let own = own.inspect_err(|error| self.give_up(operation, error))?;
        let own = own.map(f64::to_le_bytes).concat();
        let mut slowest = [0f64; 2];
        for message in self.exchange(operation, own)?.iter() {
            for (word, slowest) in message.as_chunks().0.iter().zip(&mut slowest) {
                *slowest = slowest.max(f64::from_le_bytes(*word));
            }
        }
        let [latency_us, large] = slowest;
        let gbytes_per_s = 1e-3 * LARGE as f64 / (large - latency_us).max(1e-3);
        let link = Link { gbytes_per_s, latency_us };
        self.set_link(Some(link));
        // All ranks have told their times, so that no message is on its way.
        for name in BUFFERS {
            workspace.free(name);
        }
        Ok(link)
    }

    /// The time of a small message and of a large one, in us. Each buffer has room for both.
    fn time_messages(&self, buffers: [u64; 2]) -> Result<[f64; 2], Error> {
        let stream = self.transfers();
        let mut microseconds = [0.0; 2];
        for (bytes, best) in [SMALL, LARGE].into_iter().zip(&mut microseconds) {
            *best = f64::INFINITY;
            for _ in 0..3 {
                self.barrier()?;
                let start = Instant::now();
                for _ in 0..MESSAGES {
                    let [to, from] =
                        [1, self.size() - 1].map(|step| (self.rank() + step) % self.size());
                    let send = Piece { peer: to, address: buffers[0], bytes };
                    let receive = Piece { peer: from, address: buffers[1], bytes };
                    // SAFETY: the buffers have this many bytes, and only this stream uses them.
                    unsafe { self.transfer(&[send], &[receive]) }?;
                }
                stream.synchronize()?;
                *best = best.min(1e6 * start.elapsed().as_secs_f64() / f64::from(MESSAGES));
            }
        }
        Ok(microseconds)
    }
}

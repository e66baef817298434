//! How bytes travel between the memories of the ranks' devices.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_gemm::{Event, Stream};

use crate::driver;
use crate::error::Error;
use crate::hub::{Control, Messages};

/// Device memory that travels to or from another rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) peer: usize,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// The means of transport between ranks.
///
/// It has one operation, from which every distribution's schedule is made. Sums are the library's
/// own, so that no transport decides about their order.
pub(crate) trait Communicator: Send + Sync {
    /// Enqueues a set of messages between any ranks. Every rank makes this call.
    ///
    /// The k-th piece for a peer goes into the peer's k-th piece from this rank, of equal length.
    ///
    /// # Safety
    ///
    /// The memory of the pieces stays allocated until `stream`'s work is done. Other work on it is
    /// ordered against that of `stream`.
    unsafe fn transfer(
        &self,
        stream: &Stream,
        sends: &[Piece],
        receives: &[Piece],
    ) -> Result<(), Error>;

    /// What has gone wrong in transfers that were enqueued, if anything has.
    fn error(&self) -> Option<String> {
        None
    }

    /// Ends what is enqueued, so that nothing on the device waits for a lost rank.
    fn abort(&self) {}

    /// Whether messages need multiprocessors, and so are best enqueued before a product.
    fn uses_multiprocessors(&self) -> bool {
        false
    }

    /// What it is, for reports.
    fn name(&self) -> String;
}

/// The name of the only operation.
pub(crate) const TRANSFER: &str = "a transfer";

/// The name of the second exchange of a transfer by copies.
const FETCHED: &str = "the end of a transfer";

/// Numbers in a message.
pub(crate) fn words(message: &[u8]) -> impl Iterator<Item = u64> {
    message.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// Copies between the devices of one process: the copy engines' work, and no multiprocessor's.
pub(crate) struct Copies {
    control: Arc<dyn Control>,
    rank: usize,
    /// The context of each rank.
    contexts: Vec<u64>,
    recorded: Recorded,
}

/// The events of each rank that others may not have waited for yet.
///
/// All ranks share them, so that they outlive a rank that has left.
pub(crate) type Recorded = Arc<Vec<Mutex<Vec<Event>>>>;

impl Copies {
    pub(crate) fn new(
        control: Arc<dyn Control>,
        rank: usize,
        stream: &Stream,
        recorded: Recorded,
    ) -> Result<Self, Error> {
        let device = stream.device();
        let own = [driver::context(device)?, u64::from(device.is_soft())];
        let own = own.map(u64::to_le_bytes).concat();
        let messages = control.exchange("opening the copies", own)?;
        let word = |at| messages.iter().filter_map(move |message| words(message).nth(at));
        if word(1).any(|is_soft| is_soft != u64::from(device.is_soft())) {
            let reason = "some ranks have a GPU and others a software device; go through the host";
            let what = "copies between devices";
            return Err(Error::Unfit { what, reason: reason.to_owned() });
        }
        let contexts: Vec<_> = word(0).collect();
        contexts.iter().for_each(|context| driver::enable_peer(device, *context));
        Ok(Self { control, rank, contexts, recorded })
    }

    fn recorded(&self, rank: usize) -> MutexGuard<'_, Vec<Event>> {
        // No change is left half-done.
        self.recorded[rank].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues the copies to this rank, and tells the others when they are done.
    ///
    /// # Safety
    ///
    /// The contract of [`Communicator::transfer`]. All ranks have given their `offers`.
    unsafe fn fetch(
        &self,
        stream: &Stream,
        offers: &[Vec<u8>],
        receives: &[Piece],
        recorded: &mut Vec<Event>,
    ) -> Result<Messages, Error> {
        // SAFETY: the caller's contract.
        let copied = unsafe { self.copy(stream, offers, receives) };
        // After an error, others wait for the copies before it.
        let done = stream.record().inspect_err(|_| _ = stream.synchronize())?;
        let bits = driver::bits(&done);
        recorded.push(done);
        copied?;
        self.control.exchange(FETCHED, bits.to_le_bytes().to_vec())
    }

    /// Enqueues the copies to this rank.
    ///
    /// # Safety
    ///
    /// See [`Copies::fetch`].
    unsafe fn copy(
        &self,
        stream: &Stream,
        offers: &[Vec<u8>],
        receives: &[Piece],
    ) -> Result<(), Error> {
        // Of each rank, the pieces for this one.
        let mut offers: Vec<_> = offers
            .iter()
            .map(|offer| {
                let mut words = words(offer);
                let ready = words.next().unwrap_or(0);
                let words: Vec<_> = words.collect();
                let pieces = words.as_chunks::<3>().0.to_vec().into_iter();
                (ready, pieces.filter(|[peer, ..]| *peer == self.rank as u64))
            })
            .collect();
        let mut awaited = Vec::new();
        for piece in receives {
            let (ready, pieces) = &mut offers[piece.peer];
            let Some([_, address, bytes]) = pieces.next() else {
                return Err(mismatch(piece, 0));
            };
            if bytes != piece.bytes as u64 {
                return Err(mismatch(piece, bytes));
            }
            if !awaited.contains(&piece.peer) {
                awaited.push(piece.peer);
                driver::make_wait(stream, *ready)?;
            }
            let to = [piece.address, self.contexts[self.rank]];
            let from = [address, self.contexts[piece.peer]];
            // SAFETY: the caller's contract, which the other rank's caller has as well: the source
            // is ready after its event, and stays until the last event of this transfer.
            unsafe { driver::copy_from_peer(stream, to, from, piece.bytes) }?;
        }
        Ok(())
    }

    /// Waits until no rank copies any more, so that what this rank sends may be freed.
    fn settle(&self, error: &Error) {
        if !matches!(error, Error::Lost(_)) {
            // Nobody waits for this rank's next message.
            self.control.fail(TRANSFER, Some(self.rank), format!("failed: {error}"));
        }
        // A rank keeps its lock until its copies are enqueued and recorded.
        for rank in 0..self.recorded.len() {
            self.recorded(rank).iter().for_each(|event| _ = event.synchronize());
        }
    }
}

impl Communicator for Copies {
    unsafe fn transfer(
        &self,
        stream: &Stream,
        sends: &[Piece],
        receives: &[Piece],
    ) -> Result<(), Error> {
        let ready = stream.record()?;
        let mut message = vec![driver::bits(&ready)];
        for piece in sends {
            message.extend([piece.peer as u64, piece.address, piece.bytes as u64]);
        }
        let bytes = message.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut recorded = self.recorded(self.rank);
        let offers = self.control.exchange(TRANSFER, bytes)?;
        // Every rank has enqueued its waits of the transfer before.
        recorded.clear();
        recorded.push(ready);
        // SAFETY: the caller's contract.
        let fetched = unsafe { self.fetch(stream, &offers, receives, &mut recorded) };
        drop(recorded);
        let waited = fetched.and_then(|events| {
            let mut fetched: Vec<_> = sends.iter().map(|piece| piece.peer).collect();
            fetched.dedup();
            let mut events = fetched.into_iter().filter_map(|peer| words(&events[peer]).next());
            Ok(events.try_for_each(|event| driver::make_wait(stream, event))?)
        });
        waited.inspect_err(|error| self.settle(error))
    }

    fn name(&self) -> String {
        "copies between the devices of one process".to_owned()
    }
}

fn mismatch(piece: &Piece, bytes: u64) -> Error {
    let reason = format!(
        "rank {} sends {bytes} bytes, and this rank has room for {}; make the same call on every \
         rank",
        piece.peer, piece.bytes
    );
    Error::Unfit { what: TRANSFER, reason }
}

/// Through the host's memory, and through sockets where ranks are processes.
///
/// It needs nothing but the exchange of messages, and is slow.
pub(crate) struct ThroughHost {
    pub(crate) control: Arc<dyn Control>,
    pub(crate) rank: usize,
}

impl Communicator for ThroughHost {
    unsafe fn transfer(
        &self,
        stream: &Stream,
        sends: &[Piece],
        receives: &[Piece],
    ) -> Result<(), Error> {
        let mut message = Vec::new();
        for piece in sends {
            message.extend((piece.peer as u64).to_le_bytes());
            message.extend((piece.bytes as u64).to_le_bytes());
            // SAFETY: the caller's contract.
            message.extend(unsafe { driver::read(stream, piece.address, piece.bytes) }?);
        }
        let messages = self.control.exchange(TRANSFER, message)?;
        let mut at = vec![0; messages.len()];
        for piece in receives {
            let (message, at) = (&messages[piece.peer], &mut at[piece.peer]);
            let bytes = loop {
                let rest = &message[*at..];
                let mut head = words(&rest[..rest.len().min(16)]);
                let (Some(peer), Some(len)) = (head.next(), head.next()) else {
                    return Err(mismatch(piece, 0));
                };
                *at += 16 + len as usize;
                if peer == self.rank as u64 {
                    break &rest[16..16 + len as usize];
                }
            };
            if bytes.len() != piece.bytes {
                return Err(mismatch(piece, bytes.len() as u64));
            }
            // SAFETY: the caller's contract.
            unsafe { driver::write(stream, piece.address, bytes) }?;
        }
        Ok(())
    }

    fn name(&self) -> String {
        "copies through the host's memory".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use cuda_gemm::{Device, DeviceChoice, DeviceMatrix};

    use super::*;
    use crate::hub::{Hub, Member};

    #[test]
    fn a_rank_that_fails_in_a_transfer_does_not_wait_for_the_timeout() {
        let hub = Arc::new(Hub::new(2, Duration::from_secs(60)));
        let recorded: Recorded = Arc::new(vec![Mutex::default(), Mutex::default()]);
        let rank = |rank: usize, bytes: [usize; 2]| -> Result<(), Error> {
            let device = Device::open(DeviceChoice::SoftOrdinal(rank as u32))?;
            let stream = driver::urgent_stream(&device)?;
            let control = Arc::new(Member::new(Arc::clone(&hub), rank));
            let copies = Copies::new(control, rank, &stream, Arc::clone(&recorded))?;
            let memory = [(); 2].map(|()| DeviceMatrix::<f32>::zeros(&stream, [1, 4]).unwrap());
            let [send, receive] = [0, 1].map(|i| Piece {
                peer: 1 - rank,
                address: memory[i].address(),
                bytes: bytes[i],
            });
            // SAFETY: the memory has these bytes, and stays until the transfer is over.
            let result = unsafe { copies.transfer(&stream, &[send], &[receive]) };
            // Nobody reads the memory any more.
            let events = |rank| copies.recorded(rank).iter().all(|event| event.is_done().unwrap());
            assert!(events(0) && events(1));
            result
        };
        let start = Instant::now();
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| rank(0, [16, 16]));
            let second = rank(1, [8, 16]);
            (first.join().unwrap(), second)
        });
        let text = first.unwrap_err().to_string();
        assert!(text.contains("rank 1 sends 8 bytes, and this rank has room for 16"), "{text}");
        let Err(Error::Lost(failure)) = second else { panic!("{second:?}") };
        assert_eq!(failure.suspect, 0);
        assert!(failure.reason.contains("room for 16"), "{failure}");
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}

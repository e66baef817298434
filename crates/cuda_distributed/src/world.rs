//! Worlds: ranks that make the same calls, each with a device of its own.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cuda_gemm::{
    Device, DeviceChoice, DeviceMatrix, DeviceMatrixMut, Event, Matrix, Scalar, Stream,
};

use crate::communicator::{Communicator, Copies, Piece, Recorded, ThroughHost, words};
use crate::driver;
use crate::error::{Error, Failure};
use crate::hub::{Control, Hub, Member};
use crate::launcher::{self, launched};
use crate::link::Link;
use crate::nccl::Nccl;
use crate::socket::{self, Rendezvous};

/// How matrices travel between devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Copies within one process. Between processes NCCL for GPUs, and the host for software
    /// devices.
    #[default]
    Auto,
    /// NCCL 2.22 or newer, which is loaded at run time.
    Nccl,
    /// Copies between devices, by their copy engines. All ranks are in one process.
    Copies,
    /// Through the host's memory and, between processes, through sockets: slow, and always there.
    Host,
}

/// How a world is opened.
///
/// ```
/// use std::time::Duration;
/// use cuda_distributed::{Settings, Transport};
///
/// let settings = Settings { timeout: Duration::from_secs(300), ..Settings::default() };
/// assert_eq!(settings.transport, Transport::Auto);
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    /// The means of transport.
    pub transport: Transport,
    /// The longest time that a rank waits for another one, by default 30 s. It also covers
    /// what a program does between two operations. More than a year counts as a year.
    pub timeout: Duration,
    /// Where processes meet. By default `CUDA_DISTRIBUTED_RENDEZVOUS`, else the port after
    /// `MASTER_PORT`.
    pub rendezvous: Option<Rendezvous>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { transport: Transport::Auto, timeout: Duration::from_secs(30), rendezvous: None }
    }
}

/// The longest timeout, which a clock can be ahead of today.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Settings {
    fn clamped(&self) -> Self {
        Self { timeout: self.timeout.min(LONGEST), ..self.clone() }
    }
}

/// One rank of a world: a device, and a way to all other ranks.
///
/// This is a handle: clones are the same rank. All ranks make the same calls in the same order,
/// also if several threads share a rank. A rank leaves when its last handle is dropped.
///
/// No call waits longer than the timeout for another rank. When a rank is lost, each other rank's
/// next call returns [`Error::Lost`], with the operation and the suspect.
///
/// ```
/// use cuda_distributed::{Settings, World};
/// use cuda_gemm::{Device, DeviceChoice};
///
/// let devices = [0, 1].map(|i| Device::open(DeviceChoice::SoftOrdinal(i)).unwrap());
/// let ranks = World::run(&devices, &Settings::default(), |world| {
///     world.barrier()?;
///     Ok::<_, cuda_distributed::Error>((world.rank(), world.size()))
/// });
/// let ranks: Result<Vec<_>, _> = ranks.into_iter().collect();
/// assert_eq!(ranks.unwrap(), [(0, 2), (1, 2)]);
/// ```
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    rank: usize,
    size: usize,
    device: Device,
    transfers: Stream,
    side: Option<Stream>,
    control: Arc<dyn Control>,
    communicator: Arc<dyn Communicator>,
    watch: Watch,
    /// Held for each operation with other ranks, so that threads of this rank take turns.
    turn: Mutex<()>,
    workspace: Mutex<Workspace>,
    link: Mutex<Option<Link>>,
    /// Multiprocessors of the rank that has fewest.
    multiprocessors: usize,
}

/// Memory that products share, one after the other.
#[derive(Default)]
pub(crate) struct Workspace {
    /// Buffers by their use. They only grow.
    buffers: HashMap<&'static str, DeviceMatrix<f32>>,
    /// The calls that all ranks have agreed on.
    pub(crate) agreed: HashSet<String>,
}

impl Workspace {
    /// The address of a buffer with this many bytes, in memory of `stream`.
    pub(crate) fn buffer(
        &mut self,
        stream: &Stream,
        name: &'static str,
        bytes: usize,
    ) -> Result<u64, Error> {
        let words = bytes.div_ceil(4);
        if self.buffers.get(name).is_none_or(|buffer| buffer.cols() < words) {
            // The old one goes first. Freeing it waits for the work with it.
            self.buffers.remove(name);
            let buffer = DeviceMatrix::zeros(stream, [1, words])?;
            self.buffers.insert(name, buffer);
        }
        Ok(self.buffers[name].address())
    }

    /// Frees a buffer, after the work with it.
    pub(crate) fn free(&mut self, name: &'static str) {
        self.buffers.remove(name);
    }

    /// The address of a 1 of this type, in memory of `stream`.
    pub(crate) fn one<T: Scalar>(&mut self, stream: &Stream) -> Result<u64, Error> {
        let name = T::ELEMENT.name();
        if !self.buffers.contains_key(name) {
            let buffer = DeviceMatrix::zeros(stream, [1, 1])?;
            // SAFETY: no element is wider than f32, and nobody else uses the buffer.
            let one =
                unsafe { DeviceMatrixMut::<T>::from_address(stream, buffer.address(), [1, 1], 1) };
            one?.upload(&Matrix::from_vec(1, 1, vec![1.0]))?;
            self.buffers.insert(name, buffer);
        }
        Ok(self.buffers[name].address())
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { rank, size, device, .. } = &*self.inner;
        write!(f, "rank {rank} of {size} on {}", device.info().name)
    }
}

impl World {
    /// Runs `work` as one rank per device, in threads of this process.
    ///
    /// Each result is that of the rank with this index. A rank that cannot be opened has its error
    /// instead.
    ///
    /// # Panics
    ///
    /// Panics if `work` does, after all ranks have ended.
    pub fn run<T: Send, E: From<Error> + Send>(
        devices: &[Device],
        settings: &Settings,
        work: impl Fn(World) -> Result<T, E> + Sync,
    ) -> Vec<Result<T, E>> {
        let settings = &settings.clamped();
        let hub = Arc::new(Hub::new(devices.len(), settings.timeout));
        let recorded: Recorded = Arc::new(devices.iter().map(|_| Mutex::default()).collect());
        let work = &work;
        thread::scope(|scope| {
            let ranks = devices.iter().enumerate().map(|(rank, device)| {
                let member = Member::new(Arc::clone(&hub), rank);
                let recorded = Arc::clone(&recorded);
                scope.spawn(move || {
                    let control: Arc<dyn Control> = Arc::new(member);
                    let place = [rank, devices.len()];
                    work(World::open(device, control, place, settings, Some(recorded))?)
                })
            });
            let ranks: Vec<_> = ranks.collect();
            let ended: Vec<_> = ranks.into_iter().map(thread::ScopedJoinHandle::join).collect();
            let unwrap = |ended: thread::Result<_>| {
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            ended.into_iter().map(unwrap).collect()
        })
    }

    /// Joins the world of processes that torchrun, mpirun or srun has started, one per device.
    ///
    /// The device is the GPU with the process's number on its host. Without GPUs it is the software
    /// device with this number.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`], [`Error::Rendezvous`], [`Error::NoNccl`], or an error of the device.
    pub fn from_environment(settings: &Settings) -> Result<Self, Error> {
        let local = launched(settings.rendezvous.clone(), launcher::variable)?.local;
        let choice = match cuda_driver::gpu_count() {
            // The launcher may show each process its own GPU alone.
            Ok(1) => DeviceChoice::Gpu,
            Ok(_) => DeviceChoice::GpuOrdinal(local),
            Err(_) => DeviceChoice::SoftOrdinal(local),
        };
        Self::from_environment_on(&Device::open(choice)?, settings)
    }

    /// [`World::from_environment`] on a device of the caller's choice.
    ///
    /// # Errors
    ///
    /// See [`World::from_environment`].
    pub fn from_environment_on(device: &Device, settings: &Settings) -> Result<Self, Error> {
        let settings = &settings.clamped();
        let launched = launched(settings.rendezvous.clone(), launcher::variable)?;
        let identity = &launched.identity;
        let control = socket::join(&launched.rendezvous, identity, settings.timeout)?;
        let place = [identity.rank, identity.size];
        Self::open(device, Arc::from(control), place, settings, None)
    }

    fn open(
        device: &Device,
        control: Arc<dyn Control>,
        [rank, size]: [usize; 2],
        settings: &Settings,
        of_process: Option<Recorded>,
    ) -> Result<Self, Error> {
        let transfers = driver::urgent_stream(device)?;
        let watch = Watch::new(Arc::clone(&control), settings.timeout);
        let transport = match settings.transport {
            Transport::Auto if of_process.is_some() => Transport::Copies,
            Transport::Auto if device.is_soft() => Transport::Host,
            Transport::Auto => Transport::Nccl,
            transport => transport,
        };
        let own = Arc::clone(&control);
        let communicator: Arc<dyn Communicator> = match transport {
            Transport::Copies => {
                let reason = "the ranks are processes; use NCCL, or go through the host".to_owned();
                let unfit = Error::Unfit { what: "copies between devices", reason };
                Arc::new(Copies::new(own, rank, &transfers, of_process.ok_or(unfit)?)?)
            }
            Transport::Nccl if device.is_soft() => {
                let reason = "this rank has a software device; use another transport".to_owned();
                return Err(Error::Unfit { what: "NCCL", reason });
            }
            Transport::Nccl => Arc::new(Nccl::new(own, [rank, size], device, settings.timeout)?),
            _ => Arc::new(ThroughHost { control: own, rank }),
        };
        watch.abort_on_failure(Arc::clone(&communicator));
        let side = (!communicator.uses_multiprocessors()).then(|| Stream::new(device));
        let side = side.transpose()?;
        let own = u64::from(device.info().limits.multiprocessors);
        let all = control.exchange("opening the world", own.to_le_bytes().to_vec())?;
        let fewest = all.iter().flat_map(|message| words(message)).min();
        let inner = Inner {
            rank,
            size,
            device: device.clone(),
            transfers,
            side,
            control,
            communicator,
            watch,
            turn: Mutex::default(),
            workspace: Mutex::default(),
            link: Mutex::default(),
            multiprocessors: fewest.unwrap_or(own) as usize,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// This rank's device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The means of transport, as in `NCCL 2.28.3`.
    pub fn transport(&self) -> String {
        self.inner.communicator.name()
    }

    /// Whether both are handles of one rank.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Waits until every rank has made this call. Work on the devices goes on.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn barrier(&self) -> Result<(), Error> {
        self.exchange("a barrier", Vec::new()).map(|_| ())
    }

    /// Waits for the work enqueued so far on this rank's device, and for the ranks it depends on.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], or an error of the device.
    pub fn synchronize(&self) -> Result<(), Error> {
        let waited = self.device().synchronize().and(self.inner.transfers.synchronize());
        // An aborted transfer looks like an end, and the reason is the failure.
        self.check()?;
        Ok(waited?)
    }

    /// The link that [`World::measure_link`] has measured.
    pub fn link(&self) -> Option<Link> {
        *self.inner.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets products choose a schedule for this link. All ranks set the same.
    pub fn set_link(&self, link: Option<Link>) {
        *self.inner.link.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }

    /// Gathers a message of each rank.
    pub(crate) fn exchange(
        &self,
        operation: &str,
        message: Vec<u8>,
    ) -> Result<Arc<Vec<Vec<u8>>>, Error> {
        let _turn = lock(&self.inner.turn);
        self.inner.control.exchange(operation, message)
    }

    /// Fails if the world is over.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.inner.control.failure().map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Makes sure that every rank is ready for the same call, before any of them begins it.
    ///
    /// A rank's own error comes back to it, and as [`Error::Refused`] to all others.
    pub(crate) fn agree(
        &self,
        operation: &str,
        call: &str,
        ready: Result<(), Error>,
    ) -> Result<(), Error> {
        let message = match &ready {
            Ok(()) => format!("+{call}"),
            Err(error) => format!("-{error}"),
        };
        let messages = self.exchange(operation, message.into_bytes())?;
        ready?;
        let texts: Vec<_> = messages.iter().map(|text| String::from_utf8_lossy(text)).collect();
        if let Some(rank) = texts.iter().position(|text| text.starts_with('-')) {
            let (operation, reason) = (operation.to_owned(), texts[rank][1..].to_owned());
            return Err(Error::Refused { operation, rank, reason });
        }
        if let Some(rank) = texts.iter().position(|text| *text != texts[0]) {
            let [first, other] = [0, rank].map(|rank| texts[rank][1..].to_owned());
            return Err(Error::Mismatch { operation: operation.to_owned(), rank, first, other });
        }
        Ok(())
    }

    /// A second stream of products, beside the device's own, if transfers leave them all
    /// multiprocessors.
    pub(crate) fn side(&self) -> Option<&Stream> {
        self.inner.side.as_ref()
    }

    /// The stream of transfers.
    pub(crate) fn transfers(&self) -> &Stream {
        &self.inner.transfers
    }

    /// Multiprocessors of the rank that has fewest, so that all ranks count alike.
    pub(crate) fn multiprocessors(&self) -> usize {
        self.inner.multiprocessors
    }

    pub(crate) fn uses_multiprocessors(&self) -> bool {
        self.inner.communicator.uses_multiprocessors()
    }

    pub(crate) fn workspace(&self) -> MutexGuard<'_, Workspace> {
        // Consistent even after a panic.
        self.inner.workspace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues a transfer, and returns its end: see [`Communicator::transfer`].
    ///
    /// # Safety
    ///
    /// The contract of [`Communicator::transfer`].
    pub(crate) unsafe fn transfer(
        &self,
        sends: &[Piece],
        receives: &[Piece],
    ) -> Result<Arc<Event>, Error> {
        let _turn = lock(&self.inner.turn);
        self.check()?;
        let (stream, is_watched) = (&self.inner.transfers, self.uses_multiprocessors());
        if is_watched {
            let pending = &self.inner.watch.shared.pending;
            wait_for_room(pending, |event| has_ended(event), &*self.inner.control)?;
        }
        let before = if is_watched { Some(stream.record()?) } else { None };
        // SAFETY: the caller's contract.
        unsafe { self.inner.communicator.transfer(stream, sends, receives) }?;
        let done = Arc::new(stream.record()?);
        if let Some(before) = before {
            self.inner.watch.expect(before, Arc::clone(&done));
        }
        Ok(done)
    }

    /// Ends the world on every rank, after an error that only this rank has.
    pub(crate) fn give_up(&self, operation: &str, error: &Error) {
        if !matches!(error, Error::Lost(_)) {
            let reason = format!("failed: {error}");
            self.inner.control.fail(operation, Some(self.rank()), reason);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Transfers with other ranks end before their memory and their communicator.
        _ = self.transfers.synchronize();
    }
}

/// A thread that shows that this rank lives, and ends a world whose transfers hang.
struct Watch {
    shared: Arc<WatchShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct WatchShared {
    /// Transfers that may not be done.
    pending: Mutex<VecDeque<Pending<Arc<Event>>>>,
    communicator: Mutex<Option<Arc<dyn Communicator>>>,
    is_over: AtomicBool,
}

/// Transfers over NCCL that may be pending. Each is one launch and two events; the driver's queue
/// holds about a thousand of these, and products are between them.
const IN_FLIGHT: usize = 64;

/// A transfer in a stream.
struct Pending<E> {
    /// The work before it. Its time counts for no transfer.
    before: E,
    done: E,
    /// When it was first seen to run.
    since: Option<Instant>,
}

/// Whether nothing is left to wait for: the work is done, or has failed.
fn has_ended(event: &Event) -> bool {
    event.is_done().unwrap_or(true)
}

/// Drops the first transfers that are done.
fn drop_done<E>(pending: &mut VecDeque<Pending<E>>, is_done: impl Fn(&E) -> bool) {
    while pending.front().is_some_and(|transfer| is_done(&transfer.done)) {
        pending.pop_front();
    }
}

/// Waits until fewer than [`IN_FLIGHT`] transfers are pending. With a lost rank they would fill the
/// driver's queue, and the next call would block forever.
fn wait_for_room<E>(
    pending: &Mutex<VecDeque<Pending<E>>>,
    is_done: impl Fn(&E) -> bool,
    control: &dyn Control,
) -> Result<(), Error> {
    loop {
        let mut pending = lock(pending);
        drop_done(&mut pending, &is_done);
        if pending.len() < IN_FLIGHT {
            return Ok(());
        }
        drop(pending);
        if let Some(failure) = control.failure() {
            return Err(failure.into());
        }
        thread::sleep(Duration::from_micros(20));
    }
}

/// Whether the first pending transfer has run for too long. Drops those that are done.
fn is_late<E>(
    pending: &mut VecDeque<Pending<E>>,
    is_done: impl Fn(&E) -> bool,
    timeout: Duration,
) -> bool {
    drop_done(pending, &is_done);
    let Some(first) = pending.front_mut() else { return false };
    if first.since.is_none() && is_done(&first.before) {
        first.since = Some(Instant::now());
    }
    first.since.is_some_and(|since| since.elapsed() > timeout)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No change is left half-done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    fn new(control: Arc<dyn Control>, timeout: Duration) -> Self {
        let shared = Arc::new(WatchShared::default());
        let of_thread = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || of_thread.run(&*control, timeout)));
        Self { shared, thread }
    }

    fn abort_on_failure(&self, communicator: Arc<dyn Communicator>) {
        *lock(&self.shared.communicator) = Some(communicator);
    }

    /// A transfer that must end within the timeout, once the work before it is done.
    fn expect(&self, before: Event, done: Arc<Event>) {
        let pending = Pending { before: Arc::new(before), done, since: None };
        lock(&self.shared.pending).push_back(pending);
    }
}

impl WatchShared {
    fn run(&self, control: &dyn Control, timeout: Duration) {
        let tick = (timeout / 8).min(Duration::from_secs(1));
        while !self.is_over.load(Ordering::Acquire) {
            control.beat();
            let error = lock(&self.communicator).as_ref().and_then(|it| it.error());
            if control.failure().is_some() {
                if let Some(communicator) = lock(&self.communicator).take() {
                    communicator.abort();
                }
            } else if let Some(reason) = error {
                control.fail(crate::communicator::TRANSFER, None, reason);
                continue;
            } else if is_late(&mut lock(&self.pending), |event| has_ended(event), timeout) {
                let late = Failure::late("a transfer", 0, timeout);
                control.fail(&late.operation, None, late.reason);
                continue;
            }
            thread::park_timeout(tick);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            _ = thread.join();
        }
        lock(&self.shared.pending).clear();
    }
}

#[cfg(test)]
mod tests {
    use cuda_gemm::f16;

    use super::*;
    use crate::hub::{Hub, Member};

    #[test]
    fn a_workspace_allocates_once() {
        let stream = Device::open(DeviceChoice::Soft).unwrap().stream();
        let mut workspace = Workspace::default();
        let mut addresses = |bytes| {
            [
                workspace.buffer(&stream, "sums", bytes).unwrap(),
                workspace.one::<f32>(&stream).unwrap(),
                workspace.one::<f16>(&stream).unwrap(),
            ]
        };
        let first = addresses(40);
        assert!(first[1] != first[2]);
        assert_eq!(addresses(24), first);
    }

    #[test]
    fn few_transfers_are_in_flight() {
        let pending = |done: usize| Pending { before: 0, done, since: None };
        let queue = Mutex::new((1..=IN_FLIGHT).map(pending).collect());
        let hub = Arc::new(Hub::new(2, Duration::from_secs(9)));
        let members = [0, 1].map(|rank| Member::new(Arc::clone(&hub), rank));
        wait_for_room(&queue, |event| *event <= 1, &members[0]).unwrap();
        assert_eq!(lock(&queue).len(), IN_FLIGHT - 1);
        // Full again, and the other rank is lost.
        lock(&queue).push_back(pending(IN_FLIGHT + 1));
        members[1].fail("a product", Some(1), "is lost".to_owned());
        let waited = wait_for_room(&queue, |event| *event <= 1, &members[0]);
        assert!(matches!(waited, Err(Error::Lost(failure)) if failure.suspect == 1));
    }

    #[test]
    fn a_transfer_s_clock_starts_after_the_work_before_it() {
        let timeout = Duration::from_millis(20);
        // Events are points of a stream, done up to some point.
        let late = |pending: &mut _, up_to: u32| is_late(pending, |event| *event <= up_to, timeout);
        let pending = |before, done| Pending { before, done, since: None };
        let mut queue = VecDeque::from([pending(1, 2), pending(3, 4)]);
        assert!(!late(&mut queue, 0));
        thread::sleep(2 * timeout);
        // The first one has just begun.
        assert!(!late(&mut queue, 1));
        thread::sleep(2 * timeout);
        assert!(late(&mut queue, 1));
        // The second one waits for its turn, and then has its own time.
        assert!(!late(&mut queue, 2));
        thread::sleep(2 * timeout);
        assert!(!late(&mut queue, 3));
        thread::sleep(2 * timeout);
        assert!(late(&mut queue, 3));
        assert!(!late(&mut queue, 4) && queue.is_empty());
    }
}

//! NCCL, loaded at run time.
//!
//! Only point-to-point messages are used: one operation serves every distribution, and NCCL's
//! choice of an algorithm cannot change the order of a sum.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use cuda_driver::sys::CUstream;
use cuda_gemm::{Device, DeviceMatrix, Stream};
use libloading::Library;

use crate::communicator::{Communicator, Piece, TRANSFER};
use crate::error::{Error, Failure};
use crate::hub::Control;

/// The oldest version whose calls are used here: 2.22.
const OLDEST: c_int = 22_200;

/// Where the library is, by its usual names.
const LIBRARIES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// `ncclResult_t`.
type Code = c_int;
const SUCCESS: Code = 0;

/// `ncclUint8`.
const BYTES: c_int = 1;

/// `ncclComm_t`.
type RawComm = *mut c_void;

/// The one owner of a communicator. It is not `Copy`: a closure would take a copy of it, and leave
/// the communicator to be ended twice.
struct Comm(RawComm);

impl Comm {
    const NONE: Self = Self(ptr::null_mut());

    /// Takes a communicator out of its place.
    fn take(&mut self) -> Self {
        mem::replace(self, Self::NONE)
    }
}

// SAFETY: any thread may use a communicator. Those that enqueue have the stream's right, and its
// end takes it out first.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

/// `ncclConfig_t` of 2.22. Fields at [`UNSET`] get NCCL's defaults.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    /// Padding in 2.22, a field later on.
    traffic_class: c_int,
}

/// The time for which the end of a communicator waits for a call that has it.
const PATIENCE: Duration = Duration::from_secs(1);

/// `NCCL_CONFIG_UNDEF_INT`.
const UNSET: c_int = c_int::MIN;
/// `NCCL_API_MAGIC`.
const MAGIC: u32 = 0xcafe_beef;

/// The functions of the library.
struct Api {
    version: c_int,
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> Code,
    init_rank: unsafe extern "C" fn(*mut RawComm, c_int, UniqueId, c_int, *mut Config) -> Code,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, RawComm, CUstream) -> Code,
    recv: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, RawComm, CUstream) -> Code,
    group_start: unsafe extern "C" fn() -> Code,
    group_end: unsafe extern "C" fn() -> Code,
    async_error: unsafe extern "C" fn(RawComm, *mut Code) -> Code,
    error_string: unsafe extern "C" fn(Code) -> *const c_char,
    finalize: unsafe extern "C" fn(RawComm) -> Code,
    destroy: unsafe extern "C" fn(RawComm) -> Code,
    abort: unsafe extern "C" fn(RawComm) -> Code,
    _library: Library,
}

/// The version of NCCL on this machine, as in `2.28.3`.
///
/// # Errors
///
/// [`Error::NoNccl`] if there is none, or an older one than 2.22.
pub fn nccl_version() -> Result<String, Error> {
    Ok(dotted(api()?.version))
}

/// A version as text. Before 2.9 the numbers had one digit less.
fn dotted(version: c_int) -> String {
    let major = if version < 10_000 { 1_000 } else { 10_000 };
    format!("{}.{}.{}", version / major, version % major / 100, version % 100)
}

fn api() -> Result<&'static Api, Error> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    let loaded = API.get_or_init(load).as_ref();
    loaded.map_err(|reason| Error::NoNccl { reason: reason.clone() })
}

fn load() -> Result<Api, String> {
    // SAFETY: NCCL's initialisers have no precondition.
    let library = LIBRARIES.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
    // SAFETY: it is NCCL by its name.
    unsafe { functions(library.ok_or("there is no NCCL on this machine")?) }
}

/// # Safety
///
/// The library is NCCL.
unsafe fn functions(library: Library) -> Result<Api, String> {
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: NCCL's function of this name has the type of the field.
            *unsafe { library.get(concat!($name, "\0")) }
                .map_err(|error| format!("NCCL lacks {}: {error}", $name))?
        };
    }
    let get_version: unsafe extern "C" fn(*mut c_int) -> Code = function!("ncclGetVersion");
    let mut version = 0;
    // SAFETY: `version` is valid for the write.
    let code = unsafe { get_version(&raw mut version) };
    if code != SUCCESS || version < OLDEST {
        return Err(format!("NCCL here is {}, and 2.22 is needed", dotted(version)));
    }
    Ok(Api {
        version,
        get_unique_id: function!("ncclGetUniqueId"),
        init_rank: function!("ncclCommInitRankConfig"),
        send: function!("ncclSend"),
        recv: function!("ncclRecv"),
        group_start: function!("ncclGroupStart"),
        group_end: function!("ncclGroupEnd"),
        async_error: function!("ncclCommGetAsyncError"),
        error_string: function!("ncclGetErrorString"),
        finalize: function!("ncclCommFinalize"),
        destroy: function!("ncclCommDestroy"),
        abort: function!("ncclCommAbort"),
        _library: library,
    })
}

impl Api {
    fn check(&self, call: &'static str, code: Code) -> Result<(), Error> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: NCCL has a static text for every code.
        let text = unsafe { CStr::from_ptr((self.error_string)(code)) };
        Err(Error::Nccl { call, reason: text.to_string_lossy().into_owned() })
    }

    /// Joins the communicator of all ranks, in the current context. Waits for them.
    fn join(&'static self, [rank, size]: [usize; 2], id: UniqueId) -> Result<Joined, Error> {
        let mut config = Config {
            size: size_of::<Config>(),
            magic: MAGIC,
            version: OLDEST.cast_unsigned(),
            blocking: 1,
            cga_cluster_size: UNSET,
            min_ctas: UNSET,
            max_ctas: UNSET,
            net_name: ptr::null(),
            split_share: UNSET,
            traffic_class: UNSET,
        };
        let (mut comm, [rank, size]) = (Comm::NONE, [rank, size].map(|it| it as c_int));
        // SAFETY: the outputs are valid, and a device's context is current.
        let code = unsafe { (self.init_rank)(&raw mut comm.0, size, id, rank, &raw mut config) };
        self.check("ncclCommInitRankConfig", code)?;
        Ok(Joined { api: self, comm })
    }

    /// Exchanges a word with every rank: NCCL connects two ranks at their first message.
    fn connect(&self, comm: &Comm, [rank, size]: [usize; 2], device: &Device) -> Result<(), Error> {
        let stream = Stream::new(device)?;
        let words = DeviceMatrix::<f32>::zeros(&stream, [2, size])?;
        let piece = |row: usize, peer: usize| Piece {
            peer,
            address: words.address() + 4 * (row * size + peer) as u64,
            bytes: 4,
        };
        let peers = (0..size).filter(|peer| *peer != rank);
        let (sends, receives): (Vec<_>, Vec<_>) =
            peers.map(|peer| (piece(0, peer), piece(1, peer))).unzip();
        // SAFETY: the words are there until the stream has been waited for.
        let enqueued = unsafe { self.enqueue(comm, &stream, &sends, &receives) };
        let done = stream.synchronize();
        enqueued?;
        Ok(done?)
    }

    /// Enqueues messages, which begin together.
    ///
    /// # Safety
    ///
    /// The contract of [`Communicator::transfer`]. The communicator exists, and the device's
    /// context is current.
    unsafe fn enqueue(
        &self,
        comm: &Comm,
        stream: &Stream,
        sends: &[Piece],
        receives: &[Piece],
    ) -> Result<(), Error> {
        let at = |address: u64| ptr::with_exposed_provenance_mut::<c_void>(address as usize);
        // SAFETY: a group may begin at any time.
        self.check("ncclGroupStart", unsafe { (self.group_start)() })?;
        let mut enqueued = Ok(());
        for Piece { peer, address, bytes } in sends {
            let (peer, on) = (*peer as c_int, stream.as_raw());
            // SAFETY: the caller's contract.
            let code = unsafe { (self.send)(at(*address), *bytes, BYTES, peer, comm.0, on) };
            enqueued = enqueued.and(self.check("ncclSend", code));
        }
        for Piece { peer, address, bytes } in receives {
            let (peer, on) = (*peer as c_int, stream.as_raw());
            // SAFETY: the caller's contract.
            let code = unsafe { (self.recv)(at(*address), *bytes, BYTES, peer, comm.0, on) };
            enqueued = enqueued.and(self.check("ncclRecv", code));
        }
        // SAFETY: the group was started, and ends also after a failure within it.
        let ended = self.check("ncclGroupEnd", unsafe { (self.group_end)() });
        enqueued.and(ended)
    }
}

/// A communicator that nobody has taken yet. Its drop aborts it.
struct Joined {
    api: &'static Api,
    comm: Comm,
}

impl Joined {
    /// Takes a communicator out of its place, if it is there.
    fn of(api: &'static Api, comm: &mut Comm) -> Option<Self> {
        let comm = comm.take();
        (!comm.0.is_null()).then_some(Self { api, comm })
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if !self.comm.0.is_null() {
            // SAFETY: nobody else has it.
            _ = unsafe { (self.api.abort)(self.comm.0) };
        }
    }
}

/// A communicator of NCCL.
///
/// Its calls block. If they did not, NCCL would start a thread for each group of messages:
/// [four times a message's time](../../../docs/several-gpus.md). What waits for other ranks (to
/// join, to connect, to end) runs on a thread that nobody has to wait for: see [`within`]. Between
/// connected ranks a message is only enqueued, and [`World`](crate::World) keeps few in flight.
pub(crate) struct Nccl {
    api: &'static Api,
    /// Null once its end has begun. Calls share it, and its end excludes them.
    comm: RwLock<Comm>,
    control: Arc<dyn Control>,
    rank: usize,
    timeout: Duration,
}

impl Nccl {
    /// Joins all ranks' communicators, for transfers of this device.
    pub(crate) fn new(
        control: Arc<dyn Control>,
        [rank, size]: [usize; 2],
        device: &Device,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let began = api().and_then(|api| {
            let mut id = UniqueId([0; 128]);
            if rank == 0 {
                // SAFETY: `id` is valid for the write.
                let code = unsafe { (api.get_unique_id)(&raw mut id) };
                api.check("ncclGetUniqueId", code)?;
            }
            Ok((api, id))
        });
        // The first byte says whether an error follows.
        let own = match &began {
            Ok((_, id)) => [&[1], &id.0[..]].concat(),
            Err(error) => [&[0], error.to_string().as_bytes()].concat(),
        };
        let operation = "opening NCCL";
        let messages = control.exchange(operation, own)?;
        let (api, mut id) = began?;
        if let Some(rank) = messages.iter().position(|message| message.first() != Some(&1)) {
            let reason = messages[rank].get(1..).unwrap_or_default();
            let (operation, reason) = (operation.to_owned(), String::from_utf8_lossy(reason));
            return Err(Error::Refused { operation, rank, reason: reason.into_owned() });
        }
        id.0.copy_from_slice(messages[0].get(1..129).unwrap_or(&[0; 128]));
        let device = device.clone();
        let mut joined = within(&*control, rank, timeout, operation, move || {
            let _current = device.enter()?;
            let joined = api.join([rank, size], id)?;
            api.connect(&joined.comm, [rank, size], &device)?;
            Ok(joined)
        })?;
        Ok(Self { api, comm: RwLock::new(joined.comm.take()), control, rank, timeout })
    }

    /// The communicator, which stays while the guard exists.
    fn comm(&self, operation: &str) -> Result<RwLockReadGuard<'_, Comm>, Error> {
        let comm = self.comm.read().unwrap_or_else(PoisonError::into_inner);
        if comm.0.is_null() {
            let aborted = Failure {
                operation: operation.to_owned(),
                suspect: 0,
                reason: "has aborted NCCL".to_owned(),
            };
            return Err(self.control.failure().unwrap_or(aborted).into());
        }
        Ok(comm)
    }

    /// Takes the communicator out, for its end: nothing if that has begun, or while a call that may
    /// never return still has it.
    fn take(&self) -> Option<Joined> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.comm.try_write() {
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
                Ok(mut comm) => return Joined::of(self.api, &mut comm),
                Err(TryLockError::Poisoned(comm)) => {
                    return Joined::of(self.api, &mut comm.into_inner());
                }
            }
        }
    }
}

impl Communicator for Nccl {
    unsafe fn transfer(
        &self,
        stream: &Stream,
        sends: &[Piece],
        receives: &[Piece],
    ) -> Result<(), Error> {
        if sends.is_empty() && receives.is_empty() {
            return Ok(());
        }
        let _current = stream.device().enter()?;
        let _exclusive = stream.exclusive();
        self.control.begin();
        let comm = self.comm(TRANSFER)?;
        // SAFETY: the caller's contract.
        unsafe { self.api.enqueue(&comm, stream, sends, receives) }
    }

    fn error(&self) -> Option<String> {
        let comm = self.comm(TRANSFER).ok()?;
        let mut state = SUCCESS;
        // SAFETY: the communicator exists, and `state` is valid for the write.
        let code = unsafe { (self.api.async_error)(comm.0, &raw mut state) };
        let checked = [code, state].map(|code| self.api.check("ncclCommGetAsyncError", code));
        checked.into_iter().find_map(Result::err).map(|error| error.to_string())
    }

    fn abort(&self) {
        // On a thread of its own, since it may wait for other ranks of the machine.
        if let Some(joined) = self.take() {
            thread::spawn(move || drop(joined));
        }
    }

    fn uses_multiprocessors(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        nccl_version().map_or_else(|_| "NCCL".to_owned(), |version| format!("NCCL {version}"))
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if self.control.failure().is_some() {
            return self.abort();
        }
        let Some(mut joined) = self.take() else { return };
        let (control, operation) = (&*self.control, "closing NCCL");
        // A rank that cannot end in good order leaves the rest to the end of the process.
        _ = within(control, self.rank, self.timeout, operation, move || {
            let (api, comm) = (joined.api, joined.comm.take());
            // SAFETY: it was taken out, so that nobody else uses it, and no work of it is left.
            let code = unsafe { (api.finalize)(comm.0) };
            api.check("ncclCommFinalize", code)?;
            // SAFETY: as above.
            api.check("ncclCommDestroy", unsafe { (api.destroy)(comm.0) })
        });
    }
}

/// Runs calls that wait for other ranks on a thread of their own.
///
/// If the world ends meanwhile, or after the timeout, the thread is left behind. An error of the
/// calls ends the world.
fn within<T: Send + 'static>(
    control: &dyn Control,
    rank: usize,
    timeout: Duration,
    operation: &str,
    calls: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || _ = sender.send(calls()));
    let deadline = Instant::now() + timeout;
    loop {
        match receiver.recv_timeout(Duration::from_millis(5)) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => {
                control.fail(operation, Some(rank), format!("failed: {error}"));
                return Err(error);
            }
            Err(RecvTimeoutError::Disconnected) => {
                control.fail(operation, Some(rank), "panicked".to_owned());
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                control.fail(operation, None, Failure::late(operation, rank, timeout).reason);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(failure) = control.failure() {
            return Err(failure.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::hub::{Hub, Member};

    #[test]
    fn a_machine_without_nccl_gets_one_sentence() {
        if let Err(error) = nccl_version() {
            let text = error.to_string();
            assert!(text.contains("NCCL") && text.ends_with("use another transport"), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn calls_that_wait_for_others_end_within_the_timeout() {
        // What comes back, and what the other rank hears.
        let wait = |ms: u64, calls: fn() -> Result<i32, Error>| {
            let hub = Arc::new(Hub::new(2, Duration::from_secs(9)));
            let members = [0, 1].map(|rank| Member::new(Arc::clone(&hub), rank));
            let timeout = Duration::from_millis(ms);
            let result = within(&members[0], 0, timeout, "joining", calls);
            (result, members[1].failure().map(|failure| failure.to_string()))
        };
        let lost = |(result, heard)| {
            assert!(matches!(result, Err(Error::Lost(_))));
            Option::<String>::unwrap(heard)
        };
        assert!(matches!(wait(30_000, || Ok(3)), (Ok(3), None)));
        let (result, heard) = wait(30_000, || Err(Error::NoNccl { reason: "nothing".to_owned() }));
        assert!(matches!(result, Err(Error::NoNccl { .. })));
        assert!(heard.unwrap().starts_with("joining: rank 0 failed: "));
        assert_eq!(lost(wait(30_000, || panic!("on purpose"))), "joining: rank 0 panicked");
        let never = || loop {
            thread::park();
        };
        assert!(lost(wait(50, never)).ends_with("did not take part within 0.05 s"));

        // Another rank's failure is heard at once.
        let hub = Arc::new(Hub::new(2, Duration::from_secs(9)));
        let members = [0, 1].map(|rank| Member::new(Arc::clone(&hub), rank));
        members[1].fail("a sum", Some(1), "is lost".to_owned());
        let began = Instant::now();
        let result = within(&members[0], 0, Duration::from_secs(60), "joining", never);
        assert!(matches!(result, Err(Error::Lost(failure)) if failure.suspect == 1));
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    /// Calls that end a communicator.
    static ENDS: Mutex<Vec<&str>> = Mutex::new(Vec::new());

    fn end(name: &'static str) -> Code {
        ENDS.lock().unwrap().push(name);
        SUCCESS
    }

    /// A library whose communicators only end.
    fn ends_alone() -> Api {
        unsafe extern "C" fn finalize(_: RawComm) -> Code {
            end("finalize")
        }
        unsafe extern "C" fn destroy(_: RawComm) -> Code {
            end("destroy")
        }
        unsafe extern "C" fn abort(_: RawComm) -> Code {
            end("abort")
        }
        unsafe extern "C" fn error_string(_: Code) -> *const c_char {
            c"an error".as_ptr()
        }
        unsafe extern "C" fn async_error(_: RawComm, _: *mut Code) -> Code {
            SUCCESS
        }
        unsafe extern "C" fn group() -> Code {
            panic!("a message")
        }
        unsafe extern "C" fn id(_: *mut UniqueId) -> Code {
            panic!("another communicator")
        }
        unsafe extern "C" fn init(
            _: *mut RawComm,
            _: c_int,
            _: UniqueId,
            _: c_int,
            _: *mut Config,
        ) -> Code {
            panic!("another communicator")
        }
        unsafe extern "C" fn message<P>(
            _: P,
            _: usize,
            _: c_int,
            _: c_int,
            _: RawComm,
            _: CUstream,
        ) -> Code {
            panic!("a message")
        }
        Api {
            version: OLDEST,
            get_unique_id: id,
            init_rank: init,
            send: message,
            recv: message,
            group_start: group,
            group_end: group,
            async_error,
            error_string,
            finalize,
            destroy,
            abort,
            _library: libloading::os::unix::Library::this().into(),
        }
    }

    #[test]
    fn a_communicator_ends_once() {
        let ends = |is_lost: bool| {
            let hub = Arc::new(Hub::new(2, Duration::from_secs(9)));
            let members = [0, 1].map(|rank| Arc::new(Member::new(Arc::clone(&hub), rank)));
            if is_lost {
                members[1].fail("a sum", Some(1), "is lost".to_owned());
            }
            let api: &'static Api = Box::leak(Box::new(ends_alone()));
            let comm = RwLock::new(Comm(ptr::without_provenance_mut(8)));
            let control: Arc<dyn Control> = Arc::clone(&members[0]) as _;
            drop(Nccl { api, comm, control, rank: 0, timeout: Duration::from_secs(9) });
            // An abort has a thread of its own.
            while ENDS.lock().unwrap().is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(20));
            mem::take(&mut *ENDS.lock().unwrap())
        };
        assert_eq!(ends(false), ["finalize", "destroy"]);
        assert_eq!(ends(true), ["abort"]);
    }

    #[test]
    fn versions_have_dots() {
        assert_eq!([2804, 20_902, 22_803].map(dotted), ["2.8.4", "2.9.2", "2.28.3"]);
    }

    #[test]
    fn the_configuration_has_nccl_s_size() {
        assert_eq!(size_of::<Config>(), 48);
        assert_eq!(std::mem::offset_of!(Config, net_name), 32);
        assert_eq!(std::mem::offset_of!(Config, traffic_class), 44);
    }
}

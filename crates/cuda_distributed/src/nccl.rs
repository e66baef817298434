//! NCCL, loaded at run time.
//!
//! Only point-to-point messages are used: one operation serves every distribution, and NCCL's
//! choice of an algorithm cannot change the order of a sum.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

use cuda_driver::sys::CUstream;
use cuda_gemm::Stream;
use libloading::Library;

use crate::communicator::{Communicator, Piece};
use crate::error::{Error, Failure};
use crate::hub::Control;

/// The oldest version whose calls are used here: 2.22.
const OLDEST: c_int = 22_200;

/// Where the library is, by its usual names.
const LIBRARIES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// `ncclResult_t`.
type Code = c_int;
const SUCCESS: Code = 0;
const IN_PROGRESS: Code = 7;

/// `ncclUint8`.
const BYTES: c_int = 1;

/// `ncclComm_t`.
type Comm = *mut c_void;

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

/// `NCCL_CONFIG_UNDEF_INT`.
const UNSET: c_int = c_int::MIN;
/// `NCCL_API_MAGIC`.
const MAGIC: u32 = 0xcafe_beef;

/// The functions of the library.
struct Api {
    version: c_int,
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> Code,
    init_rank: unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int, *mut Config) -> Code,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Comm, CUstream) -> Code,
    recv: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Comm, CUstream) -> Code,
    group_start: unsafe extern "C" fn() -> Code,
    group_end: unsafe extern "C" fn() -> Code,
    async_error: unsafe extern "C" fn(Comm, *mut Code) -> Code,
    error_string: unsafe extern "C" fn(Code) -> *const c_char,
    finalize: unsafe extern "C" fn(Comm) -> Code,
    destroy: unsafe extern "C" fn(Comm) -> Code,
    abort: unsafe extern "C" fn(Comm) -> Code,
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
        if code == SUCCESS || code == IN_PROGRESS {
            return Ok(());
        }
        // SAFETY: NCCL has a static text for every code.
        let text = unsafe { CStr::from_ptr((self.error_string)(code)) };
        Err(Error::Nccl { call, reason: text.to_string_lossy().into_owned() })
    }
}

/// A communicator of NCCL, none of whose calls blocks.
pub(crate) struct Nccl {
    api: &'static Api,
    /// Null once it was aborted or destroyed. Calls share it, and its end excludes them.
    comm: RwLock<Comm>,
    control: Arc<dyn Control>,
    timeout: Duration,
}

impl Nccl {
    /// Joins all ranks' communicators. The device's context is that of `stream`.
    pub(crate) fn new(
        control: Arc<dyn Control>,
        [rank, size]: [usize; 2],
        stream: &Stream,
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
        let mut config = Config {
            size: size_of::<Config>(),
            magic: MAGIC,
            version: OLDEST.cast_unsigned(),
            blocking: 0,
            cga_cluster_size: UNSET,
            min_ctas: UNSET,
            max_ctas: UNSET,
            net_name: ptr::null(),
            split_share: UNSET,
            traffic_class: UNSET,
        };
        let _current = stream.device().enter()?;
        let mut comm = ptr::null_mut();
        // SAFETY: the outputs are valid, and the device's context is current.
        let code = unsafe {
            (api.init_rank)(&raw mut comm, size as c_int, id, rank as c_int, &raw mut config)
        };
        let this = Self { api, comm: RwLock::new(comm), control, timeout };
        api.check("ncclCommInitRankConfig", code)?;
        this.wait(operation)?;
        Ok(this)
    }

    /// The communicator, which stays while the guard exists. No call holds it for long.
    fn comm(&self, operation: &str) -> Result<RwLockReadGuard<'_, Comm>, Error> {
        let comm = self.comm.read().unwrap_or_else(PoisonError::into_inner);
        if comm.is_null() {
            let aborted = Failure {
                operation: operation.to_owned(),
                suspect: 0,
                reason: "has aborted NCCL".to_owned(),
            };
            return Err(self.control.failure().unwrap_or(aborted).into());
        }
        Ok(comm)
    }

    /// Takes the communicator out. Null if there is none any more.
    fn take(&self) -> Comm {
        let mut comm = self.comm.write().unwrap_or_else(PoisonError::into_inner);
        mem::replace(&mut *comm, ptr::null_mut())
    }

    /// Waits until NCCL has enqueued what it was asked for.
    fn wait(&self, operation: &str) -> Result<(), Error> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let mut state = SUCCESS;
            let code = {
                let comm = self.comm(operation)?;
                // SAFETY: the communicator exists, and `state` is valid for the write.
                unsafe { (self.api.async_error)(*comm, &raw mut state) }
            };
            self.api.check("ncclCommGetAsyncError", code)?;
            if state != IN_PROGRESS {
                return self.api.check("ncclCommGetAsyncError", state);
            }
            if let Some(failure) = self.control.failure() {
                self.abort();
                return Err(failure.into());
            }
            if Instant::now() >= deadline {
                let reason = format!("did not take part within {} s", self.timeout.as_secs_f32());
                self.control.fail(operation, None, reason);
                continue;
            }
            thread::yield_now();
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
        let operation = crate::communicator::TRANSFER;
        let api = self.api;
        let _current = stream.device().enter()?;
        let _exclusive = stream.exclusive();
        self.control.begin();
        let comm = self.comm(operation)?;
        let at = |address: u64| ptr::with_exposed_provenance_mut::<c_void>(address as usize);
        // SAFETY: a group may begin at any time.
        api.check("ncclGroupStart", unsafe { (api.group_start)() })?;
        let mut enqueued = Ok(());
        for Piece { peer, address, bytes } in sends {
            let (peer, on) = (*peer as c_int, stream.as_raw());
            // SAFETY: the caller's contract.
            let code = unsafe { (api.send)(at(*address), *bytes, BYTES, peer, *comm, on) };
            enqueued = enqueued.and(api.check("ncclSend", code));
        }
        for Piece { peer, address, bytes } in receives {
            let (peer, on) = (*peer as c_int, stream.as_raw());
            // SAFETY: the caller's contract.
            let code = unsafe { (api.recv)(at(*address), *bytes, BYTES, peer, *comm, on) };
            enqueued = enqueued.and(api.check("ncclRecv", code));
        }
        // SAFETY: the group was started, and ends also after a failure within it.
        let ended = api.check("ncclGroupEnd", unsafe { (api.group_end)() });
        drop(comm);
        enqueued.and(ended)?;
        self.wait(operation)
    }

    fn abort(&self) {
        let comm = self.take();
        if !comm.is_null() {
            // SAFETY: it was taken out, so that nobody else uses it.
            _ = unsafe { (self.api.abort)(comm) };
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
        let code = match self.comm("closing NCCL") {
            // SAFETY: the communicator exists, and no work of it is left.
            Ok(comm) => unsafe { (self.api.finalize)(*comm) },
            Err(_) => return,
        };
        // A rank that cannot end in good order ends at once.
        if self.api.check("ncclCommFinalize", code).and(self.wait("closing NCCL")).is_err() {
            return self.abort();
        }
        // SAFETY: it was finalised and taken out.
        _ = unsafe { (self.api.destroy)(self.take()) };
    }
}

// SAFETY: any thread may use a communicator, and the lock keeps its end apart from other calls.
unsafe impl Send for Nccl {}
// SAFETY: as above. Only one thread enqueues at a time: it has the stream's right.
unsafe impl Sync for Nccl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_nccl_gets_one_sentence() {
        if let Err(error) = nccl_version() {
            let text = error.to_string();
            assert!(text.contains("NCCL") && text.ends_with("use another transport"), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
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

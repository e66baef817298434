//! The software device of compute capability 9.0: its own contexts and PTX, and
//! tensor maps.

use std::ffi::{c_uint, c_void};
use std::sync::{Barrier, Mutex};

use cuda_driver::sys::{self, CUresult, CUtensorMap};
use cust::context::{Context, CurrentContext};
use cust::device::{Device, DeviceAttribute};
use cust::error::CudaError;
use cust::launch;
use cust::memory::{CopyDestination, DeviceBuffer, DeviceCopy};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};

/// Loads a box of 32 by 8 at (`x`, `y`), and copies it to `out`.
const KERNEL: &str = "
.version 8.0
.target sm_90a
.address_size 64
.shared .align 128 .b8 tile[1024];
.shared .align 8 .b8 full[8];
.visible .entry load_box(.param .align 64 .b8 map[128], .param .u32 x, .param .u32 y, .param .u64 out)
{
  .reg .pred %p<4>;
  .reg .b32 %r<10>;
  .reg .b64 %rd<10>;
  ld.param.b64 %rd1, [out];
  ld.param.b32 %r1, [x];
  ld.param.b32 %r2, [y];
  mov.b64 %rd2, map;
  cvta.param.u64 %rd2, %rd2;
  mov.b32 %r3, tile;
  mov.b32 %r4, full;
  mov.u32 %r5, %tid.x;
  setp.ne.b32 %p1, %r5, 0;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r4], 1;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 1024;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd2, {%r1, %r2}], [%r4];
READY:
  bar.sync 0;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0;
  @!%p2 bra WAIT;
  shl.b32 %r6, %r5, 2;
  add.s32 %r7, %r3, %r6;
  ld.shared.b32 %r8, [%r7];
  cvt.u64.u32 %rd3, %r6;
  add.s64 %rd3, %rd1, %rd3;
  st.global.b32 [%rd3], %r8;
  ret;
}
";

/// `cust` has no such parameter.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Map(CUtensorMap);

// SAFETY: plain bytes without a pointer of the host.
unsafe impl DeviceCopy for Map {}

/// The primary contexts are shared by all tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn open(ordinal: u32) -> (Device, Context) {
    cust::init(cust::CudaFlags::empty()).unwrap();
    let device = Device::get_device(ordinal).unwrap();
    (device, Context::new(device).unwrap())
}

/// What `cuTensorMapEncodeTiled` is given.
#[derive(Clone, Copy)]
struct Tiled {
    data_type: c_uint,
    rank: c_uint,
    address: u64,
    dims: [u64; 5],
    strides: [u64; 4],
    boxes: [c_uint; 5],
    steps: [c_uint; 5],
    interleave: c_uint,
    swizzle: c_uint,
    promotion: c_uint,
    fill: c_uint,
}

impl Tiled {
    /// 60 columns and 32 rows of f32, 256 bytes apart.
    fn new(address: u64) -> Tiled {
        Tiled {
            data_type: 7,
            rank: 2,
            address,
            dims: [60, 32, 1, 1, 1],
            strides: [256, 8192, 8192, 8192],
            boxes: [32, 8, 1, 1, 1],
            steps: [1; 5],
            interleave: 0,
            swizzle: 0,
            promotion: 2,
            fill: 0,
        }
    }

    fn encode(&self) -> Result<CUtensorMap, CUresult> {
        let mut map = CUtensorMap::default();
        // SAFETY: the place and the lists outlive the call and are long enough.
        unsafe { self.encode_at(&raw mut map) }.ok().map(|()| map)
    }

    /// # Safety
    /// `place` is null or may be written.
    unsafe fn encode_at(&self, place: *mut CUtensorMap) -> CUresult {
        // SAFETY: the caller's contract; the lists outlive the call and are long enough.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                place,
                self.data_type,
                self.rank,
                self.address as *mut c_void,
                self.dims.as_ptr(),
                self.strides.as_ptr(),
                self.boxes.as_ptr(),
                self.steps.as_ptr(),
                self.interleave,
                self.swizzle,
                self.promotion,
                self.fill,
            )
        }
    }
}

#[test]
fn two_models_with_contexts_of_their_own() {
    let _one = ONE_AT_A_TIME.lock();
    let (old, old_context) = open(cuda_driver::soft_ordinal());
    let (new, new_context) = open(cuda_driver::soft_sm90_ordinal());
    assert_ne!(old_context.as_raw(), new_context.as_raw());
    assert_eq!(CurrentContext::get_device().unwrap(), new);
    assert_eq!(new.get_attribute(DeviceAttribute::ComputeCapabilityMajor).unwrap(), 9);
    assert_eq!(new.get_attribute(DeviceAttribute::ComputeCapabilityMinor).unwrap(), 0);
    assert_eq!(new.name().unwrap(), "Software CUDA device (sm_90a)");
    for (device, maps) in [(old, 0), (new, 1)] {
        let mut value = -1;
        let attribute = sys::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED;
        let device = sys::CUdevice(device.as_raw());
        // SAFETY: `value` outlives the call.
        unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) }.ok().unwrap();
        assert_eq!(value, maps);
    }

    // PTX for sm_90a loads on the one it is for, PTX for sm_80 on both.
    let load = |target: &str| Module::from_ptx(KERNEL.replace("sm_90a", target), &[]).map(|_| ());
    assert_eq!(load("sm_90a"), Ok(()));
    assert!(load("sm_100a").is_err() && load("sm_80a").is_err());
    let plain = include_str!("kernels.ptx");
    assert!(Module::from_ptx(plain, &[]).is_ok());
    CurrentContext::set_current(&old_context).unwrap();
    assert_eq!(CurrentContext::get_device().unwrap(), old);
    assert!(Module::from_ptx(plain, &[]).is_ok());
    assert!(load("sm_90a").is_err());
    let text = cuda_driver::last_error().unwrap();
    assert!(text.contains("for sm_90a") && text.contains("capability 8.0"), "{text}");

    // They have one memory.
    let buffer = DeviceBuffer::from_slice(&[1_u32, 2]).unwrap();
    CurrentContext::set_current(&new_context).unwrap();
    assert_eq!(buffer.as_host_vec().unwrap(), [1, 2]);
}

/// Two threads for each model launch side by side, and leave at different times.
#[test]
fn both_models_from_several_threads() {
    let _one = ONE_AT_A_TIME.lock();
    let ordinals = [cuda_driver::soft_ordinal(), cuda_driver::soft_sm90_ordinal()];
    let add_to_itself = |ordinal: u32, launches: usize, ready: &Barrier| {
        let (device, context) = open(ordinal);
        ready.wait();
        let module = Module::from_ptx(include_str!("kernels.ptx"), &[]).unwrap();
        let stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();
        let values = DeviceBuffer::from_slice(&[ordinal as f32 + 1.0; 100]).unwrap();
        for _ in 0..launches {
            let at = values.as_device_ptr();
            // SAFETY: the buffer has 100 elements.
            unsafe { launch!(module.vector_add<<<4, 32, 0, stream>>>(at, at, at, 100_u32)) }
                .unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(CurrentContext::get_device().unwrap(), device);
        (context, values, (ordinal as f32 + 1.0) * (1 << launches) as f32)
    };
    let ready = Barrier::new(4);
    let results = std::thread::scope(|scope| {
        let start = |(ordinal, launches)| {
            let (run, ready) = (&add_to_itself, &ready);
            scope.spawn(move || run(ordinal, launches, ready))
        };
        let runs = [(ordinals[0], 1), (ordinals[0], 9), (ordinals[1], 3), (ordinals[1], 8)];
        runs.map(start).map(|thread| thread.join().unwrap())
    });
    for (context, values, expected) in results {
        CurrentContext::set_current(&context).unwrap();
        assert_eq!(values.as_host_vec().unwrap(), [expected; 100]);
    }
}

#[test]
fn a_box_through_a_tensor_map() {
    let _one = ONE_AT_A_TIME.lock();
    let (_device, _context) = open(cuda_driver::soft_sm90_ordinal());
    let values: Vec<f32> = (0..64 * 32).map(|i| i as f32).collect();
    let source = DeviceBuffer::from_slice(&values).unwrap();
    let out = DeviceBuffer::from_slice(&[0_f32; 256]).unwrap();
    let map = Tiled::new(source.as_device_ptr().as_raw()).encode().unwrap();
    let module = Module::from_ptx(KERNEL, &[]).unwrap();
    let stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();
    let (x, y) = (40, -2);
    // SAFETY: the kernel writes the 256 elements of `out`, one per thread.
    unsafe { launch!(module.load_box<<<1, 256, 0, stream>>>(Map(map), x, y, out.as_device_ptr())) }
        .unwrap();
    stream.synchronize().unwrap();
    let mut got = [0.0; 256];
    out.copy_to(&mut got).unwrap();
    for (i, got) in (0..).zip(got) {
        let (column, row) = (x + i % 32, y + i / 32);
        let inside = row >= 0 && column < 60;
        assert_eq!(got, if inside { (row * 64 + column) as f32 } else { 0.0 }, "{i}");
    }
}

#[test]
fn what_the_encoder_refuses() {
    let _one = ONE_AT_A_TIME.lock();
    let (_device, _context) = open(cuda_driver::soft_sm90_ordinal());
    let buffer = DeviceBuffer::from_slice(&[0_f32; 1 << 16]).unwrap();
    let good = Tiled::new(buffer.as_device_ptr().as_raw());
    for data_type in (2..=9).chain([11]) {
        assert!(Tiled { data_type, ..good }.encode().is_ok(), "{data_type}");
    }
    type Change = fn(&mut Tiled);
    let invalid: [(Change, &str); 17] = [
        (|t| t.address += 4, "not a multiple of 16"),
        (|t| t.strides[0] = 20, "multiple of 16 below 2^40"),
        (|t| t.strides[0] = 1 << 40, "multiple of 16 below 2^40"),
        (|t| t.dims[1] = 0, "1 to 2^32"),
        (|t| t.dims[0] = (1 << 32) + 1, "1 to 2^32"),
        (|t| t.boxes[1] = 257, "1 to 256"),
        (|t| t.boxes[0] = 0, "1 to 256"),
        (|t| t.boxes[0] = 3, "12 bytes; it must be a multiple of 16"),
        (|t| (t.boxes[0], t.swizzle) = (64, 3), "256 bytes, but the swizzle allows at most 128"),
        (|t| t.steps[0] = 0, "between 1 and 8"),
        (|t| t.steps[1] = 9, "between 1 and 8"),
        (|t| t.rank = 0, "1 to 5 dimensions"),
        (|t| t.rank = 6, "1 to 5 dimensions"),
        (|t| t.swizzle = 9, "no swizzle"),
        (|t| t.fill = 2, "no fill"),
        (|t| (t.data_type, t.fill) = (2, 1), "fill with zeros"),
        (|t| t.interleave = 3, "no data type, interleave or promotion"),
    ];
    let unsupported: [(Change, &str); 4] = [
        (|t| t.data_type = 10, "_FTZ"),
        (|t| t.interleave = 1, "interleaved"),
        (|t| t.steps[0] = 2, "element strides"),
        (|t| (t.boxes[0], t.swizzle) = (16, 3), "swizzles only rows of 128"),
    ];
    let invalid = invalid.map(|(f, text)| (f, text, CUresult::CUDA_ERROR_INVALID_VALUE));
    let unsupported = unsupported.map(|(f, text)| (f, text, CUresult::CUDA_ERROR_NOT_SUPPORTED));
    for (change, text, code) in invalid.into_iter().chain(unsupported) {
        let mut tiled = good;
        change(&mut tiled);
        assert_eq!(tiled.encode().err(), Some(code), "{text}");
        let said = cuda_driver::last_error().unwrap();
        assert!(said.contains(text), "{said}");
    }

    let mut place = [CUtensorMap::default(); 2];
    let off = place.as_mut_ptr().cast::<u8>().wrapping_add(32).cast();
    // SAFETY: the place may be written, but is not aligned, which is refused.
    let code = unsafe { good.encode_at(off) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    // SAFETY: null is refused.
    let code = unsafe { good.encode_at(std::ptr::null_mut()) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);

    let (_device, _context) = open(cuda_driver::soft_ordinal());
    assert_eq!(good.encode().err(), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    assert!(cuda_driver::last_error().unwrap().contains("use the one of 9.0"));
}

#[test]
fn clusters_that_a_kernel_and_a_launch_ask_for() {
    let _one = ONE_AT_A_TIME.lock();
    let (_device, _context) = open(cuda_driver::soft_sm90_ordinal());
    let kernel =
        |name: &str, directives: &str| format!(".entry {name}()\n{directives}\n{{ ret; }}\n");
    let text = ".version 7.8\n.target sm_90\n.address_size 64\n".to_owned()
        + &kernel("both", ".explicitcluster\n.reqnctapercluster 2, 1, 1")
        + &kernel("explicit", ".explicitcluster")
        + &kernel("most", ".maxclusterrank 4")
        + &kernel("any", "");
    let module = Module::from_ptx(text, &[]).unwrap();
    let stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();
    let get = |function: sys::CUfunction, attribute| {
        let mut value = -1;
        // SAFETY: the function is alive, and so is `value`.
        unsafe { sys::cuFuncGetAttribute(&mut value, attribute, function) }.ok().unwrap();
        value
    };
    let launch = |function, cluster: u8| {
        let mut value = [0; 64];
        for axis in [0, 4, 8] {
            value[axis] = if axis == 0 { cluster } else { 1 };
        }
        let id = sys::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let config = sys::CUlaunchConfig {
            grid_dim_x: 16,
            grid_dim_y: 1,
            grid_dim_z: 1,
            block_dim_x: 32,
            block_dim_y: 1,
            block_dim_z: 1,
            shared_mem_bytes: 0,
            stream: sys::CUstream::NULL,
            attrs: &mut attribute,
            num_attrs: (cluster > 0).into(),
        };
        let none = std::ptr::null_mut();
        // SAFETY: the kernels take no parameters, and the attribute outlives the call.
        unsafe { sys::cuLaunchKernelEx(&config, function, none, none) }.ok()
    };
    let refused = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    // What each attribute says of it, and the clusters that it may be launched with; 0 for none.
    for (name, attributes, clusters) in [
        ("both", [1, 2, 1, 1], &[0, 2][..]),
        ("explicit", [1, 0, 0, 0], &[1, 2, 8]),
        ("most", [0; 4], &[0, 1, 4]),
        ("any", [0; 4], &[0, 1, 8]),
    ] {
        let function = module.get_function(name).unwrap();
        let raw = sys::CUfunction::from(function.to_raw());
        let first = sys::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET;
        assert_eq!([0, 1, 2, 3].map(|n| get(raw, first + n)), attributes, "{name}");
        for &cluster in clusters {
            assert_eq!(launch(raw, cluster), Ok(()), "{name} {cluster}");
        }
        let non_portable = sys::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        assert!(launch(raw, 16).is_err(), "{name}");
        // SAFETY: the function is alive.
        unsafe { sys::cuFuncSetAttribute(raw, non_portable, 1) }.ok().unwrap();
        assert_eq!(get(raw, non_portable), 1);
        assert_eq!(launch(raw, 16).is_ok(), ["explicit", "any"].contains(&name), "{name}");
    }
    // SAFETY: the kernel takes no parameters.
    let without = unsafe { launch!(module.explicit<<<16, 32, 0, stream>>>()) };
    assert_eq!(without, Err(CudaError::InvalidValue));
    let said = cuda_driver::last_error().unwrap();
    assert!(said.contains("needs an explicit cluster size"), "{said}");
    let explicit = module.get_function("explicit").unwrap();
    assert_eq!(launch(sys::CUfunction::from(explicit.to_raw()), 0), refused);
}

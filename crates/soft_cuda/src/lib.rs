//! A software CUDA device: it loads PTX and runs it on the CPU.
//!
//! It is a backend of its own, not a mock. A kernel computes the same bits
//! here as on a GPU wherever PTX defines them, and where a GPU would corrupt
//! memory or wait for ever, a launch here ends with a [`Fault`] that names the
//! kernel, the PTX line, the thread and the allocation. A loop without end is
//! one, too, if [`Config::instruction_budget`] says after how long.
//!
//! ```
//! use soft_cuda::{Config, Device, LaunchConfig};
//!
//! let device = Device::new(Config::default());
//! let module = device.load(
//!     ".version 8.0 .target sm_80 .address_size 64
//!      .entry triple(.param .u64 data) {
//!        .reg .b32 %r<3>; .reg .b64 %rd<4>;
//!        ld.param.b64 %rd1, [data];
//!        mov.u32 %r1, %tid.x;
//!        mul.wide.u32 %rd2, %r1, 4;
//!        add.s64 %rd3, %rd1, %rd2;
//!        mul.lo.s32 %r2, %r1, 3;
//!        st.global.b32 [%rd3], %r2;
//!        ret;
//!      }",
//! )?;
//! let kernel = module.kernel("triple").expect("the module has it");
//! let data = device.alloc(64 * 4)?;
//! let config = LaunchConfig { grid: [1, 1, 1], block: [64, 1, 1], dynamic_shared: 0 };
//! device.launch(&kernel, config, &data.to_ne_bytes())?;
//! let mut last = [0; 4];
//! device.read(data + 63 * 4, &mut last)?;
//! assert_eq!(u32::from_ne_bytes(last), 189);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A tour
//!
//! - [`ptx_syntax`] turns text into a syntax tree. It knows PTX's grammar and nothing
//!   about what instructions mean.
//! - `lower` turns a kernel of that tree into decoded code, once, when someone asks for it:
//!   `index` has the module's names and `scopes` the kernel's, `layout` and `shared` place
//!   its variables, `names` resolves operands, `body` goes through the statements,
//!   `alu`, `logic`, `compare`, `convert`, `memory`, `atomic`, `copy`, `bulk`, `matrix`,
//!   `wgmma`, `call` and `control` turn instructions into operations over virtual registers (`ir`),
//!   `graph` finds where divergent lanes reconverge and lets registers share slots,
//!   `encode` writes the flat result. The functions that a kernel may call are decoded with it.
//! - `exec` runs it. An operation is a function pointer and the places of its
//!   operands (`op`), and works on all 32 lanes of a warp (`lanes`). The functions
//!   are written once, as plain loops; those that kernels live on are compiled for
//!   AVX2 and AVX-512, the others once, in little code. `address` finds the memory behind an
//!   address. `warp` keeps track of divergent lanes and `call` of their calls, `block` of
//!   warps, `print` of what is printed, `mma` and `wgmma` of matrices, `named` of
//!   barriers, `phases` of mbarriers, `groups` of copies in flight, `order` of what
//!   happens before what.
//! - Checks on request: `lower`'s `check` and `defined` put operations around accesses
//!   (`check_access`, `check_register`); `checker` holds what they know of a block: who knows what
//!   (`knowledge`, of `clock`s), who accessed what (`shadow` for shared, `global` for device
//!   memory).
//! - `memory` is the address space; `module` and `kernel` are what is loaded, `launch`
//!   spreads the blocks of a launch over the host's cores, `device` ties it all together.
//!
//! # What holds
//!
//! - A kernel with an instruction or a modifier that is not implemented is refused when it is
//!   asked for, by name and line. None is ever skipped.
//! - All instruction-set paths give the same bits.
//! - Every access is checked: against the live allocations, against the
//!   block's shared memory, and for alignment. Addresses are never reused, and
//!   no device address is a valid host or GPU address.
//! - PTX says that f64 keeps NaN payloads, but not whose, and leaves the NaN of f32 open. A result
//!   that is NaN has the bits of an H200, except in the rows with a star, which were not compared
//!   with a GPU. "Quiet" means that the highest bit of the fraction is set.
//!
//!   | operation | NaN |
//!   |---|---|
//!   | any of f32 | `7fffffff` |
//!   | f64 `add`, `sub`, `mul` | the second operand if it is NaN, else the first, quiet |
//!   | f64 `div` | the first operand if it is NaN, else the second, quiet |
//!   | f64 `fma` | the second operand, else the third, else the first, quiet |
//!   | f64 `rcp`, `sqrt` | the operand, quiet |
//!   | f64 `rsqrt` (*) | the operand, quiet |
//!   | `rcp.approx.ftz.f64`, `rsqrt.approx.ftz.f64` | `7fffffff00000000`, as PTX says |
//!   | these without an operand that is NaN | `fff8000000000000` |
//!   | other operations of f64, as `min`, `max`, `abs`, `neg` (*) | `fff8000000000000` |
//!   | f64 `.add` of device memory: `atom`, `red`, bulk | what is added, else what was there, unchanged |
//!   | f64 `.add` of shared memory (*) | what is added, else what was there, unchanged |
//!   | conversions from and to f64, from bf16 to f32, by `.rna` | the operand's sign and payload |
//!   | other conversions | the one NaN of their type |
//!
//! - `fma` rounds once. `.approx` operations are computed in f64 and rounded once: within the error
//!   that PTX promises, but not bit-equal to a GPU. With `.ftz.f64` they ignore the lower 32 bits
//!   of the operand and clear those of the result, as PTX says.
//! - Integer division by zero gives all ones, the remainder the dividend; PTX
//!   leaves both open.
//! - Shared and local memory start out as NaN in every block, so that reading
//!   them too early is seen. Device memory starts out as zeros. Registers that
//!   were never written read as zero.
//! - `cp.async`, and bulk copies to global memory, copy at the wait, for a group or for the
//!   mbarrier that they arrive at: a kernel that reads the result without one reads old data, every
//!   time. Bulk copies that nobody waits for, committed or not, copy when their cluster of blocks
//!   ends.
//! - Bulk reductions (`cp.reduce.async.bulk`, also `.tensor`) happen when copies would. Each
//!   element is one relaxed atomic. With a tensor map the elements may have the types that
//!   `cp.reduce.async.bulk` accepts for the operation, and `.add` also accepts signed 64-bit ones.
//!   Others are a fault. PTX does not say what a GPU does with them.
//! - Compilers make an atomic of 8 or 16 bits from `atom.cas`, `.and`, `.or` or `.xor` of the word
//!   around it, whose address they round down (`and.b64 a, x, -4`). Such a word may reach over the
//!   end of an allocation, and so may that of the load in front of the `cas`. The byte at `x` must
//!   be inside, and the bytes that the operands may change.
//! - An atomic on local memory is a fault: PTX leaves it undefined. PTX does not define generic
//!   loads and stores with an ordering there either; here they are plain ones.
//! - Races between bulk copies to shared memory and accesses of the same bytes
//!   are faults: every access of a thread must come after a wait for the
//!   copy's mbarrier, and every copy after the accesses of what it overwrites,
//!   by way of mbarriers, barriers or fences, through other threads as well. No
//!   kernel that is right is reported. Races between accesses of threads are
//!   found on request, see below.
//! - An `mbarrier` that is waited for in a loop costs no time here: the loop runs
//!   on when a phase is complete. If nobody in the block can go on, that is a
//!   deadlock, and the fault says what each wait lacks.
//! - A module loads if its declarations can be read. What is wrong in a function, or not known
//!   there, is an error of the kernels that may call it: [`Module::kernel`].
//! - A kernel may use what its `.target` has, and as many bytes of parameters as that
//!   and its `.version` allow. Which target a device runs is for its user to say: see
//!   [`Module::target`].
//! - A tensor core gives the bits of an H200 (`exec`'s `tensor_core`), also for compute capability
//!   8.0, where older chips keep fewer of them. `wgmma` computes at the wait, which
//!   ends for all warps of a warpgroup at one time: a missing wait, and a tile that is overwritten
//!   too early, are seen every time.
//! - At a matrix instruction, and at others that a whole warp executes, lanes that came apart wait
//!   for each other. A lane that exits first, or goes around it, is a fault.
//! - Lanes that diverged reconverge at the immediate post-dominator; in a loop that nothing
//!   but exits leaves, at its header at the latest. A barrier waits for every thread that
//!   has not exited. Lanes may wait for each other in loops, and warps of a block for
//!   each other.
//! - Of several blocks that fault, the first is reported, unless it would fault only
//!   after some million instructions more: a block that never ends does not hide
//!   another one's fault. Clusters of blocks share nothing but device memory, so without races
//!   between them launches are deterministic otherwise.
//! - The blocks of a cluster, up to [`MAX_CLUSTER`], run together, on one host thread: they may
//!   wait for each other. To access the shared memory of a block that has exited is a fault.
//! - Loading takes time and memory in proportion to the text. A kernel is decoded when it is asked
//!   for, in time that is in proportion to it and the functions that it may call, but for registers
//!   that live across many labels; they have a limit, far from what compilers write.
//! - A thread's stack is as deep as its calls, where that is known before. Where functions call
//!   themselves or are called by their address, it has as many bytes as the launch says, and at
//!   least what the calls that are known take ([`LaunchOptions::stack_bytes`]).
//! - `vprintf` prints to stdout when the launch is over, block by block ([`Device::print_to`]).
//!   A trap after a text with `panicked at` is a [`FaultKind::Panic`] with that text.
//! - Shared memory belongs to one host thread at a time and is accessed
//!   plainly. Device memory is accessed by relaxed atomics, element by element,
//!   so that racing kernels are not undefined behaviour on the host; atomics
//!   of different sizes may meet, which Rust's memory model leaves open and
//!   every host the crate runs on defines.
//!
//! # What is checked on request
//!
//! [`Config::checks`] turns on what costs time; without it nothing is slower. What is found is a
//! [`Fault`], which names both instructions where there are two, and their lines of source where
//! the PTX has `.loc`.
//!
//! - [`Checks::races`]: every access of shared and device memory is compared with those before it,
//!   by vector clocks with one component per thread, per thread's `cp.async` copies, and per
//!   mbarrier. What orders threads is what PTX says does: barriers, named barriers and
//!   `bar.warp.sync`, mbarriers, fences with strong accesses, in their scopes. So a race is found
//!   whichever access comes first here. Of many warps that read a word of device memory, the last
//!   two and up to 30 more are kept: a race with another one is missed where the writer has met
//!   those alone. A bulk copy to shared memory is taken to have read its source in device memory
//!   when it is issued: a write behind that, but before the phase of its mbarrier, is not found.
//!   Fences, and what acquires or releases, order threads of the cluster if their scope is `.cta`
//!   or `.cluster`; strong accesses of scope `.cluster` are taken to be of scope `.gpu`, so that
//!   two of different clusters do not race. Of a block of a cluster: that what others do in its
//!   shared memory comes before it exits. An `atom.cas`, `.and`, `.or` or `.xor` of up to 32 bits
//!   counts as one on the byte that its address was rounded down from, or else the first byte, and
//!   on the bytes that its operands may change. A strong load at the address of a `cas` of the same
//!   function counts as a load of the former byte, and so does a weak one if the address was
//!   rounded down. Shuffles and votes order nothing, and neither does a wait for a product: it says
//!   to a warp that its own part is complete. Before others overwrite the tiles, every warp has to
//!   arrive. Launches and [copies](InStream) race with those of other streams, unless
//!   [`Device::record`] and [`Device::wait`], [`Device::synchronize_with`] or
//!   [`StreamOrder::behind`] order the two. A copy that races returns [`MemoryError::Race`]. It is
//!   not in the [`Findings`].
//!   Bulk copies and `wgmma` go through the async proxy: what a thread wrote to shared
//!   memory they see behind a `fence.proxy.async`, and an mbarrier that was initialised, too. A
//!   tile has to stay until the product that reads it is complete.
//! - [`Checks::memory`]: reads of device, shared and local memory and of registers that nobody
//!   wrote, by byte or by the smallest access of the kernel; writes between shared variables, which
//!   lie apart then; `ld.global.nc` of what the same launch writes.
//! - [`Checks::sync`]: member masks without the lane itself, with lanes that give another one or
//!   that the block does not have; shuffles from a lane that does not take part; two counts for a
//!   barrier, or more threads than it counts; an mbarrier that is initialised twice; a wait for
//!   one whose answer nothing reads; a bulk copy that may still read the shared memory of a block
//!   that ends; `setmaxnreg` and `wgmma` by part of a warpgroup; registers of a
//!   product in flight that something accesses, or that something accessed since the last
//!   `wgmma.fence`. Waits say "not yet" once
//!   before they succeed, as they may.
//!
//! - [`Checks::proxies`]: bulk copies over what threads have read, without a fence between the two.
//!
//! [`Config::schedule`] runs warps and blocks in other orders. Blocks that may communicate, by
//! atomics or other strong accesses of device memory, always start in the order of their indices.
//!
//! # What is not here
//!
//! Simulated time, caches, warp scheduling as a GPU does it: nothing here
//! predicts speed. Waiting for a block that has not started yet: blocks run to
//! their end in order of their index, as many at a time as there are cores.
//! What of the PTX ISA is missing is listed in `ISA.md`. Of the driver's functions there are
//! `vprintf`, `__assertfail`, `malloc` and `free`. A grid starts when the one in front of it has
//! ended: what `griddepcontrol` does is known to the checks alone ([`LaunchOptions::early`]).
//! Tensor maps have elements of f16, bf16, f32, TF32, f64, and integers of 32 and 64 bits, rows as
//! long as their swizzle, and no interleaving. NaN as the fill of f64 is a guess.

mod checks;
mod device;
mod earlier;
mod error;
mod exec;
mod fault;
mod fault_facts;
mod findings;
mod globals;
mod heap;
mod kernel;
mod launch;
mod launch_error;
mod lower;
mod memory;
mod module;
mod printer;
mod space;
mod streams;
mod tensor;
mod written;

use ptx_syntax as ptx;

pub use checks::{Checks, Schedule, UnknownSetting};
pub use device::{Config, Device, InStream, Isa, LaunchOptions, Progress};
pub use error::{KernelError, LoadError, MemoryCall, MemoryError, Place};
pub use fault::{Access, AddressSpace, Earlier, Fault, FaultKind, Waiting};
pub use findings::{Finding, Findings};
pub use heap::Heap;
pub use kernel::{
    Kernel, LaunchConfig, MAX_BLOCK, MAX_CLUSTER, MAX_GRID, MAX_SHARED, MAX_STATIC_SHARED,
    MAX_THREADS_PER_BLOCK, Param, REGISTERS_PER_SM,
};
pub use launch::LaunchReport;
pub use launch_error::{InvalidLaunch, LaunchError};
pub use module::Module;
pub use ptx_syntax::source::Place as SourcePlace;
pub use streams::{Moment, StreamOrder};
pub use tensor::{Fill, Swizzle, TensorElement, TensorMap, TensorMapError};

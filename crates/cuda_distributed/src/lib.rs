//! Matrix products on several devices: GPUs over NCCL or NVLink copies, or software devices.
//!
//! All ranks of a [`World`] make the same calls. A [`DistributedMatrix`] has a part on each of
//! them, and [`gemm`] multiplies such matrices with all that [`cuda_gemm::gemm`] has: precisions,
//! transposes, alpha, beta and epilogues.
//!
//! ```
//! use cuda_distributed::{Distribution, DistributedMatrix, Error, Settings, World, gemm};
//! use cuda_gemm::{Device, DeviceChoice, Matrix};
//!
//! let devices = [0, 1].map(|i| Device::open(DeviceChoice::SoftOrdinal(i)).unwrap());
//! let a = Matrix::from_fn(3, 4, |row, col| (row + col) as f32);
//! let products = World::run(&devices, &Settings::default(), |world| {
//!     let rows = DistributedMatrix::<f32>::from_host(world.clone(), &a, Distribution::Rows)?;
//!     let mut c = DistributedMatrix::<f32>::zeros(world, [3, 3], Distribution::Columns)?;
//!     // A travels; its transpose, spread by columns, stays.
//!     gemm(&rows, rows.t()).run(&mut c)?;
//!     c.to_host()
//! });
//! for c in products {
//!     assert_eq!(c?.as_slice(), [14., 20., 26., 20., 30., 40., 26., 40., 54.]);
//! }
//! # Ok::<(), Error>(())
//! ```
//!
//! # Schedules
//!
//! | A, B | C | schedule |
//! |---|---|---|
//! | rows, replicated | rows | no traffic |
//! | rows, columns | columns | [`Schedule::Gather`]: A travels (column-parallel) |
//! | rows, rows | rows | [`Schedule::Gather`]: B travels |
//! | columns, rows | any | [`Schedule::Reduce`]: partial sums travel, in f32 (row-parallel) |
//! | grid, grid | grid | [`Schedule::Gather`]: blocks of A and B travel (SUMMA) |
//!
//! Any other combination also works. A rank multiplies what it has while the rest travels.
//!
//! A panel is a part of a rank's C, cut along its longer side, whose partial sums travel together.
//! Others' sums are added in rank order; a rank's own comes first if there is one panel, and last if
//! there are several. Equal schedules, panels and kernels give equal bits.
//!
//! # Transport
//!
//! There is one operation, a set of messages between ranks ([`Transport`]). NCCL is loaded at run
//! time, and never linked. In one process, copy engines do it without any multiprocessor.
//!
//! # Why a crate of its own
//!
//! It opens sockets, starts threads and loads NCCL. A program with one GPU needs none of that.

mod communicator;
mod distribution;
mod driver;
mod error;
mod hub;
mod launcher;
mod link;
mod matrix;
mod measure_link;
mod nccl;
mod product;
mod socket;
mod world;

pub use distribution::Distribution;
pub use error::{Error, Failure};
pub use link::Link;
pub use matrix::DistributedMatrix;
pub use nccl::nccl_version;
pub use product::{DistributedRef, Multiply, Product, Schedule, gemm};
pub use socket::Rendezvous;
pub use world::{Settings, Transport, World};

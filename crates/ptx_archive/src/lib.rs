//! Keeps the kernels of a PTX text compressed, each by itself.
//!
//! - [`pack`], with the feature of that name, makes an archive. [`Archive`] reads it.
//! - [`digest()`] tells whether two builds of a kernel are the same.
//!
//! ```
//! # #[cfg(feature = "pack")] {
//! use ptx_archive::{Archive, digest, pack};
//!
//! let text = ".version 8.0 .target sm_80 .address_size 64
//!             .entry first() { mov.u32 %r1, %tid.x; ret; }
//!             .entry second() { ret; }";
//! let bytes = pack(text, &Archive::default())?;
//! let archive = Archive::read(&bytes)?;
//! assert!(archive.names().eq(["first", "second"]));
//! assert_eq!(archive.kernel("second")?, ptx_syntax::extract(text, "second"));
//! assert_eq!(archive.digest("second"), digest(text, "second").as_deref());
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```

mod archive;
mod digest;

pub use archive::Archive;
#[cfg(feature = "pack")]
pub use archive::pack;
pub use digest::{digest, digests};

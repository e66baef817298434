//! Digests of this program's PTX, one per entry point. An edit invalidates only the measurements of
//! what it changes.

use std::collections::BTreeMap;

use kernels_gpu::abi::KernelDescriptor;

use crate::ptx;

/// Entry points that every table is measured with. They show the costs of launches and copies.
pub(super) const OF_EVERY_TABLE: [&str; 3] = ["naive", "stage_operands", "peak_copy"];

/// The digests of what every table is measured with.
pub(super) fn of_every_table(capability: (u32, u32)) -> BTreeMap<String, String> {
    OF_EVERY_TABLE.into_iter().filter_map(|name| digest(capability, name)).collect()
}

/// The digests of a kernel's entry points. A kernel for 16-bit operands has the digest for `bf16`
/// as the operands lie. Its other entry points share that source.
pub(super) fn of_kernel(
    capability: (u32, u32),
    kernel: &KernelDescriptor,
) -> impl Iterator<Item = (String, String)> {
    entry_points(kernel).filter_map(move |name| digest(capability, name))
}

pub(super) fn digest(capability: (u32, u32), name: &str) -> Option<(String, String)> {
    Some((name.to_owned(), ptx::for_capability(capability).digest(name)?.to_owned()))
}

pub(super) fn entry_points(
    kernel: &KernelDescriptor,
) -> impl Iterator<Item = &'static str> + use<> {
    [Some(kernel.name()), kernel.unaligned().map(|other| other.name)].into_iter().flatten()
}

//! Digests of the PTX in this program, one for each entry point, so that an edit condemns no more
//! than what it changes.

use std::collections::BTreeMap;

use kernels_gpu::abi::KernelDescriptor;

use crate::ptx;

/// Entry points that every table is measured with: they tell what launches and copies take.
pub(super) const OF_EVERY_TABLE: [&str; 3] = ["naive", "stage_operands", "peak_copy"];

/// The digests of what every table is measured with.
pub(super) fn of_every_table(capability: (u32, u32)) -> BTreeMap<String, String> {
    OF_EVERY_TABLE.into_iter().filter_map(|name| digest(capability, name)).collect()
}

/// The digests of a kernel's entry points; of one for 16-bit operands that for `bf16` as they lie, of
/// whose source the others are.
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

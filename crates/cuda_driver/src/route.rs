//! Which device a call goes to.

use crate::arg::Side;
use crate::gpu;
use crate::last_error::explain;
use crate::stack::{self, Slot};
use crate::types::CUresult;

/// Where a call goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Gpu,
    Soft,
}

/// Where a call with these arguments goes.
///
/// A handle that is not the software device's, on a machine without a GPU, is
/// nobody's: the software device then answers that it does not know it.
pub(crate) fn target(arguments: &[Side]) -> Result<Target, CUresult> {
    let soft = arguments.contains(&Side::Soft);
    let gpu = arguments.contains(&Side::Gpu);
    match (soft, gpu) {
        (true, true) => {
            explain(
                "a call mixes a GPU and the software device; copy through host memory instead"
                    .into(),
            );
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
        (true, false) => Ok(Target::Soft),
        (false, true) => Ok(gpu_if_available()),
        (false, false) => Ok(current()),
    }
}

fn gpu_if_available() -> Target {
    if gpu::is_available() { Target::Gpu } else { Target::Soft }
}

/// Where calls without a handle go. With nothing on the stack the driver is asked
/// first: a library may have made a context current behind our back.
fn current() -> Target {
    match stack::top() {
        Some(Slot::Soft(_)) => Target::Soft,
        Some(Slot::Driver) => Target::Gpu,
        None => gpu_if_available(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last_error::last_error;

    #[test]
    fn mixed_calls_are_refused() {
        assert_eq!(
            target(&[Side::Soft, Side::Any, Side::Gpu]),
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        );
        assert!(last_error().is_some_and(|text| text.contains("host memory")));
        assert_eq!(target(&[Side::Any, Side::Soft]), Ok(Target::Soft));
    }
}

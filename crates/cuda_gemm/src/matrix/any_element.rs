//! Element types that are values.

/// In place of a type of elements: the type is a value, [`Element`](crate::Element).
///
/// For programs that learn it at run time.
///
/// ```
/// use cuda_gemm::{AnyMatrix, Device, DeviceChoice, Element, Layout, Matrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// for element in Element::ALL {
///     let mut matrix = AnyMatrix::zeros_of(&device, element, [1, 2], Layout::dense(2))?;
///     matrix.upload(&Matrix::from_vec(1, 2, vec![0.5, 257.0]))?;
///     assert_eq!(matrix.download()?.at(0, 1), element.round(257.0));
/// }
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Debug)]
pub enum AnyElement {}

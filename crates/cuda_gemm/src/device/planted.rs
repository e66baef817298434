//! Wrong kernels in place of embedded ones, for tests.

use std::cell::Cell;

use kernels_gpu::abi::KernelDescriptor;

use super::Device;

thread_local! {
    static WRONG: Cell<Option<&'static KernelDescriptor>> = const { Cell::new(None) };
}

/// Makes a kernel store nothing, in all that this thread loads from now on.
///
/// Other threads keep the embedded kernel. The end of the value takes the bug back.
pub(crate) struct Planted(());

impl Planted {
    pub(crate) fn in_kernel(kernel: &'static KernelDescriptor) -> Self {
        WRONG.set(Some(kernel));
        Self(())
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        WRONG.set(None);
    }
}

/// The PTX of a wrong kernel, if this entry point is to be one.
pub(super) fn text(device: &Device, name: &str) -> Option<String> {
    let wrong = WRONG.get()?;
    let is_its = |of_f16: &bool| wrong.entry_points(*of_f16).contains(&name);
    [false, true].iter().any(is_its).then_some(())?;
    let text = device.ptx().kernel(name)?;
    // The parameters and the size of blocks stay.
    let body = text.find("\n{")?;
    Some(format!("{}\n{{\n\tret;\n}}\n", &text[..body]))
}

mod tests {
    use crate::device::DeviceChoice;
    use crate::error::Error;
    use crate::plan::Configuration;
    use crate::problem::Compute;
    use crate::select::ProductFile;
    use crate::{Auto, DeviceMatrix, Gemm, bf16, gemm};

    use super::*;

    fn layer() -> Gemm {
        Gemm::new(16, 24, 64).transposed(false, true).computed_in(Compute::Bf16)
    }

    /// A kernel that is measured, and is not the choice.
    fn another(auto: &Auto) -> &'static KernelDescriptor {
        let candidates = auto.candidates(&layer(), 3);
        let first = candidates[0].configuration.kernel.name();
        let mut kernels = candidates.iter().map(|one| one.configuration.kernel);
        kernels.find(|kernel| kernel.name() != first).unwrap()
    }

    /// One wrong result, whoever is right: the product is neither kept nor used.
    #[test]
    fn a_disagreement_is_an_error_and_leaves_no_record() {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let file = ProductFile::new(folder.path().join("products.json"));
        device.keep_measurements_in(Some(file.clone()));
        let auto = device.auto().unwrap();
        let choice = auto.choose(&layer()).unwrap();
        let wrong = another(&auto);

        let planted = Planted::in_kernel(wrong);
        let measured = auto.measure(&[layer()], 3).unwrap().remove(0);
        assert_eq!(measured.skipped, None);
        let dropped = measured.dropped.iter().map(|(one, _)| one.kernel.name());
        let mut dropped: Vec<_> = dropped.collect();
        // In several divisions.
        dropped.dedup();
        assert_eq!(dropped, [wrong.name()]);
        assert!(measured.dropped[0].1.contains("was not stored"), "{measured:?}");
        assert!(!measured.timed.is_empty() && measured.fastest().is_none(), "{measured:?}");
        assert_eq!(measured.choice, choice);
        assert!(auto.measured_choice(&layer()).is_none());
        assert!(file.products(&device).unwrap().is_empty());

        let matrix = |rows: usize| DeviceMatrix::<bf16>::zeros(&device, [rows, 64]).unwrap();
        let (x, w) = (matrix(16), matrix(24));
        let mut y = DeviceMatrix::<f32>::zeros(&device, [16, 24]).unwrap();
        let error = gemm(&x, w.t()).measured(3).run(&mut y).unwrap_err();
        assert!(matches!(error, Error::Disagreement { .. }), "{error}");
        let says = error.to_string();
        assert!(says.contains("16x24x64 in bf16") && says.contains(wrong.name()), "{says}");
        assert!(file.products(&device).unwrap().is_empty());

        // All agree again.
        drop(planted);
        gemm(&x, w.t()).measured(3).run(&mut y).unwrap();
        assert_eq!(file.products(&device).unwrap().len(), 1);
    }

    /// Its kernel may be the wrong one.
    #[test]
    fn an_earlier_record_does_not_survive_a_disagreement() {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let file = ProductFile::new(folder.path().join("products.json"));
        device.keep_measurements_in(Some(file.clone()));
        let auto = device.auto().unwrap();
        let other = layer().scaled(1.0, 1.0);
        auto.measure(&[layer(), other], 3).unwrap();
        assert_eq!(file.products(&device).unwrap().len(), 2);

        let model = device.auto().unwrap().by_model_alone();
        let planted = Planted::in_kernel(another(&model));
        let measured = model.measure(&[layer()], 3).unwrap().remove(0);
        assert!(!measured.dropped.is_empty(), "{measured:?}");
        assert!(auto.measured_choice(&layer()).is_none());
        assert!(auto.measured_choice(&other).is_some());
        assert_eq!(file.products(&device).unwrap().len(), 1);
        drop(planted);
        // Nor does it in another process, which reads the file.
        let later = Device::open(DeviceChoice::SoftSm90).unwrap();
        later.keep_measurements_in(Some(file));
        assert!(later.auto().unwrap().measured_choice(&layer()).is_none());
    }

    /// Not even the kernel that everybody else is compared with.
    #[test]
    fn a_wrong_first_choice_is_dropped() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        device.keep_measurements_in(None);
        let auto = device.auto().unwrap();
        let first = auto.candidates(&layer(), 1)[0].configuration;
        let _planted = Planted::in_kernel(first.kernel);
        let measured = auto.measure(&[layer()], 3).unwrap().remove(0);
        let is_first =
            |(one, _): &(Configuration, String)| one.kernel.name() == first.kernel.name();
        assert!(!measured.dropped.is_empty() && measured.dropped.iter().all(is_first));
        assert!(!measured.timed.is_empty(), "{measured:?}");
        assert!(measured.fastest().is_none() && auto.measured_choice(&layer()).is_none());
    }
}

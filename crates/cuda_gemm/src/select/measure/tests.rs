use std::fs;
use std::path::Path;

use super::*;
use crate::device::{Device, DeviceChoice};
use crate::matrix::DeviceMatrix;
use crate::plan::find_kernel;
use crate::problem::{Compute, Epilogue};
use crate::select::table::Measured;
use crate::select::{ProductFile, Source, Table};
use crate::{Matrix, bf16, gemm};
use gemm_matrix::{Activation, Axis};

/// A device that keeps its measurements in this folder.
fn device(folder: &Path) -> Device {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    device.keep_measurements_in(Some(file(folder)));
    device
}

fn file(folder: &Path) -> ProductFile {
    ProductFile::new(folder.join("products.json"))
}

/// The product of these tests, `x * w.t()`.
fn layer() -> Gemm {
    Gemm::new(16, 24, 64).transposed(false, true).computed_in(Compute::Bf16)
}

fn ones(device: &Device, rows: usize) -> DeviceMatrix<bf16> {
    DeviceMatrix::from_slice(device, [rows, 64], &vec![bf16::from_f32(1.0); rows * 64]).unwrap()
}

fn y(device: &Device) -> DeviceMatrix<f32> {
    DeviceMatrix::zeros(device, [16, 24]).unwrap()
}

/// Puts another choice for the layer into the file. The model does not name it.
fn plant(folder: &Path) -> Configuration {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let planted = Configuration::new(find_kernel("wgmma_128x192").unwrap());
    let product = MeasuredProduct::new(&layer(), Timed::new(planted, 5.0));
    file(folder).add(&device, &[product]).unwrap();
    planted
}

#[test]
fn nothing_is_measured_unless_somebody_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(folder.path());
    let (x, w) = (ones(&device, 16), ones(&device, 24));
    assert_eq!(device.measured_candidates(), 0);
    gemm(&x, w.t()).run(&mut y(&device)).unwrap();
    gemm(&x, w.t()).plan(&y(&device)).unwrap();
    device.measure(3);
    for off in [0, 1] {
        gemm(&x, w.t()).measured(off).run(&mut y(&device)).unwrap();
    }
    assert!(!file(folder.path()).path().exists());
    // An unmeasured plan does not prevent a measurement.
    gemm(&x, w.t()).run(&mut y(&device)).unwrap();
    assert_eq!(file(folder.path()).products(&device).unwrap().len(), 1);
}

#[test]
fn a_product_is_measured_once_and_computed_right() {
    let folder = tempfile::tempdir().unwrap();
    let first = device(folder.path());
    let (x, w) = (ones(&first, 16), ones(&first, 24));
    let mut c = DeviceMatrix::from_slice(&first, [16, 24], &[0.5f32; 16 * 24]).unwrap();
    for calls in 1..3 {
        gemm(&x, w.t()).beta(1.0).measured(3).run(&mut c).unwrap();
        assert_eq!(c.to_vec().unwrap(), vec![0.5 + 64.0 * calls as f32; 16 * 24]);
    }
    let products = file(folder.path()).products(&first).unwrap();
    let [product] = &products[..] else { panic!("{products:?}") };
    assert!(product.reads_c && product.best.ns > 0.0);
    let auto = first.auto().unwrap();
    let reads_c = layer().scaled(1.0, 1.0);
    let again = &auto.measure(&[reads_c], 3).unwrap()[0];
    assert!(again.skipped == Some(Skipped::Known) && again.timed.is_empty());
    assert_eq!(again.choice, product.best.configuration);
    let source = auto.measured_choice(&reads_c).unwrap().source;
    assert_eq!(source, Source::File(file(folder.path()).path().to_owned()));

    // Another process takes what the file says.
    let planted = plant(folder.path());
    let second = device(folder.path());
    let (x, w) = (ones(&second, 16), ones(&second, 24));
    let plan = gemm(&x, w.t()).measured(3).plan(&y(&second)).unwrap();
    assert_eq!(*plan.configuration(), planted);
    let builder = gemm(&x, w.t()).builder(&y(&second)).unwrap();
    assert_eq!(*builder.configuration(), planted);
    assert_eq!(file(folder.path()).products(&second).unwrap().len(), 2);
    // A process that began earlier learns it at its next measurement.
    assert_eq!(auto.measure(&[layer()], 3).unwrap()[0].choice, planted);
    assert_ne!(auto.by_model_alone().choose(&layer()).unwrap(), planted);
}

#[test]
fn what_was_measured_with_another_kernel_or_driver_is_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path()).path().to_owned();
    let planted = plant(folder.path());
    let text = fs::read_to_string(&path).unwrap();
    let at = text.find("\"wgmma_128x192\": \"").unwrap() + "\"wgmma_128x192\": \"".len();
    for stale in [
        text.replace(&text[at..at + 64], &"0".repeat(64)),
        text.replace("\"driver_version\": null", "\"driver_version\": \"1.2\""),
        text.replace("\"multiprocessors\": ", "\"multiprocessors\": 1"),
    ] {
        assert_ne!(stale, text);
        fs::write(&path, stale).unwrap();
        let device = device(folder.path());
        let auto = device.auto().unwrap();
        assert!(auto.measured_choice(&layer()).is_none());
        let measured = &auto.measure(&[layer()], 2).unwrap()[0];
        assert_eq!((measured.skipped, measured.timed.len()), (None, 2));
        assert_ne!(measured.choice, planted);
        // The new record replaces the stale one.
        let products = file(folder.path()).products(&device).unwrap();
        assert_eq!(products.len(), 1);
        assert!(!fs::read_to_string(&path).unwrap().contains("wgmma_128x192"));
    }
}

#[test]
fn a_broken_file_is_reported_once_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path()).path().to_owned();
    fs::write(&path, "{ \"gpu\": 3 }").unwrap();
    let device = device(folder.path());
    let (x, w, mut y) = (ones(&device, 16), ones(&device, 24), y(&device));
    // Products that are not measured ignore the file.
    gemm(&x, w.t()).run(&mut y).unwrap();
    let error = gemm(&x, w.t()).measured(2).run(&mut y).unwrap_err().to_string();
    assert!(error.contains("products.json") && error.contains("name another file"), "{error}");
    gemm(&x, w.t()).measured(2).run(&mut y).unwrap();
    let auto = device.auto().unwrap();
    assert_eq!(auto.measured_choice(&layer()).unwrap().source, Source::Process);
    assert_eq!(fs::read_to_string(&path).unwrap(), "{ \"gpu\": 3 }");
}

#[test]
fn a_file_that_cannot_be_written_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let below = ProductFile::new(folder.path().join("file").join("products.json"));
    device.keep_measurements_in(Some(below));
    let auto = device.auto().unwrap();
    assert!(matches!(auto.measure(&[layer()], 2), Err(Error::ProductFile { .. })));
    let again = auto.measure(&[layer(), layer().scaled(1.0, 1.0)], 2).unwrap();
    assert!(again[1].skipped.is_none() || again[0].skipped.is_none());
}

#[test]
fn what_is_in_no_file_is_known_to_this_process() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(folder.path());
    let (auto, path) = (device.auto().unwrap(), file(folder.path()).path().to_owned());
    let source = |gemm: &Gemm| auto.measured_choice(gemm).unwrap().source;
    // The file can be read, and nobody gets the right to write it.
    let lock = folder.path().join("products.json.lock");
    fs::create_dir(&lock).unwrap();
    assert!(matches!(auto.measure(&[layer()], 2), Err(Error::ProductFile { .. })));
    assert_eq!(source(&layer()), Source::Process);
    let reads_c = layer().scaled(1.0, 1.0);
    auto.measure(&[reads_c], 2).unwrap();
    assert_eq!(source(&reads_c), Source::Process);

    fs::remove_dir(lock).unwrap();
    device.keep_measurements_in(Some(file(folder.path())));
    auto.measure(&[layer()], 2).unwrap();
    assert_eq!(source(&layer()), Source::File(path));
}

#[test]
fn a_capture_measures_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(folder.path());
    let (x, w, mut y) = (ones(&device, 16), ones(&device, 24), y(&device));
    let auto = device.auto().unwrap();
    let mut skipped = None;
    // The kernel is loaded before the capture.
    gemm(&x, w.t()).run(&mut y).unwrap();
    let graph = device.stream().capture(|| {
        skipped = auto.measure(&[layer()], 3)?[0].skipped;
        gemm(&x, w.t()).measured(3).run(&mut y)
    });
    assert_eq!(skipped, Some(Skipped::Capture));
    assert!(!file(folder.path()).path().exists());
    y.fill_buffer(0).unwrap();
    // SAFETY: the matrices and the device's plan exist until the download is done.
    unsafe { graph.unwrap().launch() }.unwrap();
    assert_eq!(y.to_vec().unwrap(), [64.0; 16 * 24]);
    // The next call outside measures.
    gemm(&x, w.t()).measured(3).run(&mut y).unwrap();
    assert!(file(folder.path()).path().exists());
}

#[test]
fn two_threads_measure_once() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(folder.path());
    let auto = device.auto().unwrap();
    let measure = || auto.measure(&[layer()], 2).unwrap()[0].skipped;
    let run = || {
        let (x, w, mut y) = (ones(&device, 16), ones(&device, 24), y(&device));
        // The holder of the stream may also measure.
        let stream = device.stream();
        let _exclusive = stream.exclusive();
        gemm(&x, w.t()).measured(2).run(&mut y).unwrap();
        y.to_vec().unwrap()
    };
    std::thread::scope(|scope| {
        let measured = [(); 3].map(|()| scope.spawn(measure));
        let ran = [(); 3].map(|()| scope.spawn(run));
        let count = measured.into_iter().filter_map(|it| it.join().unwrap()).count();
        assert!(count >= 2, "one measured");
        assert!(ran.into_iter().all(|it| it.join().unwrap() == [64.0; 16 * 24]));
    });
    assert_eq!(file(folder.path()).products(&device).unwrap().len(), 1);
}

#[test]
fn products_of_every_kind_are_measured() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    device.keep_measurements_in(None);
    let table = Table::parse(include_str!("../table_for_tests.json"), "a test").unwrap();
    let name = device.info().name.clone();
    let own = table.with_device(Measured { name, ..table.device().clone() }).unwrap();
    let auto = device.auto_by(&own).unwrap();
    let epilogue =
        Epilogue::new().scale(Axis::Row).bias(Axis::Column).activation(Activation::Gelu).residual();
    let batch = layer().stacked(3).stored_as(gemm_matrix::Element::Bf16).scaled(2.0, 0.5);
    let f32 = Gemm::new(70, 50, 40).transposed(true, false);
    let products = [
        batch.then(epilogue),
        Gemm::new(9, 33, 65).computed_in(Compute::F16),
        f32,
        f32.computed_in(Compute::Tf32).stacked(2),
        f32.computed_in(Compute::Tf32x3),
    ];
    for measured in auto.measure(&products, 3).unwrap() {
        assert_eq!((measured.skipped, measured.dropped.len()), (None, 0), "{measured:?}");
        assert!(measured.timed.len() > 1, "{measured:?}");
        assert_eq!(auto.choose(&measured.gemm).unwrap(), measured.choice);
        let known = auto.measured_choice(&measured.gemm).unwrap();
        assert_eq!(known.source, Source::Process);
    }
    let huge = Gemm::new(1 << 20, 1 << 20, 64).computed_in(Compute::Bf16);
    let pointers = f32.batched_pointers(2);
    for (gemm, reason) in [
        (huge, Skipped::Memory),
        (pointers, Skipped::NoRecord),
        (Gemm::new(8, 8, 0).computed_in(Compute::Bf16), Skipped::NoChoice),
        (Gemm::new(1, 1, 1 << 22).computed_in(Compute::Bf16), Skipped::TooLong),
    ] {
        assert_eq!(auto.measure(&[gemm], 3).unwrap()[0].skipped, Some(reason), "{reason}");
    }
    assert_eq!(auto.measure(&[layer()], 1).unwrap()[0].skipped, Some(Skipped::NoChoice));
}

/// The epilogue's inputs are the caller's, and stay.
#[test]
fn a_layer_is_measured_with_its_epilogue() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    device.keep_measurements_in(None);
    device.measure(2);
    let (x, w, mut y) = (ones(&device, 16), ones(&device, 24), y(&device));
    let bias =
        DeviceMatrix::<f32>::from_host(&device, &Matrix::from_fn(1, 24, |_, col| col as f32));
    let bias = bias.unwrap();
    gemm(&x, w.t()).bias(&bias).relu().run(&mut y).unwrap();
    assert_eq!(y.download().unwrap().at(3, 7), 64.0 + 7.0);
    let auto = device.auto().unwrap();
    let with = layer().then(Epilogue::new().bias(Axis::Column).activation(Activation::Relu));
    assert!(auto.measured_choice(&with).is_some() && auto.measured_choice(&layer()).is_none());
}

//! A device's measured products, and whether it measures more.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::product_file::ProductFile;
use super::product_key::ProductKey;
use super::table::{MeasuredProduct, Timed};
use crate::device::Device;
use crate::error::Error;
use crate::plan::Configuration;

/// The choice for a product that was measured. See
/// [`Auto::measured_choice`](super::Auto::measured_choice).
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredChoice {
    /// The kernel, and how it is launched.
    pub configuration: Configuration,
    /// Its time, in nanoseconds.
    pub ns: f64,
    /// The place of the measurement.
    pub source: Source,
}

/// The place of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file of measured products.
    File(PathBuf),
    /// This process, without a file.
    Process,
    /// The table of `auto`.
    Table,
}

/// Ends a sentence. Example: `measured for this product, in cache/nvidia_h200.json`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "in {}", path.display()),
            Self::Process => f.write_str("in this process"),
            Self::Table => f.write_str("in the table"),
        }
    }
}

/// The state that all handles of a device share. It holds no handle itself.
#[derive(Default)]
pub(super) struct Store {
    /// Candidates that each new product times. Fewer than two turn measurements off.
    candidates: AtomicUsize,
    state: RwLock<State>,
    /// Held while products are measured.
    measuring: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The caller's file, or the caller's wish for none.
    named: Option<Option<ProductFile>>,
    /// Whether `file`, `known` and `problem` reflect the file.
    is_read: bool,
    /// The file in use. After a problem there is none.
    file: Option<ProductFile>,
    known: HashMap<ProductKey, Timed>,
    /// A problem of the file, not reported yet.
    problem: Option<Error>,
}

impl State {
    /// Reads the file again. Measurements of this process stay.
    fn read(&mut self, device: &Device) {
        if !self.is_read {
            let named = self.named.clone();
            self.file = named.unwrap_or_else(|| ProductFile::of(device));
            self.is_read = true;
        }
        let Some(file) = &self.file else { return };
        match file.products(device) {
            Ok(products) => self.insert(&products),
            Err(error) => (self.file, self.problem) = (None, Some(error)),
        }
    }

    fn insert(&mut self, products: &[MeasuredProduct]) {
        for product in products {
            if let Some(key) = product.key() {
                self.known.insert(key, product.best);
            }
        }
    }
}

impl Store {
    pub(super) fn of(device: &Device) -> &Self {
        device.shared_value()
    }

    /// The right to measure, one thread at a time.
    pub(super) fn measuring(&self) -> MutexGuard<'_, ()> {
        self.measuring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        // A panicking thread leaves no half-done change.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The known choice for products like this one.
    pub(super) fn find(&self, device: &Device, key: &ProductKey) -> Option<MeasuredChoice> {
        let mut state = self.read();
        if !state.is_read {
            drop(state);
            self.refresh(device);
            state = self.read();
        }
        let Timed { configuration, ns } = *state.known.get(key)?;
        let path = state.file.as_ref().map(|file| file.path().to_owned());
        let source = path.map_or(Source::Process, Source::File);
        Some(MeasuredChoice { configuration, ns, source })
    }

    /// Reads the file again. Others may have written it.
    pub(super) fn refresh(&self, device: &Device) {
        self.write().read(device);
    }

    /// The file's problem, which is returned once.
    pub(super) fn problem(&self) -> Result<(), Error> {
        self.write().problem.take().map_or(Ok(()), Err)
    }

    /// Forgets products whose kernels disagree, and removes them from the file.
    pub(super) fn forget(
        &self,
        device: &Device,
        products: &[MeasuredProduct],
    ) -> Result<(), Error> {
        if products.is_empty() {
            return Ok(());
        }
        let file = {
            let mut state = self.write();
            for key in products.iter().filter_map(MeasuredProduct::key) {
                state.known.remove(&key);
            }
            state.file.clone()
        };
        let Some(file) = file else { return Ok(()) };
        let removed = file.remove(device, products);
        if removed.is_err() {
            self.write().file = None;
        }
        removed
    }

    /// Remembers products, and writes them to the file.
    pub(super) fn remember(
        &self,
        device: &Device,
        products: &[MeasuredProduct],
    ) -> Result<(), Error> {
        if products.is_empty() {
            return Ok(());
        }
        let file = {
            let mut state = self.write();
            state.insert(products);
            state.file.clone()
        };
        let Some(file) = file else { return Ok(()) };
        let added = file.add(device, products);
        if added.is_err() {
            self.write().file = None;
        }
        added
    }
}

impl Device {
    /// Measures each new product from now on. It applies to [`gemm`](crate::gemm()) and
    /// [`Auto::plan`]. The first `candidates` choices of the model are timed, and the fastest is
    /// kept. 0 or 1 turns this off.
    ///
    /// Off is the default: a measurement may change the choice, and another choice may round
    /// differently. A measured product keeps its choice, also in later processes: see
    /// [`ProductFile::of`].
    ///
    /// This applies to all handles of the device, and to products without a plan so far.
    /// [`Auto::measure`] has the details; [`Product::measured`](crate::Product::measured) sets it
    /// for one product.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, bf16, gemm};
    ///
    /// let device = Device::open(DeviceChoice::SoftSm90)?;
    /// device.measure(3);
    /// let x = DeviceMatrix::<bf16>::zeros(&device, [16, 64])?;
    /// let mut y = DeviceMatrix::<f32>::zeros(&device, [16, 16])?;
    /// gemm(&x, x.t()).run(&mut y)?;
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    ///
    /// [`Auto::plan`]: crate::Auto::plan
    /// [`Auto::measure`]: crate::Auto::measure
    pub fn measure(&self, candidates: usize) {
        Store::of(self).candidates.store(candidates, Ordering::Relaxed);
    }

    /// The candidates that each new product times. See [`Device::measure`].
    pub fn measured_candidates(&self) -> usize {
        Store::of(self).candidates.load(Ordering::Relaxed)
    }

    /// Sets the file of measured products, or none. It replaces [`ProductFile::of`].
    ///
    /// This holds for products without a plan so far. Measurements from before are forgotten.
    pub fn keep_measurements_in(&self, file: Option<ProductFile>) {
        *Store::of(self).write() = State { named: Some(file), ..State::default() };
    }
}

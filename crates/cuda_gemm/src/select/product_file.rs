//! Files of measured products: JSON, one file per GPU.
//!
//! A record holds for the driver, the multiprocessors and the kernel's PTX of its measurement.
//! Other records stay in the file until their product is measured again.
//!
//! A file is replaced as a whole, so that readers see the old one or the new one. A lock file
//! beside it admits one writer at a time, which first reads the others' records. On Unix the writer
//! removes the lock file at the end.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use host_system::text;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::digests;
use super::table::{MeasuredProduct, check_product};
use crate::device::{Device, Environment};
use crate::error::Error;
use crate::plan::find_kernel;

/// The environment variable that names the cache folder.
pub const CACHE_VARIABLE: &str = "RUNGS_CACHE";

/// A file of measured products of one device.
///
/// ```
/// use cuda_gemm::select::{MeasuredProduct, ProductFile};
/// use cuda_gemm::select::table::Timed;
/// use cuda_gemm::{Configuration, Device, DeviceChoice, Gemm, find_kernel};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("products.json");
/// let device = Device::open(DeviceChoice::Soft)?;
/// let gemm = Gemm::new(64, 64, 4096);
/// let best = Timed::new(Configuration::new(find_kernel("tile_64x64")?), 9e3);
/// let file = ProductFile::new(path);
/// file.add(&device, &[MeasuredProduct::new(&gemm, best)])?;
///
/// device.keep_measurements_in(Some(file));
/// let choice = device.auto()?.choose(&gemm)?;
/// assert_eq!(choice.kernel.name(), "tile_64x64");
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductFile {
    path: PathBuf,
}

/// A file's contents. Entries stay as they are until they are used: another version of the library
/// may have written them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    gpu: String,
    products: Vec<Value>,
}

/// A measured product and its conditions.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    multiprocessors: u32,
    driver_version: Option<String>,
    /// The digests of the kernel's entry points.
    ptx_sha256: BTreeMap<String, String>,
    product: MeasuredProduct,
}

impl Entry {
    /// A record of this device, with this driver.
    fn new(device: &Device, driver_version: &Option<String>, product: MeasuredProduct) -> Self {
        let info = device.info();
        Self {
            multiprocessors: info.limits.multiprocessors,
            driver_version: driver_version.clone(),
            ptx_sha256: digests::of_kernel(info.capability, product.best.configuration.kernel)
                .collect(),
            product,
        }
    }
}

/// The name of a file about a device of this name, as in `nvidia_h200.json`.
pub fn file_name(device: &str) -> String {
    let of = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    device.chars().map(of).collect::<String>() + ".json"
}

impl ProductFile {
    /// Names a file, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The device's file in the user's cache folder. `None` if there is no such folder.
    ///
    /// The folder is `$RUNGS_CACHE`, and an empty one means no file. Without this variable the
    /// folder is `rungs` in `$XDG_CACHE_HOME` or `~/.cache`, on Windows in `%LOCALAPPDATA%`. The
    /// software device has a file in `$RUNGS_CACHE` alone, because its times are simulated.
    pub fn of(device: &Device) -> Option<Self> {
        let folder = folder(|name| env::var_os(name), device.is_soft())?;
        Some(Self::in_folder(&folder, device))
    }

    /// The device's file in a folder. The device's name makes the file's.
    pub fn in_folder(folder: &Path, device: &Device) -> Self {
        let simulated = if device.is_soft() { "simulated_" } else { "" };
        Self::new(folder.join(format!("{simulated}{}", file_name(&device.info().name))))
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The products whose measurements hold on this device. There are none without a file.
    ///
    /// # Errors
    ///
    /// [`Error::ProductFile`] if the file is broken, or is another GPU's.
    pub fn products(&self, device: &Device) -> Result<Vec<MeasuredProduct>, Error> {
        let Contents { products, .. } = self.read(device)?;
        let driver_version = driver_version(device)?;
        let mut found = Vec::new();
        for value in products {
            let kernel = value.pointer("/product/best/kernel").and_then(Value::as_str);
            if kernel.is_some_and(|name| find_kernel(name).is_err()) {
                // Another version of the library has it.
                continue;
            }
            // Another version of the library may have other fields.
            let Ok(entry) = serde_json::from_value::<Entry>(value) else { continue };
            let now = Entry::new(device, &driver_version, entry.product);
            let is_alike = now.multiprocessors == entry.multiprocessors
                && now.driver_version == entry.driver_version
                && now.ptx_sha256 == entry.ptx_sha256;
            if !is_alike {
                continue;
            }
            let product = now.product;
            check_product(&product, device.info().capability)
                .map_err(|reason| self.broken(format!("product {product}: {reason}")))?;
            found.push(product);
        }
        Ok(found)
    }

    /// Adds products that were measured on this device. Each replaces an older record.
    ///
    /// The folder is made if there is none. Writers in other threads and processes lose nothing, if
    /// the file system has locks.
    ///
    /// # Errors
    ///
    /// - [`Error::ProductFile`] if the file cannot be written. Also if it is broken or another
    ///   GPU's: it then stays as it is.
    /// - [`Error::Driver`].
    pub fn add(&self, device: &Device, products: &[MeasuredProduct]) -> Result<(), Error> {
        let driver_version = driver_version(device)?;
        let entries = products.iter().map(|product| {
            let entry = Entry::new(device, &driver_version, product.clone());
            // Serialisation cannot fail: there are only string keys and plain data.
            serde_json::to_value(entry).expect("plain data")
        });
        let written = |error| self.not_written(&error);
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(written)?;
        }
        let _lock = Lock::new(self.beside("lock")).map_err(written)?;
        let mut contents = self.read(device)?;
        for entry in entries {
            contents.products.retain(|old| identity(old) != identity(&entry));
            contents.products.push(entry);
        }
        self.write(&contents)
    }

    /// Removes the records of products. Nothing is written if there are none.
    ///
    /// # Errors
    ///
    /// As [`ProductFile::add`].
    pub(super) fn remove(
        &self,
        device: &Device,
        products: &[MeasuredProduct],
    ) -> Result<(), Error> {
        if !self.path.exists() {
            return Ok(());
        }
        let entries = products.iter().map(|product| {
            let entry = Entry::new(device, &None, product.clone());
            identity(&serde_json::to_value(entry).expect("plain data"))
        });
        let removed: Vec<_> = entries.collect();
        let lock = Lock::new(self.beside("lock"));
        let _lock = lock.map_err(|error| self.not_written(&error))?;
        let mut contents = self.read(device)?;
        let count = contents.products.len();
        contents.products.retain(|old| !removed.contains(&identity(old)));
        if contents.products.len() == count {
            return Ok(());
        }
        self.write(&contents)
    }

    fn write(&self, contents: &Contents) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(contents).expect("plain data") + "\n";
        self.replace(&text).map_err(|error| self.not_written(&error))
    }

    /// The file's contents, checked to be this device's.
    fn read(&self, device: &Device) -> Result<Contents, Error> {
        let gpu = &device.info().name;
        let text = match text::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| self.broken(error))?,
        };
        if text.trim().is_empty() {
            return Ok(Contents { gpu: gpu.clone(), products: Vec::new() });
        }
        let contents: Contents = serde_json::from_str(&text).map_err(|error| self.broken(error))?;
        match contents.gpu == *gpu {
            true => Ok(contents),
            false => Err(self.broken(format!("its products are of {}", contents.gpu))),
        }
    }

    /// Writes a temporary file, and renames it.
    fn replace(&self, text: &str) -> io::Result<()> {
        // A link stays, and its target is replaced.
        let target = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        static WRITES: AtomicUsize = AtomicUsize::new(0);
        let (process, write) = (std::process::id(), WRITES.fetch_add(1, Ordering::Relaxed));
        let temporary = Self::new(&target).beside(&format!("{process}-{write}.tmp"));
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &target)
        };
        write().inspect_err(|_| {
            // The first error says more.
            let _ = fs::remove_file(&temporary);
        })
    }

    /// The path with a suffix.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{suffix}"));
        path.into()
    }

    fn broken(&self, reason: impl ToString) -> Error {
        Error::ProductFile {
            path: self.path.clone(),
            reason: format!(
                "{}; it stays as it is: name another file, or another folder in {CACHE_VARIABLE}",
                reason.to_string()
            ),
        }
    }

    fn not_written(&self, error: &io::Error) -> Error {
        Error::ProductFile {
            path: self.path.clone(),
            reason: format!(
                "it cannot be written: {error}; name a writable folder in {CACHE_VARIABLE}, or set \
                 it to nothing for no file"
            ),
        }
    }
}

/// The right to write a file, which ends with the value.
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits for other writers.
    fn new(path: PathBuf) -> io::Result<Self> {
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(&path)?;
            match file.lock() {
                // Some file systems have no locks. The new file still appears as a whole.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                locked => locked?,
            }
            // Another writer may have removed the file meanwhile, so that a third one has its own.
            if is_at(&file, &path) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Elsewhere nobody can tell whether the file was replaced. Without this file a writer makes
        // one, so an error does no harm.
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether an open file is still the one at its path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// The driver's version, or else its CUDA version.
fn driver_version(device: &Device) -> Result<Option<String>, Error> {
    let Environment { driver_version, cuda_version, .. } = Environment::of(device)?;
    Ok(driver_version.or(cuda_version))
}

/// The record without its measurement. All entries of one product share it.
fn identity(entry: &Value) -> Option<Value> {
    let mut product = entry.get("product")?.clone();
    product.as_object_mut()?.remove("best")?;
    Some(product)
}

/// The folder of the files, with these environment variables.
fn folder(variable: impl Fn(&str) -> Option<OsString>, is_soft: bool) -> Option<PathBuf> {
    match variable(CACHE_VARIABLE) {
        Some(folder) => return (!folder.is_empty()).then(|| folder.into()),
        None if is_soft => return None,
        None => {}
    }
    // A relative path would depend on the working directory.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = match cfg!(windows) {
        true => absolute("LOCALAPPDATA"),
        false => absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache"))),
    };
    Some(folder?.join("rungs"))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::device::DeviceChoice;
    use crate::plan::Configuration;
    use crate::problem::Gemm;
    use crate::select::table::Timed;

    fn product(m: usize, kernel: &str) -> MeasuredProduct {
        let best = Timed::new(Configuration::new(find_kernel(kernel).unwrap()), 9e3);
        MeasuredProduct::new(&Gemm::new(m, 64, 64), best)
    }

    fn kernels(file: &ProductFile, device: &Device) -> Vec<String> {
        let products = file.products(device).unwrap();
        products
            .iter()
            .map(|one| format!("{one} {}", one.best.configuration.kernel.name()))
            .collect()
    }

    #[test]
    fn the_folder_is_what_the_environment_says() {
        let of = |is_soft, variables: &'static [(&str, &str)]| {
            let value = move |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            folder(value, is_soft)
        };
        let all = &[("RUNGS_CACHE", "own"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/home/me")];
        assert_eq!(of(false, all), Some("own".into()));
        assert_eq!(of(true, all), Some("own".into()));
        let none = &[("RUNGS_CACHE", ""), ("HOME", "/home/me")];
        assert_eq!((of(false, none), of(true, none)), (None, None));
        assert_eq!(of(false, &[]), None);
        #[cfg(unix)]
        {
            let home = of(false, &[("XDG_CACHE_HOME", "relative"), ("HOME", "/home/me")]);
            assert_eq!(home, Some("/home/me/.cache/rungs".into()));
            let xdg = &[("XDG_CACHE_HOME", "/x"), ("HOME", "/home/me")];
            assert_eq!(of(false, xdg), Some("/x/rungs".into()));
            // Simulated times never go to the user's own folder.
            assert_eq!(of(true, xdg), None);
        }
    }

    #[test]
    fn records_are_added_replaced_and_ignored_where_they_do_not_hold() {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let file = ProductFile::new(folder.path().join("a/b/products.json"));
        assert_eq!(kernels(&file, &device), [""; 0]);
        file.add(&device, &[product(8, "tile_64x64"), product(9, "tile_64x64")]).unwrap();
        file.add(&device, &[product(8, "tile_32x32")]).unwrap();
        let both = ["9x64x64 tile_64x64", "8x64x64 tile_32x32"];
        assert_eq!(kernels(&file, &device), both);

        let text = fs::read_to_string(file.path()).unwrap();
        let digest =
            digests::of_kernel((8, 0), find_kernel("tile_64x64").unwrap()).next().unwrap().1;
        for (from, to) in
            [(&digest[..], &*"0".repeat(64)), ("\"tile_64x64\"", "\"tile_of_a_later_version\"")]
        {
            fs::write(file.path(), text.replace(from, to)).unwrap();
            assert_eq!(kernels(&file, &device), both[1..], "{from}");
            // Records that do not hold here stay until the product is measured again.
            file.add(&device, &[product(7, "tile_32x32")]).unwrap();
            assert!(fs::read_to_string(file.path()).unwrap().contains(to));
            file.add(&device, &[product(9, "tile_32x32")]).unwrap();
            assert!(!fs::read_to_string(file.path()).unwrap().contains(to));
        }
        let other = text.replace("\"driver_version\": null", "\"driver_version\": \"1.2\"");
        fs::write(file.path(), other).unwrap();
        assert_eq!(kernels(&file, &device), [""; 0]);
    }

    #[test]
    fn a_broken_file_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let file = ProductFile::new(folder.path().join("products.json"));
        file.add(&device, &[product(8, "tile_64x64")]).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        for (broken, says) in [
            ("{".to_owned(), "EOF"),
            (text.replace("Software", "Another"), "its products are of Another"),
            (text.replace("\"splits\": 1", "\"splits\": 0"), "product 8x64x64: `best.splits` is 0"),
        ] {
            fs::write(file.path(), &broken).unwrap();
            let read = file.products(&device).unwrap_err().to_string();
            assert!(read.contains(says) && read.contains("name another file"), "{read}");
            assert!(read.contains("products.json"), "{read}");
        }
        // An entry of another version of the library is none, and stays.
        fs::write(file.path(), text.replace("\"ns\"", "\"us\"")).unwrap();
        assert!(file.products(&device).unwrap().is_empty());
        file.add(&device, &[product(9, "tile_64x64")]).unwrap();
        assert_eq!(file.products(&device).unwrap().len(), 1);
        assert!(fs::read_to_string(file.path()).unwrap().contains("\"us\""));
        fs::write(file.path(), "[]").unwrap();
        assert!(file.add(&device, &[product(8, "tile_64x64")]).is_err());
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "[]");
        // A file where the folder should be.
        let below = ProductFile::new(file.path().join("products.json"));
        let error = below.add(&device, &[product(8, "tile_64x64")]).unwrap_err().to_string();
        assert!(error.contains("cannot be written"), "{error}");
    }

    #[test]
    fn writers_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let file = ProductFile::new(folder.path().join("products.json"));
        thread::scope(|scope| {
            for writer in 0..4 {
                let (file, device) = (&file, &device);
                scope.spawn(move || {
                    for m in 1..6 {
                        file.add(device, &[product(10 * m + writer, "tile_64x64")]).unwrap();
                    }
                });
            }
        });
        assert_eq!(file.products(&device).unwrap().len(), 20);
        // On Unix nothing is beside it, elsewhere the lock.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), if cfg!(unix) { 1 } else { 2 });
    }

    #[test]
    fn records_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let file = ProductFile::new(folder.path().join("products.json"));
        file.remove(&device, &[product(8, "tile_64x64")]).unwrap();
        assert!(!file.path().exists());
        file.add(&device, &[product(8, "tile_64x64"), product(9, "tile_64x64")]).unwrap();
        // Whatever was measured.
        file.remove(&device, &[product(8, "tile_32x32"), product(7, "tile_32x32")]).unwrap();
        assert_eq!(kernels(&file, &device), ["9x64x64 tile_64x64"]);
    }
}

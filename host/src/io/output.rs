//! Files that appear under their name only when they are complete.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::{self, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gemm_matrix::Matrix;
use gemm_matrix::npy::{self, MAGIC};

use crate::error::Error;

/// A place for a result that is known, before any work is done, to be writable.
#[derive(Clone, Debug)]
pub struct Output {
    path: PathBuf,
    /// The folder of `path`, and the name in it, with links followed: so a link is kept, and its
    /// target created or replaced.
    folder: PathBuf,
    target: PathBuf,
}

impl Output {
    /// Checks that a file can be created at, or replaced at, this path.
    ///
    /// # Errors
    ///
    /// [`Error::Output`].
    pub fn new(path: &Path) -> Result<Self, Error> {
        let output = Self::resolved(path)?;
        output.expect_writable_folder()?;
        Ok(output)
    }

    /// Checks that a file can be created at this path, or added to where there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Output`].
    pub fn to_add(path: &Path) -> Result<Self, Error> {
        let output = Self::resolved(path)?;
        match OpenOptions::new().append(true).open(&output.target) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => output.expect_writable_folder()?,
            Err(error) => return Err(output.refused(error.kind().to_string())),
        }
        Ok(output)
    }

    /// As [`Output::new`], for a matrix: it replaces only a `.npy` file or an empty one.
    ///
    /// # Errors
    ///
    /// [`Error::Output`].
    pub fn for_matrix(path: &Path) -> Result<Self, Error> {
        let output = Self::new(path)?;
        match is_empty_or_npy(path) {
            Ok(true) => Ok(output),
            Ok(false) => {
                Err(output.refused("it holds something other than a .npy file".to_owned()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(output),
            Err(error) => Err(output.refused(error.to_string())),
        }
    }

    fn resolved(path: &Path) -> Result<Self, Error> {
        let fail = |reason| Error::Output { path: path.to_owned(), reason };
        let (folder, target) = resolve(path).map_err(fail)?;
        Ok(Self { path: path.to_owned(), folder, target })
    }

    fn expect_writable_folder(&self) -> Result<(), Error> {
        // The real test of a folder is to create a file in it, which is gone at once. The
        // error's text would name that file.
        let created = Unfinished::begin(&self.folder, None);
        created.map(drop).map_err(|error| self.refused(error.kind().to_string()))
    }

    /// That this file is not to be written, and why.
    pub fn refused(&self, reason: String) -> Error {
        Error::Output { path: self.path.clone(), reason }
    }

    /// Whether both are the same file, however they are spelt.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.target == other.target
    }

    /// Whether a file that is read is this one, by any path. A second hard link is another file: it
    /// keeps its contents when this one is replaced.
    pub fn replaces(&self, input: &Path) -> bool {
        fs::canonicalize(input).is_ok_and(|input| input == self.target)
    }

    /// Writes the matrix as a `.npy` file, in C order.
    ///
    /// # Errors
    ///
    /// [`Error::Output`]; nothing is left behind then.
    pub fn write(&self, matrix: &Matrix) -> Result<(), Error> {
        self.replace(|writer| npy::write_matrix(matrix, writer))
    }

    /// Writes a text.
    ///
    /// # Errors
    ///
    /// As for [`Output::write`].
    pub fn write_text(&self, text: &str) -> Result<(), Error> {
        self.replace(|writer| writer.write_all(text.as_bytes()))
    }

    fn replace(
        &self,
        write: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
    ) -> Result<(), Error> {
        let replaced = (|| {
            let old = match fs::metadata(&self.target) {
                Ok(old) => Some(old.permissions()),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let mut unfinished = Unfinished::begin(&self.folder, old)?;
            let mut writer = BufWriter::with_capacity(1 << 20, &mut unfinished.file);
            write(&mut writer)?;
            writer.flush()?;
            drop(writer);
            unfinished.file.sync_all()?;
            unfinished.finish(&self.target)
        })();
        replaced.map_err(|error| Error::not_written(&self.path, &error))
    }
}

fn is_empty_or_npy(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start.is_empty() || start == MAGIC)
}

/// The folder of the file that is to be created or replaced, and the file; why not if there can be
/// none.
fn resolve(path: &Path) -> Result<(PathBuf, PathBuf), String> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err("it is a folder".to_owned()),
        Ok(metadata) if !metadata.is_file() => return Err("it is not a regular file".to_owned()),
        Ok(metadata) if metadata.permissions().readonly() => {
            return Err("it is write-protected".to_owned());
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        // A name that is too long, links in a circle, a folder that is none.
        Err(error) => return Err(error.to_string()),
    }
    let mut target = path.to_owned();
    while let Ok(next) = fs::read_link(&target) {
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    // `Path` ignores a separator at the end, and the system does not.
    let text = target.as_os_str().as_encoded_bytes();
    let last = text.rsplit(|&byte| path::is_separator(char::from(byte))).next();
    let (Some(name), Some(folder)) = (target.file_name(), target.parent()) else {
        return Err("it does not name a file".to_owned());
    };
    if last != Some(name.as_encoded_bytes()) {
        return Err("it names a folder, which does not exist".to_owned());
    }
    let folder = if folder == Path::new("") { Path::new(".") } else { folder };
    let folder = fs::canonicalize(folder).map_err(|error| match error.kind() {
        ErrorKind::NotFound => "its folder does not exist".to_owned(),
        _ => error.to_string(),
    })?;
    let target = folder.join(name);
    Ok((folder, target))
}

/// The files that are not complete. The lock is held while one appears, gets its name, or goes.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn unfinished() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all files that are not complete. To be called before a signal ends the program: from
/// then on, a thread that begins or finishes a file waits for that end.
#[cfg(unix)]
pub fn abandon() {
    let files = unfinished();
    for path in files.iter() {
        // Nothing more can be done about it.
        let _ = fs::remove_file(path);
    }
    std::mem::forget(files);
}

/// A temporary file beside a target, removed unless it is finished.
struct Unfinished {
    file: File,
    path: PathBuf,
}

impl Unfinished {
    /// With these permissions or, without any, as for any new file: what the user's mask leaves of
    /// read and write for all.
    fn begin(folder: &Path, permissions: Option<Permissions>) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".unfinished-");
        // From the start, so that nobody opens it who must not read it.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let new = || Permissions::from_mode(0o666);
            builder.permissions(permissions.clone().unwrap_or_else(new));
        }
        let mut files = unfinished();
        let (file, path) = builder.tempfile_in(folder)?.keep()?;
        files.insert(path.clone());
        drop(files);
        let begun = Self { file, path };
        if let Some(permissions) = permissions {
            // With what the mask took.
            begun.file.set_permissions(permissions)?;
        }
        Ok(begun)
    }

    /// Gives the file its name, and replaces a file that has it.
    fn finish(self, target: &Path) -> io::Result<()> {
        let mut files = unfinished();
        fs::rename(&self.path, target)?;
        files.remove(&self.path);
        drop(files);
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut files = unfinished();
        if files.remove(&self.path) {
            // What is wrong with it, whoever writes it has found out.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_by_all_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let output = |name: &str| Output::new(&folder.path().join(name)).unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        let one = output("one");
        assert!(one.is_same_file(&output("./one")) && one.is_same_file(&output("sub/../one")));
        assert!(!one.is_same_file(&output("sub/one")) && !one.is_same_file(&output("two")));
        one.write_text("text").unwrap();
        assert!(one.is_same_file(&output("sub/../one")));
        assert_eq!(fs::read_to_string(folder.path().join("one")).unwrap(), "text");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_replaced_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one");
        let output = Output::new(&path).unwrap();
        // Also more than a mask leaves to new files.
        for mode in [0o600, 0o640, 0o666, 0o777] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            output.write_text("new").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "new");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[test]
    fn what_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output::new(&folder.path().join("one")).unwrap();
        let failed = output.replace(|writer| {
            writer.write_all(b"half of it")?;
            Err(io::Error::other("no more"))
        });
        assert!(matches!(failed, Err(Error::Output { reason, .. }) if reason == "no more"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

//! Where CUDA toolkits are installed.

use std::path::PathBuf;
use std::{env, fs, iter};

/// Environment variables that name a toolkit's folder.
pub const VARIABLES: [&str; 4] = ["CUDA_PATH", "CUDA_HOME", "CUDA_ROOT", "CONDA_PREFIX"];

/// Folders that may be toolkits, in the order in which to look: those that [`VARIABLES`] name, the
/// one that is the system's default, other versions, newest first. Not all of them exist.
///
/// ```
/// use host_system::toolkit;
///
/// let headers = toolkit::folders().into_iter().map(|folder| folder.join("include/cuda.h"));
/// match headers.into_iter().find(|header| header.is_file()) {
///     Some(header) => println!("{}", header.display()),
///     None => println!("no toolkit in the usual places"),
/// }
/// ```
pub fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<_> = VARIABLES.iter().filter_map(env::var_os).map(PathBuf::from).collect();
    if cfg!(unix) {
        folders.push("/usr/local/cuda".into());
        // Beside the one that is the default: /usr/local/cuda-12.8 and so on.
        let beside = fs::read_dir("/usr/local").into_iter().flatten().flatten();
        let mut versions: Vec<_> = beside
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("cuda-"))
            .map(|entry| entry.path())
            .collect();
        versions.sort();
        folders.extend(versions.into_iter().rev());
        folders.push("/opt/cuda".into());
    }
    folders
}

/// What to try to run for a toolkit's program, in order: the bare name, which the system looks up
/// on the PATH, then files in [`folders`]. Not all of them exist.
///
/// ```
/// use std::path::Path;
///
/// let mut programs = host_system::toolkit::programs("ptxas");
/// assert_eq!(programs.next().as_deref(), Some(Path::new("ptxas")));
/// assert!(programs.all(|path| path.ends_with("bin/ptxas")));
/// ```
pub fn programs(name: &str) -> impl Iterator<Item = PathBuf> {
    let files = folders().into_iter().map(move |folder| folder.join("bin").join(name));
    iter::once(name.into()).chain(files)
}

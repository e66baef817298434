//! Errors of saved runs.

use std::path::PathBuf;

/// Why runs cannot be read or compared. Files are named as they were given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or a folder that cannot be read.
    #[error("cannot read {}: {reason}; name files that `--save` wrote", .path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The reason, from the system.
        reason: String,
    },

    /// No `.jsonl` file in a folder or below it.
    #[error("there is no .jsonl file in {}: name files that `--save` wrote", .path.display())]
    NoFiles {
        /// The folder.
        path: PathBuf,
    },

    /// A line that is no saved result.
    #[error("{}, line {line}: {reason}; give a file that `--save` wrote", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },

    /// A file of saved runs without any result.
    #[error("{} holds no result: give a file that `--save` wrote", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },

    /// A file of `rungs tune`, where results are needed.
    #[error(
        "{} holds a search of `rungs tune`, not results: give a file of `rungs bench --save` or \
         `rungs run all --save`",
        .path.display()
    )]
    Tune {
        /// The file.
        path: PathBuf,
    },

    /// Two files that have no kernel and shape in common.
    #[error(
        "{} and {} have no timed kernel and shape in common, with the same L2 policy, alpha and \
         beta: {reason}",
        .before.display(),
        .after.display()
    )]
    NothingInCommon {
        /// The first file.
        before: PathBuf,
        /// The second.
        after: PathBuf,
        /// What keeps their results apart.
        reason: String,
    },
}

//! When a build script runs again: after any change of the files that cargo reads for the device
//! build. Cargo then finds out what is stale.
//!
//! A file that would be read and is not there, such as `.cargo/config.toml`, has no time that could
//! change. Cargo takes a missing file for changed, each time, and a folder for changed when
//! anything below it is, be it a build's output. So there is a folder of symbolic links that lead
//! to the missing files: cargo follows those that lead somewhere.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

#[cfg(unix)]
use std::os::unix::fs::symlink;
#[cfg(windows)]
use std::os::windows::fs::symlink_file as symlink;

use crate::rust_src::in_build_script;

/// What cargo sets itself for each crate, so that it says nothing about the environment.
const SET_BY_CARGO: [&str; 8] = [
    "CARGO",
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PRIMARY_PACKAGE",
    "CARGO_TARGET_TMPDIR",
    "OUT_DIR",
];

/// Where cargo has put what it built.
pub(crate) struct Outputs<'a> {
    /// For the GPU.
    pub device: &'a Path,
    /// For the host: build scripts and macros.
    pub host: &'a Path,
}

/// Tells the cargo that runs the build script when to run it again. `own_dir` is for the links.
pub(crate) fn rerun_if_changed(crate_dir: &Path, outputs: &Outputs<'_>, own_dir: &Path) {
    if !in_build_script() {
        return;
    }
    let inputs = Inputs::of(crate_dir, outputs, &configurations(crate_dir, cargo_home()));
    for path in inputs.present {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    if let Some(links) = links(own_dir, &inputs.absent) {
        println!("cargo::rerun-if-changed={}", links.display());
    }
    for name in inputs.variables {
        println!("cargo::rerun-if-env-changed={name}");
    }
}

/// What a build reads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Inputs {
    /// Files.
    present: BTreeSet<PathBuf>,
    /// Files that would be read if they were there.
    absent: BTreeSet<PathBuf>,
    /// Environment variables.
    variables: BTreeSet<String>,
}

impl Inputs {
    fn of(crate_dir: &Path, outputs: &Outputs<'_>, configurations: &[PathBuf]) -> Self {
        let crate_dir = crate_dir.canonicalize().unwrap_or_else(|_| crate_dir.to_owned());
        let mut inputs = Inputs { variables: variables(outputs), ..Inputs::default() };
        let sources = sources(&crate_dir, outputs.device);
        let mut packages: BTreeSet<PathBuf> =
            sources.iter().filter_map(|path| package_of(path)).collect();
        packages.insert(crate_dir);
        inputs.present.extend(sources);
        for package in &packages {
            inputs.add(package.join("build.rs"));
            // A workspace may be any of these, and its manifest says features, versions and
            // profiles.
            for folder in package.ancestors() {
                inputs.add(folder.join("Cargo.toml"));
                if folder.join("Cargo.toml").is_file() {
                    inputs.add(folder.join("Cargo.lock"));
                }
            }
        }
        for file in configurations {
            inputs.add(file.clone());
        }
        inputs
    }

    fn add(&mut self, file: PathBuf) {
        if file.exists() {
            self.present.insert(file)
        } else {
            self.absent.insert(file)
        };
    }
}

/// The sources that cargo has listed for the crate, those of the crates that it depends on by path
/// included.
fn sources(crate_dir: &Path, output: &Path) -> BTreeSet<PathBuf> {
    let mut sources = BTreeSet::new();
    for list in texts(output, "d") {
        let listed: Vec<PathBuf> = list.lines().flat_map(listed).collect();
        let is_own =
            |path: &PathBuf| path.canonicalize().is_ok_and(|path| path.starts_with(crate_dir));
        if listed.iter().any(is_own) {
            sources.extend(listed);
        }
    }
    sources
}

/// The environment variables that sources read (`option_env!`), or that build scripts name.
fn variables(outputs: &Outputs<'_>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for output in [outputs.device, outputs.host] {
        let scripts = entries(&output.join("build"));
        let lists = scripts.iter().flat_map(|folder| texts(folder, "d"));
        for list in texts(&output.join("deps"), "d").chain(lists) {
            let names_in = list.lines().filter_map(|line| line.strip_prefix("# env-dep:"));
            let name = |line: &str| line.split('=').next().unwrap_or_default().to_owned();
            names.extend(names_in.map(name));
        }
        for script in &scripts {
            let said = fs::read_to_string(script.join("output")).unwrap_or_default();
            let name = |line: &str| {
                let instruction = line.strip_prefix("cargo:")?.trim_start_matches(':');
                instruction.strip_prefix("rerun-if-env-changed=").map(str::to_owned)
            };
            names.extend(said.lines().filter_map(name));
        }
    }
    let is_of_cargo = |name: &String| {
        let set = ["CARGO_PKG_", "CARGO_BIN_EXE_"];
        SET_BY_CARGO.contains(&&**name) || set.iter().any(|prefix| name.starts_with(prefix))
    };
    names.into_iter().filter(|name| !name.is_empty() && !is_of_cargo(name)).collect()
}

/// The files that cargo reads its configuration from, there or not.
fn configurations(crate_dir: &Path, home: Option<PathBuf>) -> Vec<PathBuf> {
    let crate_dir = crate_dir.canonicalize().unwrap_or_else(|_| crate_dir.to_owned());
    let folders = crate_dir.ancestors().map(|folder| folder.join(".cargo")).chain(home);
    let mut files: Vec<PathBuf> = folders
        .flat_map(|folder| ["config.toml", "config"].map(|name| folder.join(name)))
        .collect();
    let mut at = 0;
    while let Some(file) = files.get(at) {
        at += 1;
        let included: Vec<PathBuf> = included(file);
        for file in included {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    files
}

/// The files that a configuration includes.
fn included(file: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let top = text.lines().take_while(|line| !line.starts_with('['));
    let list = top.skip_while(|line| !line.trim_start().starts_with("include"));
    let folder = file.parent().unwrap_or(file);
    let strings = list.flat_map(|line| line.split(['"', '\'']).skip(1).step_by(2));
    strings.filter(|name| name.ends_with(".toml")).map(|name| folder.join(name)).collect()
}

fn cargo_home() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| Some(env::home_dir()?.join(".cargo")))
}

/// The folder of links to files that are not there; none where there can be no links.
fn links(own_dir: &Path, absent: &BTreeSet<PathBuf>) -> Option<PathBuf> {
    let folder = own_dir.join("absent");
    fs::create_dir_all(&folder).ok()?;
    let name = |file: &PathBuf| {
        let mut hasher = DefaultHasher::new();
        file.hash(&mut hasher);
        folder.join(format!("{:016x}", hasher.finish()))
    };
    let wanted: BTreeSet<PathBuf> = absent.iter().map(name).collect();
    for link in entries(&folder).into_iter().filter(|link| !wanted.contains(link)) {
        fs::remove_file(link).ok()?;
    }
    for file in absent {
        let link = name(file);
        if fs::read_link(&link).is_err() {
            symlink(file, link).ok()?;
        }
    }
    // The links are no change. At worst the build script runs once more.
    let _ = File::open(&folder).and_then(|folder| folder.set_modified(SystemTime::UNIX_EPOCH));
    Some(folder)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The texts of the files in a folder that have this extension.
fn texts(folder: &Path, extension: &str) -> impl Iterator<Item = String> {
    let has_it = move |path: &PathBuf| path.extension().is_some_and(|found| found == extension);
    let files = entries(folder).into_iter().filter(has_it);
    files.filter_map(|path| fs::read_to_string(path).ok())
}

/// The files that a line of Makefile syntax says something depends on.
fn listed(line: &str) -> Vec<PathBuf> {
    let Some((_, files)) = line.split_once(": ") else { return Vec::new() };
    // A space in a name has a backslash in front.
    let files = files.replace("\\ ", "\0");
    files.split_whitespace().map(|file| PathBuf::from(file.replace('\0', " "))).collect()
}

/// The folder of the package that a source belongs to.
fn package_of(source: &Path) -> Option<PathBuf> {
    let mut folders = source.ancestors().skip(1);
    folders.find(|folder| folder.join("Cargo.toml").is_file()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files below a folder.
    fn write(root: &Path, files: &[(&str, &str)]) {
        for (file, text) in files {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), text).unwrap();
        }
    }

    #[test]
    fn inputs_are_what_cargo_lists_and_reads() {
        let folder = tempfile::tempdir().unwrap();
        let root = &folder.path().canonicalize().unwrap();
        let list = |files: &[&str]| {
            let files = files.iter().map(|file| root.join(file).display().to_string());
            let files: Vec<String> = files.map(|file| file.replace(' ', "\\ ")).collect();
            format!("/out.ptx: {}\n", files.join(" "))
        };
        let env =
            "# env-dep:TILE\n# env-dep:A=b=c\n# env-dep:CARGO_PKG_NAME=k\n# env-dep:OUT_DIR=/o\n";
        write(
            root,
            &[
                ("Cargo.toml", ""),
                ("Cargo.lock", ""),
                (
                    ".cargo/config",
                    "include = [\n  \"a.toml\",\n  'b.toml'\n]\n[env]\nC = \"c.toml\"",
                ),
                ("my kernels/Cargo.toml", ""),
                ("my kernels/src/lib.rs", ""),
                ("other/Cargo.toml", ""),
                ("other/build.rs", ""),
                ("other/src/lib.rs", ""),
                ("device/a.d", &list(&["my kernels/src/lib.rs", "other/src/lib.rs"])),
                ("device/b.d", &list(&["unrelated.rs"])),
                ("device/deps/k.d", env),
                ("device/build/k-1/output", "cargo::rerun-if-env-changed=D\nother"),
                ("host/deps/m.d", "# env-dep:E=1"),
                ("host/build/k-2/build_script-2.d", "# env-dep:F"),
                ("host/build/k-2/output", "cargo:rerun-if-env-changed=G"),
            ],
        );
        let crate_dir = root.join("my kernels");
        let configurations = configurations(&crate_dir, Some(root.join("home")));
        let (device, host) = (&root.join("device"), &root.join("host"));
        let inputs = Inputs::of(&crate_dir, &Outputs { device, host }, &configurations);
        let below = |paths: &BTreeSet<PathBuf>| -> Vec<String> {
            let paths = paths.iter().filter_map(|path| path.strip_prefix(root).ok());
            paths.map(|path| path.display().to_string()).collect()
        };
        let present = [
            ".cargo/config",
            "Cargo.lock",
            "Cargo.toml",
            "my kernels/Cargo.toml",
            "my kernels/src/lib.rs",
            "other/Cargo.toml",
            "other/build.rs",
            "other/src/lib.rs",
        ];
        assert_eq!(below(&inputs.present), present);
        let absent = [
            ".cargo/a.toml",
            ".cargo/b.toml",
            ".cargo/config.toml",
            "home/config",
            "home/config.toml",
            "my kernels/.cargo/config",
            "my kernels/.cargo/config.toml",
            "my kernels/Cargo.lock",
            "my kernels/build.rs",
            "other/Cargo.lock",
        ];
        assert_eq!(below(&inputs.absent), absent);
        assert!(inputs.absent.contains(&root.parent().unwrap().join("Cargo.toml")));
        let variables: Vec<&str> = inputs.variables.iter().map(String::as_str).collect();
        assert_eq!(variables, ["A", "D", "E", "F", "G", "TILE"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_lead_to_what_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let targets = |files: &[&str]| -> BTreeSet<PathBuf> {
            let absent = files.iter().map(|file| folder.path().join(file)).collect();
            let links = links(folder.path(), &absent).unwrap();
            assert_eq!(fs::metadata(&links).unwrap().modified().unwrap(), SystemTime::UNIX_EPOCH);
            let found = entries(&links).iter().map(|link| fs::read_link(link).unwrap()).collect();
            assert_eq!(found, absent);
            found
        };
        targets(&["a", "b/c"]);
        targets(&["b/c", "d"]);
        targets(&[]);
    }
}

//! `cargo xtask new`.

use std::fs;
use std::path::{Path, PathBuf, absolute};

use host_system::stdio;

/// The files of a project, by their path in it.
const FILES: [(&str, &str); 11] = [
    (".gitignore", include_str!("../../template/.gitignore")),
    ("Cargo.toml", include_str!("../../template/Cargo.toml")),
    ("README.md", include_str!("../../template/README.md")),
    ("build.rs", include_str!("../../template/build.rs")),
    ("kernels/Cargo.toml", include_str!("../../template/kernels/Cargo.toml")),
    ("kernels/src/lib.rs", include_str!("../../template/kernels/src/lib.rs")),
    ("rust-toolchain.toml", include_str!("../../template/rust-toolchain.toml")),
    ("src/lib.rs", include_str!("../../template/src/lib.rs")),
    ("src/main.rs", include_str!("../../template/src/main.rs")),
    ("tests/add.rs", include_str!("../../template/tests/add.rs")),
    ("tests/panic.rs", include_str!("../../template/tests/panic.rs")),
];

/// Makes a project at `path`: a crate of kernels, a host that launches them, tests and a README. It
/// finds this checkout's crates by their path.
///
/// # Errors
/// If the folder's name cannot be a package's, lies in this workspace or is not empty, or if a file
/// cannot be written.
pub fn run(path: &Path) -> Result<(), String> {
    let named = path;
    let path = absolute(named).map_err(|error| io(named, &error))?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.filter(|name| is_crate_name(name)).ok_or_else(|| {
        format!(
            "`{}`: the folder's name is the project's, so it takes letters, digits, `-` and `_`, \
             and begins with a letter",
            named.display()
        )
    })?;
    if TAKEN.split(' ').any(|taken| taken == name.replace('-', "_")) {
        return Err(format!(
            "`{}`: the project would be `{name}`, which is a word of Rust's or the name of a crate \
             that it uses; choose another one",
            named.display()
        ));
    }
    let root = root().canonicalize().map_err(|error| io(&root(), &error))?;
    let parent = path.ancestors().skip(1).find_map(|parent| parent.canonicalize().ok());
    if parent.is_some_and(|parent| parent.starts_with(&root)) {
        let path = named.display();
        return Err(format!("`{path}` lies in this workspace; name a folder outside of it"));
    }
    if fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!("`{}` exists and is not empty", named.display()));
    }

    let checkout = root.display().to_string().replace('\\', "/");
    for (file, text) in FILES {
        let text = text
            .replace("{{project-name}}", &name)
            .replace("{{crate_name}}", &name.replace('-', "_"))
            .replace("{{checkout}}", &checkout);
        write(&path.join(file), text.as_bytes())?;
    }
    // The versions that this checkout was tested with.
    let lock = root.join("Cargo.lock");
    write(&path.join("Cargo.lock"), &fs::read(&lock).map_err(|error| io(&lock, &error))?)?;
    stdio::say(format_args!("made {}; now type `cargo test` there", named.display()));
    Ok(())
}

/// The root of the workspace. Asked for now, not when this was compiled, where cargo says:
/// checkouts may share a target folder. Whichever chore this is, it is the workspace's.
fn root() -> PathBuf {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let folder = manifest_dir.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let is_root = |folder: &&Path| folder.join("Cargo.lock").is_file();
    folder.ancestors().find(is_root).unwrap_or(&folder).to_owned()
}

/// What a project cannot be called: the crates that it uses, and what Cargo refuses.
const TAKEN: &str = "kernels cust cuda_driver cuda_std cuda_builder find_cuda_helper cust_core \
                     soft_cuda alloc core std test proc_macro as async await break const continue \
                     crate dyn else enum extern false fn for if impl in let loop match mod move \
                     mut pub ref return static struct trait true type use while";

fn is_crate_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_part)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    path.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|error| io(path, &error))
}

fn io(path: &Path, error: &std::io::Error) -> String {
    format!("`{}`: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn files(folder: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else {
                found.insert(path);
            }
        }
    }

    /// `cargo generate` takes the whole folder, and fills in what it knows or asks for.
    #[test]
    fn the_folder_is_a_template_of_cargo_generate() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../template");
        let mut found = BTreeSet::new();
        files(&folder, &mut found);
        let settings = folder.join("cargo-generate.toml");
        assert!(found.remove(&settings));
        let made: BTreeSet<PathBuf> = FILES.iter().map(|(file, _)| folder.join(file)).collect();
        assert_eq!(found, made);
        let settings = fs::read_to_string(settings).unwrap();
        for (file, text) in FILES {
            for name in text.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
                let is_known = ["project-name", "crate_name"].contains(&name)
                    || settings.contains(&format!("[placeholders.{name}]"));
                assert!(is_known, "{file}: {name}");
            }
        }
    }
}

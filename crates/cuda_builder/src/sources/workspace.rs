//! What of a workspace's manifest and lock file the crates of the device depend on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::LOCK;

/// Locked packages by name: the lines of their entries.
pub type Packages = BTreeMap<String, String>;

/// The packages of the lock file below `root` that the crates `names` reach.
pub fn locked<'n>(root: &Path, names: impl Iterator<Item = &'n str>) -> Packages {
    let text = fs::read_to_string(root.join(LOCK)).unwrap_or_default();
    // Several versions of a package count together.
    let mut all: BTreeMap<&str, String> = BTreeMap::new();
    for entry in text.split("[[package]]").skip(1) {
        let name = entry.lines().find_map(|line| line.strip_prefix("name = "));
        *all.entry(name.unwrap_or_default().trim_matches('"')).or_default() += entry.trim();
    }
    let mut reached = Packages::new();
    let mut open: Vec<String> = names.map(str::to_owned).collect();
    while let Some(name) = open.pop() {
        let Some(entry) = all.get(&*name).filter(|_| !reached.contains_key(&name)) else {
            continue;
        };
        // A line in `dependencies` has a name in quotes, with a version behind it if need be.
        let dependencies = entry.lines().filter_map(|line| line.trim().strip_prefix('"'));
        let name_of = |line: &str| line.split(['"', ' ']).next().unwrap_or_default().to_owned();
        open.extend(dependencies.map(name_of));
        reached.insert(name, entry.clone());
    }
    reached
}

/// All entries, as one text.
pub fn entries(packages: &Packages) -> String {
    packages.values().map(|entry| format!("{entry}\n")).collect()
}

/// The lines of a workspace's manifest, without comments, that count where `packages` are used:
/// neither members, lints and profiles for the host, nor dependencies of others.
pub fn manifest(settings: &str, packages: &Packages) -> String {
    let (mut section, mut is_members) = ("", false);
    let mut kept = String::new();
    for line in settings.lines() {
        if line.starts_with('[') && !is_members {
            section = line;
        }
        is_members = (is_members || line.starts_with("members")) && !line.ends_with(']');
        let counts = match section {
            "[workspace]" => line.starts_with("resolver"),
            "[workspace.dependencies]" => {
                let name = line.split([' ', '=', '.']).next().unwrap_or_default();
                packages.contains_key(name) || line.contains("package")
            }
            _ => !["[workspace.lints", "[profile.dev"].iter().any(|one| section.starts_with(one)),
        };
        if counts {
            kept.extend([line, "\n"]);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKED: &str = r#"version = 4
[[package]]
name = "kernels"
version = "0.1.0"
dependencies = [
 "libm 0.2.1",
]
[[package]]
name = "libm"
version = "0.2.1"
[[package]]
name = "clap"
version = "4.0.0"
dependencies = [
 "libm",
]
"#;

    #[test]
    fn what_the_crates_reach_counts() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            fs::write(folder.path().join(LOCK), text).unwrap();
            locked(folder.path(), ["kernels"].into_iter())
        };
        let used = of(LOCKED);
        assert!(used.keys().eq(["kernels", "libm"]));
        assert_eq!(entries(&used), entries(&of(&LOCKED.replace("4.0.0", "4.1.0"))));
        assert_ne!(entries(&used), entries(&of(&LOCKED.replace("0.2.1\"\n[", "0.2.2\"\n["))));

        let settings = "[workspace]\nresolver = \"3\"\nmembers = [\n\"a\",\n]\n\
            [workspace.package]\nedition = \"2024\"\n[workspace.dependencies]\nlibm = \"0.2\"\n\
            clap = \"4\"\n[profile.dev]\nopt-level = 1\n[profile.release]\ndebug = 1\n";
        let expected = "resolver = \"3\"\n[workspace.package]\nedition = \"2024\"\n\
            libm = \"0.2\"\n[profile.release]\ndebug = 1\n";
        assert_eq!(manifest(settings, &used), expected);
    }
}

//! How much memory the host has to give.

use std::fs;

/// Bytes of memory of this machine, or of the control group (version 1 or 2) that this process runs
/// in, if that has a lower limit. `None` where the system does not say.
///
/// ```
/// use host_system::memory;
///
/// if let (Some(total), Some(available)) = (memory::total(), memory::available(1)) {
///     assert!(available <= total);
/// }
/// ```
pub fn total() -> Option<u64> {
    let system = meminfo("MemTotal:", &fs::read_to_string("/proc/meminfo").ok()?)?;
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limits =
        limits.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.chain([system]).min()
}

/// Bytes of host memory that can be used without swapping, within the limits of the
/// control group this process runs in, and of the process itself. Where its address space is
/// limited, something is left for the stacks of `threads` threads. `None` where the system does
/// not say.
///
/// ```
/// if let Some(bytes) = host_system::memory::available(1) {
///     println!("{} are available", host_system::format::bytes(bytes.into()));
/// }
/// ```
pub fn available(threads: usize) -> Option<u64> {
    let system = meminfo("MemAvailable:", &fs::read_to_string("/proc/meminfo").ok()?)?;
    let limits = [cgroup_available(), address_space_available(threads)];
    limits.into_iter().flatten().chain([system]).min()
}

fn meminfo(entry: &str, text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(entry))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What the limit of the control group (version 2) leaves: a container sees its own
/// group as the root of the tree.
fn cgroup_available() -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok();
    cgroup_left(&read("memory.max")?, &read("memory.current")?, &read("memory.stat")?)
}

fn cgroup_left(max: &str, current: &str, stat: &str) -> Option<u64> {
    // The word `max` means that there is no limit.
    let max: u64 = max.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    // Cached file pages count as used, and are given up when memory is short.
    let cached: u64 = stat
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file "))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0);
    Some(max.saturating_sub(current.saturating_sub(cached)))
}

/// The limit on this process's address space in bytes (`ulimit -v`), if there is one.
///
/// ```
/// match host_system::memory::address_space_limit() {
///     Some(bytes) => println!("ulimit -v is {}", bytes / 1024),
///     None => println!("there is no limit"),
/// }
/// ```
pub fn address_space_limit() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    // `unlimited` is no number.
    limit.split_whitespace().next()?.parse().ok()
}

/// What that limit leaves for matrices.
fn address_space_available(threads: usize) -> Option<u64> {
    let limit = address_space_limit()?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    address_space_left(limit, &status, threads as u64)
}

fn address_space_left(limit: u64, status: &str, threads: u64) -> Option<u64> {
    /// For all that is no matrix: code, tables, and for each thread two stacks, one of them that
    /// of the software device's threads.
    const REST: u64 = 16 << 20;
    const STACKS: u64 = 5 << 20;
    let used = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let used: u64 = used.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let left = limit.saturating_sub(used.checked_mul(1024)?);
    Some(left - (REST + threads * STACKS).min(left / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:       24000000 kB\nMemFree:  5 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(meminfo("MemAvailable:", text), Some(23_000_000 * 1024));
        assert_eq!(meminfo("MemTotal:", text), Some(24_000_000 * 1024));
        assert_eq!(meminfo("MemAvailable:", "MemTotal: 1 kB\n"), None);
        assert_eq!(meminfo("MemAvailable:", "MemAvailable: many kB\n"), None);
    }

    #[test]
    fn control_groups() {
        assert_eq!(cgroup_left("1000\n", "700\n", "anon 400\ninactive_file 200\n"), Some(500));
        assert_eq!(cgroup_left("1000\n", "1200\n", ""), Some(0));
        assert_eq!(cgroup_left("max\n", "700\n", ""), None);
    }

    #[test]
    fn limits_on_the_address_space() {
        let status = "VmPeak:\t  900000 kB\nVmSize:\t  500000 kB\n";
        let left = |limit: u64, threads| address_space_left(limit << 10, status, threads);
        assert_eq!(left(1_500_000, 2), Some((1_000_000 << 10) - (26 << 20)));
        assert_eq!(left(510_000, 2), Some(5000 << 10), "half of it");
        assert_eq!(left(400_000, 2), Some(0));
        assert_eq!(address_space_left(1, "", 1), None);
    }
}

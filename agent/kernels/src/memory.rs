//! Memory: what this process may still take, and what says that work needs more.
//!
//! A system promises more memory than it has, and ends whoever takes the promise at its word. So what is
//! large is compared with what is free before it is asked for.

use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Less memory than work needs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{what} takes at least {} MiB of memory, and {}",
    needed_bytes.div_ceil(MIB), free_bytes.map_or_else(
        || "the system gives less".to_owned(), |bytes| format!("{} MiB are free", bytes / MIB)
    )
)]
pub struct MemoryError {
    /// What would be in it.
    what: String,
    needed_bytes: u64,
    /// None where there was none for reasons that nobody was told.
    free_bytes: Option<u64>,
}

const MIB: u64 = 1 << 20;

/// That so much is free as `what` needs.
///
/// # Errors
/// It is not.
pub(crate) fn check(
    what: impl FnOnce() -> String,
    needed_bytes: u64,
    free_bytes: u64,
) -> Result<(), MemoryError> {
    if needed_bytes <= free_bytes {
        return Ok(());
    }
    Err(MemoryError { what: what(), needed_bytes, free_bytes: Some(free_bytes) })
}

/// Room for so many numbers of `what`, if there is any.
///
/// # Errors
/// Less is free, or the system gives less.
pub(crate) fn room<T>(
    what: impl Fn() -> String,
    count: usize,
    free_bytes: u64,
) -> Result<Vec<T>, MemoryError> {
    let needed_bytes = bytes_of(&[count, size_of::<T>()]);
    check(&what, needed_bytes, free_bytes)?;
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| MemoryError {
        what: what(),
        needed_bytes,
        free_bytes: None,
    })?;
    Ok(room)
}

/// Bytes of a product of sizes, or more than there can be.
pub(crate) fn bytes_of(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |bytes: u64, size| bytes.saturating_mul(*size as u64))
}

/// Bytes that this process may take beyond what it has: what the machine has free without swapping,
/// as far as control groups and this process's own limits allow it. What is not told has no limit.
#[must_use]
pub fn free_bytes() -> u64 {
    let machine = text("/proc/meminfo").and_then(|text| kib_of(&text, "MemAvailable:"));
    let groups = text("/proc/self/cgroup").map_or(u64::MAX, |text| {
        group_folders(&text).iter().flat_map(|folder| group_bytes(folder)).min().unwrap_or(u64::MAX)
    });
    machine.unwrap_or(u64::MAX).min(groups).min(allowed_bytes())
}

/// The same, as far as this process's own limits go: what others take says nothing here.
#[must_use]
pub fn allowed_bytes() -> u64 {
    let (Some(limits), Some(status)) = (text("/proc/self/limits"), text("/proc/self/status"))
    else {
        return u64::MAX;
    };
    left_of_limits(&limits, &status)
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// A number of KiB after its name, in bytes.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What the soft limits of a process leave it.
fn left_of_limits(limits: &str, status: &str) -> u64 {
    let left = |(limit, held): (&str, &str)| {
        let line = limits.lines().find_map(|line| line.strip_prefix(limit))?;
        // None where it is "unlimited".
        let most: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(most.saturating_sub(kib_of(status, held)?))
    };
    let known = [("Max data size", "VmData:"), ("Max address space", "VmSize:")];
    known.into_iter().filter_map(left).min().unwrap_or(u64::MAX)
}

/// Where the files of a process's group for memory, and of all groups around it, may be.
fn group_folders(groups: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let base = match controllers {
            "" => "/sys/fs/cgroup",
            one if one.split(',').any(|controller| controller == "memory") => {
                "/sys/fs/cgroup/memory"
            }
            _ => continue,
        };
        let of_process = Path::new(base).join(path.trim_start_matches('/'));
        let all = of_process.ancestors().take_while(|folder| folder.starts_with(base));
        folders.extend(all.map(Path::to_owned));
    }
    folders
}

/// What the limit of a group leaves, where it has one. Pages of files are no loss.
fn group_bytes(folder: &Path) -> Option<u64> {
    let number = |name: &str| text(folder.join(name))?.trim().parse::<u64>().ok();
    let unified = number("memory.max").zip(number("memory.current"));
    let (most, held) =
        unified.or_else(|| number("memory.limit_in_bytes").zip(number("memory.usage_in_bytes")))?;
    let stat = text(folder.join("memory.stat")).unwrap_or_default();
    let bytes = |name: &str| -> Option<u64> {
        let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    let of_files = |name: &str| {
        bytes(&format!("total_{name} ")).or_else(|| bytes(&format!("{name} "))).unwrap_or(0)
    };
    // As for the whole machine: the kernel gives up those that are in use, too, before it ends anybody.
    let files = of_files("inactive_file") + of_files("active_file");
    Some(most.saturating_sub(held.saturating_sub(files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_in_numbers() {
        let what = || "a table".to_owned();
        assert_eq!(check(what, 5 << 20, 5 << 20), Ok(()));
        let error = check(what, (5 << 20) + 1, 5 << 20).expect_err("too little").to_string();
        assert_eq!(error, "a table takes at least 6 MiB of memory, and 5 MiB are free");
        assert_eq!(bytes_of(&[usize::MAX, 2, 8]), u64::MAX);
        assert_eq!(room::<f64>(what, 3, 24).map(|room| room.capacity()), Ok(3));
        assert!(room::<f64>(what, 4, 24).is_err());
        let error = room::<f64>(what, usize::MAX, u64::MAX).expect_err("too much").to_string();
        assert!(error.ends_with(" MiB of memory, and the system gives less"), "{error}");
    }

    #[test]
    fn own_limits_count_with_what_is_held_of_them() {
        let status = "Name:\tx\nVmSize:\t    3000 kB\nVmData:\t    1000 kB\n";
        let limits = |data: &str, space: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max cpu time              unlimited            unlimited            seconds   \n\
                 Max data size             {data}            unlimited            bytes     \n\
                 Max address space         {space}            unlimited            bytes     \n"
            )
        };
        let left = |data: &str, space: &str| left_of_limits(&limits(data, space), status);
        assert_eq!(left("unlimited", "unlimited"), u64::MAX);
        assert_eq!(left("2048000", "unlimited"), 1000 << 10);
        assert_eq!(left("2048000", "3073024"), 1 << 10);
        assert_eq!(left("1", "unlimited"), 0);
        assert_eq!(left_of_limits("", status), u64::MAX);
    }

    #[test]
    fn all_groups_around_a_process_count() {
        let folders = |text: &str| -> Vec<String> {
            group_folders(text).iter().map(|folder| folder.display().to_string()).collect()
        };
        assert_eq!(
            folders("0::/a/b\n"),
            ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]
        );
        assert_eq!(
            folders("5:cpu,cpuacct:/c\n4:memory:/c\n"),
            ["/sys/fs/cgroup/memory/c", "/sys/fs/cgroup/memory"]
        );
        assert_eq!(folders("nonsense\n"), Vec::<String>::new());
    }

    #[test]
    fn a_group_has_what_its_limit_leaves_and_what_files_hold_for_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).expect("written");
        };
        assert_eq!(group_bytes(folder.path()), None);
        put("memory.max", "max\n");
        put("memory.current", "700\n");
        assert_eq!(group_bytes(folder.path()), None, "it has no limit");
        put("memory.max", "1000\n");
        assert_eq!(group_bytes(folder.path()), Some(300));
        put("memory.stat", "anon 400\nfile 300\ninactive_file 200\nactive_file 80\n");
        assert_eq!(group_bytes(folder.path()), Some(580));
        // As the first version has it, whose own pages are not all of its group's.
        put(
            "memory.stat",
            "inactive_file 1\nactive_file 2\ntotal_inactive_file 30\ntotal_active_file 40\n",
        );
        assert_eq!(group_bytes(folder.path()), Some(370));
    }

    #[test]
    fn this_process_has_some() {
        assert!((1..u64::MAX).contains(&free_bytes()));
        assert!(free_bytes() <= allowed_bytes());
    }
}

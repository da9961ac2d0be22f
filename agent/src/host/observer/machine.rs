//! Memory and temperature, as the kernel shows them.

use std::fs;
use std::path::{Path, PathBuf};

use super::text_of;

/// Where sensors are below.
pub(super) const SYSTEM: &str = "/sys/class";

/// Memory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// What a new program could have.
    pub(super) free_mib: u64,
    /// All.
    pub(super) total_mib: u64,
}

/// None where it cannot be told.
pub(super) fn memory() -> Option<Memory> {
    parse_memory(&text_of("/proc/meminfo"))
}

fn parse_memory(text: &str) -> Option<Memory> {
    let mib = |key: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? / 1_024)
    };
    Some(Memory { free_mib: mib("MemAvailable:")?, total_mib: mib("MemTotal:")? })
}

/// The hottest sensor; None where there is none that can be read.
pub(super) fn temperature_c(classes: &Path) -> Option<i32> {
    let zones = entries(&classes.join("thermal")).map(|zone| zone.join("temp"));
    let chips = entries(&classes.join("hwmon"));
    let inputs = chips.flat_map(|chip| entries(&chip).collect::<Vec<_>>()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("temp") && name.ends_with("_input")
    });
    let values = zones.chain(inputs).filter_map(|path| text_of(path).trim().parse::<i32>().ok());
    // Sensors that are not connected show absurd values.
    values.map(|millis| millis / 1_000).filter(|c| (-50..=150).contains(c)).max()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, format!("{text}\n")).expect("written");
        }
    }

    #[test]
    fn the_hottest_sensor_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(temperature_c(folder.path()), None);
        put(
            folder.path(),
            &[
                ("thermal/thermal_zone0/temp", "41000"),
                ("hwmon/hwmon1/temp2_input", "63900"),
                ("hwmon/hwmon1/temp2_max", "100000"),
                ("hwmon/hwmon2/temp1_input", "255000"),
            ],
        );
        assert_eq!(temperature_c(folder.path()), Some(63));
    }

    #[test]
    fn memory_is_read_in_mib() {
        let text = "MemTotal:       2097152 kB\nMemFree: 1 kB\nMemAvailable:    1048576 kB\n";
        assert_eq!(parse_memory(text), Some(Memory { free_mib: 1_024, total_mib: 2_048 }));
        assert_eq!(parse_memory("MemTotal: 1 kB"), None);
    }
}

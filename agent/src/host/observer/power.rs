//! Whether the machine runs on a battery.
//!
//! Chargers are told apart badly by the kernel: a laptop that charges by USB-C may show no charger
//! that is online, a bay without a battery shows a battery, and an adapter may say 0 for ever. So a
//! charger that is online settles it, then the batteries' own state, and a charger that is offline
//! counts only where no battery tells.
//!
//! Source: the kernel's `Documentation/ABI/testing/sysfs-class-power`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::observer::text_of;

/// Where power supplies are.
pub(super) const POWER: &str = "/sys/class/power_supply";

/// What a battery says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Battery {
    Discharging,
    /// It charges, is full, or is held at a level: power comes from elsewhere.
    Powered,
    /// It does not say.
    Unknown,
}

/// The supplies that show that the machine runs on a battery, in words; none where it does not.
/// Batteries of mice and the like do not count.
pub(super) fn on_battery(supplies: &Path) -> Option<String> {
    let mut batteries = Vec::new();
    let mut offline = Vec::new();
    for supply in entries(supplies) {
        let read = |name: &str| text_of(supply.join(name)).trim().to_owned();
        if read("scope") == "Device" {
            continue;
        }
        let name = supply.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match read("type").as_str() {
            "Battery" if read("present") != "0" => {
                batteries.push((name, battery(&read("status"))));
            }
            "Mains" | "USB" | "Wireless" => match read("online").as_str() {
                "" => {}
                "0" => offline.push(name),
                // 1, or 2 where it may be programmed.
                _ => return None,
            },
            _ => {}
        }
    }
    batteries.sort();
    let of = |state| batteries.iter().filter(move |(_, is)| *is == state).map(|(name, _)| name);
    if let Some(name) = of(Battery::Discharging).next() {
        return Some(format!("{name} is discharging"));
    }
    if of(Battery::Powered).next().is_some() {
        return None;
    }
    offline.sort();
    let (battery, charger) = (of(Battery::Unknown).next()?, offline.first()?);
    Some(format!("{charger} is offline, and {battery} does not say whether it is discharging"))
}

fn battery(status: &str) -> Battery {
    match status {
        "Discharging" => Battery::Discharging,
        "Charging" | "Full" | "Not charging" => Battery::Powered,
        _ => Battery::Unknown,
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Supplies with their files, as `NAME: FILE=VALUE …`.
    fn told(supplies: &[&str]) -> Option<String> {
        let folder = tempfile::tempdir().expect("a folder");
        for supply in supplies {
            let (name, files) = supply.split_once(": ").expect("a name");
            let path = folder.path().join(name);
            fs::create_dir(&path).expect("made");
            for file in files.split(", ") {
                let (file, text) = file.split_once('=').expect("a value");
                fs::write(path.join(file), format!("{text}\n")).expect("written");
            }
        }
        on_battery(folder.path())
    }

    #[test]
    fn a_machine_with_power_from_elsewhere_is_not_on_battery() {
        for supplies in [
            &[][..],
            &["AC: type=Mains, online=1"],
            &["BAT0: type=Battery, status=Full"],
            &["BAT0: type=Battery, status=Not charging", "AC: type=Mains, online=0"],
            // Charges by USB-C, whose port says nothing.
            &["BAT0: type=Battery, present=1, status=Charging", "ucsi: type=USB, online=0"],
            &["BAT0: type=Battery, status=Charging", "pad: type=Wireless, online=1"],
            &["BAT0: type=Battery, status=Unknown", "pd: type=USB, online=2"],
            // A bay without a battery, and an adapter that says 0.
            &["BAT0: type=Battery, present=0, status=Unknown", "ADP1: type=Mains, online=0"],
            &["BAT0: type=Battery, present=0, status=Discharging"],
            // A second battery that is used up first, on mains.
            &[
                "AC: type=Mains, online=1",
                "BAT0: type=Battery, status=Charging",
                "BAT1: type=Battery, present=1, status=Discharging",
            ],
            &["mouse: type=Battery, scope=Device, status=Discharging"],
            &["BAT0: type=Battery, status=Unknown"],
            &["pen: type=USB, scope=Device, online=0", "BAT0: type=Battery, status=Unknown"],
        ] {
            assert_eq!(told(supplies), None, "{supplies:?}");
        }
    }

    #[test]
    fn a_laptop_without_its_cable_is_on_battery_and_says_by_which_supply() {
        for (supplies, words) in [
            (&["BAT0: type=Battery, status=Discharging"][..], "BAT0 is discharging"),
            (
                &["AC: type=Mains, online=0", "BAT1: type=Battery, present=1, status=Discharging"],
                "BAT1 is discharging",
            ),
            (
                &["BAT0: type=Battery, status=Full", "BAT1: type=Battery, status=Discharging"],
                "BAT1 is discharging",
            ),
            (
                &["BAT0: type=Battery, status=Unknown", "AC: type=Mains, online=0"],
                "AC is offline, and BAT0 does not say",
            ),
        ] {
            let said = told(supplies).unwrap_or_else(|| panic!("{supplies:?}"));
            assert!(said.starts_with(words), "{said}");
        }
    }
}

//! What is known of a graphics processor.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::GPU_TEXT_BYTES_MAX;

/// A graphics processor that computes kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInfo {
    /// What its driver calls it.
    pub name: String,
    /// Its driver, with what that says of its version.
    pub driver: String,
    /// What it is.
    pub kind: GpuKind,
    /// Memory of its own, in MiB; for one without any, what it may take of the host's.
    pub memory_mib: u64,
}

/// What a graphics processor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuKind {
    /// A card.
    Discrete,
    /// A part of the processor.
    Integrated,
    /// A share of one that a virtual machine is given.
    Virtual,
    /// None: a driver that computes on the processor.
    Software,
    /// Its driver does not say.
    Other,
}

impl GpuInfo {
    /// Whether its texts are as short as they may be, and each one line.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let is_plain =
            |text: &String| text.len() <= GPU_TEXT_BYTES_MAX && !text.chars().any(char::is_control);
        is_plain(&self.name) && is_plain(&self.driver)
    }

    /// The same with texts as short as they may be, each one line.
    #[must_use]
    pub fn made_plain(self) -> Self {
        let plain = |text: String| {
            let mut plain: String = text.chars().filter(|letter| !letter.is_control()).collect();
            plain.truncate(plain.floor_char_boundary(GPU_TEXT_BYTES_MAX));
            plain
        };
        Self { name: plain(self.name), driver: plain(self.driver), ..self }
    }
}

impl fmt::Display for GpuInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, driver, kind, memory_mib } = self;
        write!(f, "{name} ({kind}, {memory_mib} MiB, driver {driver})")
    }
}

impl fmt::Display for GpuKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Software => "software",
            Self::Other => "of unknown kind",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_says_is_cut_to_one_short_line() {
        let wild = GpuInfo {
            name: "\u{1b}[2Ja\nb".to_owned(),
            driver: "ü".repeat(GPU_TEXT_BYTES_MAX),
            kind: GpuKind::Discrete,
            memory_mib: 8_192,
        };
        assert!(!wild.is_plain());
        let plain = wild.made_plain();
        assert!(plain.is_plain());
        assert_eq!((plain.name.as_str(), plain.driver.len()), ("[2Jab", GPU_TEXT_BYTES_MAX));
        let short = GpuInfo { driver: "d 1".into(), ..plain };
        assert_eq!(short.to_string(), "[2Jab (discrete, 8192 MiB, driver d 1)");
    }
}

//! What is known of a graphics processor.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::GPU_TEXT_BYTES_MAX;

/// A graphics processor that computes kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuInfo {
    /// What its driver calls it.
    pub name: String,
    /// Its driver, with what that says of its version.
    pub driver: String,
    /// What it is.
    pub kind: GpuKind,
    /// Memory of its own, in MiB; for one without any, what it may take of the host's.
    pub memory_mib: u64,
    /// The longest side of a texture in three dimensions, in voxels.
    pub texture_side_max: u32,
    /// The largest buffer, in MiB.
    pub buffer_mib_max: u64,
    /// Where it is on the host's buses, if it is on any and its driver says so.
    pub pci: Option<PciAddress>,
}

/// Where a device is on the PCI buses of its host: `0000:01:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// A text is no address of a device on a PCI bus.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:.40?} is no PCI address: expected DOMAIN:BUS:DEVICE.FUNCTION, as in 0000:01:00.0")]
pub struct PciAddressError(String);

/// What a graphics processor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

    /// What it takes at once, in words.
    #[must_use]
    pub fn limits(&self) -> String {
        let Self { texture_side_max, buffer_mib_max, .. } = self;
        format!("{texture_side_max} voxels along a side, and {buffer_mib_max} MiB in a buffer")
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
        let Self { name, driver, kind, memory_mib, pci, .. } = self;
        write!(f, "{name} ({kind}, {memory_mib} MiB, driver {driver}")?;
        if let Some(pci) = pci {
            write!(f, ", PCI {pci}")?;
        }
        f.write_str(")")
    }
}

impl FromStr for PciAddress {
    type Err = PciAddressError;

    fn from_str(text: &str) -> Result<Self, PciAddressError> {
        let parsed = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            // The parser of numbers takes a sign, too.
            let hex = |part: &str, digits: usize| {
                let is_hex = part.bytes().all(|digit| digit.is_ascii_hexdigit());
                let is_short = part.len() <= digits;
                (is_hex && is_short).then(|| u32::from_str_radix(part, 16).ok())?
            };
            Some(Self {
                domain: hex(domain, 8)?,
                bus: u8::try_from(hex(bus, 2)?).ok()?,
                device: u8::try_from(hex(device, 2)?).ok()?,
                function: u8::try_from(hex(function, 1)?).ok()?,
            })
        };
        parsed().ok_or_else(|| PciAddressError(text.to_owned()))
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl TryFrom<String> for PciAddress {
    type Error = PciAddressError;

    fn try_from(text: String) -> Result<Self, PciAddressError> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
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
            texture_side_max: 2_048,
            buffer_mib_max: 4_096,
            pci: None,
        };
        assert!(!wild.is_plain());
        let plain = wild.made_plain();
        assert!(plain.is_plain());
        assert_eq!((plain.name.as_str(), plain.driver.len()), ("[2Jab", GPU_TEXT_BYTES_MAX));
        let short = GpuInfo { driver: "d 1".into(), ..plain };
        assert_eq!(short.to_string(), "[2Jab (discrete, 8192 MiB, driver d 1)");
        let placed = GpuInfo { pci: "0:1:0.0".parse().ok(), ..short };
        let says = "[2Jab (discrete, 8192 MiB, driver d 1, PCI 0000:01:00.0)";
        assert_eq!(placed.to_string(), says);
        assert_eq!(placed.limits(), "2048 voxels along a side, and 4096 MiB in a buffer");
    }

    #[test]
    fn an_address_is_read_as_drivers_write_it_and_nothing_else_is() {
        for (text, says) in [
            ("0000:01:00.0", "0000:01:00.0"),
            ("00000000:C1:1F.7", "0000:c1:1f.7"),
            ("10000:e1:00.0", "10000:e1:00.0"),
        ] {
            let address: PciAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), says);
            let written = serde_json::to_string(&address).expect("plain");
            assert_eq!(written, format!("{says:?}"));
            assert_eq!(serde_json::from_str::<PciAddress>(&written).expect("our own"), address);
        }
        for text in
            ["", "01:00.0", "0000:01:00", "0000:101:00.0", "0000:+1:00.0", "0000::00.0", "é:1:0.0"]
        {
            let error = text.parse::<PciAddress>().expect_err(text).to_string();
            assert!(error.contains("0000:01:00.0"), "{error}");
        }
    }
}

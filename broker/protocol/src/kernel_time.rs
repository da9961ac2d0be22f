//! How long a kernel took on a kind of host: what a replica's host measured, and the line of a
//! profile that comes of it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::LEASE_S_MAX;
use crate::{DataSize, HostKind, KernelName};

/// What computed a replica of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Computer {
    /// One core of a processor.
    Core,
    /// A graphics processor.
    Gpu,
}

impl Computer {
    /// What hosts of a kind are called where this computes; where they have no kind, `cpu` and `gpu`.
    /// A GPU is not the host's kind alone: its cores compute beside it.
    #[must_use]
    pub fn kind(self, host: Option<&HostKind>) -> HostKind {
        let plain = |name| HostKind::new(name).expect("a plain name");
        match (self, host) {
            (Self::Core, Some(kind)) => kind.clone(),
            (Self::Core, None) => plain("cpu"),
            (Self::Gpu, Some(kind)) => {
                HostKind::new(format!("{kind}-gpu")).unwrap_or_else(|_| plain("gpu"))
            }
            (Self::Gpu, None) => plain("gpu"),
        }
    }
}

/// How long one replica of a kernel with a specification took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// How much data it was.
    pub size: DataSize,
    /// What computed it.
    pub by: Computer,
    /// How long, in microseconds: CPU time of a core, or what went by where a GPU computed.
    pub run_us: u64,
}

/// One measurement of a profile, as a line of comma-separated values: see [`KernelTime::HEADER`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelTime {
    /// The kernel.
    pub kernel: KernelName,
    /// Which part of its specification; empty where that is one piece.
    pub part: String,
    /// How much data it was.
    pub size: DataSize,
    /// What hosts of its kind are called.
    pub kind: HostKind,
    /// How long it took, in microseconds.
    pub run_us: u64,
}

impl KernelTime {
    /// The first line of a profile: the names of its columns.
    pub const HEADER: &'static str = "kernel,part,size,kind,seconds";

    /// One measurement, where it can be a line: a part must be a plain name.
    #[must_use]
    pub fn new(
        kernel: KernelName,
        part: Option<&str>,
        measured: &Measured,
        host: Option<&HostKind>,
    ) -> Option<Self> {
        let part = match part {
            None => String::new(),
            // Parts have the same characters as names.
            Some(part) => KernelName::new(part).ok()?.to_string(),
        };
        let Measured { size, by, run_us } = measured;
        let (size, kind) = (size.clone(), by.kind(host));
        // A replica has to end before its lease does.
        let is_time = (1..=(LEASE_S_MAX - 1) * 1_000_000).contains(run_us);
        is_time.then_some(Self { kernel, part, size, kind, run_us: *run_us })
    }
}

impl fmt::Display for KernelTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, part, size, kind, run_us } = self;
        write!(f, "{kernel},{part},{size},{kind},{:.6}", *run_us as f64 / 1e6)
    }
}

/// A line is no measurement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no measurement of a kernel: expected {header:?}", header = KernelTime::HEADER)]
pub struct KernelTimeError(String);

impl FromStr for KernelTime {
    type Err = KernelTimeError;

    fn from_str(line: &str) -> Result<Self, KernelTimeError> {
        let parse = || {
            let mut words = line.split(',');
            let mut word = || words.next();
            let kernel = KernelName::new(word()?).ok()?;
            let part = word()?.to_owned();
            let size = DataSize::new(word()?).ok()?;
            let kind = HostKind::new(word()?).ok()?;
            let seconds: f64 = word()?.parse().ok()?;
            let run_us = (seconds * 1e6).round() as u64;
            words.next().is_none().then_some(Self { kernel, part, size, kind, run_us })
        };
        parse().ok_or_else(|| KernelTimeError(line.chars().take(200).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_a_line_of_a_profile() {
        let kernel = || KernelName::new("npairs").expect("a name");
        let fat = HostKind::new("fat").expect("a name");
        let of = |by| Measured {
            size: DataSize::new("120x13440").expect("a size"),
            by,
            run_us: 1_500_000,
        };
        for (part, by, kind, line) in [
            (Some("4"), Computer::Core, Some(&fat), "npairs,4,120x13440,fat,1.500000"),
            (Some("4"), Computer::Gpu, Some(&fat), "npairs,4,120x13440,fat-gpu,1.500000"),
            (None, Computer::Core, None, "npairs,,120x13440,cpu,1.500000"),
            (None, Computer::Gpu, None, "npairs,,120x13440,gpu,1.500000"),
        ] {
            let time = KernelTime::new(kernel(), part, &of(by), kind).expect("a measurement");
            assert_eq!(time.to_string(), line);
            assert_eq!(line.split(',').count(), KernelTime::HEADER.split(',').count());
            assert_eq!(line.parse(), Ok(time));
        }
        let longest = HostKind::new("x".repeat(crate::limits::NAME_BYTES_MAX)).expect("a name");
        assert_eq!(Computer::Gpu.kind(Some(&longest)).as_str(), "gpu");
    }

    #[test]
    fn what_would_break_a_line_is_none() {
        let kernel = || KernelName::new("volume").expect("a name");
        let size = DataSize::new("64x64x64@320x240").expect("a size");
        let measured = Measured { size, by: Computer::Core, run_us: 7 };
        for part in ["1,2", "a\nb", "", " "] {
            assert!(KernelTime::new(kernel(), Some(part), &measured, None).is_none(), "{part:?}");
        }
        for run_us in [0, LEASE_S_MAX * 1_000_000, u64::MAX] {
            let never = Measured { run_us, ..measured.clone() };
            assert!(KernelTime::new(kernel(), None, &never, None).is_none(), "{run_us}");
        }
        assert!(DataSize::new("64,64").is_err());
        for line in ["", KernelTime::HEADER, "x,1,2,cpu", "x,1,2,cpu,x", "x,1,2,cpu,1.0,"] {
            assert!(line.parse::<KernelTime>().is_err(), "{line:?}");
        }
    }
}

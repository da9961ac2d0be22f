//! Why less runs than the host has room for, in the owner's words.

use std::fmt;

use gleaner_protocol::Span;

use super::UserIdle;

/// One cause. Its `Display` is for people, [`Reason::kind`] for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Outside the hours; how long until they begin.
    Hours { begins_in_min: Option<u64> },
    /// Somebody is at the machine.
    UserPresent { idle: UserIdle, wanted_min: u32 },
    /// It cannot be told whether somebody is.
    UserUnknown(String),
    /// No mains: which supplies show that.
    OnBattery(String),
    /// Too hot.
    Hot { now_c: i32, max_c: u32 },
    /// There is no sensor.
    NoSensor,
    /// A program that pauses everything.
    Program(String),
    /// The day's network is used up.
    Network { used_mib: u64, max_mib: u64 },
    /// The work folder is full.
    Disk { used_mib: u64, max_mib: u64 },
    /// The replicas take more memory than they may.
    Memory { used_mib: u64, max_mib: u64 },
    /// Others compute.
    Others { millicores: u32 },
    /// Others wait for memory, or little is left.
    MemoryPressure { stall_permille: u32, free_mib: Option<u64> },
    /// Others wait for a disk.
    DiskPressure { stall_permille: u32 },
    /// A cause has gone, and its calm is waited for.
    Calm { after: &'static str, left: Span },
}

impl Reason {
    /// A word for programs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Hours { .. } => "hours",
            Self::UserPresent { .. } => "user_present",
            Self::UserUnknown(_) => "user_unknown",
            Self::OnBattery(_) => "on_battery",
            Self::Hot { .. } => "temperature",
            Self::NoSensor => "no_temperature_sensor",
            Self::Program(_) => "program",
            Self::Network { .. } => "network_limit",
            Self::Disk { .. } => "disk_limit",
            Self::Memory { .. } => "memory_limit",
            Self::Others { .. } => "others_compute",
            Self::MemoryPressure { .. } => "memory_pressure",
            Self::DiskPressure { .. } => "disk_pressure",
            Self::Calm { .. } => "calm",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hours { begins_in_min: Some(min) } => {
                let (hours, min) = (min / 60, min % 60);
                write!(f, "it is not one of the owner's hours; they begin in {hours} h {min} min")
            }
            Self::Hours { begins_in_min: None } => f.write_str("the owner gives no hour"),
            Self::UserPresent { idle, wanted_min } => {
                if idle.desktop_is_in_use {
                    return write!(
                        f,
                        "the desktop says that somebody uses it (logind's IdleHint is \"no\"); the \
                         owner wants {wanted_min} min. Where it never says \"yes\", as KDE Plasma, \
                         run swayidle with idlehint (Wayland) or xss-lock (X11) in the session, or \
                         set user_away_min = 0 and leave it to give_way and pause_for"
                    );
                }
                let ms = idle.span.as_millis();
                let (min, s) = (ms / 60_000, ms / 1_000 % 60);
                write!(
                    f,
                    "somebody used this machine {min} min {s} s ago; the owner wants {wanted_min} min"
                )
            }
            Self::UserUnknown(why) => {
                write!(f, "it cannot be told whether somebody uses this machine: {why}")
            }
            Self::OnBattery(how) => write!(f, "the machine runs on its battery ({how})"),
            Self::Hot { now_c, max_c } => {
                write!(f, "the machine has {now_c} °C; the owner allows {max_c} °C")
            }
            Self::NoSensor => {
                f.write_str("the owner sets a temperature, and this machine has no sensor")
            }
            Self::Program(name) => write!(f, "{name} runs"),
            Self::Network { used_mib, max_mib } => {
                write!(f, "{used_mib} of {max_mib} MiB of today's network are used")
            }
            Self::Disk { used_mib, max_mib } => {
                write!(f, "the work folder has {used_mib} MiB; the owner allows {max_mib} MiB")
            }
            Self::Memory { used_mib, max_mib } => {
                write!(
                    f,
                    "tasks take {used_mib} MiB of memory; owner and renders leave them {max_mib} MiB"
                )
            }
            Self::Others { millicores } => {
                let (whole, tenth) = (millicores / 1_000, millicores % 1_000 / 100);
                write!(f, "others keep {whole}.{tenth} cores busy")
            }
            Self::MemoryPressure { stall_permille, free_mib } => {
                write!(
                    f,
                    "programs wait for memory {}.{} % of the time",
                    stall_permille / 10,
                    stall_permille % 10
                )?;
                free_mib.map_or(Ok(()), |free| write!(f, ", {free} MiB are free"))
            }
            Self::DiskPressure { stall_permille } => {
                write!(
                    f,
                    "others wait for a disk {}.{} % of the time",
                    stall_permille / 10,
                    stall_permille % 10
                )
            }
            Self::Calm { after, left } => {
                write!(
                    f,
                    "{after} until just now; {} s of calm are waited for",
                    left.as_millis().div_ceil(1_000)
                )
            }
        }
    }
}

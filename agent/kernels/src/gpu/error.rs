//! Why nothing comes from a GPU.

use gleaner_protocol::PciAddress;
use thiserror::Error;

use crate::limits::DEVICE_WAIT_MAX;

/// Why nothing comes from a GPU.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum GpuError {
    /// There is none.
    #[error(
        "no GPU with a Vulkan driver was found{}: install the driver of its maker \
         (`vulkaninfo --summary` lists what there is), or compute on the processor",
        besides(.software)
    )]
    NoGpu {
        /// Devices that are there, but only software.
        software: Vec<String>,
    },
    /// There is none of that name.
    #[error("no GPU has {wanted:?} in its name: there is {}", listed(.seen))]
    NoneNamed {
        /// The part of a name.
        wanted: String,
        /// The names of those that are there.
        seen: Vec<String>,
    },
    /// There is none at that place.
    #[error(
        "no GPU is at {place} of those that are meant ({}): it is gone, or somewhere else now; \
         restart who looked for it",
        listed(.seen)
    )]
    NonePlaced {
        /// Where it was to be.
        place: PciAddress,
        /// The names of those that are somewhere else.
        seen: Vec<String>,
    },
    /// Its driver does not give what is needed.
    #[error("{device} cannot be used: {problem}; update its driver, or compute on the processor")]
    Refused {
        /// Its name.
        device: String,
        /// What its driver says.
        problem: String,
    },
    /// It has not enough memory.
    #[error(
        "{device} has no memory left for {what}: end what else uses it, or compute on the processor"
    )]
    OutOfMemory {
        /// Its name.
        device: String,
        /// What memory was asked for.
        what: String,
    },
    /// Too much of its memory is in use, or kept for others.
    #[error(
        "{device} has {free_mib} MiB of memory free{}, too little to compute there: end what else \
         uses it, or compute on the processor",
        kept(*.reserve_mib)
    )]
    Crowded {
        /// Its name.
        device: String,
        /// What is free of its memory, in MiB.
        free_mib: u64,
        /// What of that is left to others, in MiB.
        reserve_mib: u64,
    },
    /// It went away.
    #[error(
        "{device} was lost{}: look into the system's log, and try again when it is back, or \
         compute on the processor",
        in_brackets(.problem)
    )]
    Lost {
        /// Its name.
        device: String,
        /// What its driver says, if anything.
        problem: String,
    },
    /// It does not come to an end.
    #[error(
        "{device} has not done a short piece of work in {} s: restart its driver, or compute on \
         the processor",
        DEVICE_WAIT_MAX.as_secs()
    )]
    Hung {
        /// Its name.
        device: String,
    },
    /// It refuses what it should do.
    #[error("{device}: {problem}; this is a fault of this program or the driver, report it")]
    Failed {
        /// Its name.
        device: String,
        /// What its driver says.
        problem: String,
    },
}

impl GpuError {
    /// What it means that a device was lost while it was asked to do something with `what`: where
    /// no memory is left for what the library itself needs, it gives the device up.
    pub(super) fn of_lost(device: &str, what: &str, problem: &str) -> Self {
        let device = device.to_owned();
        if problem == wgpu::hal::DeviceError::OutOfMemory.to_string() {
            Self::OutOfMemory { device, what: what.to_owned() }
        } else {
            Self::Lost { device, problem: problem.to_owned() }
        }
    }

    /// What an error of a device means that was asked to do something with `what`.
    pub(super) fn of(device: &str, what: &str, error: &wgpu::Error) -> Self {
        let device = device.to_owned();
        match error {
            wgpu::Error::OutOfMemory { .. } => Self::OutOfMemory { device, what: what.to_owned() },
            wgpu::Error::Validation { .. } | wgpu::Error::Internal { .. } => {
                let text = error.to_string();
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                Self::Failed { device, problem: lines.collect::<Vec<_>>().join(" ") }
            }
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn besides(software: &[String]) -> String {
    match software {
        [] => String::new(),
        names => format!(", only software, which has to be named ({})", names.join(", ")),
    }
}

fn kept(reserve_mib: u64) -> String {
    match reserve_mib {
        0 => String::new(),
        mib => format!(", of which {mib} MiB are kept for others"),
    }
}

fn in_brackets(problem: &str) -> String {
    if problem.is_empty() { String::new() } else { format!(" ({problem})") }
}

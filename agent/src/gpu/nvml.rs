//! Who uses a GPU of NVIDIA's, and what is free of its memory, as their library NVML tells.
//!
//! Nothing of an agent waits for it: it is loaded by a process of its own ([`watcher`](super::watcher)).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use gleaner_hooks::ProcessStat;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use nvml_wrapper::{Device, Nvml};

use super::watcher::{Answer, Questions};
use crate::limits::{GPU_PARENTS_MAX, GPU_USERS_MAX, GPU_WATCH_MS};
use crate::wishes::{GpuSight, GpuUser};

const MIB: u64 = 1 << 20;

/// Answers all questions about the GPU at a PCI address, until they end or cannot be answered.
pub(super) fn answer(
    address: &str,
    library: Option<&Path>,
    questions: &mut Questions,
) -> io::Result<()> {
    questions.next()?;
    let mut builder = Nvml::builder();
    if let Some(library) = library {
        builder.lib_path(library.as_os_str());
    }
    let nvml = match builder.init() {
        Ok(nvml) => nvml,
        Err(error) => return questions.answer(&refused(&error, "load NVML")),
    };
    let device = match nvml.device_by_pci_bus_id(address) {
        Ok(device) => device,
        Err(NvmlError::NotFound | NvmlError::InvalidArg) => {
            return questions.answer(&Answer::Absent("the GPU is none of NVIDIA's".into()));
        }
        Err(error) => return questions.answer(&refused(&error, "find the GPU")),
    };
    let mut looker = Looker { device, agent: agent(), seen_until: 0 };
    loop {
        match looker.look() {
            Ok(sight) => questions.answer(&Answer::Seen(sight))?,
            Err(error) => return questions.answer(&refused(&error, "look at the GPU")),
        }
        questions.next()?;
    }
}

/// What it means that NVML does not do something. Where there is nothing to learn nobody asks again.
fn refused(error: &NvmlError, what: &str) -> Answer {
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded => {
            Answer::Absent("NVML is not here".into())
        }
        NvmlError::FailedToLoadSymbol(_)
        | NvmlError::FunctionNotFound
        | NvmlError::NotSupported => {
            Answer::Absent(format!("NVML of this driver cannot {what}: {error}"))
        }
        error => Answer::Failed(format!("NVML cannot {what}: {error}")),
    }
}

/// The process that has started this one.
fn agent() -> i32 {
    rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get())
}

struct Looker<'nvml> {
    device: Device<'nvml>,
    agent: i32,
    /// Up to when processes' shares have been seen, on NVML's own clock, in microseconds.
    seen_until: u64,
}

impl Looker<'_> {
    fn look(&mut self) -> Result<GpuSight, NvmlError> {
        let memory = self.device.memory_info()?;
        let computing = self.device.running_compute_processes()?;
        let rendering = self.device.running_graphics_processes()?;
        let shares = self.shares()?;
        let pids = |of: &[ProcessInfo]| of.iter().map(|one| one.pid).collect::<Vec<u32>>();
        let (computing, rendering) = (pids(&computing), pids(&rendering));
        let (mut users, mut has_ours) = (BTreeMap::new(), false);
        for pid in computing.iter().chain(&rendering).copied() {
            match whose(pid, self.agent) {
                Whose::Ours => has_ours = true,
                Whose::Nobodys => {}
                Whose::Anothers => {
                    let only_computes = !rendering.contains(&pid);
                    let share =
                        |shares: &BTreeMap<u32, u32>| shares.get(&pid).copied().unwrap_or(0);
                    let busy_percent = shares.as_ref().map(share);
                    let name = name(pid);
                    users.insert(pid, GpuUser { pid, name, only_computes, busy_percent });
                }
            }
        }
        let mut users: Vec<GpuUser> = users.into_values().collect();
        users.sort_by_key(|user| {
            (!user.only_computes, user.busy_percent.map(|busy| u32::MAX - busy))
        });
        users.truncate(GPU_USERS_MAX);
        let (free_mib, memory_mib) = (memory.free / MIB, memory.total / MIB);
        Ok(GpuSight { free_mib, memory_mib, has_ours, users })
    }

    /// For how much of the time processes kept it busy since the last look, in percent; none where
    /// this driver does not say.
    fn shares(&mut self) -> Result<Option<BTreeMap<u32, u32>>, NvmlError> {
        let mut samples = self.device.process_utilization_stats(self.seen_until);
        if matches!(samples, Err(NvmlError::InsufficientSize(_))) {
            // There were more of them a moment later.
            samples = self.device.process_utilization_stats(self.seen_until);
        }
        match samples {
            Ok(samples) => Ok(Some(self.averages(&samples))),
            Err(NvmlError::NotFound) => Ok(Some(BTreeMap::new())),
            Err(
                NvmlError::NotSupported
                | NvmlError::FailedToLoadSymbol(_)
                | NvmlError::InsufficientSize(_),
            ) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn averages(&mut self, samples: &[ProcessUtilizationSample]) -> BTreeMap<u32, u32> {
        let newest = samples.iter().map(|sample| sample.timestamp).max().unwrap_or(0);
        // The first time there are those of long ago.
        let oldest = self.seen_until.max(newest.saturating_sub(GPU_WATCH_MS * 1_000));
        self.seen_until = self.seen_until.max(newest);
        let mut sums: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.timestamp > oldest) {
            let (sum, count) = sums.entry(sample.pid).or_default();
            *sum += sample.sm_util.max(sample.enc_util).max(sample.dec_util).min(100);
            *count += 1;
        }
        sums.into_iter().map(|(pid, (sum, count))| (pid, sum / count)).collect()
    }
}

/// Who a process belongs to.
enum Whose {
    /// The agent: a task of its own.
    Ours,
    /// Somebody else.
    Anothers,
    /// It has ended, or is numbered as outside of the container that this is.
    Nobodys,
}

fn whose(pid: u32, agent: i32) -> Whose {
    let Ok(pid) = i32::try_from(pid) else { return Whose::Nobodys };
    let mut at = pid;
    for _ in 0..GPU_PARENTS_MAX {
        match ProcessStat::of(at) {
            Ok(stat) if stat.parent == agent => return Whose::Ours,
            Ok(stat) if stat.parent > 1 => at = stat.parent,
            Ok(_) => return Whose::Anothers,
            Err(_) if at == pid && !is_there(pid) => return Whose::Nobodys,
            Err(_) => return Whose::Anothers,
        }
    }
    Whose::Anothers
}

/// Whether there is such a process: a host may hide those of others.
fn is_there(pid: i32) -> bool {
    let pid = rustix::process::Pid::from_raw(pid);
    let asked = pid.map(rustix::process::test_kill_process);
    !matches!(asked, None | Some(Err(rustix::io::Errno::SRCH)))
}

fn name(pid: u32) -> String {
    let text = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&text).chars().filter(|letter| !letter.is_control()).collect()
}

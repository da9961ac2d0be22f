//! Who uses a GPU of NVIDIA's, and what is free of its memory, as their library NVML tells.
//!
//! Nothing of an agent waits for it: it is loaded by a process of its own ([`watcher`](super::watcher)).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use gleaner_hooks::ProcessStat;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use nvml_wrapper::{Device, Nvml};

use super::watcher::{Answer, Questions};
use crate::limits::{GPU_PARENTS_MAX, GPU_USERS_MAX, GPU_WATCH_MS};
use crate::owner::wishes::{GpuSight, GpuUser};

const MIB: u64 = 1 << 20;

/// What the kernel calls the first namespace of processes, the one that has all of them.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

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
        Err(error) => return questions.answer(&unloaded(&error, library)),
    };
    let device = match nvml.device_by_pci_bus_id(address) {
        Ok(device) => device,
        Err(NvmlError::NotFound | NvmlError::InvalidArg) => {
            return questions.answer(&Answer::Absent("the GPU is none of NVIDIA's".into()));
        }
        Err(error) => return questions.answer(&refused(&error, "find the GPU")),
    };
    let hidden = Hidden::here(is_contained());
    let mut looker = Looker { device, agent: agent(), seen_until: 0, hidden };
    loop {
        match looker.look() {
            Ok(sight) => questions.answer(&Answer::Seen(sight))?,
            Err(error) => return questions.answer(&refused(&error, "look at the GPU")),
        }
        questions.next()?;
    }
}

/// What it means that NVML cannot be loaded. One that the owner names is there.
fn unloaded(error: &NvmlError, library: Option<&Path>) -> Answer {
    match library {
        Some(library) if !matches!(error, NvmlError::DriverNotLoaded) => {
            let library = library.display();
            Answer::Failed(format!("{library}, which nvml_library names, is of no use: {error}"))
        }
        _ => refused(error, "begin"),
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
    hidden: Hidden,
}

/// Whether there are processes that have the GPU open and cannot be seen: those outside of the
/// container that this is. Some drivers pass them over, and others tell of numbers that are nobody's
/// here.
struct Hidden {
    is_contained: bool,
    /// Those that were nobody's at the last look: one that has just ended is gone at the next.
    missing: BTreeSet<u32>,
}

impl Hidden {
    const fn here(is_contained: bool) -> Self {
        Self { is_contained, missing: BTreeSet::new() }
    }

    /// Whether there are some, now that these are nobody's.
    fn note(&mut self, missing: BTreeSet<u32>) -> bool {
        let stayed = !self.missing.is_disjoint(&missing);
        self.missing = missing;
        self.is_contained || stayed
    }
}

impl Looker<'_> {
    fn look(&mut self) -> Result<GpuSight, NvmlError> {
        let memory = self.device.memory_info()?;
        let (computing, rendering, is_partial) = lists(
            self.device.running_compute_processes(),
            self.device.running_graphics_processes(),
        )?;
        let shares = self.shares()?;
        let (mut users, mut missing, mut has_ours) = (BTreeMap::new(), BTreeSet::new(), false);
        for pid in computing.iter().chain(&rendering).copied() {
            let whose = whose(pid, self.agent);
            if whose == Whose::Ours {
                has_ours = true;
                continue;
            }
            let is_hidden = whose == Whose::Nobodys;
            let name = if is_hidden { String::new() } else { name(pid) };
            let only_computes = !rendering.contains(&pid);
            let share = |shares: &BTreeMap<u32, u32>| shares.get(&pid).copied().unwrap_or(0);
            let busy_percent = shares.as_ref().map(share);
            if is_hidden {
                missing.insert(pid);
            }
            users.insert(pid, GpuUser { pid, name, is_hidden, only_computes, busy_percent });
        }
        let mut users: Vec<GpuUser> = users.into_values().collect();
        users.sort_by_key(|user| {
            (!user.only_computes, user.busy_percent.map(|busy| u32::MAX - busy))
        });
        users.truncate(GPU_USERS_MAX);
        let hides_others = self.hidden.note(missing) || is_partial;
        let busy_percent = self.busy_percent()?;
        let (free_mib, memory_mib) = (memory.free / MIB, memory.total / MIB);
        Ok(GpuSight { free_mib, memory_mib, has_ours, busy_percent, hides_others, users })
    }

    /// For how much of the time it was busy lately, in percent; none where this driver does not say.
    fn busy_percent(&self) -> Result<Option<u32>, NvmlError> {
        match self.device.utilization_rates() {
            Ok(rates) => Ok(Some(rates.gpu.min(100))),
            Err(error @ NvmlError::GpuLost) => Err(error),
            // Everything else is known without it.
            Err(_) => Ok(None),
        }
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

/// The numbers of processes that compute, of those that render, and whether the driver lists only one
/// kind of them; some do not tell of graphics.
fn lists(
    computing: Result<Vec<ProcessInfo>, NvmlError>,
    rendering: Result<Vec<ProcessInfo>, NvmlError>,
) -> Result<(Vec<u32>, Vec<u32>, bool), NvmlError> {
    let pids = |of: Vec<ProcessInfo>| of.iter().map(|one| one.pid).collect::<Vec<u32>>();
    let unlisted = |error: &NvmlError| {
        matches!(error, NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_))
    };
    match (computing, rendering) {
        (Ok(computing), Ok(rendering)) => Ok((pids(computing), pids(rendering), false)),
        (Ok(computing), Err(error)) if unlisted(&error) => Ok((pids(computing), Vec::new(), true)),
        (Err(error), Ok(rendering)) if unlisted(&error) => Ok((Vec::new(), pids(rendering), true)),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Whether there are processes that are not shown here.
fn is_contained() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name != Path::new(FIRST_NAMESPACE))
}

/// Who a process belongs to.
#[derive(Debug, PartialEq, Eq)]
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

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn this() -> i32 {
        std::process::id().cast_signed()
    }

    /// A process that does nothing until its input ends.
    fn child() -> Child {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it is there")
    }

    #[test]
    fn a_process_is_the_agents_anothers_or_not_there() {
        let mut child = child();
        let pid = child.id();
        assert_eq!(whose(pid, this()), Whose::Ours);
        assert_eq!(whose(pid, i32::MAX), Whose::Anothers);
        assert_eq!(whose(1, this()), Whose::Anothers);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        for nobodys in [pid, 0, u32::MAX] {
            assert_eq!(whose(nobodys, this()), Whose::Nobodys, "{nobodys}");
        }
    }

    #[test]
    fn a_number_that_stays_nobodys_is_of_who_cannot_be_seen() {
        let mut hidden = Hidden::here(false);
        for (missing, expected) in [
            (&[7][..], false),
            (&[8], false),
            (&[], false),
            (&[8], false),
            (&[9, 8], true),
            (&[9], true),
            (&[], false),
        ] {
            assert_eq!(hidden.note(missing.iter().copied().collect()), expected, "{missing:?}");
        }
        assert!(Hidden::here(true).note(BTreeSet::new()), "nobody outside is seen in a container");
    }

    #[test]
    fn a_library_that_is_named_has_to_be_one() {
        let named = |library: Option<&str>, error| unloaded(&error, library.map(Path::new));
        let none = || NvmlError::LibraryNotFound;
        let Answer::Failed(why) = named(Some("/opt/nvml.so"), none()) else {
            panic!("it is named")
        };
        assert!(why.starts_with("/opt/nvml.so, which nvml_library names, is of no use"), "{why}");
        for (library, error) in [(None, none()), (Some("/opt/nvml.so"), NvmlError::DriverNotLoaded)]
        {
            assert_eq!(named(library, error), Answer::Absent("NVML is not here".into()));
        }
    }
}

//! A leaf: what holds the work of one slot.
//!
//! # Invariants
//! - What enters does so between fork and exec, so it never runs outside.
//! - A leaf that is dropped is not removed: its members may live. [`Leaf::remove`] does that.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::ability::{Ability, Provider};
use crate::dir::GroupDir;
use crate::hierarchy::is_control_group;
use crate::limits::{SHARE_PERIOD_US, SHARE_QUOTA_US_MIN, WEIGHT_USUAL};
use crate::memory_peak::MemoryPeak;

/// Start of the name of every group of ours.
pub(crate) const PREFIX: &str = "gleaner-";

/// What one slot may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafLimits {
    /// Share in thousandths of a core; none for no limit.
    pub share_permille: Option<u32>,
    /// Weight beside other leaves, in thousandths of the usual.
    pub weight_permille: u32,
    /// Memory in MiB, page cache of its files included; none for no limit. Never swap.
    pub memory_mib: Option<u64>,
    /// Processes and threads; none for no limit.
    pub processes: Option<u32>,
}

impl Default for LeafLimits {
    fn default() -> Self {
        Self {
            share_permille: None,
            weight_permille: WEIGHT_USUAL,
            memory_mib: None,
            processes: None,
        }
    }
}

/// Which folder grants what, for a whole enclosure or one leaf of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grants {
    pub(crate) entries: Vec<(Ability, Provider, GroupDir)>,
}

impl Grants {
    pub(crate) fn of(&self, ability: Ability) -> Option<(Provider, &GroupDir)> {
        self.entries
            .iter()
            .find(|(granted, ..)| *granted == ability)
            .map(|(_, provider, dir)| (*provider, dir))
    }

    /// Where to freeze and to kill, and where that gets its share of a core.
    pub(crate) fn marks(&self) -> Marks {
        let mut paths: Vec<PathBuf> = Vec::new();
        for (_, dir) in
            [Ability::Freeze, Ability::Kill, Ability::Idle].iter().filter_map(|one| self.of(*one))
        {
            if !paths.iter().any(|known| known == dir.path()) {
                paths.push(dir.path().to_owned());
            }
        }
        Marks(paths)
    }

    /// Each folder once.
    pub(crate) fn dirs(&self) -> Vec<&GroupDir> {
        let mut dirs: Vec<&GroupDir> = Vec::new();
        for (.., dir) in &self.entries {
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        dirs
    }
}

/// The leaf of one slot.
#[derive(Debug)]
pub struct Leaf {
    grants: Grants,
    /// What enters writes itself into these.
    doors: Vec<GroupDir>,
    /// Held open: a release has no time to look for it.
    freezer: Option<(Provider, File)>,
    /// Likewise, where one write kills.
    killer: Option<File>,
    set: Mutex<Set>,
    /// The share that the kernel was told last, in thousandths of a core; [`NO_SHARE`] for none. For
    /// whoever has no time to wait for another's change.
    share: AtomicU32,
    /// Whether that was lifted since, for what is in it to die.
    is_lifted: AtomicBool,
}

/// No share of its own.
const NO_SHARE: u32 = u32::MAX;

/// What a leaf has been set to.
#[derive(Debug, Default)]
struct Set {
    /// What was asked for last.
    wanted: LeafLimits,
    /// Share in thousandths of a core that it gets at most, whatever is asked for.
    most_permille: Option<u32>,
    /// What the kernel was told last; none before, or where that failed.
    told: Option<LeafLimits>,
}

impl Leaf {
    pub(crate) fn new(grants: Grants, doors: Vec<GroupDir>) -> io::Result<Self> {
        let freezer = match grants.of(Ability::Freeze) {
            Some((provider, dir)) => {
                let file = Ability::Freeze.file(provider).ok_or(io::ErrorKind::Unsupported)?;
                Some((provider, dir.open(file)?))
            }
            None => None,
        };
        let killer = match grants.of(Ability::Kill) {
            Some((Provider::Cgroup2, dir)) => Some(dir.open("cgroup.kill")?),
            _ => None,
        };
        let (set, share) = (Mutex::default(), AtomicU32::new(NO_SHARE));
        let is_lifted = AtomicBool::new(false);
        Ok(Self { grants, doors, freezer, killer, set, share, is_lifted })
    }

    /// Whether [`Leaf::freeze`] and [`Leaf::kill`] reach all that is in it.
    #[must_use]
    pub const fn can_freeze(&self) -> bool {
        self.freezer.is_some()
    }

    /// Files through which a process enters: between fork and exec it has to write `0` into each.
    ///
    /// # Errors
    /// The groups are gone.
    pub fn doors(&self) -> io::Result<Vec<OwnedFd>> {
        self.doors.iter().map(|dir| dir.open("cgroup.procs").map(OwnedFd::from)).collect()
    }

    /// What else may stop it, should the agent be dead.
    #[must_use]
    pub fn marks(&self) -> Marks {
        self.grants.marks()
    }

    /// Stops all that is in it. Returns when the kernel has been told; what ran at that moment
    /// stops within microseconds.
    ///
    /// # Errors
    /// There is no freezer here, or the group is gone.
    pub fn freeze(&self) -> io::Result<()> {
        self.switch("1", "FROZEN")
    }

    /// Lets all that is in it run on.
    ///
    /// # Errors
    /// As [`Leaf::freeze`].
    pub fn thaw(&self) -> io::Result<()> {
        self.switch("0", "THAWED")
    }

    fn switch(&self, unified: &str, first: &str) -> io::Result<()> {
        match &self.freezer {
            Some((Provider::Cgroup2, file)) => (&*file).write_all(unified.as_bytes()),
            Some((Provider::Cgroup1, file)) => (&*file).write_all(first.as_bytes()),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether all that is in it has come to rest in the freezer.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        match self.grants.of(Ability::Freeze) {
            Some((Provider::Cgroup2, dir)) => dir.entry("cgroup.events", "frozen ") == Some(1),
            Some((Provider::Cgroup1, dir)) => {
                dir.read("freezer.state").is_ok_and(|state| state.trim() == "FROZEN")
            }
            None => false,
        }
    }

    /// Kills all that is in it, frozen or not.
    ///
    /// # Errors
    /// Neither a freezer nor a killer here, or the group is gone.
    pub fn kill(&self) -> io::Result<()> {
        self.lift_share();
        match &self.killer {
            Some(file) => (&*file).write_all(b"1"),
            None => self.marks().kill_members(),
        }
    }

    /// Processes in it.
    #[must_use]
    pub fn members(&self) -> Vec<i32> {
        self.doors.first().map(GroupDir::members).unwrap_or_default()
    }

    /// Sets its limits; may be done while it works. What this host does not grant is left out.
    ///
    /// # Errors
    /// The kernel refuses a limit that it has.
    pub fn set_limits(&self, limits: &LeafLimits) -> io::Result<()> {
        let mut set = self.lock();
        set.wanted = *limits;
        // Who has nothing but its marks may have lifted a share, to kill what was in it.
        set.told = set.told.filter(|told| told.share_permille.is_none());
        self.tell(&mut set)
    }

    /// Changes its limits, or leaves them as they are where the change says nothing; may be done while it
    /// works. What this host does not grant is left out. Who makes the change is alone with it.
    ///
    /// # Errors
    /// As [`Leaf::set_limits`].
    pub fn change_limits(
        &self,
        change: impl FnOnce(LeafLimits) -> Option<LeafLimits>,
    ) -> io::Result<()> {
        let mut set = self.lock();
        let Some(wanted) = change(set.wanted) else { return Ok(()) };
        set.wanted = wanted;
        self.tell(&mut set)
    }

    /// Lets it have no more than this share of a core, in thousandths, whatever its limits are before
    /// and after; none for no more than these. May be done while it works.
    ///
    /// # Errors
    /// As [`Leaf::set_limits`].
    pub fn hold_share(&self, most_permille: Option<u32>) -> io::Result<()> {
        let mut set = self.lock();
        set.most_permille = most_permille;
        self.tell(&mut set)
    }

    /// The share in thousandths of a core that it is held to; none for no limit. Waits for nobody.
    #[must_use]
    pub fn share_permille(&self) -> Option<u32> {
        Some(self.share.load(Ordering::Acquire)).filter(|share| *share != NO_SHARE)
    }

    /// What is about to die gives its memory back only as fast as it gets to it: with all of a core,
    /// whatever it was held to. What enters the leaf next is held to its limits again. Waits for nobody.
    fn lift_share(&self) {
        if self.share_permille().is_some() && !self.is_lifted.swap(true, Ordering::AcqRel) {
            // Where it is refused, what is in it dies all the same.
            let _ = self.set_share(None);
        }
    }

    /// Who panicked over it has left at worst a limit that is told again.
    fn lock(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the kernel what is news to it.
    fn tell(&self, set: &mut Set) -> io::Result<()> {
        let share_permille = set.wanted.share_permille.into_iter().chain(set.most_permille).min();
        let limits = LeafLimits { share_permille, ..set.wanted };
        let was_lifted = self.is_lifted.swap(false, Ordering::AcqRel);
        let told = set.told.take().filter(|_| !was_lifted);
        if told.map(|told| told.share_permille) != Some(limits.share_permille) {
            self.set_share(limits.share_permille)?;
            let kept = limits.share_permille.filter(|_| self.has(Ability::Share));
            self.share.store(kept.unwrap_or(NO_SHARE), Ordering::Release);
            if self.is_lifted.load(Ordering::Acquire) {
                // It is being killed meanwhile.
                self.set_share(None)?;
            }
        }
        if told.map(|told| told.weight_permille) != Some(limits.weight_permille) {
            self.set_weight(limits.weight_permille)?;
        }
        if told.map(|told| told.memory_mib) != Some(limits.memory_mib) {
            self.set_memory(limits.memory_mib)?;
        }
        if told.map(|told| told.processes) != Some(limits.processes) {
            self.set_processes(limits.processes)?;
        }
        set.told = Some(limits);
        Ok(())
    }

    /// Whether this host grants it something.
    #[must_use]
    pub fn has(&self, ability: Ability) -> bool {
        self.grants.of(ability).is_some()
    }

    fn set_share(&self, share_permille: Option<u32>) -> io::Result<()> {
        let Some((provider, dir)) = self.grants.of(Ability::Share) else { return Ok(()) };
        let quota = share_permille
            .map(|share| (u64::from(share) * SHARE_PERIOD_US / 1_000).max(SHARE_QUOTA_US_MIN));
        match (provider, quota) {
            (Provider::Cgroup2, Some(quota)) => {
                dir.write("cpu.max", &format!("{quota} {SHARE_PERIOD_US}"))
            }
            (Provider::Cgroup2, None) => dir.write("cpu.max", "max"),
            (Provider::Cgroup1, Some(quota)) => {
                dir.write("cpu.cfs_period_us", &SHARE_PERIOD_US.to_string())?;
                dir.write("cpu.cfs_quota_us", &quota.to_string())
            }
            (Provider::Cgroup1, None) => dir.write("cpu.cfs_quota_us", "-1"),
        }
    }

    fn set_weight(&self, weight_permille: u32) -> io::Result<()> {
        let Some((provider, dir)) = self.grants.of(Ability::Weight) else { return Ok(()) };
        let (file, usual, least, most) = match provider {
            Provider::Cgroup2 => ("cpu.weight", 100, 1, 10_000),
            Provider::Cgroup1 => ("cpu.shares", 1_024, 2, 262_144),
        };
        let weight =
            (u64::from(weight_permille) * usual / u64::from(WEIGHT_USUAL)).clamp(least, most);
        dir.write(file, &weight.to_string())
    }

    /// `memory.high` is left alone: what it holds back sleeps in the kernel for up to two seconds, in which
    /// no freezer calls it frozen, and without swap it gives back nothing that the limit does not.
    fn set_memory(&self, memory_mib: Option<u64>) -> io::Result<()> {
        let Some((provider, dir)) = self.grants.of(Ability::Memory) else { return Ok(()) };
        let bytes = memory_mib.map(|mib| mib.saturating_mul(1 << 20).to_string());
        match provider {
            Provider::Cgroup2 => {
                // One that is killed for memory is of no use to the rest of its task.
                let _ = dir.write("memory.oom.group", "1");
                // Hosts without swap have no such file.
                let _ = dir.write("memory.swap.max", "0");
                dir.write("memory.max", bytes.as_deref().unwrap_or("max"))
            }
            Provider::Cgroup1 => set_memory_of_first(dir, bytes.as_deref().unwrap_or("-1")),
        }
    }

    fn set_processes(&self, processes: Option<u32>) -> io::Result<()> {
        let Some((_, dir)) = self.grants.of(Ability::Processes) else { return Ok(()) };
        let most = processes.map_or_else(|| "max".into(), |most| most.to_string());
        dir.write("pids.max", &most)
    }

    /// How often something in it was killed for want of memory, so far.
    #[must_use]
    pub fn memory_kills(&self) -> u64 {
        let kills = match self.grants.of(Ability::Memory) {
            Some((Provider::Cgroup2, dir)) => dir.entry("memory.events", "oom_kill "),
            Some((Provider::Cgroup1, dir)) => dir.entry("memory.oom_control", "oom_kill "),
            None => None,
        };
        kills.unwrap_or(0)
    }

    /// Counts the most memory that it takes from now on, where it can.
    #[must_use]
    pub fn memory_peak(&self) -> Option<MemoryPeak> {
        let (file, dir) = match self.grants.of(Ability::Memory)? {
            (Provider::Cgroup2, dir) => ("memory.peak", dir),
            (Provider::Cgroup1, dir) => ("memory.max_usage_in_bytes", dir),
        };
        MemoryPeak::of(&dir.path().join(file), "0")
    }

    /// Kills what is in it and removes it.
    ///
    /// # Errors
    /// Something in it cannot be killed.
    pub fn remove(self) -> io::Result<()> {
        self.grants.dirs().into_iter().try_for_each(GroupDir::clear_away)
    }
}

/// Limits memory in a hierarchy of version 1, swap included where the kernel counts it.
pub(crate) fn set_memory_of_first(dir: &GroupDir, bytes: &str) -> io::Result<()> {
    // The limit with swap may never be below the one without.
    let _ = dir.write("memory.memsw.limit_in_bytes", "-1");
    dir.write("memory.limit_in_bytes", bytes)?;
    let _ = dir.write("memory.memsw.limit_in_bytes", bytes);
    let _ = dir.write("memory.swappiness", "0");
    Ok(())
}

/// The folders through which a leaf, or a whole enclosure, is frozen and killed, for whoever has
/// nothing but them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Marks(Vec<PathBuf>);

impl Marks {
    /// From paths that were noted; those that are no groups of ours are left out.
    #[must_use]
    pub fn from_paths(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(paths.into_iter().filter(|path| is_ours(path)).collect())
    }

    /// As paths, to be noted.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Stops all that is in it.
    ///
    /// # Errors
    /// No freezer among them, or the group is gone.
    pub fn freeze(&self) -> io::Result<()> {
        self.freezer_file("1", "FROZEN")
    }

    /// Lets all that is in it run on.
    ///
    /// # Errors
    /// As [`Marks::freeze`].
    pub fn thaw(&self) -> io::Result<()> {
        self.freezer_file("0", "THAWED")
    }

    fn freezer_file(&self, unified: &str, first: &str) -> io::Result<()> {
        for dir in self.dirs() {
            if dir.has("cgroup.freeze") {
                return dir.write("cgroup.freeze", unified);
            }
            if dir.has("freezer.state") {
                return dir.write("freezer.state", first);
            }
        }
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Kills all that is in it, frozen or not.
    ///
    /// # Errors
    /// As [`Marks::freeze`].
    pub fn kill(&self) -> io::Result<()> {
        for dir in self.dirs().filter(|dir| dir.has("cpu.idle")) {
            // To die is work too, and idle work does not get to it beside a render.
            let _ = dir.write("cpu.idle", "0");
        }
        let killed = self.kill_members();
        // Nor does it soon where it is held to a share.
        self.dirs().for_each(|dir| dir.lift_shares());
        killed
    }

    fn kill_members(&self) -> io::Result<()> {
        for dir in self.dirs() {
            if dir.has("cgroup.kill") {
                return dir.write("cgroup.kill", "1");
            }
            if dir.has("cgroup.freeze") {
                // A kernel from before 5.14. Frozen, nothing forks while it is being killed, and
                // what is frozen in the unified hierarchy dies all the same.
                dir.write("cgroup.freeze", "1")?;
                let is_left = dir.kill_all_members();
                return if is_left { Err(io::ErrorKind::ResourceBusy.into()) } else { Ok(()) };
            }
        }
        let freezer = self.dirs().find(|dir| dir.has("freezer.state"));
        let dir = freezer.ok_or(io::ErrorKind::Unsupported)?;
        // Frozen, nothing forks while it is being killed; thawed, it dies.
        dir.write("freezer.state", "FROZEN")?;
        dir.kill_members_once();
        dir.thaw_all();
        Ok(())
    }

    /// Processes in it.
    #[must_use]
    pub fn members(&self) -> Vec<i32> {
        self.dirs().next().map(|dir| dir.all_members()).unwrap_or_default()
    }

    fn dirs(&self) -> impl Iterator<Item = GroupDir> {
        self.0.iter().map(|path| GroupDir::at(path.clone()))
    }
}

/// A folder on a control group file system below one that bears our name.
fn is_ours(path: &Path) -> bool {
    is_named_ours(path) && is_control_group(path)
}

/// The same, or one that was there and has been removed.
pub(crate) fn is_ours_or_gone(path: &Path) -> bool {
    is_named_ours(path) && path.parent().is_some_and(is_control_group)
}

fn is_named_ours(path: &Path) -> bool {
    let plain = |part: std::path::Component<'_>| {
        matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_))
    };
    let named = path
        .components()
        .any(|part| part.as_os_str().to_str().is_some_and(|name| name.starts_with(PREFIX)));
    path.is_absolute() && path.components().all(plain) && named
}

//! The enclosure of one agent: a group of its own in each hierarchy that it uses.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ability::{Ability, Provider};
use crate::aside::{leave, move_aside};
use crate::dir::GroupDir;
use crate::hierarchy::{Hierarchy, hierarchies};
use crate::leaf::{Grants, Leaf, Marks, PREFIX, is_ours_or_gone, set_memory_of_first};
use crate::mend;
use crate::topology::format_list;

/// Which means to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// Whatever grants an ability, the unified hierarchy first.
    #[default]
    Auto,
    /// The unified hierarchy alone.
    Cgroup2,
    /// The hierarchies of version 1 alone.
    Cgroup1,
    /// No control groups.
    ProcessGroups,
}

impl Choice {
    /// All of them, by their names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("auto", Self::Auto),
        ("cgroup2", Self::Cgroup2),
        ("cgroup1", Self::Cgroup1),
        ("process-groups", Self::ProcessGroups),
    ];

    const fn providers(self) -> &'static [Provider] {
        match self {
            Self::Auto => &[Provider::Cgroup2, Provider::Cgroup1],
            Self::Cgroup2 => &[Provider::Cgroup2],
            Self::Cgroup1 => &[Provider::Cgroup1],
            Self::ProcessGroups => &[],
        }
    }
}

/// Not the name of a choice.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no way of isolation: auto, cgroup2, cgroup1 or process-groups")]
pub struct ChoiceParseError(String);

impl FromStr for Choice {
    type Err = ChoiceParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::NAMES.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, choice)| choice).ok_or_else(|| ChoiceParseError(text.into()))
    }
}

/// Where an ability comes from, or why it is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AbilityReport {
    /// Which.
    pub ability: Ability,
    /// What grants it; none where it is missing.
    pub provider: Option<Provider>,
    /// Why it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What is lost without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<&'static str>,
    /// The one command that mends it, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// What isolates harvested work on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// `cgroup2`, `cgroup1`, `hybrid` or `process-groups`.
    pub backend: &'static str,
    /// Each ability.
    pub abilities: Vec<AbilityReport>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.backend)?;
        let missing: Vec<String> = self
            .abilities
            .iter()
            .filter(|report| report.provider.is_none())
            .map(|report| report.ability.to_string())
            .collect();
        if !missing.is_empty() {
            write!(f, ", without {}", missing.join(", "))?;
        }
        Ok(())
    }
}

/// A limit of the whole enclosure could not be set.
#[derive(Debug, Error)]
#[error("cannot {what} in {path}: {source}")]
pub struct EnclosureError {
    /// What was tried.
    what: &'static str,
    /// Where.
    path: String,
    /// Why not.
    source: io::Error,
}

/// An agent's groups. Clones share them.
#[derive(Debug, Clone)]
pub struct Enclosure {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// What the whole enclosure is granted.
    grants: Grants,
    missing: BTreeMap<Ability, Missing>,
    /// Held open: a release has no time to look for it.
    idle: Option<File>,
}

#[derive(Debug, Clone)]
struct Missing {
    why: String,
    mend: Option<String>,
}

impl Enclosure {
    /// Opens the enclosure called `name` with whatever this host grants; kills what an earlier
    /// one of that name has left. `name` has to be a plain file name.
    #[must_use]
    pub fn open(choice: Choice, name: &str) -> Self {
        let mut opening = Opening {
            name: format!("{PREFIX}{name}"),
            grants: Grants::default(),
            missing: BTreeMap::new(),
        };
        let found = if choice == Choice::ProcessGroups { Ok(Vec::new()) } else { hierarchies() };
        match found {
            Ok(hierarchies) => {
                for provider in choice.providers() {
                    for hierarchy in hierarchies.iter().filter(|one| one.provider == *provider) {
                        opening.take_from(hierarchy);
                    }
                }
            }
            Err(error) => opening.miss_all(&format!("/proc cannot be read: {error}")),
        }
        let why = match choice {
            Choice::ProcessGroups => "isolation = \"process-groups\" is configured",
            Choice::Auto => "no mounted hierarchy of control groups has it",
            Choice::Cgroup2 => "the unified hierarchy does not have it",
            Choice::Cgroup1 => "no hierarchy of version 1 has it",
        };
        opening.miss_all(why);
        let Opening { grants, missing, .. } = opening;
        let idle = grants.of(Ability::Idle).and_then(|(_, dir)| dir.open("cpu.idle").ok());
        Self { inner: Arc::new(Inner { grants, missing, idle }) }
    }

    /// What is used, and what is missing.
    #[must_use]
    pub fn report(&self) -> Report {
        let inner = &self.inner;
        let abilities: Vec<AbilityReport> = Ability::ALL
            .into_iter()
            .map(|ability| {
                let provider = inner.grants.of(ability).map(|(provider, _)| provider);
                let missing = inner.missing.get(&ability).filter(|_| provider.is_none());
                AbilityReport {
                    ability,
                    provider,
                    why: missing.map(|missing| missing.why.clone()),
                    cost: missing.map(|_| ability.without()),
                    mend: missing.and_then(|missing| missing.mend.clone()),
                }
            })
            .collect();
        let has = |wanted| abilities.iter().any(|report| report.provider == Some(wanted));
        let backend = match (has(Provider::Cgroup2), has(Provider::Cgroup1)) {
            (true, false) => "cgroup2",
            (false, true) => "cgroup1",
            (true, true) => "hybrid",
            (false, false) => "process-groups",
        };
        Report { backend, abilities }
    }

    /// What else may stop all that is in it, should the agent be dead.
    #[must_use]
    pub fn marks(&self) -> Marks {
        self.inner.grants.marks()
    }

    /// Makes the leaf of a slot, empty. None where this host grants nothing that a leaf is for.
    ///
    /// # Errors
    /// The enclosure is gone, or what is in the old leaf cannot be killed.
    pub fn leaf(&self, name: &str) -> io::Result<Option<Leaf>> {
        let mut grants = Grants::default();
        let mut doors: Vec<GroupDir> = Vec::new();
        for (ability, provider, dir) in &self.inner.grants.entries {
            let door = if is_of_the_whole(*ability) && *provider == Provider::Cgroup1 {
                // Nothing of a leaf's own there: its members are in the enclosure itself.
                dir.clone()
            } else {
                let leaf = GroupDir::at(dir.path().join(name));
                if !doors.contains(&leaf) {
                    leaf.clear_away()?;
                    GroupDir::make(leaf.path().to_owned())?;
                }
                grants.entries.push((*ability, *provider, leaf.clone()));
                leaf
            };
            if !doors.contains(&door) {
                doors.push(door);
            }
        }
        // A folder that is the parent of another is not entered beside it.
        let mut inner: Vec<GroupDir> = doors
            .iter()
            .filter(|door| {
                !doors.iter().any(|other| other != *door && other.path().starts_with(door.path()))
            })
            .cloned()
            .collect();
        // Behind the door of the idle group it gets what others leave, and should have nothing to
        // do any more that anybody waits for.
        if let Some((_, idle)) = self.inner.grants.of(Ability::Idle) {
            inner.sort_by_key(|door| door.path().starts_with(idle.path()));
        }
        if inner.is_empty() { Ok(None) } else { Leaf::new(grants, inner).map(Some) }
    }

    /// Keeps the whole enclosure to these CPUs, where this host grants it. An empty list leaves
    /// it where it is: then nothing may run in it anyway.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_cpus(&self, cpus: &[u32]) -> Result<(), EnclosureError> {
        match self.inner.grants.of(Ability::Cpus) {
            Some((_, dir)) if !cpus.is_empty() => {
                write(dir, "cpuset.cpus", &format_list(cpus), "keep work to some cores")
            }
            _ => Ok(()),
        }
    }

    /// Lets the whole enclosure run only where nothing else wants the core, or like anything
    /// else: what is to stop or to die has to run for that.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_idle(&self, idle: bool) -> Result<(), EnclosureError> {
        let (Some(file), Some((_, dir))) = (&self.inner.idle, self.inner.grants.of(Ability::Idle))
        else {
            return Ok(());
        };
        let text = if idle { "1" } else { "0" };
        (&*file).write_all(text.as_bytes()).map_err(|source| EnclosureError {
            what: "make work idle",
            path: dir.path().display().to_string(),
            source,
        })
    }

    /// Whether this host grants it something.
    #[must_use]
    pub fn has(&self, ability: Ability) -> bool {
        self.inner.grants.of(ability).is_some()
    }

    /// Limits the memory of the whole enclosure, in MiB, and keeps it from swap.
    ///
    /// # Errors
    /// The kernel refuses it, for instance because more is in use and cannot be given back.
    pub fn set_memory_mib(&self, mib: u64) -> Result<(), EnclosureError> {
        let bytes = mib.saturating_mul(1 << 20).to_string();
        let Some((provider, dir)) = self.inner.grants.of(Ability::Memory) else { return Ok(()) };
        let set = match provider {
            Provider::Cgroup2 => {
                // Hosts without swap have no such file.
                let _ = dir.write("memory.swap.max", "0");
                dir.write("memory.max", &bytes)
            }
            Provider::Cgroup1 => set_memory_of_first(dir, &bytes),
        };
        set.map_err(|source| EnclosureError {
            what: "limit the memory of all work",
            path: dir.path().display().to_string(),
            source,
        })
    }

    /// Whether the memory of what is in it stays out of swap: where the kernel counts what it swaps for each
    /// group.
    #[must_use]
    pub fn keeps_from_swap(&self) -> bool {
        let file = |provider| match provider {
            Provider::Cgroup2 => "memory.swap.max",
            Provider::Cgroup1 => "memory.swappiness",
        };
        self.inner.grants.of(Ability::Memory).is_some_and(|(provider, dir)| dir.has(file(provider)))
    }

    /// What the kernel says of waits for memory in it, as in `/proc/pressure/memory`; none where it
    /// does not, as in groups of version 1.
    #[must_use]
    pub fn memory_pressure(&self) -> Option<String> {
        let all = self.inner.grants.entries.iter();
        let second = all.filter(|(_, provider, _)| *provider == Provider::Cgroup2);
        let whole =
            second.map(|(.., dir)| dir.path()).min_by_key(|path| path.components().count())?;
        fs::read_to_string(whole.join("memory.pressure")).ok()
    }

    /// Kills what is in it and removes it, and has this process go back to where it was before.
    /// False where that takes another call: others went aside with it, and have not ended.
    ///
    /// # Errors
    /// Something in it cannot be killed.
    pub fn remove(&self) -> io::Result<bool> {
        Self::remove_at(self.paths().map(Path::to_owned))
    }

    /// Its folders, one per hierarchy.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.inner.grants.dirs().into_iter().map(GroupDir::path)
    }

    /// As [`Enclosure::remove`], of an enclosure with these folders. What is no group of ours is
    /// left alone.
    ///
    /// # Errors
    /// Something in it cannot be killed.
    pub fn remove_at(paths: impl IntoIterator<Item = PathBuf>) -> io::Result<bool> {
        paths.into_iter().filter(|path| is_ours_or_gone(path)).try_fold(true, |is_last, path| {
            remove(&GroupDir::at(path.clone()))?;
            Ok(leave(&path)? && is_last)
        })
    }
}

fn remove(dir: &GroupDir) -> io::Result<()> {
    match dir.empty().and_then(|()| dir.clear_away()) {
        // Made for us by somebody who may: empty is all that it can be.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// What is set once for all leaves.
const fn is_of_the_whole(ability: Ability) -> bool {
    matches!(ability, Ability::Cpus | Ability::Disk)
}

fn write(dir: &GroupDir, file: &str, text: &str, what: &'static str) -> Result<(), EnclosureError> {
    dir.write(file, text).map_err(|source| EnclosureError {
        what,
        path: dir.path().display().to_string(),
        source,
    })
}

/// Why the unified hierarchy does not grant something.
#[derive(Debug, Clone, Error)]
enum Refusal {
    #[error("this kernel has no {0}")]
    NoFile(&'static str),
    #[error("{path} has no controller {controller}")]
    NoController { path: String, controller: &'static str },
    #[error("{path} does not pass {controller} on: {why}")]
    NotPassedOn { path: String, controller: &'static str, why: io::ErrorKind },
}

impl Refusal {
    fn mend(&self) -> Option<String> {
        match self {
            Self::NotPassedOn {
                why: io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy,
                ..
            } => Some(mend::of_refused_passing_on()),
            Self::NoController { path, controller } => {
                mend::of_missing_controller(Path::new(path), controller)
            }
            Self::NotPassedOn { .. } | Self::NoFile(_) => None,
        }
    }
}

/// An enclosure while it is being opened.
struct Opening {
    name: String,
    grants: Grants,
    missing: BTreeMap<Ability, Missing>,
}

impl Opening {
    /// Takes from a hierarchy what has not been granted by another.
    fn take_from(&mut self, hierarchy: &Hierarchy) {
        let provider = hierarchy.provider;
        let wanted: Vec<Ability> = Ability::ALL
            .into_iter()
            .filter(|ability| self.grants.of(*ability).is_none())
            .filter(|ability| match (provider, ability.controller(provider)) {
                (Provider::Cgroup1, Some(controller)) => hierarchy.controllers.contains(controller),
                (Provider::Cgroup1, None) => false,
                (Provider::Cgroup2, _) => true,
            })
            .collect();
        if wanted.is_empty() {
            return;
        }
        if provider == Provider::Cgroup1 {
            // A controller is in one hierarchy at a time: that the unified one refused it too is
            // beside the point.
            let here = |ability: &&Ability| ability.controller(Provider::Cgroup2).is_some();
            for ability in wanted.iter().filter(here) {
                self.missing.remove(ability);
            }
        }
        let dir = GroupDir::at(hierarchy.own.join(&self.name));
        let made = dir.empty().and_then(|()| GroupDir::make(dir.path().to_owned()));
        if let Err(error) = made {
            let why = format!("cannot make a group in {}: {error}", hierarchy.own.display());
            let mend = mend::of_refused_group(hierarchy, &error);
            wanted.into_iter().for_each(|ability| self.miss(ability, why.clone(), mend.clone()));
            return;
        }
        match provider {
            Provider::Cgroup2 => self.take_unified(hierarchy, &dir, wanted),
            Provider::Cgroup1 => self.take_first(hierarchy, &dir, wanted),
        }
        if !self.grants.dirs().contains(&&dir) {
            // Nothing of it is used.
            let _ = dir.clear_away();
        }
    }

    fn take_unified(&mut self, hierarchy: &Hierarchy, dir: &GroupDir, wanted: Vec<Ability>) {
        let own = GroupDir::at(hierarchy.own.clone());
        let mut passed_down: BTreeMap<&str, Result<(), Refusal>> = BTreeMap::new();
        for ability in wanted {
            let file = ability.file(Provider::Cgroup2).expect("the unified one has all");
            let passed = match ability.controller(Provider::Cgroup2) {
                None => Ok(()),
                Some(controller) => passed_down
                    .entry(controller)
                    .or_insert_with(|| self.pass_down(&own, dir, controller))
                    .clone(),
            };
            let passed = passed.and_then(|()| {
                let is_there = dir.has(file);
                is_there.then_some(()).ok_or(Refusal::NoFile(file))
            });
            match passed {
                Ok(()) => self.grant(ability, Provider::Cgroup2, dir),
                Err(why) => {
                    self.miss(ability, why.to_string(), why.mend());
                }
            }
        }
        self.settle(dir, Provider::Cgroup2);
    }

    /// Has a controller passed on from our own group to the enclosure, and from there to leaves.
    fn pass_down(
        &self,
        own: &GroupDir,
        dir: &GroupDir,
        controller: &'static str,
    ) -> Result<(), Refusal> {
        let path = || own.path().display().to_string();
        let list = own.read("cgroup.controllers").unwrap_or_default();
        if !list.split_whitespace().any(|one| one == controller) {
            return Err(Refusal::NoController { path: path(), controller });
        }
        let refused = |error: io::Error| {
            let why = error.kind();
            Refusal::NotPassedOn { path: path(), controller, why }
        };
        // A group passes nothing on while processes are in it, but for controllers of threads, and
        // those at the price that nothing can enter the groups below it: we leave it, if it is ours.
        if !own.is_root() && own.has_any() {
            move_aside(own, &self.name).map_err(refused)?;
        }
        let enable = format!("+{controller}");
        own.write("cgroup.subtree_control", &enable)
            .and_then(|()| dir.write("cgroup.subtree_control", &enable))
            .map_err(refused)
    }

    fn take_first(&mut self, hierarchy: &Hierarchy, dir: &GroupDir, wanted: Vec<Ability>) {
        if wanted.contains(&Ability::Cpus) {
            // An empty group of cores or memory takes no process.
            let own = GroupDir::at(hierarchy.own.clone());
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let _ = own.read(file).and_then(|list| dir.write(file, list.trim()));
            }
        }
        for ability in wanted {
            match ability.file(Provider::Cgroup1) {
                Some(file) if dir.has(file) => self.grant(ability, Provider::Cgroup1, dir),
                Some(file) => self.miss(ability, format!("this kernel has no {file}"), None),
                None => self.miss(ability, "version 1 has no such file".into(), None),
            }
        }
        self.settle(dir, Provider::Cgroup1);
    }

    /// Sets what holds for all leaves from the beginning.
    fn settle(&mut self, dir: &GroupDir, provider: Provider) {
        let mut refused = Vec::new();
        for (ability, by, at) in &self.grants.entries {
            if *by != provider || at != dir {
                continue;
            }
            let done = match (ability, provider) {
                (Ability::Idle, _) => dir.write("cpu.idle", "1"),
                (Ability::Disk, Provider::Cgroup2) => {
                    // Of a disk whose scheduler is BFQ, which looks at no other.
                    let _ = dir.write("io.bfq.weight", "1");
                    dir.write("io.weight", "default 1")
                }
                (Ability::Disk, Provider::Cgroup1) => dir.write("blkio.bfq.weight", "1"),
                _ => Ok(()),
            };
            if let Err(error) = done {
                refused.push((*ability, format!("{}: {error}", dir.path().display())));
            }
        }
        for (ability, why) in refused {
            self.grants.entries.retain(|(granted, ..)| *granted != ability);
            self.miss(ability, why, None);
        }
    }

    fn grant(&mut self, ability: Ability, provider: Provider, dir: &GroupDir) {
        self.missing.remove(&ability);
        self.grants.entries.push((ability, provider, dir.clone()));
    }

    fn miss(&mut self, ability: Ability, why: String, mend: Option<String>) {
        self.missing.entry(ability).or_insert(Missing { why, mend });
    }

    fn miss_all(&mut self, why: &str) {
        for ability in Ability::ALL {
            if self.grants.of(ability).is_none() {
                self.miss(ability, why.into(), None);
            }
        }
    }
}

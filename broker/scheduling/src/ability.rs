//! What jobs ask of their hosts, interned, so that "can this host run it" is one bit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gleaner_protocol::job::{ApplicationTask, JobSpec, RunsOn, Task, WasmTask};
use gleaner_protocol::{Account, FRAME_KERNEL, HostInfo, Kept, KernelName, Share};
use smallvec::SmallVec;

use crate::farm::Takes;
use crate::limits::{ABILITIES_MAX, OFFERS_TOLD_MAX};

/// Number of an ability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AbilityIx(u16);

impl AbilityIx {
    pub(crate) const fn get(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn from_index(index: usize) -> Self {
        Self(u16::try_from(index).expect("ABILITIES_MAX fits u16"))
    }
}

/// What a job asks of a host: an ability.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    pub(crate) what: What,
    pub(crate) on: RunsOn,
    /// Of its cores.
    pub(crate) share: Share,
    /// Of its memory and its GPUs, until it ends.
    pub(crate) kept: Kept,
    /// Whose it is, where that one may hold so much and no more: what waits for such is in nobody
    /// else's way.
    pub(crate) limited: Option<Account>,
}

/// What a host has to offer, wherever it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// A kernel, and the memory that one is given, in MiB; 0 where it makes do with what it gets.
    Kernel(KernelName, u32),
    /// A program, and the memory that the host has at least, in MiB; 0 where nobody says.
    Program(String, u64),
    /// A module, and the memory that it is given, in MiB.
    Wasm(u32),
}

impl Need {
    pub(crate) fn of(spec: &JobSpec) -> Self {
        let what = match &spec.task {
            Task::Kernel(name) => What::Kernel(name.clone(), 0),
            Task::Application(ApplicationTask { kernel, memory_mib, .. }) => {
                What::Kernel(kernel.clone(), memory_mib.map_or(0, given_mib))
            }
            Task::Command(command) => {
                let program = command.argv.first().cloned().unwrap_or_default();
                What::Program(program, command.memory_mib.map_or(0, held_mib))
            }
            Task::Wasm(wasm) => What::Wasm(wasm_memory_mib(wasm)),
            Task::Frame(_) => What::Kernel(KernelName::new(FRAME_KERNEL).expect("a plain name"), 0),
        };
        Self {
            what,
            on: spec.runs_on(),
            share: spec.cores_permille,
            kept: spec.kept(),
            limited: None,
        }
    }

    /// What a replica takes of its host.
    pub(crate) fn takes(&self) -> Takes {
        Takes { share: self.share, kept: self.kept }
    }

    /// Whether a host offers it.
    pub(crate) fn is_met_by(&self, host: &HostInfo) -> bool {
        self.on.admits(host.origin)
            && self.share <= Share::cores(host.cores)
            && self.kept.gpus <= gpus_of(host)
            && self.what.is_offered(host)
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if self.share > Share::WHOLE {
            write!(f, " on {} cores", self.share.whole_cores())?;
        }
        match self.kept.gpus {
            0 => {}
            1 => write!(f, " with a GPU of its own (--gpus 1)")?,
            gpus => write!(f, " with {gpus} GPUs of its own (--gpus {gpus})")?,
        }
        match self.on {
            RunsOn::Any => Ok(()),
            RunsOn::Farm | RunsOn::Desktop => {
                write!(f, " on a {on} host (--on {on})", on = self.on)
            }
        }
    }
}

impl What {
    pub(crate) fn is_offered(&self, host: &HostInfo) -> bool {
        let capabilities = &host.capabilities;
        match self {
            Self::Kernel(name, memory_mib) => {
                capabilities.kernels.contains(name) && *memory_mib <= capabilities.kernel_memory_mib
            }
            Self::Program(program, memory_mib) => {
                capabilities.commands.contains(program) && *memory_mib <= host.memory_mib
            }
            Self::Wasm(memory_mib) => *memory_mib <= capabilities.wasm_memory_mib,
        }
    }
}

impl What {
    /// What hosts offer that is nearest to it, for people.
    pub(crate) fn nearest(&self, hosts: &[&HostInfo]) -> String {
        let offered = hosts.iter().map(|host| &host.capabilities);
        match self {
            Self::Kernel(name, _) => {
                let with = offered.filter(|of| of.kernels.contains(name));
                match with.map(|of| of.kernel_memory_mib).max() {
                    Some(most) => format!("the most that one gives the kernel is {most} MiB"),
                    None => "none has the kernel".into(),
                }
            }
            Self::Program(program, _) => {
                let allows = |host: &&&HostInfo| host.capabilities.commands.contains(program);
                let with = hosts.iter().filter(allows);
                if let Some(most) = with.map(|host| host.memory_mib).max() {
                    return format!("the largest that allows it has {most} MiB");
                }
                let programs: BTreeSet<&String> = offered.flat_map(|of| &of.commands).collect();
                match programs.len() {
                    0 => "no owner allows any program (`gleaner agent --allow-command`)".into(),
                    count => {
                        let some: Vec<_> = programs
                            .into_iter()
                            .take(OFFERS_TOLD_MAX)
                            .map(String::as_str)
                            .collect();
                        let more = if count > some.len() { ", …" } else { "" };
                        format!("their owners allow {}{more}", some.join(", "))
                    }
                }
            }
            Self::Wasm(_) => match offered.map(|of| of.wasm_memory_mib).max() {
                None | Some(0) => "none runs WebAssembly".into(),
                Some(most) => format!("the most that one gives a module is {most} MiB"),
            },
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(name, 0) => write!(f, "the kernel {name}"),
            Self::Kernel(name, mib) => write!(f, "the kernel {name} with {mib} MiB of memory"),
            Self::Program(program, 0) => write!(f, "the program {program}"),
            Self::Program(program, mib) => {
                write!(f, "the program {program} with {mib} MiB of memory or more")
            }
            Self::Wasm(mib) => write!(f, "WebAssembly with {mib} MiB of memory"),
        }
    }
}

/// The abilities that jobs ask for, forgotten jobs aside.
#[derive(Debug, Default)]
pub(crate) struct Abilities {
    by_need: BTreeMap<Need, AbilityIx>,
    /// Each by its number, with the jobs that ask for it; none where the number is free.
    asked: Vec<Option<(Need, u32)>>,
    /// Numbers that nobody asks for any more.
    free: Vec<AbilityIx>,
}

impl Abilities {
    /// Whether a job that asks for this can be taken.
    pub(crate) fn has_room_for(&self, need: &Need) -> bool {
        self.by_need.len() < ABILITIES_MAX || self.by_need.contains_key(need)
    }

    /// What an ability is that a job asks for.
    pub(crate) fn need(&self, ability: AbilityIx) -> Option<&Need> {
        self.asked.get(ability.get())?.as_ref().map(|(need, _)| need)
    }

    /// Those of an account that may hold so much and no more.
    pub(crate) fn of_limited<'a>(
        &'a self,
        account: &'a Account,
    ) -> impl Iterator<Item = AbilityIx> {
        let all = self.by_need.iter().filter(|(need, _)| need.limited.as_ref() == Some(account));
        all.map(|(_, ability)| *ability)
    }

    /// The ability and those that differ from it by whose they are alone: a host that fails at one fails
    /// at all of them.
    pub(crate) fn alike(&self, ability: AbilityIx) -> SmallVec<[AbilityIx; 2]> {
        let Some(need) = self.need(ability) else { return SmallVec::from_slice(&[ability]) };
        let anybodys = Need { limited: None, ..need.clone() };
        let is_alike = |of: &Need| Need { limited: None, ..of.clone() } == anybodys;
        let from = self.by_need.range(anybodys.clone()..);
        from.take_while(|(of, _)| is_alike(of)).map(|(_, ability)| *ability).collect()
    }

    /// What a replica that needs it takes of its host.
    pub(crate) fn takes(&self, ability: AbilityIx) -> Takes {
        let none = Takes { share: Share::WHOLE, kept: Kept::NONE };
        self.need(ability).map_or(none, Need::takes)
    }

    /// What a replica that needs it takes of its host's cores.
    pub(crate) fn share(&self, ability: AbilityIx) -> Share {
        self.need(ability).map_or(Share::WHOLE, |need| need.share)
    }

    /// The number of what one more job needs, and whether it is a new one; `None` when there are
    /// too many.
    pub(crate) fn intern(&mut self, need: &Need) -> Option<(AbilityIx, bool)> {
        if let Some(&ability) = self.by_need.get(need) {
            if let Some((_, jobs)) = &mut self.asked[ability.get()] {
                *jobs += 1;
            }
            return Some((ability, false));
        }
        if self.by_need.len() >= ABILITIES_MAX {
            return None;
        }
        let ability = self.free.pop().unwrap_or_else(|| {
            self.asked.push(None);
            AbilityIx::from_index(self.asked.len() - 1)
        });
        self.asked[ability.get()] = Some((need.clone(), 1));
        self.by_need.insert(need.clone(), ability);
        Some((ability, true))
    }

    /// One job less asks for this; the number that is free since, where it was the last.
    pub(crate) fn release(&mut self, ability: AbilityIx) -> Option<AbilityIx> {
        let (_, jobs) = self.asked.get_mut(ability.get())?.as_mut()?;
        *jobs -= 1;
        if *jobs > 0 {
            return None;
        }
        let (need, _) = self.asked[ability.get()].take()?;
        self.by_need.remove(&need);
        self.free.push(ability);
        Some(ability)
    }

    /// Which of them a host has.
    pub(crate) fn of(&self, host: &HostInfo) -> AbilitySet {
        let mut set = AbilitySet::default();
        let has = self.by_need.iter().filter(|(need, _)| need.is_met_by(host));
        has.for_each(|(_, ability)| set.insert(*ability));
        set
    }
}

/// GPUs that a host could give at most.
pub(crate) fn gpus_of(host: &HostInfo) -> u8 {
    u8::from(host.capabilities.gpu.is_some())
}

/// The memory that a host has to give a module, in MiB.
fn wasm_memory_mib(task: &WasmTask) -> u32 {
    given_mib(task.memory_mib)
}

/// The memory that a host has to give, in MiB: what is asked for, up to the next power of two, so that
/// jobs with limits of all kinds need few abilities.
fn given_mib(asked_mib: u32) -> u32 {
    asked_mib.checked_next_power_of_two().unwrap_or(u32::MAX)
}

/// The memory that a host has to have, in MiB: what is asked for, down by less than an eighth. So jobs
/// need few abilities, and a host that has just as much takes it.
fn held_mib(asked_mib: u32) -> u64 {
    let asked_mib = u64::from(asked_mib);
    let step = (asked_mib.next_power_of_two() / 16).max(1);
    asked_mib / step * step
}

/// A set of abilities, one bit each.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AbilitySet(SmallVec<[u64; 2]>);

impl AbilitySet {
    pub(crate) fn insert(&mut self, ability: AbilityIx) {
        let word = ability.get() / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (ability.get() % 64);
    }

    /// Takes one out; what is left is as if it had never been in.
    pub(crate) fn remove(&mut self, ability: AbilityIx) {
        if let Some(word) = self.0.get_mut(ability.get() / 64) {
            *word &= !(1 << (ability.get() % 64));
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    pub(crate) fn contains(&self, ability: AbilityIx) -> bool {
        let word = self.0.get(ability.get() / 64);
        word.is_some_and(|word| word >> (ability.get() % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(number: usize) -> Need {
        let name = KernelName::new(format!("k{number}")).expect("a plain name");
        let (share, kept) = (Share::WHOLE, Kept::NONE);
        Need { what: What::Kernel(name, 0), on: RunsOn::Any, share, kept, limited: None }
    }

    #[test]
    fn what_nobody_asks_for_any_more_leaves_room() {
        let mut abilities = Abilities::default();
        for number in 0..ABILITIES_MAX {
            assert_eq!(
                abilities.intern(&kernel(number)),
                Some((AbilityIx::from_index(number), true))
            );
        }
        let seventh = AbilityIx::from_index(7);
        assert_eq!(abilities.intern(&kernel(7)), Some((seventh, false)));
        assert_eq!(abilities.intern(&kernel(ABILITIES_MAX)), None);
        assert_eq!(abilities.release(seventh), None, "another job asks for it");
        assert!(!abilities.has_room_for(&kernel(ABILITIES_MAX)));
        assert_eq!(abilities.release(seventh), Some(seventh));
        assert_eq!(abilities.need(seventh), None);
        assert_eq!(abilities.intern(&kernel(ABILITIES_MAX)), Some((seventh, true)));
        assert_eq!(abilities.intern(&kernel(7)), None);
    }

    #[test]
    fn a_set_is_as_if_what_was_taken_out_had_never_been_in() {
        let mut set = AbilitySet::default();
        let (one, other) = (AbilityIx::from_index(3), AbilityIx::from_index(200));
        set.insert(one);
        let before = set.clone();
        set.insert(other);
        set.remove(other);
        assert_eq!(set, before);
        assert!(set.contains(one) && !set.contains(other));
    }
}

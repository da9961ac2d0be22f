//! Kernels, programs and modules' memory that jobs ask for, interned, so that "can this host run it" is one bit.

use std::collections::BTreeMap;

use gleaner_protocol::job::{ApplicationTask, Task, WasmTask};
use gleaner_protocol::{Capabilities, KernelName};
use smallvec::SmallVec;

use crate::limits::ABILITIES_MAX;

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

/// The abilities that jobs ask for, forgotten jobs aside.
#[derive(Debug, Default)]
pub(crate) struct Abilities {
    /// By the memory that one is given too, in MiB; 0 where it asks for none.
    kernels: BTreeMap<(KernelName, u32), AbilityIx>,
    programs: BTreeMap<String, AbilityIx>,
    /// By the memory that a module is given, in MiB.
    wasm: BTreeMap<u32, AbilityIx>,
    /// Jobs that ask for each; 0 where the number is free.
    jobs: Vec<u32>,
    /// Numbers that nobody asks for any more.
    free: Vec<AbilityIx>,
}

impl Abilities {
    fn len(&self) -> usize {
        self.kernels.len() + self.programs.len() + self.wasm.len()
    }

    fn find(&self, task: &Task) -> Option<AbilityIx> {
        match task {
            Task::Kernel(name) => self.kernels.get(&(name.clone(), 0)).copied(),
            Task::Application(task) => self.kernels.get(&of_application(task)).copied(),
            Task::Command(command) => self.programs.get(command.argv.first()?).copied(),
            Task::Wasm(wasm) => self.wasm.get(&wasm_memory_mib(wasm)).copied(),
        }
    }

    /// Whether a job with this task can be taken.
    pub(crate) fn has_room_for(&self, task: &Task) -> bool {
        self.len() < ABILITIES_MAX || self.find(task).is_some()
    }

    /// The number of what a task of one more job needs, and whether it is a new one; `None` when
    /// there are too many.
    pub(crate) fn intern(&mut self, task: &Task) -> Option<(AbilityIx, bool)> {
        if let Some(ability) = self.find(task) {
            self.jobs[ability.get()] += 1;
            return Some((ability, false));
        }
        if self.len() >= ABILITIES_MAX {
            return None;
        }
        let ability = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(0);
            AbilityIx::from_index(self.jobs.len() - 1)
        });
        self.jobs[ability.get()] = 1;
        match task {
            Task::Kernel(name) => self.kernels.insert((name.clone(), 0), ability),
            Task::Application(task) => self.kernels.insert(of_application(task), ability),
            Task::Command(command) => {
                let program = command.argv.first().cloned().unwrap_or_default();
                self.programs.insert(program, ability)
            }
            Task::Wasm(wasm) => self.wasm.insert(wasm_memory_mib(wasm), ability),
        };
        Some((ability, true))
    }

    /// One job less needs what this task does; the number that is free since, where it was the
    /// last.
    pub(crate) fn release(&mut self, task: &Task) -> Option<AbilityIx> {
        let ability = self.find(task)?;
        let jobs = &mut self.jobs[ability.get()];
        *jobs -= 1;
        if *jobs > 0 {
            return None;
        }
        match task {
            Task::Kernel(name) => self.kernels.remove(&(name.clone(), 0)),
            Task::Application(task) => self.kernels.remove(&of_application(task)),
            Task::Command(command) => self.programs.remove(command.argv.first()?),
            Task::Wasm(wasm) => self.wasm.remove(&wasm_memory_mib(wasm)),
        };
        self.free.push(ability);
        Some(ability)
    }

    /// Which of them a host has.
    pub(crate) fn of(&self, capabilities: &Capabilities) -> AbilitySet {
        let with_memory = |name: &KernelName| {
            self.kernels.range((name.clone(), 0)..=(name.clone(), capabilities.kernel_memory_mib))
        };
        let kernels = capabilities.kernels.iter().flat_map(with_memory).map(|(_, ability)| ability);
        let programs = capabilities.commands.iter().filter_map(|name| self.programs.get(name));
        let wasm = self.wasm.range(..=capabilities.wasm_memory_mib).map(|(_, ability)| ability);
        let mut set = AbilitySet::default();
        kernels.chain(programs).chain(wasm).for_each(|ability| set.insert(*ability));
        set
    }
}

/// Whether capabilities cover what a task needs.
pub(crate) fn offers(capabilities: &Capabilities, task: &Task) -> bool {
    match task {
        Task::Kernel(name) => capabilities.kernels.contains(name),
        Task::Application(task) => {
            let (name, memory_mib) = of_application(task);
            capabilities.kernels.contains(&name) && memory_mib <= capabilities.kernel_memory_mib
        }
        Task::Command(command) => {
            command.argv.first().is_some_and(|program| capabilities.commands.contains(program))
        }
        Task::Wasm(wasm) => wasm_memory_mib(wasm) <= capabilities.wasm_memory_mib,
    }
}

/// What a kernel with a specification needs of its host: its name, and memory in MiB, 0 where it
/// makes do with what it gets.
fn of_application(task: &ApplicationTask) -> (KernelName, u32) {
    (task.kernel.clone(), task.memory_mib.map_or(0, given_mib))
}

/// The memory that a host has to give a module, in MiB.
pub(crate) fn wasm_memory_mib(task: &WasmTask) -> u32 {
    given_mib(task.memory_mib)
}

/// The memory that a host has to give, in MiB: what is asked for, up to the next power of two, so that
/// jobs with limits of all kinds need few abilities.
pub(crate) fn given_mib(asked_mib: u32) -> u32 {
    asked_mib.checked_next_power_of_two().unwrap_or(u32::MAX)
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

    fn kernel(number: usize) -> Task {
        Task::Kernel(KernelName::new(format!("k{number}")).expect("a plain name"))
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
        assert_eq!(abilities.release(&kernel(7)), None, "another job asks for it");
        assert!(!abilities.has_room_for(&kernel(ABILITIES_MAX)));
        assert_eq!(abilities.release(&kernel(7)), Some(seventh));
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

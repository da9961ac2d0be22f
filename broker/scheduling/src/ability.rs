//! Kernels and programs that jobs ask for, interned, so that "can this host run it" is one bit.

use std::collections::BTreeMap;

use gleaner_protocol::job::Task;
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

/// All abilities that jobs ever asked for.
#[derive(Debug, Default)]
pub(crate) struct Abilities {
    kernels: BTreeMap<KernelName, AbilityIx>,
    programs: BTreeMap<String, AbilityIx>,
}

impl Abilities {
    fn len(&self) -> usize {
        self.kernels.len() + self.programs.len()
    }

    fn find(&self, task: &Task) -> Option<AbilityIx> {
        match task {
            Task::Kernel(name) => self.kernels.get(name).copied(),
            Task::Command(command) => self.programs.get(command.argv.first()?).copied(),
        }
    }

    /// Whether a job with this task can be taken.
    pub(crate) fn has_room_for(&self, task: &Task) -> bool {
        self.len() < ABILITIES_MAX || self.find(task).is_some()
    }

    /// The number of what a task needs, and whether it is a new one; `None` when there are too
    /// many.
    pub(crate) fn intern(&mut self, task: &Task) -> Option<(AbilityIx, bool)> {
        if let Some(ability) = self.find(task) {
            return Some((ability, false));
        }
        if self.len() >= ABILITIES_MAX {
            return None;
        }
        let ability = AbilityIx::from_index(self.len());
        match task {
            Task::Kernel(name) => self.kernels.insert(name.clone(), ability),
            Task::Command(command) => {
                let program = command.argv.first().cloned().unwrap_or_default();
                self.programs.insert(program, ability)
            }
        };
        Some((ability, true))
    }

    /// Which of them a host has.
    pub(crate) fn of(&self, capabilities: &Capabilities) -> AbilitySet {
        let kernels = capabilities.kernels.iter().filter_map(|name| self.kernels.get(name));
        let programs = capabilities.commands.iter().filter_map(|name| self.programs.get(name));
        let mut set = AbilitySet::default();
        kernels.chain(programs).for_each(|ability| set.insert(*ability));
        set
    }
}

/// Whether capabilities cover what a task needs.
pub(crate) fn offers(capabilities: &Capabilities, task: &Task) -> bool {
    match task {
        Task::Kernel(name) => capabilities.kernels.contains(name),
        Task::Command(command) => {
            command.argv.first().is_some_and(|program| capabilities.commands.contains(program))
        }
    }
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

    pub(crate) fn contains(&self, ability: AbilityIx) -> bool {
        let word = self.0.get(ability.get() / 64);
        word.is_some_and(|word| word >> (ability.get() % 64) & 1 == 1)
    }
}

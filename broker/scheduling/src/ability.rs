//! Kernels and programs that jobs ask for, interned, so that "can this host run it" is one bit.

use std::collections::BTreeMap;

use gleaner_protocol::job::Task;
use gleaner_protocol::{Capabilities, KernelName};
use smallvec::SmallVec;

use crate::limits::ABILITIES_MAX;

/// A kernel or a program that some job asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ability {
    Kernel(KernelName),
    Command(String),
}

impl Ability {
    pub(crate) fn needed_by(task: &Task) -> Self {
        match task {
            Task::Kernel(name) => Self::Kernel(name.clone()),
            Task::Command(command) => {
                Self::Command(command.argv.first().cloned().unwrap_or_default())
            }
        }
    }

    fn in_capabilities(&self, capabilities: &Capabilities) -> bool {
        match self {
            Self::Kernel(name) => capabilities.kernels.contains(name),
            Self::Command(program) => capabilities.commands.contains(program),
        }
    }
}

/// Number of an ability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AbilityIx(u16);

/// All abilities that jobs ever asked for.
#[derive(Debug, Default)]
pub(crate) struct Abilities {
    by_ability: BTreeMap<Ability, AbilityIx>,
    listed: Vec<Ability>,
}

impl Abilities {
    /// The number of an ability, a new one if need be; `None` when there are too many.
    pub(crate) fn intern(&mut self, ability: Ability) -> Option<(AbilityIx, bool)> {
        if let Some(&index) = self.by_ability.get(&ability) {
            return Some((index, false));
        }
        if self.listed.len() >= ABILITIES_MAX {
            return None;
        }
        let index = AbilityIx(u16::try_from(self.listed.len()).expect("ABILITIES_MAX fits u16"));
        self.by_ability.insert(ability.clone(), index);
        self.listed.push(ability);
        Some((index, true))
    }

    /// Which of them a host has.
    pub(crate) fn of(&self, capabilities: &Capabilities) -> AbilitySet {
        let mut set = AbilitySet::default();
        for (ability, &index) in &self.by_ability {
            if ability.in_capabilities(capabilities) {
                set.insert(index);
            }
        }
        set
    }

    /// Whether a host has this one.
    pub(crate) fn has(&self, capabilities: &Capabilities, index: AbilityIx) -> bool {
        self.listed[index.0 as usize].in_capabilities(capabilities)
    }
}

/// A set of abilities, one bit each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AbilitySet(SmallVec<[u64; 2]>);

impl AbilitySet {
    pub(crate) fn insert(&mut self, AbilityIx(index): AbilityIx) {
        let word = index as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (index % 64);
    }

    pub(crate) fn contains(&self, AbilityIx(index): AbilityIx) -> bool {
        self.0.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }
}

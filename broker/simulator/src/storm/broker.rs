//! The modelled broker: the core, a store that takes time, and what waits for the store.

use std::collections::VecDeque;

use gleaner_protocol::Time;
use gleaner_scheduling::{Core, CoreConfig, Effect, Fact, Input, RestoreError, check_invariants};

use super::{Breach, StormConfig};
use crate::dice::Dice;

/// A broker that may be down.
pub(super) struct Broker {
    config: CoreConfig,
    core: Option<Core>,
    /// On disk.
    pub(super) durable: Vec<Fact>,
    /// What the core wanted done and is not done yet, in order.
    waiting: VecDeque<Effect>,
    pub(super) sync_is_due: bool,
    incarnation: u32,
}

impl Broker {
    pub(super) fn new(storm: &StormConfig) -> Self {
        let config = CoreConfig::background(storm.policy);
        let core = Some(Core::new(&config));
        let incarnation = config.incarnation;
        Self {
            config,
            core,
            durable: Vec::new(),
            waiting: VecDeque::new(),
            sync_is_due: false,
            incarnation,
        }
    }

    pub(super) fn core(&self) -> Option<&Core> {
        self.core.as_ref()
    }

    /// Feeds the core. What it wants done waits until [`Broker::performed`].
    pub(super) fn handle(&mut self, now: Time, input: Input) -> Result<&[Effect], Breach> {
        let Some(core) = &mut self.core else { return Ok(&[]) };
        let mut effects = Vec::new();
        core.handle(now, input, &mut effects);
        check_invariants(core)?;
        let before = self.waiting.len();
        self.waiting.extend(effects);
        Ok(&self.waiting.make_contiguous()[before..])
    }

    /// Whether something that waits has to be on disk first.
    pub(super) fn has_unwritten(&self) -> bool {
        self.waiting.iter().any(|effect| matches!(effect, Effect::Persist(_)))
    }

    /// Everything that waits is written, and then done.
    pub(super) fn performed(&mut self) -> Vec<Effect> {
        let performed: Vec<_> = self.waiting.drain(..).collect();
        self.durable.extend(performed.iter().filter_map(|effect| match effect {
            Effect::Persist(fact) => Some(fact.clone()),
            _ => None,
        }));
        performed
    }

    /// Dies. Of what was about to be written, some came to be on disk; nobody was told anything.
    /// Returns how many facts were lost.
    pub(super) fn crash(&mut self, dice: &mut Dice) -> u64 {
        self.core = None;
        self.sync_is_due = false;
        let facts: Vec<_> = self
            .waiting
            .drain(..)
            .filter_map(|effect| match effect {
                Effect::Persist(fact) => Some(fact),
                _ => None,
            })
            .collect();
        let written = dice.below(facts.len() + 1);
        let lost = facts.len() - written;
        self.durable.extend(facts.into_iter().take(written));
        lost as u64
    }

    /// Comes back from what is on disk, sometimes after writing it anew as its fewest facts.
    pub(super) fn start(&mut self, dice: &mut Dice) -> Result<(), Breach> {
        self.incarnation += 1;
        if dice.chance(300) {
            let core = self.restore(&self.durable)?;
            self.durable = core.facts().collect();
        }
        let mut core = self.restore(&self.durable)?;
        let mut effects = Vec::new();
        core.restored(&mut effects);
        core.set_incarnation(self.incarnation);
        check_invariants(&core)?;
        self.durable.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Persist(fact) => Some(fact),
            _ => None,
        }));
        self.core = Some(core);
        Ok(())
    }

    fn restore(&self, facts: &[Fact]) -> Result<Core, RestoreError> {
        let mut core = Core::new(&self.config);
        facts.iter().try_for_each(|fact| core.restore(fact.clone()))?;
        Ok(core)
    }
}

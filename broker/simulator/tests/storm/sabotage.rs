//! What goes wrong inside the core is found out: a policy breaks an invariant on purpose, and the
//! check of that name says so.

use std::collections::BTreeSet;

use gleaner_protocol::job::Lane;
use gleaner_protocol::{Time, WorkunitId};
use gleaner_scheduling::{
    Change, Desk, Farm, FragmentAware, INVARIANTS, Policy, PolicyName, Sabotage, Trigger,
    Violation, WaitReason,
};
use gleaner_simulator::{Breach, StormConfig, storm};

use super::builders::small;

/// The published policy, and at some moment something that the rules forbid.
struct Saboteur {
    policy: FragmentAware,
    sabotage: Sabotage,
    plans: u32,
}

/// Storms until one of which has what a sabotage needs, and notices it.
const SEEDS: u64 = 100;
/// Plans that it waits before it strikes.
const PATIENCE: u32 = 100;

fn saboteur<const PLACE: usize>() -> Box<dyn Policy> {
    let (sabotage, _) = Sabotage::ALL[PLACE];
    Box::new(Saboteur { policy: FragmentAware::default(), sabotage, plans: 0 })
}

impl Policy for Saboteur {
    fn name(&self) -> &'static str {
        "saboteur"
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        self.policy.observe(now, farm, change);
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        self.policy.plan(desk, trigger);
        self.plans += 1;
        if self.plans >= PATIENCE && desk.sabotage(self.sabotage) {
            self.plans = 0;
        }
    }

    fn explain(&self, farm: &Farm, workunit: WorkunitId) -> Vec<WaitReason> {
        self.policy.explain(farm, workunit)
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        self.policy.check_invariants(farm, lane)
    }
}

#[test]
fn every_invariant_of_the_core_is_watched() {
    let planted: BTreeSet<&str> = Sabotage::ALL.iter().map(|(_, name)| *name).collect();
    assert_eq!(planted, BTreeSet::from(INVARIANTS), "each check that is documented is planted");
    let saboteurs = [
        saboteur::<0>,
        saboteur::<1>,
        saboteur::<2>,
        saboteur::<3>,
        saboteur::<4>,
        saboteur::<5>,
        saboteur::<6>,
        saboteur::<7>,
        saboteur::<8>,
        saboteur::<9>,
        saboteur::<10>,
        saboteur::<11>,
        saboteur::<12>,
        saboteur::<13>,
        saboteur::<14>,
        saboteur::<15>,
        saboteur::<16>,
    ];
    assert_eq!(saboteurs.len(), Sabotage::ALL.len());
    for (saboteur, (sabotage, name)) in saboteurs.into_iter().zip(Sabotage::ALL) {
        let config = StormConfig { saboteur: Some(saboteur), ..small(PolicyName::FragmentAware) };
        let found = (0..SEEDS).find_map(|seed| storm(seed, &config).err());
        let failure = found.unwrap_or_else(|| panic!("nobody noticed {sabotage:?}"));
        match &failure.breach {
            Breach::Core(violation) => assert_eq!(violation.name, name, "{sabotage:?}: {failure}"),
            other => panic!("{sabotage:?} led to {other}"),
        }
    }
}

//! Random inputs, sensible and not: every invariant after each of them, under every policy; from
//! wherever that leads, and from every prefix of the facts on the way, all work can be finished.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::{Digest, OwnerName, WorkunitId};
use gleaner_scheduling::{
    Core, CoreConfig, Fact, FailedAttempt, JobPhase, PolicyName, check_invariants,
};
use proptest::prelude::{ProptestConfig, proptest};
use proptest::strategy::Strategy;

use self::world::{Step, World, config, step};

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 1..120)
}

fn decided(facts: &[Fact]) -> BTreeMap<WorkunitId, Digest> {
    let decided = facts.iter().filter_map(|fact| match fact {
        Fact::Decided { workunit, digest } => Some((*workunit, *digest)),
        _ => None,
    });
    decided.collect()
}

fn keeps(core: &Core, facts: &[Fact]) {
    for fact in facts {
        match fact {
            Fact::JobAccepted { job, .. } => assert!(core.farm().job(*job).is_some(), "{job}"),
            Fact::JobCancelled { job } => {
                let phase = core.farm().job(*job).map(|job| job.phase);
                assert_eq!(phase, Some(JobPhase::Cancelled));
            }
            Fact::Voted { workunit, token, .. } => {
                // As a vote of an open workunit, or in a decision or the end of its job.
                if let Some(open) = core.farm().find(*workunit) {
                    let mut votes = core.farm().workunit(open).votes.iter();
                    assert!(votes.any(|vote| vote.token == *token), "{workunit} lost {token}");
                }
            }
            Fact::AttemptFailed { workunit, token, cause, .. } => {
                if let Some(open) = core.farm().find(*workunit) {
                    let mut attempts = core.farm().workunit(open).failed_attempts.iter();
                    let is_it = |of: &FailedAttempt| of.token == *token && of.cause == *cause;
                    assert!(attempts.any(is_it), "{workunit} lost the attempt {token}");
                }
            }
            Fact::GivenUp { workunit, .. } => {
                let job = core.farm().job(workunit.job).expect("accepted");
                assert!(job.ended.failure(workunit.index).is_some(), "{workunit}");
            }
            Fact::Decided { .. }
            | Fact::Counted { .. }
            | Fact::JobForgotten { .. }
            | Fact::HostStood { .. }
            | Fact::OwnerStood { .. }
            | Fact::HandedOver { .. }
            | Fact::VoteStood { .. } => {}
        }
    }
    for (id, digest) in decided(facts) {
        let job = core.farm().job(id.job).expect("accepted");
        assert_eq!(job.ended.digest(id.index), Some(digest), "{id}");
    }
    let votes = facts.iter().filter(|fact| matches!(fact, Fact::Voted { .. })).count();
    assert_eq!(core.farm().totals().reported, votes as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_inputs_keep_the_invariants_and_then_all_work_ends(steps in steps()) {
        for policy in PolicyName::ALL {
            let mut world = World::new(policy);
            steps.iter().for_each(|step| world.step(step));
            world.finishes();
            keeps(&world.core, &world.facts);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_prefix_of_the_facts_is_a_core_that_can_finish(steps in steps()) {
        for policy in PolicyName::ALL {
            let mut world = World::new(policy);
            steps.iter().for_each(|step| world.step(step));
            for known in 0..=world.facts.len() {
                let facts = &world.facts[..known];
                let mut core = Core::new(&config(policy));
                for fact in facts {
                    core.restore(fact.clone()).expect("a prefix of what a core decided");
                }
                let mut effects = Vec::new();
                core.restored(&mut effects);
                core.set_incarnation(2);
                check_invariants(&core).expect("after a restart");
                keeps(&core, facts);
                // Only when another life goes on from here: each is a run of its own.
                if known % 7 == 0 || known == world.facts.len() {
                    let mut life = World::of(core, facts.to_vec());
                    life.remember(effects);
                    life.finishes();
                    keeps(&life.core, &life.facts);
                }
            }
        }
    }
}

fn restored(
    policy: PolicyName,
    facts: &[Fact],
    vouched: &BTreeSet<OwnerName>,
) -> (Core, Vec<gleaner_scheduling::Effect>) {
    let config = CoreConfig { vouched: vouched.clone(), ..config(policy) };
    let mut core = Core::new(&config);
    for fact in facts {
        core.restore(fact.clone()).expect("a snapshot restores");
    }
    let mut effects = Vec::new();
    core.restored(&mut effects);
    core.set_incarnation(2);
    (core, effects)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Hosts change their owners and their sides on the way: a vote stays that of its voter.
    #[test]
    fn a_snapshot_says_of_itself_what_it_was_made_of(steps in steps()) {
        for policy in PolicyName::ALL {
            let mut world = World::new(policy);
            steps.iter().for_each(|step| world.step(step));
            let facts: Vec<_> = world.core.facts().collect();
            let (core, effects) = restored(policy, &facts, &world.vouched);
            check_invariants(&core).expect("after a snapshot");
            assert_eq!(effects, [], "nothing is decided by a restart");
            assert_eq!(core.facts().collect::<Vec<_>>(), facts);
            let mut life = World::of(core, world.facts.clone());
            life.finishes();
            keeps(&life.core, &life.facts);
        }
    }
}

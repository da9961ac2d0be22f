//! The policies of partitioned datasets, driven through the core.

mod stories;
mod world;

use gleaner_scheduling::Policy;
use gleaner_scheduling::baselines::{CoScheduling, WorkQueue};
use gleaner_scheduling::replication::{Gleaner, ReplicationConfig};
use proptest::prelude::{ProptestConfig, proptest};
use proptest::strategy::Strategy;

use self::world::{Step, World, step};

fn all(config: ReplicationConfig) -> Vec<Box<dyn Policy>> {
    vec![
        Box::new(WorkQueue::new(config.window)),
        Box::new(CoScheduling::adaptive(config)),
        Box::new(CoScheduling::new(config)),
        Box::new(Gleaner::new(config)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 1..100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_inputs_keep_the_invariants_and_then_all_work_ends(steps in steps(), window in 1_u32..15) {
        for policy in all(ReplicationConfig { window, ..ReplicationConfig::default() }) {
            let mut world = World::new(policy, window);
            for step in &steps {
                world.take(step);
            }
            world.drain();
        }
    }
}

//! What a run does when the core takes no more.

use super::*;
use crate::parameters::Value;
use crate::studio::scenario::Runs;

#[test]
fn background_that_is_refused_is_not_submitted_again_and_again() {
    let mut settings = crate::studio::tests::settings();
    settings.set("workunit_s", Value::Number(0.05));
    let runs = Runs::draw(&settings, 1).expect("a small one");
    // No job may have so many replicas.
    let refused =
        Runs::draw(&settings, 1).map(|runs| runs.with_replication(200)).expect("likewise");
    let mut world = World::new(runs.plan(&[Lane::Background], runs.steps()));
    world.begin();
    for _ in 0..1_000_000 {
        world.perform();
        world.share_cores();
        let begun = world.newest.and_then(|job| world.stage.farm().job(job)).map(|job| job.next);
        if begun.is_some_and(|begun| begun > 0) {
            world.plan.loads = refused.loads();
        }
        if world.tally.refused > 0 || !world.step() {
            break;
        }
    }
    (0..1_000).for_each(|_| {
        world.perform();
        world.step();
    });
    assert_eq!(world.tally.refused, 1);
}

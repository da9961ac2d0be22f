//! The broker dies at each step of its writing in turn.

use gleaner_protocol::Span;
use gleaner_scheduling::PolicyName;
use gleaner_simulator::StormConfig;

use super::builders::run;

/// One in so many steps, so that it is over soon; the long tests take all of them.
const STRIDE: usize = 61;

#[test]
fn the_broker_may_die_at_any_step_of_writing() {
    let lasts = Span::from_secs(240);
    let policy = PolicyName::FragmentAware;
    let calm = StormConfig { policy, hosts: 10, lasts, ..StormConfig::default() };
    let writes = run(1, &StormConfig { dies_at_write: Some(u64::MAX), ..calm.clone() }).writes;
    assert!(writes > 200, "{writes} steps of writing");
    let (mut deaths, mut lost) = (0, 0);
    for step in (1..=writes).step_by(STRIDE) {
        let report = run(1, &StormConfig { dies_at_write: Some(step), ..calm.clone() });
        assert!(report.deaths_amid_writing > 0, "step {step} of {writes}");
        deaths += report.deaths_amid_writing;
        lost += report.commits_lost + report.commits_torn;
    }
    assert!(lost > 0 && lost < deaths, "{lost} of {deaths} commits were lost");
}

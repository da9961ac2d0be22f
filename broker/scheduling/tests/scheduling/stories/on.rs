//! Where a job may run.

use gleaner_protocol::JobId;
use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_protocol::job::RunsOn;
use gleaner_scheduling::PolicyName;

use super::story::Story;

#[test]
fn a_job_of_the_farm_reaches_no_desktop() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["d1"], Desktop);
        story.job().on(RunsOn::Farm).submits().whatever();
        story.asks("d1", 1).nothing();
        let told = story.core.explain_job(JobId::new(1)).expect("known");
        assert_eq!(
            told[0].to_string(),
            "none of the 1 connected hosts offers the kernel sum on a farm host (--on farm); \
             1 others offer it, and are not farm hosts"
        );
        story.hosts(["f1"], Farm);
        story.asks("f1", 1).is(["lease f1 1/0#1"]);
        // One that says that it is another now gives back what it may not have.
        story.known_as("f1", |info| info.origin = Desktop);
        story.returns("f1", &[("1/0", false)]).begins(["welcome f1 keeps []".to_owned()]);
        story.asks("f1", 1).nothing();
    }
}

#[test]
fn a_job_for_desktops_keeps_off_the_farm() {
    let mut story = Story::of(PolicyName::FragmentAware);
    story.hosts(["f1"], Farm);
    story.hosts(["d1"], Desktop);
    story.job().on(RunsOn::Desktop).submits().whatever();
    story.job().on(RunsOn::Any).submits().whatever();
    story.asks("f1", 1).is(["lease f1 2/0#1"]);
    story.asks("d1", 1).is(["lease d1 1/0#1"]);
}

//! Jobs that have ended are forgotten.

use gleaner_protocol::JobId;
use gleaner_protocol::Origin::Farm;
use gleaner_scheduling::Input;
use gleaner_scheduling::PolicyName;

use crate::story::Story;

#[test]
fn a_forgotten_job_is_gone_and_what_was_done_for_it_still_counts() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1"], Farm);
        story.job().workunits(1).submits().whatever();
        story.job().workunits(1).submits().whatever();
        story.asks("f1", 1).whatever();
        let forget = |story: &mut Story| story.feed(Input::Forget { job: JobId::new(1) });
        forget(&mut story).nothing();
        assert!(story.core.farm().job(JobId::new(1)).is_some(), "it goes on");
        story.reports("f1", "1/0", "x").whatever();
        forget(&mut story).is(["persist forgotten job-1"]);
        assert!(story.core.farm().job(JobId::new(1)).is_none());
        assert_eq!(story.core.farm().totals().reported, 1);
        forget(&mut story).nothing();

        story.restarts().nothing();
        assert_eq!(story.core.farm().jobs().map(|job| job.id.get()).collect::<Vec<_>>(), [2]);
        story.job().workunits(1).submits().whatever();
        assert!(story.core.farm().job(JobId::new(3)).is_some(), "ids are not used again");
    }
}

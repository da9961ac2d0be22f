//! Jobs that have ended are forgotten.

use gleaner_protocol::JobId;
use gleaner_protocol::Origin::Farm;
use gleaner_scheduling::Input;
use gleaner_scheduling::PolicyName;

use super::story::Story;

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

#[test]
fn the_number_of_a_program_that_nobody_asks_for_any_more_is_that_of_another() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.host("f1", Farm).joins().whatever();
        story.known_as("f1", |info| {
            info.capabilities.commands.insert("/bin/old".into());
        });
        for _ in 0..2 {
            story.job().program("/bin/old").submits().whatever();
        }
        story.returns("f1", &[]).whatever();
        for job in [1, 2] {
            story.cancels(job).whatever();
            story.feed(Input::Forget { job: JobId::new(job) }).whatever();
        }
        story.asks("f1", 1).nothing();
        // Whoever had the old one has not got the new one.
        story.job().program("/bin/new").submits().whatever();
        let given = story.job().program("/bin/old").submits().leases();
        assert_eq!(given, ["f1 4/0#1"], "{policy:?}");
        story.restarts().nothing();
        story.returns("f1", &[("4/0", false)]).whatever();
        story.reports("f1", "4/0", "x").whatever();
        story.asks("f1", 1).nothing();
    }
}

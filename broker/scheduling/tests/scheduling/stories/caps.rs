//! Projects that may hold so many cores and no more, and those whose budget is used up.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::{Account, JobId};
use gleaner_scheduling::PolicyName::{self, FragmentAware};
use gleaner_scheduling::{AccountLimit, CoreConfig, Input, WaitReason};

use super::story::Story;

fn rotor() -> Account {
    Account::Project("rotor".parse().expect("a plain name"))
}

fn farm(policy: PolicyName, cores: Option<u32>) -> Story {
    let limited = BTreeMap::from([(rotor(), AccountLimit { cores })]);
    Story::with(CoreConfig { limited, ..CoreConfig::background(policy) })
}

fn codes(story: &Story, job: u64) -> Vec<&'static str> {
    let told = story.core.explain_job(JobId::new(job)).expect("known");
    told.iter().map(WaitReason::code).collect()
}

#[test]
fn a_project_holds_no_more_cores_than_its_cap_and_is_in_nobodys_way() {
    for policy in PolicyName::ALL {
        let mut story = farm(policy, Some(2));
        for host in ["h1", "h2"] {
            story.host(host, Farm).slots(2).joins().whatever();
        }
        story.job().workunits(9).project("rotor").submits().whatever();
        story.asks("h1", 2).is(["lease h1 1/0#1", "lease h1 1/1#1"]);
        story.asks("h2", 2).nothing();
        assert!(codes(&story, 1).contains(&"running"), "{policy:?}");
        let told = story.core.explain_workunit(super::story::workunit_id("1/5")).expect("known");
        assert!(told.iter().any(|of| of.code() == "at-cap"), "{told:?}");
        story.job().workunits(1).submits().whatever();
        assert_eq!(story.held_by("h2"), "2/0", "{policy:?}");
        // What ends makes room, wherever somebody asks.
        story.reports("h1", "1/0", "right").whatever();
        assert_eq!(story.held_by("h2"), "2/0");
        assert_eq!(story.core.farm().lease_count(), 3, "{policy:?}");
    }
}

#[test]
fn every_owner_without_a_project_may_be_capped() {
    for policy in PolicyName::ALL {
        let owner_cores = Some(2);
        let mut story = Story::with(CoreConfig { owner_cores, ..CoreConfig::background(policy) });
        story.host("h1", Farm).slots(8).joins().whatever();
        for owner in ["ann", "bob"] {
            story.job().workunits(9).owner(owner).submits().whatever();
        }
        story.job().workunits(3).project("rotor").submits().whatever();
        story.asks("h1", 8).whatever();
        // Two of each owner's, and all of the project's.
        assert_eq!(story.core.farm().lease_count(), 7, "{policy:?}");
        let told = story.core.explain_workunit(super::story::workunit_id("1/5")).expect("known");
        let cap =
            told.iter().find(|of| of.code() == "at-cap").expect("it waits for its owner's cap");
        assert!(cap.to_string().contains("`cores` of [limits]"), "{cap}");
    }
}

#[test]
fn larger_replicas_fill_a_cap_as_far_as_they_fit() {
    let mut story = farm(FragmentAware, Some(3));
    story.host("h1", Farm).slots(4).joins().whatever();
    story.job().workunits(9).project("rotor").cores_permille(2_000).submits().whatever();
    story.asks("h1", 4).is(["lease h1 1/0#1"]);
    story.job().project("rotor").cores_permille(4_000).submits().is([
        "refused: the job is not accepted: a replica of it takes 4 cores at once, and project rotor \
         may hold 3",
    ]);
}

#[test]
fn a_project_that_is_held_back_waits_and_goes_on_when_it_is_not() {
    for policy in PolicyName::ALL {
        let mut story = farm(policy, None);
        story.host("h1", Farm).slots(2).joins().whatever();
        story.job().workunits(9).project("rotor").submits().whatever();
        story.asks("h1", 1).is(["lease h1 1/0#1"]);
        story.feed(Input::HoldBack { accounts: BTreeSet::from([rotor()]) }).nothing();
        story.asks("h1", 1).nothing();
        let told = story.core.explain_workunit(super::story::workunit_id("1/5")).expect("known");
        assert!(told.iter().any(|of| of.code() == "budget"), "{told:?}");
        story.feed(Input::HoldBack { accounts: BTreeSet::new() }).is(["lease h1 1/1#1"]);
    }
}

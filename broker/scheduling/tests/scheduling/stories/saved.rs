//! Replicas go on from what others saved, and nobody has a say in two votes.

use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_scheduling::PolicyName::{self, FragmentAware};

use super::story::{Story, heir_of};

/// Four hosts of the farm and a job whose first replica f1 saved and gave back.
fn saved_by_f1(policy: PolicyName, replication: u8) -> Story {
    let mut story = Story::of(policy);
    story.hosts(["f1", "f2", "f3", "f4"], Farm);
    story.job().replication(replication).max_replicas(3).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.saves_and_goes("f1", "1/0", "half").whatever();
    story
}

#[test]
fn another_host_goes_on_and_who_saved_it_has_its_say_with_it() {
    for policy in PolicyName::ALL {
        let mut story = saved_by_f1(policy, 2);
        story.asks("f2", 1).is(["lease f2 1/0#2 from others' state"]);
        story.asks("f1", 1).nothing();
        story.asks("f3", 1).is(["lease f3 1/0#3"]);
        story.reports("f2", "1/0", "x").is([
            "persist vote 1/0 f2",
            "persist part 1/0 f1",
            "verdict f2 1/0 Counted",
        ]);
        // What decides it is another vote than f1's, before and after a restart.
        story.is_preempted("f3", "1/0").whatever();
        story.asks("f1", 1).nothing();
        story.restarts().whatever();
        story.returns("f1", &[]).whatever();
        story.asks("f1", 1).nothing();
        story.returns("f4", &[]).whatever();
        story.asks("f4", 1).whatever();
        story
            .reports("f4", "1/0", "x")
            .begins(["persist vote 1/0 f4", "persist decided 1/0"].map(String::from));
    }
}

#[test]
fn who_saved_it_goes_on_from_its_own() {
    for policy in PolicyName::ALL {
        let mut story = saved_by_f1(policy, 2);
        story.asks("f1", 1).is(["lease f1 1/0#2 from its own state"]);
        story.asks("f2", 1).is(["lease f2 1/0#3"]);
        story.saves_and_goes("f1", "1/0", "more").whatever();
        story.asks("f3", 1).is(["lease f3 1/0#4 from others' state"]);
        story.saves_and_goes("f3", "1/0", "still more").whatever();
        // It has others' part in it now, its own too.
        story.asks("f1", 1).is(["lease f1 1/0#5 from others' state"]);
        story.reports("f1", "1/0", "x").is([
            "persist vote 1/0 f1",
            "persist part 1/0 f3",
            "verdict f1 1/0 Counted",
        ]);
    }
}

#[test]
fn a_state_goes_neither_to_a_desktop_nor_from_owner_to_owner() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["d1", "d2", "d3", "d4"], Desktop);
    for host in ["e1", "e2"] {
        story.host(host, Desktop).owner("eve").joins().whatever();
    }
    story.job().submits().whatever();
    story.asks("d1", 1).is(["lease d1 1/0#1"]);
    story.saves_and_goes("d1", "1/0", "half").whatever();
    story.asks("d2", 1).is(["lease d2 1/0#2"]);
    story.is_preempted("d2", "1/0").whatever();
    story.asks("e1", 1).is(["lease e1 1/0#3"]);
    story.saves_and_goes("e1", "1/0", "half").whatever();
    // Of one owner they have one vote anyway.
    story.asks("e2", 1).is(["lease e2 1/0#4 from others' state"]);
    story.reports("e2", "1/0", "x").begins(["persist vote 1/0 e2".to_owned()]);
}

#[test]
fn a_job_that_trusts_hosts_has_them_compute_alone() {
    let mut story = Story::of(PolicyName::Gleaner);
    story.hosts(["f1", "f2", "f3", "f4"], Farm);
    story.job().error_ppb(1_000).submits().whatever();
    story.asks("f1", 1).whatever();
    story.saves_and_goes("f1", "1/0", "half").whatever();
    let leases = story.asks("f2", 1).leases();
    assert!(leases.iter().all(|lease| !lease.contains("state")), "{leases:?}");
}

#[test]
fn where_too_few_hosts_are_left_it_is_begun_anew() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2", "f3"], Farm);
    story.job().replication(2).submits().whatever();
    story.asks("f1", 1).whatever();
    story.saves_and_goes("f1", "1/0", "half").whatever();
    // f3 would be the only one for the other replica, and nobody would settle a disagreement.
    story.asks("f2", 1).is(["lease f2 1/0#2"]);
    story.asks("f1", 1).is(["lease f1 1/0#3 from its own state"]);
}

#[test]
fn what_came_of_a_state_that_fails_is_not_tried_again() {
    let mut story = saved_by_f1(FragmentAware, 1);
    story.asks("f2", 1).is(["lease f2 1/0#2 from others' state"]);
    story.fails("f2", "1/0").is(["verdict f2 1/0 Spoiled"]);
    // It is nobody's failure; from here on each goes on from its own.
    story.asks("f1", 1).is(["lease f1 1/0#3"]);
    story.saves_and_goes("f1", "1/0", "half").whatever();
    story.asks("f2", 1).is(["lease f2 1/0#4"]);
    story.fails("f2", "1/0").begins(["persist failed 1/0 f2".to_owned()]);
    story.asks("f1", 1).is(["lease f1 1/0#5 from its own state"]);
}

#[test]
fn one_heir_that_fails_leaves_the_others_their_say() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2", "f3", "f4", "f5", "f6"], Farm);
    story.job().replication(2).max_replicas(3).submits().whatever();
    for (first, heir) in [("f1", "f2"), ("f3", "f4")] {
        story.asks(first, 1).whatever();
        story.saves_and_goes(first, "1/0", first).whatever();
        let leases = story.asks(heir, 1).leases();
        assert!(leases[0].ends_with("from others' state"), "{leases:?}");
    }
    story.fails("f2", "1/0").is(["verdict f2 1/0 Spoiled"]);
    // f3 has its say with f4, which runs still.
    story.asks("f3", 1).nothing();
    story.asks("f1", 1).whatever();
    story.reports("f4", "1/0", "x").is([
        "persist vote 1/0 f4",
        "persist part 1/0 f3",
        "verdict f4 1/0 Counted",
    ]);
    story.asks("f3", 1).nothing();
}

#[test]
fn those_of_one_owner_have_one_vote_whoever_of_them_saved() {
    let mut story = Story::of(FragmentAware);
    for host in ["e1", "e2"] {
        story.host(host, Farm).owner("eve").joins().whatever();
    }
    story.hosts(["f1", "f2", "f3"], Farm);
    story.job().replication(2).max_replicas(3).submits().whatever();
    story.asks("e1", 1).whatever();
    story.saves_and_goes("e1", "1/0", "half").whatever();
    story.asks("f1", 1).is(["lease f1 1/0#2"]);
    story.asks("e2", 1).is(["lease e2 1/0#3 from others' state"]);
    story.reports("e2", "1/0", "x").is([
        "persist vote 1/0 e2",
        "persist part 1/0 e1",
        "verdict e2 1/0 Counted",
    ]);
    // Each of them has had its say, whoever it belongs to.
    story.restarts().whatever();
    story.known_as("e1", |info| info.owner = None);
    story.returns("e1", &[]).whatever();
    story.asks("e1", 1).nothing();
}

#[test]
fn a_wrong_output_has_all_checked_who_had_a_part_in_it() {
    let mut story = saved_by_f1(FragmentAware, 2);
    story.asks("f2", 1).whatever();
    story.reports("f2", "1/0", "wrong").whatever();
    for host in ["f3", "f4"] {
        story.asks(host, 1).whatever();
        story.reports(host, "1/0", "x").whatever();
    }
    let failures = |name| {
        let mut hosts = story.core.farm().hosts();
        let (_, host) = hosts.find(|(_, host)| host.info.name.as_str() == name).expect("known");
        (host.standing.failures, host.disagreed)
    };
    assert_eq!(["f1", "f2", "f3"].map(failures), [(1, 0), (1, 1), (0, 0)]);
}

#[test]
fn an_heir_is_kept_only_where_it_is_known_who_has_a_say_in_it() {
    let mut story = saved_by_f1(FragmentAware, 2);
    story.asks("f2", 1).whatever();
    let heir = story.lease("f2", "1/0");
    story.leaves("f2").whatever();
    story.returns_with("f2", vec![heir_of(heir)]).begins(["welcome f2 keeps [1/0#2]".to_owned()]);
    story.restarts().whatever();
    story.returns_with("f2", vec![heir_of(heir)]).begins(["welcome f2 keeps []".to_owned()]);
    // Who saved it may have its own say.
    story.returns("f1", &[]).whatever();
    assert_eq!(story.asks("f1", 1).leases().len(), 1);
}

//! Stories of hosts that the farm, its hooks and their agents call by several names.

use crate::farm::{Farm, QUIET_S, WHOLE, cores};

/// Names of the agent, and of the farm and its hooks.
const NAMES: [(&str, &str); 6] = [
    ("n1", "n1.farm.local"),
    ("n1", "N1"),
    ("n1", "N1.Farm.Local"),
    ("n1.farm.local", "n1"),
    ("n1.farm.local", "N1"),
    ("N1", "n1.farm"),
];

/// The farm lists these for as long as it takes until hosts open.
fn polled_quietly(farm: &mut Farm, hosts: &[(&str, &[(&str, u32)])]) {
    for _ in 0..=QUIET_S / 15 {
        farm.polls(hosts);
        farm.advance(15);
    }
}

#[test]
fn a_host_opens_beside_the_render_that_the_farm_lists_under_another_name() {
    for (agent, farms) in NAMES {
        // Whoever speaks first.
        for is_agent_first in [true, false] {
            let mut farm = Farm::polled();
            if is_agent_first {
                farm.starts_agent(agent);
            }
            farm.polls(&[(farms, &[("slurm:1", 2)])]);
            farm.starts_agent(agent);
            polled_quietly(&mut farm, &[(farms, &[("slurm:1", 2)])]);
            farm.tells([&format!("open {agent} 10 at 0")]);
            assert_eq!(farm.view(agent).also_called, [crate::farm::host(farms)]);
            assert_eq!(farm.view(farms).host, crate::farm::host(agent));
            let totals = farm.monitor.totals(farm.now);
            assert_eq!(
                (totals.hosts, totals.cores, totals.bookings),
                (1, 12, 1),
                "{agent} {farms}"
            );
            // The render ends, another takes the whole host.
            farm.polls(&[(farms, &[("slurm:2", 12)])]);
            farm.tells([&format!("close {agent}")]);
        }
    }
}

#[test]
fn a_hook_that_has_another_name_for_its_host_closes_it() {
    for (agent, hooks) in NAMES {
        let mut farm = Farm::new();
        farm.starts_agent(agent);
        farm.advance(QUIET_S);
        farm.forget();
        let mut event = farm.preflight(agent, "slurm:1", cores(2));
        event.host = crate::farm::host(hooks);
        farm.hears(&event);
        farm.tells([&format!("open {agent} 10 at 1")]);
        let mut event = farm.postflight(agent, "slurm:1");
        event.host = crate::farm::host(hooks);
        farm.hears(&event);
        farm.advance(QUIET_S);
        farm.tells([&format!("open {agent} 12 at 1")]);
        assert_eq!(farm.monitor.views(farm.now).count(), 1);
    }
}

#[test]
fn what_a_hook_said_before_the_agent_spoke_is_its_hosts() {
    let mut farm = Farm::new();
    let mut event = farm.preflight("n1", "slurm:1", cores(2));
    event.host = crate::farm::host("N1.farm");
    // Of a hook that could not raise the epoch, the booking may stand nowhere else.
    event.epoch.incarnation = 0;
    farm.folder("n1").bookings.clear();
    farm.hears(&event);
    farm.starts_agent("n1");
    assert_eq!(farm.view("n1").bookings[0].seen_by, ["hook"]);
    farm.advance(QUIET_S);
    farm.tells(["open n1 10 at 1"]);
    assert_eq!(farm.monitor.views(farm.now).count(), 1);
}

#[test]
fn a_host_without_an_agent_never_opens() {
    let mut farm = Farm::polled();
    farm.begins("n1", "slurm:1", cores(2));
    polled_quietly(&mut farm, &[("n1", &[("slurm:1", 2)])]);
    farm.tells([]);
    assert_eq!(farm.reason("n1"), "no agent of this name has spoken");
}

#[test]
fn a_name_that_two_hosts_may_have_shuts_both_until_it_is_clear() {
    let mut farm = Farm::polled();
    farm.starts_agent("n1.a");
    farm.starts_agent("n1.b");
    polled_quietly(&mut farm, &[("n1", &[("slurm:1", 2)])]);
    farm.tells([]);
    for name in ["n1.a", "n1.b"] {
        let reason = farm.reason(name);
        assert!(reason.contains("speaks of n1, which may be this host"), "{reason}");
        assert!(reason.contains("GLEANER_HOST"), "{reason}");
    }
    // The one that is nobody's counts no more than once.
    assert_eq!(farm.monitor.totals(farm.now).hosts, 2);
    // The farm says it in full from now on.
    let clear: &[(&str, &[(&str, u32)])] = &[("n1.a", &[("slurm:1", 2)]), ("n1.b", &[])];
    polled_quietly(&mut farm, clear);
    polled_quietly(&mut farm, clear);
    farm.tells(["open n1.b 12 at 0", "open n1.a 10 at 0"]);
}

#[test]
fn two_hosts_of_the_farm_that_one_agent_may_be_on_shut_it() {
    let mut farm = Farm::polled();
    farm.starts_agent("n1");
    polled_quietly(&mut farm, &[("n1.a", &[]), ("n1.b", &[("slurm:1", 2)])]);
    farm.tells([]);
    assert!(farm.reason("n1").contains("which may be this host"), "{}", farm.reason("n1"));
}

#[test]
fn a_second_agent_that_the_farm_does_not_list_may_be_on_a_host_that_it_lists() {
    for second in ["N1", "n1.farm"] {
        let mut farm = Farm::polled();
        farm.starts_agent("n1");
        farm.starts_agent(second);
        polled_quietly(&mut farm, &[("n1", &[("slurm:1", 12)])]);
        farm.tells([]);
        assert!(
            farm.reason(second).contains("speaks of n1, which may be"),
            "{}",
            farm.reason(second)
        );
    }
}

#[test]
fn an_agent_that_is_given_the_farms_name_takes_its_host_over() {
    let mut farm = Farm::polled();
    farm.starts_agent("n1");
    polled_quietly(&mut farm, &[("n1.farm", &[])]);
    farm.tells(["open n1 12 at 0"]);
    farm.stops_agent("n1");
    farm.starts_agent("n1.farm");
    // The former agent is silent for long enough.
    for _ in 0..50 {
        farm.polls(&[("n1.farm", &[("slurm:1", 12)])]);
        farm.advance(15);
    }
    farm.tells(["close n1"]);
    polled_quietly(&mut farm, &[("n1.farm", &[])]);
    farm.tells(["open n1.farm 12 at 0"]);
    assert_eq!(farm.monitor.views(farm.now).count(), 1);
}

#[test]
fn one_host_under_two_names_in_one_answer_has_what_both_have() {
    let mut farm = Farm::polled();
    farm.starts_agent("n1");
    let twice: &[(&str, &[(&str, u32)])] =
        &[("n1", &[("slurm:1", 2)]), ("N1.farm", &[("slurm:1", 1), ("slurm:2", 4)])];
    polled_quietly(&mut farm, twice);
    farm.tells(["open n1 5 at 0"]);
}

#[test]
fn hosts_of_other_names_have_no_part_in_it() {
    let mut farm = Farm::polled();
    for name in ["n1", "n10", "n1-a", "10.0.0.1"] {
        farm.starts_agent(name);
    }
    polled_quietly(
        &mut farm,
        &[("n1", &[("slurm:1", 12)]), ("n10", &[]), ("n1-a", &[]), ("10.0.0.1", &[])],
    );
    farm.tells(["open 10.0.0.1 12 at 0", "open n1-a 12 at 0", "open n10 12 at 0"]);
}

#[test]
fn what_is_known_under_another_name_outlives_the_monitor() {
    let mut farm = Farm::polled();
    farm.starts_agent("n1");
    farm.begins("n1", "slurm:1", cores(2));
    polled_quietly(&mut farm, &[("N1", &[("slurm:1", 2)])]);
    farm.tells(["open n1 10 at 1"]);
    farm.restarts_monitor();
    farm.forget();
    farm.polls(&[("N1", &[("slurm:1", 2)])]);
    farm.samples("n1");
    polled_quietly(&mut farm, &[("N1", &[("slurm:1", 2)])]);
    farm.tells(["open n1 10 at 1"]);
}

#[test]
fn a_host_stays_shut_while_the_farm_says_of_it_what_is_not_understood() {
    for text in ["N1 0/4/0", "n1.farm (left)", "{\"Name\":\"slot1@n1.farm\"}", "n'1"] {
        let mut farm = Farm::polled();
        farm.starts_agent("n1");
        farm.starts_agent("n2");
        for _ in 0..=QUIET_S / 15 {
            farm.polls_with_unclear(&[], &[text]);
            farm.advance(15);
        }
        farm.tells(["open n2 12 at 0"]);
        assert!(farm.reason("n1").contains("is not understood"), "{text}: {}", farm.reason("n1"));
        farm.polls(&[("n1", &[("slurm:1", 12)])]);
        assert!(farm.reason("n1").contains("every core"), "{text}: {}", farm.reason("n1"));
    }
}

#[test]
fn a_host_that_is_open_closes_when_what_is_said_of_it_is_not_understood() {
    let mut farm = Farm::polled_and_open();
    farm.polls_with_unclear(&[], &["a: mixed"]);
    farm.tells(["close a"]);
    farm.begins("a", "slurm:1", WHOLE);
    farm.tells([]);
}

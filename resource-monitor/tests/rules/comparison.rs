//! Stories of hosts that are held out of harvest.

use gleaner_monitor::{Arm, HoldOutSettings, Input, Lottery, Orders, Plan, Rendering, Stop};
use gleaner_protocol::HostName;
use jiff::Timestamp;

use crate::farm::{Farm, QUIET_S, cores};

/// Half of the hosts are held out.
fn plan() -> Plan {
    let settings = HoldOutSettings { held_out_permille: 500, time_zone: "UTC".into() };
    Plan::default().with_lottery(Some(Lottery::new(&settings, 7).expect("sense")))
}

fn orders(day: &str, stop: Option<Stop>) -> Orders {
    plan().orders(format!("{day}T12:00:00Z").parse().expect("a time"), stop)
}

/// A host that is in an arm on one day and in another the day after.
fn host(on_first: Arm, on_second: Arm) -> String {
    let arm = |day, name: &str| {
        let host = HostName::new(name).expect("a name");
        orders(day, None).hold_out.expect("a lottery").arm(&host)
    };
    let names = (0..100).map(|number| format!("h{number}"));
    let mut fit = names
        .filter(|name| (arm("2026-03-02", name), arm("2026-03-03", name)) == (on_first, on_second));
    fit.next().expect("one of a hundred")
}

/// What was to be counted of a host since the last look.
fn counted(farm: &mut Farm, name: &str) -> Vec<(Option<Arm>, bool, u32)> {
    let all = std::mem::take(&mut farm.rendered);
    let of_host = all.into_iter().filter(|rendering| rendering.host.as_str() == name);
    of_host.map(|Rendering { arm, renders, ended, .. }| (arm, renders, ended)).collect()
}

#[test]
fn who_is_drawn_is_not_harvested_for_that_day() {
    let (out, not) = (host(Arm::HeldOut, Arm::Harvested), host(Arm::Harvested, Arm::HeldOut));
    let mut farm = Farm::new();
    farm.starts_agent(&out);
    farm.starts_agent(&not);
    farm.input(Input::Orders(orders("2026-03-02", None)));
    farm.advance(QUIET_S);
    farm.tells([format!("open {not} 12 at 0").as_str()]);
    assert_eq!(farm.reason(&out), "held out of harvest on 2026-03-02, for comparison");
    farm.input(Input::Orders(orders("2026-03-03", None)));
    // The one at once, the other as its own state allows: nothing happened on it.
    farm.tells([format!("close {not}").as_str(), format!("open {out} 12 at 0").as_str()]);
    assert_eq!(farm.reason(&not), "held out of harvest on 2026-03-03, for comparison");
}

#[test]
fn renders_are_counted_in_the_arm_that_their_host_is_in() {
    let name = host(Arm::HeldOut, Arm::Harvested);
    let mut farm = Farm::new();
    farm.begins(&name, "r0", cores(4));
    farm.ends(&name, "r0");
    assert_eq!(counted(&mut farm, &name), [], "nothing is compared");
    farm.input(Input::Orders(orders("2026-03-02", None)));
    farm.begins(&name, "r1", cores(4));
    farm.begins(&name, "r2", cores(4));
    farm.ends(&name, "r1");
    farm.ends(&name, "r2");
    let held_out = Some(Arm::HeldOut);
    assert_eq!(
        counted(&mut farm, &name),
        [(held_out, false, 0), (held_out, true, 0), (held_out, true, 1), (held_out, false, 1),]
    );
    // A stop says nothing about harvest: what ends in it counts for nobody.
    farm.begins(&name, "r3", cores(4));
    let stop = Stop::new("anna", "why", Timestamp::UNIX_EPOCH).expect("a stop");
    farm.input(Input::Orders(orders("2026-03-02", Some(stop))));
    farm.ends(&name, "r3");
    farm.input(Input::Orders(orders("2026-03-03", None)));
    let after = counted(&mut farm, &name);
    let harvested = Some(Arm::Harvested);
    assert_eq!(after.first(), Some(&(held_out, true, 0)));
    assert_eq!(after.last(), Some(&(harvested, false, 0)));
    assert!(after.contains(&(None, true, 0)), "{after:?}");
    let ended: u32 = after.iter().filter(|(arm, ..)| arm.is_some()).map(|(.., ended)| ended).sum();
    assert_eq!(ended, 0);
}

#[test]
fn a_host_that_stays_in_its_arm_is_counted_anew_each_day() {
    let name = host(Arm::Harvested, Arm::Harvested);
    let mut farm = Farm::new();
    farm.input(Input::Orders(orders("2026-03-02", None)));
    farm.begins(&name, "r1", cores(4));
    let harvested = Some(Arm::Harvested);
    assert_eq!(counted(&mut farm, &name).last(), Some(&(harvested, true, 0)));
    farm.input(Input::Orders(orders("2026-03-03", None)));
    assert_eq!(counted(&mut farm, &name), [(harvested, true, 0)]);
}

#[test]
fn what_a_manager_withholds_is_neither_rendered_nor_a_render_that_ended() {
    const OWNER: (&str, u32) = ("htcondor:Owner-slot1@a", 4);
    let name = host(Arm::Harvested, Arm::HeldOut);
    let mut farm = Farm::new();
    farm.starts_agent(&name);
    farm.input(Input::Orders(orders("2026-03-02", None)));
    let polls = |farm: &mut Farm, renders: &[(&str, u32)], withheld: &[(&str, u32)]| {
        farm.advance(15);
        farm.polls_withheld(&name, renders, withheld);
    };
    for _ in 0..=QUIET_S / 15 {
        polls(&mut farm, &[], &[]);
    }
    farm.tells([format!("open {name} 12 at 0").as_str()]);
    let harvested = Some(Arm::Harvested);
    assert_eq!(counted(&mut farm, &name), [(harvested, false, 0)]);
    polls(&mut farm, &[], &[OWNER]);
    farm.tells([format!("open {name} 8 at 0").as_str()]);
    polls(&mut farm, &[], &[]);
    polls(&mut farm, &[], &[OWNER]);
    assert_eq!(farm.view(&name).bookings.len(), 1);
    assert_eq!(counted(&mut farm, &name), [], "its cores are the farm's, and nothing renders");
    polls(&mut farm, &[("htcondor:1.0", 4)], &[OWNER]);
    polls(&mut farm, &[("htcondor:1.0", 4)], &[]);
    polls(&mut farm, &[], &[OWNER]);
    assert_eq!(counted(&mut farm, &name), [(harvested, true, 0), (harvested, false, 1)]);
    polls(&mut farm, &[], &[]);
    // What a hook tells of is a render, whatever the farm calls it.
    farm.begins(&name, OWNER.0, cores(4));
    polls(&mut farm, &[], &[OWNER]);
    farm.ends(&name, OWNER.0);
    polls(&mut farm, &[], &[]);
    assert_eq!(counted(&mut farm, &name), [(harvested, true, 0), (harvested, false, 1)]);
}

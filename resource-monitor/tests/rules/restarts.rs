//! Stories of a monitor that ends and of the one that begins.

use gleaner_monitor::Remembered;
use gleaner_protocol::farm::HookEvent;
use gleaner_protocol::{Epoch, Span};
use proptest::prelude::{Strategy, prop, prop_assert, prop_oneof, proptest};

use crate::farm::{CORES, Farm, QUIET_S, WHOLE, booking, cores};

#[test]
fn what_was_open_opens_again_with_its_agents_first_word() {
    let mut farm = Farm::with_open_host();
    farm.restarts_monitor();
    farm.advance(1);
    farm.tells([]);
    farm.samples("a");
    farm.tells(["open a 12 at 0"]);
    farm.begins("a", "r1", cores(8));
    farm.tells(["open a 4 at 1"]);
    farm.advance(QUIET_S);
    farm.restarts_monitor();
    farm.samples("a");
    farm.tells(["open a 4 at 1"]);
}

#[test]
fn a_wait_goes_on_where_it_was() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "r1", WHOLE);
    farm.advance(QUIET_S);
    farm.ends("a", "r1");
    farm.tells(["close a"]);
    farm.advance(QUIET_S - 20);
    farm.restarts_monitor();
    farm.advance(19);
    farm.tells([]);
    assert_eq!(farm.reason("a"), "the quiet period is not over");
    farm.advance(1);
    farm.tells(["open a 12 at 1"]);
}

#[test]
fn what_happened_meanwhile_is_waited_for_anew() {
    type Meanwhile = fn(&mut Farm);
    let stories: [(Meanwhile, u32); 4] = [
        // A render began and ended.
        (|farm| drop((farm.preflight("a", "r2", WHOLE), farm.postflight("a", "r2"))), 4),
        // The one that was there has ended.
        (|farm| drop(farm.postflight("a", "r1")), 12),
        // Another one began.
        (|farm| drop(farm.preflight("a", "r2", cores(1))), 3),
        // The host was booted.
        (|farm| farm.folder("a").epoch = Epoch { incarnation: 99, count: 0 }, 4),
    ];
    for (meanwhile, free) in stories {
        let mut farm = Farm::with_open_host();
        farm.begins("a", "r1", cores(8));
        farm.advance(10 * QUIET_S);
        farm.tells(["open a 4 at 1"]);
        let memory = farm.monitor.remember(farm.now);
        meanwhile(&mut farm);
        farm.restarts_monitor_with(memory);
        farm.samples("a");
        farm.advance(QUIET_S - 1);
        farm.tells([]);
        farm.advance(1);
        assert_eq!(farm.open_now("a").map(|(cores, ..)| cores), Some(free));
    }
}

#[test]
fn a_farm_that_was_polled_has_to_answer_first() {
    let mut farm = Farm::polled();
    farm.begins("a", "r1", cores(8));
    farm.starts_agent("a");
    farm.polls(&[("a", &[("r1", 8)])]);
    farm.advance(QUIET_S);
    farm.tells(["open a 4 at 1"]);
    farm.restarts_monitor();
    farm.samples("a");
    farm.tells([]);
    farm.polls(&[("a", &[("r1", 8)])]);
    farm.tells(["open a 4 at 1"]);
    // It answers with something new.
    farm.restarts_monitor();
    farm.samples("a");
    farm.polls(&[("a", &[("r1", 8), ("r2", 1)])]);
    farm.advance(QUIET_S - 1);
    farm.tells([]);
}

#[test]
fn a_host_without_hooks_waits_for_a_farm_that_does_not_answer() {
    let mut farm = Farm::polled();
    farm.starts_agent("a");
    farm.starts_agent("b");
    farm.poll_fails();
    farm.advance(10 * QUIET_S);
    farm.tells([]);
    assert_eq!(farm.reason("a"), "the farm, which is polled, has not answered yet");
    is_polled_for_a_quiet_period(&mut farm);
    // The farm knows nothing of the other: its agent's word is enough.
    farm.tells(["open b 12 at 0", "open a 4 at 0"]);
    // While the monitor was away the farm's manager ended.
    farm.restarts_monitor();
    for _ in 0..20 {
        farm.poll_fails();
        farm.advance(QUIET_S);
    }
    farm.tells([]);
    assert_eq!(farm.reason("a"), "the farm, which is polled, has not answered yet");
    // What hooks tell of needs no poll.
    farm.begins("b", "r2", cores(8));
    farm.advance(QUIET_S);
    farm.tells(["open b 4 at 1"]);
    is_polled_for_a_quiet_period(&mut farm);
    farm.tells(["open a 4 at 0"]);
}

/// The farm lists host `a`, which renders, and answers for as long as its host has to be quiet.
fn is_polled_for_a_quiet_period(farm: &mut Farm) {
    for _ in 0..QUIET_S / 15 {
        farm.polls(&[("a", &[("r1", 8)])]);
        farm.advance(15);
    }
}

#[test]
fn a_farm_that_has_not_found_its_hosts_again_opens_none_of_them() {
    let mut farm = Farm::polled();
    farm.starts_agent("a");
    is_polled_for_a_quiet_period(&mut farm);
    farm.tells(["open a 4 at 0"]);
    // Monitor and manager were started together, and the monitor once more.
    for _ in 0..2 {
        farm.restarts_monitor();
        for _ in 0..20 {
            farm.polls(&[]);
            farm.advance(QUIET_S);
        }
        farm.tells([]);
        assert_eq!(farm.reason("a"), "the farm, which is polled, does not tell of it");
    }
    is_polled_for_a_quiet_period(&mut farm);
    farm.tells(["open a 4 at 0"]);
}

#[test]
fn a_host_that_was_out_of_sight_is_waited_for_anew() {
    let mut farm = Farm::polled();
    farm.starts_agent("a");
    is_polled_for_a_quiet_period(&mut farm);
    farm.tells(["open a 4 at 0"]);
    for _ in 0..20 {
        farm.poll_fails();
        farm.advance(QUIET_S);
    }
    farm.tells(["close a"]);
    farm.polls(&[("a", &[("r1", 8)])]);
    farm.advance(QUIET_S / 2);
    farm.tells([]);
    is_polled_for_a_quiet_period(&mut farm);
    farm.tells(["open a 4 at 0"]);
}

#[test]
fn a_farm_that_is_only_polled_waits_anew() {
    let mut farm = Farm::polled_and_open();
    farm.restarts_monitor();
    farm.samples("a");
    farm.polls(&[("a", &[])]);
    farm.advance(30);
    farm.tells([]);
}

#[test]
fn a_booking_of_which_only_a_hook_told_is_not_forgotten() {
    let mut farm = Farm::with_open_host();
    // Its hook can neither raise the epoch nor book it in the run folder.
    let mut event: HookEvent = farm.preflight("a", "r1", WHOLE);
    event.epoch = Epoch::default();
    let folder = farm.folder("a");
    folder.bookings.clear();
    folder.epoch.count -= 1;
    farm.hears(&event);
    farm.tells(["close a"]);
    farm.restarts_monitor();
    farm.samples("a");
    farm.advance(10 * QUIET_S);
    farm.restarts_monitor();
    farm.advance(10 * QUIET_S);
    farm.tells([]);
    assert_eq!(farm.reason("a"), "r1 has booked the whole host");
    farm.advance(86_400 - 20 * QUIET_S);
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 0"]);
}

#[test]
fn another_boot_is_waited_for_anew() {
    let mut farm = Farm::with_open_host();
    let memory = farm.monitor.remember(farm.now);
    farm.restarts_monitor_with(memory.into_iter().map(Remembered::of_another_boot).collect());
    farm.samples("a");
    farm.advance(QUIET_S - 1);
    farm.tells([]);
    farm.advance(1);
    farm.tells(["open a 12 at 0"]);
}

#[test]
fn hosts_that_nobody_speaks_of_are_passed_on() {
    let mut farm = Farm::with_open_host();
    farm.restarts_monitor();
    farm.restarts_monitor();
    farm.samples("a");
    farm.tells(["open a 12 at 0"]);
}

const RENDERS: [&str; 3] = ["r0", "r1", "r2"];

#[derive(Debug, Clone)]
enum Step {
    Preflight { render: usize, is_heard: bool },
    Postflight { render: usize, is_heard: bool },
    WriteDown,
    Restart,
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let heard = prop::bool::ANY;
    let step = prop_oneof![
        2 => (0..3_usize, heard).prop_map(|(render, is_heard)| Step::Preflight { render, is_heard }),
        2 => (0..3_usize, heard).prop_map(|(render, is_heard)| Step::Postflight { render, is_heard }),
        2 => prop::strategy::Just(Step::WriteDown),
        2 => prop::strategy::Just(Step::Restart),
        20 => (1..6_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// With a memory of any age: what is open only after a restart is free and was quiet in truth.
    #[test]
    fn a_restart_opens_nothing_that_renders_or_has_just_rendered(steps in steps()) {
        let mut farms = [Farm::new(), Farm::new()];
        farms.iter_mut().for_each(|farm| farm.starts_agent("a"));
        let mut memory = Vec::new();
        let mut changed_at = farms[0].now;
        for step in steps {
            let booked = farms[0].folder("a").bookings.clone();
            let [lives_on, restarted] = &mut farms;
            match step {
                Step::WriteDown => memory = restarted.monitor.remember(restarted.now),
                Step::Restart => restarted.restarts_monitor_with(memory.clone()),
                _ => {}
            }
            for farm in [lives_on, restarted] {
                let is_booked = |farm: &mut Farm, render| {
                    farm.folder("a").bookings.contains_key(&booking(render))
                };
                match step {
                    Step::Preflight { render, is_heard } if !is_booked(farm, RENDERS[render]) => {
                        let booked = cores(2 + render as u32);
                        let event = farm.preflight("a", RENDERS[render], booked);
                        if is_heard {
                            farm.hears(&event);
                        }
                    }
                    Step::Postflight { render, is_heard } if is_booked(farm, RENDERS[render]) => {
                        let event = farm.postflight("a", RENDERS[render]);
                        if is_heard {
                            farm.hears(&event);
                        }
                    }
                    Step::Pass(secs) => farm.advance(secs),
                    _ => {}
                }
            }
            let folder = farms[0].folder("a").clone();
            // An end that nobody tells a monitor that never knew of the render is not known to it.
            let is_untold_end = matches!(step, Step::Postflight { is_heard: false, .. });
            if folder.bookings != booked && !is_untold_end {
                changed_at = farms[0].now;
            }
            let booked: u32 = folder.bookings.values().filter_map(|booked| booked.cores).sum();
            let quiet = farms[0].now.since(changed_at);
            let grown = farms[1].grown();
            let [lives_on, restarted] = [&farms[0], &farms[1]].map(|farm| farm.open_now("a"));
            let gives = |cores: u32, epoch: Epoch| {
                lives_on.is_some_and(|(most, _, same)| cores <= most && epoch == same)
            };
            let told = format!("{grown:?}, then {restarted:?} after a restart, {lives_on:?} without");
            // An agent obeys no opening of another epoch.
            for (cores, epoch) in grown.into_iter().filter(|(_, epoch)| *epoch == folder.epoch) {
                let is_quiet = quiet >= Span::from_secs(QUIET_S);
                prop_assert!(is_quiet || gives(cores, epoch), "{told}; quiet for {quiet}");
            }
            if let Some((cores, _, epoch)) = restarted.filter(|(.., epoch)| *epoch == folder.epoch) {
                let is_free = cores + booked <= CORES;
                prop_assert!(is_free || gives(cores, epoch), "{told}; {booked} cores are booked");
            }
        }
    }
}

//! Stories of who tells of a host's renders, where the farm asks each host and one falls silent.

use gleaner_monitor::{Polling, Rules};

use crate::farm::{Farm, QUIET_S, WHOLE, cores, rules};

/// The farm tells of `a` for so long that it opens.
fn until_open(farm: &mut Farm) {
    for _ in 0..=QUIET_S / 15 {
        farm.advance(15);
        farm.polls(&[("a", &[])]);
    }
    assert!(farm.open_now("a").is_some(), "{}", farm.reason("a"));
}

/// It does not for as long, and its agent's samples come all the same.
fn falls_silent(farm: &mut Farm) {
    for _ in 0..=QUIET_S / 15 {
        farm.advance(15);
        farm.polls_without(&["a"], &[]);
    }
}

/// It stays open: its renders are told of.
fn outlasts_silence(farm: &mut Farm) {
    until_open(farm);
    falls_silent(farm);
    assert!(farm.open_now("a").is_some(), "{}", farm.reason("a"));
}

/// It does not: only polls know of its renders.
fn closes_in_silence(farm: &mut Farm) {
    until_open(farm);
    falls_silent(farm);
    assert!(farm.open_now("a").is_none());
}

/// A frame that no hook announces is listed for a minute, and ends.
fn has_an_unannounced_frame(farm: &mut Farm) {
    for _ in 0..4 {
        farm.advance(15);
        farm.polls_of_frames(&[("a", &[("opencue:f-1", 4)])]);
    }
    until_open(farm);
}

#[test]
fn a_raised_epoch_is_no_hooks_word() {
    let mut farm = Farm::polled_and_open();
    farm.folder("a").epoch.count += 1;
    farm.samples("a");
    farm.tells(["close a"]);
    closes_in_silence(&mut farm);
    assert_eq!(farm.reason("a"), "nobody confirmed it in time");
}

#[test]
fn an_agent_that_watches_is_enough_as_long_as_it_does() {
    let mut farm = Farm::polled_and_open();
    farm.sees_begin("a", "opencue:f-1", cores(4));
    farm.sees_end("a", "opencue:f-1");
    outlasts_silence(&mut farm);
    // Its setting is taken away.
    farm.folder("a").watches = false;
    farm.samples("a");
    assert!(farm.open_now("a").is_none());
    closes_in_silence(&mut farm);
}

#[test]
fn what_a_former_agent_watched_is_no_hooks_word() {
    let mut farm = Farm::polled_and_open();
    farm.sees_begin("a", "opencue:f-1", cores(4));
    // The next one has the process only.
    farm.folder("a").watches = false;
    farm.samples("a");
    farm.sees_end("a", "opencue:f-1");
    farm.folder("a").watches = false;
    closes_in_silence(&mut farm);
}

#[test]
fn hooks_that_reach_the_run_folder_only_are_enough() {
    let mut farm = Farm::polled_and_open();
    farm.preflight("a", "opencue:f-1", cores(4));
    farm.samples("a");
    farm.postflight("a", "opencue:f-1");
    outlasts_silence(&mut farm);
}

#[test]
fn hooks_that_tell_of_all_that_the_farm_lists_are_enough() {
    let mut farm = Farm::polled_and_open();
    farm.begins("a", "opencue:f-1", cores(4));
    has_an_unannounced_frame(&mut farm);
    farm.ends("a", "opencue:f-1");
    outlasts_silence(&mut farm);
    assert_eq!(
        farm.contradictions("a"),
        ["opencue:f-1 counts as ended: the farm does not list it"]
    );
}

#[test]
fn hooks_that_miss_a_render_are_not_enough_until_the_host_boots() {
    let mut farm = Farm::polled_and_open();
    // By hand, say.
    farm.begins("a", "generic:try", WHOLE);
    farm.ends("a", "generic:try");
    has_an_unannounced_frame(&mut farm);
    let said = "opencue:f-1 began and nobody on the host has told of it: polls confirm it";
    assert_eq!(farm.contradictions("a"), [said]);
    farm.begins("a", "generic:again", WHOLE);
    farm.ends("a", "generic:again");
    closes_in_silence(&mut farm);
    // Nor after the monitor's next start.
    farm.restarts_monitor();
    farm.samples("a");
    falls_silent(&mut farm);
    assert!(farm.open_now("a").is_none());
    // What begins then is told of, as far as is known.
    farm.folder("a").epoch.incarnation += 1_000;
    farm.begins("a", "opencue:f-2", cores(4));
    farm.ends("a", "opencue:f-2");
    falls_silent(&mut farm);
    assert!(farm.open_now("a").is_some(), "{}", farm.reason("a"));
}

#[test]
fn a_hook_may_be_later_than_the_farm() {
    let mut farm = Farm::polled_and_open();
    for _ in 0..2 {
        farm.polls_of_frames(&[("a", &[("opencue:f-1", 4)])]);
        farm.advance(15);
    }
    farm.begins("a", "opencue:f-1", cores(4));
    has_an_unannounced_frame(&mut farm);
    farm.ends("a", "opencue:f-1");
    outlasts_silence(&mut farm);
}

#[test]
fn what_hooks_told_once_is_known_after_a_restart_though_the_farm_does_not_answer() {
    let mut farm = Farm::with(Rules { polling: Polling::Awaited, ..rules() });
    farm.starts_agent("a");
    farm.begins("a", "opencue:f-1", WHOLE);
    farm.ends("a", "opencue:f-1");
    farm.restarts_monitor();
    farm.samples("a");
    for _ in 0..=QUIET_S / 15 {
        farm.advance(15);
        farm.poll_fails();
    }
    assert!(farm.open_now("a").is_some(), "{}", farm.reason("a"));
}

#[test]
fn a_worker_that_starts_renders_where_its_watch_sees_none_is_not_told_of() {
    let mut farm = Farm::polled_and_open();
    farm.folder("a").watches = true;
    farm.samples("a");
    outlasts_silence(&mut farm);
    // In a container of its own, say.
    has_an_unannounced_frame(&mut farm);
    let said = "opencue:f-1 began and nobody on the host has told of it: polls confirm it";
    assert_eq!(farm.contradictions("a"), [said]);
    closes_in_silence(&mut farm);
}

#[test]
fn what_was_told_of_and_is_listed_for_a_while_longer_was_not_missed() {
    let mut farm = Farm::polled_and_open();
    farm.begins("a", "opencue:f-1", cores(4));
    for _ in 0..4 {
        farm.advance(15);
        farm.samples("a");
        farm.polls_of_frames(&[("a", &[("opencue:f-1", 4)])]);
    }
    // Its hook's word of the end comes later than the sample, and the farm's list is older.
    farm.postflight("a", "opencue:f-1");
    farm.samples("a");
    farm.polls_of_frames(&[("a", &[("opencue:f-1", 4)])]);
    outlasts_silence(&mut farm);
}

#[test]
fn what_began_before_there_were_hooks_was_not_missed() {
    let mut farm = Farm::polled_and_open();
    for _ in 0..4 {
        farm.advance(15);
        farm.polls_of_frames(&[("a", &[("opencue:old", 4)])]);
    }
    // The wrapper is installed meanwhile.
    farm.begins("a", "opencue:new", cores(4));
    for _ in 0..4 {
        farm.advance(15);
        farm.polls_of_frames(&[("a", &[("opencue:old", 4), ("opencue:new", 4)])]);
    }
    farm.ends("a", "opencue:new");
    outlasts_silence(&mut farm);
}

#[test]
fn a_host_that_boots_has_to_be_told_of_anew() {
    let mut farm = Farm::polled_and_open();
    farm.begins("a", "opencue:f-1", cores(4));
    farm.ends("a", "opencue:f-1");
    outlasts_silence(&mut farm);
    // Without its hooks, as far as is known.
    farm.folder("a").epoch.incarnation += 1_000;
    farm.samples("a");
    closes_in_silence(&mut farm);
}

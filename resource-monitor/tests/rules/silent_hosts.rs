//! Stories of a farm that is asked host by host, and of one that does not name its renders.

use crate::farm::{Farm, QUIET_S, WHOLE};

/// Polls that tell of `b` and not of `a`.
fn is_silent_for_a_quiet_period(farm: &mut Farm) {
    for _ in 0..=QUIET_S / 15 {
        farm.polls_without(&["a"], &[("b", &[])]);
        farm.advance(15);
    }
}

#[test]
fn a_host_that_has_never_answered_is_not_opened_by_its_agents_word() {
    let mut farm = Farm::polled();
    farm.starts_agent("a");
    farm.starts_agent("b");
    farm.starts_agent("c");
    is_silent_for_a_quiet_period(&mut farm);
    // `c` is not the farm's.
    farm.tells(["open b 12 at 0", "open c 12 at 0"]);
    assert_eq!(farm.reason("a"), "the farm, which is polled, does not tell of it");
    // Before any agent or hook has spoken of it as well.
    farm.polls_without(&["a", "d"], &[("b", &[])]);
    farm.starts_agent("d");
    is_silent_for_a_quiet_period(&mut farm);
    farm.tells([]);
    // What a host without hooks waits for is an answer, and then a quiet period.
    for _ in 0..=QUIET_S / 15 {
        farm.polls(&[("a", &[]), ("b", &[]), ("d", &[])]);
        farm.advance(15);
    }
    farm.tells(["open a 12 at 0", "open d 12 at 0"]);
}

#[test]
fn a_host_that_falls_silent_closes_at_the_second_time_and_no_other_does() {
    let mut farm = Farm::polled_and_open();
    farm.starts_agent("b");
    for _ in 0..=QUIET_S / 15 {
        farm.polls(&[("a", &[]), ("b", &[])]);
        farm.advance(15);
    }
    farm.tells(["open b 12 at 0"]);
    farm.polls_without(&["a"], &[("b", &[])]);
    farm.tells([]);
    farm.advance(15);
    farm.polls_without(&["a"], &[("b", &[])]);
    farm.tells(["close a"]);
    farm.advance(15);
    is_silent_for_a_quiet_period(&mut farm);
    farm.tells([]);
}

#[test]
fn what_is_known_to_render_on_a_silent_host_renders_on() {
    let mut farm = Farm::polled_and_open();
    farm.polls(&[("a", &[("r1", 4)])]);
    farm.tells(["open a 8 at 0"]);
    farm.polls_without(&["a"], &[]);
    farm.advance(15);
    assert_eq!(farm.view("a").bookings.len(), 1);
    farm.polls(&[("a", &[("r1", 4)])]);
    assert_eq!(farm.view("a").bookings.len(), 1);
}

#[test]
fn a_host_with_hooks_is_harvested_though_the_farm_cannot_tell_of_it() {
    let mut farm = Farm::polled();
    farm.starts_agent("a");
    farm.begins("a", "r1", WHOLE);
    farm.ends("a", "r1");
    is_silent_for_a_quiet_period(&mut farm);
    farm.tells(["open a 12 at 1"]);
}

#[test]
fn renders_that_the_farm_does_not_name_are_those_that_hooks_tell_of() {
    let mut farm = Farm::polled();
    farm.starts_agent("a");
    farm.begins("a", "tractor:1.2.3", WHOLE);
    farm.begins("a", "other:4", WHOLE);
    for _ in 0..4 {
        farm.advance(15);
        farm.polls(&[("a", &[("tractor:unnamed-renders", 12)])]);
    }
    let bookings = farm.view("a").bookings;
    let names: Vec<&str> = bookings.iter().map(|booking| booking.booking.as_str()).collect();
    assert_eq!(names, ["tractor:1.2.3", "tractor:unnamed-renders"]);
    assert_eq!(farm.contradictions("a"), ["other:4 counts as ended: the farm does not list it"]);
    // Its hook's word is lost.
    for _ in 0..2 {
        farm.advance(15);
        farm.polls(&[("a", &[])]);
    }
    assert_eq!(farm.view("a").bookings.len(), 0);
}

#[test]
fn what_a_host_says_is_as_old_as_its_own_question() {
    let mut farm = Farm::polled_and_open();
    farm.polls(&[("a", &[])]);
    let began = farm.now;
    farm.advance(20);
    // The others' answers take long, and a frame may have begun since.
    let asked_at = farm.now;
    farm.advance(20);
    farm.polls_each_asked_at(began, asked_at, &[("a", &[])]);
    farm.advance(20);
    assert!(farm.open_now("a").is_some(), "40 s after it was asked");
    farm.advance(5);
    farm.tells(["close a"]);
    farm.polls_each_asked_at(began, asked_at, &[("a", &[])]);
    farm.advance(QUIET_S);
    assert_eq!(farm.reason("a"), "nobody confirmed it in time");
    // So it is where all of the farm was asked at once.
    farm.polls_asked_at(asked_at, &[("a", &[])]);
    farm.advance(QUIET_S);
    assert_eq!(farm.reason("a"), "nobody confirmed it in time");
    farm.tells([]);
    // It knows of what began after the poll did.
    let began = farm.now;
    farm.begins("a", "r1", WHOLE);
    for _ in 0..2 {
        farm.advance(1);
        farm.polls_each_asked_at(began, farm.now, &[("a", &[])]);
    }
    assert_eq!(farm.view("a").bookings.len(), 0);
}

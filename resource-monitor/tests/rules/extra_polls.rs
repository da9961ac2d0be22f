//! Stories of polls out of turn, because the farm said that something changed.

use crate::farm::{Farm, QUIET_S, cores};

#[test]
fn a_render_is_seen_at_once_and_its_end_begins_the_quiet_period() {
    let mut farm = Farm::polled_and_open();
    farm.polls_out_of_turn(Some(&[("a", &[("r1", 12)])]));
    farm.tells(["close a"]);
    farm.advance(1);
    farm.polls_out_of_turn(Some(&[("a", &[])]));
    for _ in 0..QUIET_S {
        farm.tells([]);
        assert_eq!(farm.reason("a"), "the quiet period is not over");
        farm.advance(1);
        farm.polls_out_of_turn(Some(&[("a", &[])]));
    }
    farm.tells(["open a 12 at 0"]);
}

#[test]
fn no_number_of_them_counts_as_two_that_missed_a_host() {
    let mut farm = Farm::polled_and_open();
    for _ in 0..10 {
        farm.polls_out_of_turn(None);
        farm.polls_out_of_turn(Some(&[("b", &[])]));
    }
    farm.tells([]);
    farm.polls(&[("b", &[])]);
    farm.tells([]);
    farm.polls(&[("b", &[])]);
    farm.tells(["close a"]);
}

#[test]
fn no_number_of_them_ends_what_a_hook_told_of() {
    let mut farm = Farm::polled_and_open();
    farm.begins("a", "r1", cores(12));
    farm.tells(["close a"]);
    farm.advance(1);
    for _ in 0..10 {
        farm.polls_out_of_turn(Some(&[("a", &[])]));
        farm.advance(1);
    }
    assert_eq!(farm.reason("a"), "every core is booked or reserved");
    farm.polls(&[("a", &[])]);
    farm.polls_out_of_turn(Some(&[("a", &[])]));
    assert_eq!(farm.view("a").bookings.len(), 1);
    farm.polls(&[("a", &[])]);
    assert_eq!(farm.view("a").bookings.len(), 0);
}

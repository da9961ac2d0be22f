//! Stories of hosts whose agents see what the farm's workers start, under names of their own.

use gleaner_monitor::{Polling, Rules};
use gleaner_protocol::Span;

use crate::farm::{Farm, QUIET_S, WHOLE, rules};

/// How it is booked that Flamenco's worker has started a process.
const SEEN: &str = "flamenco-worker:77.1234";

/// With host `a`, on which a process lives that the farm has under another name.
fn rendering() -> Farm {
    let mut farm = Farm::polled();
    farm.starts_agent("a");
    farm.sees_begin("a", SEEN, WHOLE);
    farm.polls(&[("a", &[("flamenco:task", 12)])]);
    farm
}

/// Polls that list nothing on it, for longer than any wait.
fn lists_nothing(farm: &mut Farm) {
    for _ in 0..=2 * QUIET_S / 15 {
        farm.advance(15);
        farm.polls(&[("a", &[])]);
    }
}

#[test]
fn what_the_farm_has_given_up_runs_as_long_as_its_process() {
    let mut farm = rendering();
    for _ in 0..4 {
        farm.advance(15);
        farm.polls(&[("a", &[("flamenco:task", 12)])]);
    }
    // The manager times the task out while its process hangs.
    lists_nothing(&mut farm);
    let said = format!("{SEEN} has booked the whole host, and its process lives");
    assert_eq!(farm.reason("a"), said);
    assert_eq!(farm.contradictions("a"), [""; 0]);
    farm.tells([]);
    farm.sees_end("a", SEEN);
    lists_nothing(&mut farm);
    farm.tells(["open a 12 at 1"]);
}

#[test]
fn no_limit_ends_what_lives() {
    let booking_limit = Span::from_secs(100);
    let mut farm = Farm::with(Rules { booking_limit, polling: Polling::Off, ..rules() });
    farm.starts_agent("a");
    farm.sees_begin("a", SEEN, WHOLE);
    farm.begins("a", "generic:lost", WHOLE);
    farm.advance(1_000);
    assert_eq!(farm.view("a").bookings.len(), 1, "{:?}", farm.contradictions("a"));
    assert!(farm.reason("a").contains("its process lives"), "{}", farm.reason("a"));
    // Of an agent that is gone nothing is known.
    farm.stops_agent("a");
    farm.advance(31);
    assert_eq!(farm.view("a").bookings.len(), 0);
}

#[test]
fn what_counts_as_ended_runs_again_when_its_agent_says_that_it_lives() {
    let mut farm = rendering();
    farm.begins("a", "flamenco:task", WHOLE);
    farm.ends("a", "flamenco:task");
    // The agent's samples are lost for long.
    farm.stops_agent("a");
    lists_nothing(&mut farm);
    farm.tells(["open a 12 at 2"]);
    farm.starts_agent("a");
    farm.tells(["close a"]);
    assert!(farm.reason("a").contains("its process lives"), "{}", farm.reason("a"));
    lists_nothing(&mut farm);
    farm.tells([]);
}

//! Stories of hosts that render for a manager that is polled, and for others.

use crate::farm::{Farm, QUIET_S, WHOLE, cores};

/// Polls of this manager, for longer than any wait.
fn polls_for_long(farm: &mut Farm, manager: &'static str, bookings: &[(&str, u32)]) {
    for _ in 0..=2 * QUIET_S / 15 {
        farm.advance(15);
        farm.polls_of(manager, &[("a", bookings)]);
    }
}

/// The names of what runs.
fn runs(farm: &Farm) -> Vec<String> {
    farm.view("a").bookings.iter().map(|one| one.booking.to_string()).collect()
}

#[test]
fn a_manager_does_not_end_what_the_host_renders_for_others() {
    let mut farm = Farm::with_open_host();
    let others = ["deadline:r1", "fallback:77.1234", "shot42.17.1", "slurm-like:9"];
    for name in others {
        farm.begins("a", name, cores(1));
    }
    farm.begins("a", "slurm:17", cores(1));
    farm.forget();
    polls_for_long(&mut farm, "slurm", &[]);
    assert_eq!(runs(&farm), others, "and the lost postflight of its own is found");
    farm.tells(["open a 8 at 5"]);
    assert_eq!(farm.contradictions("a"), ["slurm:17 counts as ended: the farm does not list it"]);
    others.iter().for_each(|name| farm.ends("a", name));
    assert_eq!(runs(&farm), [""; 0]);
}

#[test]
fn a_document_of_the_farms_own_does_not_end_what_a_manager_renders() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "deadline:r1", cores(4));
    farm.begins("a", "shot42.17.1", cores(4));
    for _ in 0..2 {
        farm.advance(15);
        farm.polls(&[("a", &[])]);
    }
    assert_eq!(runs(&farm), ["deadline:r1"], "it is for the document to list what scripts render");
}

#[test]
fn whoever_has_listed_a_booking_ends_it_whatever_its_name_is() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "slurm:17", WHOLE);
    farm.advance(15);
    farm.polls(&[("a", &[("slurm:17", 12)])]);
    // The next monitor knows it too.
    farm.restarts_monitor();
    farm.samples("a");
    for _ in 0..2 {
        farm.advance(15);
        assert_eq!(runs(&farm), ["slurm:17"], "one poll may be behind");
        farm.polls(&[("a", &[])]);
    }
    assert_eq!(runs(&farm), [""; 0]);
}

#[test]
fn what_one_source_has_listed_another_does_not_end() {
    let mut farm = Farm::with_open_host();
    farm.advance(15);
    farm.polls_of("deadline", &[("a", &[("deadline:r1", 12)])]);
    polls_for_long(&mut farm, "slurm", &[]);
    assert_eq!(runs(&farm), ["deadline:r1"]);
    farm.polls_of("deadline", &[("a", &[])]);
    assert_eq!(runs(&farm), [""; 0]);
}

//! Stories of a farm's day as the monitor hears it.

use crate::farm::{
    CORES, END_LAG_S, Farm, MEMORY_MIB, QUIET_S, WHOLE, booking, cores, host, rules,
};
use gleaner_monitor::{Input, Rules};
use gleaner_protocol::farm::Booked;
use gleaner_protocol::{Epoch, Origin, Span};

#[test]
fn a_host_opens_only_after_it_was_quiet_since_first_seen() {
    let mut farm = Farm::new();
    farm.starts_agent("a");
    farm.advance(QUIET_S - 1);
    farm.tells([]);
    assert_eq!(farm.reason("a"), "the quiet period is not over");
    farm.advance(1);
    farm.tells(["open a 12 at 0"]);
}

#[test]
fn a_render_closes_at_once_and_its_end_opens_after_the_quiet_period() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "r1", WHOLE);
    farm.tells(["close a"]);
    assert_eq!(farm.reason("a"), "r1 has booked the whole host");
    farm.advance(600);
    farm.tells([]);
    farm.ends("a", "r1");
    farm.advance_span(Span::from_micros(QUIET_S * 1_000_000 - 1));
    farm.tells([]);
    farm.advance_span(Span::from_micros(1));
    farm.tells(["open a 12 at 1"]);
}

#[test]
fn a_preflight_in_the_quiet_period_cancels_the_opening() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "r1", WHOLE);
    farm.ends("a", "r1");
    farm.tells(["close a"]);
    farm.advance(QUIET_S - 1);
    farm.begins("a", "r2", WHOLE);
    farm.advance(600);
    farm.tells([]);
    farm.ends("a", "r2");
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 2"]);
}

#[test]
fn the_gpus_that_renders_book_without_a_hook_are_told_of_with_the_rest() {
    let mut farm = Farm::polled_and_open();
    let told = |farm: &Farm| farm.booked_gpus[&host("a")];
    assert_eq!(told(&farm), Some(0), "nothing renders");
    let gpus = |gpus| Booked { gpus, ..cores(2) };
    farm.polls_books("a", &[("r1", gpus(Some(0)))]);
    assert_eq!(told(&farm), Some(0));
    farm.polls_books("a", &[("r1", gpus(Some(0))), ("r2", gpus(None))]);
    assert_eq!(told(&farm), None, "one does not say");
    farm.polls_books("a", &[("r1", gpus(Some(1))), ("r2", gpus(None)), ("r3", gpus(Some(2)))]);
    assert_eq!(told(&farm), Some(3), "some do");
    // In the quiet period nothing is given back.
    farm.polls_books("a", &[("r1", gpus(Some(0)))]);
    assert_eq!(told(&farm), Some(3));
    for _ in 0..=QUIET_S / 15 {
        farm.polls_books("a", &[("r1", gpus(Some(0)))]);
        farm.advance(15);
    }
    assert_eq!(told(&farm), Some(0));
}

#[test]
fn a_render_on_some_cores_leaves_the_others_open_with_the_new_epoch() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "r1", cores(8));
    farm.tells(["open a 4 at 1"]);
    farm.begins("a", "r2", cores(3));
    farm.tells(["open a 1 at 2"]);
    farm.begins("a", "r3", cores(1));
    farm.tells(["close a"]);
    farm.ends("a", "r1");
    farm.advance(QUIET_S);
    farm.tells(["open a 8 at 3"]);
    farm.ends("a", "r2");
    farm.advance(QUIET_S - 1);
    farm.tells([]);
    farm.advance(1);
    farm.tells(["open a 11 at 3"]);
}

#[test]
fn growth_that_a_render_takes_away_in_time_never_shows() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "r1", cores(8));
    farm.ends("a", "r1");
    farm.advance(QUIET_S - 1);
    farm.begins("a", "r2", cores(6));
    farm.tells(["open a 4 at 1", "open a 4 at 2"]);
    farm.advance(QUIET_S);
    farm.tells(["open a 6 at 2"]);
}

#[test]
fn memory_is_what_is_left_of_it_and_the_reserve_is_kept() {
    let reserve = Rules { reserve_cores: 2, reserve_memory_mib: 4_000, ..rules() };
    let mut farm = Farm::with(reserve);
    farm.starts_agent("a");
    farm.advance(QUIET_S);
    farm.tells(["open a 10 at 0"]);
    let open = |farm: &Farm| farm.open_now("a").map(|(cores, memory, _)| (cores, memory));
    assert_eq!(open(&farm), Some((10, MEMORY_MIB - 4_000)));
    farm.begins("a", "says", Booked { cores: Some(3), memory_mib: Some(10_000), gpus: None });
    assert_eq!(open(&farm), Some((7, MEMORY_MIB - 14_000)));
    farm.begins("a", "does-not-say", cores(3));
    let share = MEMORY_MIB * 3 / u64::from(CORES);
    assert_eq!(open(&farm), Some((4, MEMORY_MIB - 14_000 - share)));
    let left = MEMORY_MIB - 14_000 - share;
    let all_but = |mib| Booked { cores: Some(1), memory_mib: Some(left - mib), gpus: None };
    farm.begins("a", "hungry", all_but(64));
    assert_eq!(open(&farm), Some((3, 64)));
    farm.begins("a", "crumbs", Booked { cores: Some(1), memory_mib: Some(1), gpus: None });
    assert_eq!(farm.reason("a"), "all memory is booked or reserved", "nothing starts in 63 MiB");
    farm.begins("a", "hungrier", Booked { cores: Some(1), memory_mib: Some(40_000), gpus: None });
    assert_eq!(farm.reason("a"), "all memory is booked or reserved");
}

#[test]
fn doubled_hooks_change_nothing() {
    let mut farm = Farm::with_open_host();
    let preflight = farm.preflight("a", "r1", cores(8));
    farm.hears(&preflight);
    farm.tells(["open a 4 at 1"]);
    farm.hears(&preflight);
    farm.tells([]);
    let postflight = farm.postflight("a", "r1");
    farm.hears(&postflight);
    farm.advance(QUIET_S - 1);
    farm.hears(&postflight);
    farm.hears(&preflight);
    farm.tells([]);
    farm.advance(1);
    farm.tells(["open a 12 at 1"]);
    farm.hears(&preflight);
    farm.hears(&postflight);
    farm.advance(QUIET_S);
    farm.tells([]);
}

#[test]
fn a_postflight_that_is_heard_first_leaves_nothing_booked() {
    let mut farm = Farm::with_open_host();
    let preflight = farm.preflight("a", "r1", WHOLE);
    let postflight = farm.postflight("a", "r1");
    farm.hears(&postflight);
    farm.tells(["close a"]);
    farm.hears(&preflight);
    assert_eq!(farm.view("a").bookings, []);
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 1"]);
}

#[test]
fn an_attempt_under_a_name_that_has_ended_is_booked_again() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "qube:1.0", WHOLE);
    farm.ends("a", "qube:1.0");
    farm.begins("a", "qube:1.0", WHOLE);
    farm.advance(600);
    farm.tells(["close a"]);
    farm.ends("a", "qube:1.0");
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 2"]);
}

#[test]
fn the_postflight_of_an_earlier_attempt_does_not_end_the_present_one() {
    let mut farm = Farm::with_open_host();
    let first = farm.preflight("a", "qube:1.0", WHOLE);
    let end_of_first = farm.postflight("a", "qube:1.0");
    let second = farm.preflight("a", "qube:1.0", WHOLE);
    for event in [&first, &second, &end_of_first] {
        farm.hears(event);
    }
    assert_eq!(farm.view("a").bookings.len(), 1);
    farm.advance(600);
    farm.tells(["close a"]);
}

#[test]
fn hooks_heard_in_the_wrong_order_close_until_all_is_clear() {
    let mut farm = Farm::with_open_host();
    let first = farm.preflight("a", "r1", cores(4));
    let second = farm.preflight("a", "r2", cores(4));
    farm.hears(&second);
    farm.tells(["close a"]);
    farm.hears(&first);
    farm.advance(QUIET_S - 1);
    farm.tells([]);
    farm.advance(1);
    farm.tells(["open a 4 at 2"]);
}

#[test]
fn a_preflight_that_was_never_heard_is_found_by_a_sample() {
    let mut farm = Farm::with_open_host();
    let _lost = farm.preflight("a", "r1", cores(8));
    farm.samples("a");
    farm.tells(["open a 4 at 1"]);
    farm.advance(QUIET_S);
    let _lost = farm.postflight("a", "r1");
    farm.samples("a");
    farm.advance(QUIET_S - 1);
    farm.tells([]);
    farm.advance(1);
    farm.tells(["open a 12 at 1"]);
}

#[test]
fn a_sample_that_overtakes_its_hook_leaves_the_other_cores_open() {
    let mut farm = Farm::with_open_host();
    let preflight = farm.preflight("a", "r1", cores(2));
    farm.samples("a");
    farm.tells(["open a 10 at 1"]);
    farm.hears(&preflight);
    let both = [farm.preflight("a", "r2", cores(2)), farm.preflight("a", "r3", cores(2))];
    farm.samples("a");
    both.iter().for_each(|preflight| farm.hears(preflight));
    farm.tells(["open a 6 at 3"]);
}

#[test]
fn an_epoch_that_its_sample_does_not_account_for_closes() {
    let mut farm = Farm::with_open_host();
    let preflight = farm.preflight("a", "r1", cores(2));
    // The hook has raised the epoch and is about to book.
    let mut between = farm.sample("a");
    between.bookings.clear();
    farm.input(Input::Sample(between));
    farm.tells(["close a"]);
    farm.hears(&preflight);
    // Of two preflights the sample shows one.
    farm.advance(QUIET_S);
    farm.tells(["open a 10 at 1"]);
    let _first = farm.preflight("a", "r2", cores(2));
    let second = farm.preflight("a", "r3", cores(2));
    let mut between = farm.sample("a");
    between.bookings.retain(|known| known.booking != second.booking);
    farm.input(Input::Sample(between));
    farm.tells(["close a"]);
}

#[test]
fn a_sample_that_was_long_on_its_way_says_nothing() {
    let mut farm = Farm::with_open_host();
    let before = farm.sample("a");
    farm.begins("a", "r1", cores(8));
    farm.tells(["open a 4 at 1"]);
    farm.input(Input::Sample(before));
    assert_eq!(farm.view("a").bookings.len(), 1);
    farm.tells([]);
}

#[test]
fn a_sample_on_its_way_while_a_hook_runs_neither_ends_nor_revives_the_booking() {
    let mut farm = Farm::with_open_host();
    let preflight = farm.preflight("a", "r1", WHOLE);
    // Between the epoch and the booking the hook was not done with the folder.
    let mut between = farm.sample("a");
    between.bookings.clear();
    farm.hears(&preflight);
    farm.input(Input::Sample(between));
    assert_eq!(farm.view("a").bookings.len(), 1);
    farm.advance(30);
    let running = farm.sample("a");
    farm.ends("a", "r1");
    farm.input(Input::Sample(running));
    assert_eq!(farm.view("a").bookings, []);
    farm.advance(QUIET_S);
    farm.tells(["close a", "open a 12 at 1"]);
    assert_eq!(farm.contradictions("a"), [""; 0]);
}

#[test]
fn a_lost_postflight_is_found_by_two_polls() {
    let mut farm = Farm::new();
    farm.starts_agent("a");
    farm.begins("a", "r1", WHOLE);
    farm.polls(&[("a", &[("r1", 12)])]);
    farm.advance(1);
    farm.polls(&[("a", &[])]);
    assert_eq!(farm.view("a").bookings.len(), 1, "one poll may be behind");
    farm.advance(1);
    farm.polls(&[("a", &[])]);
    assert_eq!(farm.view("a").bookings, []);
    // The run folder still has it, and that does not bring it back.
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 1"]);
    assert!(farm.contradictions("a")[0].contains("r1 counts as ended"));
    // The next attempt under that name counts again.
    farm.begins("a", "r1", WHOLE);
    farm.tells(["close a"]);
}

#[test]
fn a_farm_that_lists_an_instance_lists_its_frames() {
    let mut farm = Farm::new();
    farm.starts_agent("a");
    farm.begins("a", "qube:812.3:f17", cores(4));
    let polls = |farm: &mut Farm, listed: &[&[(&str, u32)]]| {
        for bookings in listed {
            farm.advance(1);
            farm.polls(&[("a", bookings)]);
        }
    };
    let (listed, others): (&[_], &[_]) = (&[("qube:812.3", 12)], &[("qube:812.31", 12)]);
    let has_frame = |farm: &Farm| {
        farm.view("a").bookings.iter().any(|one| one.booking == booking("qube:812.3:f17"))
    };
    polls(&mut farm, &[listed, listed, listed]);
    assert_eq!(farm.contradictions("a"), [""; 0]);
    // One poll may be behind, time and again.
    polls(&mut farm, &[others, listed, others, listed]);
    assert!(has_frame(&farm));
    // That its postflight is lost is still found.
    polls(&mut farm, &[others, others]);
    assert!(!has_frame(&farm));
    let contradictions = farm.contradictions("a").join("; ");
    assert!(contradictions.contains("qube:812.3:f17 counts as ended"), "{contradictions}");
}

#[test]
fn a_poll_that_was_asked_before_a_hook_does_not_overrule_it() {
    let mut farm = Farm::with_open_host();
    farm.polls(&[("a", &[])]);
    for _ in 0..3 {
        let asked_at = farm.now;
        farm.begins("a", "r1", WHOLE);
        farm.polls_asked_at(asked_at, &[("a", &[])]);
    }
    assert_eq!(farm.view("a").bookings.len(), 1);
    farm.advance(1);
    let asked_at = farm.now;
    farm.ends("a", "r1");
    farm.polls_asked_at(asked_at, &[("a", &[("r1", 12)])]);
    assert_eq!(farm.view("a").bookings, [], "it was running when the farm was asked");
    assert_eq!(farm.contradictions("a"), [""; 0]);
}

#[test]
fn a_booking_over_the_limit_counts_as_ended() {
    let mut farm = Farm::with(Rules { booking_limit: Span::from_secs(3_600), ..rules() });
    farm.starts_agent("a");
    farm.begins("a", "r1", WHOLE);
    farm.advance(3_599);
    assert_eq!(farm.view("a").bookings.len(), 1);
    farm.advance(1);
    assert_eq!(farm.view("a").bookings, []);
    farm.tells([]);
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 1"]);
}

#[test]
fn what_the_farm_still_lists_is_never_over_the_limit() {
    let mut farm = Farm::with(Rules { booking_limit: Span::from_secs(100), ..rules() });
    farm.starts_agent("a");
    farm.begins("a", "r1", WHOLE);
    for _ in 0..20 {
        farm.polls(&[("a", &[("r1", 12)])]);
        farm.advance(15);
    }
    assert_eq!(farm.view("a").bookings[0].seen_by, ["hook", "sample", "poll"]);
    farm.tells([]);
}

#[test]
fn a_booking_that_only_the_farm_knows_counts_at_once() {
    let mut farm = Farm::with_open_host();
    farm.polls(&[("a", &[("job-1", 8)])]);
    farm.tells(["open a 4 at 0"]);
    for _ in 0..QUIET_S / 15 {
        farm.advance(15);
        farm.polls(&[("a", &[])]);
    }
    farm.tells([]);
    farm.advance(15);
    farm.tells(["open a 12 at 0"]);
}

#[test]
fn a_poll_only_host_closes_after_two_missed_polls() {
    let mut farm = Farm::new();
    farm.starts_agent("a");
    let polled = |farm: &mut Farm, times| {
        for _ in 0..times {
            farm.polls(&[("a", &[])]);
            farm.advance(15);
        }
    };
    polled(&mut farm, 4);
    farm.tells(["open a 12 at 0"]);
    farm.poll_fails();
    farm.advance(15);
    farm.tells([]);
    polled(&mut farm, 1);
    farm.poll_fails();
    farm.tells([]);
    // The host is missing in the farm's list: as good as no answer.
    farm.polls(&[("b", &[])]);
    farm.tells(["close a"]);
    assert_eq!(farm.reason("a"), "nobody confirmed it in time");
    polled(&mut farm, 4);
    farm.tells(["open a 12 at 0"]);
}

#[test]
fn a_poll_only_host_closes_when_the_poller_itself_hangs() {
    let mut farm = Farm::new();
    farm.starts_agent("a");
    for _ in 0..4 {
        farm.polls(&[("a", &[])]);
        farm.advance(15);
    }
    farm.tells(["open a 12 at 0"]);
    farm.advance(29);
    farm.tells([]);
    farm.advance(1);
    farm.tells(["close a"]);
}

#[test]
fn a_host_with_hooks_does_not_need_the_polls() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "r1", cores(8));
    farm.polls(&[("a", &[("r1", 8)])]);
    farm.poll_fails();
    farm.poll_fails();
    farm.advance(120);
    farm.tells(["open a 4 at 1"]);
}

#[test]
fn a_fragment_is_confirmed_as_long_as_somebody_speaks_of_the_host() {
    let mut farm = Farm::with_open_host();
    farm.confirmations = 0;
    farm.advance(300);
    farm.tells([]);
    assert_eq!(farm.confirmations, 30, "at a third of its validity");
    farm.stops_agent("a");
    farm.advance(29);
    farm.tells([]);
    farm.advance(1);
    farm.tells(["close a"]);
    farm.starts_agent("a");
    farm.advance(QUIET_S - 1);
    farm.tells([]);
    farm.advance(1);
    farm.tells(["open a 12 at 0"]);
}

#[test]
fn sources_that_contradict_each_other_never_open() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "r1", cores(8));
    farm.polls(&[("a", &[("r1", 10)])]);
    farm.tells(["open a 4 at 1", "open a 2 at 1"]);
    farm.advance(1);
    farm.ends("a", "r1");
    farm.advance(1);
    // Its hook says that it has ended, the farm that it runs.
    farm.polls(&[("a", &[("r1", 12)])]);
    farm.tells(["close a"]);
    farm.advance(END_LAG_S);
    farm.polls(&[("a", &[("r1", 12)])]);
    let known = farm.contradictions("a");
    assert!(known.iter().any(|text| text.contains("8 cores, the farm 10")), "{known:?}");
    assert!(known.iter().any(|text| text.contains("the farm lists r1")), "{known:?}");
    farm.advance(600);
    farm.tells([]);
}

#[test]
fn a_farm_that_gives_a_host_fewer_cores_than_its_agent_is_believed() {
    let mut farm = Farm::with_open_host();
    let mut sample = farm.sample("a");
    sample.cores = 64;
    farm.input(Input::Sample(sample));
    farm.polls(&[("a", &[])]);
    farm.advance(5);
    farm.tells(["open a 64 at 0", "open a 12 at 0"]);
    assert!(farm.contradictions("a")[0].contains("64 cores, the farm 12"));
}

#[test]
fn a_host_that_lost_its_folder_closes_and_starts_anew() {
    let mut farm = Farm::with_open_host();
    let late = farm.preflight("a", "r0", WHOLE);
    let folder = farm.folder("a");
    folder.epoch = Epoch { incarnation: 99, count: 0 };
    folder.bookings.clear();
    farm.samples("a");
    farm.tells(["close a"]);
    farm.hears(&late);
    assert_eq!(farm.view("a").epoch, Some(Epoch { incarnation: 99, count: 0 }));
    assert!(farm.contradictions("a")[0].contains("earlier life"));
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 0"]);
}

#[test]
fn old_epochs_never_lower_what_is_known() {
    let mut farm = Farm::with_open_host();
    let first = farm.preflight("a", "r1", cores(1));
    farm.hears(&first);
    farm.begins("a", "r2", cores(1));
    farm.hears(&first);
    farm.tells(["open a 11 at 1", "open a 10 at 2"]);
    assert_eq!(farm.view("a").epoch.expect("known").count, 2);
}

#[test]
fn a_hook_without_an_epoch_closes_until_a_sample_tells_it() {
    let mut farm = Farm::with_open_host();
    let mut event = farm.preflight("a", "r1", cores(1));
    event.epoch = Epoch::default();
    farm.folder("a").bookings.clear();
    farm.hears(&event);
    farm.tells(["close a"]);
    assert!(farm.reason("a").contains("epoch is in doubt"), "{}", farm.reason("a"));
    farm.advance(600);
    // What the folder could not book is booked all the same.
    farm.tells(["open a 11 at 1"]);
    farm.ends("a", "r1");
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 1"]);
}

#[test]
fn a_desktop_host_is_shown_and_never_opened() {
    let mut farm = Farm::new();
    let mut sample = farm.sample("a");
    sample.origin = Origin::Desktop;
    for _ in 0..60 {
        farm.input(Input::Sample(sample.clone()));
        farm.polls(&[("a", &[])]);
        farm.advance(5);
    }
    farm.tells([]);
    assert_eq!(farm.view("a").cpu_percent, Some(1.0));
    assert_eq!(farm.reason("a"), "a desktop host is not the farm's");
}

#[test]
fn a_host_whose_epoch_or_size_is_unknown_is_not_opened() {
    let mut farm = Farm::new();
    for _ in 0..10 {
        farm.polls(&[("poll-only", &[])]);
        farm.begins("hooks-only", "r1", cores(1));
        farm.ends("hooks-only", "r1");
        farm.advance(15);
    }
    farm.tells([]);
    assert!(farm.reason("poll-only").contains("epoch is not known"));
    assert!(farm.reason("hooks-only").contains("size is not known"));
}

#[test]
fn hosts_do_not_concern_each_other() {
    let mut farm = Farm::new();
    for name in ["a", "b", "c"] {
        farm.starts_agent(name);
    }
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 0", "open b 12 at 0", "open c 12 at 0"]);
    farm.begins("b", "r1", WHOLE);
    farm.tells(["close b"]);
    let totals = farm.monitor.totals(farm.now);
    assert_eq!((totals.hosts, totals.fragments, totals.fragment_cores), (3, 2, 24));
}

#[test]
fn more_bookings_than_can_be_kept_close_the_host() {
    let mut farm = Farm::with_open_host();
    for number in 0..=gleaner_monitor::limits::BOOKINGS_MAX {
        let booked = Booked { cores: Some(0), memory_mib: Some(0), gpus: None };
        let event = farm.preflight("a", &format!("r{number}"), booked);
        let mut effects = Vec::new();
        farm.monitor.handle(farm.now, Input::Hook(event), &mut effects).expect("one host");
    }
    farm.monitor.check_invariants().expect("invariants hold");
    assert!(farm.reason("a").contains("more than 4096 bookings"), "{}", farm.reason("a"));
    assert!(farm.view("a").bookings.iter().all(|known| known.booking != booking("r4096")));
}

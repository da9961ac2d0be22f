//! Openings, bookings, epochs.

use gleaner_protocol::control::{AgentMessage, BrokerMessage, Fragment, ReleaseReason};
use gleaner_protocol::{Digest, Epoch, Origin};

use super::super::{Effect, Input, RunFolderState};
use super::host::{Host, epoch, released, stop, token};

fn fragment(count: u64, slots: u32) -> Fragment {
    Fragment { epoch: epoch(count), cores: slots, ..Fragment::default() }
}

/// The effects of a change of the fragment that stops nothing.
fn gives(count: u64, slots: u32) -> Vec<Effect> {
    let fragment = fragment(count, slots);
    vec![Effect::Fragment(fragment), Effect::Send(AgentMessage::Fragment(fragment))]
}

fn asks(slots: u32) -> Effect {
    Effect::Send(AgentMessage::Request { cores: slots })
}

#[test]
fn a_farm_host_gives_nothing_until_it_is_opened() {
    let mut host = Host::new(Origin::Farm, 8);
    let hello = host.link(&[]);
    assert_eq!(hello.fragment, fragment(0, 0));
    host.quiet();
    host.opening(epoch(0), 6, 1000);
    assert_eq!(host.takes(), [gives(0, 6), vec![asks(6)]].concat());
}

#[test]
fn an_opening_gives_no_more_than_the_host_has_and_has_not_booked() {
    let mut host = Host::farm(8);
    host.booked(1, 3, &[]);
    assert_eq!(host.takes(), gives(1, 0));
    host.opening(epoch(1), 50, 1000);
    assert_eq!(host.takes(), [gives(1, 5), vec![asks(5)]].concat());
}

#[test]
fn openings_of_another_epoch_are_refused_however_often_they_come() {
    let mut host = Host::farm(8);
    host.booked(2, 0, &[]);
    host.takes();
    let other_life = Epoch { incarnation: 3, count: 2 };
    for decided_on in [epoch(1), epoch(1), epoch(3), other_life, Epoch::default()] {
        host.opening(decided_on, 8, 1000);
        host.says(&[AgentMessage::OpeningRefused { decided_on, current: epoch(2) }]);
    }
    assert_eq!(host.harvest.fragment().cores, 0);
}

#[test]
fn an_opening_that_nobody_confirms_closes_by_itself() {
    let mut host = Host::open_farm(4);
    host.run([1, 2]);
    host.advance_ms(59_000);
    host.opening(epoch(0), 4, 60_000);
    host.quiet();
    host.advance_ms(59_000);
    host.quiet();
    host.advance_ms(1_000);
    let closed = ReleaseReason::FragmentClosed;
    assert_eq!(
        host.takes(),
        [
            Effect::Fragment(fragment(0, 0)),
            stop(1, 2),
            Effect::Send(released(2, closed.clone())),
            stop(0, 1),
            Effect::Send(released(1, closed)),
            Effect::Send(AgentMessage::Fragment(fragment(0, 0))),
        ]
    );
    assert_eq!(host.harvest.next_deadline(), None);
}

#[test]
fn a_late_event_finds_an_expired_opening_closed_even_if_the_alarm_is_late() {
    let mut host = Host::open_farm(2);
    host.run([1]);
    host.now = host.now + gleaner_protocol::Span::from_secs(3600);
    host.lease(2);
    let effects = host.takes();
    let closed = Effect::Send(released(2, ReleaseReason::FragmentClosed));
    assert!(effects.contains(&stop(0, 1)), "{effects:?}");
    assert!(effects.contains(&closed) || effects.contains(&stop(1, 2)), "{effects:?}");
    assert_eq!(host.harvest.running(), 0);
}

#[test]
fn a_closing_ends_everything_at_once() {
    let mut host = Host::open_farm(2);
    host.run([1, 2]);
    host.broker(BrokerMessage::Closing { reason: "poll".into() });
    let effects = host.takes();
    assert_eq!(effects.iter().filter(|e| matches!(e, Effect::Stop { .. })).count(), 2);
    assert_eq!(host.harvest.fragment(), fragment(0, 0));
}

#[test]
fn a_render_takes_what_it_booked_and_the_rest_runs_on() {
    let mut host = Host::open_farm(4);
    host.run([1, 2, 3, 4]);
    // The releaser has stopped the two youngest.
    host.booked(1, 2, &[4, 3]);
    let preempted = ReleaseReason::Preempted;
    assert_eq!(
        host.takes(),
        [
            stop(3, 4),
            Effect::Send(released(4, preempted.clone())),
            stop(2, 3),
            Effect::Send(released(3, preempted)),
            Effect::Fragment(fragment(1, 2)),
            Effect::Send(AgentMessage::Fragment(fragment(1, 2))),
        ]
    );
    assert_eq!(host.harvest.running(), 2);
}

#[test]
fn what_the_releaser_did_not_see_is_stopped_as_well_the_youngest_first() {
    let mut host = Host::open_farm(3);
    host.run([1, 2, 3]);
    host.booked(1, 2, &[]);
    let effects = host.takes();
    let stopped: Vec<&Effect> =
        effects.iter().filter(|e| matches!(e, Effect::Stop { .. })).collect();
    assert_eq!(stopped, [&stop(2, 3), &stop(1, 2)]);
    assert!(effects.contains(&Effect::Send(released(3, ReleaseReason::Preempted))));
}

#[test]
fn a_smaller_opening_ends_what_loses_least() {
    let mut host = Host::open_farm(3);
    for replica in [1, 2, 3] {
        host.run([replica]);
        host.advance_ms(1_000);
    }
    // The oldest of them has saved since, and the broker has it.
    let state = Digest::of(b"where it is");
    host.input(Input::StateStored { token: token(1), state });
    host.takes();
    host.advance_ms(1_000);
    let mut stopped = |cores: u32| -> Vec<Effect> {
        host.opening(epoch(0), cores, 60_000);
        let effects = host.takes();
        effects.into_iter().filter(|effect| matches!(effect, Effect::Stop { .. })).collect()
    };
    assert_eq!(stopped(2), [stop(0, 1)]);
    assert_eq!(stopped(1), [stop(2, 3)]);
}

#[test]
fn what_a_broker_had_saved_is_lost_with_it() {
    let mut host = Host::open_farm(2);
    for replica in [1, 2] {
        host.run([replica]);
        host.advance_ms(1_000);
    }
    host.input(Input::StateStored { token: token(1), state: Digest::of(b"where it is") });
    host.takes();
    host.input(Input::LinkDown);
    host.input(Input::LinkUp);
    host.takes();
    let adopted = [1, 2].map(token).to_vec();
    host.broker(BrokerMessage::Welcome { incarnation: 2, adopted });
    host.takes();
    host.opening(epoch(0), 1, 60_000);
    assert!(host.takes().contains(&stop(1, 2)));
}

#[test]
fn a_fragment_does_not_grow_when_a_render_ends_but_when_it_is_opened_anew() {
    let mut host = Host::open_farm(4);
    host.booked(1, 3, &[]);
    assert_eq!(host.takes(), [gives(1, 1), vec![asks(1)]].concat());
    host.booked(1, 0, &[]);
    host.quiet();
    host.opening(epoch(0), 4, 60_000);
    host.says(&[AgentMessage::OpeningRefused { decided_on: epoch(0), current: epoch(1) }]);
    host.opening(epoch(1), 4, 60_000);
    assert_eq!(host.takes(), [gives(1, 4), vec![asks(4)]].concat());
}

#[test]
fn the_end_of_a_render_that_the_monitor_did_not_know_opens_nothing() {
    let mut host = Host::farm(8);
    host.booked(1, 3, &[]);
    host.takes();
    host.opening(epoch(1), 8, 60_000);
    host.takes();
    host.booked(1, 0, &[]);
    host.quiet();
    assert_eq!(host.harvest.fragment(), fragment(1, 5));
}

#[test]
fn a_second_preflight_of_the_same_render_changes_the_epoch_alone() {
    let mut host = Host::open_farm(4);
    host.booked(1, 2, &[]);
    host.takes();
    host.booked(2, 2, &[]);
    assert_eq!(host.takes(), [gives(2, 2), vec![asks(2)]].concat());
}

#[test]
fn a_render_that_ended_before_the_folder_was_read_leaves_what_it_left() {
    let mut host = Host::open_farm(4);
    let run_folder =
        Some(RunFolderState { epoch: epoch(1), booked: 0, ..RunFolderState::default() });
    let (stopped, parked) = (Vec::new(), Vec::new());
    host.input(Input::RunFolder { run_folder, stopped, parked, cores_left: Some(1) });
    assert!(host.takes().starts_with(&gives(1, 1)), "what opens it again is an opening");
    host.booked(1, 0, &[]);
    assert_eq!(host.harvest.fragment(), fragment(1, 1));
    host.opening(epoch(1), 4, 60_000);
    assert_eq!(host.harvest.fragment(), fragment(1, 4));
}

#[test]
fn an_unreadable_run_folder_closes_the_host_and_voids_its_opening() {
    let mut host = Host::open_farm(2);
    host.run([1]);
    host.input(Input::RunFolder {
        run_folder: None,
        stopped: Vec::new(),
        parked: Vec::new(),
        cores_left: None,
    });
    assert!(host.takes().contains(&stop(0, 1)));
    host.opening(epoch(0), 2, 1000);
    host.says(&[AgentMessage::OpeningRefused { decided_on: epoch(0), current: Epoch::default() }]);
    host.booked(0, 0, &[]);
    assert_eq!(host.takes(), gives(0, 0), "readable again, and not open");
}

#[test]
fn a_render_that_the_run_folder_does_not_name_voids_the_opening() {
    let mut host = Host::open_farm(2);
    host.run([1]);
    let run_folder = Some(RunFolderState {
        epoch: epoch(1),
        booked: 0,
        has_fence: false,
        ..RunFolderState::default()
    });
    let (stopped, parked) = (vec![token(1)], Vec::new());
    host.input(Input::RunFolder { run_folder, stopped, parked, cores_left: Some(0) });
    assert!(host.takes().ends_with(&gives(1, 0)), "of none it is not known how much is left");
    host.booked(1, 0, &[]);
    assert_eq!(host.takes(), [], "and nothing says that it has ended");
    host.opening(epoch(1), 2, 1000);
    assert!(host.takes().starts_with(&gives(1, 2)));
}

#[test]
fn a_desktop_gives_what_is_not_booked_at_any_time() {
    let mut host = Host::desktop(4);
    host.run([1, 2, 3]);
    host.booked(1, 2, &[3]);
    assert!(host.takes().contains(&Effect::Fragment(fragment(1, 2))));
    host.booked(1, 0, &[]);
    assert_eq!(host.takes(), [gives(1, 4), vec![asks(2)]].concat());
    host.opening(epoch(1), 1, 1000);
    host.says(&[AgentMessage::OpeningRefused { decided_on: epoch(1), current: epoch(1) }]);
}

#[test]
fn an_alarm_closes_the_host_until_it_is_over_and_the_monitor_opens_it() {
    let mut host = Host::open_farm(2);
    host.run([1]);
    let alarm = |reason: Option<&str>| {
        let reason = reason.map(str::to_owned);
        Effect::Send(AgentMessage::Alarm { reason })
    };
    host.input(Input::Alarm(Some("a task does not die".into())));
    let closed = [
        Effect::Fragment(fragment(0, 0)),
        stop(0, 1),
        Effect::Send(released(1, ReleaseReason::FragmentClosed)),
        alarm(Some("a task does not die")),
        Effect::Send(AgentMessage::Fragment(fragment(0, 0))),
    ];
    assert_eq!(host.takes(), closed);
    host.opening(epoch(0), 2, 60_000);
    host.quiet();
    // A broker that has restarted hears of it too.
    host.input(Input::LinkUp);
    host.takes();
    host.broker(BrokerMessage::Welcome { incarnation: 2, adopted: Vec::new() });
    assert_eq!(host.takes(), [alarm(Some("a task does not die"))]);
    host.input(Input::Alarm(None));
    assert_eq!(host.takes(), [alarm(None)]);
    host.opening(epoch(0), 2, 60_000);
    assert_eq!(host.takes(), [gives(0, 2), vec![asks(2)]].concat());
}

#[test]
fn a_leaving_agent_gives_everything_back() {
    let mut host = Host::desktop(2);
    host.run([1]);
    host.input(Input::Leave);
    assert_eq!(
        host.takes(),
        [
            Effect::Fragment(fragment(0, 0)),
            stop(0, 1),
            Effect::Send(released(1, ReleaseReason::FragmentClosed)),
            Effect::Send(AgentMessage::Fragment(fragment(0, 0))),
        ]
    );
}

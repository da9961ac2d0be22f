//! Replicas that a render drives out and that are not killed at once.

use gleaner_protocol::control::{
    AbortReason, AgentMessage, BrokerMessage, Fragment, Held, HeldState, ReleaseReason, Verdict,
};
use gleaner_protocol::job::OnRelease;

use super::super::{Effect, Input};
use super::host::{Host, KEEP_MAX_S, epoch, output, released, replica, report, stop, token};

const KEEP: OnRelease = OnRelease::Keep { for_s: 5 };
const SAVE: OnRelease = OnRelease::Checkpoint { within_s: 2 };

/// A farm host of four cores with replicas 1 to 4 of such a job.
fn busy(on_release: OnRelease) -> Host {
    let mut host = Host::open_farm(4);
    host.on_release = on_release;
    host.run([1, 2, 3, 4]);
    host
}

fn frozen(raw: u64, frozen: bool) -> Effect {
    Effect::Send(AgentMessage::Frozen { token: token(raw), frozen })
}

fn fragment(count: u64, slots: u32) -> [Effect; 2] {
    let fragment = Fragment { epoch: epoch(count), cores: slots, ..Fragment::default() };
    [Effect::Fragment(fragment), Effect::Send(AgentMessage::Fragment(fragment))]
}

fn thaw(slot: u32, raw: u64, count: u64) -> Effect {
    Effect::Thaw { slot, token: token(raw), epoch: epoch(count) }
}

fn gone(slot: u32, raw: u64) -> [Effect; 2] {
    [stop(slot, raw), Effect::Send(released(raw, ReleaseReason::Preempted))]
}

#[test]
fn only_what_may_be_parked_is() {
    for (on_release, expected) in [(OnRelease::Kill, false), (KEEP, true), (SAVE, true)] {
        let mut host = Host::desktop(1);
        host.on_release = on_release;
        host.learn(super::host::noop());
        host.lease(1);
        let [Effect::Start { parks, .. }] = host.takes()[..] else { panic!("it starts") };
        assert_eq!(parks, expected, "{on_release}");
    }
}

#[test]
fn what_is_kept_takes_no_slot_and_goes_on_before_anything_new() {
    let mut host = busy(KEEP);
    host.render(1, 2, &[4, 3]);
    assert_eq!(
        host.takes(),
        [vec![frozen(4, true), frozen(3, true)], fragment(1, 2).into()].concat()
    );
    assert_eq!(host.harvest.running(), 2);
    host.ends(1, output("x"));
    let effects = host.takes();
    // There is room on the same epoch: nobody asks for more before it goes on.
    let said = Effect::Send(report(1, output("x")));
    assert_eq!(effects, [said, thaw(2, 3, 1), frozen(3, false)]);
    host.booked(1, 0, &[]);
    host.quiet();
    host.opening(epoch(1), 4, 60_000);
    let asks = Effect::Send(AgentMessage::Request { cores: 1 });
    let expected = [fragment(1, 4).into(), vec![thaw(3, 4, 1), frozen(4, false), asks]].concat();
    assert_eq!(host.takes(), expected);
}

#[test]
fn what_was_kept_for_as_long_as_its_job_or_its_host_allows_is_ended() {
    let longer = OnRelease::Keep { for_s: KEEP_MAX_S * 2 };
    for (on_release, seconds) in [(KEEP, 5), (longer, KEEP_MAX_S)] {
        let mut host = busy(on_release);
        host.opening(epoch(0), 4, 3_600_000);
        host.render(1, 1, &[4]);
        host.takes();
        host.advance_ms(seconds * 1_000 - 1);
        host.quiet();
        host.advance_ms(1);
        assert_eq!(host.takes(), gone(3, 4));
    }
}

#[test]
fn a_host_that_keeps_nothing_ends_it_at_once() {
    let mut host = Host::desktop(1);
    host.keep_nothing();
    host.on_release = KEEP;
    host.run([1]);
    host.render(1, 1, &[1]);
    assert_eq!(host.takes(), [gone(0, 1).as_slice(), &fragment(1, 0)].concat());
}

#[test]
fn one_that_saves_goes_on_for_that_alone() {
    let mut host = busy(SAVE);
    host.fenced(1, 1, &[4]);
    let save = Effect::Save { slot: 3, token: token(4), epoch: epoch(1) };
    assert_eq!(host.takes(), [vec![save, frozen(4, true)], fragment(1, 3).into()].concat());
    // One that is not asked to.
    host.input(Input::Saved { token: token(1) });
    host.quiet();
    host.input(Input::Saved { token: token(4) });
    assert_eq!(host.takes(), gone(3, 4));
}

#[test]
fn one_that_does_not_save_in_time_is_ended() {
    let mut host = busy(SAVE);
    host.fenced(1, 1, &[4]);
    host.takes();
    host.advance_ms(1_999);
    host.quiet();
    host.advance_ms(1);
    assert_eq!(host.takes(), gone(3, 4));
}

#[test]
fn nothing_saves_on_cores_that_a_render_has_booked() {
    for (booked, has_fence) in [(4, true), (1, false)] {
        let mut host = busy(SAVE);
        if has_fence {
            host.fenced(1, booked, &[4]);
        } else {
            host.render(1, booked, &[4]);
        }
        assert_eq!(host.takes()[..2], gone(3, 4), "{booked} booked, fence: {has_fence}");
    }
}

#[test]
fn a_second_render_ends_what_was_saving() {
    let mut host = busy(SAVE);
    host.fenced(1, 1, &[4]);
    host.takes();
    host.booked(2, 2, &[4, 3]);
    let effects = host.takes();
    assert_eq!(effects[..4], [gone(3, 4), gone(2, 3)].concat());
}

#[test]
fn a_new_link_hears_what_takes_no_slot() {
    let mut host = busy(KEEP);
    host.render(1, 1, &[4]);
    host.takes();
    host.input(Input::LinkUp);
    let effects = host.takes();
    let [Effect::Send(AgentMessage::Hello(hello))] = &effects[..] else { panic!("{effects:?}") };
    let last = Held {
        token: token(4),
        replica: replica(4),
        state: HeldState::Aside,
        goes_on: false,
        share: gleaner_protocol::Share::WHOLE,
    };
    assert_eq!(hello.held.last(), Some(&last));
    // Between hello and welcome another is driven out, and the first could go on.
    host.render(2, 1, &[3, 4]);
    let fragment = Fragment { epoch: epoch(2), cores: 3, ..Fragment::default() };
    assert_eq!(host.takes(), [Effect::Fragment(fragment)]);
    let adopted = (1..=4).map(token).collect();
    host.broker(BrokerMessage::Welcome { incarnation: 1, adopted });
    let told = Effect::Send(AgentMessage::Fragment(fragment));
    assert_eq!(host.takes(), [frozen(3, true), told, thaw(2, 3, 2), frozen(3, false)]);
}

#[test]
fn who_leaves_takes_nothing_frozen_along() {
    let mut host = busy(KEEP);
    host.render(1, 4, &[4, 3, 2, 1]);
    host.takes();
    host.input(Input::Leave);
    let effects = host.takes();
    assert_eq!(effects.iter().filter(|e| matches!(e, Effect::Stop { .. })).count(), 4);
    host.advance_ms(KEEP_MAX_S * 1_000);
    host.quiet();
}

/// A farm host of two cores with replicas 1 and 2, of which the broker has parked the second for
/// replica 3.
fn displaced() -> Host {
    let mut host = Host::open_farm(2);
    host.run([1, 2]);
    host.broker(BrokerMessage::Park { token: token(2) });
    assert_eq!(host.takes(), [Effect::Park { slot: 1, token: token(2) }], "nothing is asked for");
    host.lease(3);
    let effects = host.takes();
    assert!(matches!(effects[..], [Effect::Start { slot: 2, .. }]), "{effects:?}");
    assert_eq!(host.harvest.running(), 2);
    host
}

#[test]
fn what_the_broker_parks_goes_on_when_it_says_so_and_not_before() {
    let mut host = displaced();
    host.ends(3, output("x"));
    let asks = Effect::Send(AgentMessage::Request { cores: 1 });
    assert_eq!(host.takes(), [Effect::Send(report(3, output("x"))), asks]);
    host.advance_ms(KEEP_MAX_S * 1_000 - 1);
    host.quiet();
    host.broker(BrokerMessage::Resume { token: token(2) });
    assert_eq!(host.takes(), [thaw(1, 2, 0)], "in the place of what was asked for");
    assert_eq!(host.harvest.running(), 2);
}

#[test]
fn what_the_broker_parks_is_kept_no_longer_than_the_owner_allows() {
    let mut host = displaced();
    host.advance_ms(KEEP_MAX_S * 1_000);
    assert_eq!(host.takes(), gone(1, 2));
    // It crossed with the broker's word.
    host.broker(BrokerMessage::Resume { token: token(2) });
    host.quiet();
    assert_eq!(host.harvest.running(), 2);
}

#[test]
fn where_nothing_is_kept_what_the_broker_parks_is_given_back_at_once() {
    let mut host = Host::open_farm(2);
    host.keep_nothing();
    host.run([1, 2]);
    host.broker(BrokerMessage::Park { token: token(2) });
    assert_eq!(host.takes(), gone(1, 2), "and nothing is asked for");
    one_lease_then_one_request(&mut host);
}

#[test]
fn who_is_parked_when_it_is_frozen_already_or_resumed_where_there_is_no_room_gets_no_more_time() {
    let mut host = busy(KEEP);
    host.render(1, 1, &[4]);
    host.takes();
    host.broker(BrokerMessage::Park { token: token(4) });
    host.quiet();
    host.advance_ms(4_999);
    host.quiet();
    host.advance_ms(1);
    assert_eq!(host.takes(), gone(3, 4));

    let mut host = displaced();
    host.advance_ms(1_000);
    host.render(1, 1, &[3]);
    host.takes();
    host.broker(BrokerMessage::Resume { token: token(2) });
    assert_eq!(host.takes(), [frozen(2, true)]);
    host.advance_ms(KEEP_MAX_S * 1_000 - 1_001);
    host.quiet();
    host.advance_ms(1);
    assert_eq!(host.takes(), gone(1, 2));
}

/// The slot of one that went for another is asked for once, when that other one has ended.
fn one_lease_then_one_request(host: &mut Host) {
    host.lease(3);
    let effects = host.takes();
    assert!(matches!(effects[..], [Effect::Start { .. }]), "{effects:?}");
    host.ends(3, output("x"));
    host.says(&[report(3, output("x")), AgentMessage::Request { cores: 1 }]);
    host.verdict(3, Verdict::Counted);
    host.quiet();
}

fn preempt(host: &mut Host, raw: u64) {
    let (token, reason) = (token(raw), AbortReason::Preempted);
    host.broker(BrokerMessage::Abort { token, reason });
}

#[test]
fn the_slot_of_what_is_ended_for_another_counts_as_asked_for() {
    let mut host = Host::open_farm(2);
    host.run([1, 2]);
    preempt(&mut host, 2);
    let ended = Effect::Send(released(2, ReleaseReason::Aborted));
    assert_eq!(host.takes(), [stop(1, 2), ended], "nothing is asked for");
    one_lease_then_one_request(&mut host);
}

#[test]
fn what_was_parked_takes_no_slot_that_could_be_asked_for_as_it_ends() {
    let mut host = displaced();
    preempt(&mut host, 2);
    assert_eq!(host.takes(), [stop(1, 2), Effect::Send(released(2, ReleaseReason::Aborted))]);
    host.ends(3, output("x"));
    host.says(&[report(3, output("x")), AgentMessage::Request { cores: 1 }]);
}

#[test]
fn what_is_parked_goes_on_in_the_place_of_what_is_ended_for_it() {
    let mut host = displaced();
    preempt(&mut host, 3);
    assert_eq!(host.takes(), [stop(2, 3), Effect::Send(released(3, ReleaseReason::Aborted))]);
    host.broker(BrokerMessage::Resume { token: token(2) });
    assert_eq!(host.takes(), [thaw(1, 2, 0)]);
    assert_eq!(host.harvest.running(), 2);
}

#[test]
fn what_is_resumed_where_a_render_came_in_between_goes_on_after_it() {
    let mut host = displaced();
    host.render(1, 1, &[3]);
    host.takes();
    host.broker(BrokerMessage::Resume { token: token(2) });
    assert_eq!(host.takes(), [frozen(2, true)]);
    host.booked(2, 0, &[]);
    host.takes();
    host.opening(epoch(2), 2, 60_000);
    assert!(host.takes().contains(&thaw(1, 2, 2)));
}

#[test]
fn more_than_a_host_has_cores_is_not_kept() {
    let mut host = displaced();
    for raw in [1, 3] {
        host.broker(BrokerMessage::Park { token: token(raw) });
        host.takes();
        host.lease(raw + 10);
        host.takes();
    }
    // Two are parked: what comes next is given back, and its slot is spoken for.
    assert_eq!(host.harvest.running(), 2);
    host.broker(BrokerMessage::Park { token: token(11) });
    let effects = host.takes();
    assert!(matches!(effects[..], [Effect::Stop { .. }, Effect::Send(_)]), "{effects:?}");
    assert!(effects.contains(&Effect::Send(released(11, ReleaseReason::Preempted))));
}

#[test]
fn a_new_link_hears_what_is_parked() {
    let mut host = displaced();
    host.input(Input::LinkDown);
    host.takes();
    let hello = host.link(&[token(1), token(2), token(3)]);
    let states: Vec<_> = hello.held.iter().map(|held| held.state).collect();
    assert_eq!(states, [HeldState::Runs, HeldState::Parked, HeldState::Runs]);
}

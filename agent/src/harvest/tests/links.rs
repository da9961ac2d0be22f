//! Reconnecting.

use gleaner_protocol::Origin;
use gleaner_protocol::control::{
    AgentMessage, BrokerMessage, Held, HeldState, ReleaseReason, Verdict,
};

use super::super::{Effect, Input};
use super::host::{Host, epoch, noop, output, released, replica, report, stop, token};

fn held(raw: u64, done: bool) -> Held {
    let state = if done { HeldState::Ended } else { HeldState::Runs };
    Held {
        token: token(raw),
        replica: replica(raw),
        state,
        goes_on: false,
        share: gleaner_protocol::Share::WHOLE,
    }
}

#[test]
fn the_hello_says_who_speaks_and_what_is_given() {
    let mut host = Host::new(Origin::Desktop, 3);
    let hello = host.link(&[]);
    assert_eq!(hello.host.name.as_str(), "render042");
    assert_eq!((hello.incarnation, hello.fragment.cores, hello.held.len()), (99, 3, 0));
    host.says(&[AgentMessage::Request { cores: 3 }]);
}

#[test]
fn work_goes_on_through_an_outage_and_its_reports_are_delivered_after() {
    let mut host = Host::desktop(3);
    host.run([1, 2, 3]);
    host.ends(1, output("a"));
    host.takes();
    host.input(Input::LinkDown);
    host.quiet();
    host.ends(2, output("b"));
    host.quiet();
    let hello = host.link(&[token(1), token(2), token(3)]);
    assert_eq!(hello.held, [held(1, true), held(2, true), held(3, false)]);
    host.says(&[
        report(1, output("a")),
        report(2, output("b")),
        AgentMessage::Request { cores: 2 },
    ]);
    host.verdict(1, Verdict::Duplicate);
    host.verdict(2, Verdict::Counted);
    host.quiet();
    assert_eq!(host.harvest.unacked, 0);
}

#[test]
fn what_is_not_adopted_is_ended_and_a_report_of_it_waits_for_its_verdict() {
    let mut host = Host::desktop(3);
    host.run([1, 2, 3]);
    host.ends(1, output("a"));
    host.takes();
    host.input(Input::LinkDown);
    host.link(&[token(2)]);
    let again = Effect::Send(report(1, output("a")));
    let request = Effect::Send(AgentMessage::Request { cores: 2 });
    assert_eq!(host.takes(), [again, stop(2, 3), request]);
    assert_eq!((host.harvest.unacked, host.harvest.running()), (1, 1));
    host.verdict(1, Verdict::Duplicate);
    assert_eq!(host.harvest.unacked, 0);
}

#[test]
fn what_ends_between_hello_and_welcome_is_told_after_it() {
    let mut host = Host::desktop(3);
    host.run([1, 2, 3]);
    host.input(Input::LinkDown);
    host.input(Input::LinkUp);
    host.takes();
    host.booked(1, 2, &[3]);
    assert!(host.takes().iter().all(|effect| !matches!(effect, Effect::Send(_))));
    host.ends(1, output("a"));
    host.quiet();
    let adopted = vec![token(1), token(2), token(3)];
    host.broker(BrokerMessage::Welcome { incarnation: 2, adopted });
    let preempted = ReleaseReason::Preempted;
    host.says(&[
        report(1, output("a")),
        released(2, preempted.clone()),
        released(3, preempted),
        AgentMessage::Fragment(host.harvest.fragment()),
        AgentMessage::Request { cores: 1 },
    ]);
}

#[test]
fn a_new_link_is_asked_anew() {
    let mut host = Host::desktop(2);
    host.input(Input::LinkDown);
    host.link(&[]);
    host.says(&[AgentMessage::Request { cores: 2 }]);
}

#[test]
fn tasks_are_learned_again_on_each_link() {
    let mut host = Host::desktop(1);
    host.learn(noop());
    host.input(Input::LinkDown);
    host.link(&[]);
    host.takes();
    host.lease(1);
    assert!(matches!(&host.takes()[..], [Effect::Send(AgentMessage::Released(_)), _]));
}

#[test]
fn a_farm_host_stays_open_through_an_outage_as_long_as_its_opening_lasts() {
    let mut host = Host::open_farm(2);
    host.run([1]);
    host.input(Input::LinkDown);
    host.advance_ms(30_000);
    let hello = host.link(&[token(1)]);
    assert_eq!(hello.fragment.cores, 2);
    host.takes();
    host.input(Input::LinkDown);
    host.advance_ms(30_000);
    assert_eq!(host.takes()[1..], [stop(0, 1)]);
    let hello = host.link(&[]);
    assert_eq!((hello.fragment.cores, hello.held.len()), (0, 0));
    host.quiet();
}

#[test]
fn a_broker_that_speaks_out_of_turn_loses_the_link() {
    let mut host = Host::new(Origin::Farm, 1);
    host.input(Input::LinkUp);
    host.takes();
    host.opening(epoch(0), 1, 1000);
    assert!(matches!(host.takes()[..], [Effect::EndLink { .. }]));
    assert_eq!(host.harvest.fragment().cores, 0);
    let mut host = Host::desktop(1);
    host.broker(BrokerMessage::Welcome { incarnation: 1, adopted: Vec::new() });
    assert!(matches!(host.takes()[..], [Effect::EndLink { .. }]));
}

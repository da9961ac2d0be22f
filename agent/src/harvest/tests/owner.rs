//! What the owner allows.

use gleaner_protocol::Origin;
use gleaner_protocol::control::{AgentMessage, Fragment, ReleaseReason};

use super::super::{Effect, Input};
use super::host::{Host, epoch, output, released, stop, token};

fn allows(host: &mut Host, slots: u32, stopped: &[u64]) {
    let stopped = stopped.iter().map(|raw| token(*raw)).collect();
    host.input(Input::Allowance { slots, stopped });
}

fn gives(slots: u32) -> Vec<Effect> {
    let fragment = Fragment { epoch: epoch(0), cores: slots, ..Fragment::default() };
    vec![Effect::Fragment(fragment), Effect::Send(AgentMessage::Fragment(fragment))]
}

fn asks(slots: u32) -> Effect {
    Effect::Send(AgentMessage::Request { cores: slots })
}

#[test]
fn what_runs_stays_in_the_fragment_until_it_is_ended() {
    let mut host = Host::desktop(4);
    host.run([1, 2, 3]);
    allows(&mut host, 1, &[]);
    assert_eq!(host.takes(), gives(3), "nothing new, and what is frozen is still held");
    let told = Effect::Send(released(3, ReleaseReason::Preempted));
    allows(&mut host, 1, &[3]);
    assert_eq!(host.takes(), [vec![stop(2, 3), told], gives(2)].concat());
    allows(&mut host, 4, &[]);
    assert_eq!(host.takes(), [gives(4), vec![asks(2)]].concat());
}

#[test]
fn an_end_beyond_the_allowance_makes_the_fragment_smaller() {
    let mut host = Host::desktop(4);
    host.run([1, 2]);
    allows(&mut host, 0, &[]);
    host.takes();
    host.input(Input::Ended { token: token(1), result: output("x") });
    let effects = host.takes();
    assert!(effects.ends_with(&gives(1)), "{effects:?}");
    assert!(!effects.iter().any(|e| matches!(e, Effect::Send(AgentMessage::Request { .. }))));
}

#[test]
fn a_farm_host_gives_neither_more_than_is_open_nor_than_is_allowed() {
    let mut host = Host::farm(8);
    allows(&mut host, 5, &[]);
    host.quiet();
    host.opening(epoch(0), 6, 60_000);
    assert_eq!(host.takes(), [gives(5), vec![asks(5)]].concat());
    allows(&mut host, 8, &[]);
    assert_eq!(host.takes(), [gives(6), vec![asks(6)]].concat());
    let mut closed = Host::new(Origin::Farm, 8);
    allows(&mut closed, 8, &[]);
    closed.quiet();
}

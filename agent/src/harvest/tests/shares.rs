//! Replicas that take a part of a core, or several.

use gleaner_protocol::control::{AgentMessage, BrokerMessage, Fragment, Lease, ReleaseReason};
use gleaner_protocol::job::OnRelease;
use gleaner_protocol::{LimitsChange, Share};

use super::super::{Effect, Input};
use super::host::{Host, epoch, lease, noop, output, released, report, token};

fn lease_of(raw: u64, permille: u32) -> BrokerMessage {
    let limits = LimitsChange::to_share(Share::permille(permille));
    BrokerMessage::Lease(Lease { limits, ..lease(raw) })
}

fn begins(host: &mut Host, raw: u64, permille: u32) {
    host.broker(lease_of(raw, permille));
    let effects = host.takes();
    assert!(matches!(effects[..], [Effect::Limit { .. }, Effect::Start { .. }]), "{effects:?}");
}

fn asks(slots: u32) -> Effect {
    Effect::Send(AgentMessage::Request { cores: slots })
}

#[test]
fn what_the_owner_does_not_allow_is_not_asked_for_where_parts_are_frozen() {
    let mut host = Host::desktop(2);
    host.learn(noop());
    begins(&mut host, 1, 1_000);
    begins(&mut host, 2, 500);
    // One and a half run, and one is allowed: both cores stay in the fragment.
    host.input(Input::Allowance { slots: 1, stopped: Vec::new() });
    host.quiet();
    host.broker(lease_of(3, 500));
    let given_back = Effect::Send(released(3, ReleaseReason::FragmentClosed));
    assert_eq!(host.takes(), [given_back], "and nothing is asked for");
    host.ends(1, output("x"));
    let fragment = Fragment { epoch: epoch(0), cores: 1, ..Fragment::default() };
    let expected = [
        Effect::Send(report(1, output("x"))),
        Effect::Fragment(fragment),
        Effect::Send(AgentMessage::Fragment(fragment)),
        asks(1),
    ];
    assert_eq!(host.takes(), expected, "half a core is left");
}

#[test]
fn a_booking_that_ends_what_kept_cores_in_the_fragment_leaves_what_the_owner_allows() {
    let mut host = Host::desktop(6);
    host.learn(noop());
    begins(&mut host, 1, 3_000);
    host.input(Input::Allowance { slots: 1, stopped: Vec::new() });
    host.takes();
    host.booked(1, 4, &[]);
    let (wider, allowed) = (
        Fragment { epoch: epoch(1), cores: 2, ..Fragment::default() },
        Fragment { epoch: epoch(1), cores: 1, ..Fragment::default() },
    );
    let effects = host.takes();
    let fragments = effects.iter().filter(|effect| matches!(effect, Effect::Fragment(_)));
    assert!(fragments.eq([&Effect::Fragment(wider), &Effect::Fragment(allowed)]), "{effects:?}");
    assert!(effects.contains(&Effect::Send(AgentMessage::Fragment(allowed))), "{effects:?}");
    assert!(effects.contains(&asks(1)), "{effects:?}");
}

#[test]
fn cores_of_what_goes_on_that_is_not_here_any_more_are_asked_for_anew() {
    let mut host = Host::desktop(4);
    host.learn(noop());
    begins(&mut host, 1, 3_000);
    host.broker(BrokerMessage::Park { token: token(1) });
    host.takes();
    host.input(Input::Ended { token: token(1), result: output("x") });
    host.says(&[report(1, output("x"))]);
    // The broker takes its three cores for spoken for.
    host.broker(BrokerMessage::Resume { token: token(1) });
    assert_eq!(host.takes(), [asks(4)]);
}

#[test]
fn nothing_is_asked_for_while_what_takes_several_cores_waits_for_the_last_of_them() {
    let mut host = Host::open_farm(3);
    host.on_release = OnRelease::Keep { for_s: 20 };
    host.learn(noop());
    begins(&mut host, 1, 1_000);
    begins(&mut host, 2, 2_000);
    host.render(1, 1, &[2]);
    host.takes();
    host.broker(BrokerMessage::Lease(lease(3)));
    host.takes();
    host.booked(2, 0, &[]);
    host.takes();
    host.opening(epoch(2), 3, 60_000);
    // One core is free, and two have to be.
    assert!(!host.takes().iter().any(|e| matches!(e, Effect::Send(AgentMessage::Request { .. }))));
    host.ends(1, output("x"));
    let frozen = AgentMessage::Frozen { token: token(2), frozen: false };
    let thawed = Effect::Thaw { slot: 1, token: token(2), epoch: epoch(2) };
    assert_eq!(host.takes(), [Effect::Send(report(1, output("x"))), thawed, Effect::Send(frozen)]);
}

//! A broker that is away for an hour.

use gleaner_protocol::control::{AgentMessage, Held, HeldState, Verdict};

use super::super::{Effect, Input};
use super::host::{Host, output, replica, report, token};

#[test]
fn what_is_held_is_finished_through_an_hour_and_each_report_is_delivered_once() {
    let mut host = Host::desktop(4);
    host.run([1, 2, 3, 4]);
    host.input(Input::LinkDown);
    host.quiet();
    // They end while nobody listens: one after a minute, the others towards the end of the hour.
    host.advance_ms(60_000);
    host.ends(2, output("b"));
    host.quiet();
    for _ in 0..58 {
        host.advance_ms(60_000);
        assert!(host.takes().iter().all(|effect| !matches!(effect, Effect::Stop { .. })));
    }
    host.ends(1, output("a"));
    host.ends(3, output("c"));
    host.quiet();
    host.advance_ms(60_000);
    assert_eq!(host.harvest.running(), 1, "what still runs is not disturbed");

    let done = |raw| Held {
        token: token(raw),
        replica: replica(raw),
        state: HeldState::Ended,
        goes_on: false,
        share: gleaner_protocol::Share::WHOLE,
    };
    let all = [token(1), token(2), token(3), token(4)];
    let hello = host.link(&all);
    let runs = Held {
        token: token(4),
        replica: replica(4),
        state: HeldState::Runs,
        goes_on: false,
        share: gleaner_protocol::Share::WHOLE,
    };
    assert_eq!(hello.held, [done(1), done(2), done(3), runs]);
    host.says(&[
        report(1, output("a")),
        report(2, output("b")),
        report(3, output("c")),
        AgentMessage::Request { cores: 3 },
    ]);
    for raw in 1..=3 {
        host.verdict(raw, Verdict::Counted);
        host.quiet();
    }
    // What was acknowledged is not told again, not even on another link.
    host.input(Input::LinkDown);
    host.takes();
    let hello = host.link(&[token(4)]);
    assert_eq!(hello.held.len(), 1);
    host.says(&[AgentMessage::Request { cores: 3 }]);
    host.ends(4, output("d"));
    host.says(&[report(4, output("d")), AgentMessage::Request { cores: 1 }]);
}

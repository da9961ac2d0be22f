//! Leases, results, reports, verdicts.

use gleaner_protocol::control::{
    AgentMessage, BrokerMessage, Lease, Outcome, ReleaseReason, Verdict,
};
use gleaner_protocol::job::{OnRelease, Task};
use gleaner_protocol::{
    ChunkFile, Content, Digest, FrameStage, FrameTask, JobId, LimitsChange, PictureCodec, Share,
    TransferPoint, ViewCamera, ViewKernel, ViewState,
};

use super::super::{Effect, Input, Product, RunResult};
use super::host::{Host, command, lease, noop, output, released, replica, report, stop, token};
use crate::limits::{TASKS_MAX, UNACKED_REPORTS_MAX};

const ASK_ONE: AgentMessage = AgentMessage::Request { cores: 1 };

#[test]
fn a_replica_is_run_reported_and_forgotten() {
    let mut host = Host::desktop(2);
    host.learn(noop());
    host.lease(7);
    let effects = host.takes();
    let [Effect::Start { slot: 0, lease, task, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((lease.token, lease.replica), (token(7), replica(7)));
    assert_eq!(**task, noop());
    host.ends(7, output("42"));
    host.says(&[report(7, output("42")), ASK_ONE]);
    host.verdict(7, Verdict::Counted);
    host.quiet();
    host.verdict(7, Verdict::Counted);
    host.quiet();
}

#[test]
fn no_runner_is_started_beside_a_render_while_another_one_waits_for_work() {
    let mut host = Host::desktop(3);
    host.run([1, 2, 3]);
    host.ends(3, output("42"));
    host.takes();
    host.booked(1, 1, &[1]);
    host.takes();
    host.lease(4);
    let effects = host.takes();
    // What ran in slot 0 is dying.
    assert!(matches!(effects[..], [Effect::Start { slot: 2, .. }]), "{effects:?}");
}

/// A brick of a view is drawn.
fn frame() -> Task {
    Task::Frame(Box::new(FrameTask {
        frame: 1,
        stage: FrameStage::Layer,
        kernel: ViewKernel::Volume,
        state: ViewState {
            seq: 1,
            camera: ViewCamera {
                eye: [9.0, 0.0, 0.0],
                target: [0.0; 3],
                up: [0.0, 1.0, 0.0],
                fov_degrees: 30.0,
            },
            transfer: vec![TransferPoint { value: 1.0, colour: [1.0; 3], opacity: 1.0 }],
            opacity_unit: 1.0,
            shading: None,
            clip: [[0.0, 1.0]; 3],
            background: [0.0; 3],
            step: 0,
            size: [64, 48],
            moving: true,
        },
        size: [64, 48],
        codec: PictureCodec::Jpeg(75),
        strips: 1,
    }))
}

#[test]
fn a_brick_is_drawn_where_it_was_drawn_before() {
    let mut host = Host::desktop(3);
    let lease = |raw, chunk: &str| {
        let (name, digest) = (chunk.to_owned(), Digest::of(chunk.as_bytes()));
        let chunk = Some(Box::new(ChunkFile { name, digest, bytes: 1 }));
        BrokerMessage::Lease(Lease { chunk, ..lease(raw) })
    };
    let slot_of = |host: &mut Host, raw, chunk| {
        host.broker(lease(raw, chunk));
        match &host.takes()[..] {
            [Effect::Start { slot, .. }] => *slot,
            other => panic!("{other:?}"),
        }
    };
    host.learn(frame());
    for (raw, chunk) in [(1, "a"), (2, "b"), (3, "c")] {
        assert_eq!(slot_of(&mut host, raw, chunk), u32::try_from(raw).expect("small") - 1);
    }
    for raw in [1, 2, 3] {
        host.ends(raw, output(""));
        host.takes();
    }
    assert_eq!(slot_of(&mut host, 4, "c"), 2);
    assert_eq!(slot_of(&mut host, 5, "b"), 1);
    // Another that is drawn there meanwhile goes elsewhere, and stays there.
    assert_eq!(slot_of(&mut host, 6, "c"), 0);
    for raw in [4, 5, 6] {
        host.ends(raw, output(""));
        host.takes();
    }
    assert_eq!(slot_of(&mut host, 7, "c"), 0);
    assert_eq!(slot_of(&mut host, 8, "b"), 1);
    // What a render ends is in no memory any more.
    host.booked(1, 1, &[8]);
    host.takes();
    host.ends(7, output(""));
    host.takes();
    assert_eq!(slot_of(&mut host, 9, "b"), 0);
}

#[test]
fn a_replica_is_limited_from_its_beginning_and_until_its_end() {
    let mut host = Host::desktop(2);
    host.learn(noop());
    let (quarter, half) = (Share::percent(25), Share::percent(50));
    let limits = |share| LimitsChange::to_share(share);
    host.broker(BrokerMessage::Lease(Lease { limits: limits(quarter), ..lease(7) }));
    let effects = host.takes();
    let [first, Effect::Start { slot: 0, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*first, Effect::Limit { slot: 0, token: token(7), limits: limits(quarter) });
    host.broker(BrokerMessage::Limit { token: token(7), limits: limits(half) });
    let limited = Effect::Limit { slot: 0, token: token(7), limits: limits(half) };
    assert_eq!(host.takes(), [limited]);
    host.ends(7, output("42"));
    host.takes();
    host.broker(BrokerMessage::Limit { token: token(7), limits: limits(quarter) });
    host.quiet();
}

#[test]
fn a_failure_is_a_report_in_the_tasks_words() {
    let mut host = Host::desktop(1);
    host.run([1]);
    let failed = RunResult::Failed { reason: "exit code 3".into(), cpu_us: 9 };
    host.ends(1, failed.clone());
    host.says(&[report(1, failed), ASK_ONE]);
}

#[test]
fn what_cannot_run_here_is_given_back_with_its_reason() {
    let mut host = Host::desktop(1);
    host.run([1]);
    host.ends(1, RunResult::CannotRun("no input".into()));
    host.says(&[released(1, ReleaseReason::CannotRun("no input".into())), ASK_ONE]);
}

#[test]
fn what_the_host_itself_keeps_from_running_is_given_back_as_its_trouble() {
    let mut host = Host::desktop(1);
    host.run([1]);
    host.ends(1, RunResult::HostTrouble("the disk is full".into()));
    host.says(&[released(1, ReleaseReason::HostTrouble("the disk is full".into())), ASK_ONE]);
}

#[test]
fn tasks_that_the_owner_did_not_allow_are_never_started() {
    let mut host = Host::desktop(1);
    for (task, says) in [
        (command("/bin/sh"), "/bin/sh is not allowed"),
        (command("true"), "absolute path"),
        (Task::Kernel("gametree".parse().expect("plain")), "not offered"),
    ] {
        host.learn(task);
        host.lease(1);
        let effects = host.takes();
        let [Effect::Send(AgentMessage::Released(given_back)), Effect::Send(request)] =
            &effects[..]
        else {
            panic!("{effects:?}")
        };
        let ReleaseReason::CannotRun(reason) = &given_back.reason else { panic!("{given_back:?}") };
        assert!(reason.contains(says), "{reason}");
        assert_eq!(*request, ASK_ONE);
    }
    host.learn(command("/bin/true"));
    host.lease(1);
    assert!(matches!(host.takes()[..], [Effect::Start { .. }]));
}

#[test]
fn a_lease_without_its_task_is_given_back() {
    let mut host = Host::desktop(1);
    host.run([]);
    host.broker(BrokerMessage::Forget { job: JobId::new(1) });
    host.quiet();
    host.lease(1);
    let reason = ReleaseReason::CannotRun("the task of job-1 is not known".into());
    host.says(&[released(1, reason), ASK_ONE]);
}

#[test]
fn a_lease_for_a_slot_that_is_gone_is_given_back() {
    let mut host = Host::desktop(2);
    host.run([1]);
    host.booked(1, 1, &[]);
    host.takes();
    host.lease(2);
    host.says(&[released(2, ReleaseReason::FragmentClosed)]);
    assert_eq!(host.harvest.running(), 1);
}

#[test]
fn a_doubled_lease_is_run_once() {
    let mut host = Host::desktop(2);
    host.run([1]);
    host.lease(1);
    let effects = host.takes();
    assert!(!effects.iter().any(|e| matches!(e, Effect::Start { .. })), "{effects:?}");
    assert_eq!(host.harvest.running(), 1);
}

#[test]
fn an_aborted_replica_is_stopped_and_its_slot_is_free() {
    let mut host = Host::desktop(1);
    host.run([1]);
    host.abort(1);
    let gone = Effect::Send(released(1, ReleaseReason::Aborted));
    assert_eq!(host.takes(), [stop(0, 1), gone, Effect::Send(ASK_ONE)]);
    // Its end crossed with the abort.
    host.ends(1, output("42"));
    assert_eq!(host.takes(), [Effect::Discard { token: token(1) }]);
    host.abort(1);
    host.quiet();
}

#[test]
fn an_abort_that_crossed_with_the_report_waits_for_the_verdict() {
    let mut host = Host::desktop(1);
    host.run([1]);
    host.ends(1, output("42"));
    host.takes();
    host.abort(1);
    host.quiet();
    assert_eq!(host.harvest.unacked, 1);
    host.verdict(1, Verdict::OldToken);
    host.quiet();
    assert_eq!(host.harvest.unacked, 0);
}

fn large(name: &str) -> RunResult {
    let stored = Content::Stored { digest: Digest::of(b"x"), bytes: 1 << 20 };
    RunResult::Output {
        files: vec![Product { name: name.into(), content: stored }],
        cpu_us: 5,
        measured: None,
        wall_us: 7,
        peak_memory_mib: None,
    }
}

#[test]
fn a_large_output_is_stored_before_it_is_reported_and_holds_no_slot_meanwhile() {
    let mut host = Host::desktop(1);
    host.run([1]);
    host.ends(1, large("frame.png"));
    let files = vec![("frame.png".to_owned(), Digest::of(b"x"), 1 << 20)];
    let store = Effect::Store { token: token(1), files };
    assert_eq!(host.takes(), [store, Effect::Send(ASK_ONE)]);
    host.input(Input::Stored { token: token(1), result: Ok(()) });
    let discard = Effect::Discard { token: token(1) };
    assert_eq!(host.takes(), [discard, Effect::Send(report(1, large("frame.png")))]);
    host.input(Input::Stored { token: token(1), result: Ok(()) });
    host.quiet();
}

#[test]
fn a_large_output_that_cannot_be_stored_is_a_failure() {
    let mut host = Host::desktop(1);
    host.run([1]);
    host.ends(1, large("frame.png"));
    host.takes();
    host.input(Input::Stored { token: token(1), result: Err("413".into()) });
    let effects = host.takes();
    let failed = RunResult::Failed { reason: "413".into(), cpu_us: 5 };
    assert!(effects.contains(&Effect::Send(report(1, failed))), "{effects:?}");
}

#[test]
fn an_abort_stops_the_storing() {
    let mut host = Host::desktop(1);
    host.run([1]);
    host.ends(1, large("frame.png"));
    host.takes();
    host.abort(1);
    let discard = Effect::Discard { token: token(1) };
    let gone = Effect::Send(released(1, ReleaseReason::Aborted));
    assert_eq!(host.takes(), [discard, gone]);
}

#[test]
fn an_output_with_impossible_files_is_a_failure() {
    let mut host = Host::desktop(1);
    host.run([1]);
    host.ends(1, large("../frame.png"));
    let effects = host.takes();
    let [Effect::Send(AgentMessage::Report(report)), _] = &effects[..] else {
        panic!("{effects:?}")
    };
    let Outcome::Failed(reason) = &report.outcome else { panic!("{report:?}") };
    assert!(reason.contains("plain file name"), "{reason}");
}

#[test]
fn progress_is_told_of_what_runs_alone() {
    let mut host = Host::desktop(1);
    host.run([1]);
    host.input(Input::Progress { token: token(1), permille: 300 });
    host.says(&[AgentMessage::Progress { token: token(1), permille: 300 }]);
    host.input(Input::Progress { token: token(2), permille: 300 });
    host.quiet();
}

#[test]
fn with_too_many_reports_unacknowledged_nothing_more_is_asked_for() {
    let mut host = Host::desktop(1);
    let count = UNACKED_REPORTS_MAX as u64;
    host.learn(noop());
    for raw in 1..=count {
        host.lease_unchecked(raw);
        let asked = host.ends_unchecked(raw, output("")).contains(&Effect::Send(ASK_ONE));
        assert_eq!(asked, raw < count, "after {raw} reports");
    }
    host.harvest.check_invariants().expect("invariants");
    host.verdict(1, Verdict::Counted);
    host.says(&[ASK_ONE]);
}

#[test]
fn the_number_of_remembered_tasks_is_bounded() {
    let mut host = Host::desktop(1);
    for job in 0..TASKS_MAX as u64 {
        host.broker(BrokerMessage::Task {
            job: JobId::new(job),
            task: noop(),
            on_release: OnRelease::Kill,
            gpus: 0,
        });
        host.quiet();
    }
    let (known, new) = (JobId::new(0), JobId::new(TASKS_MAX as u64));
    host.broker(BrokerMessage::Task {
        job: known,
        task: noop(),
        on_release: OnRelease::Kill,
        gpus: 0,
    });
    host.quiet();
    host.broker(BrokerMessage::Task {
        job: new,
        task: noop(),
        on_release: OnRelease::Kill,
        gpus: 0,
    });
    assert!(matches!(host.takes()[..], [Effect::EndLink { .. }]));
    assert_eq!(host.harvest.tasks.len(), TASKS_MAX);
}

#[test]
fn an_heir_says_so_until_its_report_is_acknowledged() {
    let mut host = Host::desktop(1);
    host.inherits(1);
    let says_so = |host: &mut Host| {
        host.input(Input::LinkDown);
        host.takes();
        let hello = host.link(&[token(1)]);
        host.takes();
        hello.held.iter().map(|held| held.goes_on).collect::<Vec<_>>()
    };
    assert_eq!(says_so(&mut host), [true]);
    host.ends(1, large("frame.png"));
    host.takes();
    assert_eq!(says_so(&mut host), [true], "its output is on its way");
    host.input(Input::Stored { token: token(1), result: Ok(()) });
    host.takes();
    assert_eq!(says_so(&mut host), [true], "its report is");
    host.verdict(1, Verdict::Counted);
    host.takes();
    host.input(Input::LinkDown);
    host.takes();
    assert_eq!(host.link(&[]).held, []);
}

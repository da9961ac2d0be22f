//! A preflight frees the host whatever state the agent is in: with real processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use gleaner_calm::{in_some_round, too_slow, within};
use gleaner_hooks::{
    Environment, Farm, HookInvocation, HookReport, ProcessStat, RunDir, SocketAnswer,
    SocketRequest, TaskGroup, decode_line, encode_line, read_line_bounded, run,
};
use gleaner_protocol::farm::{Booked, HookKind};
use gleaner_protocol::{BookingId, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

const LONG: Span = Span::from_secs(20);
/// What took less waited for an agent no longer than it may.
const NOT_WAITED_FOR: Span = Span::from_millis(400);

fn was_quick(report: &HookReport) -> Result<(), String> {
    within("the hook", report.took, NOT_WAITED_FOR)
}

struct Host {
    folder: tempfile::TempDir,
    run_dir: RunDir,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path()).expect("opens");
        Self { folder, run_dir }
    }

    fn invocation(&self, kind: HookKind) -> HookInvocation {
        let mut invocation = HookInvocation::new(kind, Farm::Generic, self.folder.path());
        invocation.environment =
            Environment::from_iter([("GLEANER_BOOKING", "shot:1"), ("GLEANER_CORES", "3")]);
        invocation
    }

    fn preflight(&self) -> HookReport {
        run(&self.invocation(HookKind::Preflight))
    }

    /// Harvested work: a process group of its own that runs for long, recorded.
    fn work(&self) -> Work {
        let work = Work::start("while :; do :; done");
        self.record(&work);
        work
    }

    fn record(&self, work: &Work) {
        let group = TaskGroup::of_leader(work.pid()).expect("leads");
        self.run_dir.register_group(&group).expect("records");
    }
}

struct Work(Child);

impl Work {
    fn start(script: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0).stdout(Stdio::piped());
        Self(command.spawn().expect("starts"))
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a pid")
    }

    fn lives(&self) -> bool {
        ProcessStat::of(self.pid()).is_ok_and(|stat| !stat.is_dead())
    }

    /// The wait is only bounded so that a failure is one.
    fn was_killed(mut self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        let pid = Pid::from_raw(self.pid()).expect("a pid");
        ends(&pidfd_open(pid, PidfdFlags::empty()).expect("not waited for yet"))
            && self.0.wait().expect("waits").signal() == Some(9)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = gleaner_hooks::kill(self.pid());
        let _ = self.0.wait();
    }
}

fn ends(process: &OwnedFd) -> bool {
    let long = Timespec { tv_sec: 60, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&long)).expect("polls") == 1
}

/// What an agent does with one connection.
fn agent(path: &Path, serve: impl FnOnce(UnixStream) + Send + 'static) -> thread::JoinHandle<()> {
    let listener = UnixListener::bind(path).expect("binds");
    thread::spawn(move || serve(listener.accept().expect("accepts").0))
}

#[test]
fn an_agent_that_answers_is_believed_and_nothing_else_is_touched() {
    let host = Host::new();
    let work = host.work();
    let agent = agent(&host.run_dir.socket_path(), |mut stream| {
        let line = read_line_bounded(&mut stream).expect("a line");
        let SocketRequest::Preflight { booking, booked, epoch } =
            decode_line(&line).expect("a request")
        else {
            panic!("not a preflight")
        };
        assert_eq!(booking.as_str(), "shot:1");
        assert_eq!(booked.cores, Some(3));
        assert_eq!(epoch.map(|epoch| epoch.count), Some(1));
        let answer = SocketAnswer::Released { frozen: 2, slots_left: 1 };
        stream.write_all(&encode_line(&answer).expect("fits")).expect("writes");
    });
    let mut invocation = host.invocation(HookKind::Preflight);
    invocation.agent_timeout = LONG;
    let report = run(&invocation);
    agent.join().expect("the agent saw what it should");
    assert_eq!(report.answer, Some(SocketAnswer::Released { frozen: 2, slots_left: 1 }));
    assert_eq!(report.stopped, None);
    assert_eq!(report.troubles, [""; 0]);
    assert!(work.lives());
    assert_eq!(host.run_dir.bookings().expect("lists").len(), 1);
}

#[test]
fn without_an_agent_the_hook_stops_the_work_itself() {
    in_some_round(|| {
        let host = Host::new();
        let works: Vec<_> = (0..8).map(|_| host.work()).collect();
        let report = host.preflight();
        let stopped = report.stopped.as_ref().expect("it stopped");
        assert_eq!((stopped.stopped, stopped.gone), (8, 0));
        assert!(works.into_iter().all(Work::was_killed));
        assert_eq!(host.run_dir.groups().expect("lists"), []);
        // A machine that is busy may leave too little time to look for what they have started.
        let is_too_slow = |trouble: &String| trouble.contains("was looked for within");
        let (late, others): (Vec<_>, Vec<_>) =
            stopped.troubles.iter().cloned().partition(is_too_slow);
        assert_eq!(others, [""; 0]);
        if !late.is_empty() {
            return too_slow(late.join("; "));
        }
        was_quick(&report)
    });
}

#[test]
fn a_dead_agents_socket_does_not_help_or_hinder() {
    let host = Host::new();
    let work = host.work();
    drop(UnixListener::bind(host.run_dir.socket_path()).expect("binds"));
    let report = host.preflight();
    // Another test's child may hold the listener for the moment between its fork and its exec.
    let words = ["the agent is dead", "the agent's answer"];
    let named = words.iter().any(|word| report.troubles[0].contains(word));
    assert!(named, "{:?}", report.troubles);
    assert!(work.was_killed());
}

#[test]
fn a_hung_agent_costs_its_time_out_and_no_more() {
    in_some_round(|| {
        let host = Host::new();
        let work = host.work();
        let _never_accepts = UnixListener::bind(host.run_dir.socket_path()).expect("binds");
        let report = host.preflight();
        assert!(report.troubles[0].contains("did not answer in time"), "{:?}", report.troubles);
        assert!(report.took >= Span::from_millis(30), "{:?}", report.took);
        assert!(work.was_killed());
        was_quick(&report)
    });
}

#[test]
fn a_hung_agent_whose_queue_is_full_is_no_longer_waited_for() {
    in_some_round(|| {
        let host = Host::new();
        let work = host.work();
        let _never_accepts = UnixListener::bind(host.run_dir.socket_path()).expect("binds");
        // A connection stays in the queue after whoever made it has gone.
        for _ in 0..5_000 {
            let asked =
                gleaner_hooks::ask(&host.run_dir.socket_path(), &SocketRequest::Status, Span::ZERO);
            assert!(matches!(asked, Err(gleaner_hooks::AskError::TimedOut)), "{asked:?}");
        }
        let report = host.preflight();
        assert!(work.was_killed());
        was_quick(&report)
    });
}

#[test]
fn an_agent_that_talks_nonsense_is_not_believed() {
    let nonsense: [&'static [u8]; 6] = [
        b"",
        b"\n",
        b"hello\n",
        b"{\"answer\":\"noted\"}\n",
        b"{\"answer\":\"error\",\"reason\":\"busy\"}\n",
        b"{\"answer\":\"released\",\"frozen\":-1}\n",
    ];
    for bytes in nonsense {
        let host = Host::new();
        let work = host.work();
        let agent = agent(&host.run_dir.socket_path(), move |mut stream| {
            let _ = read_line_bounded(&mut stream);
            let _ = stream.write_all(bytes);
        });
        let report = host.preflight();
        assert!(work.was_killed(), "after {:?}", String::from_utf8_lossy(bytes));
        assert_eq!(report.answer, None);
        agent.join().expect("no panic");
    }
}

#[test]
fn an_answer_without_end_is_cut_off() {
    let host = Host::new();
    let work = host.work();
    let agent = agent(&host.run_dir.socket_path(), |mut stream| {
        let _ = read_line_bounded(&mut stream);
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let mut invocation = host.invocation(HookKind::Preflight);
    invocation.agent_timeout = LONG;
    let report = run(&invocation);
    assert!(work.was_killed());
    assert!(report.troubles[0].contains("longer than"), "{:?}", report.troubles);
    agent.join().expect("no panic");
}

#[test]
fn an_answer_that_trickles_does_not_stretch_the_time_out() {
    in_some_round(|| {
        let host = Host::new();
        let work = host.work();
        let agent = agent(&host.run_dir.socket_path(), |mut stream| {
            let (pause, _never_writes) = UnixStream::pair().expect("a pair");
            pause.set_read_timeout(Some(Span::from_millis(5).into())).expect("sets");
            while stream.write_all(b" ").is_ok() {
                let _ = (&pause).read(&mut [0]);
            }
        });
        let report = host.preflight();
        assert!(work.was_killed());
        assert!(report.troubles[0].contains("did not answer in time"), "{:?}", report.troubles);
        agent.join().expect("no panic");
        was_quick(&report)
    });
}

#[test]
fn a_number_that_another_process_bears_now_is_left_alone() {
    let host = Host::new();
    let bystander = Work::start("exec sleep 1000");
    let real = TaskGroup::of_leader(bystander.pid()).expect("leads");
    for start in [0, real.leader_start_ticks - 1, real.leader_start_ticks + 1] {
        let recorded = TaskGroup { leader_start_ticks: start, ..real };
        host.run_dir.register_group(&recorded).expect("records");
        let report = host.run_dir.stop_groups();
        assert_eq!((report.stopped, report.gone), (0, 1), "{report:?}");
        assert_eq!(host.run_dir.groups().expect("lists"), [], "forgotten");
    }
    assert!(bystander.lives());
}

#[test]
fn our_own_group_and_numbers_that_are_no_groups_are_left_alone() {
    let host = Host::new();
    let me = rustix::process::getpgrp().as_raw_nonzero().get();
    let start = ProcessStat::of(me).map_or(0, |stat| stat.start_ticks);
    let own = TaskGroup { pgid: me, leader_start_ticks: start };
    host.run_dir.register_group(&own).expect("records");
    for pgid in [-1, 0, 1] {
        host.run_dir.register_group(&TaskGroup { pgid, leader_start_ticks: 0 }).expect("records");
    }
    let report = host.run_dir.stop_groups();
    assert_eq!(report.stopped, 0, "{report:?}");
}

#[test]
fn a_group_whose_leader_is_gone_is_stopped_by_its_members() {
    let host = Host::new();
    // The leader waits for its registration, leaves a child behind and ends.
    let mut leader = Work(
        Command::new("sh")
            .args(["-c", "read go; sleep 1000 & echo $!"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts"),
    );
    host.record(&leader);
    let group = TaskGroup::of_leader(leader.pid()).expect("leads");
    leader.0.stdin.take().expect("piped").write_all(b"go\n").expect("writes");
    let mut line = String::new();
    let stdout = leader.0.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("reads");
    leader.0.wait().expect("the leader has ended");
    let orphan: i32 = line.trim().parse().expect("a pid");
    let pidfd = pidfd_open(Pid::from_raw(orphan).expect("a pid"), PidfdFlags::empty())
        .expect("the orphan lives");

    // One that started before the recorded leader is of another, later, group.
    let later = TaskGroup { leader_start_ticks: u64::MAX, ..group };
    host.run_dir.register_group(&later).expect("records");
    assert_eq!(host.run_dir.stop_groups().stopped, 0);

    host.run_dir.register_group(&group).expect("records");
    assert_eq!(host.run_dir.stop_groups().stopped, 1);
    assert!(ends(&pidfd), "the orphan lives on");
}

#[test]
fn a_group_that_a_dead_agent_had_frozen_is_ended_too() {
    let host = Host::new();
    let work = host.work();
    gleaner_hooks::freeze(work.pid()).expect("freezes");
    assert_eq!(host.run_dir.stop_groups().stopped, 1);
    assert!(work.was_killed());
}

#[test]
fn hooks_repeated_and_reordered_give_the_right_bookings() {
    let host = Host::new();
    let postflight = || run(&host.invocation(HookKind::Postflight));
    let booked = || host.run_dir.bookings().expect("lists").len();
    assert_eq!((host.preflight().epoch.expect("raised").count, booked()), (1, 1));
    assert_eq!((host.preflight().epoch.expect("raised").count, booked()), (2, 1));
    assert_eq!((postflight().epoch.expect("read").count, booked()), (2, 0));
    assert_eq!((postflight().epoch.expect("read").count, booked()), (2, 0));

    let host = Host::new();
    let _ = run(&host.invocation(HookKind::Postflight));
    let report = host.preflight();
    assert_eq!(report.change, Some(gleaner_hooks::BookingChange::AlreadyEnded));
    assert_eq!(host.run_dir.bookings().expect("lists"), []);
}

#[test]
fn a_render_without_a_name_books_the_whole_host_until_its_postflight() {
    let host = Host::new();
    let work = host.work();
    let nameless = |kind| {
        let mut invocation = host.invocation(kind);
        invocation.environment = Environment::from_iter([("GLEANER_CORES", "1")]);
        run(&invocation)
    };
    let report = nameless(HookKind::Preflight);
    assert!(report.booking.expect("a fallback").as_str().starts_with("fallback:"));
    assert!(work.was_killed());
    let bookings = host.run_dir.bookings().expect("lists");
    assert_eq!(bookings[0].resources, Booked::default());
    nameless(HookKind::Postflight);
    assert_eq!(host.run_dir.bookings().expect("lists"), []);
}

#[test]
fn a_folder_that_cannot_be_used_is_said_and_the_agent_is_asked_all_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run");
    std::fs::create_dir(&path).expect("makes");
    let agent = agent(&path.join("agent.sock"), |mut stream| {
        let line = read_line_bounded(&mut stream).expect("a line");
        let request: SocketRequest = decode_line(&line).expect("a request");
        let booking = BookingId::new("shot:1").expect("a name");
        let booked = Booked { cores: None, memory_mib: None, gpus: None };
        assert_eq!(request, SocketRequest::Preflight { booking, booked, epoch: None });
        let answer = SocketAnswer::Released { frozen: 0, slots_left: 0 };
        stream.write_all(&encode_line(&answer).expect("fits")).expect("writes");
    });
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&path, mode).expect("spoils it");
    let mut invocation = HookInvocation::new(HookKind::Preflight, Farm::Generic, &path);
    invocation.environment = Environment::from_iter([("GLEANER_BOOKING", "shot:1")]);
    invocation.agent_timeout = LONG;
    let report = run(&invocation);
    agent.join().expect("the agent saw what it should");
    assert!(report.troubles[0].contains("writable by everyone"), "{:?}", report.troubles);
    assert!(report.answer.is_some());
    assert_eq!(report.epoch, None);
}

use super::*;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use gleaner_hooks::{StopMark, ask};
use gleaner_identity::KeyPair;
use gleaner_protocol::control::Fragment;
use gleaner_protocol::limits::HOOK_MESSAGE_BYTES_MAX;
use gleaner_protocol::{Epoch, HostName, Share};

use crate::agent::liveness::TurnCounter;
use crate::owner::wishes::Allowance;
use crate::owner::{OwnedHost, Owner};
use crate::release::slot_table::Upkeep;
use crate::release::slot_table::tests::{Sleeper, in_hand, nothing};

const CORES: u32 = 8;
const MEMORY_MIB: u64 = 16_000;

/// The requests of one who allows everything.
fn request_thread(run_dir: &RunDir, table: &Arc<SlotTable>) -> RequestThread {
    let of = OwnedHost {
        host: HostName::new("render042").expect("plain"),
        cores: CORES,
        isolation: "process-groups",
        workers: Vec::new(),
        table: Arc::clone(table),
        mark: StopMark::of(run_dir.path()),
        keep: Span::from_secs(30),
        wishes: Vec::new(),
        metrics: Arc::default(),
    };
    let owner = Owner::new(of, run_dir.path(), boottime(), |_| {}).expect("it starts");
    let allowance = Allowance { room: Share::cores(CORES), keep: true, reasons: Vec::new() };
    owner.wish(boottime(), allowance, Vec::new());
    RequestThread::start(Arc::new(owner), run_dir.clone()).expect("it starts").0
}

struct Host {
    _folder: tempfile::TempDir,
    run_dir: RunDir,
    table: Arc<SlotTable>,
    request_thread: RequestThread,
    told: mpsc::Receiver<Released>,
    releaser: Releaser,
}

/// Of a machine whose CPUs are cores.
fn hooked(
    run_dir: &RunDir,
    cores: u32,
    table: &Arc<SlotTable>,
    request_thread: &RequestThread,
) -> HookedHost {
    HookedHost {
        run_dir: run_dir.clone(),
        cores,
        memory_mib: MEMORY_MIB,
        topology: Topology::new(&(0..CORES).collect::<Vec<_>>(), |_| None),
        table: Arc::clone(table),
        metrics: Arc::default(),
        peers: None,
        request_thread: request_thread.clone(),
        turns: TurnCounter::default(),
        killer_turns: TurnCounter::default(),
    }
}

impl Host {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut HookedHost)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path().join("run")).expect("a run folder");
        let gate = Fragment {
            epoch: run_dir.epoch().expect("there"),
            cores: CORES,
            ..Fragment::default()
        };
        let table = Arc::new(SlotTable::new(CORES, gate, nothing(), Arc::default()));
        let (tell, told) = mpsc::channel();
        let request_thread = request_thread(&run_dir, &table);
        let mut hooked = hooked(&run_dir, CORES, &table, &request_thread);
        change(&mut hooked);
        let (releaser, _) = Releaser::start(hooked, move |released| {
            assert_eq!(released.asked.is_some(), !released.stopped.is_empty());
            tell.send(Released { asked: None, ..released }).expect("the test listens");
        })
        .expect("the socket is free");
        Self { _folder: folder, run_dir, table, request_thread, told, releaser }
    }

    fn preflight(&self, booking: &str, cores: Option<u32>) -> SocketAnswer {
        self.books(booking, Booked { cores, memory_mib: None, gpus: None })
    }

    fn books(&self, booking: &str, booked: Booked) -> SocketAnswer {
        let booking = BookingId::new(booking).expect("a plain name");
        let epoch = self.run_dir.raise_epoch().expect("there");
        self.run_dir.begin_booking(&booking, &booked).expect("there");
        self.ask(&SocketRequest::Preflight { booking, booked, epoch: Some(epoch) })
    }

    fn ask(&self, request: &SocketRequest) -> SocketAnswer {
        ask(&self.run_dir.socket_path(), request, Span::from_secs(20)).expect("an answer")
    }

    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.run_dir.socket_path()).expect("listens");
        // It may close before it has read all of an oversized request.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }
}

fn slots_left(answer: &SocketAnswer) -> u32 {
    match answer {
        SocketAnswer::Released { slots_left, .. } => *slots_left,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_preflight_cuts_what_travels_between_agents_and_a_postflight_does_not() {
    let key = KeyPair::generate().expect("made");
    let peers = Arc::new(Peers::new(key, 1, Arc::default()));
    let host = Host::with(|hooked| hooked.peers = Some(Arc::clone(&peers)));
    let render = host.books("a", Booked { cores: Some(1), memory_mib: None, gpus: None });
    assert!(matches!(render, SocketAnswer::Released { frozen: 0, .. }), "{render:?}");
    assert!(peers.take_cut() && !peers.take_cut());
    // No main loop is here: the thread that kills hangs up.
    let end = boottime() + Span::from_secs(60);
    while peers.cuts() < 2 && boottime() < end {
        thread::yield_now();
    }
    assert_eq!(peers.cuts(), 2, "it is noted, then done");
    host.ask(&SocketRequest::Postflight {
        booking: BookingId::new("a").expect("plain"),
        epoch: None,
    });
    assert!(!peers.take_cut());
    assert_eq!(peers.cuts(), 2);
}

#[test]
fn two_renders_take_what_they_booked_together() {
    let host = Host::new();
    assert_eq!(slots_left(&host.preflight("a", Some(3))), 5);
    assert_eq!(slots_left(&host.preflight("b", Some(2))), 3);
    assert_eq!(slots_left(&host.preflight("b", Some(2))), 3, "a doubled hook books once");
    assert_eq!(slots_left(&host.preflight("c", None)), 0);
    for _ in 0..4 {
        let told = host.told.recv().expect("told");
        assert_eq!(told, Released::default());
    }
    let status = host.ask(&SocketRequest::Status);
    let epoch = host.run_dir.epoch().ok();
    assert_eq!(status, SocketAnswer::Status { epoch, slots: 0, running: 0, connected: false });
}

#[test]
fn what_shares_a_physical_core_with_a_render_is_not_left() {
    // Two threads per core, numbered as on most machines: 0 and 4 share one.
    let all: Vec<u32> = (0..CORES).collect();
    let smt = Topology::new(&all, |cpu| Some(vec![cpu % 4, cpu % 4 + 4]));
    let host = Host::with(|host| host.topology = smt);
    assert_eq!(slots_left(&host.preflight("a", Some(1))), 6);
    assert_eq!(slots_left(&host.preflight("b", Some(2))), 4);
    assert_eq!(slots_left(&host.preflight("c", Some(4))), 0);
}

#[test]
fn beside_a_render_that_is_bound_to_small_cores_no_slot_is_counted_too_many() {
    // Two cores with two threads each, and four with one.
    let all: Vec<u32> = (0..CORES).collect();
    let hybrid = Topology::new(&all, |cpu| (cpu < 4).then(|| vec![cpu / 2 * 2, cpu / 2 * 2 + 1]));
    let host = Host::with(|host| host.topology = hybrid);
    host.table.note_claims([4].into());
    // The one, and the first of the large ones.
    assert_eq!(slots_left(&host.preflight("a", Some(2))), 5);
    assert_eq!((host.table.booked_cores(), host.table.taken_cores()), (2, 3));
}

#[test]
fn a_hook_that_is_bound_to_no_more_than_its_render_booked_shows_where_that_is() {
    // Two threads per core: 0 and 4 share one.
    let all: Vec<u32> = (0..CORES).collect();
    let machine = Topology::new(&all, |cpu| Some(vec![cpu % 4, cpu % 4 + 4]));
    let set = |cpus: &[u32]| {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu as usize));
        set
    };
    let shown = |cpus: &[u32], cores| {
        let booked = Booked { cores, memory_mib: None, gpus: None };
        bound_to(&machine, &set(&all), &set(cpus), booked)
    };
    let cpus = |cpus: &[u32]| Some(cpus.iter().copied().collect::<BTreeSet<u32>>());
    assert_eq!(shown(&[2], Some(1)), cpus(&[2]));
    assert_eq!(shown(&[2, 6], Some(1)), cpus(&[2, 6]), "both threads of its core");
    assert_eq!(shown(&[2], Some(3)), cpus(&[2]), "fewer");
    assert_eq!(shown(&[2, 3], Some(1)), None, "a daemon is bound to these");
    assert_eq!(shown(&[2], None), None, "the whole host is booked");
    assert_eq!(shown(&all, Some(8)), None, "it is not bound");
    assert_eq!(shown(&[9], Some(1)), None, "that is not the agent's");
}

#[test]
fn what_is_kept_gives_way_to_the_memory_that_all_renders_book() {
    let host = Host::new();
    let mut sleeper = Command::new("/bin/sleep")
        .arg("1000")
        .process_group(0)
        .stdout(Stdio::null())
        .spawn()
        .expect("sleep is there");
    let pgid = i32::try_from(sleeper.id()).expect("a process number");
    let (epoch, token) = (host.run_dir.epoch().expect("there"), LeaseToken::new(7));
    host.table.enter_runner(0, pgid, None);
    host.table.begin(0, token, Time::ZERO, epoch, true).expect("open");
    let (keeps_disk_busy, self_resumed_since) = (false, None);
    let (begun, cpu, memory_mib) = (1, Span::ZERO, 2_000);
    let upkeep = Upkeep { pgid, begun, cpu, memory_mib, keeps_disk_busy, self_resumed_since };
    host.table.note_upkeep(boottime(), &[upkeep]);
    let half = Booked { cores: Some(8), memory_mib: Some(8_000), gpus: None };
    assert!(matches!(host.books("a", half), SocketAnswer::Released { frozen: 1, slots_left: 0 }));
    let parked = Released { parked: vec![token], ..Released::default() };
    assert_eq!(host.told.recv(), Ok(parked), "there is room for it");
    let most = Booked { cores: Some(0), memory_mib: Some(6_001), gpus: None };
    host.books("b", most);
    let stopped = Released { stopped: vec![token], ..Released::default() };
    assert_eq!(host.told.recv(), Ok(stopped), "there is not any more");
    assert_eq!(sleeper.wait().expect("ours").signal(), Some(9));
}

#[test]
fn what_is_in_the_way_is_frozen_before_the_answer_and_killed_after() {
    let host = Host::new();
    let mut sleeper = Command::new("/bin/sleep")
        .arg("1000")
        .process_group(0)
        .stdout(Stdio::null())
        .spawn()
        .expect("sleep is there");
    let pgid = i32::try_from(sleeper.id()).expect("a process number");
    let epoch = host.run_dir.epoch().expect("there");
    let token = LeaseToken::new(7);
    host.table.enter_runner(0, pgid, None);
    host.table.begin(0, token, Time::ZERO, epoch, false).expect("open");
    let answer = host.preflight("a", Some(8));
    assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
    // It may be told and not have stopped yet, but no more than that.
    let released = Released { stopped: vec![token], ..Released::default() };
    assert_eq!(host.told.recv(), Ok(released));
    assert_eq!(sleeper.wait().expect("ours").signal(), Some(9));
}

#[test]
fn idle_runners_that_have_lost_their_cores_are_killed_though_no_replica_is() {
    let host = Host::new();
    let mut sleepers: Vec<Sleeper> = (0..CORES).map(|_| Sleeper::start()).collect();
    for (slot, sleeper) in (0..).zip(&sleepers) {
        host.table.enter_runner(slot, sleeper.pgid(), None);
    }
    assert_eq!(slots_left(&host.preflight("a", Some(3))), 5);
    assert_eq!(host.told.recv().expect("told").stopped, []);
    sleepers[5..].iter_mut().for_each(Sleeper::wait_until_killed);
    assert!(sleepers[..5].iter_mut().all(Sleeper::is_alive));
}

#[test]
fn hooks_are_answered_while_something_does_not_come_to_be_killed() {
    let host = Host::new();
    let mut sleeper = Sleeper::start();
    let (epoch, token) = (host.run_dir.epoch().expect("there"), LeaseToken::new(7));
    host.table.enter_runner(0, sleeper.pgid(), None);
    host.table.begin(0, token, Time::ZERO, epoch, false).expect("open");
    in_hand(&host.table, 0, || {
        let answer = host.preflight("a", Some(8));
        assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
        let released = Released { stopped: vec![token], ..Released::default() };
        assert_eq!(host.told.recv(), Ok(released), "as soon as its time has come");
        let answer = host.preflight("b", Some(1));
        assert_eq!(answer, SocketAnswer::Released { frozen: 0, slots_left: 0 });
        assert!(sleeper.is_alive());
    });
    sleeper.wait_until_killed();
}

#[test]
fn what_is_frozen_when_the_agent_ends_is_killed_all_the_same() {
    let host = Host::new();
    let mut sleepers: Vec<Child> = (0..2)
        .map(|_| {
            let mut sleep = Command::new("/bin/sleep");
            sleep.arg("1000").process_group(0).stdout(Stdio::null()).spawn().expect("there")
        })
        .collect();
    let epoch = host.run_dir.epoch().expect("there");
    for (slot, sleeper) in (0..).zip(&sleepers) {
        let pgid = i32::try_from(sleeper.id()).expect("a process number");
        let token = LeaseToken::new(slot.into());
        host.table.enter_runner(slot, pgid, None);
        host.table.begin(slot, token, Time::ZERO, epoch, false).expect("open");
    }
    host.preflight("a", None);
    drop(host.releaser);
    for sleeper in &mut sleepers {
        assert_eq!(sleeper.wait().expect("ours").signal(), Some(9));
    }
}

#[test]
fn a_preflight_without_an_epoch_closes_everything_it_booked_and_says_so() {
    let host = Host::new();
    let booking = BookingId::new("a").expect("plain");
    let answer = host.ask(&SocketRequest::Preflight {
        booking: booking.clone(),
        booked: Booked::default(),
        epoch: None,
    });
    assert_eq!(slots_left(&answer), 0);
    let released = Released { raise_epoch: true, is_unbooked: true, ..Released::default() };
    assert_eq!(host.told.recv(), Ok(released));
    let postflight = SocketRequest::Postflight { booking, epoch: None };
    assert_eq!(host.ask(&postflight), SocketAnswer::Noted);
    assert_eq!(host.told.recv(), Ok(Released::default()));
    assert_eq!(host.table.occupancy().slots, 0);
}

#[test]
fn a_preflight_that_could_not_book_says_so() {
    let host = Host::new();
    let epoch = host.run_dir.raise_epoch().expect("there");
    let booked = Booked { cores: Some(3), ..Booked::default() };
    let booking = BookingId::new("a").expect("plain");
    let answer = host.ask(&SocketRequest::Preflight { booking, booked, epoch: Some(epoch) });
    assert_eq!(slots_left(&answer), 5);
    assert_eq!(host.told.recv(), Ok(Released { is_unbooked: true, ..Released::default() }));
}

#[test]
fn bad_requests_are_answered_and_change_nothing() {
    let host = Host::new();
    let long = vec![b'x'; HOOK_MESSAGE_BYTES_MAX + 2];
    for (bytes, says) in [
        (&b"hello\n"[..], "not a message"),
        (b"{\"request\":\"launch\"}\n", "unknown variant"),
        (b"\xff\xfe\n", "not a message"),
        (b"{\"request\":\"status\"", "not a message"),
        (&long, "longer than"),
    ] {
        let answer = host.raw(bytes);
        assert!(answer.contains(says), "{answer:?} to {:?}", String::from_utf8_lossy(bytes));
    }
    assert_eq!(host.raw(b""), "");
    assert_eq!(host.table.occupancy().slots, CORES);
    assert!(host.told.try_recv().is_err());
}

#[test]
fn a_request_of_almost_full_length_is_answered_and_ends_nothing() {
    let host = Host::new();
    // Control characters grow sixfold where they are quoted, and the error quotes them.
    for filler in ["x", "\\u0001"] {
        let fill = filler.repeat((HOOK_MESSAGE_BYTES_MAX - 40) / filler.len());
        let answer = host.raw(format!("{{\"request\":\"{fill}\"}}\n").as_bytes());
        assert!(answer.contains("unknown variant"), "{answer:?}");
    }
    assert_eq!(slots_left(&host.preflight("a", Some(3))), 5);
}

#[test]
fn the_end_of_the_thread_is_told_whatever_ended_it() {
    let host = Host::new();
    drop(host.releaser);
    let fails = |_: Released| panic!("as a bug would");
    let started =
        Releaser::start(hooked(&host.run_dir, CORES, &host.table, &host.request_thread), fails);
    let (_releaser, ended) = started.expect("the socket is free");
    let postflight =
        SocketRequest::Postflight { booking: BookingId::new("a").expect("plain"), epoch: None };
    let _ = ask(&host.run_dir.socket_path(), &postflight, Span::from_secs(20));
    ended.blocking_recv().expect_err("it is dropped");
}

/// In a process of its own, whose open files are its own.
#[test]
fn without_file_descriptors_the_thread_rests_and_answers_later() {
    const ALONE: &str = "GLEANER_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "releaser::tests::without_file_descriptors_the_thread_rests_and_answers_later";
        let mut alone = Command::new(std::env::current_exe().expect("a program"));
        let said = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output();
        let said = said.expect("runs");
        assert!(said.status.success(), "{said:?}");
        return;
    }
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::time::{ClockId, clock_gettime};
    let cpu_ms = || {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        used.tv_sec * 1_000 + used.tv_nsec / 1_000_000
    };
    let host = Host::new();
    let client = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    let before = getrlimit(Resource::Nofile);
    // The lowest number that is free: there is none below it.
    let next = std::fs::File::open("/dev/null").expect("there");
    let full = u64::try_from(next.as_raw_fd()).expect("a number");
    drop(next);
    setrlimit(Resource::Nofile, Rlimit { current: Some(full), ..before }).expect("set");
    connect(&client, &SocketAddrUnix::new(host.run_dir.socket_path()).expect("short"))
        .expect("it listens");
    let mut client = UnixStream::from(client);
    client.write_all(b"{\"request\":\"status\"}\n").expect("there is room");
    client.set_read_timeout(Some(std::time::Duration::from_millis(500))).expect("set");
    let begun = cpu_ms();
    let error = client.read(&mut [0; 1]).expect_err("nobody can answer");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    let used = cpu_ms() - begun;
    assert!(used < 100, "{used} ms of computing for nothing");
    setrlimit(Resource::Nofile, before).expect("set");
    client.set_read_timeout(None).expect("set");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("it is answered now");
    assert!(answer.contains("\"status\""), "{answer}");
}

#[test]
fn clients_that_hang_keep_nobody_waiting() {
    let host = Host::new();
    let path = host.run_dir.socket_path();
    let mut hanging: Vec<UnixStream> = (0..SOCKET_CONNECTIONS_MAX + 20)
        .map(|_| UnixStream::connect(&path).expect("listens"))
        .collect();
    for stream in &mut hanging {
        let _ = stream.write_all(b"{\"request\":");
    }
    assert_eq!(slots_left(&host.preflight("a", Some(8))), 0);
    // In the end each is closed from the other side.
    for stream in &mut hanging {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
}

#[test]
fn many_preflights_at_once_all_get_their_answer() {
    let host = Host::new();
    let path = host.run_dir.socket_path();
    thread::scope(|scope| {
        for index in 0..32 {
            let path = &path;
            scope.spawn(move || {
                let request = SocketRequest::Preflight {
                    booking: BookingId::new(format!("r{index}")).expect("plain"),
                    booked: Booked { cores: Some(1), memory_mib: None, gpus: None },
                    epoch: Some(Epoch { incarnation: 9, count: index }),
                };
                ask(path, &request, Span::from_secs(20)).expect("an answer");
            });
        }
    });
    assert_eq!(host.told.iter().take(32).count(), 32);
    assert_eq!(host.table.occupancy().slots, 0);
}

#[test]
fn a_second_agent_is_refused_and_a_dead_ones_socket_is_taken_over() {
    let host = Host::new();
    let path = host.run_dir.socket_path();
    let second =
        Releaser::start(hooked(&host.run_dir, 1, &host.table, &host.request_thread), |_| {});
    let error = second.expect_err("in use").to_string();
    assert!(error.contains("another agent answers"), "{error}");
    drop(host.releaser);
    assert!(!path.exists(), "an orderly end removes the socket");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("free"));
    assert!(path.exists(), "a dead agent leaves it");
    Releaser::start(hooked(&host.run_dir, 1, &host.table, &host.request_thread), |_| {})
        .expect("taken over");
}

#[test]
fn a_disk_that_hangs_under_an_owners_pause_keeps_no_hook_waiting() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let host = Host::new();
    // Whoever opens it to write waits until somebody reads.
    let note = host.run_dir.path().join("pause.new");
    mknodat(CWD, &note, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
    thread::scope(|scope| {
        let socket = host.run_dir.socket_path();
        let pause = scope.spawn(move || {
            ask(&socket, &SocketRequest::Pause { for_ms: None }, Span::from_secs(20))
        });
        // Obeyed at once, and not answered before the note is written.
        while host.table.occupancy().allowed > 0 {
            thread::yield_now();
        }
        assert_eq!(slots_left(&host.preflight("a", Some(3))), 5);
        assert_eq!(slots_left(&host.preflight("b", None)), 0);
        assert!(!pause.is_finished());
        std::fs::read(&note).expect("it reads to the end");
        // A pipe keeps nothing.
        match pause.join().expect("no panic").expect("an answer") {
            SocketAnswer::Error { reason } => {
                assert!(reason.contains("not across a restart"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn who_may_not_be_waited_for_is_told_so() {
    let host = Host::new();
    let (answered, answers) = mpsc::channel();
    let ask = |request| {
        let answered = answered.clone();
        let reply = Box::new(move |answer: &SocketAnswer| {
            answered.send(answer.clone()).expect("the test listens");
        });
        host.request_thread.pass(request, reply);
    };
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let note = host.run_dir.path().join("pause.new");
    mknodat(CWD, &note, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
    ask(SocketRequest::Pause { for_ms: None });
    while host.table.occupancy().allowed > 0 {
        thread::yield_now();
    }
    (0..SOCKET_CONNECTIONS_MAX).for_each(|_| ask(SocketRequest::Tasks));
    assert!(answers.try_recv().is_err(), "all of them wait");
    ask(SocketRequest::Tasks);
    let reason = "too many ask at once: try again".into();
    assert_eq!(answers.recv(), Ok(SocketAnswer::Error { reason }));
    std::fs::read(&note).expect("it reads to the end");
    assert_eq!(answers.iter().take(SOCKET_CONNECTIONS_MAX + 1).count(), SOCKET_CONNECTIONS_MAX + 1);
}

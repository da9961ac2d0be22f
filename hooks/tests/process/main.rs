//! The hook as the farm sees it: a process that ends in time, with 0, and holds nothing open.

mod faults;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use gleaner_calm::{Turn, assert_within, in_some_round, too_slow, within};
use gleaner_hooks::limits::NOTIFY_DEADLINE;
use gleaner_hooks::{
    Environment, Farm, HookInvocation, Notification, NotifyError, RunDir, TaskGroup, notify,
    notify_to_exit, run_to_exit, watch_to_exit,
};
use gleaner_protocol::farm::{HookEvent, HookKind};
use gleaner_protocol::{BookingId, Epoch, HostName, Span, boottime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A hook's deadline where a test is not about it: longer than a machine that is busy with other
/// tests needs for any of them.
const PATIENT_MS: &str = "20000";
/// Half of that, and more than a hook takes that is not held up until its deadline.
const NO_DEADLINE: Span = Span::from_secs(10);
/// Waits are only bounded so that a failure is one.
const LONG: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Not a test but the hook's process: the tests below start this very program again to be it.
#[test]
fn hook_process() {
    let Some(run_dir) = std::env::var_os("TEST_RUN_DIR") else { return };
    let mut invocation = HookInvocation::new(HookKind::Preflight, Farm::Generic, run_dir);
    invocation.host = HostName::new("render042").ok();
    invocation.environment = Environment::from_iter([("GLEANER_BOOKING", "shot:1")]);
    invocation.monitor_url = std::env::var("TEST_MONITOR").ok();
    if let Some(ms) = std::env::var("TEST_AGENT_TIMEOUT_MS").ok().and_then(|ms| ms.parse().ok()) {
        invocation.agent_timeout = Span::from_millis(ms);
    }
    if let Some(ms) = std::env::var("TEST_DEADLINE_MS").ok().and_then(|ms| ms.parse().ok()) {
        invocation.deadline = Span::from_millis(ms);
    }
    invocation.notes.extend(std::env::var("TEST_NOTE"));
    let exe = std::env::current_exe().expect("a program").into_os_string();
    let again = |test: &str| Some(vec![exe.clone(), "--exact".into(), test.into()]);
    invocation.notify_command = again("notify_process");
    let watch = std::env::var_os("TEST_WATCH").map(|program| vec![program]);
    invocation.watch_command = watch.or_else(|| again("watch_process"));
    invocation.until_end_of = std::env::var("TEST_UNTIL").ok().and_then(|pid| pid.parse().ok());
    if std::env::var_os("TEST_POSTFLIGHT").is_some() {
        invocation.kind = HookKind::Postflight;
    }
    run_to_exit(invocation)
}

/// Likewise the process that ends a booking with another.
#[test]
fn watch_process() {
    let argument = std::env::args().next_back().unwrap_or_default();
    if argument.contains("start_ticks") {
        watch_to_exit(&argument, None);
    }
}

/// Likewise the process that tells the monitor.
#[test]
fn notify_process() {
    let argument = std::env::args().next_back().unwrap_or_default();
    let deadline = std::env::var("TEST_NOTIFY_MS").ok().and_then(|ms| ms.parse().ok());
    if Notification::from_argument(&argument).is_ok() {
        notify_to_exit(&argument, None, deadline.map_or(NOTIFY_DEADLINE, Span::from_millis));
    }
}

/// A hook with time.
fn hook(run_dir: &Path) -> Command {
    let mut command = hook_as_it_is(run_dir);
    command.env("TEST_DEADLINE_MS", PATIENT_MS);
    command
}

/// A hook with the deadline that it has where nobody sets one.
fn hook_as_it_is(run_dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command
        .args(["--exact", "hook_process", "--nocapture"])
        .env("TEST_RUN_DIR", run_dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// As another user, who can reach this very program through a copy that everyone may run.
fn ends_as(command: &Command, uid: u32) -> Output {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let place = tempfile::tempdir().expect("a folder");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("sets");
    let program = place.path().join("hook");
    // By another process: what this one writes is busy while a child of another test has it open.
    let own = std::env::current_exe().expect("a program");
    let copied = Command::new("cp").args([&own, &program]).status().expect("cp runs");
    assert!(copied.success(), "{program:?}");
    let mut other = Command::new(&program);
    other.args(command.get_args()).current_dir("/").uid(uid);
    for (name, value) in command.get_envs() {
        other.env(name, value.expect("set, not removed"));
    }
    other.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    other.gid(65_533);
    ends(other)
}

/// Waits for the process's end; the wait is only bounded so that a failure is one.
fn ends(mut command: Command) -> Output {
    let mut child = command.spawn().expect("starts");
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("not waited for yet");
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&LONG)) == Ok(1);
    if !ended {
        child.kill().expect("ours");
    }
    let output = child.wait_with_output().expect("waits");
    assert!(ended, "the hook hangs: {}", stderr(&output));
    output
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn notification(url: &str, token_file: Option<&Path>) -> Notification {
    Notification {
        url: url.to_owned(),
        token_file: token_file.map(Path::to_owned),
        ca_file: None,
        event: event(),
    }
}

fn event() -> HookEvent {
    HookEvent {
        host: HostName::new("render042").expect("a name"),
        kind: HookKind::Preflight,
        booking: BookingId::new("shot:1").expect("a name"),
        resources: gleaner_protocol::farm::Booked::default(),
        epoch: Epoch { incarnation: 7, count: 1 },
        release_us: Some(1_500),
        failed: None,
    }
}

/// Reads one request whole and returns its head and body.
fn read_request(stream: &mut TcpStream) -> (String, String) {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .and_then(|length| length.parse().ok())
                .expect("a length");
            if body.len() >= length {
                return (head.to_owned(), body.to_owned());
            }
        }
        let read = stream.read(&mut part).expect("reads");
        assert!(read > 0, "a request that ends early: {text}");
        bytes.extend_from_slice(&part[..read]);
    }
}

fn answer(stream: &mut TcpStream, status: &str) {
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwords");
    stream.write_all(answer.as_bytes()).expect("writes");
}

#[test]
fn many_hooks_at_once_all_end_well_and_count() {
    let _turn = Turn::alone();
    let folder = tempfile::tempdir().expect("a folder");
    let hooks: Vec<_> = (0..64).map(|_| hook(folder.path()).spawn().expect("starts")).collect();
    for hook in hooks {
        let output = hook.wait_with_output().expect("waits");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let run_dir = RunDir::open(folder.path()).expect("opens");
    assert_eq!(run_dir.epoch().expect("reads").count, 64);
    assert_eq!(run_dir.bookings().expect("lists").len(), 1);
}

#[test]
fn the_farm_does_not_wait_for_the_monitor_to_be_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let monitor = TcpListener::bind("127.0.0.1:0").expect("binds");
    let url = format!("http://{}", monitor.local_addr().expect("an address"));
    // The monitor is not even accepting while the hook runs. `output` returns when nobody holds
    // the pipes any more: neither the hook nor what it left behind.
    let output = hook(folder.path()).env("TEST_MONITOR", &url).output().expect("runs");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "gleaner hook preflight: no agent has its socket here\n");
    let (mut stream, _) = monitor.accept().expect("it is told all the same");
    let (head, body) = read_request(&mut stream);
    assert!(head.starts_with("POST /v1/events HTTP/1.1\r\n"), "{head}");
    let told: HookEvent = serde_json::from_str(&body).expect("an event");
    let epoch = RunDir::open(folder.path()).expect("opens").epoch().expect("reads");
    let release_us = told.release_us;
    assert!(release_us.is_some_and(|us| us > 0), "{told:?}");
    assert_eq!(told, HookEvent { epoch, release_us, ..event() });
    answer(&mut stream, "200 OK");
}

/// Waits until the folder has no booking; the wait is only bounded so that a failure is one.
fn until_nothing_is_booked(run_dir: &RunDir) {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let life = format!("{:016x}", run_dir.epoch().expect("reads").incarnation);
    let news = init(CreateFlags::CLOEXEC).expect("a watch");
    add_watch(&news, run_dir.path().join(life).join("bookings"), WatchFlags::MOVED_TO)
        .expect("watches");
    while !run_dir.bookings().expect("lists").is_empty() {
        assert_eq!(poll(&mut [PollFd::new(&news, PollFlags::IN)], Some(&LONG)), Ok(1), "it stands");
        let _ = rustix::io::read(&news, &mut [0; 4096]).expect("news");
    }
}

/// Something that renders until its input ends.
fn render() -> std::process::Child {
    Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts")
}

/// A hook that says that a render has ended, once its process has.
fn postflight_of(render: &std::process::Child, folder: &Path) -> Command {
    let mut command = hook(folder);
    command.env("TEST_POSTFLIGHT", "1").env("TEST_UNTIL", render.id().to_string());
    command
}

#[test]
fn a_booking_ends_with_the_renders_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    // However it ends: by itself, or killed.
    for is_killed in [false, true] {
        let mut render = render();
        let output = hook(folder.path()).env("TEST_UNTIL", render.id().to_string()).output();
        // Who watches holds none of our pipes, or this would not have returned.
        assert_eq!(output.expect("runs").status.code(), Some(0));
        assert_eq!(run_dir.bookings().expect("lists").len(), 1, "it renders");
        if is_killed {
            render.kill().expect("ours");
        }
        drop(render.stdin.take());
        render.wait().expect("ours");
        until_nothing_is_booked(&run_dir);
    }
}

#[test]
fn a_postflight_may_name_the_process_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let mut render = render();
    assert_eq!(ends(hook(folder.path())).status.code(), Some(0));
    assert_eq!(ends(postflight_of(&render, folder.path())).status.code(), Some(0));
    assert_eq!(run_dir.bookings().expect("lists").len(), 1, "it renders still");
    drop(render.stdin.take());
    render.wait().expect("ours");
    until_nothing_is_booked(&run_dir);
    // Of a process that is gone already there is nothing to wait for.
    assert_eq!(ends(hook(folder.path())).status.code(), Some(0));
    let said = stderr(&ends(postflight_of(&render, folder.path())));
    assert!(said.contains("cannot wait for the end of process"), "{said}");
    assert!(run_dir.bookings().expect("lists").is_empty());
}

#[test]
fn a_booking_stays_whose_process_runs_and_cannot_be_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let mut render = render();
    assert_eq!(ends(hook(folder.path())).status.code(), Some(0));
    let mut postflight = postflight_of(&render, folder.path());
    postflight.env("TEST_WATCH", "/nowhere/gleaner");
    let said = stderr(&ends(postflight));
    assert!(said.contains("so its booking stays"), "{said}");
    assert_eq!(run_dir.bookings().expect("lists").len(), 1, "it renders still");
    drop(render.stdin.take());
    render.wait().expect("ours");
    assert_eq!(ends(postflight_of(&render, folder.path())).status.code(), Some(0));
    assert!(run_dir.bookings().expect("lists").is_empty());
}

#[test]
fn a_process_that_cannot_be_waited_for_is_named_and_the_host_is_freed() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    for pid in ["0", "-1", "1", "2147483647"] {
        let mut work = Work::recorded_in(&run_dir);
        let mut command = hook(folder.path());
        command.env("TEST_UNTIL", pid);
        let output = ends(command);
        assert_eq!(output.status.code(), Some(0), "{pid}");
        assert!(stderr(&output).contains("cannot wait for the end"), "{}", stderr(&output));
        assert!(work.was_killed(), "{pid}");
    }
}

#[test]
fn a_hook_that_hangs_gives_up_at_its_deadline() {
    let folder = tempfile::tempdir().expect("a folder");
    RunDir::open(folder.path()).expect("opens");
    // Reading a pipe that nobody writes hangs as a dead file server does.
    for entry in fs::read_dir(folder.path()).expect("lists") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            fs::remove_file(&path).expect("removes");
            let made = Command::new("mkfifo").arg(&path).status().expect("runs");
            assert!(made.success());
        }
    }
    in_some_round(|| {
        let begun = boottime();
        let output = ends(hook_as_it_is(folder.path()));
        let took = boottime().since(begun);
        assert_eq!(output.status.code(), Some(0));
        assert!(stderr(&output).contains("given up after 0.500 s"), "{}", stderr(&output));
        assert!(took >= Span::from_millis(500), "{took}");
        // That, and what a process needs to start.
        within("a hook that hangs", took, Span::from_millis(1_500))
    });
}

/// Harvested work that is recorded; killed at the end of its test in any case.
struct Work(std::process::Child);

impl Work {
    fn recorded_in(run_dir: &RunDir) -> Self {
        use std::os::unix::process::CommandExt;
        let work = Command::new("sleep").arg("1000").process_group(0).spawn().expect("starts");
        let pid = i32::try_from(work.id()).expect("a pid");
        let group = TaskGroup::of_leader(pid).expect("leads");
        run_dir.register_group(&group).expect("records");
        Self(work)
    }

    fn was_killed(&mut self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).expect("a pid");
        let process = pidfd_open(pid, PidfdFlags::empty()).expect("not waited for yet");
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&LONG)) == Ok(1)
            && self.0.wait().expect("ours").signal() == Some(9)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// After its deadline a hook has a tenth of a second, which a busy machine may give to others.
#[test]
fn a_preflight_that_hangs_stops_the_work_at_its_deadline() {
    let _turn = Turn::shared();
    in_some_round(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path()).expect("opens");
        let mut work = Work::recorded_in(&run_dir);
        // What hangs is its own booking, before anything is stopped.
        let life = format!("{:016x}", run_dir.epoch().expect("reads").incarnation);
        let booking = folder.path().join(life).join("bookings/b-shot:1");
        assert!(Command::new("mkfifo").arg(booking).status().expect("runs").success());
        let output = ends(hook_as_it_is(folder.path()));
        assert_eq!(output.status.code(), Some(0));
        let said = stderr(&output);
        assert!(said.contains("given up after 0.500 s"), "{said}");
        let busy = ["could not be stopped in time", "not all that was recorded could be stopped"];
        if busy.iter().any(|words| said.contains(words)) {
            return too_slow(said);
        }
        assert!(said.contains("what was recorded was stopped"), "{said}");
        assert!(work.was_killed());
        Ok(())
    });
}

#[test]
fn a_long_wait_for_the_agent_leaves_time_to_do_without_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let mut work = Work::recorded_in(&run_dir);
    let _never_accepts =
        std::os::unix::net::UnixListener::bind(run_dir.socket_path()).expect("binds");
    let mut command = hook(folder.path());
    // Half of the deadline is as long as it waits.
    command.env("TEST_AGENT_TIMEOUT_MS", "100000").env("TEST_DEADLINE_MS", "8000");
    let output = ends(command);
    assert_eq!(output.status.code(), Some(0));
    let said = stderr(&output);
    assert!(said.contains("did not answer in time"), "{said}");
    assert!(said.contains("stopped 1 task groups without the agent"), "{said}");
    assert!(work.was_killed());
}

#[test]
fn no_setting_lasts_longer_than_its_bound() {
    let mut invocation = HookInvocation::new(HookKind::Preflight, Farm::Generic, "/nowhere");
    (invocation.agent_timeout, invocation.deadline) = (Span::from_secs(900), Span::from_secs(900));
    let bounded = invocation.clone().bounded();
    assert_eq!(
        (bounded.agent_timeout, bounded.deadline),
        (Span::from_secs(15), Span::from_secs(30))
    );
    (invocation.agent_timeout, invocation.deadline) = (Span::from_secs(1), Span::from_millis(500));
    assert_eq!(invocation.bounded().agent_timeout, Span::from_millis(250));
}

#[test]
fn what_is_wrong_with_the_settings_is_said_after_the_release() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let mut work = Work::recorded_in(&run_dir);
    let mut command = hook(folder.path());
    command.env("TEST_NOTE", "no such farm");
    let said = stderr(&ends(command));
    assert!(said.starts_with("gleaner hook preflight: no such farm; no agent has"), "{said}");
    // A pipe whose reader is gone.
    drop(work);
    work = Work::recorded_in(&run_dir);
    let (unread, closed) = rustix::pipe::pipe().expect("a pipe");
    drop(unread);
    let mut command = hook(folder.path());
    command.env("TEST_NOTE", "no such farm").stderr(closed);
    assert_eq!(ends(command).status.code(), Some(0));
    assert!(work.was_killed());
}

#[test]
fn a_folder_that_a_stranger_has_put_there_is_not_used() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nobody can be a stranger, so this is not tested");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).expect("as /tmp");
    let planted = folder.path().join("gleaner-65534");
    fs::create_dir(&planted).expect("makes");
    chown(&planted, Some(65_533), Some(65_533)).expect("gives away");
    let output = ends_as(&hook(&planted), 65_534);
    assert_eq!(output.status.code(), Some(0));
    let said = stderr(&output);
    assert!(said.contains("belongs to user 65533"), "{said}");
    assert_eq!(fs::read_dir(&planted).expect("lists").count(), 0, "nothing was made in it");
    // Where only root can put folders, root has given it to them.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("as /run");
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o2775)).expect("shares");
    let output = ends_as(&hook(&planted), 65_534);
    assert!(!stderr(&output).contains("belongs"), "{}", stderr(&output));
}

#[test]
fn a_record_stops_only_what_belongs_to_its_writer() {
    use std::os::unix::fs::chown;
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nobody can be a stranger, so this is not tested");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let mut roots = Work::recorded_in(&run_dir);
    let life = format!("{:016x}", run_dir.epoch().expect("reads").incarnation);
    let record = folder.path().join(life).join("groups").join(roots.0.id().to_string());
    chown(&record, Some(65_534), None).expect("as if they had written it");
    let report = run_dir.stop_groups();
    assert_eq!(report.stopped, 0, "{report:?}");
    assert!(report.troubles[0].contains("was recorded by user 65534"), "{report:?}");
    assert!(roots.0.try_wait().expect("ours").is_none(), "it lives");
    chown(&record, Some(0), None).expect("root's own again");
    assert_eq!(run_dir.stop_groups().stopped, 1);
    assert!(roots.was_killed());
}

#[test]
fn a_record_that_may_not_be_read_is_a_trouble() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let life = format!("{:016x}", run_dir.epoch().expect("reads").incarnation);
    // A folder in its place is as unreadable, for root as well.
    fs::create_dir(folder.path().join(life).join("groups/4711")).expect("makes");
    let report = run_dir.stop_groups();
    assert_eq!(report.troubles.len(), 1, "{report:?}");
    assert!(report.troubles[0].contains("groups/4711"), "{report:?}");
}

#[test]
fn a_farm_that_does_not_read_our_words_does_not_hold_us_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_unread, full) = rustix::pipe::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&full, true).expect("sets");
    while rustix::io::write(&full, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).expect("sets");
    let full: OwnedFd = full;
    let begun = boottime();
    let mut command = hook(folder.path());
    command.stderr(full);
    assert_eq!(ends(command).status.code(), Some(0));
    assert_within("a hook whose words nobody reads", boottime().since(begun), NO_DEADLINE);
}

#[test]
fn a_monitor_that_is_busy_is_told_again_and_one_that_refuses_is_not() {
    let monitor = TcpListener::bind("127.0.0.1:0").expect("binds");
    let url = format!("http://{}", monitor.local_addr().expect("an address"));
    let folder = tempfile::tempdir().expect("a folder");
    let token_file = folder.path().join("token");
    fs::write(&token_file, "secret\n").expect("writes");
    let told = std::thread::spawn(move || {
        let first = notify(&notification(&url, Some(&token_file)), None);
        let second = notify(&notification(&url, None), None);
        (first, second)
    });
    for status in ["503 Service Unavailable", "200 OK", "400 Bad Request"] {
        let (mut stream, _) = monitor.accept().expect("a try");
        let (head, _) = read_request(&mut stream);
        let with_token = head.contains("\r\nAuthorization: Bearer secret");
        assert_eq!(with_token, !status.starts_with("400"), "{head}");
        answer(&mut stream, status);
    }
    let (first, second) = told.join().expect("no panic");
    first.expect("told at the second try");
    let error = second.expect_err("refused");
    assert!(matches!(error, NotifyError::Refused { status: 400, .. }), "{error}");
    assert!(error.to_string().ends_with("answered 400: words"), "{error}");
}

#[test]
fn a_token_that_would_split_the_header_is_not_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let token_file = folder.path().join("token");
    for text in ["a\r\nX: y", "", "two words"] {
        fs::write(&token_file, text).expect("writes");
        let sent = notify(&notification("http://127.0.0.1:1", Some(&token_file)), None);
        assert!(matches!(sent, Err(NotifyError::Token)), "{text:?}: {sent:?}");
    }
    fs::remove_file(&token_file).expect("removes");
    let sent = notify(&notification("http://127.0.0.1:1", Some(&token_file)), None);
    assert!(matches!(sent, Err(NotifyError::TokenFile { .. })), "{sent:?}");
}

#[test]
fn what_tells_the_monitor_ends_whatever_holds_it_up() {
    let folder = tempfile::tempdir().expect("a folder");
    // A token's file that nobody ever writes, and a monitor that answers a byte at a time.
    let fifo = folder.path().join("token");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("runs").success());
    let monitor = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = monitor.local_addr().expect("an address");
    let url = format!("http://{address}");
    let trickle = std::thread::spawn(move || {
        let (mut stream, _) = monitor.accept().expect("a try");
        stream.set_read_timeout(Some(std::time::Duration::from_millis(20))).expect("sets");
        while stream.write_all(b"H").is_ok() {
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    for token_file in [Some(fifo.as_path()), None] {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command
            .args(["--exact", "notify_process", "--nocapture"])
            .arg(notification(&url, token_file).to_argument())
            .env("TEST_NOTIFY_MS", "300")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = ends(command);
        assert_eq!(output.status.code(), Some(0));
        assert!(stderr(&output).contains("not told in time"), "{}", stderr(&output));
    }
    // Where the machine was so busy that nobody called before it was given up.
    drop(TcpStream::connect(address));
    trickle.join().expect("it saw the end");
}

//! Whatever is dead, hung, full or senseless around a hook: it ends with 0 and in time.
//!
//! The times are those that the farm sees, from the start of the process to its end. They are
//! medians, for this machine does other things as well; each is printed.

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use gleaner_calm::{Turn, assert_within, in_some_round, repeats};
use gleaner_hooks::{Farm, Notification, RunDir, SocketAnswer, SocketRequest};
use gleaner_protocol::farm::{Booked, HookEvent, HookKind};
use gleaner_protocol::{BookingId, Epoch, HostName, Span};

use crate::calm::Measured;
use crate::cluster::Plan;
use crate::hook::{Hook, Hooked};
use crate::marks::Mark;
use crate::patience::timed;
use crate::processes;
use crate::program::{self, gleaner, gleaner_hook, run};

/// Hooks per measurement.
const RUNS: usize = 11;
/// No hook may take longer than this, whatever happens: its deadline, and a machine that is busy
/// with other tests.
const BOUND: Span = Span::from_millis(500 + 4_500);
/// For what a hook does, not for how long it takes: no stall of the machine has it give up.
const NO_HURRY: [&str; 2] = ["--deadline-ms", "30000"];

/// Runs a hook several times, which must usually take no more than 60 ms.
#[track_caller]
fn takes_no_time(what: &str, hook: impl Fn(usize) -> Hook) {
    in_some_round(|| {
        let mut measured = Measured::default();
        (0..repeats(RUNS)).for_each(|number| measured.add(hook(number).run().took));
        measured.is_at_most(Span::from_millis(60), what)
    });
}

#[tokio::test]
async fn a_dead_agent_costs_a_hook_no_time() {
    let mut cluster = Plan::new().farm(1).measuring().start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(2, 1)).await;
    let begun = marks.take(2);
    cluster["farm1"].agent.kill();
    let host = &cluster["farm1"];
    assert!(host.run_dir().join("agent.sock").exists(), "its socket is left behind");
    let first = host.preflight("shot:0").run();
    assert!(first.said.contains("the agent is dead"), "{}", first.said);
    assert!(begun.iter().all(|mark| processes::computing(&[mark.pid]).is_empty()));

    takes_no_time("hook with a dead agent", |n| host.hook("preflight", &format!("shot:{n}")));
    takes_no_time("hook after it", |n| host.hook("postflight", &format!("shot:{n}")));
    // A hook that came while it was dead counts: the agent that follows asks the folder.
    host.preflight("shot:1").run();
    cluster.restart_agent("farm1");
    cluster.are_connected().await;
    let status = cluster["farm1"].ask(&SocketRequest::Status);
    assert!(matches!(status, SocketAnswer::Status { slots: 0, running: 0, .. }), "{status:?}");
}

#[tokio::test]
async fn a_healthy_agent_answers_at_once() {
    let cluster = Plan::new().farm(1).measuring().start().await;
    cluster.are_open().await;
    let host = &cluster["farm1"];
    takes_no_time("hook with an agent", |n| host.hook("preflight", &format!("shot:{n}")));
    takes_no_time("hook after it", |n| host.hook("postflight", &format!("shot:{n}")));
    cluster.api.until_cores("farm1", 2).await;
}

#[test]
fn a_run_folder_that_cannot_be_used_costs_no_time_either() {
    let _turn = Turn::measuring();
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("not/yet/there");
    takes_no_time("hook without a run folder", |_| Hook::new("preflight", &missing));

    let file = folder.path().join("file");
    fs::write(&file, "no folder").expect("written");
    let damaged = folder.path().join("damaged");
    fs::create_dir(&damaged).expect("made");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
    fs::write(damaged.join(format!("life-{}", boot.trim())), "zzz").expect("written");
    let far = folder.path().join("x".repeat(200));
    let open = folder.path().join("open");
    fs::create_dir(&open).expect("made");
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&open, everyone).expect("set");
    for (what, path) in [
        ("a file for a run folder", file.as_path()),
        ("a folder below a file", &file.join("below")),
        ("a folder in /proc", "/proc/gleaner".as_ref()),
        ("a damaged folder", &damaged),
        ("a folder with too long a path", &far),
        ("a folder that everyone may write", &open),
    ] {
        for kind in ["preflight", "postflight"] {
            takes_no_time(&format!("{kind}, {what}"), |_| Hook::new(kind, path));
            let said = Hook::new(kind, path).patient().run().said;
            assert!(said.starts_with(&format!("gleaner hook {kind}: ")), "{what}: {said:?}");
        }
    }
}

#[test]
fn a_run_folder_that_the_hooks_user_may_not_read_is_named() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = folder.path().join("run");
    Hook::new("preflight", &run_dir).patient().run();
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    fs::set_permissions(&run_dir, closed).expect("set");
    let mut command = Hook::new("preflight", &run_dir).command();
    if rustix::process::geteuid().is_root() {
        // As somebody whom permissions mean something to.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("set");
        command.uid(65_534).gid(65_534).current_dir("/");
    }
    let (took, said) = timed(|| run(&mut command));
    let hooked = Hooked::of(took, said);
    assert!(hooked.said.contains("run"), "{}", hooked.said);
    assert_within("the hook", took, BOUND);
}

#[test]
fn nobody_waits_for_a_monitor_that_is_away_or_hangs() {
    let _turn = Turn::measuring();
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = folder.path().join("run");
    // One that accepts and says nothing, one that does not even accept, one that is not there.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent_url = format!("http://{}", silent.local_addr().expect("an address"));
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
    let deaf_url = format!("http://{}", deaf.local_addr().expect("an address"));
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        format!("http://{}", listener.local_addr().expect("an address"))
    };
    thread::spawn(move || silent.incoming().collect::<Vec<_>>());
    for (what, url) in [
        ("with a silent monitor", silent_url.as_str()),
        ("with a deaf monitor", &deaf_url),
        ("with a monitor that is gone", &gone),
        ("with a monitor that cannot be", "http://192.0.2.1:7711"),
        ("with a monitor by a name that is none", "http://monitor.invalid:7711"),
        ("with an address that is none", "monitor"),
        ("with TLS at a monitor that is gone", "https://127.0.0.1:9"),
    ] {
        takes_no_time(what, |n| {
            Hook::new("preflight", &run_dir)
                .with(&["--host", "farm1", "--monitor", url])
                .env("GLEANER_BOOKING", format!("shot:{n}"))
        });
    }
}

/// What it cannot do itself it has the whole program do, which is another file.
#[test]
fn a_hook_alone_that_lies_in_the_place_of_the_whole_program_ends() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let misplaced = folder.path().join("gleaner");
    program::install(Path::new(env!("CARGO_BIN_EXE_gleaner-hook")), &misplaced);
    let event = HookEvent {
        host: HostName::new("farm1").expect("a name"),
        kind: HookKind::Preflight,
        booking: BookingId::new("shot:1").expect("a booking"),
        resources: Booked::default(),
        epoch: Epoch::default(),
        release_us: None,
        failed: None,
    };
    let url = "https://127.0.0.1:9".to_owned();
    let told = Notification { url, token_file: None, ca_file: None, event }.to_argument();
    let (took, said) = timed(|| run(Command::new(&misplaced).args(["hook", "notify", &told])));
    let said = Hooked::of(took, said).said;
    assert!(said.contains("that is a hook and nothing else"), "{said}");
}

/// What a farm's hook environment should not hold, but may.
fn garbage_environment(hook: Hook, value: &OsStr) -> Hook {
    let names = [
        "GLEANER_BOOKING",
        "GLEANER_CORES",
        "GLEANER_MEMORY_MIB",
        "GLEANER_GPUS",
        "GLEANER_HOST",
        "CUE_FRAME_ID",
        "CUE_GPU_CORES",
        "CUE_MEMORY",
        "CUE_THREADS",
        "JOB_ID",
        "NHOSTS",
        "NSLOTS",
        "PBS_JOBID",
        "PE_HOSTFILE",
        "SGE_TASK_ID",
        "jobhost",
        "GLEANER_HOOK_PARENT",
        "GLEANER_HOOK_DEADLINE_MS",
        "QBJOBID",
        "QBSUBID",
        "QB_ALLOCATIONS",
        "QB_FRAME_NUMBER",
        "SLURM_JOB_ID",
        "SLURMD_NODENAME",
        "SLURM_JOB_CPUS_PER_NODE",
        "SLURM_JOB_GPUS",
        "SLURM_NODELIST",
        "RUST_LOG",
        "RUST_BACKTRACE",
        "HOME",
        "LANG",
        "TMPDIR",
    ];
    names.iter().fold(hook, |hook, name| hook.env(name, value))
}

#[test]
fn an_environment_of_garbage_books_something_and_ends_it() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = folder.path().join("run");
    let long = "x".repeat(40_000);
    let garbage: [&OsStr; 7] = [
        "".as_ref(),
        "../../etc/passwd".as_ref(),
        "-1".as_ref(),
        "99999999999999999999".as_ref(),
        "; rm -rf /".as_ref(),
        OsStr::from_bytes(b"\xff\xfe\x01"),
        long.as_ref(),
    ];
    let bookings =
        || RunDir::open(&run_dir).and_then(|folder| folder.bookings()).expect("it lists");
    for farm in Farm::ALL.map(Farm::as_str) {
        for value in garbage {
            for kind in ["preflight", "postflight"] {
                let hook = Hook::new(kind, &run_dir).with(&["--farm", farm]).with(&NO_HURRY);
                let hooked = garbage_environment(hook, value).run();
                assert_within("the hook", hooked.took, BOUND);
                let booked = bookings().len();
                assert_eq!(booked == 1, kind == "preflight", "{farm} {value:?}: {}", hooked.said);
            }
        }
    }
    // Where the deadline is garbage too, it ends in time.
    for value in garbage {
        let hooked = garbage_environment(Hook::new("preflight", &run_dir), value).run();
        assert_within("the hook", hooked.took, BOUND);
    }
}

#[tokio::test]
async fn an_environment_of_garbage_takes_the_whole_host() {
    // A host for each: what no hook told the monitor of makes it wait for some samples.
    let cluster = Plan::new().farm(Farm::ALL.len()).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let begun = marks.take(2 * Farm::ALL.len());
    for (number, farm) in (1..).zip(Farm::ALL.map(Farm::as_str)) {
        let name = format!("farm{number}");
        let host = &cluster[name.as_str()];
        let of_host = begun.iter().filter(|mark| mark.host == name);
        let tasks: Vec<i32> = of_host.map(|mark| mark.pid).collect();
        assert_eq!(processes::computing(&tasks).len(), 2, "{farm}");
        for kind in ["preflight", "postflight"] {
            let hook = Hook::new(kind, &host.run_dir()).with(&["--farm", farm]).with(&NO_HURRY);
            let said = garbage_environment(hook, "; rm -rf /".as_ref()).run().said;
            assert!(processes::computing(&tasks).is_empty(), "{farm}: {said}");
        }
    }
    // Each is released, and given once: nothing begins on what was opened before its render.
    let hosts = |marks: &[Mark]| {
        let mut hosts: Vec<String> = marks.iter().map(|mark| mark.host.clone()).collect();
        hosts.sort_unstable();
        hosts
    };
    assert_eq!(hosts(&marks.take(begun.len())), hosts(&begun));
}

#[tokio::test]
async fn settings_of_garbage_stop_the_work_all_the_same() {
    let none = ("GLEANER_BOOKING", "shot:1");
    let settings: [(&[&str], (&str, &str)); 11] = [
        (&["--run-dir=RUN", "--typo"], none),
        (&["--run-dir", "RUN"], ("GLEANER_HOOK_DEADLINE_MS", "soon")),
        (&["--run-dir", "RUN", "--host", "a/b"], none),
        (&["--run-dir", "RUN", "--farm", "muster"], none),
        (&["--run-dir", "RUN", "--colour", "blue"], none),
        (&["--run-dir", "RUN", "--agent-timeout-ms", "soon"], none),
        (&["--run-dir", "RUN", "extra"], none),
        (&["--run-dir", "RUN", "--host"], none),
        (&[], ("GLEANER_FARM", "Qube!")),
        (&[], ("GLEANER_HOST", "host of mine")),
        (&[], ("GLEANER_TOKEN_FILE", "")),
    ];
    // The whole program, the one that is a hook alone, and this without the word that says so.
    let hooks: [fn(&str) -> Command; 3] = [
        |kind| gleaner(["hook", kind]),
        |kind| gleaner_hook(["hook", kind]),
        |kind| gleaner_hook([kind]),
    ];
    // A host for each, as above.
    let cluster = Plan::new().farm(settings.len()).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let at_work = |begun: &[Mark], host: &str| {
        let tasks: Vec<i32> = begun.iter().filter(|m| m.host == host).map(|m| m.pid).collect();
        assert_eq!(tasks.len(), 2, "{host}: {begun:?}");
        processes::computing(&tasks).len()
    };
    let begun = marks.take(2 * settings.len());
    for (number, ((arguments, (name, value)), hook)) in
        (1..).zip(settings.iter().zip(hooks.iter().cycle()))
    {
        let host = format!("farm{number}");
        let run_dir = cluster[host.as_str()].run_dir();
        let run_dir = run_dir.to_str().expect("a plain path");
        assert_eq!(at_work(&begun, &host), 2, "{arguments:?}");
        for kind in ["preflight", "postflight"] {
            let mut command = hook(kind);
            command.args(arguments.iter().map(|argument| argument.replace("RUN", run_dir)));
            command.env("GLEANER_BOOKING", "shot:1").env(name, value);
            if arguments.is_empty() {
                command.env("GLEANER_RUN_DIR", run_dir);
            }
            let (took, said) = timed(|| run(&mut command));
            let hooked = Hooked::of(took, said);
            assert_eq!(at_work(&begun, &host), 0, "{kind} {arguments:?}: {}", hooked.said);
        }
    }
    let begun = marks.take(begun.len());
    let equals = format!("--run-dir={}", cluster["farm1"].run_dir().display());
    let mut command = gleaner(["-q", "hook", "preflight", "--typo", &equals]);
    let (took, said) = timed(|| run(command.env("GLEANER_BOOKING", "shot:1")));
    let said = Hooked::of(took, said).said;
    assert_eq!(at_work(&begun, "farm1"), 0, "{said}");
    for senseless in [&["hook"][..], &["hook", "midflight"], &["hook", "preflight", "--help"]] {
        for program in [gleaner, gleaner_hook] {
            let (took, said) = timed(|| run(&mut program(senseless.iter().copied())));
            Hooked::of(took, said);
        }
    }
    for senseless in [&[][..], &["status"], &["preflight", "--help"]] {
        let (took, said) = timed(|| run(&mut gleaner_hook(senseless.iter().copied())));
        Hooked::of(took, said);
    }
}

#[test]
fn a_hook_alone_says_its_release_and_touches_nothing() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let release = run(&mut gleaner(["--version"])).ok();
    for word in ["--version", "-V"] {
        let said = run(gleaner_hook([word]).env("GLEANER_RUN_DIR", folder.path().join("run"))).ok();
        assert_eq!(said, release.replace("gleaner ", "gleaner-hook "));
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn closed_stdio_is_no_reason_to_fail() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let redirections = ["<&- >&- 2>&-", "2>&-", "<&-", ">/dev/full 2>/dev/full"];
    for (redirection, farm) in
        redirections.iter().flat_map(|one| [(one, "generic"), (one, "no farm"), (one, "")])
    {
        let script = format!("exec \"$@\" {redirection}");
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_gleaner"), "hook", "preflight"])
            .arg("--run-dir")
            .arg(folder.path().join("run"))
            .env_clear()
            .env("GLEANER_FARM", farm);
        let (took, said) = timed(|| run(&mut command));
        let hooked = Hooked::of(took, said);
        assert_within("the hook", hooked.took, BOUND);
    }
}

/// Runs 64 hooks at once; the longest time of one.
fn sixty_four(hook: impl Fn(usize) -> Hook + Sync) -> Span {
    thread::scope(|scope| {
        let start = |number| {
            let hook = hook(number);
            scope.spawn(move || hook.cores(1).run().took)
        };
        let hooks: Vec<_> = (0..64).map(start).collect();
        let took = hooks.into_iter().map(|hook| hook.join().expect("it ends with 0"));
        took.max().expect("some")
    })
}

#[tokio::test]
async fn sixty_four_hooks_at_once_all_count() {
    let cluster = Plan::new().farm(1).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let begun = marks.take(2);
    let host = &cluster["farm1"];
    let before = host.epoch().count;
    let (took, longest) = timed(|| sixty_four(|number| host.preflight(&format!("shot:{number}"))));
    eprintln!("64 preflights at once: {took}, the longest {longest}");
    assert!(begun.iter().all(|mark| processes::computing(&[mark.pid]).is_empty()));
    assert_eq!(host.epoch().count, before + 64);
    assert_eq!(host.run_folder().bookings().expect("it lists").len(), 64);
    cluster.api.until_cores("farm1", 0).await;
    sixty_four(|number| host.postflight(&format!("shot:{number}")));
    assert!(host.run_folder().bookings().expect("it lists").is_empty());
    cluster.api.until_cores("farm1", 2).await;
    let begun = marks.take(2);
    // In a hurry: each ends with 0 and in time, and the work is stopped.
    let longest = sixty_four(|number| host.hook("preflight", &format!("frame:{number}")));
    assert_within("the longest of 64 preflights in a hurry", longest, Span::from_secs(10));
    assert!(begun.iter().all(|mark| processes::computing(&[mark.pid]).is_empty()));
}

/// A farm manager may hand on a job's own limits.
#[test]
fn a_hook_books_within_the_smallest_limits_of_a_job() {
    for limits in ["ulimit -v 16384", "ulimit -s 64", "ulimit -s 64; ulimit -v 16384"] {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = folder.path().join("run");
        let line = format!("{limits}; exec \"$@\"");
        let mut hook = Command::new("sh");
        hook.args(["-c", &line, "sh", env!("CARGO_BIN_EXE_gleaner-hook"), "preflight"]);
        hook.args(NO_HURRY).arg("--run-dir").arg(&run_dir);
        hook.env_clear().env("PATH", "/usr/bin:/bin").env("GLEANER_BOOKING", "shot:1");
        let output = hook.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{limits}: {said}");
        let booked = RunDir::open(&run_dir).and_then(|folder| folder.bookings());
        assert_eq!(booked.expect("it booked").len(), 1, "{limits}: {said}");
    }
}

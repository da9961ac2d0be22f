//! Agents that are slow, silent or talk nonsense, hooks that are killed anywhere, and processes
//! that may have next to nothing: the work is stopped, and the next hook finds a sound folder.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use gleaner_hooks::{RunDir, SocketAnswer, encode_line};
use gleaner_protocol::{Span, boottime};

use super::{NO_DEADLINE, Work, ends, hook, stderr};

/// An agent that treats every connection alike, for as long as the process of the test lives.
fn agent(run_dir: &RunDir, treat: impl Fn(UnixStream) + Send + 'static) {
    let listener = UnixListener::bind(run_dir.socket_path()).expect("binds");
    std::thread::spawn(move || listener.incoming().flatten().for_each(treat));
}

fn read_request(stream: &UnixStream) {
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
}

fn released() -> Vec<u8> {
    encode_line(&SocketAnswer::Released { frozen: 1, slots_left: 0 }).expect("it fits")
}

#[test]
fn an_agent_that_answers_in_time_is_believed_and_any_other_is_not() {
    const TOO_LATE: &str = "did not answer in time";
    // Each with what is said of it, and whether the hook stops the work itself.
    type Treat = Box<dyn Fn(UnixStream) + Send>;
    let agents: Vec<(&str, Treat, bool)> = vec![
        (
            "",
            Box::new(|mut stream| {
                read_request(&stream);
                // In two pieces, as a busy machine may have it.
                let answer = released();
                let (head, tail) = answer.split_at(answer.len() / 2);
                let _ = stream.write_all(head).and_then(|()| stream.write_all(tail));
            }),
            false,
        ),
        (
            TOO_LATE,
            Box::new(|stream| {
                read_request(&stream);
                hold(stream);
            }),
            true,
        ),
        (
            TOO_LATE,
            Box::new(|mut stream| {
                // Half an answer, and nothing more.
                let _ = stream.write_all(&released()[..5]);
                hold(stream);
            }),
            true,
        ),
        ("", Box::new(drop), true),
        ("", Box::new(|mut stream| drop(stream.write_all(b"\xff\xfe nonsense\n"))), true),
        ("", Box::new(|mut stream| drop(stream.write_all(&[b'x'; 1 << 20]))), true),
        (
            "the agent answered",
            Box::new(|mut stream| {
                read_request(&stream);
                let _ = stream.write_all(&encode_line(&SocketAnswer::Noted).expect("it fits"));
            }),
            true,
        ),
        (
            "too busy",
            Box::new(|mut stream| {
                read_request(&stream);
                let refusal = SocketAnswer::Error { reason: "too busy".into() };
                let _ = stream.write_all(&encode_line(&refusal).expect("it fits"));
            }),
            true,
        ),
    ];
    for (number, (words, treat, stops)) in agents.into_iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path()).expect("opens");
        let mut work = Work::recorded_in(&run_dir);
        agent(&run_dir, treat);
        let begun = boottime();
        let mut command = hook(folder.path());
        // One that never answers uses it up; any other has time to on a busy machine.
        let timeout_ms = if words == TOO_LATE { "200" } else { "9000" };
        command.env("TEST_AGENT_TIMEOUT_MS", timeout_ms);
        let output = ends(command);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{number}: {said}");
        assert!(said.contains(words), "{number}: {said}");
        assert_eq!(said.contains(TOO_LATE), words == TOO_LATE, "{number}: {said}");
        gleaner_calm::assert_within(words, boottime().since(begun), NO_DEADLINE);
        assert_eq!(said.contains("without the agent"), stops, "{number}: {said}");
        assert_eq!(run_dir.bookings().expect("lists").len(), 1, "{number}");
        assert!(!stops || work.was_killed(), "{number}");
    }
}

/// Keeps a connection open, and never says anything on it again.
fn hold(stream: UnixStream) {
    std::mem::forget(stream);
}

#[test]
fn hooks_that_are_killed_anywhere_leave_a_sound_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let mut ended = 0;
    for number in 0..60_u64 {
        let mut work = Work::recorded_in(&run_dir);
        let mut killed = hook(folder.path()).spawn().expect("starts");
        // At another moment each time, from before its first instruction to after its last.
        let moment = boottime() + Span::from_micros(number * 150);
        while boottime() < moment {
            std::hint::spin_loop();
        }
        killed.kill().expect("ours");
        ended += u32::from(killed.wait().expect("ours").success());
        let before = run_dir.epoch().expect("it reads").count;
        run_dir.bookings().expect("they list");
        // The next one counts, frees the host, and ends what it begins.
        assert_eq!(ends(hook(folder.path())).status.code(), Some(0));
        assert_eq!(run_dir.epoch().expect("it reads").count, before + 1);
        assert_eq!(run_dir.bookings().expect("they list").len(), 1);
        assert!(work.was_killed());
        let mut postflight = hook(folder.path());
        postflight.env("TEST_POSTFLIGHT", "1");
        assert_eq!(ends(postflight).status.code(), Some(0));
        assert!(run_dir.bookings().expect("they list").is_empty());
    }
    eprintln!("{ended} of 60 were done before they were killed");
    assert_eq!(run_dir.groups().expect("they list"), []);
}

/// A hook whose process has a limit of the shell's `ulimit`.
fn limited(run_dir: &Path, limit: &str) -> Command {
    let inner = hook(run_dir);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        command.env(name, value.expect("set, not removed"));
    }
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command
}

#[test]
fn a_process_that_may_write_no_files_stops_the_work_all_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let mut work = Work::recorded_in(&run_dir);
    let output = ends(limited(folder.path(), "-f 0"));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("raise the epoch"), "{said}");
    assert!(work.was_killed(), "{said}");
}

#[test]
fn a_process_with_little_memory_or_few_files_ends_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    // This very program needs some memory to start at all, and the test's own machinery to get to
    // the hook: from there on it is the hook that ends with 0.
    let starts = |limit: &str| {
        let mut command = limited(folder.path(), limit);
        command.env_remove("TEST_RUN_DIR");
        ends(command).status.success()
    };
    let mut done = 0;
    for kib in [4_u32, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512].map(|mib| mib << 10) {
        let limit = format!("-v {kib}");
        if !starts(&limit) {
            continue;
        }
        let mut work = Work::recorded_in(&run_dir);
        let output = ends(limited(folder.path(), &limit));
        assert_eq!(output.status.code(), Some(0), "{limit}: {}", stderr(&output));
        assert!(work.was_killed(), "{limit}: {}", stderr(&output));
        done += 1;
    }
    assert!(done > 2, "only {done} limits let this program start");
    for files in [6, 8, 12, 24] {
        let limit = format!("-n {files}");
        if starts(&limit) {
            let output = ends(limited(folder.path(), &limit));
            assert_eq!(output.status.code(), Some(0), "{limit}: {}", stderr(&output));
        }
    }
}

#[test]
fn a_socket_that_is_none_or_may_not_be_used_is_no_agent() {
    use std::os::unix::fs::PermissionsExt;
    for number in 0..3 {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path()).expect("opens");
        let mut work = Work::recorded_in(&run_dir);
        let path = run_dir.socket_path();
        match number {
            0 => fs::write(&path, "no socket").expect("writes"),
            1 => fs::create_dir(&path).expect("makes"),
            _ => {
                drop(UnixListener::bind(&path).expect("binds"));
                fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("sets");
            }
        }
        let output = ends(hook(folder.path()));
        assert_eq!(output.status.code(), Some(0), "{number}");
        assert!(stderr(&output).contains("without the agent"), "{number}: {}", stderr(&output));
        assert!(work.was_killed(), "{number}");
    }
}

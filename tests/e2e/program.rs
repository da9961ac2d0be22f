//! The binary under test, run to its end.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::de::DeserializeOwned;

use crate::patience::PATIENCE;

/// The binary with these arguments and nothing of this process's environment.
pub(crate) fn gleaner<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    bare(env!("CARGO_BIN_EXE_gleaner"), arguments)
}

/// The binary that is a hook and nothing else, as [`gleaner`].
pub(crate) fn gleaner_hook<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    bare(env!("CARGO_BIN_EXE_gleaner-hook"), arguments)
}

fn bare<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null());
    command
}

/// What a program said and how it ended.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// Its standard output, where it succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self}");
        self.stdout
    }

    /// Its standard output as JSON, where it succeeded.
    #[track_caller]
    pub(crate) fn json<T: DeserializeOwned>(self) -> T {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    /// That it ended with `code` and said each of `words` on stderr.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self}");
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in: {self}");
        }
        assert!(!self.stderr.contains("panicked"), "{self}");
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr } = self;
        write!(f, "code {code:?}\n-- stdout\n{stdout}\n-- stderr\n{stderr}")
    }
}

/// Puts a program in its place by another process: what this one writes is busy while a child of
/// another test has it open.
#[track_caller]
pub(crate) fn install(from: &Path, to: &Path) {
    run(Command::new("install").args(["-m", "755"]).args([from, to])).ok();
}

/// Makes a program of this text, in the same way.
#[track_caller]
pub(crate) fn write_program(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).expect("written");
    install(&draft, path);
    fs::remove_file(&draft).expect("removed");
}

/// Runs a program to its end, which must come in time.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Said {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let stdout = reader(child.stdout.take().expect("piped"));
    let stderr = reader(child.stderr.take().expect("piped"));
    let status = wait(&mut child);
    let text = |reader: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().expect("it reads")).into_owned()
    };
    let said =
        Said { code: status.and_then(|s| s.code()), stdout: text(stdout), stderr: text(stderr) };
    assert!(status.is_some(), "{command:?} does not end; {said}");
    said
}

fn reader(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// Waits for the end of a process; one that does not come in time is killed, and none is given.
pub(crate) fn wait(child: &mut Child) -> Option<ExitStatus> {
    if let Ok(Some(status)) = child.try_wait() {
        return Some(status);
    }
    let in_time = has_ended(child.id().cast_signed());
    if !in_time {
        let _ = child.kill();
    }
    let status = child.wait().expect("our own child");
    in_time.then_some(status)
}

/// Whether a process ends in time; one that is gone already has.
fn has_ended(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return true };
    let Ok(watched) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let mut fds = [PollFd::new(&watched, PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => {}
            ended => return matches!(ended, Ok(1)),
        }
    }
}

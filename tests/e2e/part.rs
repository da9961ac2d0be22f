//! A long-running part: a broker, a monitor or an agent.
//!
//! # Invariants
//! - It does not outlive the test, however that ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, set_parent_process_death_signal, waitid,
};

use crate::patience::PATIENCE;
use crate::program;

/// A running part.
pub(crate) struct Part {
    name: String,
    log: PathBuf,
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Part {
    /// Starts it; its stderr is added to the log.
    pub(crate) fn start(name: &str, mut command: Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("a log");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        end_with_test(&mut command);
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { name: name.into(), log: log.into(), child, stdout }
    }

    /// Waits for the line in which it says that it is ready; its status where it ends before.
    pub(crate) fn ready_or_ended(&mut self) -> Result<String, ExitStatus> {
        let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let mut fds = [PollFd::new(self.stdout.get_ref(), PollFlags::IN)];
        let ready = poll(&mut fds, Some(&limit));
        assert_eq!(ready, Ok(1), "{} says nothing:\n{}", self.name, self.said());
        let mut line = String::new();
        match self.stdout.read_line(&mut line).expect("text") {
            0 => Err(self.ended()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Waits for that line.
    #[track_caller]
    pub(crate) fn ready(&mut self) -> String {
        match self.ready_or_ended() {
            Ok(line) => line,
            Err(status) => panic!("{} ended with {status}:\n{}", self.name, self.said()),
        }
    }

    /// Waits until it says where it listens.
    #[track_caller]
    pub(crate) fn listening(&mut self) -> String {
        let line = self.ready();
        line.strip_prefix("listening on ").expect("the line says where").to_owned()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Stops it where it stands: it lives, and answers nobody.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        let pid = WaitId::Pid(Pid::from_raw(self.pid()).expect("a process"));
        let stopped = waitid(pid, WaitIdOptions::STOPPED).expect("our own child");
        assert!(stopped.is_some_and(|status| status.stopped()), "{} has stopped", self.name);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// `kill -9`; nothing of the process is left when this returns.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it as an administrator does.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_none()
    }

    /// All that it has logged.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn ended(&mut self) -> ExitStatus {
        program::wait(&mut self.child)
            .unwrap_or_else(|| panic!("{} does not end:\n{}", self.name, self.said()))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid()).expect("a process");
        kill_process(pid, signal).expect("it runs");
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Has the kernel kill the process when the thread of its test ends.
#[expect(unsafe_code, reason = "the death signal has to be asked for by the child itself")]
pub(crate) fn end_with_test(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call, and neither allocates nor
    // locks.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

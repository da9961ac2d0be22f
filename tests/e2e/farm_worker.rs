//! A farm's worker on a host, as far as its children go: for farm managers that call no hook.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use gleaner_protocol::Time;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::part::end_with_test;
use crate::program::write_program;

/// A process of the worker's name that starts what it is told.
pub(crate) struct FarmWorker {
    _folder: TempDir,
    child: Child,
    said: BufReader<ChildStdout>,
}

/// Reads commands and has each be a child of its own.
const SCRIPT: &str = "#!/bin/sh\nwhile read -r line; do sh -c \"$line\" & done\nwait\n";

/// Says the time, in microseconds since the machine booted, just before it starts a child, and which
/// process that is.
const STAMPING: &str = "#!/usr/bin/python3
import os, sys, time
for line in sys.stdin:
    stamp = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    child = os.posix_spawn('/bin/sleep', ['sleep', '1000'], {})
    print(child, stamp, flush=True)
";

impl FarmWorker {
    pub(crate) fn start(name: &str) -> Self {
        Self::running(name, SCRIPT)
    }

    /// One for [`FarmWorker::starts_stamped`].
    pub(crate) fn stamping(name: &str) -> Self {
        Self::running(name, STAMPING)
    }

    fn running(name: &str, script: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("worker-").tempdir().expect("a folder");
        let program = folder.path().join(name);
        write_program(&program, script);
        let mut command = Command::new(&program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // With all its children, so that none is left.
        command.process_group(0);
        end_with_test(&mut command);
        let mut child = command.spawn().expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        Self { _folder: folder, child, said }
    }

    /// Starts a child; returns when that says so, with its process number.
    pub(crate) fn starts(&mut self, variables: &str) -> i32 {
        let line = format!("exec env {variables} sh -c 'echo $$; exec sleep 1000'\n");
        let input = self.child.stdin.as_mut().expect("piped");
        input.write_all(line.as_bytes()).expect("it reads");
        let mut said = String::new();
        self.said.read_line(&mut said).expect("text");
        said.trim().parse().expect("its number")
    }

    /// Starts a child, with its process number and the time just before.
    pub(crate) fn starts_stamped(&mut self) -> (i32, Time) {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
        let mut said = String::new();
        self.said.read_line(&mut said).expect("text");
        let (child, stamp) = said.trim().split_once(' ').expect("two numbers");
        let stamp = Time::from_micros(stamp.parse().expect("a time"));
        (child.parse().expect("its number"), stamp)
    }

    /// Starts children that end at once, one after another.
    pub(crate) fn starts_short_ones(&mut self, count: usize) {
        let input = self.child.stdin.as_mut().expect("piped");
        input.write_all("exec true\n".repeat(count).as_bytes()).expect("it reads");
    }
}

impl Drop for FarmWorker {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

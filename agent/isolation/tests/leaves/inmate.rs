//! A shell in a leaf, and what is seen of it from outside.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gleaner_isolation::Leaf;
use gleaner_protocol::{Span, boottime};

/// Longest wait for something that has to happen.
const PATIENCE: Span = Span::from_secs(60);

/// A shell in a leaf; it and what it starts.
pub(crate) struct Inmate(Child);

impl Inmate {
    pub(crate) fn start(leaf: &Leaf, script: &str) -> Self {
        let doors = leaf.doors().expect("doors");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::null());
        let enter = move || doors.iter().try_for_each(enter);
        // SAFETY: `write` is async-signal-safe, and nothing is allocated around it.
        #[expect(unsafe_code, reason = "to enter a group before exec")]
        let command = unsafe { command.pre_exec(enter) };
        Self(command.spawn().expect("a shell"))
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.0.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    /// A line that is a process number.
    pub(crate) fn pid(&mut self) -> i32 {
        self.line().parse().expect("a number")
    }
}

impl Drop for Inmate {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Enters the group behind a file `cgroup.procs`.
pub(crate) fn enter(door: &OwnedFd) -> std::io::Result<()> {
    assert!(door.as_raw_fd() > 2);
    rustix::io::write(door, b"0").map(drop).map_err(Into::into)
}

/// CPU time in clock ticks, or none where it has ended.
pub(crate) fn cpu_ticks(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<u64>().expect("a number");
    (fields[0] != "Z").then(|| ticks(11) + ticks(12))
}

/// How often a process's groups were held back, for they had used up their share.
pub(crate) fn throttled(pid: i32) -> u64 {
    let count = |text: String| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix("nr_throttled "))?;
        line.parse().ok()
    };
    files_of(pid, "cpu.stat").into_iter().filter_map(count).sum()
}

/// What this file says in each of a process's groups that has it.
pub(crate) fn files_of(pid: i32, name: &str) -> Vec<String> {
    let listed = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("alive");
    let groups = listed.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let groups: Vec<&str> = groups.filter(|path| *path != "/").collect();
    let mounts = fs::read_to_string("/proc/self/mounts").expect("there");
    let points = mounts.lines().filter(|line| line.contains(" cgroup"));
    let points = points.filter_map(|line| line.split(' ').nth(1));
    let all = points.flat_map(|point| groups.iter().map(move |path| format!("{point}{path}")));
    all.filter_map(|group| fs::read_to_string(format!("{group}/{name}")).ok()).collect()
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = boottime() + PATIENCE;
    while !holds() {
        assert!(boottime() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

//! How much memory this process may have for what it computes, on every host: no control group is
//! needed for it.

use std::fs;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

use crate::limits::RUNNER_MEMORY_MIB;

/// While it lives, this process gets so much memory beyond what it has; a kernel that asks for more
/// ends it. What it starts meanwhile gets no more than that either, each process for itself.
pub(super) struct DataLimit {
    before: Rlimit,
    /// In bytes.
    most: u64,
}

impl DataLimit {
    /// Sets it, in MiB.
    pub(super) fn set(memory_mib: u64) -> Self {
        let before = getrlimit(Resource::Data);
        let held = held_bytes().unwrap_or(RUNNER_MEMORY_MIB << 20);
        let most = held.saturating_add(memory_mib.saturating_mul(1 << 20));
        // Never more than there was.
        let most = before.maximum.map_or(most, |maximum| most.min(maximum));
        let limit = Rlimit { current: Some(most), maximum: before.maximum };
        // Only to lower what one may do oneself: it is not refused.
        let _ = setrlimit(Resource::Data, limit);
        Self { before, most }
    }

    /// Has a process that was just started under it not raise it again.
    pub(super) fn make_hard(&self, child: Pid) {
        let limit = Rlimit { current: Some(self.most), maximum: Some(self.most) };
        // Refused only where it has ended.
        let _ = prlimit(Some(child), Resource::Data, limit);
    }
}

impl Drop for DataLimit {
    fn drop(&mut self) {
        let Rlimit { current, maximum } = self.before;
        let _ = setrlimit(Resource::Data, Rlimit { current, maximum });
    }
}

/// Memory that this process has, as that limit counts it.
fn held_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_is_started_under_it_cannot_raise_it_again() {
        // More than the other tests of this process ever want: it is theirs too for a moment.
        let limit = DataLimit::set(1 << 20);
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "read go; ulimit -H -d; ulimit -S -d"]);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        limit.make_hard(pid.expect("a number"));
        let most = limit.most >> 10;
        drop(limit);
        child.stdin.take().expect("piped").write_all(b"go\n").expect("it reads");
        let said = BufReader::new(child.stdout.take().expect("piped")).lines();
        let limits: Vec<String> = said.collect::<Result<_, _>>().expect("lines");
        assert_eq!(limits, [most.to_string(), most.to_string()]);
        child.wait().expect("ours");
    }
}

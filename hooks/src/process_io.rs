//! What a process has brought to and from disks.

use std::fs;

/// By `/proc/<pid>/io`: of a process with all its threads, and of the children that it took note of.
/// What stays in memory does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessIo {
    /// Read from disks, in bytes.
    pub read_bytes: u64,
    /// Written that goes to disks, in bytes.
    pub written_bytes: u64,
}

impl ProcessIo {
    /// Nothing where it is gone, or may not be looked at.
    #[must_use]
    pub fn of(pid: i32) -> Self {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default())
    }

    /// Both together.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.read_bytes.saturating_add(self.written_bytes)
    }

    fn parse(text: &str) -> Self {
        let count = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
        };
        Self { read_bytes: count("read_bytes:"), written_bytes: count("write_bytes:") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_disks_is_told_from_what_is_in_memory() {
        let text =
            "rchar: 9\nwchar: 7\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n";
        let io = ProcessIo::parse(text);
        assert_eq!(io, ProcessIo { read_bytes: 4_096, written_bytes: 8_192 });
        assert_eq!(io.bytes(), 12_288);
        assert_eq!(ProcessIo::parse(""), ProcessIo::default());
        assert_eq!(ProcessIo::of(-1), ProcessIo::default());
    }
}

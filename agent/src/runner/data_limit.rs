//! How much memory this process may have for what it computes, on every host: no control group is
//! needed for it.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::RUNNER_MEMORY_MIB;

/// While it lives, this process gets so much memory beyond what it has; a kernel that asks for more
/// ends it. What it starts meanwhile gets no more than that either, each process for itself.
pub(super) struct DataLimit(Rlimit);

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
        Self(before)
    }
}

impl Drop for DataLimit {
    fn drop(&mut self) {
        let Rlimit { current, maximum } = self.0;
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

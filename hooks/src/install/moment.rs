//! A moment that outlives a boot as what it is: before that boot.

use gleaner_protocol::{boot_id, boottime};
use serde::{Deserialize, Serialize};

use crate::process_group::ProcessStat;

/// A moment of this machine's, to compare beginnings of processes with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Moment {
    /// The boot that it was in.
    boot: String,
    /// Since then.
    at_ms: u64,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { boot: boot_id(), at_ms: boottime().as_micros() / 1_000 }
    }

    /// Whether the process of this line of `/proc/PID/stat` certainly began later.
    pub(super) fn is_before(&self, stat: &str) -> bool {
        let began = ProcessStat::parse(stat).map(|stat| stat.start_ticks / ticks_per_second());
        // Nothing of an earlier boot runs.
        self.boot != boot_id() || began.is_some_and(|began_s| began_s > self.at_ms / 1_000)
    }
}

fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a process that began so many seconds after the boot.
    fn began_at(seconds: u64) -> String {
        let ticks = seconds * ticks_per_second();
        format!("42 (x) S 7 42 40 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {ticks} 1 2 3")
    }

    #[test]
    fn what_began_later_is_told_from_what_began_before_or_in_the_same_second() {
        let moment = Moment { boot: boot_id(), at_ms: 100_500 };
        for (seconds, later) in [(1, false), (99, false), (100, false), (101, true), (900, true)] {
            assert_eq!(moment.is_before(&began_at(seconds)), later, "{seconds}");
        }
        assert!(!moment.is_before("torn"));
        assert!(Moment { boot: "another".into(), at_ms: 100_500 }.is_before(&began_at(1)));
        let now = Moment::now();
        assert!(!now.is_before(&began_at(now.at_ms / 1_000)));
    }
}

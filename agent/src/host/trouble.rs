//! What of a host itself keeps replicas from running: a full disk, say. Such a replica is given
//! back, and the host takes nothing more for a while.

use gleaner_protocol::{Span, Time};

use crate::harvest::RunResult;
use crate::limits::TROUBLE_REST_MS;

/// How errors of the host are called by the standard library: input and output, no space, a file
/// system that is read only, a quota, no memory.
const OF_HOST: [&str; 5] =
    ["(os error 5)", "(os error 28)", "(os error 30)", "(os error 122)", "(os error 12)"];

/// Trouble of this host, and until when it takes nothing.
#[derive(Debug)]
pub(crate) struct HostTrouble {
    what: String,
    until: Time,
}

impl HostTrouble {
    /// The trouble that kept a replica from running, if it was the host's. The result says so then.
    pub(crate) fn behind(result: &mut RunResult, now: Time) -> Option<Self> {
        let RunResult::CannotRun(reason) = result else { return None };
        if !OF_HOST.iter().any(|words| reason.contains(words)) {
            return None;
        }
        let what = reason.clone();
        *result = RunResult::HostTrouble(std::mem::take(reason));
        Some(Self { what, until: now + Span::from_millis(TROUBLE_REST_MS) })
    }

    /// For people.
    pub(crate) fn told(&self) -> String {
        let seconds = TROUBLE_REST_MS / 1_000;
        format!("{}; this host takes no work, and tries again after {seconds} s", self.what)
    }

    /// When the host tries again.
    pub(crate) fn until(&self) -> Time {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_trouble_of_the_host_and_a_missing_program_is_not() {
        for (error, is_hosts) in [
            (std::io::Error::from_raw_os_error(28), true),
            (std::io::Error::from_raw_os_error(30), true),
            (std::io::Error::from_raw_os_error(122), true),
            (std::io::Error::from_raw_os_error(2), false),
            (std::io::Error::from_raw_os_error(13), false),
        ] {
            let mut result = RunResult::CannotRun(format!("input \"a\": {error}"));
            let trouble = HostTrouble::behind(&mut result, Time::ZERO);
            assert_eq!(trouble.is_some(), is_hosts, "{error}");
            assert_eq!(matches!(result, RunResult::HostTrouble(_)), is_hosts);
            if let Some(trouble) = trouble {
                assert!(trouble.told().contains("input \"a\""), "{}", trouble.told());
                assert!(trouble.until() > Time::ZERO);
            }
        }
        let mut failed = RunResult::Failed { reason: "(os error 28)".into(), cpu_us: 1 };
        assert!(HostTrouble::behind(&mut failed, Time::ZERO).is_none(), "a program says so itself");
    }
}

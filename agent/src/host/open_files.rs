//! Room for open files: what systems give at first is little for a host of many cores.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;
use tracing::warn;

use crate::limits::{OPEN_FILES_MAX, OPEN_FILES_OF_AGENT, OPEN_FILES_PER_SLOT};

/// Fewer files may be open than an agent needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "this process may have {allowed} files open, and {cores} cores need {needed}: raise the limit \
     (`ulimit -n {needed}`, or LimitNOFILE={needed} in the service's unit), or give fewer cores"
)]
pub struct TooFewFiles {
    allowed: u64,
    needed: u64,
    cores: u32,
}

/// Raises this process's limit as far as it may and needs to.
///
/// # Errors
/// An agent that gives so many cores needs more than it may have.
pub(crate) fn make_room(cores: u32) -> Result<(), TooFewFiles> {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
    let mut allowed = now.current;
    if allowed.is_some_and(|current| current < most) {
        match setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..now }) {
            Ok(()) => allowed = Some(most),
            Err(error) => warn!("cannot have more than {allowed:?} files open: {error}"),
        }
    }
    is_enough(allowed, cores)
}

fn is_enough(allowed: Option<u64>, cores: u32) -> Result<(), TooFewFiles> {
    let needed = OPEN_FILES_OF_AGENT + OPEN_FILES_PER_SLOT * u64::from(cores);
    match allowed {
        Some(allowed) if allowed < needed => Err(TooFewFiles { allowed, needed, cores }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_as_much_room_as_may_be_and_is_of_use() {
        make_room(1).expect("a test may open some files");
        let limits = getrlimit(Resource::Nofile);
        let most = limits.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
        assert!(limits.current.is_none_or(|current| current >= most), "{limits:?}");
    }

    #[test]
    fn a_limit_that_is_too_low_is_told_with_one_that_will_do() {
        let error = is_enough(Some(64), 64).expect_err("too few");
        let said = error.to_string();
        assert!(said.contains("64 files") && said.contains("ulimit -n 640"), "{said}");
        assert_eq!(is_enough(Some(640), 64), Ok(()));
        assert_eq!(is_enough(None, 4_096), Ok(()));
    }
}

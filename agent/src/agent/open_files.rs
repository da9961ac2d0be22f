//! Room for open files: what systems give at first is little for a host of many cores.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use crate::limits::OPEN_FILES_MAX;

/// Raises this process's limit as far as it may and needs to.
pub(super) fn make_room() {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
    if now.current.is_none_or(|current| current >= most) {
        return;
    }
    let wanted = Rlimit { current: Some(most), ..now };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        warn!("cannot have more than {:?} files open: {error}", now.current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_as_much_room_as_may_be_and_is_of_use() {
        make_room();
        let limits = getrlimit(Resource::Nofile);
        let most = limits.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
        assert!(limits.current.is_none_or(|current| current >= most), "{limits:?}");
    }
}

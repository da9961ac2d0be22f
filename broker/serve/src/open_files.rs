//! Room for open files: what systems give at first is little for a server.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::{CONNECTIONS_MAX, OPEN_FILES_MAX, OTHER_FILES};

/// Raises this process's limit of open files as far as it may and needs to, says what it is, and
/// returns how many connections fit.
#[must_use]
pub fn room_for_connections() -> usize {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
    let mut files = now.current.unwrap_or(OPEN_FILES_MAX);
    if files < most {
        match setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..now }) {
            Ok(()) => {
                tracing::info!("may have {most} files open at once, raised from {files}");
                files = most;
            }
            Err(error) => tracing::warn!("cannot have more than {files} files open: {error}"),
        }
    }
    let connections = connections_in(files);
    if connections < CONNECTIONS_MAX {
        tracing::warn!(
            "{files} files open at once leave room for {connections} connections: raise `ulimit -n` \
             (LimitNOFILE= of a systemd unit) to {} for {CONNECTIONS_MAX}",
            CONNECTIONS_MAX as u64 + OTHER_FILES,
        );
    }
    connections
}

fn connections_in(files: u64) -> usize {
    let others = OTHER_FILES.min(files / 2);
    usize::try_from(files - others).unwrap_or(usize::MAX).clamp(1, CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_other_files() {
        for (files, connections) in
            [(0, 1), (1, 1), (128, 64), (1_024, 512), (4_096, 3_584), (1 << 20, CONNECTIONS_MAX)]
        {
            assert_eq!(connections_in(files), connections, "{files}");
        }
    }

    #[test]
    fn there_is_as_much_room_as_may_be_and_is_of_use() {
        assert!(room_for_connections() >= 1);
        let limits = getrlimit(Resource::Nofile);
        let most = limits.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
        assert!(limits.current.is_none_or(|current| current >= most), "{limits:?}");
    }
}

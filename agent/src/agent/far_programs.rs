//! Programs of the allow-list that come from a server.
//!
//! They are none of what a render waits for, so the agent starts all the same. But what waits for
//! a server cannot be killed, and closes its host until the server answers.

use std::path::{Path, PathBuf};

use gleaner_hooks::FileSystem;
use tracing::warn;

/// Warns of those that are on a network file system.
pub(super) fn warn_of_far_programs(listed: &[PathBuf]) {
    for program in far(listed, FileSystem::of) {
        warn!(
            "allow_commands: {} is on a network file system, and a task that waits for its server \
             cannot be ended for a render: install it on a local disk of this host",
            program.display()
        );
    }
}

fn far(listed: &[PathBuf], of: impl Fn(&Path) -> FileSystem) -> Vec<&Path> {
    let listed = listed.iter().map(PathBuf::as_path);
    listed.filter(|program| of(program) == FileSystem::Network).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_a_server_is_warned_of_and_nothing_else() {
        let listed = ["/net/bin/tool", "/usr/bin/tool", "/dev/shm/tool"].map(PathBuf::from);
        let of = |path: &Path| match path.to_str() {
            Some("/net/bin/tool") => FileSystem::Network,
            Some("/dev/shm/tool") => FileSystem::Memory,
            _ => FileSystem::Local,
        };
        assert_eq!(far(&listed, of), [Path::new("/net/bin/tool")]);
    }
}

//! Programs of the allow-list that come from a server.
//!
//! They are none of what a render waits for, so the agent starts all the same. But what waits for
//! a server cannot be killed, and closes its host until the server answers. Who asks where a file
//! lies waits for it as well: a thread of its own does.

use std::path::{Path, PathBuf};
use std::thread;

use gleaner_hooks::FileSystem;
use tracing::warn;

/// Warns of those that are on a network file system, as soon as it is known.
pub(crate) fn warn_of_remote_programs(listed: Vec<PathBuf>) {
    let look = move || far(&listed, FileSystem::of).into_iter().for_each(warn_of);
    // Nothing depends on it: where there is no thread to be had nobody is warned.
    let _ = thread::Builder::new().name("gleaner-remote".into()).spawn(look);
}

fn warn_of(program: &Path) {
    warn!(
        "allow_commands: {} is on a network file system, and a task that waits for its server cannot \
         be ended for a render: install it on a local disk of this host",
        program.display()
    );
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

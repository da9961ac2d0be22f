//! The group that an agent moves into where its own has to be empty: one that passes controllers
//! on to its children may hold no process itself.
//!
//! # Invariants
//! - It is removed by its last member, which goes back to where it came from. That is nobody's
//!   to do where other groups live beside it: they need what is passed on to them.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::dir::GroupDir;
use crate::leaf::PREFIX;

/// Moves this process out of `own` into the group beside the enclosure `name`.
pub(crate) fn move_aside(own: &GroupDir, name: &str) -> io::Result<()> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    if own.members().iter().any(|member| *member != pid) {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let aside = GroupDir::make(own.path().join(format!("{name}{ENDING}")))?;
    aside.write("cgroup.procs", "0")
}

/// Whether a group is one that an agent was moved to.
fn is_aside(group: &Path) -> bool {
    let name = group.file_name().and_then(OsStr::to_str);
    let middle = name.and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(ENDING));
    middle.is_some_and(|middle| !middle.is_empty())
}

/// The group that a process came from which is in `group` now, and where enclosures are made.
pub(crate) fn home(group: PathBuf) -> PathBuf {
    if is_aside(&group) { group.parent().map_or(group.clone(), Path::to_owned) } else { group }
}

/// Moves this process back, if it is the last one in the group that was made for the agent of
/// `enclosure` or for one before it, and removes that group. To be called when the enclosure is gone.
/// False where others are in such a group.
pub(crate) fn leave(enclosure: &Path) -> io::Result<bool> {
    let Some(own) = enclosure.parent() else { return Ok(true) };
    let mut is_last = true;
    let own = GroupDir::at(own.to_owned());
    let (asides, others): (Vec<_>, Vec<_>) =
        own.children().into_iter().partition(|child| is_aside(child.path()));
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    for aside in asides {
        let members = aside.members();
        if members.iter().any(|member| *member != pid) {
            is_last = false;
            continue;
        }
        if !members.is_empty() {
            if !others.is_empty() {
                continue;
            }
            let passed_on = own.read("cgroup.subtree_control").unwrap_or_default();
            let stop: Vec<String> =
                passed_on.split_whitespace().map(|controller| format!("-{controller}")).collect();
            if !stop.is_empty() {
                own.write("cgroup.subtree_control", &stop.join(" "))?;
            }
            own.write("cgroup.procs", "0")?;
        }
        match std::fs::remove_dir(aside.path()) {
            // Of another user's agent.
            Err(_) if members.is_empty() => {}
            removed => removed?,
        }
    }
    Ok(is_last)
}

/// End of its name.
const ENDING: &str = "-agent";

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::ability::Provider;
    use crate::hierarchy::hierarchies;

    const NAME: &str = "gleaner-test";
    /// Tells the process below which group it is to play in.
    const GROUP: &str = "GLEANER_TEST_ASIDE";

    fn is_in(group: &GroupDir) -> bool {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        group.members().contains(&pid)
    }

    /// Not a test but a process of its own that the test below starts: to move this one would
    /// move the other tests.
    #[test]
    fn process_that_goes_aside() {
        let Some(path) = std::env::var_os(GROUP) else { return };
        let own = GroupDir::at(path.into());
        let enclosure = own.path().join(NAME);
        let aside = GroupDir::at(own.path().join(format!("{NAME}{ENDING}")));
        own.write("cgroup.procs", "0").expect("entered");
        assert!(leave(&enclosure).expect("nothing to leave"));
        move_aside(&own, NAME).expect("moved");
        assert!(is_in(&aside) && own.members().is_empty());
        let mut other = Command::new("/bin/sleep").arg("1000").spawn().expect("starts");
        assert!(!leave(&enclosure).expect("left alone"), "not the last one");
        assert!(is_in(&aside), "the group is still wanted");
        other.kill().and_then(|()| other.wait()).expect("ours");
        assert!(leave(&enclosure).expect("the last one"));
        assert!(is_in(&own) && !aside.path().exists());
        assert!(move_aside(&GroupDir::at("/no/such/group".into()), NAME).is_err());
    }

    #[test]
    fn who_goes_aside_comes_back_and_leaves_nothing_behind() {
        let unified = hierarchies().expect("/proc").into_iter();
        let unified = unified.filter(|one| one.provider == Provider::Cgroup2);
        for hierarchy in unified {
            let path = hierarchy.own.join(format!("gleaner-test-aside-{}", std::process::id()));
            let Ok(own) = GroupDir::make(path) else { continue };
            let played = play(own.path());
            own.clear_away().expect("removed");
            assert!(played, "see what it said");
        }
    }

    fn play(group: &Path) -> bool {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["--exact", "aside::tests::process_that_goes_aside", "--nocapture"]);
        let status = command.env(GROUP, group).stdin(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }
}

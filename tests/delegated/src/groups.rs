//! Groups that root gives away, and what runs in them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use gleaner_protocol::{Span, boottime};
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

/// `nobody` and `nogroup`.
pub const USER: u32 = 65_534;
/// Where they are at home: nowhere.
const HOME: &str = "/nonexistent";
/// How long a group may take to be empty whose last member was waited for.
const PATIENCE: Span = Span::from_secs(60);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// A group in each hierarchy, made by root for [`USER`]. They go when this is dropped.
#[derive(Debug)]
pub struct Delegated {
    groups: Vec<PathBuf>,
}

impl Delegated {
    /// Makes them.
    ///
    /// # Errors
    /// Only root may.
    pub fn make() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        // No name of ours: what an agent makes is below it.
        let name = format!("delegated-test-{}", std::process::id());
        let mut made = Self { groups: Vec::new() };
        for line in mounts.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, point, "cgroup" | "cgroup2", ..] = words[..] else { continue };
            let (root, group) = (Path::new(point), Path::new(point).join(&name));
            fs::create_dir(&group)?;
            made.groups.push(group.clone());
            for file in ["cpuset.cpus", "cpuset.mems"] {
                // An empty group of cores of version 1 takes no process.
                if root.join("cgroup.clone_children").exists() && root.join(file).exists() {
                    fs::write(group.join(file), fs::read_to_string(root.join(file))?.trim())?;
                }
            }
            chown(&group, Some(USER), Some(USER))?;
            for file in ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"] {
                match chown(group.join(file), Some(USER), Some(USER)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(made)
    }

    /// A command that runs in these groups, as their user.
    ///
    /// # Errors
    /// Where the groups are gone.
    pub fn command(&self, program: impl AsRef<OsStr>) -> io::Result<Command> {
        let open = |group: &PathBuf| {
            File::options().write(true).open(group.join("cgroup.procs")).map(OwnedFd::from)
        };
        let doors = self.groups.iter().map(open).collect::<io::Result<Vec<OwnedFd>>>()?;
        let mut command = Command::new(program);
        command.current_dir("/").stdin(Stdio::null()).env("HOME", HOME);
        // What is root's own, whatever it is, is not to be looked at by somebody else.
        for name in ["XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
            command.env_remove(name);
        }
        let become_user = move || {
            doors.iter().try_for_each(|door| rustix::io::write(door, b"0").map(drop))?;
            set_thread_groups(&[])?;
            set_thread_gid(Gid::from_raw(USER))?;
            set_thread_uid(Uid::from_raw(USER))?;
            Ok(())
        };
        // SAFETY: all of these are one system call each, and nothing is allocated around them.
        #[expect(unsafe_code, reason = "to enter a group as root, and then be root no more")]
        unsafe {
            command.pre_exec(become_user);
        }
        Ok(command)
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for group in &self.groups {
            // Its last member has been waited for, which the kernel tidies up in its own time.
            let gone = || match fs::remove_dir(group) {
                Ok(()) => true,
                Err(error) => error.kind() == ErrorKind::NotFound,
            };
            let end = boottime() + PATIENCE;
            while !gone() && boottime() < end {
                thread::sleep(PAUSE);
            }
            assert!(!group.exists() || thread::panicking(), "{} is left", group.display());
        }
    }
}

//! All the other cases once more, as an ordinary user who was given groups.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::enclosed::{EXPECTED, are_required};
use crate::inmate::{enter, until};

/// `nobody` and `nogroup`.
const USER: u32 = 65_534;
/// Tells this program that it is the one which the test below started.
const AS_USER: &str = "GLEANER_TEST_AS_USER";

/// A group in each hierarchy, made by root for a user.
struct Delegated {
    groups: Vec<PathBuf>,
}

impl Delegated {
    fn make() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let name = format!("gleaner-test-{}-delegated", std::process::id());
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

    fn doors(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |group: &PathBuf| {
            File::options().write(true).open(group.join("cgroup.procs")).map(OwnedFd::from)
        };
        self.groups.iter().map(open).collect()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for group in &self.groups {
            // Its last member has been waited for, which the kernel tidies up in its own time.
            until("it to be empty", || match fs::remove_dir(group) {
                Ok(()) => true,
                Err(error) => error.kind() == ErrorKind::NotFound,
            });
        }
    }
}

#[test]
fn the_same_holds_for_an_ordinary_user_with_groups_of_its_own() {
    if std::env::var_os(AS_USER).is_some() {
        assert!(!rustix::process::geteuid().is_root(), "it is somebody else");
        return;
    }
    if !rustix::process::geteuid().is_root() || !are_required() {
        println!("only root can give groups away, where there are any");
        return;
    }
    let delegated = Delegated::make().expect("root may");
    let doors = delegated.doors().expect("there");
    // A copy that everybody may run.
    let place = tempfile::tempdir().expect("a folder");
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("ours");
    let program = place.path().join("leaves");
    fs::copy(std::env::current_exe().expect("a program"), &program).expect("copied");
    let mut command = Command::new(&program);
    command.current_dir("/").env(AS_USER, "1").env(EXPECTED, "required");
    command.stdin(Stdio::null());
    let become_user = move || {
        doors.iter().try_for_each(enter)?;
        set_thread_groups(&[])?;
        set_thread_gid(Gid::from_raw(USER))?;
        set_thread_uid(Uid::from_raw(USER))?;
        Ok(())
    };
    // SAFETY: all of these are one system call each, and nothing is allocated around them.
    #[expect(unsafe_code, reason = "to enter a group as root, and then be root no more")]
    let command = unsafe { command.pre_exec(become_user) };
    let output = command.output().expect("starts");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("test result: ok"), "as a user it does not");
}

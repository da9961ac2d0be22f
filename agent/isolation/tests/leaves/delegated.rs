//! All the other cases once more, as an ordinary user who was given groups.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gleaner_isolation::{Ability, Choice};
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use tempfile::TempDir;

use crate::enclosed::{EXPECTED, Enclosed, are_required};
use crate::inmate::{enter, until};

/// `nobody` and `nogroup`.
const USER: u32 = 65_534;
/// Tells this program that it is the one which the test below started.
const AS_USER: &str = "GLEANER_TEST_AS_USER";
/// The same, to say what is missing and what mends it.
const SAYS_MENDS: &str = "GLEANER_TEST_SAYS_MENDS";
/// Begins a line of that.
const MEND: &str = "mend: ";

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

/// A copy of this program that everybody may run, and its folder.
fn program_of_everybody() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().expect("a folder");
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("ours");
    let program = place.path().join("leaves");
    // Written by this process, it would be busy while a child of another test has it open still.
    let mut copy = Command::new("cp");
    copy.arg(std::env::current_exe().expect("a program")).arg(&program);
    assert!(copy.status().expect("cp runs").success());
    (place, program)
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
    let (_place, program) = program_of_everybody();
    let mut command = Command::new(&program);
    // Where it has to go aside, all of the process goes: one case after the other.
    command.arg("--test-threads=1");
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

#[test]
fn what_is_said_to_mend_it_does_so_where_nothing_was_given() {
    if std::env::var_os(SAYS_MENDS).is_some() {
        let report = |choice| Enclosed::open(choice, "mends").0.report().abilities;
        for (one, auto) in report(Choice::Cgroup1).into_iter().zip(report(Choice::Auto)) {
            println!("{} is granted: {}", one.ability, one.provider.is_some());
            if let Some(mend) = one.mend {
                println!("{MEND}{mend}");
                // All groups can be frozen and killed in the unified hierarchy, which is asked
                // first.
                let is_of_all = matches!(one.ability, Ability::Freeze | Ability::Kill);
                assert!(is_of_all || auto.mend.as_ref() == Some(&mend), "{auto:?}");
            }
        }
        return;
    }
    let mounts = fs::read_to_string("/proc/self/mounts").expect("there");
    let has_first = mounts.lines().any(|line| line.split(' ').nth(2) == Some("cgroup"));
    if !rustix::process::geteuid().is_root() || !are_required() || !has_first {
        println!("only root can give groups away, where there are any of version 1");
        return;
    }
    let (_place, program) = program_of_everybody();
    // A shell of root's does what it is told, and becomes somebody else.
    let ask = |mends: &[String]| {
        let mut lines: Vec<&str> =
            mends.iter().map(|mend| mend.trim_start_matches("sudo ")).collect();
        let name = "delegated::what_is_said_to_mend_it_does_so_where_nothing_was_given";
        let user = format!(
            "exec setpriv --reuid {USER} --regid {USER} --clear-groups {} --exact {name} --nocapture",
            program.display()
        );
        lines.push(&user);
        let mut shell = Command::new("/bin/sh");
        shell.args(["-e", "-c", &lines.join("\n")]).current_dir("/").env(SAYS_MENDS, "1");
        let output = shell.stdin(Stdio::null()).output().expect("starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let trouble = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}{trouble}");
        said
    };
    let of = |said: &str| -> Vec<String> {
        let mut all: Vec<String> =
            said.lines().filter_map(|line| line.strip_prefix(MEND)).map(str::to_owned).collect();
        all.sort();
        all.dedup();
        all
    };
    let before = ask(&[]);
    assert!(before.contains("freeze is granted: false"), "{before}");
    let mends = of(&before);
    let given: Vec<PathBuf> = mends.iter().filter_map(|mend| group_in(mend)).collect();
    let after = ask(&mends);
    for group in &given {
        // Its last member has been waited for, which the kernel tidies up in its own time.
        until("it to be empty", || fs::remove_dir(group).is_ok() || !group.exists());
    }
    assert!(!given.is_empty(), "{before}");
    assert!(after.contains("freeze is granted: true"), "{mends:?}: {after}");
    assert_eq!(of(&after), Vec::<String>::new(), "{after}");
}

/// The group that a command gives away.
fn group_in(mend: &str) -> Option<PathBuf> {
    let (_, to) = mend.split_once("install -d -o ")?;
    to.split(' ').nth(1).map(Into::into)
}

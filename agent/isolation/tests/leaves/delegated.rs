//! All the other cases once more, as an ordinary user who was given groups.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use gleaner_delegated::{Delegated, EverybodysProgram, USER};
use gleaner_isolation::{Ability, Choice};

use crate::enclosed::{EXPECTED, Enclosed, are_required};
use crate::inmate::until;

/// Tells this program that it is the one which the test below started.
const AS_USER: &str = "GLEANER_TEST_AS_USER";
/// The same, to say what is missing and what mends it.
const SAYS_MENDS: &str = "GLEANER_TEST_SAYS_MENDS";
/// Begins a line of that.
const MEND: &str = "mend: ";

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
    let program = EverybodysProgram::copy().expect("there is room");
    let mut command = delegated.command(program.path()).expect("there");
    // Where it has to go aside, all of the process goes: one case after the other.
    command.arg("--test-threads=1").env(AS_USER, "1").env(EXPECTED, "required");
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
    let program = EverybodysProgram::copy().expect("there is room");
    // A shell of root's does what it is told, and becomes somebody else.
    let ask = |mends: &[String]| {
        let mut lines: Vec<&str> =
            mends.iter().map(|mend| mend.trim_start_matches("sudo ")).collect();
        let name = "delegated::what_is_said_to_mend_it_does_so_where_nothing_was_given";
        let user = format!(
            "exec setpriv --reuid {USER} --regid {USER} --clear-groups {} --exact {name} --nocapture",
            program.path().display()
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

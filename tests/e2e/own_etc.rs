//! Tests that write to `/etc`: each in one of its own, over the machine's, which sees nothing of it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Set where this program runs as such a test.
const OWN_ETC: &str = "GLEANER_TEST_OWN_ETC";

/// Where such a test has room, and the program's test of this name does something.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(OWN_ETC).map(PathBuf::from)
}

/// Runs a test of this program by its name, in an `/etc` of its own.
pub(crate) fn run_in(test: &str) {
    let mount = tempfile::tempdir().expect("a folder");
    let script = "mount -t tmpfs tmpfs \"$0\" && mkdir \"$0/up\" \"$0/work\" &&
        mount -t overlay overlay -o lowerdir=/etc,upperdir=$0/up,workdir=$0/work /etc || exit 77
        exec \"$1\" --exact \"$2\" --nocapture";
    let run = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(mount.path())
        .arg(std::env::current_exe().expect("this test"))
        .arg(test)
        .env(OWN_ETC, mount.path())
        .output();
    let said = run.as_ref().map_or("", |run| str::from_utf8(&run.stdout).expect("text"));
    let errors = run.as_ref().map_or("".into(), |run| String::from_utf8_lossy(&run.stderr));
    eprintln!("{said}\n{errors}");
    match run.as_ref().map(|run| run.status.code()) {
        // A test by a name that there is none of succeeds too.
        Ok(Some(0)) => assert!(said.contains("1 passed"), "{test} was not run"),
        // `unshare` or `mount` may not.
        Ok(Some(1 | 77)) | Err(_) if !may_mount() => {
            eprintln!("NOT TESTED: no right to mount over /etc here; run this as root");
        }
        other => panic!("in an /etc of its own: {other:?}"),
    }
}

/// Whether this process has the right to mount (`CAP_SYS_ADMIN`).
fn may_mount() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("it says");
    let effective = u64::from_str_radix(effective.trim(), 16).expect("a number");
    effective & CAP_SYS_ADMIN != 0
}

//! Tests that fill a disk: each with a small file system of its own, which nobody else sees.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set where this program runs as such a test.
const FOLDER: &str = "GLEANER_TEST_SMALL_DISK";

/// Where it is mounted, and the program's test of this name does something.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Writes to a file until nothing more fits on its disk.
pub(crate) fn fill(path: &Path) {
    let mut file = File::options().create(true).append(true).open(path).expect("made");
    while file.write_all(&[1; 512]).is_ok() {}
    assert!(fs::write(path.with_extension("more"), "x").is_err(), "the disk is full");
}

/// Runs a test of this program by its name, with such a disk; whether that may be done here, which
/// needs the right to mount in a namespace of its own. Where it may not, stderr says so.
#[must_use]
pub(crate) fn run_with_one(test: &str) -> bool {
    let mount = tempfile::tempdir().expect("a folder");
    let script = "mount -t tmpfs -o size=256k tmpfs \"$0\" || exit 77
        exec \"$1\" --exact \"$2\" --nocapture";
    for flags in [&["-m"][..], &["-r", "-m"]] {
        let run = Command::new("unshare")
            .args(flags)
            .args(["sh", "-c", script])
            .arg(mount.path())
            .arg(std::env::current_exe().expect("this test"))
            .arg(test)
            .env(FOLDER, mount.path())
            .output();
        let said = run.as_ref().map_or("", |run| str::from_utf8(&run.stdout).expect("text"));
        let errors = run.as_ref().map_or("".into(), |run| String::from_utf8_lossy(&run.stderr));
        eprintln!("{said}\n{errors}");
        match run.as_ref().map(|run| run.status.code()) {
            // A test by a name that there is none of succeeds too.
            Ok(Some(0)) => {
                assert!(said.contains("1 passed"), "{test} was not run");
                return true;
            }
            // `unshare` or `mount` may not.
            Ok(Some(1 | 77)) | Err(_) => {}
            other => panic!("on the small disk: {other:?}"),
        }
    }
    eprintln!("no right to mount a small file system here: not tested with a full disk");
    false
}

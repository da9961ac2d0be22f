//! A program that runs itself where such a disk is mounted.

use std::path::PathBuf;
use std::process::Command;

/// Set where this program runs as such a test.
const FOLDER: &str = "GLEANER_TEST_SMALL_DISK";
/// What `mount` may not is told from what a test ends with.
const MAY_NOT: i32 = 77;

/// Where it is mounted, and the program's test of this name does something.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Runs a test of this program by its whole name, with such a disk of this size; whether that may be
/// done here, which needs the right to mount in a namespace of its own. Where it may not, stderr says so.
///
/// # Panics
/// If the test fails, or there is none of this name.
#[must_use]
pub fn run_with_one(kib: u32, test: &str) -> bool {
    let mount = tempfile::tempdir().expect("a folder");
    let script = format!(
        "mount -t tmpfs -o size={kib}k tmpfs \"$0\" || exit {MAY_NOT}
        exec \"$1\" --exact \"$2\" --nocapture"
    );
    for flags in [&["-m"][..], &["-r", "-m"]] {
        let run = Command::new("unshare")
            .args(flags)
            .args(["sh", "-c", &script])
            .arg(mount.path())
            .arg(std::env::current_exe().expect("this test"))
            .arg(test)
            .env(FOLDER, mount.path())
            .output();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = run.as_ref().map(|run| text(&run.stdout)).unwrap_or_default();
        let errors = run.as_ref().map(|run| text(&run.stderr)).unwrap_or_default();
        eprintln!("{said}\n{errors}");
        match run.as_ref().map(|run| run.status.code()) {
            // A test by a name that there is none of succeeds too.
            Ok(Some(0)) => {
                assert!(said.contains("1 passed"), "{test} was not run");
                return true;
            }
            // `unshare` or `mount` may not.
            Ok(Some(1 | MAY_NOT)) | Err(_) => {}
            other => panic!("on the small disk: {other:?}"),
        }
    }
    eprintln!("no right to mount a small file system here: not tested with a full disk");
    false
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::{fill, fill_but};

    /// Not a test by itself: runs where the small file system is mounted.
    #[test]
    fn on_one() {
        let Some(folder) = folder() else { return };
        let filler = folder.join("filler");
        fill_but(&filler, 64 << 10);
        std::fs::write(folder.join("small"), [1; 32 << 10]).expect("there is space");
        std::fs::write(folder.join("large"), [1; 64 << 10]).expect_err("there is none");
        fill(&filler);
    }

    #[test]
    fn a_test_is_run_with_one_and_a_name_without_a_test_is_noticed() {
        if run_with_one(256, "disk::tests::on_one") {
            let unknown = || run_with_one(256, "disk::tests::nobody");
            assert!(catch_unwind(unknown).is_err(), "it was taken for one that passed");
        }
    }
}

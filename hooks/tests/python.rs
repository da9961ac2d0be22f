//! The hooks that managers run in their own Python, driven with stand-ins of the managers'
//! modules.

use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn the_hooks_in_python_do_what_they_should_and_raise_nothing() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/tests");
    let output = Command::new("python3")
        // Nothing is left in the folders.
        .args(["-B", "-m", "unittest", "discover", "--start-directory"])
        .arg(&tests)
        .stdin(Stdio::null())
        .output()
        .expect("python3 is there: tests/run installs it");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let ran = said.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next());
    let ran: u32 = ran.and_then(|ran| ran.parse().ok()).expect("it says how many ran");
    assert!(ran >= 36, "only {ran} tests were found");
}

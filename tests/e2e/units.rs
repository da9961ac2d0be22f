//! The systemd units, as systemd judges them where it is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use gleaner_calm::Turn;

use crate::program::run;

/// Worst exposure that `systemd-analyze security` may find, in tenths.
const EXPOSURE_MAX: &str = "40";

fn is_installed() -> bool {
    Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_ok_and(|said| said.status.success())
}

#[test]
fn systemd_takes_the_units_as_they_are() {
    let _turn = Turn::shared();
    if !is_installed() {
        println!("no systemd-analyze here");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (path, program, manager) in [
        ("agent/systemd/gleaner-agent.service", "/usr/local/bin/gleaner", "--system"),
        ("agent/systemd/gleaner-agent-desktop.service", "%h/.local/bin/gleaner", "--user"),
        ("broker/systemd/gleaner-broker.service", "/usr/local/bin/gleaner", "--system"),
        ("resource-monitor/systemd/gleaner-monitor.service", "/usr/local/bin/gleaner", "--system"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let unit = path.file_name().expect("a unit").to_str().expect("plain");
        let text = fs::read_to_string(&path).expect("it is there");
        assert!(text.contains(&format!("\nExecStart={program} ")), "{unit}");
        assert!(!unit.contains("agent") || text.contains("\nDelegate=yes\n"), "{unit}");
        // A program that is there; nothing is started.
        let text = text.replace(program, env!("CARGO_BIN_EXE_gleaner"));
        let path = folder.path().join(unit);
        fs::write(&path, text).expect("written");
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", manager, "--man=no"]).arg(&path);
        verify.env("XDG_RUNTIME_DIR", folder.path());
        let said = run(&mut verify);
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{unit}: {said}");
        if manager == "--system" {
            let mut security = Command::new("systemd-analyze");
            security.args(["security", "--offline=true", "--threshold", EXPOSURE_MAX]);
            let said = run(security.arg(&path));
            assert_eq!(said.code, Some(0), "{unit} is too exposed: {said}");
        }
    }
}

//! The systemd units, as systemd judges them where it is installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use gleaner_calm::Turn;
use serde_json::Value;

use crate::program::{Said, run};

/// Worst exposure that `systemd-analyze security` may find, in tenths.
const EXPOSURE_MAX: &str = "40";

fn is_installed() -> bool {
    Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_ok_and(|said| said.status.success())
}

fn verify(manager: &str, unit: &Path) -> Said {
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", manager, "--man=no"]).arg(unit);
    verify.env("XDG_RUNTIME_DIR", unit.parent().expect("it is in one"));
    run(&mut verify)
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
        for line in ["Delegate=yes", "WatchdogSec=30s", "WatchdogSignal=SIGKILL"] {
            assert!(!unit.contains("agent") || text.contains(&format!("\n{line}\n")), "{unit}");
        }
        // A program that is there; nothing is started.
        let text = text.replace(program, env!("CARGO_BIN_EXE_gleaner"));
        let path = folder.path().join(unit);
        fs::write(&path, text).expect("written");
        let said = verify(manager, &path);
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{unit}: {said}");
        if manager == "--system" {
            let mut security = Command::new("systemd-analyze");
            security.args(["security", "--offline=true", "--threshold", EXPOSURE_MAX]);
            let said = run(security.arg(&path));
            assert_eq!(said.code, Some(0), "{unit} is too exposed: {said}");
        }
    }
}

/// What `systemd-analyze security` says that a service may do.
fn rights(unit: &Path) -> BTreeSet<String> {
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--json=short"]).arg(unit);
    let said: Vec<Value> = run(&mut security).json();
    let open = said.iter().filter(|one| one["set"] == false);
    open.map(|one| one["json_field"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn the_right_to_watch_workers_is_added_to_the_agents_unit_and_no_other() {
    let _turn = Turn::shared();
    if !is_installed() {
        println!("no systemd-analyze here");
        return;
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("agent/systemd");
    let folder = tempfile::tempdir().expect("a folder");
    let unit = folder.path().join("gleaner-agent.service");
    let text = fs::read_to_string(sources.join("gleaner-agent.service")).expect("it is there");
    let text = text.replace("/usr/local/bin/gleaner", env!("CARGO_BIN_EXE_gleaner"));
    fs::write(&unit, text).expect("written");
    let before = rights(&unit);

    let beside = folder.path().join("gleaner-agent.service.d");
    fs::create_dir(&beside).expect("a folder");
    fs::copy(sources.join("watch-workers.conf"), beside.join("watch-workers.conf"))
        .expect("copied");
    let said = verify("--system", &unit);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said}");
    let now = rights(&unit);
    let added: Vec<&str> = now.difference(&before).map(String::as_str).collect();
    let expected = [
        "CapabilityBoundingSet_CAP_NET_ADMIN",
        "CapabilityBoundingSet_CAP_SYS_PTRACE",
        "RestrictAddressFamilies_AF_NETLINK",
    ];
    assert_eq!(added, expected);
    assert!(now.is_superset(&before), "nothing is taken away: {before:?} {now:?}");
}

/// Puts the monitor's unit, and a file beside it, into a folder; what it may do with and without that.
fn monitor_with(folder: &Path, beside: &str) -> [BTreeSet<String>; 2] {
    let unit = folder.join("gleaner-monitor.service");
    let from = "resource-monitor/systemd/gleaner-monitor.service";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(from)).expect("there");
    let text = text.replace("/usr/local/bin/gleaner", env!("CARGO_BIN_EXE_gleaner"));
    fs::write(&unit, text).expect("written");
    let before = rights(&unit);
    let folder = folder.join("gleaner-monitor.service.d");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("poll.conf"), beside).expect("written");
    let said = verify("--system", &unit);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{beside}: {said}");
    [before, rights(&unit)]
}

/// The part of a page that goes into a file beside the unit, without what it is indented by.
fn beside_unit(page: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = fs::read_to_string(page).expect("it is there");
    let lines = text.lines().map(str::trim).skip_while(|line| *line != "[Service]");
    let lines = lines.take_while(|line| !line.starts_with("```") && *line != "END");
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn what_polls_need_is_added_to_the_monitors_unit_and_no_more() {
    let _turn = Turn::shared();
    if !is_installed() {
        println!("no systemd-analyze here");
        return;
    }
    for (page, expected) in [
        ("hooks/README.md", &[][..]),
        (
            "hooks/openpbs/README.md",
            &["AmbientCapabilities", "CapabilityBoundingSet_CAP_NET_BIND_SERVICE_BROADCAST_RAW)"],
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let beside = beside_unit(page);
        assert!(beside.lines().count() > 1, "{page}: {beside}");
        let [before, now] = monitor_with(folder.path(), &beside);
        let added: Vec<&str> = now.difference(&before).map(String::as_str).collect();
        assert_eq!(added, expected, "{page}");
        assert!(now.is_superset(&before), "{page}: {before:?} {now:?}");
    }
}

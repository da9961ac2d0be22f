//! `gleaner farm`, on a tree of another system.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gleaner_calm::Turn;
use serde_json::Value;

use crate::program::{Said, gleaner, run, write_program};

/// A host's tree with Slurm's configuration and the program.
struct Image {
    root: tempfile::TempDir,
}

const CONF: &str = "ClusterName=farm\nNodeName=n1 CPUs=4\n";

impl Image {
    fn new() -> Self {
        let image = Self { root: tempfile::tempdir().expect("a folder") };
        let program = image.path("usr/local/bin/gleaner");
        for folder in [program.parent().expect("below"), &image.path("etc/slurm")] {
            fs::create_dir_all(folder).expect("made");
        }
        write_program(&program, "#!/bin/sh\n");
        fs::write(image.path("etc/slurm/slurm.conf"), CONF).expect("written");
        image
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn farm(&self, action: &str, farm: &str, more: &[&str]) -> Said {
        let mut command = gleaner(["farm", action, "--farm", farm, "--root"]);
        if action == "install" && !more.contains(&"--program") {
            command.arg(self.root.path()).args(["--program", "/usr/local/bin/gleaner"]);
        } else {
            command.arg(self.root.path());
        }
        run(command.args(more))
    }

    fn conf(&self) -> String {
        fs::read_to_string(self.path("etc/slurm/slurm.conf")).expect("there")
    }
}

#[test]
fn hooks_are_installed_checked_and_taken_away() {
    let _turn = Turn::shared();
    let image = Image::new();
    let would = image.farm("install", "slurm", &["--dry-run", "--host", "n1"]).ok();
    for word in ["would write /etc/gleaner/hook.env", "+ Prolog=/etc/gleaner/hooks/slurm/prolog"] {
        assert!(would.contains(word), "no {word:?} in {would}");
    }
    assert_eq!(image.conf(), CONF, "a dry run writes nothing");
    assert!(!image.path("etc/gleaner").exists());

    let monitor =
        ["--monitor", "https://head.farm:7711", "--host", "n1", "--run-dir", "/run/gleaner"];
    image.farm("install", "slurm", &monitor).ok();
    let settings = fs::read_to_string(image.path("etc/gleaner/hook.env")).expect("written");
    for line in [
        "GLEANER=/usr/local/bin/gleaner",
        "GLEANER_MONITOR=https://head.farm:7711",
        "GLEANER_HOST=n1",
    ] {
        assert!(settings.lines().any(|is| is == line), "no {line:?} in {settings}");
    }
    assert!(image.farm("install", "slurm", &monitor).ok().contains("installed already"));

    let findings: Value = image.farm("check", "slurm", &["--format", "json"]).json();
    let levels: Vec<&str> = findings
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["level"].as_str())
        .collect();
    assert!(levels.contains(&"good") && !levels.contains(&"wrong"), "{findings}");
    fs::remove_file(image.path("etc/gleaner/hooks/slurm/prolog")).expect("it was there");
    let said = image.farm("check", "slurm", &[]);
    assert_eq!(said.code, Some(1), "{said}");
    assert!(said.stdout.starts_with("wrong "), "the worst comes first: {said}");
    assert!(said.stdout.contains("-> install again"), "{said}");

    let gone = image.farm("uninstall", "slurm", &[]).ok();
    assert!(gone.contains("nothing is left of the hooks for slurm"), "{gone}");
    assert_eq!(image.conf(), CONF);
    assert!(!image.path("etc/gleaner").exists());
}

#[test]
fn what_cannot_be_done_says_why_and_what_to_do() {
    let _turn = Turn::shared();
    let image = Image::new();
    image.farm("install", "Slurm!", &[]).refused(2, &["\"Slurm!\" is no farm manager", "qube"]);
    image.farm("install", "flamenco", &[]).refused(2, &["hooks/flamenco/README.md"]);
    image.farm("uninstall", "slurm", &[]).refused(1, &["no hooks for slurm are installed here"]);
    image.farm("check", "qube", &[]).refused(1, &["gleaner farm install --farm qube"]);
    image.farm("install", "qube", &[]).refused(1, &["flightCheck", "say --folder"]);
    let nowhere = ["--program", "/nowhere/gleaner"];
    image.farm("install", "slurm", &nowhere).refused(1, &["/nowhere/gleaner", "say --program"]);
    let line = ["--monitor", "http://a b;reboot"];
    image.farm("install", "slurm", &line).refused(1, &["GLEANER_MONITOR", "a shell would not"]);
    fs::write(image.path("etc/slurm/slurm.conf"), "NodeName=n1\nProlog=/site/prolog\n")
        .expect("written");
    image.farm("install", "slurm", &[]).refused(1, &["slurm.conf:2 has Prolog=/site/prolog"]);
    run(&mut gleaner(["farm", "install"])).refused(2, &["--farm"]);
    let probe = Image::new();
    probe.farm("install", "generic", &[]).ok();
    probe.farm("check", "generic", &["--probe"]).refused(1, &["without --root"]);
    assert!(!image.path("etc/gleaner").exists(), "nothing of it has written anything");
    assert!(Path::new("hooks/flamenco/README.md").exists(), "what is pointed to is there");
}

/// Set where this program runs as the test in an `/etc` of its own.
const OWN_ETC: &str = "GLEANER_TEST_OWN_ETC";

/// Whether this process has the right to mount (`CAP_SYS_ADMIN`).
fn may_mount() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("it says");
    let effective = u64::from_str_radix(effective.trim(), 16).expect("a number");
    effective & CAP_SYS_ADMIN != 0
}

#[test]
fn a_probe_fires_the_installed_hooks() {
    let _turn = Turn::shared();
    let mount = tempfile::tempdir().expect("a folder");
    let script = "mount -t tmpfs tmpfs \"$0\" && mkdir \"$0/up\" \"$0/work\" &&
        mount -t overlay overlay -o lowerdir=/etc,upperdir=$0/up,workdir=$0/work /etc || exit 77
        exec \"$1\" --exact farm_command::in_an_etc_of_its_own --nocapture";
    let run = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(mount.path())
        .arg(std::env::current_exe().expect("this test"))
        .env(OWN_ETC, mount.path())
        .status();
    match run.map(|status| status.code()) {
        Ok(Some(0)) => {}
        // `unshare` or `mount` may not.
        Ok(Some(1 | 77)) | Err(_) if !may_mount() => {
            eprintln!("NOT TESTED: no right to mount over /etc here; run this as root");
        }
        other => panic!("in an /etc of its own: {other:?}"),
    }
}

#[test]
fn in_an_etc_of_its_own() {
    let _turn = Turn::shared();
    let Some(folder) = std::env::var_os(OWN_ETC).map(PathBuf::from) else { return };
    let run_dir = folder.join("run").to_str().expect("a plain path").to_owned();
    // As a host has it whose hooks run as the users of jobs.
    fs::create_dir(&run_dir).expect("made");
    fs::set_permissions(&run_dir, fs::Permissions::from_mode(0o2775)).expect("set");
    let farm = |words: &[&str]| run(gleaner(["farm"]).args(words));
    // A MoM's folder that is not where it usually is.
    let mom = folder.join("mom_priv").to_str().expect("a plain path").to_owned();
    fs::create_dir(&mom).expect("made");
    for (manager, ended, more) in [
        ("generic", "was ended by /etc/gleaner/hooks/generic/postflight".to_owned(), &[][..]),
        ("opencue", "was ended by its process's end".to_owned(), &[]),
        ("torque", format!("was ended by {mom}/epilogue"), &["--folder", &mom]),
    ] {
        let install = ["install", "--farm", manager, "--run-dir", &run_dir];
        let install = [&install[..], more].concat();
        farm(&install).ok();
        let said = farm(&["check", "--farm", manager, "--probe"]).ok();
        assert!(said.contains("booked the host in "), "{said}");
        assert!(said.contains(&ended), "{said}");
        assert!(said.contains("the hooks tell no monitor"), "{said}");
        // What is said after all comes into settings that nobody has changed, and what is not said stays.
        let monitor = ["install", "--farm", manager, "--monitor", "http://127.0.0.1:1"];
        farm(&[&monitor[..], more].concat()).ok();
        let settings = fs::read_to_string("/etc/gleaner/hook.env").expect("there");
        for line in
            ["GLEANER_MONITOR=http://127.0.0.1:1", &format!("GLEANER_RUN_DIR={run_dir}")[..]]
        {
            assert!(settings.lines().any(|is| is == line), "no {line:?} in {settings}");
        }
        let said = farm(&["check", "--farm", manager]);
        assert_eq!(said.code, Some(1), "nobody listens there: {said}");
        assert!(said.stdout.contains("cannot tell the monitor http://127.0.0.1:1"), "{said}");
        // Hooks that do nothing are found out.
        let idle = format!("GLEANER=/bin/true\nGLEANER_RUN_DIR={run_dir}\n");
        fs::write("/etc/gleaner/hook.env", idle).expect("written");
        let said = farm(&["check", "--farm", manager, "--probe"]);
        assert_eq!(said.code, Some(1), "{said}");
        assert!(said.stdout.contains("ran and booked nothing in"), "{said}");
        fs::remove_file("/etc/gleaner/hook.env").expect("there");
        fs::write("/etc/gleaner/token", "").expect("written");
        let said = farm(&["uninstall", "--farm", manager]).ok();
        assert!(!said.contains("folder /etc/gleaner\n"), "that is not ours alone: {said}");
        let left = fs::read_dir("/etc/gleaner").expect("a folder").count();
        assert_eq!(left, 1, "nothing of ours is left of {manager}");
        fs::remove_dir_all("/etc/gleaner").expect("there");
    }
}

//! `gleaner farm`, on a tree of another system.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use gleaner_calm::Turn;
use serde_json::Value;

use crate::grid_engine_farm::NOBODY;
use crate::own_etc;
use crate::part::Part;
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
fn what_is_not_finished_ends_with_a_code_of_its_own() {
    let _turn = Turn::shared();
    let image = Image::new();
    fs::write(image.path("etc/slurm/slurm.conf"), "NodeName=n[1-3]\n").expect("written");
    let said = image.farm("install", "slurm", &["--dry-run"]);
    assert_eq!(said.code, Some(0), "nothing was to be done: {said}");
    let said = image.farm("install", "slurm", &[]);
    assert_eq!(said.code, Some(7), "{said}");
    assert!(said.stdout.contains("then this again with --nodes-are-ready"), "{said}");
    image.farm("install", "slurm", &["--files-only"]).ok();
    image.farm("install", "slurm", &["--nodes-are-ready"]).ok();
    image.farm("uninstall", "slurm", &[]).ok();
    let help = run(&mut gleaner(["--help"])).ok();
    assert!(help.contains("  7  it is not finished"), "{help}");
}

#[test]
fn what_cannot_be_done_says_why_and_what_to_do() {
    let _turn = Turn::shared();
    let image = Image::new();
    image.farm("install", "Slurm!", &[]).refused(2, &["\"Slurm!\" is no farm manager", "qube"]);
    image.farm("install", "flamenco", &[]).refused(1, &["/etc/systemd/system", "--watch-worker"]);
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
    for page in ["hooks/flamenco/README.md", "hooks/royal-render/README.md"] {
        assert!(Path::new(page).exists(), "what is pointed to is there");
    }
}

#[test]
fn a_probe_fires_the_installed_hooks() {
    let _turn = Turn::shared();
    own_etc::run_in("farm_command::in_an_etc_of_its_own");
}

#[test]
fn in_an_etc_of_its_own() {
    let _turn = Turn::shared();
    let Some(folder) = own_etc::folder() else { return };
    let run_dir = folder.join("run").to_str().expect("a plain path").to_owned();
    // As a host has it whose hooks run as the users of jobs.
    fs::create_dir(&run_dir).expect("made");
    chown(&run_dir, None, Some(NOBODY)).expect("set");
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
        assert_eq!(said.contains("as root, and opencue runs them"), manager == "opencue", "{said}");
        if manager == "opencue" {
            a_user_of_the_folders_group_probes(&run_dir);
        }
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
    for (manager, worker) in [("flamenco", "flamenco-worker"), ("royal-render", "rrClient")] {
        a_worker_is_watched(manager, worker, &folder);
    }
}

/// As the note of a probe says, for hooks that do not run as root's: a user in the run folder's group may
/// do all of it, and any other is told what they may not.
fn a_user_of_the_folders_group_probes(run_dir: &str) {
    let probe = ["farm", "check", "--farm", "opencue", "--probe"];
    let as_user = |user: u32, group: u32| {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={group}")]);
        run(command.arg("--clear-groups").arg(env!("CARGO_BIN_EXE_gleaner")).args(probe))
    };
    let said = as_user(NOBODY, NOBODY).ok();
    assert!(said.contains("booked the host in ") && !said.contains("as root, and"), "{said}");
    assert!(said.contains("was ended by its process's end"), "{said}");
    let said = as_user(1, 1);
    assert!(said.code == Some(1) && said.to_string().contains(run_dir), "{said}");
}

/// Where a manager calls nothing: what is installed has an agent see what its worker starts.
fn a_worker_is_watched(manager: &str, worker: &str, folder: &Path) {
    let run_dir = folder.join("watched");
    let farm = |words: &[&str]| run(gleaner(["farm"]).args(words));
    fs::create_dir_all("/etc/systemd/system").expect("made");
    // 7 where nothing here restarts an agent.
    let is_done = |said: &Said| matches!(said.code, Some(0 | 7));
    let run_dir_word = run_dir.to_str().expect("plain");
    let said = farm(&["install", "--farm", manager, "--run-dir", run_dir_word]);
    assert!(is_done(&said), "{said}");
    assert_eq!(
        said.code == Some(7),
        said.stdout.contains("systemctl daemon-reload` yourself")
            || said.stdout.contains("have the agent read that"),
        "{said}"
    );
    let beside = Path::new("/etc/systemd/system/gleaner-agent.service.d");
    let file = beside.join(format!("gleaner-{manager}.conf"));
    let text = fs::read_to_string(&file).expect("written");
    let variable = text.lines().find_map(|line| line.strip_prefix("Environment="));
    let (name, value) = variable.and_then(|line| line.split_once('=')).expect("it sets one");

    let start = |watches: bool| {
        let mut agent = gleaner(["agent", "--broker", "http://127.0.0.1:1", "--cores", "1"]);
        agent.arg("--run-dir").arg(&run_dir).arg("--work-dir").arg(folder.join("work"));
        if watches {
            // As systemd would.
            agent.env(name, value);
        }
        let mut agent = Part::start("agent", agent, &folder.join("agent.log"));
        agent.ready();
        agent
    };
    let before = start(false);
    let said = farm(&["check", "--farm", manager]);
    assert_eq!(said.code, Some(1), "{said}");
    assert!(said.stdout.contains(&format!("does not watch {worker}")), "{said}");
    drop(before);
    let agent = start(true);
    let said = farm(&["check", "--farm", manager, "--probe"]).ok();
    for word in ["watches them", "was booked", "the booking has ended with its process"] {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    assert!(!said.contains("hook.env") && !said.contains("tell no monitor"), "{said}");
    drop(agent);
    let said = farm(&["uninstall", "--farm", manager]);
    assert!(is_done(&said), "{said}");
    assert!(!beside.exists() && !Path::new("/etc/gleaner/hooks").exists(), "nothing is left");
}

#[test]
fn a_probe_goes_to_a_queue_where_the_manager_has_some() {
    let _turn = Turn::shared();
    let image = Image::new();
    let said = image.farm("check", "htcondor", &["--probe", "--probe-queue", "low"]);
    assert_eq!(said.code, Some(2), "{said}");
    assert!(said.stderr.contains("a probe of htcondor has no queue"), "{said}");
    let said = image.farm("check", "slurm", &["--probe-queue", "low"]);
    assert!(said.code == Some(2) && said.stderr.contains("--probe"), "{said}");
}

//! The ready scripts: they call the hook, and they end with 0 whatever they find.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gleaner_protocol::{Span, boottime};

/// A script, and what it calls.
struct Script {
    path: &'static str,
    kind: &'static str,
    farm: &'static str,
    /// What the manager gives it, and what of that it hands on.
    given: &'static [&'static str],
    handed: &'static str,
}

const fn script(path: &'static str, kind: &'static str, farm: &'static str) -> Script {
    Script { path, kind, farm, given: &[], handed: "" }
}

const fn told(
    path: &'static str,
    kind: &'static str,
    farm: &'static str,
    given: &'static [&'static str],
    handed: &'static str,
) -> Script {
    Script { path, kind, farm, given, handed }
}

const GRID_ENGINE: &[&str] = &["node1", "7", "0", "--farm=x", "all.q"];
const TORQUE: &[&str] = &["7.head", "artist", "artists", "a shot", "nodes=1:ppn=4"];

const SCRIPTS: [Script; 13] = [
    script("generic/preflight", "preflight", "generic"),
    script("generic/postflight", "postflight", "generic"),
    script("qube/preflight", "preflight", "qube"),
    script("qube/postflight", "postflight", "qube"),
    script("slurm/prolog", "preflight", "slurm"),
    script("slurm/epilog", "postflight", "slurm"),
    script("htcondor/prepare", "preflight", "htcondor"),
    told("htcondor/exit", "postflight", "htcondor", &["exit"], " -- exit"),
    script("opencue/preflight", "preflight", "opencue"),
    told(
        "grid-engine/prolog",
        "preflight",
        "grid-engine",
        GRID_ENGINE,
        " -- node1 7 0 --farm=x all.q",
    ),
    told(
        "grid-engine/epilog",
        "postflight",
        "grid-engine",
        GRID_ENGINE,
        " -- node1 7 0 --farm=x all.q",
    ),
    told(
        "torque/prologue",
        "preflight",
        "pbs",
        TORQUE,
        " -- 7.head artist artists a shot nodes=1:ppn=4",
    ),
    told(
        "torque/epilogue",
        "postflight",
        "pbs",
        TORQUE,
        " -- 7.head artist artists a shot nodes=1:ppn=4",
    ),
];

/// Puts a program in its place by another process: what this one writes is busy while a child of
/// another test has it open.
fn put(from: &Path, to: &Path) {
    let put = Command::new("install").args(["-m", "755"]).args([from, to]).status();
    assert!(put.expect("install runs").success(), "{to:?}");
}

/// A copy of the script with settings beside it and a stand-in for the program.
struct Installed {
    folder: tempfile::TempDir,
    script: PathBuf,
}

impl Installed {
    fn new(script: &str, gleaner: Option<&str>, settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
        let to = folder.path().join("hook");
        put(&from, &to);
        let program = folder.path().join("gleaner");
        if let Some(text) = gleaner {
            let draft = folder.path().join("draft");
            fs::write(&draft, text).expect("writes");
            put(&draft, &program);
        }
        let settings = format!("GLEANER={}\n{settings}", program.display());
        fs::write(folder.path().join("gleaner-hook.txt"), settings).expect("writes");
        Self { folder, script: to }
    }

    fn run(&self) -> Output {
        self.run_with(&[])
    }

    fn run_with(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.script);
        command.args(arguments).env("GLEANER", "/bin/false").output().expect("runs")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap_or_default()
    }
}

const TELLING: &str = "#!/bin/sh\necho \"$* run=$GLEANER_RUN_DIR parent=$GLEANER_HOOK_PARENT\" \
                       > \"${0%/*}/said\"\necho noise\nexit 3\n";

#[test]
fn each_script_calls_its_hook_and_hides_how_that_ended() {
    let me = std::process::id();
    for Script { path, kind, farm, given, handed } in SCRIPTS {
        let installed = Installed::new(path, Some(TELLING), "GLEANER_RUN_DIR=/run/g\n");
        let output = installed.run_with(given);
        assert_eq!(output.status.code(), Some(0), "{path}");
        let expected = format!("hook {kind} --farm {farm}{handed} run=/run/g parent={me}\n");
        assert_eq!(installed.said(), expected, "{path}");
        assert_eq!(output.stdout, b"", "{path}");
    }
}

#[test]
fn a_renders_process_is_handed_on() {
    for path in ["generic/preflight", "generic/postflight", "opencue/preflight"] {
        let installed = Installed::new(path, Some(TELLING), "");
        installed.run_with(&["4711"]);
        assert!(installed.said().contains(" --until-end-of 4711 "), "{}", installed.said());
    }
}

#[test]
fn that_only_what_is_booked_is_to_end_is_handed_on() {
    let installed = Installed::new("generic/postflight", Some(TELLING), "");
    for (given, handed) in [
        (&["--if-booked"][..], " --if-booked run="),
        (&[""], " --farm generic run="),
        (&["4711"], " --until-end-of 4711 run="),
    ] {
        installed.run_with(given);
        assert!(installed.said().contains(handed), "{given:?}: {}", installed.said());
    }
}

#[test]
fn the_starter_of_htcondor_is_found_behind_a_sites_own_hook() {
    let installed = Installed::new("htcondor/prepare", Some(TELLING), "");
    let put_script = |name: &str| {
        let draft = installed.folder.path().join("draft");
        fs::write(&draft, "#!/bin/sh\necho $$ > \"$0.pid\"\n\"$@\"\nexit 0\n").expect("written");
        let path = installed.folder.path().join(name);
        put(&draft, &path);
        path
    };
    let (starter, own) = (put_script("condor_starter"), put_script("own-hook"));
    for between in [&[][..], &[&own]] {
        let mut command = Command::new(&starter);
        assert!(command.args(between).arg(&installed.script).status().expect("runs").success());
        let pid = fs::read_to_string(installed.folder.path().join("condor_starter.pid"));
        let expected = format!(" --until-end-of {} ", pid.expect("told").trim());
        assert!(installed.said().contains(&expected), "{} without{expected}", installed.said());
    }
}

#[test]
fn what_a_manager_writes_to_the_input_is_read_by_the_program() {
    for path in ["htcondor/prepare", "htcondor/exit"] {
        let installed = Installed::new(path, Some("#!/bin/sh\ncat > \"${0%/*}/said\"\n"), "");
        let mut command = Command::new(&installed.script);
        let mut script = command.stdin(Stdio::piped()).spawn().expect("starts");
        let mut input = script.stdin.take().expect("piped");
        input.write_all(b"ClusterId = 12\n").expect("it reads");
        drop(input);
        assert!(script.wait().expect("ours").success());
        assert_eq!(installed.said(), "ClusterId = 12\n", "{path}");
    }
}

/// What a job may put into the environment that its hooks inherit.
const OF_A_JOB: [&str; 10] = [
    "GLEANER",
    "GLEANER_RUN_DIR",
    "GLEANER_MONITOR",
    "GLEANER_TOKEN_FILE",
    "GLEANER_CA_FILE",
    "GLEANER_FARM",
    "GLEANER_HOST",
    "GLEANER_HOOK_AGENT_TIMEOUT_MS",
    "GLEANER_HOOK_DEADLINE_MS",
    "XDG_RUNTIME_DIR",
];

#[test]
fn a_jobs_environment_decides_nothing_but_what_it_books() {
    let telling = "#!/bin/sh\nenv > \"${0%/*}/said\"\n";
    for script in SCRIPTS.map(|script| script.path) {
        for settings in ["", "GLEANER_HOST=of-the-settings\n"] {
            let installed = Installed::new(script, Some(telling), settings);
            let mut command = Command::new(&installed.script);
            command.envs(OF_A_JOB.map(|name| (name, "of-the-job")));
            let output = command.env("GLEANER_BOOKING", "shot:1").output().expect("runs");
            assert_eq!(output.status.code(), Some(0));
            let said = installed.said();
            assert!(!said.contains("of-the-job"), "{script}: {said}");
            assert!(said.contains(settings), "{script}: {said}");
            assert!(said.contains("GLEANER_BOOKING=shot:1\n"), "{script}: {said}");
        }
    }
}

#[test]
fn each_variable_that_the_hook_reads_is_the_scripts_to_set() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/command_line.rs");
    let source = fs::read_to_string(source).expect("the command line's");
    let named = source.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    for name in named.filter(|name| name.starts_with("GLEANER_")) {
        assert!(OF_A_JOB.contains(&name), "{name}: have the scripts unset it, and name it here");
    }
}

#[test]
fn the_program_is_not_even_looked_at_outside_of_the_limit() {
    for script in SCRIPTS.map(|script| script.path) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
        let text = fs::read_to_string(path).expect("a script");
        let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
        for line in lines {
            let names =
                ["$program", "GLEANER:-", "/gleaner "].iter().any(|name| line.contains(name));
            let is_limited = line.starts_with("bounded \"$program\" hook ")
                || line == "program=${GLEANER:-/usr/local/bin/gleaner}";
            assert!(!names || is_limited, "{script}: {line}");
        }
        assert!(text.contains("then timeout -s KILL 2 \"$@\"; else"), "{script}");
    }
}

#[test]
fn without_the_program_or_with_a_broken_one_a_script_ends_well() {
    for script in SCRIPTS.map(|script| script.path) {
        for program in [None, Some("not a program"), Some("#!/no/such/interpreter\n")] {
            let output = Installed::new(script, program, "").run();
            assert_eq!(output.status.code(), Some(0), "{script} with {program:?}");
        }
    }
}

#[test]
fn settings_that_are_no_shell_do_not_keep_the_hook_from_running() {
    // The settings do not count then; the program is found where it usually is, if it is there.
    let installed = Installed::new("generic/postflight", Some(TELLING), "if (\n\"");
    assert_eq!(installed.run().status.code(), Some(0));
}

#[test]
fn a_program_that_hangs_is_ended() {
    // It holds a pipe of ours, whose end tells that nothing stays behind.
    let hangs = "#!/bin/sh\necho here >&2\nexec sleep 60\n";
    let installed = Installed::new("slurm/prolog", Some(hangs), "");
    let begun = boottime();
    let output = installed.run();
    assert!(boottime().since(begun) < Span::from_secs(40), "it waited for all of it");
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("here\n"), "it ran: {said}");
}

//! The ready scripts: they call the hook, and they end with 0 whatever they find.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gleaner_protocol::{Span, boottime};

const SCRIPTS: [(&str, &str, &str); 6] = [
    ("generic/preflight", "preflight", "generic"),
    ("generic/postflight", "postflight", "generic"),
    ("qube/preflight", "preflight", "qube"),
    ("qube/postflight", "postflight", "qube"),
    ("slurm/prolog", "preflight", "slurm"),
    ("slurm/epilog", "postflight", "slurm"),
];

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
        fs::copy(&from, &to).expect("copies");
        let program = folder.path().join("gleaner");
        if let Some(text) = gleaner {
            fs::write(&program, text).expect("writes");
            fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("sets");
        }
        let settings = format!("GLEANER={}\n{settings}", program.display());
        fs::write(folder.path().join("gleaner-hook.txt"), settings).expect("writes");
        Self { folder, script: to }
    }

    fn run(&self) -> Output {
        Command::new(&self.script).env("GLEANER", "/bin/false").output().expect("runs")
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
    for (script, kind, farm) in SCRIPTS {
        let installed = Installed::new(script, Some(TELLING), "GLEANER_RUN_DIR=/run/g\n");
        let output = installed.run();
        assert_eq!(output.status.code(), Some(0), "{script}");
        let expected = format!("hook {kind} --farm {farm} run=/run/g parent={me}\n");
        assert_eq!(installed.said(), expected, "{script}");
        assert_eq!(output.stdout, b"", "{script}");
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
    for (script, ..) in SCRIPTS {
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
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/hook.rs");
    let source = fs::read_to_string(source).expect("the command line's");
    let named = source.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    for name in named.filter(|name| name.starts_with("GLEANER_")) {
        assert!(OF_A_JOB.contains(&name), "{name}: have the scripts unset it, and name it here");
    }
}

#[test]
fn the_program_is_not_even_looked_at_outside_of_the_limit() {
    for (script, ..) in SCRIPTS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
        let text = fs::read_to_string(path).expect("a script");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let outside = lines.filter(|line| line.contains("GLEANER:-"));
        for line in outside {
            let is_limited = ["timeout -s KILL 2 sh -c \"$run\" sh ", "sh -c \"$run\" sh "]
                .iter()
                .any(|begin| line.trim_start().starts_with(begin));
            assert!(is_limited, "{script}: {line}");
        }
        assert!(!text.contains("[ -x \"$gleaner\" ]"), "{script}");
    }
}

#[test]
fn without_the_program_or_with_a_broken_one_a_script_ends_well() {
    for (script, ..) in SCRIPTS {
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

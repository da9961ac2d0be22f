//! The ready scripts: they call the hook, and they end with 0 whatever they find.

use std::collections::BTreeSet;
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
const OF_A_JOB: [&str; 11] = [
    "GLEANER",
    "GLEANER_RUN_DIR",
    "GLEANER_MONITOR",
    "GLEANER_TOKEN_FILE",
    "GLEANER_CA_FILE",
    "GLEANER_FARM",
    "GLEANER_HOST",
    "GLEANER_HOOK_AGENT_TIMEOUT_MS",
    "GLEANER_HOOK_DEADLINE_MS",
    "GLEANER_HOOK_NOTE",
    "XDG_RUNTIME_DIR",
];

/// Names of what a script lets through of its environment.
fn let_through(script: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let text = fs::read_to_string(path).expect("a script");
    let (_, call) = text.split_once(" -i PATH=").expect("it begins anew with what it names");
    let (call, _) = call.split_once("/bin/sh \"$0\"").expect("as itself");
    let named = call.split('"').filter_map(|word| word.split_once("=${"));
    let names = named.map(|(name, value)| {
        assert_eq!(value, format!("{name}-}}"), "{script}");
        name.to_owned()
    });
    names.collect()
}

/// The variables that the hook reads for a farm, by its source.
fn read_for(farm: &str) -> BTreeSet<String> {
    let name = farm.replace('-', "_");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/farm/{name}.rs"));
    let source = fs::read_to_string(path).expect("the farm's");
    let (source, _) = source.split_once("#[cfg(test)]").expect("it has tests");
    let by_name = source.split("environment.get(\"").skip(1);
    let said = source.split("said(").skip(1).filter_map(|rest| Some(rest.split_once(", \"")?.1));
    let names = by_name.chain(said).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    let mut names: BTreeSet<String> = names.collect();
    if farm == "pbs" {
        names.insert("PBS_NODEFILE".into());
    }
    // The settings say it, and no job.
    names.remove("GLEANER_HOST");
    names
}

#[test]
fn a_script_lets_through_what_the_hook_reads_of_a_job_and_nothing_else() {
    for Script { path, farm, .. } in SCRIPTS {
        assert_eq!(let_through(path), read_for(farm), "{path}");
    }
}

#[test]
fn nothing_of_a_jobs_environment_but_what_is_named_reaches_the_program() {
    let telling = "#!/bin/sh\nenv > \"${0%/*}/said\"\n";
    // Besides, what the shells set by themselves, and what our script says.
    let ours = ["GLEANER", "GLEANER_HOOK_PARENT", "GLEANER_HOOK_NOTE", "GLEANER_HOST", "LC_ALL"];
    let shells = ["PATH", "PWD", "OLDPWD", "SHLVL", "_"];
    for Script { path, .. } in SCRIPTS {
        for settings in ["", "GLEANER_HOST=of-the-settings\n"] {
            let installed = Installed::new(path, Some(telling), settings);
            let named = let_through(path);
            let mut command = Command::new(&installed.script);
            command.envs(OF_A_JOB.map(|name| (name, "of-the-job")));
            command.envs(HOSTILE).envs(named.iter().map(|name| (name, "shot:1")));
            assert_eq!(command.output().expect("runs").status.code(), Some(0), "{path}");
            let said = installed.said();
            assert!(!said.contains("of-the-job"), "{path}: {said}");
            assert!(said.contains(settings), "{path}: {said}");
            let (mut names, mut told) = (BTreeSet::new(), 0);
            for (name, value) in said.lines().filter_map(|line| line.split_once('=')) {
                told += usize::from(named.contains(name) && value == "shot:1");
                names.insert(name);
            }
            assert_eq!(told, named.len(), "{path}: {said}");
            let known =
                |name: &&str| named.contains(*name) || ours.contains(name) || shells.contains(name);
            let others: Vec<_> = names.into_iter().filter(|name| !known(name)).collect();
            assert!(others.is_empty(), "{path}: {others:?}");
        }
    }
}

/// What a job may say to those who start shells and programs after it.
const HOSTILE: [(&str, &str); 8] = [
    ("BASH_ENV", "/of-the-job"),
    ("ENV", "/of-the-job"),
    ("IFS", "of-the-job"),
    ("PATH", "/of-the-job:/usr/bin:/bin"),
    ("GCONV_PATH", "/of-the-job"),
    ("LANGUAGE", "of-the-job"),
    ("PYTHONPATH", "/of-the-job"),
    ("BASH_FUNC_hook%%", "() { echo of-the-job; }"),
];

#[test]
fn a_function_of_a_jobs_shell_is_not_run() {
    let Some(bash) = ["/bin/bash", "/usr/bin/bash"].map(Path::new).into_iter().find(|b| b.exists())
    else {
        return;
    };
    for Script { path, kind, farm, .. } in SCRIPTS {
        let installed = Installed::new(path, Some(TELLING), "");
        // Where the shell of scripts is bash, it takes functions out of its environment.
        let shell = installed.folder.path().join("sh");
        std::os::unix::fs::symlink(bash, &shell).expect("linked");
        let text = fs::read_to_string(&installed.script).expect("a script");
        let draft = installed.folder.path().join("draft");
        let shell = shell.to_str().expect("plain");
        fs::write(&draft, text.replace("/bin/sh", shell)).expect("written");
        put(&draft, &installed.script);
        let mark = installed.folder.path().join("mark");
        let function = format!("() {{ echo \"$0\" >> {}; }}", mark.display());
        let mut command = Command::new(&installed.script);
        // Each program and each name of a function that a script calls.
        let called = [
            "timeout", "command", "bounded", "call", "note", "take", "head", "read", "env", "test",
            "gleaner",
        ];
        command.envs(called.map(|name| (format!("BASH_FUNC_{name}%%"), function.clone())));
        command.env("SHELLOPTS", "nounset");
        assert_eq!(command.output().expect("runs").status.code(), Some(0), "{path}");
        assert!(!mark.exists(), "{path}: {:?}", fs::read_to_string(&mark));
        assert!(installed.said().contains(&format!("hook {kind} --farm {farm}")), "{path}");
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
                || line == "whole=${GLEANER:-/usr/local/bin/gleaner}";
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

/// What the program says that a script found wrong with its settings.
const TELLING_SETTINGS: &str = "#!/bin/sh\necho \"run=$GLEANER_RUN_DIR host=$GLEANER_HOST \
                                note=$GLEANER_HOOK_NOTE\" > \"${0%/*}/said\"\n";

#[test]
fn settings_are_read_as_people_write_them_and_nothing_in_them_is_run() {
    for (settings, run_dir, host, is_noted) in [
        ("GLEANER_RUN_DIR=/run/g\r\nGLEANER_HOST=n1\r\n", "/run/g", "n1", false),
        (
            "# a remark\n\n  export GLEANER_RUN_DIR=\"/run/g\"\nGLEANER_HOST='n1'",
            "/run/g",
            "n1",
            false,
        ),
        ("GLEANER_RUN_DIR=/run/g # here\n\tGLEANER_HOST=n1\t\n", "/run/g", "n1", false),
        ("GLEANER_HOST=n0\nGLEANER_HOST=n1\nGLEANER_RUN_DIR=/run/g\n", "/run/g", "n1", false),
        ("if (\n\"\nGLEANER_RUN_DIR=/run/g\nGLEANER_HOST=n1\n", "/run/g", "n1", true),
        ("GLEANER_HOST=$(touch ran)\nGLEANER_RUN_DIR=/run/g\n", "/run/g", "", true),
        ("touch ran\nGLEANER_RUN_DIR=/run/g\nGLEANER_HOST=`touch ran`\n", "/run/g", "", true),
        ("LD_PRELOAD=/x\nPATH=/x\nGLEANER_RUN_DIR=/a b\nGLEANER_HOST=n1\n", "", "n1", true),
        ("GLEANER_RUNDIR=/run/g\n*\nGLEANER_HOST=n1\n", "", "n1", true),
    ] {
        for script in SCRIPTS.map(|script| script.path) {
            let installed = Installed::new(script, Some(TELLING_SETTINGS), settings);
            let output =
                Command::new(&installed.script).current_dir(installed.folder.path()).output();
            assert_eq!(output.expect("runs").status.code(), Some(0));
            let said = installed.said();
            assert!(
                said.starts_with(&format!("run={run_dir} host={host} note=")),
                "{settings}: {said}"
            );
            assert_eq!(said.contains("lines that are no settings"), is_noted, "{settings}: {said}");
            assert!(!installed.folder.path().join("ran").exists(), "{settings}");
        }
    }
}

#[test]
fn settings_that_are_no_small_plain_file_are_left_alone_and_told_of() {
    for (make, expected) in [
        ("mkfifo", "is no plain file that can be read"),
        ("mkdir", "is no plain file that can be read"),
        ("ln -s /dev/zero", "is no plain file that can be read"),
        ("seq 100000 >", "is longer than 65536 bytes"),
        ("truncate -s 1G", "has no text"),
    ] {
        for script in SCRIPTS.map(|script| script.path) {
            let installed = Installed::new(script, None, "");
            let settings = installed.folder.path().join("gleaner-hook.txt");
            fs::remove_file(&settings).expect("it was there");
            let line = format!("{make} {}", settings.display());
            let made = Command::new("sh").args(["-c", &line]).status().expect("runs");
            assert!(made.success(), "{line}");
            // The text of the script without its program: what it says is said there.
            let text = fs::read_to_string(&installed.script).expect("a script");
            let (settings, _) = text.split_once("# The hook bounds itself").expect("it says so");
            let told = format!("{settings}\necho \"$GLEANER_HOOK_NOTE\"\n");
            fs::write(&installed.script, told).expect("written");
            let output = Command::new("sh").arg(&installed.script).output().expect("runs");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains(expected), "{script} {make}: {said}");
        }
    }
}

#[test]
fn the_program_that_is_a_hook_alone_goes_before_the_whole_one() {
    for script in SCRIPTS.map(|script| script.path) {
        let installed = Installed::new(script, Some(TELLING), "");
        let draft = installed.folder.path().join("draft");
        fs::write(&draft, "#!/bin/sh\necho alone > \"${0%/*}/said\"\n").expect("written");
        put(&draft, &installed.folder.path().join("gleaner-hook"));
        installed.run();
        assert_eq!(installed.said(), "alone\n", "{script}");
    }
}

#[test]
fn a_program_that_hangs_is_ended() {
    // It holds a pipe of ours, whose end tells that nothing stays behind.
    let hangs = "#!/bin/sh\necho here >&2\nexec sleep 60\n";
    let installed = Installed::new("slurm/prolog", Some(hangs), "");
    let begun = boottime();
    let output = installed.run();
    gleaner_calm::assert_within("the script", boottime().since(begun), Span::from_secs(40));
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("here\n"), "it ran: {said}");
}

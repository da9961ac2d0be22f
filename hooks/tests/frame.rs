//! The wrapper around a frame: it becomes the command, and is nothing but the command, whatever
//! is wrong with the hook before it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gleaner_calm::{in_some_round, within};
use gleaner_protocol::{Span, boottime};

/// Puts a program in its place by another process: what this one writes is busy while a child of
/// another test has it open.
fn put(from: &Path, to: &Path) {
    let put = Command::new("install").args(["-m", "755"]).args([from, to]).status();
    assert!(put.expect("install runs").success(), "{to:?}");
}

/// The wrapper with a preflight beside it.
struct Wrapper {
    folder: tempfile::TempDir,
}

impl Wrapper {
    fn with_preflight(text: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("opencue/gleaner-frame");
        put(&from, &folder.path().join("gleaner-frame"));
        if let Some(text) = text {
            let preflight = folder.path().join("preflight");
            let draft = folder.path().join("draft");
            fs::write(&draft, text).expect("writes");
            put(&draft, &preflight);
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("gleaner-frame"));
        command.args(arguments).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("runs")
    }
}

#[test]
fn the_hook_is_told_the_process_that_becomes_the_frame() {
    let wrapper = Wrapper::with_preflight(Some("#!/bin/sh\necho \"$1\" > \"${0%/*}/told\"\n"));
    let output = wrapper.run(&["/bin/sh", "-c", "echo $$"]);
    let told = fs::read_to_string(wrapper.path("told")).expect("it was told");
    assert_eq!(String::from_utf8_lossy(&output.stdout), told);
}

#[test]
fn arguments_output_and_exit_code_are_the_commands() {
    let wrapper = Wrapper::with_preflight(Some("#!/bin/sh\necho noise; echo noise >&2\n"));
    let output = wrapper.run(&[
        "/bin/sh",
        "-c",
        "printf '%s|' \"$@\"; echo oh >&2; exit 42",
        "x",
        "a b",
        "$c",
        "",
    ]);
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a b|$c||");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "oh\n");
    let killed = wrapper.run(&["/bin/sh", "-c", "kill -TERM $$"]);
    assert_eq!(killed.status.signal(), Some(15), "signals are the frame's own");
    let environment = wrapper.command(&["/usr/bin/env"]).env_clear().env("A", "b c").output();
    let environment = environment.expect("runs").stdout;
    assert!(String::from_utf8_lossy(&environment).lines().any(|line| line == "A=b c"));
}

#[test]
fn whatever_becomes_of_the_hook_the_frame_is_rendered() {
    for preflight in [
        None,
        Some("no program"),
        Some("#!/no/such/interpreter\n"),
        Some("#!/bin/sh\nexit 1\n"),
        Some("#!/bin/sh\nkill -KILL $$\n"),
        Some("#!/bin/sh\nexec 0<&- 1>&- 2>&-; exit 9\n"),
    ] {
        let wrapper = Wrapper::with_preflight(preflight);
        let output = wrapper.run(&["/bin/echo", "rendered"]);
        assert_eq!(output.status.code(), Some(0), "{preflight:?}");
        assert_eq!(output.stdout, b"rendered\n", "{preflight:?}");
    }
}

/// As the page has commands submitted that PyOutline's own wrappers do not start.
#[test]
fn a_command_as_it_is_submitted_is_rendered_where_the_wrapper_is_not() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/opencue/README.md"));
    let page = page.expect("there");
    let line = page.lines().find(|line| line.starts_with("sh -c '[ -x")).expect("a line for it");
    let wrapper = Wrapper::with_preflight(Some("#!/bin/sh\n: > \"${0%/*}/told\"\n"));
    let frame = wrapper.path("gleaner-frame").display().to_string();
    let line = line.replace("/etc/gleaner/hooks/opencue/gleaner-frame", &frame);
    let command = "maya -batch -file shot.ma";
    assert!(line.ends_with(command), "{line}");
    let line = line.replace(command, "/bin/sh -c 'echo \"$1|$2\"; exit 42' x 'a b' '$c'");
    let told = wrapper.path("told");
    for is_there in [true, false] {
        if !is_there {
            fs::remove_file(&frame).expect("it was there");
        }
        let output = Command::new("/bin/sh").args(["-c", &line]).output().expect("runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a b|$c\n", "{is_there}: {line}");
        assert_eq!(output.status.code(), Some(42), "the command's own");
        assert_eq!(told.exists(), is_there, "the hook is told where it is there");
        let _ = fs::remove_file(&told);
    }
}

/// The script that the Rust RQD, 0.1.11, writes for a frame that it binds to cores, of a command as the
/// page has it, and the environment that it starts it in.
#[test]
fn a_frame_that_the_rust_rqd_starts_is_told_of_where_it_is_bound() {
    let status = fs::read_to_string("/proc/self/status").expect("reads");
    let allowed = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.expect("Linux has it").trim().to_owned()
    };
    let all = allowed(&status);
    let cpu = all.split([',', '-']).next().expect("there is a first one");
    let told = "#!/bin/sh
{ echo \"$1 $CUE_FRAME_ID $CUE_THREADS\"; cat /proc/$1/status; } > \"${0%/*}/told\"\n";
    let wrapper = Wrapper::with_preflight(Some(told));
    let frame = wrapper.path("gleaner-frame").display().to_string();
    let mut script = include_str!("frames/openrqd-0.1.11.script").to_owned();
    for (recorded, played) in [
        ("/etc/gleaner/hooks/opencue/gleaner-frame", frame.as_str()),
        ("taskset -c 0,2 ", &format!("taskset -c {cpu} ")),
        ("maya -batch -file shot.ma", "/bin/sh -c 'echo $$; exit 42'"),
    ] {
        assert!(script.contains(recorded), "{recorded}: {script}");
        script = script.replace(recorded, played);
    }
    let draft = wrapper.path("draft");
    fs::write(&draft, script).expect("writes");
    put(&draft, &wrapper.path("script"));
    let variables = include_str!("frames/openrqd-0.1.11.env");
    let variables = variables.lines().filter_map(|line| line.split_once('='));
    let mut command = Command::new(wrapper.path("script"));
    command.env_clear().envs(variables).stdin(Stdio::null());
    let output = command.output().expect("runs");
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    let pid = String::from_utf8_lossy(&output.stdout);
    let told = fs::read_to_string(wrapper.path("told")).expect("it was told");
    let expected = format!("{} 68aacbff-fe68-40e8-95b1-acd2d00aea40 2\n", pid.trim());
    assert!(told.starts_with(&expected), "{told}");
    assert_eq!(allowed(&told), cpu, "the hook is bound as its frame");
}

#[test]
fn closed_pipes_are_no_reason_not_to_render() {
    let wrapper = Wrapper::with_preflight(Some("#!/bin/sh\necho x; exit 0\n"));
    let done = wrapper.path("done");
    for redirection in ["<&- >&- 2>&-", ">&-", "2>&-", "<&-"] {
        let line = format!("exec \"$@\" {redirection}");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &line, "sh"]).arg(wrapper.path("gleaner-frame"));
        let status = command.args(["/usr/bin/touch"]).arg(&done).status().expect("runs");
        assert_eq!(status.code(), Some(0), "{redirection}");
        fs::remove_file(&done).expect("it was rendered");
    }
}

#[test]
fn a_hook_that_hangs_delays_a_frame_by_two_seconds_and_no_more() {
    // The real script, with a program that hangs.
    let preflight = Path::new(env!("CARGO_MANIFEST_DIR")).join("opencue/preflight");
    let wrapper = Wrapper::with_preflight(Some(&fs::read_to_string(preflight).expect("there")));
    let hangs = wrapper.path("hangs");
    let draft = wrapper.path("draft");
    fs::write(&draft, "#!/bin/sh\nexec sleep 60\n").expect("writes");
    put(&draft, &hangs);
    let settings = format!("GLEANER={}\n", hangs.display());
    fs::write(wrapper.path("gleaner-hook.txt"), settings).expect("writes");
    in_some_round(|| {
        let begun = boottime();
        let output = wrapper.run(&["/bin/echo", "rendered"]);
        let took = boottime().since(begun);
        assert_eq!(output.stdout, b"rendered\n");
        within("a frame beside a hook that hangs", took, Span::from_secs(3))
    });
}

#[test]
fn without_a_command_it_says_how_it_is_called() {
    let output = Wrapper::with_preflight(None).run(&[]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no command"));
    let missing = Wrapper::with_preflight(None).run(&["/no/such/renderer"]);
    assert_eq!(missing.status.code(), Some(127), "as a shell has it");
}

//! A real RQD of OpenCue on this machine, with a stand-in for its Cuebot (`tests/rqd/cuebot.py`): the
//! Python one, or, where `GLEANER_OPENRQD` names its program, the Rust one.
//!
//! # Invariants
//! - Both are children of this test and end with it. Frames, which are not, wait for a word of the
//!   test's, and end as well where nobody is left who could give it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::host::Host;
use crate::part::end_with_test;
use crate::patience::PATIENCE;
use crate::ports::free_port;
use crate::program::{install, write_program};

/// Cores of its host, as its agent counts them.
pub(crate) const CORES: u32 = 4;

/// Where the program of the Rust RQD is named, built as it is released: one that looks for overflows
/// may panic, and not answer, when it is polled as a frame ends.
const OPENRQD: &str = "GLEANER_OPENRQD";

/// One host of a farm.
pub(crate) struct RqdFarm {
    folder: TempDir,
    port: u16,
    cuebot: Child,
    cuebot_port: u64,
    orders: ChildStdin,
    said: Receiver<Value>,
    /// Heard while something else was waited for.
    heard: Vec<Value>,
    rqd: Child,
    /// Cores of ours in one of RQD's.
    pub(crate) threads: u32,
}

/// A frame that says when its command runs, and renders until it is told to end.
pub(crate) struct Frame {
    id: String,
    begun: File,
    go: File,
}

impl RqdFarm {
    /// Starts it, as the host of this name; ready when RQD has reported to Cuebot.
    pub(crate) fn start(host: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("rqd-").tempdir().expect("a folder");
        fs::create_dir(folder.path().join("tmp")).expect("a folder");
        let port = free_port();
        let mut cuebot = python(folder.path());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rqd/cuebot.py");
        cuebot.arg(script).arg(port.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut cuebot = cuebot.spawn().expect("python3 is installed");
        let orders = cuebot.stdin.take().expect("piped");
        let output = BufReader::new(cuebot.stdout.take().expect("piped"));
        let (tell, said) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).expect("JSON of our own script");
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        let listening: Value = said.recv_timeout(PATIENCE).expect("the stand-in listens");
        let cuebot_port = listening["port"].as_u64().expect("a port");
        let rust = format!(
            "grpc:\n  rqd_port: {port}\n  cuebot_endpoints: [\"127.0.0.1:{cuebot_port}\"]\n\
             machine:\n  cpuinfo_path: {place}/cpuinfo\n  temp_path: {place}/tmp\n  \
             override_real_values:\n    hostname: {host}\n\
             runner:\n  temp_path: {place}/tmp\n  snapshots_path: {place}/snapshots\n",
            place = folder.path().display(),
        );
        fs::write(folder.path().join("rqd.yaml"), rust).expect("written");
        let cpu = |cpu: u32| {
            format!(
                "processor: {cpu}\nphysical id: 0\nsiblings: {CORES}\ncore id: {cpu}\ncpu cores: {CORES}\n\n"
            )
        };
        let cpuinfo: String = (0..CORES).map(cpu).collect();
        fs::write(folder.path().join("cpuinfo"), cpuinfo).expect("written");
        let settings = format!(
            "[Override]\nOVERRIDE_CUEBOT = 127.0.0.1\nCUEBOT_GRPC_PORT = {cuebot_port}\n\
             RQD_GRPC_PORT = {port}\nOVERRIDE_HOSTNAME = {host}\nOVERRIDE_CORES = {CORES}\n\
             OVERRIDE_NIMBY = False\nRQD_BECOME_JOB_USER = False\n"
        );
        fs::write(folder.path().join("rqd.conf"), settings).expect("written");
        let rqd = rqd(folder.path());
        let heard = Vec::new();
        let mut farm =
            Self { folder, port, cuebot, cuebot_port, orders, said, heard, rqd, threads: 1 };
        let boot = farm.hears("boot", |_| true);
        assert_eq!(boot["host"], host, "{boot}");
        let threads = boot["threads"].as_u64().and_then(|threads| u32::try_from(threads).ok());
        farm.threads = threads.expect("a number");
        farm
    }

    /// Where RQD listens.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Nothing of RQD is left when this returns.
    pub(crate) fn loses_its_rqd(&mut self) {
        self.rqd.kill().expect("it runs");
        self.rqd.wait().expect("our own child");
    }

    /// RQD is started again; ready when it has reported.
    pub(crate) fn has_its_rqd_back(&mut self) {
        self.rqd = rqd(self.folder.path());
        self.hears("boot", |_| true);
    }

    /// Has Cuebot tell RQD to do something.
    fn orders(&mut self, order: &Value) {
        writeln!(self.orders, "{order}").expect("the stand-in lives");
        self.hears("done", |_| true);
    }

    /// An administrator locks one of RQD's cores, until all are unlocked.
    pub(crate) fn locks_a_core(&mut self) {
        // The Rust RQD takes whole ones.
        let cores = if openrqd().is_some() { 1 } else { 100 };
        self.orders(&json!({"do": "lock", "cores": cores}));
    }

    /// All cores are unlocked.
    pub(crate) fn unlocks(&mut self) {
        self.orders(&json!({"do": "unlock"}));
    }

    /// What `ps -e -o comm` shows of RQD, or the module that its Python runs.
    pub(crate) fn worker() -> &'static str {
        if openrqd().is_some() { "openrqd" } else { "rqd" }
    }

    /// A frame of one core of RQD's, begun through this wrapper or as it is.
    pub(crate) fn renders(&mut self, number: usize, wrapper: Option<&Path>) -> Frame {
        self.renders_on(1, number, wrapper)
    }

    /// A frame of so many cores of RQD's.
    pub(crate) fn renders_on(
        &mut self,
        cores: u32,
        number: usize,
        wrapper: Option<&Path>,
    ) -> Frame {
        let id = format!("6f6bbf77-6a2c-4d6e-8f2a-{number:012}");
        let place = self.folder.path().join(&id);
        fs::create_dir(&place).expect("a folder");
        let pipe = |name: &str| {
            let path = place.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");
            // To hold both ends means that it neither blocks nor ends.
            File::options().read(true).write(true).open(path).expect("opened")
        };
        let (begun, go) = (pipe("begun"), pipe("go"));
        let place = place.display().to_string();
        let script = Path::new(&place).join("frame");
        let text = format!("#!/bin/sh\necho $PPID > {place}/begun\nread word < {place}/go\n");
        write_program(&script, &text);
        let wrapper = wrapper.map(|path| format!("{} ", guarded(path))).unwrap_or_default();
        // The Rust RQD puts what binds a frame before its command, which is a program, then.
        let exec = if openrqd().is_some() { "" } else { "exec " };
        let command = format!("{exec}{wrapper}{}\n", script.display());
        let order = json!({
            "do": "launch", "frame": id, "cores": 100 * cores, "folder": place, "command": command
        });
        self.orders(&order);
        Frame { id, begun, go }
    }

    /// Ends a frame; RQD has told Cuebot so when this returns.
    pub(crate) fn ends(&mut self, mut frame: Frame) {
        frame.go.write_all(b"go\n").expect("written");
        let end = self.hears("end", |end| end["frame"] == frame.id.as_str());
        assert_eq!(end["status"], 0, "{end}");
    }

    /// The frame wrapper as it is installed, for a host's agent.
    pub(crate) fn wrapper(&self, host: &Host) -> PathBuf {
        let folder = self.folder.path().join("hooks");
        fs::create_dir(&folder).expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks/opencue");
        for script in ["gleaner-frame", "preflight"] {
            install(&source.join(script), &folder.join(script));
        }
        fs::write(folder.join("gleaner-hook.txt"), host.hook_settings()).expect("written");
        folder.join("gleaner-frame")
    }

    /// Waits for what Cuebot hears.
    #[track_caller]
    fn hears(&mut self, event: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let is_it = |said: &Value| said["event"] == event && is_it(said);
        if let Some(place) = self.heard.iter().position(is_it) {
            return self.heard.remove(place);
        }
        loop {
            let said = self.said.recv_timeout(PATIENCE);
            let said = said.unwrap_or_else(|error| panic!("{event}: {error}"));
            if is_it(&said) {
                return said;
            }
            self.heard.push(said);
        }
    }
}

impl Drop for RqdFarm {
    fn drop(&mut self) {
        for child in [&mut self.rqd, &mut self.cuebot] {
            // It may have ended by itself, which the tests have noticed then.
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("-- log of RQD and of the stand-in at port {}\n{log}", self.cuebot_port);
        }
    }
}

impl Frame {
    /// What its booking is called.
    pub(crate) fn booking(&self) -> String {
        format!("opencue:{}", self.id)
    }

    /// Waits until its command runs.
    #[track_caller]
    pub(crate) fn has_begun(&self) {
        let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.begun, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "{} does not begin", self.id);
    }

    /// What RQD started for it, of which its command is a child. It has begun when this returns.
    pub(crate) fn process(&mut self) -> i32 {
        self.has_begun();
        let mut line = [0; 16];
        let length = self.begun.read(&mut line).expect("it has said so");
        let text = std::str::from_utf8(&line[..length]).expect("a number");
        text.trim().parse().expect("a number")
    }
}

fn openrqd() -> Option<PathBuf> {
    std::env::var_os(OPENRQD).map(PathBuf::from)
}

fn rqd(folder: &Path) -> Child {
    if let Some(program) = openrqd() {
        let mut rqd = Command::new(&program);
        rqd.env("OPENCUE_RQD_CONFIG", folder.join("rqd.yaml")).current_dir(folder);
        rqd.stdin(Stdio::null()).stdout(log(folder)).stderr(log(folder));
        end_with_test(&mut rqd);
        return rqd.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    }
    let mut rqd = python(folder);
    rqd.args(["-m", "rqd", "-c"]).arg(folder.join("rqd.conf")).stdin(Stdio::null());
    rqd.stdout(log(folder)).spawn().expect("python3 is installed")
}

/// Python with OpenCue's modules, which are installed where they are not.
fn python(folder: &Path) -> Command {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let modules = root.join("target/rqd-1.37.0");
    let installed = INSTALLED.get_or_init(|| {
        let status = Command::new(root.join("tests/rqd/install")).arg(&modules).status();
        let status = status.map_err(|error| format!("tests/rqd/install: {error}"))?;
        let missing = "OpenCue's RQD is not here, and cannot be installed: see above";
        status.success().then_some(()).ok_or_else(|| missing.to_owned())
    });
    assert_eq!(*installed, Ok(()));
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", modules.join("site")).env("TMPDIR", folder.join("tmp"));
    python.current_dir(folder).stderr(log(folder));
    end_with_test(&mut python);
    python
}

fn log(folder: &Path) -> File {
    File::options().create(true).append(true).open(folder.join("log")).expect("a log")
}

/// What stands before a wrapped command, as the page has it.
fn guarded(wrapper: &Path) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks/opencue/README.md");
    let page = fs::read_to_string(page).expect("there");
    let line = page.lines().find(|line| line.starts_with("sh -c '[ -x")).expect("a line for it");
    let (before, _) = line.split_once(" maya ").expect("a command behind it");
    before.replace("/etc/gleaner/hooks/opencue/gleaner-frame", &wrapper.display().to_string())
}

//! The broker as a process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Far more than any start or end takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a broker is started.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) data_dir: PathBuf,
    /// Where its stderr goes, start after start.
    pub(crate) log: PathBuf,
    pub(crate) listen: String,
    pub(crate) options: Vec<String>,
    /// A program that starts it, with its arguments.
    pub(crate) wrapper: Vec<String>,
}

impl Launch {
    /// On a free port of loopback.
    pub(crate) fn on(data_dir: &Path, log: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            log: log.to_owned(),
            listen: "127.0.0.1:0".into(),
            options: Vec::new(),
            wrapper: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    pub(crate) fn spawn(&self) -> Broker {
        let log = File::options().create(true).append(true).open(&self.log).expect("a log");
        let binary = env!("CARGO_BIN_EXE_gleaner");
        let mut command = match self.wrapper.split_first() {
            None => Command::new(binary),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(binary);
                command
            }
        };
        let mut child = command
            .arg("broker")
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(["--listen", &self.listen, "--ownerless-hosts-vote", "each"])
            .args(&self.options)
            .env_remove("RUST_LOG")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("a process");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Broker { child, stdout }
    }

    /// Starts it and waits until it listens.
    pub(crate) async fn start(&self) -> (Broker, String) {
        let mut broker = self.spawn();
        match broker.ready().await {
            Ok(url) => (broker, url),
            Err(status) => panic!("the broker ended with {status}:\n{}", self.said()),
        }
    }

    /// Starts it where it must not come up; returns its exit status and what it said.
    pub(crate) async fn start_in_vain(&self) -> (ExitStatus, String) {
        let said_before = self.said().len();
        match self.spawn().ready().await {
            Ok(url) => panic!("the broker listens on {url} on {}", self.data_dir.display()),
            Err(status) => (status, self.said().split_off(said_before)),
        }
    }

    /// Everything that it wrote to stderr so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

/// A running broker; killed when dropped.
#[derive(Debug)]
pub(crate) struct Broker {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Broker {
    /// Its address, once it listens; else how it ended. May be dropped and called again.
    pub(crate) async fn ready(&mut self) -> Result<String, ExitStatus> {
        let line = timeout(PATIENCE, self.stdout.next_line()).await.expect("it starts or ends");
        match line.expect("its output is text") {
            Some(line) => {
                let url = line.strip_prefix("listening on ").expect("the line says where");
                Ok(url.to_owned())
            }
            None => Err(self.ended().await),
        }
    }

    /// SIGKILL, and nothing of it is left when this returns.
    pub(crate) async fn kill(mut self) {
        self.child.start_kill().expect("it runs, or has not been waited for");
        self.ended().await;
    }

    /// SIGTERM, as an admin stops it.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        kill_process(pid.expect("it runs"), Signal::TERM).expect("it runs");
        self.ended().await
    }

    /// Whether it runs still.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_none()
    }

    async fn ended(&mut self) -> ExitStatus {
        timeout(PATIENCE, self.child.wait()).await.expect("it ends").expect("our own child")
    }
}

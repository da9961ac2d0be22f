//! A broker and an agent as processes of their own, and what they cost.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;

use gleaner_protocol::api::{JobStatus, Submitted};
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{JobId, KernelName, OwnerName};
use tempfile::TempDir;

/// Runs as the part that the arguments ask for, if they do.
pub(crate) fn run_as_part_if_asked(arguments: &[String]) -> Option<ExitCode> {
    match arguments {
        [part, folder] if part == "--as-broker" => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            let config = gleaner_broker::Config {
                listen: ([127, 0, 0, 1], 0).into(),
                data_dir: folder.into(),
                ..gleaner_broker::Config::default()
            };
            let ready = |address| println!("http://{address}");
            runtime
                .block_on(gleaner_broker::run(config, ready, std::future::pending()))
                .expect("a broker");
            Some(ExitCode::SUCCESS)
        }
        [part, folder, broker, confine] if part == "--as-agent" => {
            let confine = match confine.as_str() {
                "off" => gleaner_agent::Confine::Off,
                _ => gleaner_agent::Confine::Available,
            };
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let config = gleaner_agent::Config {
                name: Some(gleaner_protocol::HostName::new("bench").expect("a plain name")),
                cores: 2,
                broker: broker.clone(),
                run_dir: Some(Path::new(folder).join("run")),
                work_dir: Some(Path::new(folder).join("work")),
                allow_commands: vec!["/bin/true".into()],
                commands: gleaner_agent::CommandRules {
                    confine,
                    ..gleaner_agent::CommandRules::default()
                },
                // The broker that is measured beside it is no load of others.
                preferences: gleaner_agent::Preferences {
                    give_way: false,
                    ..gleaner_agent::Preferences::default()
                },
                ..gleaner_agent::Config::default()
            };
            let ready = |_| println!("ready");
            runtime
                .block_on(gleaner_agent::run(config, ready, std::future::pending()))
                .expect("an agent");
            Some(ExitCode::SUCCESS)
        }
        _ => None,
    }
}

/// A process of this executable that ends with its owner.
pub(crate) struct Part {
    child: Child,
    /// The line by which it said that it is ready.
    pub(crate) line: String,
    _folder: TempDir,
}

impl Part {
    pub(crate) fn broker() -> Self {
        Self::start("--as-broker", &[])
    }

    pub(crate) fn agent(broker: &str, confine: gleaner_agent::Confine) -> Self {
        Self::start("--as-agent", &[broker, &confine.to_string()])
    }

    fn start(part: &str, more: &[&str]) -> Self {
        let target = std::env::var_os("CARGO_TARGET_TMPDIR").unwrap_or_else(|| "target/tmp".into());
        std::fs::create_dir_all(&target).expect("a folder below target");
        // Not in /tmp, which may be memory: what is measured must reach a disk.
        let folder = tempfile::tempdir_in(target).expect("a folder");
        let mut child = Command::new(std::env::current_exe().expect("this executable"))
            .arg(part)
            .arg(folder.path())
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("it says that it is ready");
        Self { child, line: line.trim().to_owned(), _folder: folder }
    }

    /// CPU time so far, in seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it lives");
        let fields: Vec<&str> =
            stat.rsplit(')').next().expect("a name").split_whitespace().collect();
        let ticks: u64 =
            fields[11..13].iter().map(|field| field.parse::<u64>().expect("ticks")).sum();
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    /// Resident memory now, in MiB.
    pub(crate) fn resident_mib(&self) -> f64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it lives");
        let line =
            status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has memory");
        line.split_whitespace().nth(1).expect("a number").parse::<f64>().expect("KiB") / 1024.0
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Submits a job.
pub(crate) async fn submit(broker: &str, spec: &JobSpec) -> JobId {
    let answer =
        client().post(format!("{broker}/v1/jobs")).json(spec).send().await.expect("an answer");
    assert!(answer.status().is_success(), "{}", answer.text().await.expect("a text"));
    answer.json::<Submitted>().await.expect("an id").job
}

/// Looks at a job.
pub(crate) async fn status(broker: &str, job: JobId) -> JobStatus {
    let answer = client().get(format!("{broker}/v1/jobs/{job}")).send().await.expect("an answer");
    answer.json().await.expect("a status")
}

/// One for all: making it reads every root certificate of this machine.
pub(crate) fn client() -> reqwest::Client {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    let client = CLIENT.get_or_init(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::new()
    });
    client.clone()
}

/// A job of `count` workunits that do nothing.
pub(crate) fn noop_job(count: u32) -> JobSpec {
    let text = format!(r#"{{"task":{{"kernel":"noop"}},"workunits":{{"count":{count}}}}}"#);
    let spec: JobSpec = serde_json::from_str(&text).expect("a job");
    JobSpec { owner: OwnerName::new("bench").expect("a plain name"), ..spec }
}

pub(crate) fn noop_kernel() -> KernelName {
    KernelName::new("noop").expect("a plain name")
}

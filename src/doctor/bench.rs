//! A broker and an agent of the doctor's own, in a temporary folder, to be measured.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use gleaner_agent::Isolation;
use gleaner_hooks::install::Site;
use gleaner_hooks::{RunDir, SocketAnswer, SocketRequest, Standing, ask};
use gleaner_protocol::api::Submitted;
use gleaner_protocol::job::{CommandTask, JobSpec, OnRelease, Task, Workunits};
use gleaner_protocol::{JobId, OwnerName, Span, boottime};
use tempfile::TempDir;

use crate::child::{Child, Log};
use crate::client::Client;

/// Longest wait for something that has to happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks at what has no event.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the agent may take to answer.
const ANSWER_MAX: Span = Span::from_secs(5);

/// A broker, a host's folders, and what its run folder shows.
pub(super) struct Bench {
    pub(super) run_dir: RunDir,
    pub(super) client: Client,
    folder: PathBuf,
    /// Removed with it, where the run folder is not in `folder`.
    _run_place: Option<TempDir>,
    url: String,
    broker: Child,
    agent_log: Log,
}

/// What an agent is started with.
pub(super) struct AgentSettings<'a> {
    pub(super) cores: u32,
    pub(super) isolation: Isolation,
    /// Whether it gives way to what nobody announced.
    pub(super) give_way: bool,
    /// The one program that may be run.
    pub(super) program: &'a str,
}

impl Bench {
    /// Starts the broker; `folder` is to hold everything but the run folder, which is in memory as
    /// that of any agent, where there is such a place.
    pub(super) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let run_place = place_in_memory();
        let run_dir = run_place.as_ref().map_or(folder, TempDir::path).join("run");
        let run_dir = RunDir::open(run_dir)?;
        let mut broker = gleaner(&["broker", "--listen", "127.0.0.1:0", "--data-dir"])?;
        broker.arg(folder.join("broker"));
        let mut broker = Child::start("the broker", broker, &Log::create(folder, "broker")?)?;
        let line = broker.line(PATIENCE).await?;
        let Some(url) = line.strip_prefix("listening on ") else {
            bail!("the broker said {line:?} instead of the address that it listens on");
        };
        let (client, url) = (Client::local(url)?, url.to_owned());
        let agent_log = Log::create(folder, "agent")?;
        let folder = folder.to_owned();
        Ok(Self { run_dir, client, folder, _run_place: run_place, url, broker, agent_log })
    }

    /// Starts an agent; returns when it is up.
    pub(super) async fn agent(&self, settings: &AgentSettings<'_>) -> anyhow::Result<Child> {
        let mut agent = gleaner(&["agent", "--name", "patient", "--broker", &self.url])?;
        agent.args(["--cores", &settings.cores.to_string()]);
        agent.args(["--give-way", &settings.give_way.to_string()]);
        agent.args(["--isolation", name_of(settings.isolation)]);
        // It is ours, and what is measured is to be had wherever an agent runs.
        agent.args(["--allow-command", settings.program, "--confine", "available"]);
        agent.arg("--run-dir").arg(self.run_dir.path());
        agent.arg("--work-dir").arg(self.folder.join("work"));
        let mut agent = Child::start("the agent", agent, &self.agent_log)?;
        agent.line(PATIENCE).await?;
        Ok(agent)
    }

    /// How the agent says that it stands.
    pub(super) fn standing(&self) -> anyhow::Result<Standing> {
        match ask(&self.run_dir.socket_path(), &SocketRequest::Standing, ANSWER_MAX) {
            Ok(SocketAnswer::Standing(standing)) => Ok(*standing),
            Ok(other) => bail!("the agent answers {other:?}"),
            Err(error) => bail!("no agent answers: {error}"),
        }
    }

    pub(super) async fn submit(
        &self,
        task: Task,
        workunits: Workunits,
        on_release: OnRelease,
    ) -> anyhow::Result<JobId> {
        let spec = JobSpec {
            name: "doctor".into(),
            owner: OwnerName::new("doctor").expect("a plain name"),
            project: None,
            lane: Default::default(),
            task,
            workunits,
            replication: 1,
            quorum: None,
            max_replicas: None,
            lease_s: 24 * 3600,
            profile: Default::default(),
            trust: Default::default(),
            on_release,
            attempts: Default::default(),
            on: None,
            cores_permille: gleaner_protocol::Share::WHOLE,
            gpus: 0,
        };
        let submitted: Submitted = self.client.post("/v1/jobs", &spec).await?;
        Ok(submitted.job)
    }

    /// A command without files.
    pub(super) fn command(argv: &[&str]) -> Task {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        Task::Command(CommandTask {
            argv,
            inputs: Vec::new(),
            outputs: Vec::new(),
            memory_mib: None,
        })
    }

    /// Has a render begin or end; it books some cores, or the whole host.
    pub(super) async fn hook(
        &self,
        kind: &str,
        booking: &str,
        cores: Option<u32>,
    ) -> anyhow::Result<()> {
        let mut hook = Command::new(hook_program()?);
        hook.args(["hook", kind, "--farm", "generic"]);
        hook.arg("--run-dir").arg(self.run_dir.path()).env("GLEANER_BOOKING", booking);
        if let Some(cores) = cores {
            hook.env("GLEANER_CORES", cores.to_string());
        }
        hook.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = tokio::process::Command::from(hook).status().await;
        let status = status.context("cannot start the hook")?;
        if status.success() { Ok(()) } else { bail!("the hook failed: {status}") }
    }

    /// Waits for what the run folder shows, which has no event.
    pub(super) async fn until(
        &self,
        what: &str,
        holds: impl Fn(&RunDir) -> bool,
    ) -> anyhow::Result<()> {
        let end = boottime() + Span::from(PATIENCE);
        while !holds(&self.run_dir) {
            if boottime() > end {
                let reasons = self.standing().map(|standing| standing.reasons);
                let reasons: Vec<String> =
                    reasons.unwrap_or_default().into_iter().map(|reason| reason.text).collect();
                let because = if reasons.is_empty() {
                    String::new()
                } else {
                    format!("; the agent says: {}", reasons.join("; "))
                };
                bail!("waited {} s for {what}{because}", PATIENCE.as_secs());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    pub(super) async fn shut_down(self) {
        end(self.broker).await;
    }
}

/// Ends a child in good order.
pub(super) async fn end(mut child: Child) {
    child.ask_to_end();
    // One that fails to is killed as it is dropped.
    let _ = tokio::time::timeout(PATIENCE, child.status()).await;
}

/// A folder where run folders are: where the system or the user has what does not outlive them.
fn place_in_memory() -> Option<TempDir> {
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let places = [Some(PathBuf::from("/run")), of_user, Some(PathBuf::from("/dev/shm"))];
    let make =
        |place: PathBuf| tempfile::Builder::new().prefix("gleaner-doctor-").tempdir_in(place);
    places.into_iter().flatten().find_map(|place| make(place).ok())
}

/// This very program, with other arguments.
pub(super) fn gleaner(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(this_program()?);
    command.args(arguments);
    Ok(command)
}

/// The program that a farm's hooks would run.
pub(super) fn hook_program() -> anyhow::Result<PathBuf> {
    Ok(Site::here().hook_program(&this_program()?))
}

/// This program's file.
pub(super) fn this_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

fn name_of(isolation: Isolation) -> &'static str {
    let named = Isolation::NAMES.into_iter().find(|(_, one)| *one == isolation);
    named.map_or("auto", |(name, _)| name)
}

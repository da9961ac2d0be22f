//! Managers that call nothing on a host: the agent is told to watch their worker, by a file of ours
//! beside its systemd unit. OpenCue's worker may be watched beside the wrapper around its frames.

use std::path::{Path, PathBuf};

use super::adapter::{Adapter, When};
use super::record::Record;
use super::{Change, Finding, InstallError, Manager, Options, Plan, Site, WATCH_VARIABLE};
use crate::limits::{PROCESS_NAME_BYTES_MAX, STANDING_TIMEOUT};
use crate::{SocketAnswer, SocketRequest, ask, worker_name_among};

/// Where systemd looks for units of this host.
const UNITS: &str = "/etc/systemd/system";
/// Where it looks for what is added to the agent's.
pub(super) const BESIDE: &str = "/etc/systemd/system/gleaner-agent.service.d";
const AGENT: &str = "gleaner-agent.service";
/// The right that the agent needs for it, as a file of its own has it.
const RIGHTS: &str = include_str!("../../../agent/systemd/watch-workers.conf");

/// Has the agent watch.
const RESTART: [&[&str]; 2] =
    [&["systemctl", "daemon-reload"], &["systemctl", "try-restart", AGENT]];

/// The same, to be typed.
fn restart() -> String {
    RESTART.map(|words| words.join(" ")).join(" && ")
}

/// How one of them is watched.
pub(super) struct Watched {
    manager: Manager,
    /// The process that starts its renders, where that has one name as a rule.
    worker: Option<&'static str>,
    /// What the monitor does beside that.
    poll: &'static str,
}

pub(super) const FLAMENCO: Watched = Watched {
    manager: Manager::Flamenco,
    worker: Some("flamenco-worker"),
    poll: "have it poll the manager: poll = \"flamenco\", and poll_url, in monitor.toml \
           (hooks/flamenco/README.md)",
};

pub(super) const ROYAL_RENDER: Watched = Watched {
    manager: Manager::RoyalRender,
    worker: Some("rrClient"),
    poll: "have it poll what a script of yours says of the clients: poll = \"json\", and poll_url, in \
           monitor.toml (hooks/royal-render/README.md)",
};

/// Watched only where an administrator names its worker: the wrapper is there without.
pub(super) const OPENCUE: Watched = Watched {
    manager: Manager::OpenCue,
    worker: None,
    poll: "have it poll the RQDs: poll = \"opencue\", and poll_hosts, in monitor.toml \
           (hooks/opencue/README.md)",
};

impl Adapter for Watched {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        self.plan_watch(site, options, plan)?;
        if !options.settings.is_empty() {
            plan.notes.push(
                "no hook runs here that could tell a monitor: the agent's own `monitor`, `key_file`, \
                 `ca_file` and `name` count"
                    .into(),
            );
        }
        plan.notes.push(format!("the monitor is told nothing by this: {}", self.poll));
        Ok(())
    }

    /// It is the agent that reads it.
    fn reload(&self, site: &Site, _options: &Options, plan: &mut Plan) {
        if site.has_program("systemctl") {
            plan.changes.extend(RESTART.map(|words| Change::Tell {
                command: words.iter().map(|word| (*word).to_owned()).collect(),
                undo: None,
                is_needed: false,
            }));
        } else {
            plan.undone.push(format!("have the agent read that: `{}`", restart()));
        }
    }

    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        self.check_watch(site, options, findings);
        findings.push(Finding::trap(
            format!("{} calls nothing before a render, so the agent sees it begin", self.manager),
            "that cannot be changed: cores are freed some milliseconds after its start",
        ));
        findings
            .push(Finding::note("whether the monitor polls cannot be seen from here", self.poll));
    }

    fn scripts(&self, _options: &Options) -> Option<[PathBuf; 2]> {
        None
    }

    fn probe_workers(&self, options: &Options) -> Vec<String> {
        self.workers(options)
    }

    /// An agent that was not restarted since still watches.
    fn may_still_run(&self, _site: &Site, record: &Record, when: When) -> Option<String> {
        let is_untold = when == When::Now && record.untold.is_none();
        is_untold.then(|| "the agent has not been restarted since".into())
    }
}

impl Watched {
    /// Has the agent watch.
    pub(super) fn plan_watch(
        &self,
        site: &Site,
        options: &Options,
        plan: &mut Plan,
    ) -> Result<(), InstallError> {
        let workers = self.workers(options);
        if let Some(bad) = workers.iter().find(|name| !is_name(name)) {
            return Err(InstallError::missing(
                format!("{bad:?} is no name of a worker's process"),
                format!(
                    "take it from `ps -e -o comm`: 1 to {PROCESS_NAME_BYTES_MAX} letters, digits and ._-"
                ),
            ));
        }
        if site.mode(Path::new(UNITS)).is_none() {
            return Err(InstallError::missing(
                format!("there is no folder {UNITS}"),
                format!(
                    "without systemd start the agent as root with --watch-worker {}; {}",
                    workers.join(" --watch-worker "),
                    match self.worker {
                        Some(_) => "there is nothing to install then",
                        None => "install without --worker then",
                    }
                ),
            ));
        }
        let before = plan.changes.len();
        plan.put(site, &self.file(), 0o644, &self.text(&workers))?;
        // One that was interrupted has written it, and the agent has not read it.
        if plan.changes.len() > before || lacks(site, options, &workers) {
            self.reload(site, options, plan);
        }
        Ok(())
    }

    /// Whether the agent watches, and whether there is a worker.
    pub(super) fn check_watch(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        let workers = self.workers(options);
        self.check_file(site, &workers, findings);
        check_agent(site, options, &workers, findings);
        check_workers(site, &workers, findings);
    }

    fn workers(&self, options: &Options) -> Vec<String> {
        match options.workers.is_empty() {
            true => self.worker.into_iter().map(String::from).collect(),
            false => options.workers.clone(),
        }
    }

    fn file(&self) -> PathBuf {
        Path::new(BESIDE).join(format!("gleaner-{}.conf", self.manager))
    }

    /// Of the two that add rights each is complete.
    fn text(&self, workers: &[String]) -> String {
        let (_, rights) = RIGHTS.split_once("[Service]\n").expect("a part of a unit");
        let variable = self.manager.as_str().to_ascii_uppercase().replace('-', "_");
        format!(
            "# Gleaner's agent watches the worker of a farm: `gleaner farm uninstall --farm {}`\n\
             # takes this file away.\n\n\
             [Service]\n\
             Environment={WATCH_VARIABLE}{variable}={}\n\
             {rights}",
            self.manager,
            workers.join(",")
        )
    }

    fn check_file(&self, site: &Site, workers: &[String], findings: &mut Vec<Finding>) {
        let (file, names) = (self.file(), workers.join(", "));
        let install = format!("`gleaner farm install --farm {}` writes it", self.manager);
        findings.push(match site.read(&file) {
            Ok(Some(text)) if text == self.text(workers) => {
                Finding::good(format!("{} has the agent watch {names}", file.display()))
            }
            Ok(_) => Finding::wrong(
                format!("{} does not have the agent watch {names}", file.display()),
                install,
            ),
            Err(error) => Finding::wrong(error.to_string(), install),
        });
    }
}

/// As an agent takes it, and a unit's line.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=PROCESS_NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

/// What the agent of this host says that it watches.
fn watched(site: &Site, options: &Options) -> Result<Vec<String>, String> {
    let socket = site.real(&options.run_dir).join("agent.sock");
    match ask(&socket, &SocketRequest::Standing, STANDING_TIMEOUT) {
        Ok(SocketAnswer::Standing(standing)) => Ok(standing.workers),
        Ok(other) => Err(format!("it says {other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether an agent runs and does not watch one of these.
fn lacks(site: &Site, options: &Options, workers: &[String]) -> bool {
    watched(site, options).is_ok_and(|all| workers.iter().any(|worker| !all.contains(worker)))
}

fn check_agent(site: &Site, options: &Options, workers: &[String], findings: &mut Vec<Finding>) {
    let shown = options.run_dir.display();
    let restart = restart();
    findings.push(match watched(site, options) {
        Ok(all) => match workers.iter().find(|worker| !all.contains(worker)) {
            None => Finding::good(format!("the agent that answers in {shown} watches them")),
            Some(worker) => Finding::wrong(
                format!("the agent that answers in {shown} does not watch {worker}"),
                format!(
                    "`{restart}`; one that is no service of systemd is started as root with \
                     --watch-worker {worker}"
                ),
            ),
        },
        Err(error) => Finding::note(
            format!("no agent answers in {shown}: {error}"),
            "start it: until then there is nothing to free; `journalctl -u gleaner-agent` says why \
             it ends",
        ),
    });
}

fn check_workers(site: &Site, workers: &[String], findings: &mut Vec<Finding>) {
    let processes = Path::new("/proc");
    let is_worker =
        |pid: &String| worker_name_among(&site.real(&processes.join(pid)), workers).is_some();
    let is_process = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    let mut pids = site.names(processes).into_iter().filter(is_process);
    let names = workers.join(", ");
    findings.push(match pids.find(is_worker) {
        Some(pid) => Finding::good(format!("a worker is seen: process {pid} ({names})")),
        None => Finding::note(
            format!("no process is called {names}"),
            "start the worker and check again; if `ps -e -o comm` shows it by another name, install \
             again with --worker NAME (where that is python3, the module's or script's that it runs)",
        ),
    });
}

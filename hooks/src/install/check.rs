//! Whether an installation is right, and which traps of its manager it stands before.

use std::fmt;
use std::path::Path;
use std::{fs, io};

use serde::Serialize;

use super::record::Record;
use super::{HookSettings, InstallError, Manager, Options, Site, adapter, run_folder, settings};
use crate::command_line::{ALONE, VERSION, WHOLE};
use crate::limits::AGENT_TIMEOUT;
use crate::{AskError, FileSystem, SocketRequest, ask};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It is right.
    Good,
    /// It could not be seen from here.
    Note,
    /// It works, and may hurt: a known trap of this manager.
    Trap,
    /// It does not work.
    Wrong,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Trap => "trap",
            Self::Wrong => "wrong",
        })
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is, and where.
    pub what: String,
    /// What to do; empty where nothing is.
    pub to_do: String,
}

impl Finding {
    pub(super) fn good(what: impl Into<String>) -> Self {
        Self { level: Level::Good, what: what.into(), to_do: String::new() }
    }

    pub(super) fn note(what: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { level: Level::Note, what: what.into(), to_do: to_do.into() }
    }

    pub(super) fn trap(what: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { level: Level::Trap, what: what.into(), to_do: to_do.into() }
    }

    pub(super) fn wrong(what: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { level: Level::Wrong, what: what.into(), to_do: to_do.into() }
    }

    /// The one that every manager has.
    pub(super) fn load_average(threshold: &str) -> Self {
        Self::trap(
            format!("harvested work counts in the load average, and so in {threshold}"),
            "raise it or switch it off, or the host stands idle for its own farm",
        )
    }

    /// Where a manager judges by the host's memory: it books no render, or ends one, for what
    /// harvested work takes.
    pub(super) fn memory(margin: &str) -> Self {
        Self::trap(
            format!("harvested work takes memory of the host, and so counts in {margin}"),
            "set reserve_memory_mib of the monitor to that margin and what the next render needs at \
             once",
        )
    }

    /// Where it judges by what a render takes itself.
    pub(super) fn own_memory(limit: &str) -> Self {
        Self::trap(
            format!(
                "{limit} may end a render for the memory that it takes itself, and sees nothing of what \
                 harvested work has"
            ),
            "set reserve_memory_mib of the monitor to what the next render needs at once",
        )
    }
}

/// Looks at an installation, and changes nothing.
///
/// # Errors
/// Nothing of ours is recorded here, or the record is damaged.
pub fn check(
    manager: Manager,
    site: &Site,
    options: &Options,
) -> Result<Vec<Finding>, InstallError> {
    let record = Record::read(manager, site)?.ok_or_else(|| InstallError::NotInstalled {
        manager,
        path: super::record::path(manager),
    })?;
    let mut findings = Vec::new();
    check_files(&record, site, &mut findings);
    if manager.calls_hooks() {
        check_what_hooks_read(manager, site, options, &mut findings);
    }
    adapter::of(manager).check(site, &as_installed(&record, options), &mut findings);
    Ok(findings)
}

fn check_what_hooks_read(
    manager: Manager,
    site: &Site,
    options: &Options,
    findings: &mut Vec<Finding>,
) {
    match HookSettings::of(manager, site) {
        Ok(settings) if settings.is_there() => {
            check_settings(&settings, site, options, findings);
            if manager.runs_hooks_as_users() {
                run_folder::check(&settings, site, options, findings);
            }
        }
        Ok(HookSettings { path, .. }) => findings
            .push(Finding::wrong(format!("there is no {}", path.display()), "install again")),
        Err(error) => findings.push(Finding::wrong(error.to_string(), "install again")),
    }
}

/// What was said at the installation holds, but for what is said now.
pub(super) fn as_installed(record: &Record, options: &Options) -> Options {
    let was = record.options.clone();
    Options {
        conf: options.conf.clone().or(was.conf),
        folder: options.folder.clone().or(was.folder),
        node: options.node.clone().or(was.node),
        probe_queue: options.probe_queue.clone(),
        queues: if options.queues.is_empty() { was.queues } else { options.queues.clone() },
        workers: if options.workers.is_empty() { was.workers } else { options.workers.clone() },
        ..was
    }
}

fn check_files(record: &Record, site: &Site, findings: &mut Vec<Finding>) {
    let again = "install again";
    let mut bad = 0;
    for (path, text) in &record.files {
        let shown = path.display();
        let finding = match site.read(path) {
            Ok(Some(now)) if now == *text => None,
            Ok(Some(_)) if *path == settings::path() => None,
            Ok(Some(_)) => Some(Finding::note(
                format!("{shown} is not as it was installed"),
                "if that was not you, remove it and install again",
            )),
            Ok(None) => Some(Finding::wrong(format!("{shown} is gone"), again)),
            Err(error) => Some(Finding::wrong(error.to_string(), again)),
        };
        let is_program = text.starts_with("#!");
        let mode = site.mode(path).unwrap_or(0);
        let open = (mode & 0o022 != 0).then(|| {
            Finding::wrong(
                format!("{shown} can be changed by others than its owner (mode {mode:04o})"),
                "chmod go-w, for the farm runs it as root",
            )
        });
        let dead = (is_program && mode & 0o100 == 0 && finding.is_none())
            .then(|| Finding::wrong(format!("{shown} cannot be run"), "chmod u+x"));
        let all: Vec<_> = [finding, open, dead].into_iter().flatten().collect();
        bad += all.len();
        findings.extend(all);
    }
    if bad == 0 {
        findings.push(Finding::good(format!("{} files are as installed", record.files.len())));
    }
}

fn check_settings(
    settings: &HookSettings,
    site: &Site,
    options: &Options,
    findings: &mut Vec<Finding>,
) {
    let path = &settings.path;
    let program = settings.value("GLEANER").unwrap_or_else(|| "/usr/local/bin/gleaner".into());
    let program = Path::new(&program);
    if site.is_executable(program) {
        findings.push(Finding::good(format!("the hooks find {}", program.display())));
    } else {
        findings.push(Finding::wrong(
            format!(
                "{} names {}, which cannot be run: the hooks do nothing",
                path.display(),
                program.display()
            ),
            "copy gleaner there, or change GLEANER",
        ));
    }
    findings.extend(check_version(program, site));
    let monitor = settings.value("GLEANER_MONITOR").unwrap_or_default();
    let whole = program.with_file_name(WHOLE);
    if program.ends_with(ALONE) && monitor.starts_with("https://") && !site.is_executable(&whole) {
        findings.push(Finding::wrong(
            format!(
                "{} names {}, which has gleaner beside it tell a monitor behind TLS, and there is \
                 no {}: the monitor is not told",
                path.display(),
                program.display(),
                whole.display()
            ),
            "copy gleaner there, or change GLEANER",
        ));
    }
    for file in [path.as_path(), program] {
        if FileSystem::of(&site.real(file)) == FileSystem::Network {
            findings.push(Finding::trap(
                format!("{} is on a network file system", file.display()),
                "put it on a local disk: when the server is down each hook takes two seconds",
            ));
        } else if let Some(kind) = FileSystem::unknown_program(&site.real(file)) {
            findings.push(Finding::trap(
                format!("{} is on a file system that is a program ({kind})", file.display()),
                "if that one asks a server, put it on a local disk: each hook would wait for it",
            ));
        }
    }
    if let Some(token) = settings.value("GLEANER_TOKEN_FILE")
        && site.mode(Path::new(&token)).is_none()
    {
        findings.push(Finding::wrong(
            format!("{} names the token file {token}, which is not there", path.display()),
            "copy it there, or the monitor is not told",
        ));
    }
    let run_dir = settings.value("GLEANER_RUN_DIR");
    let run_dir = run_dir.map_or_else(|| options.run_dir.clone(), Into::into);
    check_agent(&site.real(&run_dir), &run_dir, findings);
}

/// Whether the hooks' program is of this release. One of another name is the site's own, of which nobody
/// knows what it does when it is asked.
fn check_version(program: &Path, site: &Site) -> Option<Finding> {
    if !(program.ends_with(ALONE) || program.ends_with(WHOLE)) || !site.is_executable(program) {
        return None;
    }
    let shown = program.display();
    let to_do = "put gleaner and gleaner-hook of one release there, and install again";
    Some(match site.version_of(program)? {
        Ok(said) => match said.trim().rsplit_once(' ').map(|(_, version)| version) {
            Some(VERSION) => Finding::good(format!("{shown} is of this release ({VERSION})")),
            Some(other) => Finding::trap(
                format!("{shown} is of release {other:.40}, and what checks it of {VERSION}"),
                to_do,
            ),
            None => Finding::trap(
                format!("{shown} does not say its release, so it is none of {VERSION}"),
                to_do,
            ),
        },
        Err(error) => Finding::trap(format!("{shown} does not say its release: {error}"), to_do),
    })
}

fn check_agent(real: &Path, shown: &Path, findings: &mut Vec<Finding>) {
    let shown = shown.display();
    if fs::metadata(real).is_err() {
        findings.push(Finding::note(
            format!("there is no run folder {shown} yet"),
            "start the agent: until then there is nothing to free",
        ));
        return;
    }
    match ask(&real.join("agent.sock"), &SocketRequest::Status, AGENT_TIMEOUT) {
        Ok(_) => findings.push(Finding::good(format!("the agent answers in {shown}"))),
        Err(AskError::Connect(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            findings.push(Finding::note(
                format!("this user may not ask the agent in {shown}"),
                "run the check as root too, or as the user whose agent it is",
            ));
        }
        Err(error) => findings.push(Finding::note(
            format!("no agent answers in {shown}: {error}"),
            "see that the agent's run folder is the hooks' GLEANER_RUN_DIR",
        )),
    }
}

//! Installs the hooks with a farm manager, sees that they are right, and takes them away again.
//!
//! [`install()`] plans what is to be done ([`Plan`]) and writes nothing; [`Plan::apply`] does it.
//! What was done is recorded beside the hooks, so that [`uninstall()`] undoes exactly that.
//! [`check()`] looks and changes nothing; [`probe()`] has the hooks fire once.
//!
//! # Invariants
//! - Files come before the configuration that names them, and go after it: no manager is ever told
//!   to run what is not there. Where a running manager may still run them, they stay.
//! - A site's own lines are never changed; ours stand between two lines that say so.
//! - Doing it twice is doing it once; doing it otherwise is doing both, and both are undone.

mod adapter;
mod afanasy;
mod block;
mod change;
mod check;
mod condor;
mod deadline;
mod grid_engine;
mod manager;
mod moment;
mod opencue;
mod openpbs;
mod probe;
mod qube;
mod record;
mod run_folder;
mod scripts;
mod settings;
mod site;
mod slurm;
mod torque;
mod tractor;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use block::BlockError;
pub use change::{Change, Plan};
pub use check::{Finding, Level, check};
pub use manager::Manager;
pub use probe::probe;
pub use settings::HookSettings;
pub use site::Site;

use adapter::When;
use record::Record;

/// Where hooks and their settings are installed.
const ETC: &str = "/etc/gleaner";

/// How the variables begin that name processes whose children are renders, for the agent. Each
/// installation has one of its own, which adds to what the agent's configuration names.
pub const WATCH_VARIABLE: &str = "GLEANER_AGENT_WATCH_";

/// What an administrator may say about an installation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The manager's configuration file, where that is not the usual one.
    pub conf: Option<PathBuf>,
    /// The manager's folder: which one depends on the manager.
    pub folder: Option<PathBuf>,
    /// Queues of Grid Engine; all where none is named.
    pub queues: Vec<String>,
    /// This host's name with the manager, where that is not the system's.
    pub node: Option<String>,
    /// The partition or queue that a probe's job goes to, where that is not the usual one.
    #[serde(skip)]
    pub probe_queue: Option<String>,
    /// Names of its worker's processes, where those are not the usual one: of managers that call
    /// nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<String>,
    /// Only the files of this host: the manager is told nothing.
    pub files_only: bool,
    /// That every other node of the cluster has the files already.
    pub nodes_are_ready: bool,
    /// The program, `gleaner`.
    pub program: PathBuf,
    /// The agent's run folder.
    pub run_dir: PathBuf,
    /// More lines for the settings, as `NAME=value`.
    pub settings: Vec<(String, String)>,
}

impl Options {
    /// What is not said stays as it was said before.
    fn after(&self, before: &Self) -> Self {
        let mut now = self.clone();
        now.conf = now.conf.or_else(|| before.conf.clone());
        now.folder = now.folder.or_else(|| before.folder.clone());
        now.node = now.node.or_else(|| before.node.clone());
        now.nodes_are_ready |= before.nodes_are_ready;
        for (said, was) in [(&mut now.workers, &before.workers), (&mut now.queues, &before.queues)]
        {
            if said.is_empty() {
                said.clone_from(was);
            }
        }
        let said = std::mem::replace(&mut now.settings, before.settings.clone());
        for (name, value) in said {
            match now.settings.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = value,
                None => now.settings.push((name, value)),
            }
        }
        now
    }

    /// This host's name with the manager.
    fn node_or_own(&self) -> String {
        self.node.clone().unwrap_or_else(own_name)
    }
}

/// What this host calls itself.
fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Plans the installation: what is to be written and run, in order. Writes nothing.
///
/// # Errors
/// The site has something in its place already, or what is needed is not there.
pub fn install(manager: Manager, site: &Site, options: &Options) -> Result<Plan, InstallError> {
    let before = Record::read(manager, site)?;
    let options = &match &before {
        Some(before) => options.after(&before.options),
        None => options.clone(),
    };
    let mut plan = Plan::after(manager, before.as_ref());
    if manager.calls_hooks() {
        settings::plan(manager, site, options, &mut plan)?;
    }
    let adapter = adapter::of(manager);
    adapter.plan(site, options, &mut plan)?;
    if manager.calls_hooks() {
        settings::plan_beside(site, options, &mut plan)?;
    }
    if manager.runs_hooks_as_users() {
        plan.notes.push(run_folder::NOTE.into());
    }
    Ok(plan.with_record(options, before.as_ref()))
}

/// The run folder that an installation was told of; none where there is none.
///
/// # Errors
/// Its record is damaged.
pub fn run_dir_before(manager: Manager, site: &Site) -> Result<Option<PathBuf>, InstallError> {
    Ok(Record::read(manager, site)?.map(|record| record.options.run_dir))
}

/// What came of an uninstallation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Uninstalled {
    /// What was done, or would be, a line each.
    pub done: Vec<String>,
    /// What is still there, and why; what is left to be done.
    pub left: Vec<String>,
    /// Whether something of it is to be done by hand, or at another time.
    pub is_unfinished: bool,
    /// What the administrator has to know, whatever is left.
    pub notes: Vec<String>,
}

/// Takes the hooks away. With `dry_run` only says how.
///
/// # Errors
/// Nothing of ours is recorded here, or something cannot be written; what was done until then
/// stays done, and trying again goes on from there.
pub fn uninstall(
    manager: Manager,
    site: &Site,
    dry_run: bool,
) -> Result<Uninstalled, InstallError> {
    let mut record = Record::read(manager, site)?
        .ok_or_else(|| InstallError::NotInstalled { manager, path: record::path(manager) })?;
    let adapter = adapter::of(manager);
    let mut outcome = Uninstalled::default();
    outcome.notes.extend(adapter.outlives_it());
    outcome.notes.extend(adapter.to_put_back().map(String::from));
    if manager.runs_hooks_as_users() {
        outcome.notes.push(run_folder::TO_PUT_BACK.into());
    }
    let mut told = record.plan_to_untell(manager, site)?;
    let may_be_told = record.untold.is_none() || adapter.is_told_again();
    let is_news = !told.is_done()
        || (may_be_told && may_still_run(manager, site, &record, When::Now).is_some());
    if is_news {
        adapter.reload(site, &record.options, &mut told);
    }
    let mut would_be = WouldBe::default();
    carry_out(told, site, dry_run, &mut would_be, &mut outcome)?;
    if is_news && !dry_run {
        record.note_untold(manager, site)?;
    }
    let when = match (is_news, dry_run) {
        (false, _) => When::Now,
        (true, false) => When::Told,
        (true, true) => When::WouldBeTold,
    };
    if let Some(why) = may_still_run(manager, site, &record, when) {
        outcome.is_unfinished = true;
        outcome.left.push(format!(
            "the files in {} {}: {why}; run `gleaner farm uninstall --farm {manager}` again later",
            folder(manager).display(),
            if dry_run { "would stay" } else { "stay" }
        ));
        return Ok(outcome);
    }
    let rest = record.plan_to_remove(manager, site, &would_be)?;
    carry_out(rest, site, dry_run, &mut would_be, &mut outcome)?;
    let ours = folder(manager);
    let is_said = outcome.left.iter().any(|left| Path::new(left).starts_with(&ours));
    if !is_said && !site.would_be_empty(&ours, &would_be.gone) {
        outcome.left.push(format!("{} is kept: not all in it is Gleaner's", ours.display()));
    }
    Ok(outcome)
}

/// Why our files have to stay; none where the manager says that it does not run them, or where it
/// is known that there is none.
fn may_still_run(manager: Manager, site: &Site, record: &Record, when: When) -> Option<String> {
    if !site.may_have_manager() {
        return None;
    }
    let adapter = adapter::of(manager);
    match adapter.is_asked_by().filter(|program| !site.has_program(program)) {
        Some(program) => Some(format!(
            "{program} is not here, so it cannot be asked whether {manager} still runs them (have it \
             in PATH, or say --manager-is-gone where that runs no more)"
        )),
        None => adapter.may_still_run(site, record, when),
    }
}

/// What a dry run would have done so far; nothing in a real one.
#[derive(Debug, Default)]
struct WouldBe {
    /// Files and folders that are there and would not be.
    gone: BTreeSet<PathBuf>,
    /// Files that would have another text.
    edited: BTreeMap<PathBuf, String>,
}

/// Does it, or says what it would come to.
fn carry_out(
    plan: Plan,
    site: &Site,
    dry_run: bool,
    would_be: &mut WouldBe,
    outcome: &mut Uninstalled,
) -> Result<(), InstallError> {
    outcome.left.extend(plan.notes.iter().chain(&plan.undone).cloned());
    outcome.is_unfinished |= !plan.undone.is_empty();
    if dry_run {
        for change in &plan.changes {
            match change {
                Change::RemoveFolder { path } if !site.would_be_empty(path, &would_be.gone) => {
                    continue;
                }
                Change::Remove { path } | Change::RemoveFolder { path } => {
                    would_be.gone.insert(path.clone());
                }
                Change::Edit { path, after, .. } => {
                    would_be.edited.insert(path.clone(), after.clone());
                }
                Change::Put { .. } | Change::Tell { .. } => {}
            }
            outcome.done.push(change.to_string());
        }
    } else {
        let (done, undone) = plan.apply(site)?;
        outcome.done.extend(done);
        outcome.is_unfinished |= !undone.is_empty();
        outcome.left.extend(undone);
    }
    Ok(())
}

/// Where a manager's hooks are installed.
fn folder(manager: Manager) -> PathBuf {
    Path::new(ETC).join("hooks").join(manager.as_str())
}

/// Why hooks cannot be installed, checked or taken away.
#[derive(Debug, Error)]
pub enum InstallError {
    /// Not a manager that is known.
    #[error(
        "{text:?} is no farm manager that hooks can be installed with; these are: {known}. \
             For any other whose hooks are scripts take generic"
    )]
    NoSuchManager {
        /// What was asked for.
        text: String,
        /// Those that are known.
        known: String,
    },
    /// Something cannot be read or written.
    #[error("cannot {act} {path}: {source}{hint}", path = path.display(), hint = hint(source))]
    Io {
        /// What was tried.
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file's block of ours is damaged.
    #[error("{path}: {source}; put the two lines right, or remove what is between them", path = path.display())]
    Block {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: BlockError,
    },
    /// The site has a hook of its own there.
    #[error("{place} has {what} already, and Gleaner does not touch it; {to_do}")]
    Occupied {
        /// The file and line, or the queue.
        place: String,
        /// What is there.
        what: String,
        /// What to do.
        to_do: String,
    },
    /// Something that is needed is not there.
    #[error("{what}; {to_do}")]
    Missing {
        /// What, and where it was looked for.
        what: String,
        /// What to do.
        to_do: String,
    },
    /// A manager's program did not do what it should.
    #[error("`{line}`: {why}")]
    Command {
        /// The command line.
        line: String,
        /// What went wrong.
        why: String,
    },
    /// There is nothing to take away or look at.
    #[error("no hooks for {manager} are installed here: there is no {path}; \
             `gleaner farm install --farm {manager}` installs them", path = path.display())]
    NotInstalled {
        /// The manager.
        manager: Manager,
        /// Where it would be recorded.
        path: PathBuf,
    },
    /// The record is none.
    #[error("{path} is no record of this release: {source}; remove the hooks by hand, as their \
             README.md says", path = path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// What to do about the most likely of reasons.
fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; run this as root",
        io::ErrorKind::ReadOnlyFilesystem => "; run this where it can be written",
        io::ErrorKind::StorageFull => "; make room and run this again",
        _ => "",
    }
}

impl InstallError {
    fn io(act: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { act, path: path.to_owned(), source }
    }

    fn missing(what: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self::Missing { what: what.into(), to_do: to_do.into() }
    }
}

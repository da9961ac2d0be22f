//! What differs from one farm manager to the next.

use std::path::PathBuf;

use super::record::Record;
use super::{
    Finding, InstallError, Manager, Options, Plan, Site, afanasy, condor, deadline, grid_engine,
    opencue, openpbs, qube, scripts, slurm, torque, tractor, watched,
};
use crate::limits::PROBE_JOB_S;

/// How hooks are installed with one farm manager.
pub(super) trait Adapter {
    /// Adds what is to be written and told.
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError>;

    /// Has a running manager read its configuration again, after our lines are gone from it.
    fn reload(&self, _site: &Site, _options: &Options, _plan: &mut Plan) {}

    /// The manager's program that says whether it still runs our files; none where their absence
    /// hurts nothing.
    fn is_asked_by(&self) -> Option<&'static str> {
        None
    }

    /// Why the running manager may still run our files; none where it does not. Asked where
    /// [`Adapter::is_asked_by`] is here.
    fn may_still_run(&self, _site: &Site, _record: &Record, _when: When) -> Option<String> {
        None
    }

    /// What there is of something that it was told, which a recorded command takes back.
    fn told(&self, _site: &Site, _undo: &[String]) -> Told {
        Told::Stands
    }

    /// Whether to have it read its configuration again is of use each time that its jobs still run our
    /// files, and not only once.
    fn is_told_again(&self) -> bool {
        true
    }

    /// What may name our files still when they are gone, where nobody can be asked about it.
    fn outlives_it(&self) -> Option<String> {
        None
    }

    /// What an administrator may have set with the manager because `check` or the manager's page said so,
    /// and how to put that back.
    fn to_put_back(&self) -> Option<&'static str> {
        None
    }

    /// Looks at what only this manager has, and for its known traps.
    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>);

    /// The scripts before and after a render, for calling them once.
    fn scripts(&self, options: &Options) -> Option<[PathBuf; 2]>;

    /// What the manager gives these of a job of that name, of one core.
    fn probe_arguments(&self, _booking: &str) -> [Vec<String>; 2] {
        [Vec::new(), Vec::new()]
    }

    /// A job that the manager runs to show that the hooks fire.
    fn probe_job(&self, _options: &Options) -> Option<ProbeJob> {
        None
    }

    /// Names of workers whose children the agent is to see, where nothing is called.
    fn probe_workers(&self, _options: &Options) -> Vec<String> {
        Vec::new()
    }
}

/// When a manager is asked whether it may still run our files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// At any time.
    Now,
    /// It was told of their end a moment ago.
    Told,
    /// It has not been told, and what it would say if it were is what is asked.
    WouldBeTold,
}

/// What there is of something that a manager was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// It is there, as far as is known.
    Stands,
    /// It is gone, and nothing is in its place.
    Gone,
    /// Somebody has put something else in its place, and what.
    Replaced(String),
}

/// A job of the manager's own that shows whether its hooks fire.
pub(super) struct ProbeJob {
    /// The manager's program that has to be here for it.
    pub(super) program: &'static str,
    /// Program and arguments, before the shell line that the job is to run. It prints what that
    /// prints, and ends what has not begun in time.
    pub(super) command: Vec<String>,
    /// The booking, as the job's shell says it in double quotes.
    pub(super) booking: &'static str,
    /// Whether more follows in the booking's name, such as a fingerprint.
    pub(super) is_beginning: bool,
}

impl ProbeJob {
    /// One that a shell submits: the script's `$1` and so on are these arguments, then for how many
    /// seconds it may wait, then the job's shell line.
    pub(super) fn by_script(
        program: &'static str,
        script: &str,
        arguments: impl IntoIterator<Item = String>,
        booking: &'static str,
    ) -> Self {
        let mut command: Vec<String> = ["sh", "-c", script, "sh"].map(String::from).to_vec();
        command.extend(arguments);
        command.push(PROBE_JOB_S.to_string());
        Self { program, command, booking, is_beginning: false }
    }
}

/// That of a manager.
pub(super) fn of(manager: Manager) -> &'static dyn Adapter {
    match manager {
        Manager::Afanasy => &afanasy::Afanasy,
        Manager::Deadline => &deadline::Deadline,
        Manager::Flamenco => &watched::FLAMENCO,
        Manager::Generic => &Generic,
        Manager::GridEngine => &grid_engine::GridEngine,
        Manager::HtCondor => &condor::HtCondor,
        Manager::OpenCue => &opencue::OpenCue,
        Manager::OpenPbs => &openpbs::OpenPbs,
        Manager::Qube => &qube::Qube,
        Manager::RoyalRender => &watched::ROYAL_RENDER,
        Manager::Slurm => &slurm::Slurm,
        Manager::Torque => &torque::Torque,
        Manager::Tractor => &tractor::Tractor,
    }
}

/// Any manager: the files are there, and an administrator has them called.
struct Generic;

impl Adapter for Generic {
    fn plan(&self, site: &Site, _options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        scripts::put(Manager::Generic, site, plan)?;
        let [before, after] = own_scripts(Manager::Generic, ["preflight", "postflight"]);
        plan.notes.push(format!(
            "have the farm manager run {} before each render and {} after it, with the same \
             GLEANER_BOOKING (hooks/generic/README.md)",
            before.display(),
            after.display()
        ));
        Ok(())
    }

    fn to_put_back(&self) -> Option<&'static str> {
        Some(
            "put back what you changed for it: thresholds of load or of free memory of the \
             farm manager, and what calls the scripts",
        )
    }

    fn check(&self, _site: &Site, _options: &Options, findings: &mut Vec<Finding>) {
        findings.push(Finding::note(
            "whether the farm manager calls the scripts cannot be seen from here",
            "start a render and look for its booking in `gleaner agent status`",
        ));
        findings.push(Finding::load_average("a threshold of load, if the farm manager has one"));
        findings.push(Finding::memory("a margin of free memory, if the farm manager has one"));
    }

    fn scripts(&self, _options: &Options) -> Option<[PathBuf; 2]> {
        Some(own_scripts(Manager::Generic, ["preflight", "postflight"]))
    }
}

/// Two scripts of our own folder.
pub(super) fn own_scripts(manager: Manager, names: [&str; 2]) -> [PathBuf; 2] {
    names.map(|name| scripts::path(manager, name))
}

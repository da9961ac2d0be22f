//! The ready files of `hooks/`, as this program brings them along.

use std::path::{Path, PathBuf};

use super::{InstallError, Manager, Plan, Site, folder};

/// A file of a manager's folder.
pub(super) struct Ready {
    /// Its name there.
    pub(super) name: &'static str,
    /// Whether a manager or a script runs it.
    is_program: bool,
    /// Its text.
    pub(super) text: &'static str,
}

macro_rules! program {
    ($path:literal, $name:literal) => {
        Ready { name: $name, is_program: true, text: include_str!(concat!("../../", $path)) }
    };
}

macro_rules! module {
    ($path:literal, $name:literal) => {
        Ready { name: $name, is_program: false, text: include_str!(concat!("../../", $path)) }
    };
}

const CALLED_BY_PYTHON: [Ready; 3] = [
    program!("generic/preflight", "preflight"),
    program!("generic/postflight", "postflight"),
    module!("python/gleaner_hook.py", "gleaner_hook.py"),
];

const AFANASY: [Ready; 1] = [module!("afanasy/gleaner_afanasy.py", "gleaner_afanasy.py")];
const GENERIC: [Ready; 2] =
    [program!("generic/preflight", "preflight"), program!("generic/postflight", "postflight")];
const GRID_ENGINE: [Ready; 2] =
    [program!("grid-engine/prolog", "prolog"), program!("grid-engine/epilog", "epilog")];
const HTCONDOR: [Ready; 2] =
    [program!("htcondor/prepare", "prepare"), program!("htcondor/exit", "exit")];
const OPENCUE: [Ready; 2] = [
    program!("opencue/preflight", "preflight"),
    program!("opencue/gleaner-frame", "gleaner-frame"),
];
const OPENPBS: [Ready; 1] = [module!("openpbs/gleaner_openpbs.py", "gleaner_openpbs.py")];
const QUBE: [Ready; 2] =
    [program!("qube/preflight", "preflight"), program!("qube/postflight", "postflight")];
const SLURM: [Ready; 2] = [program!("slurm/prolog", "prolog"), program!("slurm/epilog", "epilog")];
const TORQUE: [Ready; 2] =
    [program!("torque/prologue", "prologue"), program!("torque/epilogue", "epilogue")];
const TRACTOR: [Ready; 2] = [
    module!("tractor/gleaner_tractor.py", "gleaner_tractor.py"),
    module!("tractor/TractorSiteStatusFilter.py", "TractorSiteStatusFilter.py"),
];
const DEADLINE: [Ready; 2] = [
    module!("deadline/Gleaner/Gleaner.py", "Gleaner.py"),
    module!("deadline/Gleaner/Gleaner.param", "Gleaner.param"),
];

/// Those that only this manager has.
pub(super) const fn of(manager: Manager) -> &'static [Ready] {
    match manager {
        Manager::Afanasy => &AFANASY,
        Manager::Deadline => &DEADLINE,
        // Nothing is called.
        Manager::Flamenco | Manager::RoyalRender => &[],
        Manager::Generic => &GENERIC,
        Manager::GridEngine => &GRID_ENGINE,
        Manager::HtCondor => &HTCONDOR,
        Manager::OpenCue => &OPENCUE,
        Manager::OpenPbs => &OPENPBS,
        Manager::Qube => &QUBE,
        Manager::Slurm => &SLURM,
        Manager::Torque => &TORQUE,
        Manager::Tractor => &TRACTOR,
    }
}

/// Puts files into a folder, under their own names.
pub(super) fn put_into(
    folder: &Path,
    files: &[Ready],
    site: &Site,
    plan: &mut Plan,
) -> Result<(), InstallError> {
    files.iter().try_for_each(|file| {
        let mode = if file.is_program { 0o755 } else { 0o644 };
        plan.put(site, &folder.join(file.name), mode, file.text)
    })
}

/// Puts the manager's files into our folder.
pub(super) fn put(manager: Manager, site: &Site, plan: &mut Plan) -> Result<(), InstallError> {
    put_into(&folder(manager), of(manager), site, plan)
}

/// Puts there what a manager's Python calls.
pub(super) fn put_called_by_python(
    manager: Manager,
    site: &Site,
    plan: &mut Plan,
) -> Result<(), InstallError> {
    put_into(&folder(manager), &CALLED_BY_PYTHON, site, plan)
}

/// Where one of the files is installed.
pub(super) fn path(manager: Manager, name: &str) -> PathBuf {
    folder(manager).join(name)
}

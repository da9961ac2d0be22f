//! Landlock's rules for one command, made before it starts.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};

/// What a command's files are.
pub(super) struct Files<'a> {
    /// What it may read and run.
    pub(super) read: &'a [PathBuf],
    /// Folders that are its own.
    pub(super) own: &'a [&'a Path],
    /// Devices.
    pub(super) devices: &'a [PathBuf],
    /// Devices, or folders of them, that it speaks to as a driver does.
    pub(super) driven: &'a [PathBuf],
}

/// The rights that all rules together are about: those of Linux 6.2, the first with which no file
/// can be cut short from outside. Those of later ones are added where the kernel has them.
const LEAST: ABI = ABI::V3;
const MOST: ABI = ABI::V5;

/// The rules; `scope` also fences signals and abstract sockets in.
pub(super) fn rules(files: &Files<'_>, scope: bool) -> io::Result<OwnedFd> {
    let build = || -> Result<Option<OwnedFd>, RulesetError> {
        let mut rules = ruleset(scope)?.create()?;
        let write = AccessFs::from_all(MOST);
        let read = AccessFs::from_read(MOST);
        let device = AccessFs::ReadFile | AccessFs::WriteFile;
        for path in files.read {
            // One that is not there needs no rule.
            let Ok(file) = PathFd::new(path) else { continue };
            rules = rules.add_rule(PathBeneath::new(file, read))?;
        }
        for path in files.own {
            let Ok(file) = PathFd::new(path) else { continue };
            rules = rules.add_rule(PathBeneath::new(file, write))?;
        }
        for path in files.devices {
            let Ok(file) = PathFd::new(path) else { continue };
            rules = rules.add_rule(PathBeneath::new(file, device))?;
        }
        for path in files.driven {
            let Ok(file) = PathFd::new(path) else { continue };
            let driver = device | AccessFs::IoctlDev;
            let rights = if path.is_dir() { driver | AccessFs::ReadDir } else { driver };
            rules = rules.add_rule(PathBeneath::new(file, rights))?;
        }
        Ok(rules.into())
    };
    let made = build().map_err(io::Error::other)?;
    made.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Why this kernel has no Landlock that keeps files; none where it does.
pub(super) fn why_no_files() -> Option<String> {
    let asked = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let made = asked.handle_access(AccessFs::from_all(LEAST)).and_then(Ruleset::create);
    made.err().map(|error| in_words(&error))
}

/// Why it has no fence around signals; none where it does. Asked by doing: there are kernels that
/// claim to have one.
pub(super) fn why_no_scope() -> Option<String> {
    let asked = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let made = asked.scope(scopes()).and_then(Ruleset::create);
    made.err().map(|error| in_words(&error))
}

fn ruleset(scope: bool) -> Result<Ruleset, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(MOST))?;
    if scope {
        rules = rules.set_compatibility(CompatLevel::HardRequirement).scope(scopes())?;
    }
    Ok(rules.set_compatibility(CompatLevel::BestEffort))
}

fn scopes() -> BitFlags<Scope> {
    Scope::from_all(ABI::V6)
}

fn in_words(error: &RulesetError) -> String {
    error.to_string()
}

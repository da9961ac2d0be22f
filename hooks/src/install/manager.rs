//! The farm managers that Gleaner knows how to be installed with.

use std::fmt;
use std::str::FromStr;

use super::InstallError;

/// A farm manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manager {
    /// CGRU Afanasy: its Python services.
    Afanasy,
    /// AWS Thinkbox Deadline: an event plugin.
    Deadline,
    /// Flamenco, which calls nothing: the agent watches its worker.
    Flamenco,
    /// Any other whose hooks are scripts.
    Generic,
    /// Grid Engine: prolog and epilog of queues.
    GridEngine,
    /// HTCondor: hooks of the starter.
    HtCondor,
    /// OpenCue: a wrapper around frames.
    OpenCue,
    /// OpenPBS: a hook of its MoMs.
    OpenPbs,
    /// PipelineFX Qube!: flight checks.
    Qube,
    /// Royal Render, which calls nothing on a host: the agent watches its client.
    RoyalRender,
    /// Slurm: Prolog and Epilog.
    Slurm,
    /// Torque: prologue and epilogue of its MoMs.
    Torque,
    /// Pixar Tractor: the blade's status filter.
    Tractor,
}

impl Manager {
    /// All of them, by name.
    pub const ALL: [Self; 13] = [
        Self::Afanasy,
        Self::Deadline,
        Self::Flamenco,
        Self::Generic,
        Self::GridEngine,
        Self::HtCondor,
        Self::OpenCue,
        Self::OpenPbs,
        Self::Qube,
        Self::RoyalRender,
        Self::Slurm,
        Self::Torque,
        Self::Tractor,
    ];

    /// The word for it, as on the command line, and as its folder is called.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Afanasy => "afanasy",
            Self::Deadline => "deadline",
            Self::Flamenco => "flamenco",
            Self::Generic => "generic",
            Self::GridEngine => "grid-engine",
            Self::HtCondor => "htcondor",
            Self::OpenCue => "opencue",
            Self::OpenPbs => "openpbs",
            Self::Qube => "qube",
            Self::RoyalRender => "royal-render",
            Self::Slurm => "slurm",
            Self::Torque => "torque",
            Self::Tractor => "tractor",
        }
    }

    /// What else it is called.
    #[must_use]
    pub const fn other_words(self) -> &'static [&'static str] {
        match self {
            Self::Afanasy => &["cgru"],
            Self::GridEngine => &["sge", "gridengine", "grid_engine", "uge", "ocs"],
            Self::HtCondor => &["condor"],
            Self::OpenCue => &["cue", "rqd"],
            Self::OpenPbs => &["pbs", "pbspro", "pbs-pro"],
            Self::Qube => &["qube!"],
            Self::RoyalRender => &["rr", "royalrender", "royal_render"],
            Self::Deadline
            | Self::Flamenco
            | Self::Generic
            | Self::Slurm
            | Self::Torque
            | Self::Tractor => &[],
        }
    }

    /// Whether it calls programs on a host; else the agent watches its worker there.
    #[must_use]
    pub const fn calls_hooks(self) -> bool {
        !matches!(self, Self::Flamenco | Self::RoyalRender)
    }

    /// Whether a probe's job can be sent to a partition or queue of its.
    #[must_use]
    pub const fn has_queues_for_probes(self) -> bool {
        matches!(self, Self::GridEngine | Self::OpenPbs | Self::Slurm)
    }

    /// Whether its hooks run as the users of jobs, or as its worker's, who are not root as a rule.
    pub(super) const fn runs_hooks_as_users(self) -> bool {
        matches!(
            self,
            Self::Afanasy | Self::Deadline | Self::HtCondor | Self::OpenCue | Self::Tractor
        )
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Manager {
    type Err = InstallError;

    fn from_str(text: &str) -> Result<Self, InstallError> {
        let word = text.to_ascii_lowercase();
        let is_it = |manager: &Self| {
            manager.as_str() == word || manager.other_words().contains(&word.as_str())
        };
        if let Some(manager) = Self::ALL.into_iter().find(is_it) {
            return Ok(manager);
        }
        let known = Self::ALL.map(Self::as_str).join(", ");
        let text: String = text.chars().take(80).collect();
        Err(InstallError::NoSuchManager { text, known })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_manager_is_known_by_each_of_its_names() {
        let mut words = BTreeSet::new();
        for manager in Manager::ALL {
            for word in manager.other_words().iter().chain([&manager.as_str()]) {
                assert!(words.insert(*word), "{word} is two managers'");
                assert_eq!(word.to_uppercase().parse::<Manager>().ok(), Some(manager), "{word}");
            }
        }
        let error = "slurn".parse::<Manager>().expect_err("a typing error").to_string();
        assert!(error.contains("slurm"), "{error}");
    }
}

//! Farm managers: what each tells its hooks of a render, in its own words.
//!
//! # Invariants
//! - A preflight and the postflight of the same attempt read the same booking id.
//! - What is missing or makes no sense is read as "not said", never as a small booking: a
//!   booking without a number of cores books the whole host.

mod generic;
mod grid_engine;
mod htcondor;
mod opencue;
mod pbs;
mod quantity;
mod qube;
mod slurm;

use std::fmt;
use std::str::FromStr;

use gleaner_protocol::farm::Booked;
use gleaner_protocol::{BookingId, HostName};
use thiserror::Error;

use crate::Environment;
use crate::process_group::ProcessStat;

use quantity::cores;

/// Whose hooks they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Farm {
    /// Any manager whose hooks are scripts: the script says what is booked.
    #[default]
    Generic,
    /// Grid Engine, prolog and epilog of a queue.
    GridEngine,
    /// HTCondor, the starter's hooks.
    HtCondor,
    /// OpenCue, a wrapper around the frame.
    OpenCue,
    /// OpenPBS and Torque, prologue and epilogue of a MoM.
    Pbs,
    /// PipelineFX Qube!, worker flight checks.
    Qube,
    /// Slurm, Prolog and Epilog.
    Slurm,
}

/// A render attempt as the farm's environment describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Which one; none where the farm does not say.
    pub booking: Option<BookingId>,
    /// What it books.
    pub booked: Booked,
    /// The host's name on this farm, where the farm says it.
    pub host: Option<HostName>,
    /// Whether it failed by itself, where it has ended and the farm says: one that was cancelled,
    /// requeued or ended for its time limit is neither.
    pub failed: Option<bool>,
    /// Variables that made no sense, in words.
    pub troubles: Vec<String>,
}

/// Whether an exit code, or a status as `wait` gives it, is that of a failure; none where it is no
/// number.
fn is_failure(code: &str) -> Option<bool> {
    code.parse::<i64>().ok().map(|code| code != 0)
}

impl Farm {
    /// All of them, in a fixed order.
    pub const ALL: [Self; 7] = [
        Self::Generic,
        Self::GridEngine,
        Self::HtCondor,
        Self::OpenCue,
        Self::Pbs,
        Self::Qube,
        Self::Slurm,
    ];

    /// The word for it, as on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::GridEngine => "grid-engine",
            Self::HtCondor => "htcondor",
            Self::OpenCue => "opencue",
            Self::Pbs => "pbs",
            Self::Qube => "qube",
            Self::Slurm => "slurm",
        }
    }

    /// Whether it tells its hooks of the job on their standard input.
    #[must_use]
    pub(crate) const fn writes_to_input(self) -> bool {
        matches!(self, Self::HtCondor)
    }

    /// The variable that names a file in which the manager lists a job's hosts.
    #[must_use]
    pub(crate) const fn hosts_variable(self) -> Option<&'static str> {
        match self {
            Self::Pbs => Some("PBS_NODEFILE"),
            _ => None,
        }
    }

    /// Reads what the farm says of the attempt.
    #[must_use]
    pub fn attempt(self, environment: &Environment) -> Attempt {
        match self {
            Self::Generic => generic::attempt(environment),
            Self::GridEngine => grid_engine::attempt(environment),
            Self::HtCondor => htcondor::attempt(environment),
            Self::OpenCue => opencue::attempt(environment),
            Self::Pbs => pbs::attempt(environment),
            Self::Qube => qube::attempt(environment),
            Self::Slurm => slurm::attempt(environment),
        }
    }
}

impl fmt::Display for Farm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a farm manager that the hook knows.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no farm manager that the hook knows: {known}", known = known())]
pub struct FarmParseError(String);

fn known() -> String {
    Farm::ALL.map(Farm::as_str).join(", ")
}

impl FromStr for Farm {
    type Err = FarmParseError;

    fn from_str(text: &str) -> Result<Self, FarmParseError> {
        let word = text.to_ascii_lowercase();
        let is_it = |farm: &Self| {
            let others: &[&str] = match farm {
                Self::GridEngine => &["sge", "gridengine", "grid_engine", "uge", "ocs"],
                Self::HtCondor => &["condor"],
                Self::Pbs => &["openpbs", "torque", "pbspro", "pbs-pro"],
                Self::Generic | Self::OpenCue | Self::Qube | Self::Slurm => &[],
            };
            farm.as_str() == word || others.contains(&word.as_str())
        };
        Self::ALL
            .into_iter()
            .find(is_it)
            .ok_or_else(|| FarmParseError(text.chars().take(80).collect()))
    }
}

/// What booking ids begin with that are named after a process.
pub(crate) const FALLBACK: &str = "fallback:";

/// A booking id for a farm that names none: it is that of the process that started the hook, so
/// that preflight and postflight of one worker agree on it.
#[must_use]
pub(crate) fn fallback_booking(environment: &Environment) -> BookingId {
    let parent = environment
        .get(PARENT)
        .and_then(|pid| pid.parse().ok())
        .or_else(|| rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()))
        .unwrap_or(0);
    let start_ticks = ProcessStat::of(parent).map_or(0, |stat| stat.start_ticks);
    BookingId::new(format!("{FALLBACK}{parent}.{start_ticks}")).expect("digits make a name")
}

/// The ready scripts say here which process started them.
const PARENT: &str = "GLEANER_HOOK_PARENT";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop, prop_assert, proptest};

    #[test]
    fn farms_read_back_and_others_are_named() {
        for farm in Farm::ALL {
            assert_eq!(farm.to_string().parse(), Ok(farm));
        }
        let error = "Qube!".parse::<Farm>().expect_err("no such word");
        assert!(error.to_string().ends_with("opencue, pbs, qube, slurm"), "{error}");
    }

    #[test]
    fn hooks_of_one_parent_agree_on_the_fallback() {
        let me = std::process::id().to_string();
        let told: Environment = [(PARENT, me.as_str())].into_iter().collect();
        let id = fallback_booking(&told);
        assert_eq!(id, fallback_booking(&told));
        assert!(id.as_str().starts_with(&format!("fallback:{me}.")), "{id}");
        assert!(!id.as_str().ends_with(".0"), "the start time is known: {id}");
        assert_ne!(id, fallback_booking(&Environment::default()), "the real parent is another");
        let noise: Environment = [(PARENT, "-1; rm")].into_iter().collect();
        assert_eq!(fallback_booking(&noise), fallback_booking(&Environment::default()));
    }

    proptest! {
        #[test]
        fn no_environment_makes_a_farm_panic_or_book_nothing(
            values in prop::collection::vec(".{0,40}|[0-9a-z\\[\\](),x-]{0,40}", NAMES.len()),
            present in any::<u32>(),
            arguments in prop::collection::vec(".{0,40}|[0-9a-z:=+,.]{0,40}", 0..12),
            input in ".{0,40}|[A-Z][a-zA-Z]{0,20} = .{0,20}",
        ) {
            let environment: Environment = NAMES
                .iter()
                .zip(values)
                .enumerate()
                .filter(|(bit, _)| present & (1 << bit) != 0)
                .map(|(_, (name, value))| (*name, value))
                .collect();
            let environment = environment.with_arguments(arguments).with_input(input);
            for farm in Farm::ALL {
                let attempt = farm.attempt(&environment);
                prop_assert!(attempt.booked.cores.is_none_or(|cores| cores > 0));
            }
        }
    }

    const NAMES: [&str; 26] = [
        "GLEANER_BOOKING",
        "GLEANER_CORES",
        "GLEANER_MEMORY_MIB",
        "GLEANER_GPUS",
        "GLEANER_FAILED",
        "GLEANER_HOST",
        "CUE_FRAME_ID",
        "CUE_GPU_CORES",
        "CUE_MEMORY",
        "CUE_THREADS",
        "JOB_ID",
        "NHOSTS",
        "NSLOTS",
        "PBS_JOBID",
        "PE_HOSTFILE",
        "SGE_TASK_ID",
        "jobhost",
        "QBJOBID",
        "QBSUBID",
        "QB_ALLOCATIONS",
        "QB_FRAME_NUMBER",
        "SLURM_JOB_ID",
        "SLURMD_NODENAME",
        "SLURM_JOB_CPUS_PER_NODE",
        "SLURM_JOB_GPUS",
        "SLURM_NODELIST",
    ];
}

//! What a workunit takes of its host.

use super::{Comparison, JobError, JobSpec, Lane, Task};
use crate::limits::{CORES_MAX, GPUS_MAX, PART_PERMILLE_MIN, check_range};
use crate::{Kept, Share};

impl JobSpec {
    /// What a replica has of its host beside cores, and keeps while it stands still.
    #[must_use]
    pub fn kept(&self) -> Kept {
        self.task.kept(self.gpus)
    }

    pub(super) fn check_cores(&self) -> Result<(), JobError> {
        let cores = self.cores_permille;
        let most = match self.lane {
            Lane::Background | Lane::Deadline => Share::cores(CORES_MAX),
            Lane::Rendering | Lane::Dataset | Lane::Batch => Share::WHOLE,
        };
        let least = match self.lane {
            Lane::Background => PART_PERMILLE_MIN,
            _ => Share::WHOLE.as_permille(),
        };
        let permille = cores.as_permille();
        check_range("cores_permille", permille.into(), least.into(), most.as_permille().into())?;
        if permille > 1000 && !permille.is_multiple_of(1000) {
            return Err(JobError::BrokenCores(permille));
        }
        Ok(())
    }

    /// GPUs are given where cores are, by lanes that look at what a host has left of each, and to what
    /// computes there.
    pub(super) fn check_gpus(&self) -> Result<(), JobError> {
        let most = match self.lane {
            Lane::Background | Lane::Deadline | Lane::Batch => GPUS_MAX,
            Lane::Rendering | Lane::Dataset => 0,
        };
        check_range("gpus", self.gpus.into(), 0, most.into())?;
        if self.gpus > 0 && !self.task.may_use_gpus() {
            return Err(JobError::NotForGpus(self.gpus));
        }
        Ok(())
    }
}

impl Task {
    /// Whether an agent may have a GPU compute it: a kernel with a specification, outputs of which need
    /// not be the same byte for byte.
    fn may_use_gpus(&self) -> bool {
        matches!(self, Self::Application(_)) && self.comparison() == Comparison::Tolerance
    }

    /// What a replica of it has of its host beside cores, of a job that asks for so many GPUs. A task
    /// that says nothing of memory takes none that is counted.
    #[must_use]
    pub fn kept(&self, gpus: u8) -> Kept {
        let asked_mib = match self {
            Self::Kernel(_) | Self::Frame(_) => 0,
            Self::Command(command) => command.memory_mib.unwrap_or(0),
            Self::Application(application) => application.memory_mib.unwrap_or(0),
            Self::Wasm(wasm) => wasm.memory_mib,
        };
        Kept { memory_mib: Kept::counted_mib(asked_mib), gpus }
    }
}

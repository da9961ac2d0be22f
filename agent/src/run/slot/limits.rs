//! What one replica may take of its host, by its job's word and its host's, and how it is told that
//! this was too little.

use std::sync::Arc;

use gleaner_isolation::{Ability, Leaf, LeafLimits, MemoryPeak};
use gleaner_protocol::job::Task;
use tracing::warn;

use super::warm_runner::End;
use crate::limits::{
    COMPILER_MEMORY_MIB, DRIVER_MEMORY_MIB, RUNNER_MEMORY_MIB, TASK_PROCESSES_MAX,
};
use crate::run::runner::Fault;

/// The limits of the replica that runs, where this host has a leaf that keeps them.
#[derive(Debug, Default)]
pub(super) struct ReplicaLimits {
    leaf: Option<Arc<Leaf>>,
    memory: Option<Memory>,
    /// Whether its runner gives up where it gets no more, leaf or none.
    aborts: bool,
    /// Of this leaf, before the replica began.
    kills_before: u64,
    /// The most that it takes of this leaf.
    peak: Option<MemoryPeak>,
}

#[derive(Debug, Clone, Copy)]
struct Memory {
    mib: u32,
    whose: Whose,
}

/// Who has set a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Job,
    Host,
}

/// What is said of a kernel for which its job's limit was too little, or its host's where the job has
/// none.
pub(super) fn too_little(job_mib: Option<u32>, host_mib: u32) -> String {
    Memory::of_kernel(job_mib, host_mib).too_little()
}

impl Memory {
    fn of_kernel(job_mib: Option<u32>, host_mib: u32) -> Self {
        match job_mib {
            Some(mib) => Self { mib, whose: Whose::Job },
            None => Self { mib: host_mib, whose: Whose::Host },
        }
    }

    /// That it was too little, and what to do.
    fn too_little(self) -> String {
        let mib = self.mib;
        match self.whose {
            Whose::Job => format!(
                "it wanted more than the {mib} MiB of memory that its job allows: raise memory_mib \
                 of the job"
            ),
            Whose::Host => format!(
                "it wanted more than the {mib} MiB of memory that this host gives a kernel: give \
                 the job a memory_mib that it needs, and raise kernel_memory_mib of agents"
            ),
        }
    }
}

impl ReplicaLimits {
    /// Sets those of the next replica: `host_mib` is what the host gives a kernel, and `kept_mib` what its
    /// runner may keep of views meanwhile; `on_gpu` where it needs a driver beside that. What this host
    /// cannot limit is left out; says whether its memory is not.
    pub(super) fn set(
        &mut self,
        leaf: Option<&Arc<Leaf>>,
        task: &Task,
        (host_mib, kept_mib): (u32, u64),
        on_gpu: bool,
    ) -> bool {
        let by_job = |mib| Memory { mib, whose: Whose::Job };
        let driver_mib = if on_gpu { u64::from(DRIVER_MEMORY_MIB) } else { 0 };
        let (memory, extra_mib) = match task {
            Task::Kernel(_) => (None, 0),
            Task::Frame(_) => {
                let extra_mib = RUNNER_MEMORY_MIB + driver_mib + kept_mib;
                (Some(Memory::of_kernel(None, host_mib)), extra_mib)
            }
            Task::Command(command) => (command.memory_mib.map(by_job), RUNNER_MEMORY_MIB),
            Task::Application(application) => {
                let memory = Memory::of_kernel(application.memory_mib, host_mib);
                let extra_mib = RUNNER_MEMORY_MIB + driver_mib + kept_mib;
                (Some(memory), extra_mib)
            }
            // It cannot take more itself; this is for what it is compiled and run by.
            Task::Wasm(wasm) => (Some(by_job(wasm.memory_mib)), COMPILER_MEMORY_MIB + kept_mib),
        };
        let aborts = matches!(task, Task::Application(_) | Task::Frame(_));
        *self = Self { leaf: leaf.cloned(), memory, aborts, kills_before: 0, peak: None };
        let Some(leaf) = leaf else { return false };
        let limits = LeafLimits {
            memory_mib: memory.map(|memory| u64::from(memory.mib) + extra_mib),
            processes: Some(TASK_PROCESSES_MAX),
            ..LeafLimits::default()
        };
        let outcome = leaf.set_limits(&limits);
        if let Err(error) = &outcome {
            warn!("a task goes without limits of its control group: {error}");
        }
        self.kills_before = leaf.memory_kills();
        self.peak = leaf.memory_peak();
        outcome.is_ok() && leaf.has(Ability::Memory)
    }

    /// Whose fault its end is, where a GPU computed it.
    pub(super) fn gpu_fault(&self, end: &End) -> Fault {
        if self.has_killed() || self.explain_abort(end).is_some() {
            Fault::Job
        } else if end.crashed {
            Fault::Device
        } else {
            Fault::Unclear
        }
    }

    /// Most memory that it has taken so far, in MiB, where its leaf can say.
    pub(super) fn peak_mib(&self) -> Option<u64> {
        self.peak.as_ref().and_then(MemoryPeak::mib)
    }

    /// Whether something of it was killed for want of memory.
    fn has_killed(&self) -> bool {
        self.leaf.as_ref().is_some_and(|leaf| leaf.memory_kills() > self.kills_before)
    }

    /// Why it ended, with what only its leaf knows.
    pub(super) fn explain(&self, reason: String) -> String {
        match self.memory {
            Some(memory) if self.has_killed() => {
                format!("{reason}; {}", memory.too_little())
            }
            None if self.has_killed() => {
                format!("{reason}; harvested work had no more memory on this host")
            }
            _ => reason,
        }
    }

    /// Why its runner gave up, most likely: that is how the end of memory shows where its panics are
    /// caught, and the end of a stack.
    pub(super) fn explain_abort(&self, end: &End) -> Option<String> {
        let memory = self.memory.filter(|_| self.aborts && end.aborted)?;
        Some(format!("probably {} (its process ended: {})", memory.too_little(), end.status))
    }
}

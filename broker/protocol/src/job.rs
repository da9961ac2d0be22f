//! What a submitter asks for.

mod application;
mod comparison;
mod on_release;
mod wasm;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{
    ARGUMENT_BYTES_MAX, ARGV_MAX, ERROR_PPB_MAX, INPUT_FILES_MAX, LEASE_S_MAX, MEMORY_MIB_MAX,
    OUTPUT_FILES_MAX, REPLICAS_MAX, REPLICATION_MAX, TASK_BYTES_MAX, WORKUNITS_MAX,
};
use crate::output::{ManifestError, check_file_name};
use crate::{Digest, KernelName, OwnerName, Profile, Trust, codec};

pub use application::{ApplicationTask, ApplicationTaskError};
pub use comparison::Comparison;
pub use on_release::{OnRelease, OnReleaseError};
pub use wasm::{WasmTask, WasmTaskError};

/// A class of jobs with a policy of its own. A fragment is offered to the lanes in this order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// A person waits for each frame.
    Interactive,
    /// Due at a time.
    Deadline,
    /// Rendering that disturbs no interactive session.
    Batch,
    /// Malleable work that takes what is left.
    #[default]
    Background,
}

/// A job as submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// For people; need not be unique.
    #[serde(default)]
    pub name: String,
    /// Whose it is; owners are served in turn.
    #[serde(default = "anonymous")]
    pub owner: OwnerName,
    /// Its lane.
    #[serde(default)]
    pub lane: Lane,
    /// What each workunit runs.
    pub task: Task,
    /// Which workunits there are.
    pub workunits: Workunits,
    /// How often each is replicated at first.
    #[serde(default = "default_replication")]
    pub replication: u8,
    /// How many equal outputs decide it; a majority of `replication` where not given.
    #[serde(default)]
    pub quorum: Option<u8>,
    /// Replicas of one workunit that may be completed or have failed before it is given up;
    /// replicas that were preempted do not count. Three times `replication` where not given; a job
    /// that names an error ([`Trust::Adaptive`]) gets three times the equal outputs that the error
    /// takes, and never fewer than these.
    #[serde(default)]
    pub max_replicas: Option<u16>,
    /// How long one replica may take before it is given to another host, in seconds.
    #[serde(default = "default_lease_s")]
    pub lease_s: u64,
    /// What is known of its workunits beforehand.
    #[serde(default)]
    pub profile: Profile,
    /// How sure its results are to be.
    #[serde(default)]
    pub trust: Trust,
    /// What becomes of a replica that a render drives out.
    #[serde(default)]
    pub on_release: OnRelease,
}

fn anonymous() -> OwnerName {
    OwnerName::new("anonymous").expect("a plain name")
}

const fn default_replication() -> u8 {
    1
}

const fn default_lease_s() -> u64 {
    3600
}

/// What a workunit runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// A kernel built into the agent; its input is the workunit's item, or its index as text.
    Kernel(KernelName),
    /// A program of the host, where the host's owner allows it.
    Command(CommandTask),
    /// A WebAssembly module that comes with the job.
    Wasm(WasmTask),
    /// A kernel built into the agent, with a specification and files that come with the job.
    Application(ApplicationTask),
}

impl Task {
    /// When outputs of it are one vote.
    #[must_use]
    pub const fn comparison(&self) -> Comparison {
        match self {
            Self::Application(application) => application.comparison,
            Self::Kernel(_) | Self::Command(_) | Self::Wasm(_) => Comparison::Exact,
        }
    }

    /// The contents that it needs, uploaded before the job, each with a name for people.
    pub fn contents(&self) -> impl Iterator<Item = (&str, Digest)> {
        let (program, inputs) = match self {
            Self::Kernel(_) => (None, &[][..]),
            Self::Command(command) => (None, &command.inputs[..]),
            Self::Wasm(wasm) => (Some(("module", wasm.module)), &wasm.inputs[..]),
            Self::Application(application) => {
                (Some(("specification", application.spec)), &application.inputs[..])
            }
        };
        program.into_iter().chain(inputs.iter().map(|input| (input.name.as_str(), input.digest)))
    }
}

/// A program with its arguments; never a shell line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandTask {
    /// Absolute path of the program, then its arguments. `{index}` and `{item}` in an argument
    /// stand for the workunit's index and item.
    pub argv: Vec<String>,
    /// Files that are put into the replica's folder before it starts.
    #[serde(default)]
    pub inputs: Vec<InputFile>,
    /// Files below the replica's folder that are its output beside `stdout`.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// Most memory that one replica may take with all that it starts, the page cache of its files
    /// included, in MiB. It is killed beyond, on hosts that can say how much that is; on others each
    /// of its processes is refused more than that. No limit of its own where not given.
    #[serde(default)]
    pub memory_mib: Option<u32>,
}

/// A file that a task reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// Plain file name in the replica's folder.
    pub name: String,
    /// Address of its content, uploaded before the job.
    pub digest: Digest,
}

/// The workunits of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workunits {
    /// An array: indices `0..count`. Takes no memory until it is touched.
    Count(u32),
    /// One workunit per item.
    Items(Vec<String>),
}

impl Workunits {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        match self {
            Self::Count(count) => *count,
            Self::Items(items) => u32::try_from(items.len()).unwrap_or(u32::MAX),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item of workunit `index`, where items were given.
    #[must_use]
    pub fn item(&self, index: u32) -> Option<&str> {
        match self {
            Self::Count(_) => None,
            Self::Items(items) => items.get(index as usize).map(String::as_str),
        }
    }
}

impl JobSpec {
    /// Equal outputs that decide a workunit.
    #[must_use]
    pub fn quorum(&self) -> u8 {
        self.quorum.unwrap_or(self.replication / 2 + 1)
    }

    /// Completed or failed replicas after which a workunit is given up.
    #[must_use]
    pub fn max_replicas(&self) -> u16 {
        self.max_replicas.unwrap_or(u16::from(self.replication) * 3)
    }

    /// Checks what a submitter sent.
    ///
    /// # Errors
    /// The first thing wrong with it, with the field's name.
    pub fn check(&self) -> Result<(), JobError> {
        let range = |field, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(JobError::OutOfRange { field, value, min, max })
            }
        };
        range("workunits", self.workunits.len().into(), 1, WORKUNITS_MAX.into())?;
        range("replication", self.replication.into(), 1, REPLICATION_MAX.into())?;
        range("quorum", self.quorum().into(), 1, self.replication.into())?;
        range(
            "max_replicas",
            self.max_replicas().into(),
            self.replication.into(),
            REPLICAS_MAX.into(),
        )?;
        range("lease_s", self.lease_s, 1, LEASE_S_MAX)?;
        if let Trust::Adaptive { error_ppb } = self.trust {
            range("trust.adaptive.error_ppb", error_ppb.into(), 1, ERROR_PPB_MAX.into())?;
        }
        if let Some((field, value, most)) = self.on_release.bound() {
            range(field, value, 1, most)?;
        }
        if matches!(self.on_release, OnRelease::Checkpoint { .. })
            && !matches!(self.task, Task::Wasm(_))
        {
            return Err(JobError::NoCheckpoints);
        }
        range("name (bytes)", self.name.len() as u64, 0, ARGUMENT_BYTES_MAX as u64)?;
        if let Workunits::Items(items) = &self.workunits
            && let Some(index) = items.iter().position(|item| item.len() > ARGUMENT_BYTES_MAX)
        {
            return Err(JobError::LongItem(index));
        }
        let bytes = codec::encode(&self.task).len();
        if bytes > TASK_BYTES_MAX {
            return Err(JobError::LongTask(bytes));
        }
        match &self.task {
            Task::Kernel(_) => Ok(()),
            Task::Command(command) => command.check(),
            Task::Wasm(wasm) => Ok(wasm.check()?),
            Task::Application(application) => {
                ApplicationTask::check_workunits(&self.workunits)?;
                Ok(application.check()?)
            }
        }
    }
}

impl CommandTask {
    /// Checks a command: its program, its arguments and the names of its files.
    ///
    /// # Errors
    /// The first thing wrong with it.
    pub fn check(&self) -> Result<(), JobError> {
        match self.argv.first() {
            None => return Err(JobError::EmptyCommand),
            Some(program) if !program.starts_with('/') || program.contains("/../") => {
                return Err(JobError::RelativeProgram(program.chars().take(80).collect()));
            }
            Some(_) => {}
        }
        if let Some(memory_mib) = self.memory_mib.filter(|mib| !(1..=MEMORY_MIB_MAX).contains(mib))
        {
            let (field, value, max) = ("memory_mib", memory_mib.into(), MEMORY_MIB_MAX.into());
            return Err(JobError::OutOfRange { field, value, min: 1, max });
        }
        if self.argv.len() > ARGV_MAX
            || self.argv.iter().any(|a| a.len() > ARGUMENT_BYTES_MAX || a.contains('\0'))
        {
            return Err(JobError::Argv);
        }
        if self.inputs.len() > INPUT_FILES_MAX || self.outputs.len() >= OUTPUT_FILES_MAX {
            return Err(JobError::TooManyFiles);
        }
        let names = self.inputs.iter().map(|input| &input.name).chain(&self.outputs);
        for name in names {
            check_file_name(name)?;
        }
        if self.outputs.iter().any(|name| name == "stdout") {
            return Err(JobError::StdoutIsTaken);
        }
        Ok(())
    }
}

/// Why a job is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JobError {
    /// A number outside its range.
    #[error("{field} is {value}, must be from {min} to {max}")]
    OutOfRange {
        /// Field of the job.
        field: &'static str,
        /// What was given.
        value: u64,
        /// Least allowed.
        min: u64,
        /// Most allowed.
        max: u64,
    },
    /// An item over its limit.
    #[error("item {0} is longer than {max} bytes; upload it as an input instead", max = ARGUMENT_BYTES_MAX)]
    LongItem(usize),
    /// A task that no message to an agent can carry.
    #[error("task is {0} bytes long, at most {max} reach an agent; upload long arguments as an input instead", max = TASK_BYTES_MAX)]
    LongTask(usize),
    /// No program.
    #[error("task.command.argv is empty: give the program's absolute path first")]
    EmptyCommand,
    /// Not an absolute path.
    #[error("task.command.argv starts with {0:?}: the program must be an absolute path without ..")]
    RelativeProgram(String),
    /// Arguments over their limits.
    #[error("task.command.argv has more than {count} arguments, one longer than {bytes} bytes, or a NUL", count = ARGV_MAX, bytes = ARGUMENT_BYTES_MAX)]
    Argv,
    /// Inputs or outputs over their limits.
    #[error("task.command names more than {inputs} inputs or {outputs} outputs", inputs = INPUT_FILES_MAX, outputs = OUTPUT_FILES_MAX - 1)]
    TooManyFiles,
    /// `stdout` is the name of what the command prints.
    #[error("task.command.outputs names \"stdout\", which is what the command prints")]
    StdoutIsTaken,
    /// A name that is no plain file name.
    #[error("task.command: {0}")]
    FileName(#[from] ManifestError),
    /// Only modules save anything.
    #[error(
        "on_release is checkpoint, which only modules can do: a command or kernel is killed or kept"
    )]
    NoCheckpoints,
    /// A module's task.
    #[error(transparent)]
    Wasm(#[from] WasmTaskError),
    /// The task of a kernel with a specification.
    #[error(transparent)]
    Application(#[from] ApplicationTaskError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{BrokerMessage, encode_frame};
    use crate::limits::CONTROL_MESSAGE_BYTES_MAX;

    fn parse(json: &str) -> Result<JobSpec, String> {
        let spec: JobSpec = serde_json::from_str(json).map_err(|e| e.to_string())?;
        spec.check().map_err(|e| e.to_string())?;
        Ok(spec)
    }

    #[test]
    fn the_shortest_job_is_complete() {
        let spec =
            parse(r#"{"task":{"kernel":"gametree"},"workunits":{"count":3}}"#).expect("a job");
        assert_eq!((spec.replication, spec.quorum(), spec.max_replicas()), (1, 1, 3));
        assert_eq!(spec.lane, Lane::Background);
        assert_eq!(spec.trust, Trust::Fixed);
    }

    #[test]
    fn a_job_may_name_the_error_that_it_allows() {
        let spec = parse(
            r#"{"task":{"kernel":"x"},"workunits":{"count":1},"trust":{"adaptive":{"error_ppb":1000}}}"#,
        );
        assert_eq!(spec.expect("a job").trust, Trust::Adaptive { error_ppb: 1000 });
    }

    #[test]
    fn a_task_that_fits_no_frame_is_refused() {
        let argv = |longest: usize, more: usize| {
            let mut argv = vec!["/x".to_owned()];
            argv.extend(std::iter::repeat_n("a".repeat(longest), more));
            argv
        };
        let spec = |argv| {
            let mut spec =
                parse(r#"{"task":{"kernel":"x"},"workunits":{"count":1}}"#).expect("a job");
            spec.task = Task::Command(CommandTask {
                argv,
                inputs: vec![],
                outputs: vec![],
                memory_mib: None,
            });
            spec
        };
        let longest = spec(argv(ARGUMENT_BYTES_MAX - 64, 16));
        assert_eq!(longest.check(), Ok(()));
        let on_release = OnRelease::Keep { for_s: u64::MAX };
        let job = crate::JobId::new(u64::MAX);
        let message = BrokerMessage::Task { job, task: longest.task, on_release };
        assert!(encode_frame(&[message]).len() <= CONTROL_MESSAGE_BYTES_MAX);
        let error = spec(argv(ARGUMENT_BYTES_MAX, 1_000)).check().expect_err("64 MiB");
        assert!(matches!(error, JobError::LongTask(_)), "{error}");
    }

    #[test]
    fn bad_jobs_say_what_is_wrong() {
        for (json, says) in [
            (r#"{"task":{"kernel":"x"},"workunits":{"count":0}}"#, "workunits is 0"),
            (
                r#"{"task":{"kernel":"x"},"workunits":{"count":1},"replication":2,"quorum":3}"#,
                "quorum is 3",
            ),
            (r#"{"task":{"kernel":"x"},"workunits":{"count":1},"lease_s":0}"#, "lease_s is 0"),
            (
                r#"{"task":{"kernel":"x"},"workunits":{"count":1},"trust":{"adaptive":{"error_ppb":0}}}"#,
                "trust.adaptive.error_ppb is 0, must be from 1 to 50000000",
            ),
            (
                r#"{"task":{"kernel":"x"},"workunits":{"count":1},"on_release":{"keep":{"for_s":0}}}"#,
                "on_release.keep.for_s is 0, must be from 1 to 86400",
            ),
            (
                r#"{"task":{"kernel":"x"},"workunits":{"count":1},"on_release":{"checkpoint":{"within_s":5}}}"#,
                "which only modules can do",
            ),
            (
                r#"{"task":{"kernel":"x"},"workunits":{"count":1},"on_release":"freeze"}"#,
                "unknown variant `freeze`",
            ),
            (r#"{"task":{"command":{"argv":[]}},"workunits":{"count":1}}"#, "argv is empty"),
            (
                r#"{"task":{"command":{"argv":["/a"],"memory_mib":0}},"workunits":{"count":1}}"#,
                "memory_mib is 0, must be from 1 to 16777216",
            ),
            (r#"{"task":{"command":{"argv":["sh"]}},"workunits":{"count":1}}"#, "absolute path"),
            (r#"{"task":{"command":{"argv":["/a/../sh"]}},"workunits":{"count":1}}"#, "without .."),
            (
                r#"{"task":{"command":{"argv":["/x"],"outputs":["../y"]}},"workunits":{"count":1}}"#,
                "plain file name",
            ),
            (
                r#"{"task":{"kernel":"x"},"workunits":{"count":1},"replicas":2}"#,
                "unknown field `replicas`",
            ),
        ] {
            let error = parse(json).expect_err(json);
            assert!(error.contains(says), "{error}");
        }
    }
}

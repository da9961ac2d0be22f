//! What a submitter asks for.

mod application;
mod attempts;
mod comparison;
mod demand;
mod items;
mod lane;
mod on_release;
mod runs_on;
mod wasm;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{
    ARGUMENT_BYTES_MAX, ARGV_MAX, ATTEMPTS_MAX, ERROR_PPB_MAX, INPUT_FILES_MAX, JOB_NAME_BYTES_MAX,
    LEASE_S_MAX, MEMORY_MIB_MAX, OUTPUT_FILES_MAX, OutOfRange, REPLICAS_MAX, REPLICATION_MAX,
    TASK_BYTES_MAX, WORKUNITS_MAX, check_range,
};
use crate::output::{ManifestError, check_file_name};
use crate::{
    Account, Digest, FrameTask, KernelName, OwnerName, Profile, ProfileError, ProjectName, Share,
    Trust, codec,
};

pub use application::{ApplicationTask, ApplicationTaskError};
pub use attempts::{Attempts, AttemptsError, Cause};
pub use comparison::Comparison;
pub use items::Items;
pub use lane::{Lane, UnknownLane};
pub use on_release::{OnRelease, OnReleaseError};
pub use runs_on::{RunsOn, RunsOnError};
pub use wasm::{WasmTask, WasmTaskError};

/// A job as submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// For people; need not be unique.
    #[serde(default)]
    pub name: String,
    /// Whose it is.
    #[serde(default = "anonymous")]
    pub owner: OwnerName,
    /// The project that answers for what it takes, in the place of its owner.
    #[serde(default)]
    pub project: Option<ProjectName>,
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
    /// Outputs of one workunit that may come without enough of them being equal, before it is
    /// given up; replicas without an output are counted by `attempts` alone. Three times
    /// `replication` where not given; a job that names an error ([`Trust::Adaptive`]) gets three
    /// times the equal outputs that the error takes, and never fewer than these.
    #[serde(default)]
    pub max_replicas: Option<u16>,
    /// How long one replica may take before it has timed out, in seconds.
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
    /// Attempts without an output after which a workunit fails, for each cause.
    #[serde(default)]
    pub attempts: Attempts,
    /// On which hosts it may run; as the broker's `default_on` says where not given.
    #[serde(default)]
    pub on: Option<RunsOn>,
    /// What each workunit takes of its host's cores, in thousandths of one: a part of a core, or
    /// whole ones. A command is told how many; modules and kernels compute on one.
    #[serde(default = "one_core")]
    pub cores_permille: Share,
    /// GPUs of its host that each workunit has to itself, in any lane. Only kernels with a specification
    /// whose outputs are compared within a tolerance compute on GPUs: for others it is refused.
    #[serde(default)]
    pub gpus: u8,
}

const fn one_core() -> Share {
    Share::WHOLE
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// A part of a frame of a view. The broker alone makes such jobs; they are in no journal.
    #[schemars(skip)]
    Frame(Box<FrameTask>),
}

impl Task {
    /// When outputs of it are one vote.
    #[must_use]
    pub const fn comparison(&self) -> Comparison {
        match self {
            Self::Application(application) => application.comparison,
            Self::Kernel(_) | Self::Command(_) | Self::Wasm(_) | Self::Frame(_) => {
                Comparison::Exact
            }
        }
    }

    /// Its inputs, what runs itself left out.
    #[must_use]
    pub fn inputs(&self) -> &[InputFile] {
        match self {
            Self::Kernel(_) | Self::Frame(_) => &[],
            Self::Command(command) => &command.inputs,
            Self::Wasm(wasm) => &wasm.inputs,
            Self::Application(application) => &application.inputs,
        }
    }

    /// The contents that it needs, uploaded before the job, each with a name for people.
    pub fn contents(&self) -> impl Iterator<Item = (&str, Digest)> {
        let program = match self {
            Self::Kernel(_) | Self::Command(_) | Self::Frame(_) => None,
            Self::Wasm(wasm) => Some(("module", wasm.module)),
            Self::Application(application) => Some(("specification", application.spec)),
        };
        program
            .into_iter()
            .chain(self.inputs().iter().map(|input| (input.name.as_str(), input.digest)))
    }
}

/// Among the outputs of a task, what it prints to standard error: part of its vote, as every output
/// is. Where no output is called so, only the end of it is told, and only of what fails.
pub const STDERR: &str = "stderr";

/// A program with its arguments; never a shell line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandTask {
    /// Absolute path of the program, then its arguments. `{index}` and `{item}` in an argument
    /// stand for the workunit's index and item.
    pub argv: Vec<String>,
    /// Files that are put into the replica's folder before it starts.
    #[serde(default)]
    pub inputs: Vec<InputFile>,
    /// Files below the replica's folder that are its output beside `stdout`. [`STDERR`] among them
    /// is what it prints to standard error.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// Most memory that one replica may take with all that it starts, the page cache of its files
    /// included, in MiB. It is killed beyond, on hosts that can say how much that is; on others each
    /// of its processes is refused more than that. Only hosts with about as much get it. No limit of
    /// its own where not given.
    #[serde(default)]
    pub memory_mib: Option<u32>,
}

/// A file that a task reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// Plain file name in the replica's folder.
    pub name: String,
    /// Address of its content, uploaded before the job.
    pub digest: Digest,
}

/// The workunits of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Workunits {
    /// An array: indices `0..count`. Takes no memory until it is touched.
    Count(u32),
    /// One workunit per item.
    Items(Items),
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
            Self::Items(items) => items.get(index as usize),
        }
    }
}

impl JobSpec {
    /// Who answers for what it takes. Of the accounts whoever has used least for its weight comes next.
    #[must_use]
    pub fn account(&self) -> Account {
        Account::of(self.project.as_ref(), &self.owner)
    }

    /// Equal outputs that decide a workunit.
    #[must_use]
    pub fn quorum(&self) -> u8 {
        self.quorum.unwrap_or(self.replication / 2 + 1)
    }

    /// Whether it is a part of a frame: it is gone when it is drawn, and nothing of it is written
    /// down.
    #[must_use]
    pub const fn is_frame(&self) -> bool {
        matches!(self.task, Task::Frame(_))
    }

    /// On which hosts it may run.
    #[must_use]
    pub fn runs_on(&self) -> RunsOn {
        self.on.unwrap_or_default()
    }

    /// Outputs after which a workunit is given up.
    #[must_use]
    pub fn max_replicas(&self) -> u16 {
        self.max_replicas.unwrap_or(u16::from(self.replication) * 3)
    }

    /// Checks what a submitter sent.
    ///
    /// # Errors
    /// The first thing wrong with it, with the field's name.
    pub fn check(&self) -> Result<(), JobError> {
        check_range("workunits", self.workunits.len().into(), 1, WORKUNITS_MAX.into())?;
        check_range("replication", self.replication.into(), 1, REPLICATION_MAX.into())?;
        check_range("quorum", self.quorum().into(), 1, self.replication.into())?;
        check_range(
            "max_replicas",
            self.max_replicas().into(),
            self.replication.into(),
            REPLICAS_MAX.into(),
        )?;
        check_range("lease_s", self.lease_s, 1, LEASE_S_MAX)?;
        self.check_cores()?;
        self.check_gpus()?;
        let Attempts { failed, timed_out, lost } = self.attempts;
        for (field, value) in [
            ("attempts.failed", failed),
            ("attempts.timed_out", timed_out),
            ("attempts.lost", lost),
        ] {
            check_range(field, value.into(), 1, ATTEMPTS_MAX.into())?;
        }
        if let Trust::Adaptive { error_ppb } = self.trust {
            check_range("trust.adaptive.error_ppb", error_ppb.into(), 1, ERROR_PPB_MAX.into())?;
        }
        if let Some((field, value, most)) = self.on_release.bound() {
            check_range(field, value, 1, most)?;
        }
        if matches!(self.on_release, OnRelease::Checkpoint { .. })
            && !matches!(self.task, Task::Wasm(_))
        {
            return Err(JobError::NoCheckpoints);
        }
        self.profile.check()?;
        if self.name.len() > JOB_NAME_BYTES_MAX {
            return Err(JobError::LongName(self.name.len()));
        }
        if let Workunits::Items(items) = &self.workunits {
            if let Some(index) = items.iter().position(|item| item.len() > ARGUMENT_BYTES_MAX) {
                return Err(JobError::LongItem(index));
            }
            if let Some(index) = items.iter().position(|item| item.contains('\0')) {
                return Err(JobError::NulInItem(index));
            }
        }
        let bytes = codec::encode(&self.task).len();
        if bytes > TASK_BYTES_MAX {
            return Err(JobError::LongTask(bytes));
        }
        match &self.task {
            Task::Kernel(_) | Task::Frame(_) => Ok(()),
            Task::Command(command) => command.check(),
            Task::Wasm(wasm) => Ok(wasm.check()?),
            Task::Application(application) => {
                // Of a dataset each reads another chunk.
                if self.profile.reads.is_none() {
                    ApplicationTask::check_workunits(&self.workunits)?;
                }
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
            return Err(OutOfRange { field, value, min: 1, max }.into());
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
        if let Some(name) = twice(self.inputs.iter().map(|input| input.name.as_str())) {
            return Err(JobError::InputTwice(name.to_owned()));
        }
        if let Some(name) = twice(self.outputs.iter().map(String::as_str)) {
            return Err(JobError::OutputTwice(name.to_owned()));
        }
        Ok(())
    }
}

/// The first name, in their order, that comes more than once.
fn twice<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut known = BTreeSet::new();
    names.into_iter().find(|name| !known.insert(*name))
}

/// Why a job is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JobError {
    /// A number outside its range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// More than one core, and not whole ones.
    #[error("cores_permille is {0}: take a part of one core, or whole ones")]
    BrokenCores(u32),
    /// GPUs for a task that would not use them.
    #[error(
        "gpus is {0}, and its task would not use one: only kernels with a specification do, where outputs are compared within a tolerance"
    )]
    NotForGpus(u8),
    /// A name over its limit.
    #[error("name is {0} bytes long, at most {max} are kept: give it a shorter one", max = JOB_NAME_BYTES_MAX)]
    LongName(usize),
    /// An item over its limit.
    #[error("item {0} is longer than {max} bytes; upload it as an input instead", max = ARGUMENT_BYTES_MAX)]
    LongItem(usize),
    /// No argument and no variable can hold a NUL.
    #[error("item {0} has a NUL byte, which no argument can have: give one item per line")]
    NulInItem(usize),
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
    /// Two inputs of one name.
    #[error("task.command.inputs names {0:?} twice: each input needs a name of its own")]
    InputTwice(String),
    /// Two outputs of one name.
    #[error("task.command.outputs names {0:?} twice: each output is named once")]
    OutputTwice(String),
    /// What is known beforehand.
    #[error("profile.{0}")]
    Profile(#[from] ProfileError),
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
        let message = BrokerMessage::Task { job, task: longest.task, on_release, gpus: 1 };
        assert!(encode_frame(&[message]).len() <= CONTROL_MESSAGE_BYTES_MAX);
        let error = spec(argv(ARGUMENT_BYTES_MAX, 1_000)).check().expect_err("64 MiB");
        assert!(matches!(error, JobError::LongTask(_)), "{error}");
    }

    #[test]
    fn inputs_of_one_name_are_refused() {
        let input = |name: &str| format!(r#"{{"name":"{name}","digest":"{}"}}"#, Digest::of(b""));
        let job = |names: &[&str]| {
            let inputs = names.iter().map(|name| input(name)).collect::<Vec<_>>().join(",");
            parse(&format!(
                r#"{{"task":{{"command":{{"argv":["/x"],"inputs":[{inputs}]}}}},"workunits":{{"count":1}}}}"#
            ))
        };
        job(&["x", "y"]).expect("two names");
        let error = job(&["x", "y", "x"]).expect_err("x twice");
        assert!(error.contains("task.command.inputs names \"x\" twice"), "{error}");
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
                r#"{"task":{"kernel":"x"},"workunits":{"count":1},"gpus":1}"#,
                "gpus is 1, and its task would not use one",
            ),
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
            (
                r#"{"task":{"kernel":"x"},"workunits":{"count":1},"profile":{"features":{"a b":1}}}"#,
                "profile.features: \"a b\" is no name",
            ),
            (
                r#"{"task":{"kernel":"x"},"workunits":{"count":1},"profile":{"cpu_us":18446744073709551615}}"#,
                "profile.cpu_us is 18446744073709551615, must be from 0 to 100000000000000",
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
                r#"{"task":{"command":{"argv":["/x"],"outputs":["a","b","a"]}},"workunits":{"count":1}}"#,
                "outputs names \"a\" twice",
            ),
            (
                r#"{"task":{"kernel":"x"},"workunits":{"items":["a","b\u0000c"]}}"#,
                "item 1 has a NUL byte",
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

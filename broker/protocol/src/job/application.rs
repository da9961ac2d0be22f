//! Built-in kernels that a specification tells what to do, as tasks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Comparison, InputFile, Workunits, twice};
use crate::limits::{INPUT_FILES_MAX, MEMORY_MIB_MAX};
use crate::output::{ManifestError, check_file_name};
use crate::{Digest, KernelName};

/// A kernel with its specification and the files that this names. A workunit's item names the part
/// of the specification that it does; without items each workunit does all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplicationTask {
    /// Which kernel: `volume`, `isosurface`, `pca` or `npairs`.
    pub kernel: KernelName,
    /// Address of its specification, uploaded before the job. Files that it names to be read are
    /// among `inputs`; those that it names to be written are the output.
    pub spec: Digest,
    /// Files that it reads.
    #[serde(default)]
    pub inputs: Vec<InputFile>,
    /// Most memory that one replica may take, the page cache of its files included where a host can
    /// tell that, in MiB: beyond, it fails. All that the host gives a kernel where not given; hosts
    /// that give less do not run it.
    #[serde(default)]
    pub memory_mib: Option<u32>,
    /// When outputs of it are one vote.
    #[serde(default)]
    pub comparison: Comparison,
}

impl ApplicationTask {
    /// Checks its limit and the names of its files.
    ///
    /// # Errors
    /// The first thing wrong with it.
    pub fn check(&self) -> Result<(), ApplicationTaskError> {
        if let Some(mib) = self.memory_mib.filter(|mib| !(1..=MEMORY_MIB_MAX).contains(mib)) {
            return Err(ApplicationTaskError::Memory(mib));
        }
        if self.inputs.len() > INPUT_FILES_MAX {
            return Err(ApplicationTaskError::TooManyInputs(self.inputs.len()));
        }
        let names = || self.inputs.iter().map(|input| input.name.as_str());
        names().try_for_each(check_file_name)?;
        match twice(names()) {
            Some(name) => Err(ApplicationTaskError::InputTwice(name.to_owned())),
            None => Ok(()),
        }
    }

    /// Checks that its workunits are parts of one result: all of it once, or each part once.
    pub(super) fn check_workunits(workunits: &Workunits) -> Result<(), ApplicationTaskError> {
        match workunits {
            Workunits::Count(1) => Ok(()),
            Workunits::Count(count) => Err(ApplicationTaskError::Repeated(*count)),
            Workunits::Items(items) => match twice(items.iter()) {
                Some(item) => Err(ApplicationTaskError::PartTwice(item.to_owned())),
                None => Ok(()),
            },
        }
    }
}

/// Why a kernel's task is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApplicationTaskError {
    /// A limit outside its range.
    #[error("task.application.memory_mib is {0}, must be from 1 to {MEMORY_MIB_MAX}")]
    Memory(u32),
    /// Inputs over their limit.
    #[error("task.application.inputs names {0} files, at most {INPUT_FILES_MAX} are allowed")]
    TooManyInputs(usize),
    /// A name that is no plain file name.
    #[error("task.application.inputs: {0}")]
    FileName(#[from] ManifestError),
    /// Two inputs of one name.
    #[error("task.application.inputs names {0:?} twice: each input needs a name of its own")]
    InputTwice(String),
    /// Several workunits that all do all of it.
    #[error(
        "workunits.count is {0}, must be 1: each would do all of the specification; its parts, such \
         as the numbers of components of npairs, are given as workunits.items, and replication asks \
         for more than one vote"
    )]
    Repeated(u32),
    /// Two workunits that do the same part.
    #[error("workunits.items names {0:?} twice: each part of the specification is done once")]
    PartTwice(String),
}

#[cfg(test)]
mod tests {
    use super::super::{JobSpec, Task};
    use super::*;

    fn parse(fields: &str) -> Result<Task, String> {
        parse_with(fields, r#"{"count":1}"#)
    }

    fn parse_with(fields: &str, workunits: &str) -> Result<Task, String> {
        let spec = Digest::of(b"a specification");
        let text = format!(
            r#"{{"task":{{"application":{{"kernel":"pca","spec":"{spec}"{fields}}}}},"workunits":{workunits}}}"#
        );
        let spec: JobSpec = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        spec.check().map_err(|error| error.to_string())?;
        Ok(spec.task)
    }

    #[test]
    fn what_it_needs_is_its_specification_and_its_inputs() {
        let input = Digest::of(b"a table");
        let fields = format!(r#","inputs":[{{"name":"a.csv","digest":"{input}"}}]"#);
        let task = parse(&fields).expect("a task");
        let contents: Vec<_> = task.contents().collect();
        assert_eq!(contents, [("specification", Digest::of(b"a specification")), ("a.csv", input)]);
    }

    #[test]
    fn what_is_done_is_done_once() {
        for (workunits, says) in [
            (r#"{"count":2}"#, "workunits.count is 2, must be 1"),
            (r#"{"items":["1","2","1"]}"#, "workunits.items names \"1\" twice"),
        ] {
            let error = parse_with("", workunits).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
        parse_with("", r#"{"items":["1","2"]}"#).expect("parts");
    }

    #[test]
    fn bad_tasks_say_where_and_what_to_do() {
        let input = |name: &str| format!(r#"{{"name":{name:?},"digest":"{}"}}"#, Digest::of(b""));
        let inputs = |names: &[&str]| {
            let inputs: Vec<String> = names.iter().map(|name| input(name)).collect();
            format!(r#","inputs":[{}]"#, inputs.join(","))
        };
        for (fields, says) in [
            (r#","memory_mib":0"#.to_owned(), "task.application.memory_mib is 0, must be from 1"),
            (inputs(&["../a"]), "task.application.inputs: \"../a\" is no plain file name"),
            (inputs(&["a", "b", "a"]), "task.application.inputs names \"a\" twice"),
            (inputs(&["a"; 65]), "names 65 files, at most 64"),
            (r#","comparison":"near""#.to_owned(), "unknown variant `near`"),
            (r#","threads":4"#.to_owned(), "unknown field `threads`"),
        ] {
            let error = parse(&fields).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }
}

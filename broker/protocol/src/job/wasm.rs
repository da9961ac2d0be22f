//! WebAssembly modules as tasks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{InputFile, twice};
use crate::Digest;
use crate::limits::{
    ARGUMENT_BYTES_MAX, ARGV_MAX, INPUT_FILES_MAX, OUTPUT_FILES_MAX, WASM_CPU_S_MAX,
    WASM_DISK_MIB_MAX, WASM_FUEL_MAX, WASM_MEMORY_MIB_MAX,
};
use crate::output::{ManifestError, check_file_name};

/// A module for WASI preview 1. It sees its arguments, its inputs and a folder of its own, and
/// nothing else of the host that it runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WasmTask {
    /// Address of the module, uploaded before the job.
    pub module: Digest,
    /// Its arguments, after the program's name, which is `module`. `{index}` and `{item}` stand
    /// for the workunit's index and item.
    #[serde(default)]
    pub args: Vec<String>,
    /// Files that are in its folder when it starts; it cannot change them.
    #[serde(default)]
    pub inputs: Vec<InputFile>,
    /// Files in its folder that are its output beside `stdout`. [`super::STDERR`] among them is what
    /// it prints to standard error.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// Most memory that it may have, in MiB.
    #[serde(default = "default_memory_mib")]
    pub memory_mib: u32,
    /// Most that its files may hold together, inputs not counted, in MiB.
    #[serde(default = "default_disk_mib")]
    pub disk_mib: u32,
    /// Most CPU time that one replica may take, in seconds.
    #[serde(default = "default_cpu_s")]
    pub cpu_s: u64,
    /// Most instructions that one replica may execute: a limit that is the same on every host,
    /// for a module that runs slower by it. None where not given.
    #[serde(default)]
    pub fuel: Option<u64>,
}

const fn default_memory_mib() -> u32 {
    256
}

const fn default_disk_mib() -> u32 {
    1024
}

const fn default_cpu_s() -> u64 {
    3600
}

impl WasmTask {
    /// A module without arguments and files, and with the default limits.
    #[must_use]
    pub const fn new(module: Digest) -> Self {
        Self {
            module,
            args: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            memory_mib: default_memory_mib(),
            disk_mib: default_disk_mib(),
            cpu_s: default_cpu_s(),
            fuel: None,
        }
    }

    /// Checks its limits, its arguments and the names of its files.
    ///
    /// # Errors
    /// The first thing wrong with it.
    pub fn check(&self) -> Result<(), WasmTaskError> {
        let limits = [
            ("memory_mib", u64::from(self.memory_mib), WASM_MEMORY_MIB_MAX.into()),
            ("disk_mib", self.disk_mib.into(), WASM_DISK_MIB_MAX.into()),
            ("cpu_s", self.cpu_s, WASM_CPU_S_MAX),
            ("fuel", self.fuel.unwrap_or(1), WASM_FUEL_MAX),
        ];
        for (field, value, max) in limits {
            if !(1..=max).contains(&value) {
                return Err(WasmTaskError::OutOfRange { field, value, max });
            }
        }
        if self.args.len() > ARGV_MAX {
            return Err(WasmTaskError::TooManyArguments(self.args.len()));
        }
        let bad = |text: &String| text.len() > ARGUMENT_BYTES_MAX || text.contains('\0');
        if let Some(index) = self.args.iter().position(bad) {
            return Err(WasmTaskError::Argument(index));
        }
        for (field, count, max) in [
            ("inputs", self.inputs.len(), INPUT_FILES_MAX),
            ("outputs", self.outputs.len(), OUTPUT_FILES_MAX - 1),
        ] {
            if count > max {
                return Err(WasmTaskError::TooManyFiles { field, count, max });
            }
        }
        let inputs = self.inputs.iter().map(|input| ("inputs", &input.name));
        let outputs = self.outputs.iter().map(|name| ("outputs", name));
        for (field, name) in inputs.chain(outputs) {
            check_file_name(name).map_err(|source| WasmTaskError::FileName { field, source })?;
        }
        if let Some(name) = twice(self.inputs.iter().map(|input| input.name.as_str())) {
            return Err(WasmTaskError::InputTwice(name.to_owned()));
        }
        if let Some(name) = twice(self.outputs.iter().map(String::as_str)) {
            return Err(WasmTaskError::OutputTwice(name.to_owned()));
        }
        if self.outputs.iter().any(|name| name == "stdout") {
            return Err(WasmTaskError::StdoutIsTaken);
        }
        Ok(())
    }
}

/// Why a module's task is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WasmTaskError {
    /// A limit outside its range.
    #[error("task.wasm.{field} is {value}, must be from 1 to {max}")]
    OutOfRange {
        /// Which limit.
        field: &'static str,
        /// What was given.
        value: u64,
        /// Most allowed.
        max: u64,
    },
    /// Too many arguments.
    #[error("task.wasm.args has {0} arguments, at most {max} are passed: put them into an input", max = ARGV_MAX)]
    TooManyArguments(usize),
    /// An argument over its limit, or with a NUL.
    #[error("task.wasm.args[{0}] is longer than {max} bytes or has a NUL: put it into an input", max = ARGUMENT_BYTES_MAX)]
    Argument(usize),
    /// Inputs or outputs over their limits.
    #[error(
        "task.wasm.{field} names {count} files, at most {max} are allowed: put several into one"
    )]
    TooManyFiles {
        /// Which of the two.
        field: &'static str,
        /// How many were given.
        count: usize,
        /// Most allowed.
        max: usize,
    },
    /// A name that is no plain file name.
    #[error("task.wasm.{field}: {source}")]
    FileName {
        /// Inputs or outputs.
        field: &'static str,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// Two inputs of one name.
    #[error("task.wasm.inputs names {0:?} twice: each input needs a name of its own")]
    InputTwice(String),
    /// Two outputs of one name.
    #[error("task.wasm.outputs names {0:?} twice: each output is named once")]
    OutputTwice(String),
    /// `stdout` is the name of what the module prints.
    #[error("task.wasm.outputs names \"stdout\", which is what the module prints: rename the file")]
    StdoutIsTaken,
}

#[cfg(test)]
mod tests {
    use super::super::{JobSpec, Task};
    use super::*;

    fn parse(fields: &str) -> Result<WasmTask, String> {
        let module = Digest::of(b"a module");
        let text = format!(
            r#"{{"task":{{"wasm":{{"module":"{module}"{fields}}}}},"workunits":{{"count":1}}}}"#
        );
        let spec: JobSpec = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        spec.check().map_err(|error| error.to_string())?;
        let Task::Wasm(task) = spec.task else { panic!("{spec:?}") };
        Ok(task)
    }

    #[test]
    fn a_module_alone_is_a_task() {
        assert_eq!(parse(""), Ok(WasmTask::new(Digest::of(b"a module"))));
    }

    #[test]
    fn what_it_needs_is_its_module_and_its_inputs() {
        let input = Digest::of(b"an input");
        let fields = format!(r#","inputs":[{{"name":"a","digest":"{input}"}}]"#);
        let task = Task::Wasm(parse(&fields).expect("a task"));
        let contents: Vec<_> = task.contents().collect();
        assert_eq!(contents, [("module", Digest::of(b"a module")), ("a", input)]);
    }

    #[test]
    fn bad_tasks_say_where_and_what_to_do() {
        let twice = format!(r#"{{"name":"a","digest":"{}"}}"#, Digest::of(b""));
        let twice = format!(r#","inputs":[{twice},{twice}]"#);
        let many = format!(r#","outputs":[{}]"#, vec![r#""x""#; 64].join(","));
        for (fields, says) in [
            (r#","memory_mib":0"#, "task.wasm.memory_mib is 0, must be from 1 to 4096"),
            (r#","memory_mib":4097"#, "task.wasm.memory_mib is 4097"),
            (r#","disk_mib":0"#, "task.wasm.disk_mib is 0"),
            (r#","cpu_s":0"#, "task.wasm.cpu_s is 0"),
            (r#","fuel":0"#, "task.wasm.fuel is 0"),
            (r#","args":["a","b\u0000"]"#, "task.wasm.args[1]"),
            (r#","outputs":["../x"]"#, "task.wasm.outputs: \"../x\" is no plain file name"),
            (r#","outputs":["stdout"]"#, "rename the file"),
            (r#","outputs":["o","o"]"#, "task.wasm.outputs names \"o\" twice"),
            (r#","threads":4"#, "unknown field `threads`"),
            (twice.as_str(), "task.wasm.inputs names \"a\" twice"),
            (many.as_str(), "task.wasm.outputs names 64 files, at most 63"),
        ] {
            let error = parse(fields).expect_err(fields);
            assert!(error.contains(says), "{error}");
        }
    }
}

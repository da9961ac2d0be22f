//! One call of the real hook.

use std::path::Path;
use std::process::Command;

use gleaner_protocol::Span;

use crate::patience::timed;
use crate::program::{Said, gleaner, gleaner_hook, run};

/// A hook that is about to run.
pub(crate) struct Hook {
    command: Command,
}

/// What came of it.
pub(crate) struct Hooked {
    /// From its start to its end, as the farm sees it.
    pub(crate) took: Span,
    /// Its troubles in words.
    pub(crate) said: String,
}

impl Hook {
    /// A preflight is run by the program that is a hook and nothing else, what follows it by the
    /// whole one: each has to do what the other would.
    pub(crate) fn new(kind: &str, run_dir: &Path) -> Self {
        let mut command = match kind {
            "preflight" => gleaner_hook(["hook", kind]),
            _ => gleaner(["hook", kind]),
        };
        command.arg("--run-dir").arg(run_dir);
        Self { command }
    }

    /// Gives a healthy agent all the time that it may need on a machine that is busy with other
    /// tests: for what a hook does, not for how long it takes.
    pub(crate) fn patient(self) -> Self {
        self.with(&["--agent-timeout-ms", "10000", "--deadline-ms", "30000"])
    }

    /// Any more arguments.
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// The cores that the render books.
    pub(crate) fn cores(self, cores: u32) -> Self {
        self.env("GLEANER_CORES", cores.to_string())
    }

    /// Its process, to be started in a special way.
    pub(crate) fn command(self) -> Command {
        self.command
    }

    /// Runs it; whatever is wrong, it ends with 0.
    #[track_caller]
    pub(crate) fn run(mut self) -> Hooked {
        let (took, said) = timed(|| run(&mut self.command));
        Hooked::of(took, said)
    }
}

impl Hooked {
    #[track_caller]
    pub(crate) fn of(took: Span, said: Said) -> Self {
        assert_eq!(said.code, Some(0), "a hook that fails fails the render: {said}");
        assert!(!said.stderr.contains("panicked"), "{said}");
        Self { took, said: said.stderr }
    }
}

//! A program in Python that ours is measured beside, by turns.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::NamedTempFile;

/// How to have what the programs import.
pub(super) const INSTALL: &str =
    "python3 -m venv target/python && target/python/bin/pip install vtk numpy";

/// A program that does its work once for each line that it is sent, and says how many milliseconds
/// of CPU time it took.
pub(super) struct Peer {
    child: Child,
    asks: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// Its name and version.
    pub(super) name: String,
}

impl Peer {
    /// Starts a script on one thread; says why it is not there, where it is not.
    pub(super) fn start(script: &str, argument: &str) -> Option<Self> {
        // A file holds as much as it says, and nobody has to read it meanwhile.
        let said = NamedTempFile::new().expect("a file");
        let mut child = Command::new("python3")
            .args(["-c", script, argument])
            .envs(["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"].map(|n| (n, "1")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said.reopen().expect("a file"))
            .spawn();
        let started = child.as_mut().ok().and_then(|child| {
            let mut answers = BufReader::new(child.stdout.take()?).lines();
            Some((child.stdin.take()?, answers.next()?.ok()?, answers))
        });
        match (child, started) {
            (Ok(child), Some((asks, name, answers))) => Some(Self { child, asks, answers, name }),
            (Ok(mut child), None) => {
                let ended = child.wait().expect("it ends");
                let said = fs::read_to_string(said.path()).unwrap_or_default();
                println!("not measured: {}", why_not(&said, &ended.to_string()));
                None
            }
            (Err(error), _) => {
                println!("not measured: `python3` does not start: {error}");
                None
            }
        }
    }

    /// Has it do its work once more; CPU milliseconds.
    pub(super) fn turn_ms(&mut self) -> f64 {
        writeln!(self.asks).expect("it listens");
        let answer = self.answers.next().expect("an answer").expect("text");
        answer.parse().expect("milliseconds")
    }

    /// What it says at the end, once all its files are written.
    pub(super) fn end(self) -> Vec<String> {
        let Self { mut child, asks, answers, .. } = self;
        drop(asks);
        let said = answers.map(|line| line.expect("text")).collect();
        assert!(child.wait().expect("it ends").success(), "{} comes to its end", self.name);
        said
    }
}

/// Why a script is not there that has `said` this on its way, and how to have what it wants.
fn why_not(said: &str, ended: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let Some(last) = lines.last() else { return format!("`python3` ended with {ended}") };
    if last.starts_with("ModuleNotFoundError") {
        return format!(
            "`python3` does not import it ({last}). To have it: `{INSTALL}`, and\n\
             `PATH=$PWD/target/python/bin:$PATH cargo bench -p gleaner-kernels`."
        );
    }
    format!("`python3` ended with {ended}, and said:\n{}", lines.join("\n"))
}

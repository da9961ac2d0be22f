//! A stand-in for a worker whose children the agent watches.

use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use gleaner_protocol::boottime;
use gleaner_protocol::farm::SampledBooking;

use super::until;
use crate::RunDir;
use crate::install::Finding;
use crate::limits::PROBE_END_WAIT;

/// Starts a child, says which process that is, and waits for it. The child lasts until the input ends.
const SCRIPT: &str = "exec 3<&0; cat <&3 & echo $!; wait";

/// Has a process of the worker's name start another one, and looks whether that is booked and whether
/// the booking ends with it.
pub(super) fn by_worker(name: &str, folder: &RunDir) -> Vec<Finding> {
    let begun = boottime();
    let mut stand_in = match StandIn::start(name) {
        Ok(stand_in) => stand_in,
        Err(error) => {
            return vec![Finding::note(
                format!("no stand-in for {name} could be started: {error}"),
                "start a render and look for its booking in `gleaner agent status`",
            )];
        }
    };
    let prefix = format!("{name}:{}.", stand_in.child_of_its);
    let stands =
        |all: &[SampledBooking]| all.iter().any(|one| one.booking.as_str().starts_with(&prefix));
    if !until(folder, PROBE_END_WAIT, stands) {
        return vec![Finding::wrong(
            format!("what a stand-in for {name} started was not booked within {PROBE_END_WAIT}"),
            "see that the agent watches it: `gleaner agent status`, `journalctl -u gleaner-agent`",
        )];
    }
    let took = boottime().since(begun);
    stand_in.end();
    vec![
        Finding::good(format!("what a stand-in for {name} started was booked {took} later")),
        match until(folder, PROBE_END_WAIT, |all| !stands(all)) {
            true => Finding::good("the booking has ended with its process"),
            false => Finding::wrong(
                format!("the booking stands {PROBE_END_WAIT} after its process"),
                "see the agent's log: until it ends the host is not harvested",
            ),
        },
    ]
}

/// A process of the worker's name, with a child. Both end with this.
struct StandIn {
    worker: Child,
    child_of_its: u32,
    _link: Link,
}

impl StandIn {
    fn start(name: &str) -> io::Result<Self> {
        let link = Link::new(name)?;
        // Linux calls a process as the file is called that was to be run.
        let mut worker = Command::new(link.path())
            .arg0("sh")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut said = String::new();
        if let Some(output) = worker.stdout.take() {
            BufReader::new(output).read_line(&mut said)?;
        }
        let child_of_its = said.trim().parse().map_err(io::Error::other)?;
        Ok(Self { worker, child_of_its, _link: link })
    }

    /// Its input ends, and so do both.
    fn end(&mut self) {
        drop(self.worker.stdin.take());
        let _ = self.worker.wait();
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.end();
    }
}

/// The shell by another name, in a folder of its own that goes with this.
struct Link {
    folder: PathBuf,
    name: String,
}

impl Link {
    fn new(name: &str) -> io::Result<Self> {
        let folder = env::temp_dir().join(format!("gleaner-probe-{}", std::process::id()));
        // One that is there is somebody else's.
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let link = Self { folder, name: name.to_owned() };
        symlink(Path::new("/bin/sh"), link.path())?;
        Ok(link)
    }

    fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path());
        let _ = fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_has_the_name_and_a_child_and_leaves_nothing() {
        let mut stand_in = StandIn::start("flamenco-worker").expect("it starts");
        let of = |pid: u32, file: &str| {
            fs::read_to_string(format!("/proc/{pid}/{file}")).expect("it runs")
        };
        assert_eq!(of(stand_in.worker.id(), "comm"), "flamenco-worker\n");
        let child = stand_in.child_of_its;
        let parent = format!("PPid:\t{}\n", stand_in.worker.id());
        assert!(of(child, "status").contains(&parent));
        let folder = stand_in._link.folder.clone();
        stand_in.end();
        assert!(!Path::new(&format!("/proc/{child}")).exists());
        drop(stand_in);
        assert!(!folder.exists());
    }
}

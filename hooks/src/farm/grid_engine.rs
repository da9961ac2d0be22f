//! Grid Engine: queue prolog and epilog, run by the shepherd on the job's first host only.
//!
//! Configured with `$host $job_id $ja_task_id $job_owner $queue` behind the program's path; the
//! job's environment adds `NSLOTS`, `NHOSTS` and `PE_HOSTFILE`, which has a line per host: its
//! name and the slots there. A slot is a core. Memory and GPUs are not said. The epilog's has
//! `SGE_JOBEXIT_STAT` beside that: the exit code of the job, or 128 and the signal that ended it.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use gleaner_protocol::{HostName, booking_of};

use super::{Attempt, cores, is_failure};
use crate::Environment;
use crate::limits::HOST_FILE_BYTES_MAX;

pub(super) fn attempt(environment: &Environment) -> Attempt {
    let mut attempt = Attempt::default();
    let said = |place, name| environment.argument(place).or_else(|| environment.get(name));
    if let Some(job) = said(1, "JOB_ID") {
        // A job that is no array has the task 0 as an argument, and this word as a variable.
        let task = said(2, "SGE_TASK_ID").filter(|task| *task != "undefined").unwrap_or("0");
        attempt.booking = Some(booking_of("grid-engine", &format!("{job}.{task}")));
    }
    let host = said(0, "HOSTNAME");
    if let Some(host) = host {
        match HostName::new(host) {
            Ok(host) => attempt.host = Some(host),
            Err(error) => attempt.troubles.push(format!("$host: {error}")),
        }
    }
    if let Some(slots) = environment.get("NSLOTS") {
        match slots_here(environment, slots, host) {
            Ok(cores) => attempt.booked.cores = Some(cores),
            Err(why) => attempt.troubles.push(format!("{why}, so the whole host is booked")),
        }
    }
    attempt.failed = environment.get("SGE_JOBEXIT_STAT").and_then(has_failed);
    attempt
}

/// None of a job that was deleted, requeued or ended for its limits: Grid Engine ends it by KILL, before
/// which it may say so by USR1, USR2 or XCPU, and one that wants to run again ends with 99.
fn has_failed(status: &str) -> Option<bool> {
    const RUNS_AGAIN: i64 = 99;
    const BY_KILL: i64 = 128 + 9;
    const BY_USR1: i64 = 128 + 10;
    const BY_USR2: i64 = 128 + 12;
    const BY_TERM: i64 = 128 + 15;
    const BY_XCPU: i64 = 128 + 24;
    match status.parse() {
        Ok(..0 | RUNS_AGAIN | BY_KILL | BY_USR1 | BY_USR2 | BY_TERM | BY_XCPU) => None,
        _ => is_failure(status),
    }
}

fn slots_here(environment: &Environment, slots: &str, host: Option<&str>) -> Result<u32, String> {
    // NSLOTS counts the slots of all hosts.
    if environment.get("NHOSTS").unwrap_or("1") == "1" {
        return cores(slots).ok_or(format!("NSLOTS: {slots:.40?} is no number of cores"));
    }
    let path = environment.get("PE_HOSTFILE").ok_or("a job of several hosts has no PE_HOSTFILE")?;
    let text =
        read_file(Path::new(path)).map_err(|error| format!("PE_HOSTFILE {path}: {error}"))?;
    let host = host.ok_or("neither $host nor HOSTNAME says which line of PE_HOSTFILE is ours")?;
    slots_of(&text, host).ok_or(format!("PE_HOSTFILE {path} does not say the slots of {host:.80}"))
}

/// The slots of all lines that name the host, with its domain or without.
fn slots_of(text: &str, host: &str) -> Option<u32> {
    let short = |name: &str| name.split('.').next().unwrap_or(name).to_ascii_lowercase();
    let ours = short(host);
    let mut all: u32 = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next().is_some_and(|name| short(name) == ours) {
            all = all.checked_add(cores(words.next()?)?)?;
        }
    }
    cores(&all.to_string())
}

/// The job has a part in naming it, so it is not waited for: no pipe, no device, no more than a
/// bound.
fn read_file(path: &Path) -> std::io::Result<String> {
    let not_blocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(not_blocking).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no plain file"));
    }
    let mut text = String::new();
    file.take(HOST_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use gleaner_protocol::BookingId;

    use super::*;

    /// As recorded of a job with four slots on two hosts, save for the path.
    const HOST_FILE: &str = "node1.farm 3 all.q@node1.farm UNDEFINED\n\
                             node2.farm 1 all.q@node2.farm UNDEFINED\n\
                             node1.farm 2 big.q@node1.farm UNDEFINED\n";

    fn recorded(variables: &[(&str, &str)]) -> Environment {
        let environment: Environment = variables.iter().copied().collect();
        environment.with_arguments(["node1.farm", "7", "0", "artist", "all.q"])
    }

    #[test]
    fn a_serial_job_books_its_slots() {
        let attempt = attempt(&recorded(&[
            ("JOB_ID", "7"),
            ("SGE_TASK_ID", "undefined"),
            ("NSLOTS", "1"),
            ("NHOSTS", "1"),
        ]));
        assert_eq!(attempt.booking, BookingId::new("grid-engine:7.0").ok());
        assert_eq!(attempt.booked.cores, Some(1));
        assert_eq!(attempt.host, HostName::new("node1.farm").ok());
        assert_eq!(attempt.troubles, [""; 0]);
    }

    #[test]
    fn without_arguments_the_variables_say_it() {
        let task =
            |task| attempt(&[("JOB_ID", "7"), ("SGE_TASK_ID", task)].into_iter().collect()).booking;
        assert_eq!(task("12"), BookingId::new("grid-engine:7.12").ok());
        assert_eq!(task("undefined"), BookingId::new("grid-engine:7.0").ok());
        assert_eq!(attempt(&Environment::default()), Attempt::default());
        let host = attempt(&[("HOSTNAME", "n1")].into_iter().collect()).host;
        assert_eq!(host, HostName::new("n1").ok());
    }

    #[test]
    fn an_epilog_says_whether_the_job_failed() {
        for (status, failed) in [
            ("0", Some(false)),
            ("1", Some(true)),
            ("100", Some(true)),
            ("139", Some(true)),
            ("99", None),
            ("137", None),
            ("138", None),
            ("140", None),
            ("143", None),
            ("152", None),
            ("-1", None),
            ("", None),
            ("well", None),
        ] {
            let attempt = attempt(&recorded(&[("SGE_JOBEXIT_STAT", status), ("NSLOTS", "1")]));
            assert_eq!((attempt.failed, attempt.troubles.len()), (failed, 0), "{status:?}");
        }
        assert_eq!(attempt(&recorded(&[("NSLOTS", "1")])).failed, None, "a prolog knows nothing");
    }

    #[test]
    fn of_several_hosts_ours_is_looked_up() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(HOST_FILE.as_bytes()).expect("written");
        let path = file.path().to_str().expect("text");
        let variables = [("NSLOTS", "6"), ("NHOSTS", "2"), ("PE_HOSTFILE", path)];
        assert_eq!(attempt(&recorded(&variables)).booked.cores, Some(5));
        let of = |host: &str| {
            let environment: Environment = variables.into_iter().collect();
            attempt(&environment.with_arguments([host, "7"])).booked.cores
        };
        assert_eq!(of("NODE2"), Some(1));
        assert_eq!(of("node3"), None);
    }

    #[test]
    fn what_cannot_be_told_books_the_whole_host() {
        let no_file = tempfile::tempdir().expect("a folder");
        let folder = no_file.path().to_str().expect("text");
        for variables in [
            &[("NSLOTS", "0")][..],
            &[("NSLOTS", "many")],
            &[("NSLOTS", "6"), ("NHOSTS", "2")],
            &[("NSLOTS", "6"), ("NHOSTS", "2"), ("PE_HOSTFILE", "/nowhere")],
            &[("NSLOTS", "6"), ("NHOSTS", "2"), ("PE_HOSTFILE", folder)],
            &[("NSLOTS", "6"), ("NHOSTS", "2"), ("PE_HOSTFILE", "/dev/zero")],
            &[("NSLOTS", "6"), ("NHOSTS", "2"), ("PE_HOSTFILE", "/dev/null")],
        ] {
            let attempt = attempt(&recorded(variables));
            assert_eq!(attempt.booked.cores, None, "{variables:?}");
            assert_eq!(attempt.troubles.len(), 1, "{:?}", attempt.troubles);
            assert!(attempt.troubles[0].ends_with("the whole host is booked"));
        }
        let environment: Environment =
            [("NSLOTS", "6"), ("NHOSTS", "2"), ("PE_HOSTFILE", "/dev/null")].into_iter().collect();
        assert_eq!(attempt(&environment).booked.cores, None, "nobody says which host this is");
    }

    #[test]
    fn lines_that_make_no_sense_are_not_guessed_at() {
        for text in ["n1", "n1 x", "n1 0", "n1 4294967295\nn1 4294967295", ""] {
            assert_eq!(slots_of(text, "n1"), None, "{text}");
        }
        assert_eq!(slots_of("\n\nn1 2\nn2 x\n", "n1"), Some(2));
    }
}

//! OpenPBS and Torque: the scripts `prologue` and `epilogue` of a MoM, run as root with nothing of the
//! job's environment; Torque's has some of its own (`PBS_NODEFILE`, `PBS_NODENUM`). Both have the job's id
//! as their first argument; Torque's prologue has the requested resources as its fifth
//! (`nodes=1:ppn=4,mem=8gb`), and both epilogues the job's exit status as their tenth; of cores OpenPBS says
//! nothing. A status is the exit code, or 256 and the signal that ended the job; below 0 it is the MoM's own
//! word for one that it did not run (-2), put back into the queue (-4, -14) or ended for its time (-11).

use gleaner_protocol::{booking_of, mib_of};

use super::quantity::gpus;
use super::{Attempt, cores, is_failure};
use crate::Environment;

pub(super) fn attempt(environment: &Environment) -> Attempt {
    let mut attempt = Attempt::default();
    if let Some(job) = environment.argument(0).or_else(|| environment.get("PBS_JOBID")) {
        attempt.booking = Some(booking_of("pbs", job));
    }
    // A job has its status on its first node; the others are told a 0, however it ends.
    if environment.get("PBS_NODENUM").is_none_or(|node| node == "0") {
        attempt.failed = environment.argument(9).and_then(has_failed);
    }
    // In an epilogue the session's number stands there.
    let Some(limits) = environment.argument(4).filter(|limits| limits.contains('=')) else {
        return attempt;
    };
    let (nodes, here) = (Nodes::of(limits), environment.hosts().and_then(Here::of));
    // A scheduler may put several of the job's nodes on one host; `ncpus` is more than the file has.
    attempt.booked.cores = nodes.map(|nodes| nodes.cores).max(here.map(|here| here.cores));
    attempt.booked.gpus = nodes.and_then(|nodes| nodes.gpus);
    if attempt.booked.cores.is_none() {
        attempt.troubles.push(format!(
            "{limits:.80?} does not say this host's cores, so the whole host is booked"
        ));
    }
    // What the job asks for altogether is this host's where there is no other.
    if nodes.is_some_and(|nodes| nodes.count == 1) || here.is_some_and(|here| here.is_alone) {
        attempt.booked.memory_mib = value(limits, "mem").and_then(mib_of);
    }
    attempt
}

/// None of a job that was cancelled, ended for its time limit or put back into the queue: a MoM ends
/// it by TERM and then KILL.
fn has_failed(status: &str) -> Option<bool> {
    const BY_TERM: i64 = 256 + 15;
    const BY_KILL: i64 = 256 + 9;
    match status.parse() {
        Ok(..0 | BY_KILL | BY_TERM) => None,
        _ => is_failure(status),
    }
}

/// What a job has of this host, by the file that `PBS_NODEFILE` names: a line for each core, which is
/// its host's name. A MoM writes it before the prologue, and only on a job's first node, whose name is
/// the first.
#[derive(Clone, Copy)]
struct Here {
    cores: u32,
    is_alone: bool,
}

impl Here {
    fn of(hosts: &str) -> Option<Self> {
        let own = hosts.lines().next()?;
        let count = hosts.lines().filter(|host| *host == own).count();
        let is_alone = count == hosts.lines().count();
        Some(Self { cores: u32::try_from(count).ok()?, is_alone })
    }
}

/// What a job asks for of each of its hosts.
#[derive(Clone, Copy)]
struct Nodes {
    count: u32,
    cores: u32,
    gpus: Option<u32>,
}

impl Nodes {
    /// None where it is not the same of each, for which one this is nobody says.
    fn of(limits: &str) -> Option<Self> {
        let Some(nodes) = value(limits, "nodes") else {
            let cores = cores(value(limits, "ncpus")?)?;
            return Some(Self { count: 1, cores, gpus: None });
        };
        let mut all: Option<Self> = None;
        for part in nodes.split('+') {
            let part = Self::of_part(part)?;
            all = match all {
                None => Some(part),
                Some(all) if (all.cores, all.gpus) == (part.cores, part.gpus) => {
                    Some(Self { count: all.count.checked_add(part.count)?, ..all })
                }
                Some(_) => return None,
            };
        }
        all
    }

    /// `2:ppn=4:gpus=1`, or a host's name instead of the number.
    fn of_part(part: &str) -> Option<Self> {
        let mut words = part.split(':');
        let count = words.next()?.parse().unwrap_or(1);
        let mut nodes = Self { count, cores: 1, gpus: None };
        for word in words {
            match word.split_once('=') {
                Some(("ppn", number)) => nodes.cores = cores(number)?,
                Some(("gpus", number)) => nodes.gpus = Some(gpus(number)?),
                // Properties of the node.
                _ => {}
            }
        }
        Some(nodes)
    }
}

/// Of `name=value,name=value`.
fn value<'a>(limits: &'a str, name: &str) -> Option<&'a str> {
    limits
        .split(',')
        .filter_map(|item| item.split_once('='))
        .find(|(is, _)| is.trim() == name)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::BookingId;
    use gleaner_protocol::farm::Booked;

    use super::*;

    fn of(arguments: &[&str]) -> Attempt {
        attempt(&Environment::default().with_arguments(arguments.iter().copied()))
    }

    fn booked(limits: &str) -> Attempt {
        of(&["812.head.farm", "artist", "artists", "shot", limits, "batch", ""])
    }

    fn epilogue_of(status: &str) -> [&str; 10] {
        let used = "cput=0";
        ["812.head.farm", "artist", "artists", "shot", "4711", "nodes=1", used, "batch", "", status]
    }

    #[test]
    fn a_prologue_of_torque_says_the_cores() {
        let attempt = booked("neednodes=1:ppn=4,nodes=1:ppn=4:gpus=2,mem=8gb,walltime=01:00:00");
        assert_eq!(attempt.booking, BookingId::new("pbs:812.head.farm").ok());
        assert_eq!(
            attempt.booked,
            Booked { cores: Some(4), memory_mib: Some(8192), gpus: Some(2) }
        );
        assert_eq!(attempt.troubles, [""; 0]);
    }

    #[test]
    fn prologue_and_epilogue_name_the_same_attempt() {
        let prologue = booked("nodes=1");
        let epilogue = of(&epilogue_of("0"));
        assert_eq!(prologue.booking, epilogue.booking);
        assert_eq!(epilogue.troubles, [""; 0]);
        assert_eq!(of(&["812.head", "artist", "artists"]).booked, Booked::default(), "OpenPBS");
        let variable: Environment = [("PBS_JOBID", "9.h")].into_iter().collect();
        assert_eq!(attempt(&variable).booking, BookingId::new("pbs:9.h").ok());
        assert_eq!(of(&[]), Attempt::default());
    }

    #[test]
    fn an_epilogue_on_the_first_node_says_whether_the_job_failed() {
        for (status, failed) in [
            ("0", Some(false)),
            ("1", Some(true)),
            ("139", Some(true)),
            ("267", Some(true)),
            // By qdel or for its walltime: TERM, and KILL where that was not enough.
            ("271", None),
            ("265", None),
            // Put back into the queue.
            ("-3", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(of(&epilogue_of(status)).failed, failed, "{status}");
            let on = |node| {
                let environment: Environment = [("PBS_NODENUM", node)].into_iter().collect();
                attempt(&environment.with_arguments(epilogue_of(status))).failed
            };
            assert_eq!((on("0"), on("1")), (failed, None), "{status}");
        }
        assert_eq!(booked("nodes=1").failed, None);
    }

    #[test]
    fn the_file_of_hosts_says_what_a_job_has_of_its_first() {
        for (limits, hosts, cores, memory_mib) in [
            // As Torque 6.1.3 had them.
            ("nodes=1:ppn=2,neednodes=1:ppn=2,walltime=01:00:00", "vm\nvm\n", 2, None),
            ("nodes=2,neednodes=2,walltime=01:00:00", "vm\nvm\n", 2, None),
            ("procs=1,walltime=01:00:00", "vm\n", 1, None),
            ("walltime=01:00:00", "vm\n", 1, None),
            ("walltime=01:00:00", "vm\nvm\n", 2, None),
            ("ncpus=2,mem=300mb,walltime=01:00:00", "vm\n", 2, Some(300)),
            ("procs=3,mem=1gb", "a\na\na\n", 3, Some(1024)),
            ("procs=3,mem=1gb", "a\na\nb\n", 2, None),
            ("nodes=1:ppn=2+1:ppn=3,mem=1gb", "a\na\na\nb\nb\n", 3, None),
            // As a user may have it, who sets BEOWULF_JOB_MAP.
            ("nodes=1:ppn=2", "a\n", 2, None),
            ("nodes=1:ppn=2", "", 2, None),
        ] {
            let arguments = ["812.head.farm", "artist", "artists", "shot", limits, "batch", ""];
            let environment = Environment::default().with_arguments(arguments).with_hosts(hosts);
            let attempt = attempt(&environment);
            let booked = Booked { cores: Some(cores), memory_mib, gpus: None };
            assert_eq!((attempt.booked, attempt.troubles.len()), (booked, 0), "{limits} {hosts:?}");
        }
    }

    #[test]
    fn tasks_of_an_array_are_attempts_of_their_own() {
        assert_ne!(of(&["812[1].head"]).booking, of(&["812[2].head"]).booking);
    }

    #[test]
    fn hosts_that_get_the_same_are_told_it_and_others_get_the_whole() {
        for (limits, cores, memory_mib) in [
            ("nodes=3:ppn=4,mem=8gb", Some(4), None),
            ("nodes=2:ppn=4+1:ppn=4,mem=1gb", Some(4), None),
            ("nodes=2:ppn=4+1:ppn=8", None, None),
            ("nodes=n1:ppn=2", Some(2), None),
            ("nodes=n1:big:ppn=2+n2:ppn=2", Some(2), None),
            ("nodes=1,mem=100", Some(1), Some(1)),
            ("ncpus=6,mem=512mb", Some(6), Some(512)),
            ("procs=12", None, None),
            ("nodes=1:ppn=0", None, None),
            ("nodes=1:gpus=x", None, None),
            ("nodes=4294967295+4294967295", None, None),
            ("walltime=1", None, None),
        ] {
            let attempt = booked(limits);
            assert_eq!(attempt.booked.cores, cores, "{limits}");
            assert_eq!(attempt.booked.memory_mib, memory_mib, "{limits}");
            assert_eq!(attempt.troubles.is_empty(), cores.is_some(), "{limits}");
        }
    }
}

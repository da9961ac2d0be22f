//! Slurm: the controller's jobs by `squeue`, its nodes by `sinfo`.
//!
//! Jobs come as JSON, whose shape differs from version to version (22.05 has `allocated_nodes`
//! with `nodename`, from 23.11 on it is `nodes.allocation` with `name`, and numbers are objects);
//! nodes as lines of columns that we choose, which have been the same for all of them. Jobs are
//! asked for first: one that starts in between is then seen as cores in use that nobody names,
//! and not as idle ones.
//!
//! Both are asked for all partitions: else Slurm leaves out hidden ones and those whose `AllowGroups` the
//! monitor's user is not in, and their nodes would pass for hosts that are not the farm's. An answer without
//! any node is none.
//!
//! A job holds its cores until it has completed, its epilog included. Memory that a job does not
//! book is its share by cores. A node that is down, draining, powered off or in maintenance is
//! wholly booked; one that no `RealMemory` is configured for has the memory that its agent says.

use gleaner_protocol::booking_of;
use serde::Deserialize;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use crate::HostAllocation;

pub(super) const NAME: &str = "slurm";
/// Memory of a node for which none is configured, in MB.
const MEMORY_UNSET: u64 = 1;
/// States of nodes that run jobs or may, without the marks behind them.
const IN_USE: [&str; 6] = ["idle", "mixed", "allocated", "completing", "planned", "reserved"];
/// Marks behind a state of a node that does not answer or has no power.
const MARKS_OF_ABSENCE: [char; 6] = ['*', '~', '#', '!', '%', '@'];
/// States in which a job holds no node.
const HOLDS_NOTHING: [&str; 11] = [
    "PENDING",
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
    "REVOKED",
];
const COMPLETING: &str = "COMPLETING";

pub(super) fn questions() -> Vec<Question> {
    vec![
        Question::program(["squeue", "--all", "--json"]),
        Question::program(["sinfo", "--all", "--noheader", "--Node", "--format=%N|%C|%m|%T"]),
    ]
}

#[derive(Deserialize)]
struct Answer {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    job_id: Number,
    job_state: OneOrMore,
    #[serde(default)]
    job_resources: Option<Resources>,
}

/// `"RUNNING"`, or `["RUNNING", "COMPLETING"]`.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// `5`, or `{"set": true, "infinite": false, "number": 5}`.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(u64),
    Object {
        #[serde(default)]
        set: bool,
        number: u64,
    },
}

#[derive(Deserialize)]
struct Resources {
    /// Of all nodes together.
    #[serde(default)]
    allocated_cpus: Option<Number>,
    #[serde(default)]
    allocated_nodes: Vec<NodeShare>,
    #[serde(default)]
    nodes: Option<Nodes>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Nodes {
    /// `n[1-3]`, where `allocated_nodes` has the rest.
    List(String),
    Allocation {
        #[serde(default)]
        allocation: Vec<NodeShare>,
    },
}

/// What a job has of a node.
#[derive(Deserialize)]
struct NodeShare {
    #[serde(alias = "nodename")]
    name: String,
    /// By its steps: none of them has begun for a while, and those of a job that waits have ended.
    #[serde(default)]
    cpus_used: Option<Number>,
    /// The physical cores that it has, by socket, where they are said by their numbers.
    #[serde(default)]
    sockets: Option<serde_json::Value>,
    #[serde(default)]
    cpus: Option<Cpus>,
    #[serde(default)]
    memory_allocated: Option<Number>,
    #[serde(default)]
    memory: Option<Memory>,
}

#[derive(Deserialize)]
struct Cpus {
    count: Number,
}

#[derive(Deserialize)]
struct Memory {
    allocated: Number,
}

impl Number {
    fn known(self) -> Option<u64> {
        match self {
            Self::Plain(number) => Some(number),
            Self::Object { set, number } => set.then_some(number),
        }
    }
}

impl Job {
    fn holds_nodes(&self) -> bool {
        let states = match &self.job_state {
            OneOrMore::One(state) => std::slice::from_ref(state),
            OneOrMore::More(states) => states,
        };
        states.iter().any(|state| state == COMPLETING)
            || !states.iter().any(|state| HOLDS_NOTHING.contains(&state.as_str()))
    }
}

impl NodeShare {
    /// What it has of a node; `all`, where this is its only one.
    fn amount(&self, all: Option<u64>) -> Amount {
        let cores = match &self.cpus {
            Some(cpus) => cpus.count.known(),
            // What a physical core has beyond its first thread is left to what nobody names.
            None => all.or_else(|| self.cpus_used?.known().max(self.physical_cores())),
        };
        let memory = self.memory.as_ref().map(|memory| memory.allocated).or(self.memory_allocated);
        Amount {
            cores,
            memory_mib: memory.and_then(Number::known).filter(|mib| *mib > 0),
            gpus: None,
        }
    }

    fn physical_cores(&self) -> Option<u64> {
        let sockets = self.sockets.as_ref()?.as_object()?;
        let cores = |socket: &serde_json::Value| Some(socket.get("cores")?.as_object()?.len());
        sockets.values().map(cores).sum::<Option<usize>>().map(|cores| cores as u64)
    }
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<Vec<HostAllocation>, String> {
    let [jobs, nodes] = answers else { return Err("two answers are expected".into()) };
    let answer: Answer =
        serde_json::from_slice(jobs).map_err(|error| format!("squeue: {error}"))?;
    let mut farm = Inventory::default();
    for job in answer.jobs.iter().filter(|job| job.holds_nodes()) {
        let id = job.job_id.known().ok_or("squeue: a job has no id")?;
        let Some(resources) = &job.job_resources else { continue };
        let shares = match &resources.nodes {
            Some(Nodes::Allocation { allocation }) => allocation,
            Some(Nodes::List(list)) if resources.allocated_nodes.is_empty() && !list.is_empty() => {
                return Err(format!("squeue: job {id} does not say what it has of {list:.80}"));
            }
            Some(Nodes::List(_)) | None => &resources.allocated_nodes,
        };
        let all = resources.allocated_cpus.and_then(Number::known).filter(|_| shares.len() == 1);
        for share in shares {
            let booking = booking_of(NAME, &id.to_string());
            farm.books(&share.name, booking, share.amount(all))?;
        }
    }
    let nodes = std::str::from_utf8(nodes).map_err(|error| format!("sinfo: {error}"))?;
    if nodes.trim_ascii().is_empty() {
        return Err("sinfo names no node: may the monitor's user see them?".into());
    }
    for line in nodes.lines() {
        node(&mut farm, line).map_err(|why| format!("sinfo: {line:?}: {why}"))?;
    }
    Ok(farm.finish())
}

/// `n1|2/2/0/4|2000|mixed`: cores in use, idle, otherwise, and all. A node comes once for each
/// partition that it is in.
fn node(farm: &mut Inventory, line: &str) -> Result<(), String> {
    let columns: Vec<&str> = line.split('|').collect();
    let [name, cores, memory, state] = columns[..] else {
        return Err("it does not have four columns".into());
    };
    let cores: Option<Vec<u64>> = cores.split('/').map(|number| number.parse().ok()).collect();
    let Some(&[used, _, _, all]) = cores.as_deref() else {
        return Err("its cores are not four numbers".into());
    };
    let memory: u64 = memory.parse().map_err(|_| "its memory is no number")?;
    let memory = Some(memory).filter(|mib| *mib > MEMORY_UNSET);
    farm.host(name, Amount::cores(all).with_memory(memory))?;
    farm.books_rest(name, booking_of(NAME, "unnamed"), used)?;
    let word = state.trim_end_matches(|mark: char| !mark.is_ascii_alphabetic());
    if !IN_USE.contains(&word) || state.contains(MARKS_OF_ABSENCE) {
        farm.withholds(name, booking_of(NAME, &format!("node-{word}")), Amount::default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::inventory::seen;

    /// As version 22.05.8 answered, with the fields that nobody reads here left out of all jobs
    /// but the first.
    const JOBS_22: &str = include_str!("../../tests/answers/squeue-22.05.json");

    /// As version 24.11.5 answered, likewise, and what it said of the nodes right afterwards.
    const JOBS_24: &str = include_str!("../../tests/answers/squeue-24.11.json");
    const NODES_24: &str = include_str!("../../tests/answers/sinfo-24.11.txt");

    /// As version 26.05.3 answered, likewise.
    const JOBS_26: &str = include_str!("../../tests/answers/squeue-26.05.json");
    const NODES_26: &str = include_str!("../../tests/answers/sinfo-26.05.txt");

    fn farm(jobs: &str, nodes: &str) -> Result<Vec<HostAllocation>, String> {
        parse(&[jobs.into(), nodes.into()])
    }

    #[test]
    fn jobs_and_nodes() {
        let nodes = "n1|4/0/0/4|2000|allocated\n\
                     n1|4/0/0/4|2000|allocated\n\
                     n2|4/0/0/4|2000|allocated\n\
                     n3|1/3/0/4|1|mixed\n";
        assert_eq!(
            seen(farm(JOBS_22, nodes)),
            [
                "n1 4c 2000m: slurm:1 2c ?m, slurm:2 2c ?m",
                "n2 4c 2000m: slurm:2 4c ?m",
                "n3 4c ?m: slurm:2 1c ?m",
            ]
        );
    }

    #[test]
    fn what_version_24_11_answers() {
        assert_eq!(
            seen(farm(JOBS_24, NODES_24)),
            [
                "n1 4c 4000m: slurm:1 2c 1000m, slurm:2 2c 1000m",
                "n2 4c 4000m: slurm:2 4c 2000m",
                "n3 4c 4000m: slurm:2 1c 500m, slurm:4 1c 700m",
            ],
            "one was put back and began again, one waits, and one's epilog runs"
        );
        let ended = JOBS_24.replace("[\"COMPLETED\", \"COMPLETING\"]", "[\"COMPLETED\"]");
        assert_ne!(ended, JOBS_24);
        assert_eq!(seen(farm(&ended, NODES_24))[2], "n3 4c 4000m: slurm:2 1c 500m");
        // Its answer a second later, when an administrator had taken a node out.
        let nodes = "n1|4/0/0/4|4000|allocated\nn2|4/0/0/4|4000|draining\nn3|1/3/0/4|4000|mixed\n";
        assert_eq!(
            seen(farm(JOBS_24, nodes))[1],
            "n2 4c 4000m: slurm:2 4c 2000m, slurm:node-draining all ?m withheld"
        );
    }

    #[test]
    fn what_version_26_05_answers() {
        assert_eq!(
            seen(farm(JOBS_26, NODES_26)),
            [
                "n1 4c 4000m: slurm:1 2c 1000m, slurm:2 2c 1000m",
                "n2 4c 4000m: slurm:2 4c 2000m",
                "n3 4c 4000m: slurm:2 1c 500m, slurm:3 1c 700m",
            ],
            "one was put back and began again, one waits, and one's epilog runs"
        );
    }

    #[test]
    fn a_job_has_its_cores_before_its_first_step_too() {
        let jobs = JOBS_22.replace("\"cpus_used\": 4", "\"cpus_used\": 0");
        let jobs = jobs.replace("\"cpus_used\": 2", "\"cpus_used\": 0");
        let lines = seen(farm(&jobs, "n3|0/4/0/4|2000|idle"));
        assert_eq!(lines[1], "n2 ?c ?m: slurm:2 4c ?m");
        assert_eq!(lines[0], "n1 ?c ?m: slurm:1 2c ?m, slurm:2 2c ?m");
    }

    #[test]
    fn cores_in_use_that_no_job_names_are_booked() {
        let nodes = "n1|5/3/0/8|2000|mixed\nn2|4/0/0/4|2000|allocated\nn3|1/3/0/4|2000|mixed\n";
        assert_eq!(
            seen(farm(JOBS_22, nodes))[0],
            "n1 8c 2000m: slurm:1 2c ?m, slurm:2 2c ?m, slurm:unnamed 1c ?m"
        );
    }

    #[test]
    fn partitions_that_are_hidden_from_the_monitors_user_are_asked_for_too() {
        for question in questions() {
            let Question::Program { argv, .. } = &question else { panic!("programs") };
            assert!(argv.contains(&"--all"), "{argv:?}");
        }
    }

    #[test]
    fn a_node_that_slurm_would_not_book_is_wholly_booked() {
        for (state, booked) in [
            ("idle", ""),
            ("mixed+", ""),
            ("planned", ""),
            ("drained", " slurm:node-drained all ?m withheld"),
            ("drained*", " slurm:node-drained all ?m withheld"),
            ("idle~", " slurm:node-idle all ?m withheld"),
            ("down*", " slurm:node-down all ?m withheld"),
            ("maint", " slurm:node-maint all ?m withheld"),
            ("of a later version", " slurm:node-of+a+later+version+"),
        ] {
            let line = &seen(farm(r#"{"jobs":[]}"#, &format!("n1|0/4/0/4|9|{state}")))[0];
            let expected = format!("n1 4c 9m:{booked}");
            assert!(line.starts_with(&expected), "{state}: {line}");
            assert_eq!(line.len() > "n1 4c 9m:".len(), !booked.is_empty(), "{line}");
            assert_eq!(line.ends_with(" all ?m withheld"), !booked.is_empty(), "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_a_whole() {
        let no_jobs = r#"{"jobs":[]}"#;
        for (jobs, nodes, expected) in [
            ("", "", "squeue: EOF"),
            ("{}", "", "missing field `jobs`"),
            (no_jobs, "", "sinfo names no node: may the monitor's user see them?"),
            (no_jobs, "\n", "sinfo names no node"),
            (no_jobs, "n1|0/4/0|9|idle", "four numbers"),
            (no_jobs, "n1 0/4/0/4 9 idle", "four columns"),
            (no_jobs, "n1|0/4/0/99999|9|idle", "99999 cores"),
            (
                r#"{"jobs":[{"job_id":3,"job_state":"RUNNING","job_resources":{"nodes":"n[1-2]"}}]}"#,
                "",
                "job 3 does not say what it has of n[1-2]",
            ),
        ] {
            let error = farm(jobs, nodes).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}

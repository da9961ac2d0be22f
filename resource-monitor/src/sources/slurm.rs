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
//! book is its share by cores. A job that is not understood is left out: `sinfo` counts its cores as in use.
//!
//! A node is free as far as `sinfo` counts its cores as idle, in a state that is known to take jobs. In any
//! other state, or with a mark behind its state that is not known to leave it free (no answer, power,
//! maintenance, reboot), it is wholly booked. One that no `RealMemory` is configured for has the memory
//! that its agent says.

use gleaner_protocol::booking_of;
use serde::Deserialize;
use serde_json::Value;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use super::sieve::{Fields, read};
use crate::FarmAnswer;

pub(super) const NAME: &str = "slurm";
/// What is read of the jobs.
const FIELDS: Fields = &[&["jobs"], &["job_id", "job_state", "job_resources"]];
/// States of jobs that may hold nodes. Slurm knows all of these names since 17.11, and a version that goes by
/// them with `--json` leaves out those that wait and those that have ended.
const STATES: &str = "--states=running,suspended,completing,configuring,stopped,signaling,\
                      stage_out,resizing";
/// Memory of a node for which none is configured, in MB.
const MEMORY_UNSET: u64 = 1;
/// States of nodes that run jobs or may, without the marks behind them.
const IN_USE: [&str; 6] = ["idle", "mixed", "allocated", "completing", "planned", "reserved"];
/// Marks behind a state that leave a node free: a job is planned for it, or one of its jobs completes.
const MARKS_OF_USE: [char; 2] = ['-', '+'];
/// What other marks mean, as sinfo(1) has them.
const MARKS: [(char, &str); 8] = [
    ('*', "no-answer"),
    ('~', "powered-off"),
    ('#', "powering-up"),
    ('!', "power-off-pending"),
    ('%', "powering-off"),
    ('$', "maintenance"),
    ('@', "reboot-pending"),
    ('^', "rebooting"),
];
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
        Question::program(["squeue", "--all", "--json", STATES]).keeping(FIELDS),
        Question::program(["sinfo", "--all", "--noheader", "--Node", "--format=%N|%C|%m|%T"]),
    ]
}

#[derive(Deserialize)]
struct Answer {
    jobs: Vec<Value>,
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
    sockets: Option<Value>,
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
        let allocated = |socket: &Value| {
            let cores = elements(socket.get("cores")?)?;
            Some(cores.into_iter().filter(|core| is_allocated(core)).count())
        };
        let sockets = elements(self.sockets.as_ref()?)?;
        sockets.into_iter().map(allocated).sum::<Option<usize>>().map(|cores| cores as u64)
    }
}

/// What an array or an object has.
fn elements(value: &Value) -> Option<Vec<&Value>> {
    match value {
        Value::Array(all) => Some(all.iter().collect()),
        Value::Object(all) => Some(all.values().collect()),
        _ => None,
    }
}

/// Whether a core is the job's: each core of a socket is listed, `"unassigned"` or `["UNALLOCATED"]` where it
/// is not.
fn is_allocated(core: &Value) -> bool {
    let status = core.get("status").unwrap_or(core);
    let is_free = |word: &Value| {
        word.as_str().is_some_and(|word| word.to_ascii_lowercase().starts_with("un"))
    };
    match status {
        Value::Array(words) => !words.iter().any(is_free),
        word => !is_free(word),
    }
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<FarmAnswer, String> {
    let [jobs, nodes] = answers else { return Err("two answers are expected".into()) };
    let mut farm = Inventory::of(NAME);
    let answer: Answer = read("squeue", jobs, FIELDS, &mut farm)?;
    for job in &answer.jobs {
        if let Err(why) = add_job(&mut farm, job) {
            farm.skips(&format!("squeue: {job}"), why);
        }
    }
    let nodes = String::from_utf8_lossy(nodes);
    if nodes.trim_ascii().is_empty() {
        return Err("sinfo names no node: may the monitor's user see them?".into());
    }
    for line in nodes.lines().filter(|line| !line.trim().is_empty()) {
        if let Err(why) = node(&mut farm, line) {
            match line.split_once('|') {
                Some((name, _)) => farm.misses(name, format!("sinfo says {line:?}: {why}")),
                None => farm.unclear(line, format!("sinfo: {why}")),
            }
        }
    }
    farm.finish()
}

fn add_job(farm: &mut Inventory, job: &Value) -> Result<(), String> {
    let job = Job::deserialize(job).map_err(|error| error.to_string())?;
    let Some(resources) = job.job_resources.as_ref().filter(|_| job.holds_nodes()) else {
        return Ok(());
    };
    let id = job.job_id.known().ok_or("it has no id")?;
    let shares = match &resources.nodes {
        Some(Nodes::Allocation { allocation }) => allocation,
        Some(Nodes::List(list)) if resources.allocated_nodes.is_empty() && !list.is_empty() => {
            return Err(format!("it does not say what it has of {list:.80}"));
        }
        Some(Nodes::List(_)) | None => &resources.allocated_nodes,
    };
    let all = resources.allocated_cpus.and_then(Number::known).filter(|_| shares.len() == 1);
    for share in shares {
        farm.books(&share.name, booking_of(NAME, &id.to_string()), share.amount(all));
    }
    Ok(())
}

/// `n1|2/2/0/4|2000|mixed`: cores in use, idle, otherwise, and all. A node comes once for each
/// partition that it is in.
fn node(farm: &mut Inventory, line: &str) -> Result<(), String> {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, cores, memory, state] = columns[..] else {
        return Err("it does not have four columns".into());
    };
    let cores: Option<Vec<u64>> = cores.split('/').map(|number| number.parse().ok()).collect();
    let Some(&[used, _, _, all]) = cores.as_deref() else {
        return Err("its cores are not four numbers".into());
    };
    let memory: u64 = memory.parse().map_err(|_| "its memory is no number")?;
    let memory = Some(memory).filter(|mib| *mib > MEMORY_UNSET);
    farm.host(name, Amount::cores(all).with_memory(memory));
    farm.books_rest(name, booking_of(NAME, "unnamed"), used);
    if let Some(why) = why_out(state) {
        farm.withholds(name, booking_of(NAME, &format!("node-{why}")), Amount::default());
    }
    Ok(())
}

/// Why a node in this state is not free, whatever its cores; none where it is.
fn why_out(state: &str) -> Option<String> {
    let state = state.to_ascii_lowercase();
    let end = state.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(state.len());
    let (word, marks) = state.split_at(end);
    let mut out = marks.chars().filter(|mark| !MARKS_OF_USE.contains(mark)).peekable();
    let is_known = IN_USE.contains(&word) && marks.chars().all(|mark| !mark.is_alphanumeric());
    if is_known && out.peek().is_none() {
        return None;
    }
    if marks.chars().any(char::is_alphanumeric) {
        return Some(state);
    }
    let name = |mark| MARKS.iter().find(|(known, _)| *known == mark).map(|(_, name)| *name);
    let words = out.map(|mark| name(mark).map_or_else(|| mark.to_string(), str::to_owned));
    Some([word.to_owned()].into_iter().chain(words).collect::<Vec<_>>().join("-"))
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

    fn farm(jobs: &str, nodes: &str) -> Result<FarmAnswer, String> {
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
            ("mixed-", ""),
            ("idle-", ""),
            ("planned", ""),
            ("IDLE", ""),
            ("drained", " slurm:node-drained"),
            ("drained*", " slurm:node-drained-no-answer"),
            ("idle*", " slurm:node-idle-no-answer"),
            ("idle~", " slurm:node-idle-powered-off"),
            ("idle#", " slurm:node-idle-powering-up"),
            ("mixed!", " slurm:node-mixed-power-off-pending"),
            ("mixed%", " slurm:node-mixed-powering-off"),
            ("mixed$", " slurm:node-mixed-maintenance"),
            ("allocated$", " slurm:node-allocated-maintenance"),
            ("mixed@", " slurm:node-mixed-reboot-pending"),
            ("mixed^", " slurm:node-mixed-rebooting"),
            ("completing^", " slurm:node-completing-rebooting"),
            ("mixed-$", " slurm:node-mixed-maintenance"),
            ("mixed+^*", " slurm:node-mixed-rebooting-no-answer"),
            ("mixed&", " slurm:node-mixed-"),
            ("down*", " slurm:node-down-no-answer"),
            ("maint", " slurm:node-maint"),
            ("mixed+maintenance", " slurm:node-mixed+maintenance"),
            ("", " slurm:node-"),
            ("of a later version", " slurm:node-of+a+later+version"),
        ] {
            let line = &seen(farm(r#"{"jobs":[]}"#, &format!("n1|0/4/0/4|9|{state}")))[0];
            let expected = format!("n1 4c 9m:{booked}");
            assert!(line.starts_with(&expected), "{state}: {line}");
            assert_eq!(line.ends_with(" all ?m withheld"), !booked.is_empty(), "{line}");
        }
    }

    #[test]
    fn cores_that_are_listed_and_not_the_jobs_are_not_counted() {
        let job = |sockets: &str| {
            format!(
                r#"{{"jobs":[{{"job_id":1,"job_state":"RUNNING","job_resources":{{"nodes":"n1",
                "allocated_nodes":[{{"sockets":{sockets},"nodename":"n1","cpus_used":0}}]}}}}]}}"#
            )
        };
        for sockets in [
            r#"{"0":{"cores":{"0":"allocated","1":"allocated","2":"unassigned","3":"unassigned"}}}"#,
            r#"{"0":{"cores":{"0":"allocated_and_in_use","1":"unassigned"}},"1":{"cores":{"0":"allocated"}}}"#,
            r#"[{"index":0,"cores":[{"index":0,"status":["ALLOCATED"]},{"index":1,"status":["UNALLOCATED"]},
                {"index":2,"status":["ALLOCATED","IN_USE"]}]}]"#,
        ] {
            let line = &seen(farm(&job(sockets), "n1|2/6/0/8|16000|mixed"))[0];
            assert_eq!(line, "n1 8c 16000m: slurm:1 2c ?m", "{sockets}");
        }
    }

    #[test]
    fn a_line_before_the_json_is_said_and_costs_nothing() {
        let banner = format!("slurm_load_jobs: warning\n{JOBS_24}");
        let answer = farm(&banner, NODES_24).expect("it is understood");
        let note = r#"squeue says beside its answer: "slurm_load_jobs: warning""#;
        assert_eq!((answer.notes.clone(), answer.not_understood), (vec![note.to_owned()], 0));
        assert_eq!(seen(Ok(answer)), seen(farm(JOBS_24, NODES_24)));
    }

    #[test]
    fn what_is_not_understood_costs_its_own_host_alone() {
        let odd = r#"{"jobs":[{"job_id":"x","job_state":7},{"job_id":2,"job_state":["RUNNING"],
            "job_resources":{"nodes":{"allocation":[{"name":"n1","cpus":{"count":1}}]}}},
            {"job_id":3,"job_state":"RUNNING","job_resources":{"nodes":"n[1-2]"}}]}"#;
        let nodes = "n1|3/1/0/4|9|mixed\nn2|0/4/0|9|idle\nsinfo: a warning\nn3|0/4/0/99999|9|idle\n\
                     n 4|0/4/0/4|9|idle\n";
        let answer = farm(odd, nodes).expect("most of it");
        assert_eq!(answer.unclear, ["sinfo: a warning", "n 4"]);
        assert_eq!(answer.not_understood, 6, "{:?}", answer.notes);
        assert!(answer.notes.iter().any(|note| note.contains("what it has of n[1-2]")));
        assert_eq!(
            seen(Ok(answer)),
            [
                "n1 4c 9m: slurm:2 1c ?m, slurm:unnamed 2c ?m",
                "n2 ?c ?m: slurm:not-understood all ?m withheld",
                "n3 ?c 9m: slurm:not-understood all ?m withheld",
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_a_whole() {
        let no_jobs = r#"{"jobs":[]}"#;
        for (jobs, nodes, expected) in [
            ("", "", "squeue: it is empty"),
            (
                "slurm_load_jobs error",
                "",
                r#"squeue: it has no JSON: it says "slurm_load_jobs error""#,
            ),
            ("{}", "", "missing field `jobs`"),
            (r#"{"jobs":[{"#, "", "squeue: it ends before it is complete"),
            (no_jobs, "", "sinfo names no node: may the monitor's user see them?"),
            (no_jobs, "\n", "sinfo names no node"),
            (no_jobs, "n1 0/4/0/4 9 idle", "four columns"),
        ] {
            let error = farm(jobs, nodes).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}

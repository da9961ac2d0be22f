//! OpenPBS: jobs by `qstat`, virtual nodes by `pbsnodes`; those of one machine are taken together.
//!
//! A job's `exec_vnode` says what it has of each node, a sub-job of an array as a job of its own. Jobs
//! are asked for first: one that starts in between is then seen as cores in use that nobody names, and
//! not as idle ones. Of a node that a job has for itself (`place=excl`) all is booked, whatever the job
//! asked for; where one is offline, down, in maintenance or reserved, its machine is.
//!
//! `pbsnodes` names a node's jobs too, but neither how much each has nor, in JSON, how often it is there.
//! Both programs write what looks like a number as one: a host's name, say.

use std::collections::BTreeMap;

use gleaner_protocol::{booking_of, mib_of};
use serde::Deserialize;
use serde_json::Value;

use super::inventory::{Amount, Inventory, both};
use super::question::Question;
use crate::HostAllocation;

pub(super) const NAME: &str = "pbs";
/// States of a node that runs jobs or may.
const IN_USE: [&str; 4] = ["free", "job-busy", EXCLUSIVE, "busy"];
/// State of a node that a job has for itself.
const EXCLUSIVE: &str = "job-exclusive";
/// States of jobs that hold their nodes: running, suspended by the manager or as somebody is at work
/// there, ending. Others have none, or are whole arrays, whose sub-jobs are listed by themselves.
const HOLDS_NODES: [&str; 4] = ["R", "S", "U", "E"];

pub(super) fn questions() -> Vec<Question> {
    vec![
        Question::program(["qstat", "-f", "-t", "-F", "json"]),
        Question::program(["pbsnodes", "-a", "-v", "-F", "json"]),
    ]
}

#[derive(Deserialize)]
struct Jobs {
    /// Absent where there are none.
    #[serde(default, rename = "Jobs")]
    jobs: BTreeMap<String, Job>,
}

#[derive(Deserialize)]
struct Job {
    job_state: String,
    /// `(n1:ncpus=4:mem=1048576kb)+(n2[0]:ncpus=2+n2[1]:ncpus=1)`.
    #[serde(default)]
    exec_vnode: Option<String>,
}

#[derive(Deserialize)]
struct Nodes {
    /// Absent where there are none.
    #[serde(default)]
    nodes: BTreeMap<String, Node>,
}

#[derive(Deserialize)]
struct Node {
    state: String,
    #[serde(default)]
    resources_available: Resources,
    #[serde(default)]
    resources_assigned: Resources,
}

#[derive(Default, Deserialize)]
struct Resources {
    #[serde(default)]
    host: Option<Value>,
    #[serde(default)]
    ncpus: Option<u64>,
    #[serde(default)]
    mem: Option<Value>,
}

impl Resources {
    fn memory_mib(&self) -> Option<u64> {
        mib_of(&text(self.mem.as_ref()?))
    }
}

/// A machine, of one virtual node or several.
#[derive(Default)]
struct Machine {
    cores: u64,
    memory_mib: u64,
    used_cores: u64,
}

impl Node {
    fn is(&self, state: &str) -> bool {
        self.states().any(|one| one == state)
    }

    fn states(&self) -> impl Iterator<Item = &str> {
        self.state.split(',').map(str::trim)
    }

    /// Cores of it that nobody else may have.
    fn used_cores(&self) -> u64 {
        let of =
            if self.is(EXCLUSIVE) { &self.resources_available } else { &self.resources_assigned };
        of.ncpus.unwrap_or(0)
    }

    /// The machine that it is of.
    fn host(&self, name: &str) -> String {
        self.resources_available.host.as_ref().map_or_else(|| name.to_owned(), text)
    }
}

/// As it was before it was taken for a number.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn read<'a, A: Deserialize<'a>>(program: &str, answer: &'a [u8]) -> Result<A, String> {
    serde_json::from_slice(answer).map_err(|error| format!("{program}: {error}"))
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<Vec<HostAllocation>, String> {
    let [jobs, nodes] = answers else { return Err("two answers are expected".into()) };
    let jobs: Jobs = read("qstat", jobs)?;
    let nodes: Nodes = read("pbsnodes", nodes)?;
    let mut farm = Inventory::default();
    let mut machines: BTreeMap<String, Machine> = BTreeMap::new();
    for (name, node) in &nodes.nodes {
        let host = node.host(name);
        farm.host(&host, Amount::default())?;
        if let Some(state) = node.states().find(|state| !IN_USE.contains(state)) {
            farm.withholds(&host, booking_of(NAME, &format!("node-{state}")), Amount::default())?;
        }
        let available = &node.resources_available;
        let machine = machines.entry(host).or_default();
        let memory = available.memory_mib().unwrap_or(0);
        machine.cores = machine.cores.saturating_add(available.ncpus.unwrap_or(0));
        machine.memory_mib = machine.memory_mib.saturating_add(memory);
        machine.used_cores = machine.used_cores.saturating_add(node.used_cores());
    }
    for (id, job) in &jobs.jobs {
        if HOLDS_NODES.contains(&job.job_state.as_str()) {
            add_job(&mut farm, &nodes, id, job)?;
        }
    }
    for (host, machine) in &machines {
        farm.books_rest(host, booking_of(NAME, "unnamed"), machine.used_cores)?;
        let memory = Some(machine.memory_mib).filter(|mib| *mib > 0);
        farm.host(host, Amount::cores(machine.cores).with_memory(memory))?;
    }
    Ok(farm.finish())
}

/// Enters what a job has of each machine; nodes that are gone meanwhile are nobody's.
fn add_job(farm: &mut Inventory, nodes: &Nodes, id: &str, job: &Job) -> Result<(), String> {
    let mut amounts: BTreeMap<String, Amount> = BTreeMap::new();
    let all = job.exec_vnode.as_deref().unwrap_or_default();
    for part in all.split(['(', ')', '+']).filter(|part| !part.is_empty()) {
        let (name, has) = part.split_once(':').unwrap_or((part, ""));
        let Some(node) = nodes.nodes.get(name) else { continue };
        let has = has_of(has);
        let own = &node.resources_available;
        let has = match node.is(EXCLUSIVE) {
            true => Amount { cores: own.ncpus, memory_mib: own.memory_mib(), ..has },
            false => has,
        };
        let amount = amounts.entry(node.host(name)).or_default();
        amount.cores = both(amount.cores, has.cores, u64::saturating_add);
        amount.memory_mib = both(amount.memory_mib, has.memory_mib, u64::saturating_add);
        amount.gpus = both(amount.gpus, has.gpus, u32::saturating_add);
    }
    for (host, amount) in amounts {
        // A job without a core is not believed.
        let amount = Amount { cores: amount.cores.filter(|cores| *cores > 0), ..amount };
        farm.books(&host, booking_of(NAME, id), amount)?;
    }
    Ok(())
}

/// Of `ncpus=4:mem=1048576kb:ngpus=1`.
fn has_of(has: &str) -> Amount {
    let of = |resource: &str| {
        has.split(':').filter_map(|word| word.split_once('=')).find(|(name, _)| *name == resource)
    };
    let number = |resource: &str| of(resource).and_then(|(_, value)| value.parse().ok());
    Amount {
        cores: number("ncpus"),
        memory_mib: of("mem").and_then(|(_, value)| mib_of(value)).filter(|mib| *mib > 0),
        gpus: number("ngpus").and_then(|gpus| u32::try_from(gpus).ok()).filter(|gpus| *gpus > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::inventory::seen;

    const NOBODY: &str = r#"{"timestamp":1795488110,"pbs_version":"23.06.06","pbs_server":"vm"}"#;

    fn read(jobs: &str, nodes: &str) -> Result<Vec<HostAllocation>, String> {
        parse(&[jobs.into(), nodes.into()])
    }

    /// A machine of three virtual nodes: two sub-jobs on the first, a job of two cores on the second, one
    /// that has the third for itself; and two machines that are not there, one of them called by a number.
    #[test]
    fn what_a_server_of_version_23_06_answers_is_understood() {
        let answers = [
            &include_bytes!("../../tests/answers/openpbs-23.06-qstat.json")[..],
            include_bytes!("../../tests/answers/openpbs-23.06-pbsnodes.json"),
        ];
        let [first, second] = ["4[0].vm", "4[1].vm"].map(|id| booking_of(NAME, id));
        assert_eq!(
            seen(parse(&answers.map(<[u8]>::to_vec))),
            [
                "0.0.4.18 0c ?m: pbs:node-state-unknown all ?m withheld",
                "r9 4c ?m: pbs:node-state-unknown all ?m withheld",
                &format!(
                    "vm 10c 16384m: pbs:3.vm 2c 512m, {first} 1c ?m, {second} 1c ?m, pbs:5.vm 4c 8192m"
                ),
            ]
        );
    }

    #[test]
    fn what_changes_between_the_two_answers_is_booked_without_a_name() {
        let nodes = r#"{"nodes":{
            "r1":{"state":"free","resources_available":{"host":"r1","mem":"16gb","ncpus":8},
                "resources_assigned":{"ncpus":5}},
            "r2":{"state":"job-exclusive","resources_available":{"host":1042,"mem":1073741824,"ncpus":4},
                "resources_assigned":{"ncpus":1}},
            "r3":{"state":"free,resv-exclusive","resources_available":{"ncpus":2,"mem":"1gb"}}}}"#;
        let jobs = r#"{"Jobs":{
            "1.vm":{"Job_Name":12e4,"job_state":"R","exec_vnode":"(r1:ncpus=2:ngpus=1)+(gone:ncpus=4)"},
            "2.vm":{"job_state":"S","exec_vnode":"(r1:mem=1gb+r1:ncpus=1)"},
            "3.vm":{"job_state":"F","exec_vnode":"(r1:ncpus=8)"}}}"#;
        assert_eq!(
            seen(read(jobs, nodes)),
            [
                "1042 4c 1024m: pbs:unnamed 4c ?m",
                "r1 8c 16384m: pbs:1.vm 2c ?m 1g, pbs:2.vm 1c 1024m, pbs:unnamed 2c ?m",
                "r3 2c 1024m: pbs:node-resv-exclusive all ?m withheld",
            ]
        );
        let alone = r#"{"Jobs":{"1.vm":{"job_state":"R","exec_vnode":"(r1:ncpus=0)"}}}"#;
        assert_eq!(seen(read(alone, nodes))[1], "r1 8c 16384m: pbs:1.vm all ?m");
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_a_whole() {
        assert_eq!(seen(read(NOBODY, NOBODY)), [""; 0]);
        for (jobs, nodes, expected) in [
            ("qstat: cannot connect", NOBODY, "qstat: expected value"),
            (NOBODY, "pbsnodes: cannot connect", "pbsnodes: expected value"),
            (NOBODY, r#"{"nodes":{"a b":{"state":"free"}}}"#, "a b"),
            (NOBODY, r#"{"nodes":{"a":{}}}"#, "missing field `state`"),
            (r#"{"Jobs":{"1.vm":{}}}"#, NOBODY, "missing field `job_state`"),
        ] {
            let error = read(jobs, nodes).expect_err("no answers");
            assert!(error.contains(expected), "{error}");
        }
    }
}

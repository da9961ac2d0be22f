//! OpenPBS: jobs by `qstat`, virtual nodes by `pbsnodes`; those of one machine are taken together.
//!
//! A job's `exec_vnode` says what it has of each node, a sub-job of an array as a job of its own. Jobs
//! are asked for first: one that starts in between is then seen as cores in use that nobody names, and
//! not as idle ones. Of a node that a job has for itself (`place=excl`) all is booked, whatever the job
//! asked for; where one is offline, down, in maintenance or reserved, its machine is.
//!
//! `pbsnodes` names a node's jobs too, but neither how much each has nor, in JSON, how often it is there.
//! Both programs write what looks like a number as one: a host's name, say. `qstat` prints each job's
//! environment too, in a JSON that is often none; nobody reads it here, and what is read is read
//! tolerantly.
//!
//! A job that is not understood is left out, and counts as cores in use that nobody names. As it may have
//! asked for none, all of each node that names a job that is not known is booked then.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::{booking_of, mib_of};
use serde::Deserialize;
use serde_json::Value;

use super::inventory::{Amount, Inventory, both};
use super::question::Question;
use super::sieve::{Fields, read};
use crate::FarmAnswer;

pub(super) const NAME: &str = "pbs";
/// States of a node that runs jobs or may.
const IN_USE: [&str; 4] = ["free", "job-busy", EXCLUSIVE, "busy"];
/// State of a node that a job has for itself.
const EXCLUSIVE: &str = "job-exclusive";
/// States of jobs that hold their nodes: running, suspended by the manager or as somebody is at work
/// there, ending. Others have none, or are whole arrays, whose sub-jobs are listed by themselves.
const HOLDS_NODES: [&str; 4] = ["R", "S", "U", "E"];

/// What is read of jobs, and of nodes.
const OF_JOBS: Fields = &[&["Jobs"], &[], &["job_state", "exec_vnode"]];
const OF_NODES: Fields =
    &[&["nodes"], &[], &["state", "resources_available", "resources_assigned", "jobs"]];

pub(super) fn questions() -> Vec<Question> {
    vec![
        Question::program(["qstat", "-f", "-t", "-F", "json"]).keeping(OF_JOBS),
        Question::program(["pbsnodes", "-a", "-v", "-F", "json"]).keeping(OF_NODES),
    ]
}

#[derive(Deserialize)]
struct Jobs {
    /// Absent where there are none.
    #[serde(default, rename = "Jobs")]
    jobs: BTreeMap<String, Value>,
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
    nodes: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Node {
    state: String,
    #[serde(default)]
    resources_available: Resources,
    #[serde(default)]
    resources_assigned: Resources,
    /// `1.vm/0`, of each job that runs there.
    #[serde(default)]
    jobs: Vec<Value>,
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

    /// Whether a job runs there that is none of these.
    fn has_job_beside(&self, known: &BTreeSet<&str>) -> bool {
        let is_other = |job: &Value| {
            let job = text(job);
            !known.contains(job.split('/').next().unwrap_or_default())
        };
        self.jobs.iter().any(is_other)
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

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<FarmAnswer, String> {
    let [jobs, nodes] = answers else { return Err("two answers are expected".into()) };
    let mut farm = Inventory::of(NAME);
    let jobs: Jobs = read("qstat", jobs, OF_JOBS, &mut farm)?;
    let listed: Nodes = read("pbsnodes", nodes, OF_NODES, &mut farm)?;
    let mut nodes: BTreeMap<&str, Node> = BTreeMap::new();
    for (name, node) in &listed.nodes {
        match Node::deserialize(node) {
            Ok(node) => {
                nodes.insert(name, node);
            }
            Err(error) => {
                let host = node.pointer("/resources_available/host").map(text);
                farm.misses(host.as_deref().unwrap_or(name), format!("pbsnodes: {error}"));
            }
        }
    }
    let mut machines: BTreeMap<String, Machine> = BTreeMap::new();
    for (name, node) in &nodes {
        let host = node.host(name);
        farm.host(&host, Amount::default());
        if let Some(state) = node.states().find(|state| !IN_USE.contains(state)) {
            farm.withholds(&host, booking_of(NAME, &format!("node-{state}")), Amount::default());
        }
        let available = &node.resources_available;
        let machine = machines.entry(host).or_default();
        let memory = available.memory_mib().unwrap_or(0);
        machine.cores = machine.cores.saturating_add(available.ncpus.unwrap_or(0));
        machine.memory_mib = machine.memory_mib.saturating_add(memory);
        machine.used_cores = machine.used_cores.saturating_add(node.used_cores());
    }
    let mut known = BTreeSet::new();
    for (id, job) in &jobs.jobs {
        match Job::deserialize(job) {
            Ok(job) => {
                known.insert(id.as_str());
                if HOLDS_NODES.contains(&job.job_state.as_str()) {
                    add_job(&mut farm, &nodes, id, &job);
                }
            }
            Err(error) => farm.skips(&format!("job {id}"), format!("qstat: {error}")),
        }
    }
    if known.len() < jobs.jobs.len() {
        let unknown = nodes.iter().filter(|(_, node)| node.has_job_beside(&known));
        for (name, node) in unknown {
            farm.misses(&node.host(name), "a job there is not understood");
        }
    }
    for (host, machine) in &machines {
        farm.books_rest(host, booking_of(NAME, "unnamed"), machine.used_cores);
        let memory = Some(machine.memory_mib).filter(|mib| *mib > 0);
        farm.host(host, Amount::cores(machine.cores).with_memory(memory));
    }
    farm.finish()
}

/// Enters what a job has of each machine; nodes that are gone meanwhile are nobody's.
fn add_job(farm: &mut Inventory, nodes: &BTreeMap<&str, Node>, id: &str, job: &Job) {
    let mut amounts: BTreeMap<String, Amount> = BTreeMap::new();
    let all = job.exec_vnode.as_deref().unwrap_or_default();
    for part in all.split(['(', ')', '+']).filter(|part| !part.is_empty()) {
        let (name, has) = part.split_once(':').unwrap_or((part, ""));
        let Some(node) = nodes.get(name) else { continue };
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
        farm.books(&host, booking_of(NAME, id), amount);
    }
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

    fn read(jobs: &str, nodes: &str) -> Result<FarmAnswer, String> {
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

    /// A user's environment, as `qstat` prints it: each makes the whole answer invalid.
    #[test]
    fn an_environment_that_is_no_json_costs_nobody_anything() {
        let nodes = r#"{"nodes":{
            "n1":{"state":"free","resources_available":{"host":"n1","mem":"16gb","ncpus":8},
                "resources_assigned":{"ncpus":2}},
            "n2":{"state":"free","resources_available":{"host":"n2","mem":"16gb","ncpus":8}}}}"#;
        for variables in [
            r#""foo":005"#,
            r#""foo":0x1F,"bar":1e9999,"baz":-,"none":"#,
            "\"LESS_TERMCAP_mb\":\"\u{1b}[01;31m\",\"TAB\":\"a\tb\nc\"",
            r#""QUOTE":"\'\"a b\"\'""#,
            r#""SHELL":"say "b" to c","WIN":"C:\Users\x""#,
            r#""BASH_FUNC_which%%":"() {  alias | /usr/bin/which -a \$@ }""#,
            r#""foo":{"a":[{"job_state":"F"}]},"exec_vnode":"(n2:ncpus=8)""#,
        ] {
            let jobs = format!(
                r#"{{"pbs_version":"23.06.06","Jobs":{{
                "3.vm":{{"Job_Name":"STDIN","job_state":"R","exec_vnode":"(n1:ncpus=2:mem=524288kb)",
                "Variable_List":{{"PBS_O_HOME":"/home/u",
                {variables},
                "PBS_O_QUEUE":"workq"}}}}}}}}"#
            );
            let answer = read(&jobs, nodes).expect(&jobs);
            assert_eq!(answer.not_understood, 0, "{:?}", answer.notes);
            assert_eq!(seen(Ok(answer)), ["n1 8c 16384m: pbs:3.vm 2c 512m", "n2 8c 16384m:"]);
        }
    }

    #[test]
    fn what_is_not_understood_costs_its_own_host_alone() {
        let nodes = r#"{"nodes":{
            "a b":{"state":"free","resources_available":{"ncpus":8}},
            "r1":{"state":"free","resources_available":{"ncpus":8},"resources_assigned":{"ncpus":3},
                "jobs":["1.vm/0","2.vm/1"]},
            "r2":{"state":"free","resources_available":{"ncpus":8},"resources_assigned":{"ncpus":0},
                "jobs":["3.vm/0"]},
            "r3":{"resources_available":{"ncpus":8,"host":"r4"}},
            "r5":{"state":"free","resources_available":{"ncpus":"many"}}}}"#;
        let jobs = r#"{"Jobs":{"1.vm":{"job_state":"R","exec_vnode":"(r1:ncpus=2)"},
            "2.vm":{"job_state":"R","exec_vnode":"(r1:ncpus=1)"},"3.vm":{"exec_vnode":5}}}"#;
        let answer = read(jobs, nodes).expect("most of it");
        assert_eq!((&answer.unclear[..], answer.not_understood), (&["a b".to_owned()][..], 5));
        assert_eq!(
            seen(Ok(answer)),
            [
                "r1 8c ?m: pbs:1.vm 2c ?m, pbs:2.vm 1c ?m",
                "r2 8c ?m: pbs:not-understood all ?m withheld",
                "r4 ?c ?m: pbs:not-understood all ?m withheld",
                "r5 ?c ?m: pbs:not-understood all ?m withheld",
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_a_whole() {
        assert_eq!(seen(read(NOBODY, NOBODY)), [""; 0]);
        for (jobs, nodes, expected) in [
            (
                "qstat: cannot connect",
                NOBODY,
                r#"qstat: it has no JSON: it says "qstat: cannot connect""#,
            ),
            (NOBODY, "pbsnodes: cannot connect", "pbsnodes: it has no JSON"),
            (r#"{"Jobs":{"1.vm":{"#, NOBODY, "qstat: it ends before it is complete"),
            (NOBODY, r#"{"nodes":{"a b":{"state":"free"}}}"#, "a b"),
        ] {
            let error = read(jobs, nodes).expect_err("no answers");
            assert!(error.contains(expected), "{error}");
        }
    }
}

//! OpenPBS: virtual nodes by `pbsnodes`, those of one machine taken together.
//!
//! `jobs` has an entry `JOB/SLOT` for each chunk of a job there, not for each core, so a job that
//! has a node for itself books the cores that are assigned there; where several share it, each
//! books one core for every entry, and what is assigned beyond that is booked without a name.
//! Memory likewise. A node that is offline, down, in maintenance or reserved is wholly booked.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::{booking_of, mib_of};
use serde::Deserialize;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use crate::HostAllocation;

const NAME: &str = "pbs";
/// States of a node that runs jobs or may.
const IN_USE: [&str; 4] = ["free", "job-busy", "job-exclusive", "busy"];

pub(super) fn questions() -> Vec<Question> {
    vec![Question::program(["pbsnodes", "-a", "-v", "-F", "json"])]
}

#[derive(Deserialize)]
struct Answer {
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
    #[serde(default)]
    jobs: Vec<String>,
}

#[derive(Default, Deserialize)]
struct Resources {
    #[serde(default)]
    host: Option<String>,
    #[serde(default)]
    ncpus: Option<u64>,
    #[serde(default)]
    mem: Option<String>,
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<Vec<HostAllocation>, String> {
    let [answer] = answers else { return Err("one answer is expected".into()) };
    let answer: Answer = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
    let mut farm = Inventory::default();
    let mut sizes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (name, node) in &answer.nodes {
        let available = &node.resources_available;
        let host = available.host.as_deref().unwrap_or(name);
        let size = sizes.entry(host).or_default();
        let memory = available.mem.as_deref().and_then(mib_of).unwrap_or(0);
        *size =
            (size.0.saturating_add(available.ncpus.unwrap_or(0)), size.1.saturating_add(memory));
        add_bookings(&mut farm, host, node)?;
        let mut states = node.state.split(',').map(str::trim);
        if let Some(state) = states.find(|state| !IN_USE.contains(state)) {
            farm.books(host, booking_of(NAME, &format!("node-{state}")), Amount::default())?;
        }
    }
    for (host, (cores, memory)) in sizes {
        let memory = Some(memory).filter(|mib| *mib > 0);
        farm.host(host, Amount::cores(cores).with_memory(memory))?;
    }
    Ok(farm.finish())
}

fn add_bookings(farm: &mut Inventory, host: &str, node: &Node) -> Result<(), String> {
    farm.host(host, Amount::default())?;
    let assigned = &node.resources_assigned;
    let job_of = |entry: &'_ String| entry.split('/').next().unwrap_or_default().to_owned();
    let jobs: BTreeSet<String> = node.jobs.iter().map(job_of).collect();
    if let [job] = &jobs.iter().collect::<Vec<_>>()[..] {
        let memory = assigned.mem.as_deref().and_then(mib_of).filter(|mib| *mib > 0);
        let cores = assigned.ncpus.filter(|cores| *cores > 0);
        let amount = Amount { cores, memory_mib: memory, gpus: None };
        return farm.books(host, booking_of(NAME, job), amount);
    }
    for entry in &node.jobs {
        farm.books(host, booking_of(NAME, &job_of(entry)), Amount::cores(1))?;
    }
    let named = node.jobs.len() as u64;
    match assigned.ncpus.unwrap_or(0).saturating_sub(named) {
        0 => Ok(()),
        rest => farm.books(host, booking_of(NAME, "unnamed"), Amount::cores(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::inventory::seen;

    /// As the reference guide of version 22 describes it.
    const ANSWER: &str = r#"{"timestamp":1700000000,"pbs_version":"22.05.11","pbs_server":"head",
        "nodes":{
          "r1":{"Mom":"r1.farm","Port":15002,"state":"free","pcpus":8,
            "resources_available":{"arch":"linux","host":"r1","mem":"16gb","ncpus":8,"vnode":"r1"},
            "resources_assigned":{"mem":"4194304kb","ncpus":3},
            "jobs":["12.head/0"]},
          "r2[0]":{"state":"job-busy","resources_available":{"host":"r2","mem":"8gb","ncpus":4},
            "resources_assigned":{"mem":"0kb","ncpus":4},"jobs":["13.head/0","14[2].head/0"]},
          "r2[1]":{"state":"free","resources_available":{"host":"r2","mem":"8gb","ncpus":4},
            "resources_assigned":{}},
          "r3":{"state":"free,resv-exclusive","resources_available":{"ncpus":2,"mem":"1gb"}},
          "r4":{"state":"down","resources_available":{"ncpus":2,"mem":"1gb"}}}}"#;

    #[test]
    fn nodes_of_one_machine_are_one_host() {
        let of_array = booking_of(NAME, "14[2].head");
        assert_eq!(
            seen(parse(&[ANSWER.into()])),
            [
                "r1 8c 16384m: pbs:12.head 3c 4096m",
                &format!("r2 8c 16384m: pbs:13.head 1c ?m, {of_array} 1c ?m, pbs:unnamed 2c ?m"),
                "r3 2c 1024m: pbs:node-resv-exclusive all ?m",
                "r4 2c 1024m: pbs:node-down all ?m",
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_a_whole() {
        assert_eq!(seen(parse(&[r#"{"pbs_version":"22"}"#.into()])), [""; 0]);
        for (answer, expected) in [
            ("pbsnodes: cannot connect", "expected value"),
            (r#"{"nodes":{"a b":{"state":"free"}}}"#, "a b"),
            (r#"{"nodes":{"a":{}}}"#, "missing field `state`"),
        ] {
            let error = parse(&[answer.into()]).expect_err(answer);
            assert!(error.contains(expected), "{error}");
        }
    }
}

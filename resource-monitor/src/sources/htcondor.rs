//! HTCondor: the slots of all machines by `condor_status`.
//!
//! A slot that is not unclaimed is in use by the job that it names, or withheld by whom its state says: an
//! owner, a claim that waits for its job, a drain, HTCondor's own backfill. What a partitionable
//! slot has left is one more, unclaimed, slot. Nodes of a parallel job have one `GlobalJobId`, so their
//! slots' names follow it, as hooks have it.
//!
//! Attributes are expressions, which may be a fraction, or `undefined`, where a number is usual. A part of a
//! core is a whole one. A slot in use that does not say its cores, or claims none, books its whole machine.

use gleaner_protocol::{BookingId, booking_of, condor_job};
use serde::Deserialize;
use serde_json::Value;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use super::sieve::{Fields, read};
use crate::FarmAnswer;

pub(super) const NAME: &str = "htcondor";
/// `JobUniverse` of jobs that run on several slots at once.
const PARALLEL: u64 = 11;
const FIELDS: Fields = &[&[
    "Machine",
    "Name",
    "State",
    "Cpus",
    "Memory",
    "GPUs",
    "TotalCpus",
    "TotalMemory",
    "GlobalJobId",
    "JobUniverse",
]];

pub(super) fn questions() -> Vec<Question> {
    vec![Question::program([
        "condor_status",
        "-json",
        "-attributes",
        "Machine,Name,State,Cpus,Memory,GPUs,TotalCpus,TotalMemory,GlobalJobId,JobUniverse",
    ])]
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Slot {
    machine: Value,
    name: Value,
    state: Value,
    cpus: Value,
    /// In MiB, like all memory here.
    memory: Value,
    /// Absent where the machine has none and nobody looked for any.
    #[serde(rename = "GPUs")]
    gpus: Value,
    total_cpus: Value,
    total_memory: Value,
    global_job_id: Value,
    job_universe: Value,
}

/// A text that is one, and says something.
fn text(value: &Value) -> Option<&str> {
    let text = value.as_str()?.trim();
    let is_none = ["undefined", "error"].iter().any(|none| text.eq_ignore_ascii_case(none));
    Some(text).filter(|text| !text.is_empty() && !is_none)
}

/// A number, be it a fraction: the next whole one.
fn whole(value: &Value) -> Option<u64> {
    let number = value.as_f64().filter(|number| (0.0..1e15).contains(number))?;
    Some(number.ceil() as u64)
}

impl Slot {
    /// The machine that it is on.
    fn machine(&self) -> Option<&str> {
        let of_name = || text(&self.name).map(|name| name.rsplit('@').next().unwrap_or(name));
        text(&self.machine).or_else(of_name)
    }

    fn is_free(&self) -> bool {
        text(&self.state).is_some_and(|state| state.eq_ignore_ascii_case("unclaimed"))
    }

    fn booking(&self) -> BookingId {
        let name = text(&self.name).unwrap_or("slot");
        match text(&self.global_job_id) {
            Some(job) if whole(&self.job_universe) == Some(PARALLEL) => {
                let slot = name.split('@').next().unwrap_or_default();
                booking_of(NAME, &format!("{}@{slot}", condor_job(job)))
            }
            Some(job) => booking_of(NAME, &condor_job(job)),
            None => {
                let state = text(&self.state).unwrap_or("in-no-state");
                booking_of(NAME, &format!("{state}-{name}"))
            }
        }
    }
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<FarmAnswer, String> {
    let [answer] = answers else { return Err("one answer is expected".into()) };
    let mut farm = Inventory::of(NAME);
    // A pool without machines is answered by nothing at all.
    if answer.trim_ascii().is_empty() {
        return farm.finish();
    }
    let slots: Vec<Value> = read("condor_status", answer, FIELDS, &mut farm)?;
    for said in &slots {
        let slot = Slot::deserialize(said).unwrap_or_default();
        let Some(machine) = slot.machine() else {
            farm.unclear(&said.to_string(), "it names no machine");
            continue;
        };
        // It may be configured as a fraction: what is left of that is no core.
        let cores = slot.total_cpus.as_f64().filter(|cores| (0.0..1e9).contains(cores));
        let size = Amount {
            cores: cores.map(|cores| cores as u64),
            memory_mib: whole(&slot.total_memory),
            gpus: None,
        };
        farm.host(machine, size);
        if slot.is_free() {
            continue;
        }
        let amount = Amount {
            cores: whole(&slot.cpus).filter(|cores| *cores > 0),
            memory_mib: whole(&slot.memory).filter(|mib| *mib > 0),
            gpus: whole(&slot.gpus).and_then(|gpus| u32::try_from(gpus).ok()),
        };
        if amount.cores.is_none() {
            let cores = &slot.cpus;
            farm.note(format!(
                "{} on {machine} has Cpus {cores}: all of it is booked",
                slot.booking()
            ));
        }
        match text(&slot.global_job_id) {
            Some(_) => farm.books(machine, slot.booking(), amount),
            None => farm.withholds(machine, slot.booking(), amount),
        }
    }
    farm.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::inventory::seen;

    const ANSWER: &str = r#"[
        {"Machine":"r1.farm","Name":"slot1@r1.farm","State":"Unclaimed","Cpus":4,"Memory":8000,
         "TotalCpus":12.0,"TotalMemory":48000},
        {"Machine":"r1.farm","Name":"slot1_1@r1.farm","State":"Claimed","Cpus":8,"Memory":40000,"GPUs":1,
         "TotalCpus":12.0,"TotalMemory":48000,"GlobalJobId":"head#12.3#1700000000"},
        {"Machine":"r2.farm","Name":"slot1@r2.farm","State":"Owner","Cpus":2,"Memory":900,
         "TotalCpus":2,"TotalMemory":900}]"#;

    /// A machine of six cores and two GPUs, of which parts are carved: for a job and two claims without
    /// one; for the two nodes of a parallel job; drained, while two jobs are let end. And the same in
    /// three slots of fixed size, of which an owner has one.
    #[test]
    fn what_collectors_of_versions_23_9_and_25_14_answer_is_understood() {
        let job = |name: &str| {
            let (global, slot) = name.split_once('@').unwrap_or((name, ""));
            let at = if slot.is_empty() { "" } else { "@" };
            let global = condor_job(&format!("vm.farm#{global}"));
            booking_of(NAME, &format!("{global}{at}{slot}"))
        };
        for (answer, bookings) in [
            (
                &include_bytes!("../../tests/answers/condor-23.9-partitionable.json")[..],
                format!(
                    "htcondor:Claimed-slot1_1@vm.farm 2c 128m 0g withheld, \
                     htcondor:Claimed-slot1_2@vm.farm 2c 128m 0g withheld, {} 2c 2048m 0g",
                    job("45.0#1795509941")
                ),
            ),
            (
                include_bytes!("../../tests/answers/condor-23.9-parallel.json"),
                format!(
                    "{} 2c 128m 0g, {} 2c 128m 0g",
                    job("43.0#1795509884@slot1_1"),
                    job("43.0#1795509884@slot1_2")
                ),
            ),
            (
                include_bytes!("../../tests/answers/condor-25.14-draining.json"),
                format!(
                    "htcondor:Drained-slot1@vm.farm 1c 8928m 1g withheld, {} 3c 1024m 1g, {} 2c 2048m 0g",
                    job("2.0#1795509229"),
                    job("3.0#1795509229")
                ),
            ),
            (
                include_bytes!("../../tests/answers/condor-23.9-static.json"),
                format!(
                    "{} 3c 3000m 1g, htcondor:Owner-slot2@vm.farm 2c 3000m 1g withheld, {} 1c 3000m 0g",
                    job("41.0#1795509078"),
                    job("41.1#1795509078")
                ),
            ),
        ] {
            let expected = format!("vm.farm 6c 12000m: {bookings}");
            assert_eq!(seen(parse(&[answer.to_vec()])), [expected]);
        }
    }

    #[test]
    fn slots_are_in_use_unless_they_are_unclaimed() {
        let lines = seen(parse(&[ANSWER.into()]));
        assert_eq!(
            lines,
            [
                "r1.farm 12c 48000m: htcondor:12.3@head:1700000000 8c 40000m 1g",
                "r2.farm 2c 900m: htcondor:Owner-slot1@r2.farm 2c 900m withheld",
            ]
        );
        assert_eq!(seen(parse(&[b"\n".to_vec()])), [""; 0]);
    }

    #[test]
    fn a_claim_that_says_no_whole_number_of_cores_never_opens_what_it_has() {
        for (cpus, booked) in [
            ("0.5", "1c"),
            ("1.0", "1c"),
            ("2.5", "3c"),
            ("0", "all"),
            ("0.0", "all"),
            ("-1", "all"),
            ("\"undefined\"", "all"),
            ("null", "all"),
            ("[]", "all"),
            ("undefined", "all"),
            ("nan", "all"),
            ("70000", "all"),
        ] {
            let answer = format!(
                r#"[{{"Machine":"n1","Name":"slot1@n1","State":"Unclaimed","Cpus":7,"TotalCpus":16.0}},
                {{"Machine":"n1","Name":"slot1_1@n1","State":"Claimed","Cpus":{cpus},
                "GlobalJobId":"head#2.0#1"}},
                {{"Machine":"n2","State":"Unclaimed","Cpus":{cpus},"TotalCpus":{cpus}}}]"#
            );
            let lines = seen(parse(&[answer.into_bytes()]));
            assert_eq!(lines[0], format!("n1 16c ?m: htcondor:2.0@head:1 {booked} ?m"), "{cpus}");
        }
    }

    #[test]
    fn what_is_not_understood_costs_its_own_machine_alone() {
        let answer = r#"[{"Name":"slot1@r1"},{"Machine":"undefined","Name":"slot1@r2","State":"Unclaimed"},
            {"State":"Claimed"},{"Machine":"r 3","State":"Unclaimed"},
            {"Machine":"r4","State":"Claimed","Cpus":1,"GPUs":"undefined","Memory":0.5}]"#;
        let answer = parse(&[answer.into()]).expect("most of it");
        assert_eq!(answer.unclear, [r#"{"State":"Claimed"}"#, "r 3"]);
        assert_eq!(answer.not_understood, 2);
        assert_eq!(
            seen(Ok(answer)),
            [
                "r1 ?c ?m: htcondor:in-no-state-slot1@r1 all ?m withheld",
                "r2 ?c ?m:",
                "r4 ?c ?m: htcondor:Claimed-slot 1c 1m withheld",
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_a_whole() {
        for (answer, expected) in [
            (
                "Error: communication error",
                r#"it has no JSON: it says "Error: communication error""#,
            ),
            (r#"[{"Cpus":1}]"#, "it names no machine"),
            (r#"[{"Machine":"r1","#, "it ends before it is complete"),
            ("{}", "invalid type: map"),
        ] {
            let error = parse(&[answer.into()]).expect_err(answer);
            assert!(error.contains(expected), "{error}");
        }
    }
}

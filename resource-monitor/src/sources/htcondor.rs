//! HTCondor: the slots of all machines by `condor_status`.
//!
//! A slot that is not unclaimed is in use by the job that it names, or withheld by whom its state says: an
//! owner, a claim that waits for its job, a drain, HTCondor's own backfill. What a partitionable
//! slot has left is one more, unclaimed, slot. Nodes of a parallel job have one `GlobalJobId`, so their
//! slots' names follow it, as hooks have it.

use gleaner_protocol::{BookingId, booking_of};
use serde::Deserialize;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use crate::HostAllocation;

pub(super) const NAME: &str = "htcondor";
/// `JobUniverse` of jobs that run on several slots at once.
const PARALLEL: u32 = 11;

pub(super) fn questions() -> Vec<Question> {
    vec![Question::program([
        "condor_status",
        "-json",
        "-attributes",
        "Machine,Name,State,Cpus,Memory,GPUs,TotalCpus,TotalMemory,GlobalJobId,JobUniverse",
    ])]
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Slot {
    machine: String,
    name: String,
    state: String,
    #[serde(default)]
    cpus: Option<u64>,
    /// In MiB, like all memory here.
    #[serde(default)]
    memory: Option<u64>,
    /// Absent where the machine has none and nobody looked for any.
    #[serde(default, rename = "GPUs")]
    gpus: Option<u32>,
    #[serde(default)]
    total_cpus: Option<f64>,
    #[serde(default)]
    total_memory: Option<u64>,
    #[serde(default)]
    global_job_id: Option<String>,
    #[serde(default)]
    job_universe: Option<u32>,
}

impl Slot {
    fn booking(&self) -> BookingId {
        match &self.global_job_id {
            Some(job) if self.job_universe == Some(PARALLEL) => {
                let slot = self.name.split('@').next().unwrap_or_default();
                booking_of(NAME, &format!("{job}@{slot}"))
            }
            Some(job) => booking_of(NAME, job),
            None => booking_of(NAME, &format!("{}-{}", self.state, self.name)),
        }
    }
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<Vec<HostAllocation>, String> {
    let [answer] = answers else { return Err("one answer is expected".into()) };
    // A pool without machines is answered by nothing at all.
    if answer.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let slots: Vec<Slot> = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
    let mut farm = Inventory::default();
    for slot in &slots {
        // It may be configured as a fraction.
        let cores = slot.total_cpus.filter(|cores| (0.0..1e9).contains(cores));
        let size = Amount {
            cores: cores.map(|cores| cores as u64),
            memory_mib: slot.total_memory,
            gpus: None,
        };
        farm.host(&slot.machine, size)?;
        if slot.state == "Unclaimed" {
            continue;
        }
        let amount = Amount { cores: slot.cpus, memory_mib: slot.memory, gpus: slot.gpus };
        match slot.global_job_id {
            Some(_) => farm.books(&slot.machine, slot.booking(), amount)?,
            None => farm.withholds(&slot.machine, slot.booking(), amount)?,
        }
    }
    Ok(farm.finish())
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
        let job = |name: &str| booking_of(NAME, &format!("vm.farm#{name}"));
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
        let job = booking_of(NAME, "head#12.3#1700000000");
        assert_eq!(
            lines,
            [
                format!("r1.farm 12c 48000m: {job} 8c 40000m 1g"),
                "r2.farm 2c 900m: htcondor:Owner-slot1@r2.farm 2c 900m withheld".into(),
            ]
        );
        assert_eq!(seen(parse(&[b"\n".to_vec()])), [""; 0]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_a_whole() {
        for (answer, expected) in [
            ("Error: communication error", "expected value"),
            (r#"[{"Machine":"r1"}]"#, "missing field `Name`"),
            (r#"[{"Machine":"r1","Name":"s","State":"Claimed","Cpus":70000}]"#, "70000 cores"),
        ] {
            let error = parse(&[answer.into()]).expect_err(answer);
            assert!(error.contains(expected), "{error}");
        }
    }
}

//! AWS Thinkbox Deadline: its Web Service's list of Workers.
//!
//! `GET /api/slaves?Data=info` gives every Worker's state as an array ("Workers" in the REST
//! reference of its manual); the numbers of the states are those of `Deadline.Slaves.SlaveStatus` in
//! its scripting reference. Deadline knows no cores of a task, so a Worker that has a job books its
//! whole host, by the name that its hook gives it. A stalled Worker has
//! gone silent and may render on, so it books its host too. One that is offline is left out.

use gleaner_protocol::booking_of;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::Value;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use super::sieve::{ALL, read};
use crate::FarmAnswer;

pub(super) const NAME: &str = "deadline";

const IDLE: u64 = 2;
const OFFLINE: u64 = 3;

pub(super) fn questions(address: &Url, client: Client) -> Vec<Question> {
    let mut url = address.clone();
    url.set_path("/api/slaves");
    url.set_query(Some("Data=info"));
    vec![Question::Get { url, client }]
}

#[derive(Deserialize)]
struct Worker {
    #[serde(rename = "Name")]
    name: String,
    /// The machine's name; several Workers may be on one.
    #[serde(rename = "Host", default)]
    host: String,
    #[serde(rename = "Stat")]
    state: u64,
    #[serde(rename = "Procs", default)]
    cores: Value,
    /// In bytes.
    #[serde(rename = "RAM", default)]
    memory: Value,
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<FarmAnswer, String> {
    let [answer] = answers else { return Err("one answer is expected".into()) };
    let mut farm = Inventory::of(NAME);
    let said: Vec<Value> = read("its Web Service", answer, ALL, &mut farm)?;
    let workers: Vec<Worker> = farm.understood(said, "Name");
    for worker in workers.iter().filter(|worker| worker.state != OFFLINE) {
        let host = if worker.host.is_empty() { &worker.name } else { &worker.host };
        // A size that is not known yet is 0.
        let known = |value: &Value| value.as_u64().filter(|size| *size > 0);
        let size = Amount { cores: known(&worker.cores), ..Amount::default() };
        farm.host(host, size.with_memory(known(&worker.memory).map(|bytes| bytes >> 20)));
        // Rendering, starting a job, stalled, or what a later release may add.
        if worker.state != IDLE {
            farm.books(host, booking_of(NAME, &worker.name), Amount::default());
        }
    }
    farm.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::inventory::seen;

    const ANSWER: &str = r#"[
        {"_id":"r1","Name":"r1","Host":"r1","Stat":1,"Procs":32,"RAM":68719476736,
         "RAMFree":1,"CPU":97,"JobName":"shot 7","LastWriteTime":"2024-05-01T12:00:00Z"},
        {"_id":"r2","Name":"r2","Host":"r2","Stat":2,"Procs":32,"RAM":68719476736},
        {"_id":"r2-b","Name":"r2-b","Host":"r2","Stat":8,"Procs":32,"RAM":68719476736},
        {"_id":"r3","Name":"r3","Stat":9,"Procs":0},
        {"_id":"r4","Name":"r4","Host":"r4","Stat":3,"Procs":32,"RAM":1},
        {"_id":"r5","Name":"r5","Host":"r5","Stat":2,"Procs":32,"RAM":68719476736},
        {"_id":"r5-b","Name":"r5-b","Host":"r5","Stat":4,"Procs":32,"RAM":68719476736}]"#;

    #[test]
    fn a_worker_with_a_job_books_its_host() {
        assert_eq!(
            seen(parse(&[ANSWER.into()])),
            [
                "r1 32c 65536m: deadline:r1 all ?m",
                "r2 32c 65536m: deadline:r2-b all ?m",
                "r3 ?c ?m: deadline:r3 all ?m",
                "r5 32c 65536m: deadline:r5-b all ?m",
            ]
        );
    }

    #[test]
    fn what_is_no_list_of_workers_is_refused() {
        for bad in ["", "{}", r#"["r1","r2"]"#, r#"[{"Name":"a b","Stat":2}]"#] {
            assert!(parse(&[bad.into()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_worker_that_is_not_understood_costs_its_own_host_alone() {
        let answer =
            r#"[{"Name":"r1"},{"Name":"a b","Stat":2},{"Name":"r2","Stat":2,"Procs":"many"}]"#;
        let answer = parse(&[answer.into()]).expect("most of it");
        assert_eq!((&answer.unclear[..], answer.not_understood), (&["a b".to_owned()][..], 2));
        assert_eq!(
            seen(Ok(answer)),
            ["r1 ?c ?m: deadline:not-understood all ?m withheld", "r2 ?c ?m:"]
        );
    }
}

//! Flamenco: the Workers that its Manager knows, and what each of them does.
//!
//! `GET /api/v3/worker-mgt/workers` lists them, `…/workers/ID` has a Worker's latest task, which is
//! being worked on as long as it is `active` (`flamenco-openapi.yaml` of Flamenco 3). Flamenco knows
//! no cores, so a task books its Worker's whole host. A Worker that is offline is left out; one
//! that sleeps, fails or is being tested takes no tasks, as somebody or a schedule wants it, so its
//! host is wholly booked. A Worker has its host's name unless it was given another.

use std::collections::BTreeSet;

use gleaner_protocol::booking_of;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::inventory::{Amount, Inventory};
use super::question::{Each, Question};
use super::sieve::{ALL, quote, read};
use crate::FarmAnswer;

pub(super) const NAME: &str = "flamenco";
const WORKERS: &str = "/api/v3/worker-mgt/workers";

pub(super) fn questions(address: &Url, client: Client) -> Vec<Question> {
    let mut url = address.clone();
    url.set_path(WORKERS);
    url.set_query(None);
    vec![Question::GetEach { url, client, each: workers }]
}

/// Where each Worker of a list is.
fn workers(list: &[u8]) -> Result<Vec<Each>, String> {
    #[derive(Deserialize)]
    struct List {
        workers: Vec<Map<String, Value>>,
    }
    let list: List = serde_json::from_slice(list)
        .map_err(|error| format!("{error}: it says {}", quote(&String::from_utf8_lossy(list))))?;
    let each = |listed: Map<String, Value>| {
        let is_id =
            |id: &&str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        let id = listed.get("id").and_then(Value::as_str).filter(is_id);
        let path = id.map(|id| format!("{WORKERS}/{id}"));
        Each { path: path.ok_or_else(|| "it has no worker's id".into()), listed }
    };
    Ok(list.workers.into_iter().map(each).collect())
}

#[derive(Deserialize)]
struct Worker {
    name: String,
    status: String,
    /// Its task now, or its latest one.
    task: Option<Task>,
    /// Why it did not say more than the list has.
    unanswered: Option<String>,
}

#[derive(Deserialize)]
struct Task {
    id: String,
    status: String,
}

const AWAKE: &str = "awake";
const OFFLINE: &str = "offline";
const ERROR: &str = "error";

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<FarmAnswer, String> {
    let [answer] = answers else { return Err("one answer is expected".into()) };
    let mut farm = Inventory::of(NAME);
    let said: Vec<Value> = read("the Manager", answer, ALL, &mut farm)?;
    let workers: Vec<Worker> = farm.understood(said, "name");
    // A Worker that has lost its name's credentials registers anew. What its old registration says is of
    // the past: it is offline, or in error with the task that it had then.
    let is_awake = |worker: &&Worker| worker.status == AWAKE;
    let awake: BTreeSet<String> =
        workers.iter().filter(is_awake).map(|worker| worker.name.to_lowercase()).collect();
    let is_old = |worker: &Worker| {
        worker.status == OFFLINE
            || (worker.status == ERROR && awake.contains(&worker.name.to_lowercase()))
    };
    for Worker { name, status, task, unanswered } in workers.iter().filter(|w| !is_old(w)) {
        farm.host(name, Amount::default());
        if let Some(why) = unanswered {
            farm.misses(name, why);
        }
        if let Some(task) = task.as_ref().filter(|task| task.status == "active") {
            farm.books(name, booking_of(NAME, &task.id), Amount::default());
        }
        if status != AWAKE {
            farm.withholds(name, booking_of(NAME, &format!("worker-{status}")), Amount::default());
        }
    }
    farm.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::inventory::seen;

    const LIST: &str = r#"{"workers":[
        {"id":"0b8cc1ab-6d6f-4a51-a58a-1a5f8b6b1f01","name":"r1","status":"awake","version":"3.5",
         "can_restart":false},
        {"id":"0b8cc1ab-6d6f-4a51-a58a-1a5f8b6b1f02","name":"r2","status":"asleep","version":"3.5",
         "can_restart":false,"last_seen":"2024-05-01T12:00:00Z"}]}"#;

    const EACH: &str = r#"[
        {"id":"1","name":"r1","status":"awake","version":"3.8","can_restart":true,"ip_address":"::1",
         "last_seen":"2026-05-01T12:00:00Z","platform":"linux","supported_task_types":["blender"],
         "task":{"id":"t-7","name":"render-1-3","status":"active","job_id":"j-1","index_in_job":2,
                 "priority":50,"task_type":"blender","updated":"2026-05-01T12:00:00Z",
                 "steps_completed":1,"steps_total":3}},
        {"id":"2","name":"r2","status":"awake",
         "task":{"id":"t-8","name":"render-4-6","status":"completed","job_id":"j-1"}},
        {"id":"3","name":"r3","status":"awake"},
        {"id":"4","name":"r4","status":"asleep"},
        {"id":"6","name":"r6","status":"restart","status_change":{"status":"asleep","is_lazy":true}},
        {"id":"5","name":"r5","status":"offline",
         "task":{"id":"t-9","name":"render-7-9","status":"soft-failed","job_id":"j-1"}}]"#;

    #[test]
    fn each_worker_of_the_list_is_asked_about() {
        let paths = |list: &str| -> Result<Vec<_>, _> {
            workers(list.as_bytes()).map(|all| all.into_iter().map(|each| each.path).collect())
        };
        assert_eq!(
            paths(LIST),
            Ok(vec![
                Ok("/api/v3/worker-mgt/workers/0b8cc1ab-6d6f-4a51-a58a-1a5f8b6b1f01".into()),
                Ok("/api/v3/worker-mgt/workers/0b8cc1ab-6d6f-4a51-a58a-1a5f8b6b1f02".into()),
            ])
        );
        for bad in ["", "[]", "{}", r#"{"workers":[1]}"#] {
            assert!(workers(bad.as_bytes()).is_err(), "{bad}");
        }
        let odd = r#"{"workers":[{"id":"../jobs"},{"id":"a?b"},{"id":""},{"name":"r1"}]}"#;
        assert!(paths(odd).expect("a list").iter().all(Result::is_err));
    }

    #[test]
    fn a_worker_that_is_not_understood_costs_its_own_host_alone() {
        let long = "w".repeat(300);
        let answer = format!(
            r#"[{{"name":"n1","status":"awake","task":{{"id":"t-7","status":"active"}}}},
            {{"name":"n2","status":"awake"}},{{"name":"GPU box 1 (left)","status":"awake"}},
            {{"name":"","status":"awake"}},{{"name":"Anna's-Mac-Studio.local","status":"awake"}},
            {{"name":"{long}","status":"awake"}},{{"status":"awake"}},
            {{"name":"n3","status":7}},{{"name":"n4","status":"awake","unanswered":"404"}}]"#
        );
        let answer = parse(&[answer.into_bytes()]).expect("most of it");
        assert!(answer.unclear[0].contains("\"status\":\"awake\""), "{:?}", answer.unclear);
        assert_eq!(answer.unclear[1], "GPU box 1 (left)");
        assert_eq!((answer.unclear.len(), answer.not_understood), (5, 7));
        assert_eq!(
            seen(Ok(answer)),
            [
                "n1 ?c ?m: flamenco:t-7 all ?m",
                "n2 ?c ?m:",
                "n3 ?c ?m: flamenco:not-understood all ?m withheld",
                "n4 ?c ?m: flamenco:not-understood all ?m withheld",
            ]
        );
    }

    #[test]
    fn an_old_registration_of_a_worker_that_is_awake_says_nothing() {
        let of = |status: &str, other: &str| {
            let answer = format!(
                r#"[{{"name":"n2","status":"{other}"}},
                {{"name":"N2","status":"{status}","task":{{"id":"t-6","status":"active"}}}}]"#
            );
            seen(parse(&[answer.into_bytes()])).join("; ")
        };
        for old in ["offline", "error"] {
            assert_eq!(of(old, "awake"), "n2 ?c ?m:", "{old}");
        }
        // Nobody says that this one is of the past.
        assert!(of("awake", "awake").contains("N2 ?c ?m: flamenco:t-6 all ?m"));
        assert!(of("asleep", "awake").contains("worker-asleep all ?m withheld"));
        assert!(of("error", "asleep").contains("flamenco:t-6 all ?m"));
    }

    #[test]
    fn an_active_task_books_its_workers_host() {
        assert_eq!(
            seen(parse(&[EACH.into()])),
            [
                "r1 ?c ?m: flamenco:t-7 all ?m",
                "r2 ?c ?m:",
                "r3 ?c ?m:",
                "r4 ?c ?m: flamenco:worker-asleep all ?m withheld",
                "r6 ?c ?m: flamenco:worker-restart all ?m withheld",
            ]
        );
    }
}

//! Flamenco: the Workers that its Manager knows, and what each of them does.
//!
//! `GET /api/v3/worker-mgt/workers` lists them, `…/workers/ID` has a Worker's latest task, which is
//! being worked on as long as it is `active` (`flamenco-openapi.yaml` of Flamenco 3). Flamenco knows
//! no cores, so a task books its Worker's whole host. A Worker that is offline is left out; one
//! that sleeps, fails or is being tested takes no tasks, as somebody or a schedule wants it, so its
//! host is wholly booked. A Worker has its host's name unless it was given another.

use gleaner_protocol::booking_of;
use reqwest::{Client, Url};
use serde::Deserialize;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use crate::HostAllocation;

pub(super) const NAME: &str = "flamenco";
const WORKERS: &str = "/api/v3/worker-mgt/workers";

pub(super) fn questions(address: &Url, client: Client) -> Vec<Question> {
    let mut url = address.clone();
    url.set_path(WORKERS);
    url.set_query(None);
    vec![Question::GetEach { url, client, each: workers }]
}

/// Where each Worker of a list is.
fn workers(list: &[u8]) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    struct List {
        workers: Vec<Listed>,
    }
    #[derive(Deserialize)]
    struct Listed {
        id: String,
    }
    let list: List = serde_json::from_slice(list).map_err(|error| error.to_string())?;
    let path = |worker: Listed| match worker.id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
    {
        true => Ok(format!("{WORKERS}/{}", worker.id)),
        false => Err(format!("{:?} is no worker's id", worker.id)),
    };
    list.workers.into_iter().map(path).collect()
}

#[derive(Deserialize)]
struct Worker {
    name: String,
    status: String,
    /// Its task now, or its latest one.
    task: Option<Task>,
}

#[derive(Deserialize)]
struct Task {
    id: String,
    status: String,
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<Vec<HostAllocation>, String> {
    let [answer] = answers else { return Err("one answer is expected".into()) };
    let workers: Vec<Worker> = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
    let mut farm = Inventory::default();
    for Worker { name, status, task } in workers.iter().filter(|w| w.status != "offline") {
        farm.host(name, Amount::default())?;
        if let Some(task) = task.as_ref().filter(|task| task.status == "active") {
            farm.books(name, booking_of(NAME, &task.id), Amount::default())?;
        }
        if status != "awake" {
            farm.withholds(name, booking_of(NAME, &format!("worker-{status}")), Amount::default())?;
        }
    }
    Ok(farm.finish())
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
        assert_eq!(
            workers(LIST.as_bytes()),
            Ok(vec![
                "/api/v3/worker-mgt/workers/0b8cc1ab-6d6f-4a51-a58a-1a5f8b6b1f01".into(),
                "/api/v3/worker-mgt/workers/0b8cc1ab-6d6f-4a51-a58a-1a5f8b6b1f02".into(),
            ])
        );
        for bad in ["", "[]", r#"{"workers":[{"id":"../jobs"}]}"#, r#"{"workers":[{"id":"a?b"}]}"#]
        {
            assert!(workers(bad.as_bytes()).is_err(), "{bad}");
        }
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

//! A farm manager's own record of its allocations behind a URL, as the monitor polls it: a plain
//! document, or Flamenco's Manager with its workers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::patience::PATIENCE;

/// What is answered, and how often it was asked for.
#[derive(Default)]
struct Record {
    /// None stands for an error.
    hosts: Option<Vec<Value>>,
    /// Where it is Flamenco's Manager: each worker's task, if it has one that is active.
    workers: Vec<(String, Option<String>)>,
    /// The next answer is an error.
    stumbles: bool,
    polls: u64,
    ended: bool,
}

type Shared = Arc<(Mutex<Record>, Condvar)>;

/// A farm that can be polled.
pub(crate) struct PlayedFarm {
    address: SocketAddr,
    shared: Shared,
}

/// A host with these bookings, each with its cores.
pub(crate) fn allocation(host: &str, cores: u32, bookings: &[(&str, u32)]) -> Value {
    let bookings: Vec<Value> = bookings
        .iter()
        .map(|(booking, cores)| json!({"booking": booking, "cores": cores}))
        .collect();
    json!({"host": host, "cores": cores, "memory_mib": 64_000, "bookings": bookings})
}

/// Where Flamenco's Manager lists its workers.
const WORKERS: &str = "/api/v3/worker-mgt/workers";

impl Record {
    /// The ids are places in the list.
    fn list_of_workers(&self) -> Value {
        let listed = |(id, (name, _)): (usize, &(String, _))| json!({"id": id.to_string(), "name": name, "status": "awake"});
        json!({"workers": self.workers.iter().enumerate().map(listed).collect::<Vec<_>>()})
    }

    fn worker(&self, id: &str) -> Option<Value> {
        let (name, task) = self.workers.get(id.parse::<usize>().ok()?)?;
        let mut worker = json!({"id": id, "name": name, "status": "awake"});
        if let Some(task) = task {
            worker["task"] = json!({"id": task, "status": "active"});
        }
        Some(worker)
    }
}

impl PlayedFarm {
    pub(crate) fn start(hosts: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared: Shared = Arc::default();
        shared.0.lock().expect("sound").hosts = Some(hosts);
        let record = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if record.0.lock().expect("sound").ended {
                    return;
                }
                answer(stream, &record);
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/allocations", self.address)
    }

    /// Flamenco's Manager; no task is active.
    pub(crate) fn flamenco(workers: &[&str]) -> Self {
        let farm = Self::start(Vec::new());
        farm.works(&workers.iter().map(|worker| (*worker, None)).collect::<Vec<_>>());
        farm
    }

    /// Says from now on that these are its workers, and their active tasks.
    pub(crate) fn works(&self, workers: &[(&str, Option<&str>)]) {
        let owned = workers.iter().map(|(name, task)| ((*name).into(), task.map(Into::into)));
        self.shared.0.lock().expect("sound").workers = owned.collect();
    }

    /// Where Flamenco's Manager is.
    pub(crate) fn manager_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Says from now on that these are its hosts.
    pub(crate) fn says(&self, hosts: Vec<Value>) {
        self.shared.0.lock().expect("sound").hosts = Some(hosts);
    }

    /// Answers with an error from now on.
    pub(crate) fn fails(&self) {
        self.shared.0.lock().expect("sound").hosts = None;
    }

    /// Answers the next poll, and no other, with an error.
    pub(crate) fn stumbles(&self) {
        self.shared.0.lock().expect("sound").stumbles = true;
    }

    /// How often it was polled.
    pub(crate) fn polls(&self) -> u64 {
        self.shared.0.lock().expect("sound").polls
    }

    /// Waits until it was polled so many times more.
    pub(crate) fn is_polled(&self, times: u64) {
        let (record, changed) = &*self.shared;
        let record = record.lock().expect("sound");
        let until = record.polls + times;
        let (record, _) = changed
            .wait_timeout_while(record, PATIENCE, |record| record.polls < until)
            .expect("sound");
        assert!(record.polls >= until, "the farm is not polled");
    }
}

impl Drop for PlayedFarm {
    fn drop(&mut self) {
        self.shared.0.lock().expect("sound").ended = true;
        // Wakes the thread, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(read) => head.extend_from_slice(&part[..read]),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default();
    let document = {
        let mut record = shared.0.lock().expect("sound");
        match path.strip_prefix(WORKERS).map(|id| id.trim_start_matches('/')) {
            Some(id) if !id.is_empty() => record.worker(id),
            listed => {
                record.polls += 1;
                shared.1.notify_all();
                let stumbles = std::mem::take(&mut record.stumbles);
                let hosts = record.hosts.clone().filter(|_| !stumbles);
                hosts.map(|hosts| match listed {
                    Some(_) => record.list_of_workers(),
                    None => json!({ "hosts": hosts }),
                })
            }
        }
    };
    let (status, body) = match document {
        Some(document) => ("200 OK", document.to_string()),
        None => ("500 Out Of Order", String::new()),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    // A monitor that has gone away has no use for it.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}

//! What is pushed to open pages: pictures of the farm and of the jobs, and what changes between them.
//!
//! ```text
//!  driver ──rows, page by page──► painter ──newest picture──► one task for each page ──► its socket
//! ```
//! One painter reads the core for everybody, at most four times a second, and only while somebody watches.
//! Rows are written as JSON once. A page is told what has changed since the picture that it has; that
//! message is made once for all pages with the same picture and the same rights.
//!
//! # Invariants
//! - The driver never waits for a page, and pages take a twentieth of its time at most.
//! - A page that is slow gets the newest picture when it has taken the one before: nothing is queued.
//! - Who has its own jobs alone is sent no other's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gleaner_protocol::api::{FarmNow, HostState, HostStatus, JobStatus, LaneStatus};
use gleaner_protocol::{HostName, JobId, OwnerName, ProjectName, Span, boottime};
use serde::Serialize;
use tokio::sync::{Notify, watch};

use crate::api::{host_status, lane_statuses};
use crate::driver::{DriverGone, DriverHandle};
use crate::farm_state::{farm_now, host_state};
use crate::farm_stop::FarmStop;
use crate::limits::{
    HOSTS_PAGE_MAX, JOBS_PAGE_MAX, PICTURE_CHANGES_KEPT, PICTURE_INTERVAL, PICTURE_RESTS,
};
use crate::promises::Promises;
use crate::wall_clock::utc_ms;

/// Where pictures are to be had. Clones are of the same ones.
#[derive(Clone)]
pub(crate) struct Pictures {
    newest: watch::Sender<Arc<Picture>>,
    /// Told when somebody begins to watch.
    begins: Arc<Notify>,
}

/// A row of a picture.
#[derive(Debug, Clone)]
struct Row<T> {
    /// What it says: where that is the same, it is not written anew.
    says: T,
    json: Arc<str>,
    /// Of a job: whose it is.
    of: JobOf,
}

impl<T: PartialEq + Serialize> Row<T> {
    fn new(before: Option<&Self>, says: T, of: JobOf) -> Self {
        let same = before.filter(|before| before.says == says);
        let json = same.map_or_else(|| json(&says).into(), |same| Arc::clone(&same.json));
        Self { says, json, of }
    }
}

impl<T> PartialEq for Row<T> {
    /// Rows that say the same are of one text.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.json, &other.json)
    }
}

/// Whose a job is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct JobOf {
    owner: Option<OwnerName>,
    project: Option<ProjectName>,
}

/// Whose jobs are there for somebody: all of them, where neither is named.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    pub(crate) owner: Option<OwnerName>,
    pub(crate) project: Option<ProjectName>,
}

impl Scope {
    fn sees(&self, of: &JobOf) -> bool {
        (self.owner.is_none() || self.owner == of.owner)
            && (self.project.is_none() || self.project == of.project)
    }
}

/// What has changed from the picture before to one: rows that came, changed or went.
#[derive(Debug, Default)]
struct Change {
    hosts: Vec<HostName>,
    jobs: Vec<(JobId, JobOf)>,
}

/// Whom a message is for: those who see these jobs, and have this picture.
type For = (Scope, Option<u64>);

/// What farm and jobs look like.
#[derive(Default)]
pub(crate) struct Picture {
    /// 0 is none.
    number: u64,
    hosts: BTreeMap<HostName, Row<HostRow>>,
    jobs: BTreeMap<JobId, Row<JobStatus>>,
    lanes: String,
    /// Who has stopped all hosts.
    stop: String,
    farm: FarmNow,
    /// The newest is the one to this picture.
    changes: VecDeque<Arc<Change>>,
    /// Made when they are asked for first.
    messages: Mutex<BTreeMap<For, Bytes>>,
}

/// What is told of a host.
#[derive(PartialEq, Serialize)]
struct HostRow {
    state: HostState,
    #[serde(flatten)]
    status: HostStatus,
}

/// What the core says in one go.
struct Read {
    hosts: Vec<HostRow>,
    jobs: Vec<JobStatus>,
    lanes: Vec<LaneStatus>,
    farm: FarmNow,
    /// How long that kept the driver.
    took: Span,
}

impl Pictures {
    pub(crate) fn new() -> Self {
        Self { newest: watch::Sender::new(Arc::default()), begins: Arc::default() }
    }

    /// Begins to watch; the first picture may be an old one, or none.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Picture>> {
        let mut receiver = self.newest.subscribe();
        receiver.mark_changed();
        self.begins.notify_one();
        receiver
    }

    /// Paints as long as the broker runs, while somebody watches.
    pub(crate) async fn run(self, driver: DriverHandle, promises: Promises, stop: FarmStop) {
        loop {
            if self.newest.receiver_count() == 0 {
                self.begins.notified().await;
            }
            let Ok(read) = read(&driver).await else { return };
            let took = read.took;
            let (before, promises) = (Arc::clone(&self.newest.borrow()), promises.clone());
            let stop = json(&stop.now());
            let painted = move || paint(&before, read, &promises, stop);
            let painted = tokio::task::spawn_blocking(painted);
            if let Ok(Some(picture)) = painted.await {
                self.newest.send_replace(Arc::new(picture));
            }
            let rest = PICTURE_INTERVAL.max(took.times(PICTURE_RESTS));
            tokio::time::sleep(rest.into()).await;
        }
    }
}

/// Reads the core page by page, so that no turn of the driver is long.
async fn read(driver: &DriverHandle) -> Result<Read, DriverGone> {
    let first = driver.query(|core| {
        let began = boottime();
        (lane_statuses(core), farm_now(core), boottime() - began)
    });
    let (lanes, farm, mut took) = first.await?;
    let mut hosts: Vec<HostRow> = Vec::new();
    loop {
        let after = hosts.last().map(|row| row.status.host.clone());
        let page = driver.query(move |core| {
            let began = boottime();
            let behind = core.farm().hosts_behind(after.as_ref()).take(HOSTS_PAGE_MAX);
            let row = |host| HostRow { state: host_state(host), status: host_status(core, host) };
            (behind.map(row).collect::<Vec<_>>(), boottime() - began)
        });
        let (page, page_took) = page.await?;
        let is_last = page.len() < HOSTS_PAGE_MAX;
        took = took + page_took;
        hosts.extend(page);
        if is_last {
            break;
        }
    }
    let mut jobs: Vec<JobStatus> = Vec::new();
    loop {
        let from = jobs.last().map_or(0, |job| job.job.get() + 1);
        let page = driver.query(move |core| {
            let began = boottime();
            let page = core.farm().jobs_from(JobId::new(from)).take(JOBS_PAGE_MAX);
            (page.map(gleaner_scheduling::Job::status).collect::<Vec<_>>(), boottime() - began)
        });
        let (page, page_took) = page.await?;
        let is_last = page.len() < JOBS_PAGE_MAX;
        took = took + page_took;
        jobs.extend(page);
        if is_last {
            break;
        }
    }
    Ok(Read { hosts, jobs, lanes, farm, took })
}

/// The picture after another one; nothing where nothing is different.
fn paint(before: &Picture, read: Read, promises: &Promises, stop: String) -> Option<Picture> {
    let Read { hosts, jobs, lanes, farm, .. } = read;
    let host = |row: HostRow| {
        let name = row.status.host.clone();
        let known = before.hosts.get(&name);
        (name, Row::new(known, row, JobOf::default()))
    };
    let hosts: BTreeMap<HostName, Row<HostRow>> = hosts.into_iter().map(host).collect();
    let job = |status: JobStatus| {
        let status = promises.told(status);
        let of = JobOf { owner: Some(status.owner.clone()), project: status.project.clone() };
        (status.job, Row::new(before.jobs.get(&status.job), status, of))
    };
    let jobs: BTreeMap<JobId, Row<JobStatus>> = jobs.into_iter().map(job).collect();
    let change = Change {
        hosts: changed(&before.hosts, &hosts).cloned().collect(),
        jobs: changed(&before.jobs, &jobs)
            .filter_map(|id| Some((*id, jobs.get(id).or(before.jobs.get(id))?.of.clone())))
            .collect(),
    };
    let lanes = json(&lanes);
    let is_same = (&lanes, &stop, farm) == (&before.lanes, &before.stop, before.farm);
    if before.number > 0 && is_same && change.hosts.is_empty() && change.jobs.is_empty() {
        return None;
    }
    let mut changes = before.changes.clone();
    if changes.len() == PICTURE_CHANGES_KEPT {
        changes.pop_front();
    }
    changes.push_back(Arc::new(change));
    let number = before.number + 1;
    Some(Picture { number, hosts, jobs, lanes, stop, farm, changes, messages: Mutex::default() })
}

/// The keys of rows that are other ones now, are there or are not.
fn changed<'a, K: Ord, T>(
    before: &'a BTreeMap<K, Row<T>>,
    now: &'a BTreeMap<K, Row<T>>,
) -> impl Iterator<Item = &'a K> {
    let came = now.iter().filter(|(key, row)| before.get(key) != Some(row));
    let went = before.keys().filter(|key| !now.contains_key(key));
    came.map(|(key, _)| key).chain(went)
}

impl Picture {
    /// Its number.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// What is to be said to whoever has the picture `has` and sees these jobs; nothing where they have
    /// this one, or there is none yet.
    pub(crate) fn message(&self, scope: &Scope, has: Option<u64>) -> Option<Bytes> {
        if self.number == 0 || has == Some(self.number) {
            return None;
        }
        let oldest = self.number - self.changes.len() as u64;
        let has = has.filter(|has| (oldest..self.number).contains(has));
        let key = (scope.clone(), has);
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let message = messages.entry(key).or_insert_with(|| match has {
            None => self.all(scope),
            Some(has) => self.since(scope, has),
        });
        Some(message.clone())
    }

    fn all(&self, scope: &Scope) -> Bytes {
        let jobs = self.jobs.values().filter(|row| scope.sees(&row.of)).map(|row| &*row.json);
        self.told("null", self.hosts.values().map(|row| &*row.json), jobs, "[]", "[]")
    }

    fn since(&self, scope: &Scope, has: u64) -> Bytes {
        let skipped = self.changes.len() - (self.number - has) as usize;
        let changes = || self.changes.iter().skip(skipped);
        let hosts: BTreeSet<&HostName> = changes().flat_map(|change| &change.hosts).collect();
        let jobs = changes().flat_map(|change| &change.jobs);
        let jobs: BTreeSet<JobId> =
            jobs.filter(|(_, of)| scope.sees(of)).map(|(job, _)| *job).collect();
        let gone_hosts = hosts.iter().filter(|host| !self.hosts.contains_key(**host));
        let gone_hosts: Vec<_> = gone_hosts.collect();
        let gone_jobs: Vec<_> = jobs.iter().filter(|job| !self.jobs.contains_key(job)).collect();
        let hosts = hosts.iter().filter_map(|host| self.hosts.get(*host)).map(|row| &*row.json);
        let jobs = jobs.iter().filter_map(|job| self.jobs.get(job)).map(|row| &*row.json);
        self.told(&has.to_string(), hosts, jobs, &json(&gone_hosts), &json(&gone_jobs))
    }

    fn told<'a>(
        &self,
        since: &str,
        hosts: impl Iterator<Item = &'a str>,
        jobs: impl Iterator<Item = &'a str>,
        gone_hosts: &str,
        gone_jobs: &str,
    ) -> Bytes {
        let (hosts, jobs) =
            (hosts.collect::<Vec<_>>().join(","), jobs.collect::<Vec<_>>().join(","));
        let Self { number, lanes, stop, farm, .. } = self;
        let (farm, now_ms) = (json(farm), utc_ms());
        Bytes::from(format!(
            r#"{{"number":{number},"since":{since},"now_ms":{now_ms},"farm":{farm},"lanes":{lanes},"stop":{stop},"hosts":[{hosts}],"jobs":[{jobs}],"gone_hosts":{gone_hosts},"gone_jobs":{gone_jobs}}}"#
        ))
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our own types serialise")
}

#[cfg(test)]
mod tests;

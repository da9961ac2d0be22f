//! Promises of due times: how likely cores are to be there, and how what was promised stands.
//!
//! ```text
//!  data folder
//!  └── forecast.json   how many cores the farm gave over the last months, and what became of
//!                      forecasts and promises
//! ```
//!
//! Twice a minute the cores that are given are noted, and each promised job's chance is found anew:
//! a promise that is less likely than not to be kept, or that its lane's policy cannot keep beside the
//! others, is told of at once. A submission with a due time
//! is answered from the same forecast. All of it is worked out beside the driver.
//!
//! # Invariants
//! - A file that cannot be read is moved aside, never written over.
//! - Submissions with a due time are answered one after the other: none is promised what another
//!   has just got.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gleaner_forecast::{Ask, Claim, Forecaster, HORIZON_MAX_S, Left, Work, ask};
use gleaner_protocol::api::{JobStatus, ProgressEvent};
use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Promised};
use gleaner_scheduling::{Core, Job, JobPhase, SubmitRefusal};

use crate::driver::{DriverGone, DriverHandle};
use crate::events::Events;
use crate::wall_clock::utc_ms;

/// How often cores are noted and promises looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How many looks go by before the forecast is written down.
const SAVE_EVERY_LOOKS: u32 = 20;
/// Ways that the next hours may go that are looked at.
const FUTURES: usize = 1_000;
/// The same for each promise that stands.
const LOOK_FUTURES: usize = 300;
/// Least time for which they are looked at, in seconds.
const HORIZON_MIN_S: f64 = 86_400.0;
/// How far a time that a submitter names may be off: standard deviation of its logarithm.
const NAMED_SIGMA: f64 = 0.15;
/// How far off all workunits of a job may be together.
const SHARED_SIGMA: f64 = 0.1;
/// How sure a job is to be where nobody says.
const CONFIDENCE: f64 = 0.9;
/// Below this its submitter is told.
const IN_DANGER: f64 = 0.5;
/// Of a predicted time, which is one that 9 of 10 do not exceed: how many deviations it lies above the
/// median.
const PREDICTED_AT: f64 = 1.2816;
/// Jobs whose chance is found anew in one look.
const LOOKED_AT_MAX: usize = 256;

/// The desk where due times are promised. Clones are of the same one.
#[derive(Clone)]
pub(crate) struct Promises {
    inner: Arc<Mutex<Inner>>,
    /// Held from the question until its job is submitted.
    turn: Arc<tokio::sync::Mutex<()>>,
}

struct Inner {
    forecaster: Forecaster,
    standing: BTreeMap<JobId, Standing>,
    path: PathBuf,
}

/// How a promised job stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Standing {
    /// How likely it is to be in time now.
    pub(crate) chance: f64,
    /// When it is expected to be done, in milliseconds of UTC.
    pub(crate) expected_end_ms: Option<u64>,
    /// How likely it was when it was accepted.
    said: f64,
    is_told: bool,
}

/// What the core says of the cores and of what is promised.
struct Seen {
    /// Milliseconds of UTC by the core's clock, by which jobs are due.
    now_ms: u64,
    given: u32,
    jobs: Vec<Due>,
}

/// A promised job.
struct Due {
    job: JobId,
    due_ms: u64,
    confidence: f64,
    said: f64,
    left: Vec<Left>,
    /// Whether it comes behind others, for it cannot be done in time beside them on the cores of now.
    is_out_of_reach: bool,
}

impl Promises {
    /// Reads what a data folder knows of the farm.
    pub(crate) fn open(data_folder: &Path, seed: u64) -> Self {
        let path = data_folder.join("forecast.json");
        let forecaster = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                let aside = data_folder.join(format!("forecast.damaged-{}.json", utc_ms()));
                // Where it cannot be moved it is written over only once there is something to say.
                let moved = fs::rename(&path, &aside);
                tracing::error!(
                    "{} cannot be read ({error}){}: what was learned of the farm's cores begins anew",
                    path.display(),
                    if moved.is_ok() { format!(" and is {} now", aside.display()) } else { String::new() }
                );
                Forecaster::new(seed)
            }),
            Err(_) => Forecaster::new(seed),
        };
        let inner = Inner { forecaster, standing: BTreeMap::new(), path };
        Self { inner: Arc::new(Mutex::new(inner)), turn: Arc::default() }
    }

    /// Waits for the turn of a submission with a due time.
    pub(crate) async fn turn(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// How a promised job stands, as far as was looked.
    pub(crate) fn standing(&self, job: JobId) -> Option<Standing> {
        self.lock().standing.get(&job).copied()
    }

    /// A job's status with how its promise stands.
    pub(crate) fn told(&self, status: JobStatus) -> JobStatus {
        match self.standing(status.job) {
            Some(standing) => JobStatus {
                chance_permille: Some((standing.chance * 1e3).round() as u16),
                expected_end_ms: standing.expected_end_ms,
                ..status
            },
            None => status,
        }
    }

    /// The job with what can be promised of its due time beside all that is promised; without that
    /// where the core will refuse it, its lane's policy answers for itself, or nothing is known of how
    /// long it takes.
    pub(crate) async fn ask(
        &self,
        driver: &DriverHandle,
        spec: JobSpec,
    ) -> Result<Result<JobSpec, SubmitRefusal>, DriverGone> {
        let read = |core: &Core| {
            let mut checked = spec.clone();
            if core.check(&mut checked).is_err() {
                return (spec, None);
            }
            let is_ours = core.policy(Lane::Deadline) == Some("gleaner");
            (checked, is_ours.then(|| see(core, usize::MAX)))
        };
        let (mut spec, seen) = driver.query(read).await?;
        let Some((seen, cpu_us)) = seen.zip(spec.profile.cpu_us) else { return Ok(Ok(spec)) };
        let this = self.clone();
        let answered = tokio::task::spawn_blocking(move || {
            let due_ms = spec.profile.due_ms.expect("the core has checked that it is due");
            let work = work_of(&spec, cpu_us);
            let workunits = spec.workunits.len();
            let confidence = confidence_of(&spec);
            let promised = this.answer(&seen, (workunits, work), due_ms, confidence)?;
            spec.profile.promised = Some(promised);
            Ok(spec)
        });
        answered.await.map_err(|_| DriverGone)
    }

    fn answer(
        &self,
        seen: &Seen,
        (workunits, work): (u32, Work),
        due_ms: u64,
        confidence: f64,
    ) -> Result<Promised, SubmitRefusal> {
        let now_ms = seen.now_ms;
        let forecaster = self.note(now_ms, seen.given);
        let due_s = (due_ms as f64 / 1e3).min(HORIZON_MAX_S * 0.9);
        let horizon_s = (2.0 * due_s).clamp(HORIZON_MIN_S, HORIZON_MAX_S);
        let futures = forecaster.futures(horizon_s, FUTURES);
        let claims = claims(&seen.jobs, now_ms, None);
        let said = ask(&Ask {
            work,
            due_s,
            confidence,
            claims: &claims,
            futures: &futures,
            calibration: forecaster.calibration(),
            scale: forecaster.scale(),
            seed: now_ms,
        });
        let in_ms = |seconds: f64| (seconds * 1e3).ceil() as u64;
        if said.is_accepted {
            return Ok(Promised {
                chance_permille: permille(said.chance),
                expected_end_ms: said.expected_end_s.map(in_ms),
            });
        }
        let asked = percent(confidence);
        let why = if said.breaks_another {
            "it would break what was promised to another job".to_owned()
        } else {
            format!(
                "the chance that its {workunits} workunits are done by then is {}, and {asked} were asked \
                 for; {} cores are given now",
                percent(said.chance),
                seen.given
            )
        };
        let earliest_due_us = said.earliest.map(|offer| (now_ms + in_ms(offer.due_s)) * 1_000);
        Err(SubmitRefusal::Declined { why, earliest_due_us })
    }

    /// Notes how many cores are given; the forecaster as it is then.
    fn note(&self, now_ms: u64, given: u32) -> Forecaster {
        let mut inner = self.lock();
        inner.forecaster.observe(now_ms / 1_000, given, given);
        inner.forecaster.clone()
    }

    /// Looks at the farm and at what is promised, for as long as the driver lives.
    pub(crate) async fn run(self, driver: DriverHandle, events: Events) {
        let mut timer = tokio::time::interval(LOOK_EVERY);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut looks = 0_u32;
        loop {
            timer.tick().await;
            let Ok(seen) = driver.query(|core| see(core, LOOKED_AT_MAX)).await else { return };
            let gone = self.gone(&seen);
            let Ok(ended) = driver.query(move |core| ended(core, gone)).await else { return };
            let this = self.clone();
            looks += 1;
            let saves = looks.is_multiple_of(SAVE_EVERY_LOOKS);
            let look = tokio::task::spawn_blocking(move || {
                let told = this.look(&seen, &ended);
                if saves {
                    this.save();
                }
                told
            });
            for event in look.await.unwrap_or_default() {
                if let ProgressEvent::PromiseInDanger { job, chance_permille, .. } = &event {
                    tracing::warn!(%job, "its due time is in danger: {} in time", percent(f64::from(*chance_permille) / 1e3));
                }
                events.tell(event);
            }
        }
    }

    /// Jobs that stood here and go on no longer.
    fn gone(&self, seen: &Seen) -> Vec<JobId> {
        let inner = self.lock();
        let goes_on = |job: &&JobId| !seen.jobs.iter().any(|due| due.job == **job);
        inner.standing.keys().filter(goes_on).copied().collect()
    }

    /// Finds the chance of all that is promised anew; what is to be told of it.
    fn look(&self, seen: &Seen, ended: &[(JobId, Option<bool>)]) -> Vec<ProgressEvent> {
        let now_ms = seen.now_ms;
        let forecaster = self.note(now_ms, seen.given);
        let latest_ms = seen.jobs.iter().map(|due| due.due_ms).max().unwrap_or(now_ms);
        let until_s = latest_ms.saturating_sub(now_ms) as f64 / 1e3;
        let horizon_s = (2.0 * until_s).clamp(HORIZON_MIN_S, HORIZON_MAX_S);
        let futures = (!seen.jobs.is_empty()).then(|| forecaster.futures(horizon_s, LOOK_FUTURES));
        let mut events = Vec::new();
        let mut found = BTreeMap::new();
        for (due, futures) in seen.jobs.iter().filter_map(|due| Some((due, futures.as_ref()?))) {
            let claims = claims(&seen.jobs, now_ms, Some(due.job));
            let due_s = (due.due_ms.saturating_sub(now_ms) as f64 / 1e3).min(horizon_s * 0.99);
            let said = ask(&Ask {
                work: work_left(&due.left),
                due_s,
                confidence: due.confidence,
                claims: &claims,
                futures,
                calibration: forecaster.calibration(),
                scale: forecaster.scale(),
                seed: now_ms,
            });
            let chance = match said.chance {
                _ if due.due_ms <= now_ms => 0.0,
                chance if due.is_out_of_reach => chance.min(IN_DANGER),
                chance => chance,
            };
            let expected_end_ms = said.expected_end_s.map(|end_s| now_ms + (end_s * 1e3) as u64);
            found.insert(due.job, (chance, expected_end_ms));
        }
        let mut inner = self.lock();
        for due in &seen.jobs {
            let Some(&(chance, expected_end_ms)) = found.get(&due.job) else { continue };
            let was_told = inner.standing.get(&due.job).is_some_and(|before| before.is_told);
            let is_told = chance < IN_DANGER || due.is_out_of_reach;
            if is_told && !was_told {
                events.push(ProgressEvent::PromiseInDanger {
                    job: due.job,
                    chance_permille: permille(chance),
                    due_ms: due.due_ms,
                    expected_end_ms,
                });
            }
            let standing = Standing { chance, expected_end_ms, said: due.said, is_told };
            inner.standing.insert(due.job, standing);
        }
        for (job, in_time) in ended {
            if let Some(standing) = inner.standing.remove(job)
                && let Some(in_time) = in_time
            {
                inner.forecaster.learn(standing.said, *in_time);
            }
        }
        events
    }

    /// Writes down what was learned. That it cannot be is said, and changes nothing.
    pub(crate) fn save(&self) {
        let (path, text) = {
            let inner = self.lock();
            (inner.path.clone(), serde_json::to_vec(&inner.forecaster))
        };
        let draft = path.with_extension("draft");
        let written = text
            .map_err(std::io::Error::other)
            .and_then(|text| fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path)));
        if let Err(error) = written {
            tracing::warn!("cannot write {}: {error}", path.display());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the core says of the cores that are given, and of jobs that are due, at most so many.
fn see(core: &Core, most: usize) -> Seen {
    let (given, _) = core.farm().lane_shares();
    let jobs = core.farm().due_jobs().take(most).filter_map(|job| due(core, job)).collect();
    let given = u32::try_from(given / 1_000).unwrap_or(u32::MAX);
    Seen { now_ms: core.utc_now_ms(), given, jobs }
}

fn due(core: &Core, job: &Job) -> Option<Due> {
    let profile = &job.spec.profile;
    let mut left: BTreeMap<u64, u32> = BTreeMap::new();
    let cores = cores_of(&job.spec);
    for left_us in core.left_us(job.id) {
        let left_us = left_us / u64::from(cores);
        // A hundredth more or less is no other task.
        let step = (left_us / 100).max(10_000);
        *left.entry(left_us.div_ceil(step) * step).or_default() += cores;
    }
    let sigma = sigma_of(&job.spec);
    let left = left.into_iter().map(|(left_us, tasks)| Left {
        tasks,
        median_s: left_us as f64 / 1e6,
        sigma,
        ran_s: 0.0,
    });
    let said = profile.promised.map(|promised| f64::from(promised.chance_permille) / 1e3);
    Some(Due {
        job: job.id,
        due_ms: job.due_utc_ms()?,
        confidence: confidence_of(&job.spec),
        said: said.unwrap_or(CONFIDENCE),
        left: left.collect(),
        is_out_of_reach: core.is_out_of_reach(job.id),
    })
}

/// Of jobs that have ended: whether they were in time, as far as is known; none where they were
/// cancelled or have failed workunits, which says nothing of how long they take.
fn ended(core: &Core, jobs: Vec<JobId>) -> Vec<(JobId, Option<bool>)> {
    let of = |id: JobId| {
        let job = core.farm().job(id)?;
        let is_done = job.phase == JobPhase::Ended && job.ended.failed() == 0;
        Some(job.ended_at.filter(|_| is_done)? <= job.due?)
    };
    jobs.into_iter().map(|id| (id, of(id))).collect()
}

fn claims(jobs: &[Due], now_ms: u64, but: Option<JobId>) -> Vec<Claim> {
    let others = jobs.iter().filter(|due| Some(due.job) != but && !due.left.is_empty());
    let claim = |due: &Due| {
        let due_s = due.due_ms.saturating_sub(now_ms) as f64 / 1e3;
        Claim::of(due_s, due.confidence, SHARED_SIGMA, due.left.iter().copied())
    };
    others.map(claim).collect()
}

/// Cores of each of its workunits. One that has several is thought of as a task on each of them, all of
/// which are done as much sooner: that they have to be on one host, and at once, is not looked at.
fn cores_of(spec: &JobSpec) -> u32 {
    spec.cores_permille.cores_touched().max(1)
}

fn work_of(spec: &JobSpec, cpu_us: u64) -> Work {
    let (cores, sigma) = (cores_of(spec), sigma_of(spec));
    let tasks = spec.workunits.len().saturating_mul(cores);
    let time_s = cpu_us as f64 / 1e6 / f64::from(cores);
    let is_predicted = spec.profile.cpu_sigma_permille.is_some();
    let median_s = if is_predicted { time_s * (-PREDICTED_AT * sigma).exp() } else { time_s };
    Work { tasks, median_s, sigma, shared_sigma: SHARED_SIGMA }
}

/// What is left of a job as if its tasks were alike.
fn work_left(left: &[Left]) -> Work {
    let tasks: u32 = left.iter().map(|of| of.tasks).sum();
    let sum: f64 = left.iter().map(|of| f64::from(of.tasks) * of.median_s).sum();
    let sigma = left.iter().map(|of| of.sigma).fold(0.0, f64::max);
    let median_s = sum / f64::from(tasks.max(1));
    Work { tasks: tasks.max(1), median_s: median_s.max(1e-3), sigma, shared_sigma: SHARED_SIGMA }
}

fn sigma_of(spec: &JobSpec) -> f64 {
    spec.profile.cpu_sigma_permille.map_or(NAMED_SIGMA, |permille| f64::from(permille) / 1e3)
}

fn confidence_of(spec: &JobSpec) -> f64 {
    spec.profile.confidence_permille.map_or(CONFIDENCE, |permille| f64::from(permille) / 1e3)
}

fn permille(part: f64) -> u16 {
    (part.clamp(0.0, 1.0) * 1e3).round() as u16
}

fn percent(part: f64) -> String {
    let percent = part.clamp(0.0, 1.0) * 100.0;
    if percent > 99.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests;

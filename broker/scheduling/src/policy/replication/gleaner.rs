//! Our policy of partitioned datasets.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{ChunkId, JobId, Span, Time, WorkunitId};

use super::board::Board;
use super::config::{GIVEN_UP_FOR, ReplicationConfig};
use super::outlook::{Outlook, Roads, Wanted};
use super::pace::Pace;
use super::tasks::Stage;

use crate::explain::WaitReason;
use crate::farm::{Farm, HostIx};
use crate::policy::{Change, Decline, Policy, Trigger};
use crate::{Desk, Patience, Violation};

/// Plans the whole of what waits anew whenever something has changed.
///
/// - From measured times, and for what runs from how long it has run, it expects when each host
///   will be free and what one workunit will take it. From that it knows how many workunits each
///   host should do for all to end at the same time.
/// - A maximum flow gives workunits to hosts within these numbers where copies lie, or are about
///   to. What is left over lies only on hosts that have enough to do: copies of it are moved to
///   hosts that have too little, early, while they compute.
/// - A host that could not end one more workunit before the end is given none.
/// - In the end, when nothing waits for a host, it gets a copy of what would end later than if
///   begun anew there, and duplicates it. Nothing is duplicated otherwise.
#[derive(Debug)]
pub struct Gleaner {
    config: ReplicationConfig,
    board: Board,
    paces: BTreeMap<JobId, Pace>,
    roads: KnownRoads,
    review: Option<Time>,
}

/// Looks again after this part of a mean workunit, for hosts that have become slower.
const REVIEWS_PER_UNIT: f64 = 8.0;
/// Looks no more often than this, in seconds.
const REVIEW_S_MIN: f64 = 1.0;

impl Gleaner {
    /// A fresh one.
    #[must_use]
    pub fn new(config: ReplicationConfig) -> Self {
        Self {
            config,
            board: Board::default(),
            paces: BTreeMap::new(),
            roads: KnownRoads::default(),
            review: None,
        }
    }

    /// Plans anew, for the hosts that wait and for these.
    fn serve(&mut self, desk: &mut Desk<'_>, hosts: &[HostIx]) {
        let is_review = self.review.is_some_and(|due| due <= desk.now());
        let now = desk.now();
        self.roads.given_up.retain(|_, since| now.since(*since) < GIVEN_UP_FOR);
        self.board.idle.extend(hosts);
        let mut idle = self.board.take_idle(desk);
        // What is idle first: nobody has to give way for it.
        idle.sort_by_key(|host| desk.farm().host(*host).free() == 0);
        let mut shortest = f64::INFINITY;
        let jobs: Vec<JobId> = self.board.jobs.keys().copied().collect();
        for job in jobs {
            let tasks = self.board.jobs.get_mut(&job).expect("it is listed");
            let pace = self.paces.entry(job).or_default();
            let mut outlook = Outlook::new(desk, tasks, pace, &self.roads, self.config.window);
            shortest = shortest.min(outlook.mean_unit_s());
            for host in &idle {
                while desk.room(*host) > 0 {
                    let Some(index) = outlook.next_for(desk.farm(), tasks, *host) else { break };
                    if !tasks.start(desk, index, *host) {
                        break;
                    }
                    outlook.started(index);
                }
            }
            self.move_copies(desk, job, &outlook);
            if is_review {
                self.begin_somewhere(desk, job, &idle);
            }
        }
        idle.retain(|host| desk.room(*host) > 0);
        self.board.idle.extend(idle);
        let pause_s = (shortest / REVIEWS_PER_UNIT).max(REVIEW_S_MIN);
        let runs = self.board.jobs.values().any(|tasks| tasks.all_runs().next().is_some());
        let is_wanted = runs && shortest.is_finite();
        let stands_still = !runs && !self.board.jobs.is_empty() && !self.board.idle.is_empty();
        let pause_s = if is_wanted { pause_s } else { REVIEW_S_MIN };
        let pause = (is_wanted || stands_still).then(|| Span::from_micros((pause_s * 1e6) as u64));
        self.review = pause.map(|pause| desk.now() + pause);
    }

    /// The plan may wait for hosts that are expected to be free, and never ask. Where nothing of a
    /// job runs any more when the plan is reviewed, and nothing of it is on its way, nothing would
    /// ever change that: so whoever asks and can begin does.
    fn begin_somewhere(&mut self, desk: &mut Desk<'_>, job: JobId, idle: &[HostIx]) {
        let window = self.config.window;
        let tasks = self.board.jobs.get_mut(&job).expect("it is listed");
        let is_moving = self.roads.moving.keys().any(|chunk| tasks.reader_of(*chunk).is_some());
        if is_moving || tasks.all_runs().next().is_some() {
            return;
        }
        for host in idle {
            if desk.room(*host) == 0 {
                continue;
            }
            let first = tasks.of_host(*host, window).find(|index| {
                tasks.stage(*index) == Stage::Ready && tasks.may_run(desk.farm(), *index, *host)
            });
            if first.is_some_and(|index| tasks.start(desk, index, *host)) {
                return;
            }
        }
    }

    /// Moves copies of what lies only on hosts that have enough to do to those with too little.
    fn move_copies(&mut self, desk: &mut Desk<'_>, job: JobId, outlook: &Outlook) {
        let tasks = &self.board.jobs[&job];
        let mut engaged: BTreeSet<HostIx> = BTreeSet::new();
        for (chunk, moving) in &self.roads.moving {
            engaged.insert(moving.to);
            if let Some(index) = tasks.reader_of(*chunk) {
                engaged.extend(tasks.holders(index));
            }
        }
        for Wanted { index, to, within_s } in outlook.wanted().iter().copied() {
            let (chunk, holders) = (tasks.chunk(index), tasks.holders(index));
            let from = holders.iter().find(|holder| desk.farm().host(**holder).connected);
            let is_engaged = holders.iter().chain([&to]).any(|host| engaged.contains(host));
            let Some(from) = from.filter(|_| !is_engaged && within_s > 0.0) else { continue };
            let within = Span::from_micros((within_s * 1e6) as u64);
            let patience = Patience { within, first_permille: self.config.first_permille };
            if desk.move_copy_within(chunk, *from, to, Some(patience)).is_ok() {
                self.roads.moving.insert(chunk, Moving { to, since: desk.now(), within_s });
                engaged.insert(to);
                engaged.extend(holders);
            } else {
                // So that the next plan does without it.
                self.roads.given_up.insert((chunk, to), desk.now());
            }
        }
    }
}

/// Moves on their way, and what was learned from those before.
#[derive(Debug, Default)]
struct KnownRoads {
    moving: BTreeMap<ChunkId, Moving>,
    /// Since when.
    given_up: BTreeMap<(ChunkId, HostIx), Time>,
    /// Time of a move, in seconds: an average that follows what is measured.
    copy_s: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Moving {
    to: HostIx,
    since: Time,
    within_s: f64,
}

impl KnownRoads {
    /// A copy came, or could not be moved.
    fn arrived(&mut self, now: Time, host: HostIx, chunk: ChunkId, held: bool, rho: f64) {
        let Some(moving) = self.moving.get(&chunk).copied().filter(|moving| moving.to == host)
        else {
            return;
        };
        self.moving.remove(&chunk);
        let before = self.copy_s;
        let took_s = if held {
            now.since(moving.since).as_secs_f64()
        } else {
            self.given_up.insert((chunk, host), now);
            // It would have taken longer than this.
            before.unwrap_or(0.0).max(moving.within_s)
        };
        self.copy_s = Some(before.map_or(took_s, |before| before + rho * (took_s - before)));
    }
}

impl Roads for KnownRoads {
    fn copy_s(&self) -> f64 {
        self.copy_s.unwrap_or(0.0)
    }

    fn coming(&self, chunk: ChunkId) -> Option<HostIx> {
        self.moving.get(&chunk).map(|moving| moving.to)
    }

    fn may_try(&self, chunk: ChunkId, to: HostIx) -> bool {
        !self.moving.contains_key(&chunk) && !self.given_up.contains_key(&(chunk, to))
    }
}

impl Policy for Gleaner {
    fn name(&self) -> &'static str {
        "gleaner"
    }

    fn admit(&mut self, _now: Time, _farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        Ok(Board::admit(spec)?)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        if let Some(reported) = self.board.observe(now, farm, change) {
            let pace = self.paces.entry(reported.job).or_default();
            pace.measure(reported.host, reported.took, self.config.rho);
        }
        match change {
            Change::JobEnded(id) => {
                self.paces.remove(&id);
                if self.board.jobs.is_empty() {
                    self.roads = KnownRoads::default();
                    self.review = None;
                }
            }
            Change::CopyChanged { host, chunk, held } => {
                self.roads.arrived(now, host, chunk, held, self.config.rho);
            }
            Change::HostChanged(host) if !farm.host(host).connected => {
                let before = self.roads.moving.len();
                self.roads.moving.retain(|_, moving| moving.to != host);
                if self.roads.moving.len() < before {
                    self.board.stir(now);
                }
            }
            _ => {}
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        match trigger {
            Trigger::Host(host) => self.serve(desk, &[host]),
            // New work of other lanes changes nothing here.
            Trigger::Work if !self.board.has_changed(desk.now()) => {}
            Trigger::Work | Trigger::Deadline => self.serve(desk, &[]),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.board.next_deadline().into_iter().chain(self.review).min()
    }

    fn explain(&self, farm: &Farm, workunit: WorkunitId) -> Vec<WaitReason> {
        let mut reasons = self.board.explain(farm, workunit);
        for reason in &mut reasons {
            if let WaitReason::CopiesElsewhere { coming, copy_ms, .. } = reason {
                let to = farm.chunk_of(workunit).and_then(|chunk| self.roads.coming(chunk));
                *coming = to.map(|host| farm.host(host).info.name.clone());
                *copy_ms = self.roads.copy_s.map(|seconds| (seconds * 1_000.0) as u64);
            }
        }
        reasons
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        self.board.check(farm, lane, self.config.window, |_, _| false)?;
        let moving = &mut self.roads.moving.iter();
        let lost = moving.find(|(chunk, moving)| !farm.is_moving(**chunk, moving.to));
        lost.map_or(Ok(()), |(chunk, _)| {
            let detail = format!("chunk {} is marked and not on its way", chunk.index);
            Err(Violation::new("queue-members", detail))
        })
    }
}

//! The broker: its own dispatcher, with a modelled committer and disk behind it.
//!
//! # Invariants
//! - A turn's verdicts and answers leave only when its records are on the disk, in the order of the
//!   turns; its orders leave at once, unless the disk has failed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gleaner_broker::limits::{COMMIT_BYTES_MAX, COMMIT_QUEUE_MAX, COMMIT_RECORDS_MAX};
use gleaner_broker::{
    ChunkTable, CoreFigures, Decided, Dispatcher, FrameBoard, FrameLease, FrameStep, Layer,
    Letters, LinkId, LinkMessage, Metrics, Recovery, Waits, pack,
};
use gleaner_protocol::control::ChunkSource;
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{
    AgentSecret, DatasetId, Digest, HostName, JobId, KeptLayer, LayerAnswer, LeaseToken, Time,
};
use gleaner_scheduling::{Core, CoreConfig, Fact, LanePolicy, SubmitRefusal, TokenKey};

use super::disk::{Disk, Fate, Step};
use super::rules::SNAPSHOT_AFTER_BYTES;
use super::{Breach, Bug, StormConfig};
use crate::dice::Dice;
use crate::limits::STORM_GONE_HOSTS_MAX;

/// What the broker is asked.
#[derive(Debug)]
pub(super) enum Command {
    Submit(Box<JobSpec>),
    Cancel(JobId),
    /// A part of a frame of a viewer.
    Frame {
        viewer: usize,
        frame: u64,
        spec: Box<JobSpec>,
    },
    DropFrames(Vec<JobId>),
    /// Its manifest is in the table.
    DatasetAdded(DatasetId),
    /// It is in the table no more.
    DatasetRemoved(DatasetId),
    LinkOpened(LinkId),
    LinkMessages(LinkId, Vec<LinkMessage>),
    LinkClosed(LinkId),
    /// The monitor's events, and which of its posts they came in.
    Farm(Vec<FarmEvent>, u64),
}

/// Said once it is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// A job was accepted.
    Accepted(JobId),
    /// A job was not.
    Declined,
    /// A post of the monitor was taken.
    Taken(u64),
}

/// A turn on its way to the disk.
#[derive(Debug)]
pub(super) struct Batch {
    records: Vec<Vec<u8>>,
    pub(super) facts: Vec<Fact>,
    pub(super) verdicts: Letters<()>,
    pub(super) answers: Vec<Answer>,
    waits: Waits,
}

/// A process.
struct Alive {
    dispatcher: Dispatcher<()>,
    queue: VecDeque<Batch>,
    /// Batches that are being written together.
    committing: Vec<Batch>,
    /// A snapshot to adopt when the commit under way is over.
    snapshot: Option<(Vec<Vec<u8>>, usize)>,
    /// The disk failed: nothing is said any more until a restart.
    has_failed: bool,
}

/// A broker that may be down.
pub(super) struct Broker {
    config: CoreConfig,
    storm: StormConfig,
    alive: Option<Alive>,
    pub(super) disk: Disk,
    /// Counts lives; what was meant for an earlier one is dropped.
    pub(super) life: u64,
    pub(super) commands: VecDeque<Command>,
    /// Commits of this life: how many a bug that never syncs loses.
    unsynced: usize,
    /// Those of all lives.
    metrics: Arc<Metrics>,
    /// Reports that were judged.
    pub(super) judged: u64,
    /// What is in the datasets, as their file says over all lives.
    pub(super) chunks: ChunkTable,
    /// What there is of frames in this life, and how many it has begun.
    pub(super) board: FrameBoard,
    pub(super) frames: u64,
    /// What came of parts of frames in the last turn: of which viewer and frame.
    pub(super) frame_answers: Vec<(usize, u64, Result<JobId, SubmitRefusal>)>,
}

impl Broker {
    pub(super) fn new(storm: &StormConfig) -> Self {
        Self {
            config: with_all_lanes(CoreConfig {
                gone_hosts_max: STORM_GONE_HOSTS_MAX,
                ..CoreConfig::background(storm.policy)
            }),
            storm: storm.clone(),
            alive: None,
            disk: Disk::default(),
            life: 0,
            commands: VecDeque::new(),
            unsynced: 0,
            metrics: Arc::default(),
            judged: 0,
            chunks: ChunkTable::default(),
            board: FrameBoard::default(),
            frames: 0,
            frame_answers: Vec::new(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.alive.is_some()
    }

    pub(super) fn core(&self) -> Option<&Core> {
        self.alive.as_ref().map(|alive| alive.dispatcher.core())
    }

    /// What `/metrics` would show.
    pub(super) fn metrics(&self) -> Option<String> {
        Some(self.metrics.render(&CoreFigures::of(self.core()?)))
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.alive.as_ref()?.dispatcher.next_deadline()
    }

    /// Whether the committer's queue holds the driver up.
    pub(super) fn is_held_up(&self) -> bool {
        self.alive.as_ref().is_some_and(|alive| alive.queue.len() >= COMMIT_QUEUE_MAX)
    }

    /// Whether new jobs are let in.
    pub(super) fn admits(&self) -> bool {
        self.works() && !self.disk.is_full
    }

    /// Whether all that was decided has been told.
    pub(super) fn is_quiet(&self) -> bool {
        let is_idle = |alive: &Alive| alive.queue.is_empty() && alive.committing.is_empty();
        self.commands.is_empty() && self.alive.as_ref().is_some_and(is_idle)
    }

    /// Everything that is ready makes one turn. Returns the orders that it gives; `None` where
    /// nothing came of it, or the disk has failed: then nothing is said any more.
    pub(super) fn turn(&mut self, now: Time) -> Option<Letters<()>> {
        let alive = self.alive.as_mut()?;
        let (mut turn, mut answers) = (Decided::default(), Vec::new());
        if alive.dispatcher.next_deadline().is_some_and(|due| due <= now) {
            alive.dispatcher.tick(now, &mut turn);
        }
        for command in self.commands.drain(..) {
            let dispatcher = &mut alive.dispatcher;
            match command {
                Command::Submit(spec) => {
                    let submitted = dispatcher.submit(now, *spec, &mut turn);
                    turn.waits.submissions.extend(submitted.is_ok().then_some(now));
                    answers.push(match submitted {
                        Ok(submitted) => Answer::Accepted(submitted.job),
                        Err(_) => Answer::Declined,
                    });
                }
                Command::Cancel(job) => {
                    dispatcher.cancel(now, job, &mut turn);
                }
                Command::Frame { viewer, frame, spec } => {
                    let answer = dispatcher.submit_frame(now, *spec, &mut turn);
                    if let (Ok(job), Some(Bug::WritesFrames)) = (&answer, self.storm.bug) {
                        turn.facts.push(Fact::JobCancelled { job: *job });
                    }
                    self.frame_answers.push((viewer, frame, answer));
                }
                Command::DropFrames(jobs) => dispatcher.drop_frames(now, &jobs, &mut turn),
                Command::DatasetAdded(id) => dispatcher.dataset_added(now, id, &mut turn),
                Command::DatasetRemoved(id) => dispatcher.dataset_removed(now, id, &mut turn),
                Command::LinkOpened(link) => dispatcher.link_opened(link, ()),
                Command::LinkMessages(link, messages) => {
                    dispatcher.link_messages(now, link, messages, &mut turn);
                }
                Command::LinkClosed(link) => dispatcher.link_closed(now, link, &mut turn),
                Command::Farm(events, post) => {
                    dispatcher.farm_events(events, &mut turn);
                    answers.push(Answer::Taken(post));
                }
            }
        }
        alive.dispatcher.end_turn(now, &mut turn);
        let Decided { facts, orders, verdicts, waits, mut frames, .. } = turn;
        if self.storm.bug == Some(Bug::LosesFrames) {
            frames.retain(|news| news.what != FrameStep::Done);
        }
        self.board.tell(frames);
        self.judged += verdicts.values().map(|(_, verdicts)| verdicts.len() as u64).sum::<u64>();
        if alive.has_failed {
            return None;
        }
        if facts.is_empty() && verdicts.is_empty() && answers.is_empty() {
            return (!orders.is_empty()).then_some(orders);
        }
        let records = pack(facts.iter().cloned());
        alive.queue.push_back(Batch { records, facts, verdicts, answers, waits });
        self.snapshot_if_due();
        Some(orders)
    }

    /// Whether it runs, and its disk works.
    pub(super) fn works(&self) -> bool {
        self.alive.as_ref().is_some_and(|alive| !alive.has_failed)
    }

    fn frame_lease(&self, secret: &AgentSecret, token: LeaseToken) -> Option<FrameLease> {
        self.alive.as_ref()?.dispatcher.frame_lease(secret, token).ok()
    }

    /// The layers that an agent is to join.
    pub(super) fn layers(&self, secret: &AgentSecret, token: LeaseToken) -> Option<Vec<Layer>> {
        self.board.layers(self.frame_lease(secret, token)?)
    }

    /// Lets an agent fetch layers from the hosts that keep them, and these know of it.
    pub(super) fn name_layers(
        &mut self,
        secret: &AgentSecret,
        token: LeaseToken,
        kept: &[(HostName, Digest)],
    ) -> (Option<Vec<ChunkSource>>, Letters<()>) {
        let Some(alive) = &mut self.alive else { return (None, Letters::new()) };
        let mut turn = Decided::default();
        let named = alive.dispatcher.name_layers(secret, token, kept, &mut turn);
        (named, turn.orders)
    }

    /// Whether an agent is to keep the layer that it drew, or to bring it.
    pub(super) fn keep_layer(
        &self,
        now: Time,
        secret: &AgentSecret,
        token: LeaseToken,
        kept: Vec<KeptLayer>,
    ) -> Result<LayerAnswer, String> {
        let alive = self.alive.as_ref().ok_or("there is no broker")?;
        let keeper = alive.dispatcher.layer_keeper(now, secret, token);
        let (lease, host) = keeper.map_err(|refusal| refusal.to_string())?;
        self.board.keep(lease, host, kept).map_err(|refusal| refusal.to_string())
    }

    /// An agent brings what it drew.
    pub(super) fn bring_part(
        &self,
        secret: &AgentSecret,
        token: LeaseToken,
        bytes: Vec<u8>,
    ) -> Result<(), String> {
        let lease = self.frame_lease(secret, token).ok_or("it has no such lease")?;
        self.board.bring(lease, bytes.into()).map_err(|refusal| refusal.to_string())?;
        Ok(())
    }

    /// What joins layers of hosts that were told of it.
    pub(super) fn joins(&self) -> impl Iterator<Item = JobId> {
        self.alive.iter().flat_map(|alive| alive.dispatcher.joins())
    }

    /// The snapshot stands for all turns that were handed over.
    fn snapshot_if_due(&mut self) {
        let Some(alive) = &mut self.alive else { return };
        if self.disk.tail_bytes() >= SNAPSHOT_AFTER_BYTES && alive.snapshot.is_none() {
            alive.snapshot = Some((pack(alive.dispatcher.core().facts()), alive.queue.len()));
        }
    }

    /// Begins a commit of everything that is ready. Returns how many steps of writing it takes, or
    /// `None` where none can begin.
    pub(super) fn begin_commit(&mut self) -> Option<u64> {
        let is_full = self.disk.is_full;
        let alive = self.alive.as_mut().filter(|alive| alive.committing.is_empty())?;
        if is_full && alive.queue.front().is_some_and(|batch| !batch.records.is_empty()) {
            return None;
        }
        // Not across a snapshot: what comes after it is not in it.
        let most = match &alive.snapshot {
            Some((_, 0)) | None => usize::MAX,
            Some((_, before)) => *before,
        };
        let (mut bytes, mut records) = (0, 0);
        while alive.committing.len() < most
            && bytes < COMMIT_BYTES_MAX
            && records < COMMIT_RECORDS_MAX
            && let Some(batch) = alive.queue.pop_front()
        {
            bytes += batch.records.iter().map(Vec::len).sum::<usize>();
            records += batch.records.len();
            alive.committing.push(batch);
            if is_full && alive.queue.front().is_some_and(|batch| !batch.records.is_empty()) {
                break;
            }
        }
        if let Some((_, before)) = &mut alive.snapshot {
            *before = before.saturating_sub(alive.committing.len());
        }
        match (alive.committing.is_empty(), records) {
            (true, _) => None,
            (false, 0) => Some(0),
            (false, _) => Some(Step::ALL.len() as u64),
        }
    }

    /// The commit under way is durable. Returns its batches, to be told; and whether a snapshot
    /// took the journal's place.
    pub(super) fn committed(&mut self, now: Time) -> (Vec<Batch>, bool) {
        let Some(alive) = &mut self.alive else { return (Vec::new(), false) };
        let batches = std::mem::take(&mut alive.committing);
        if alive.has_failed {
            return (Vec::new(), false);
        }
        let records: Vec<_> =
            batches.iter().flat_map(|batch| batch.records.iter().cloned()).collect();
        if !records.is_empty() {
            self.disk.append(&records);
            self.unsynced += 1;
        }
        for batch in &batches {
            let bytes = batch.records.iter().map(Vec::len).sum::<usize>() as u64;
            self.metrics.turn_committed(now, bytes, &batch.waits);
        }
        if alive.snapshot.as_ref().is_some_and(|(_, before)| *before == 0) {
            let (chunks, _) = alive.snapshot.take().expect("it was just there");
            self.disk.adopt_snapshot(chunks);
            self.unsynced = 0;
            return (batches, true);
        }
        (batches, false)
    }

    /// The batches of the commit under way, which is forgotten: only a planted bug does that.
    pub(super) fn forget_commit(&mut self) -> Vec<Batch> {
        self.alive.as_mut().map(|alive| std::mem::take(&mut alive.committing)).unwrap_or_default()
    }

    /// The disk fails: whoever waits is told nothing.
    pub(super) fn fails(&mut self) {
        if let Some(alive) = &mut self.alive {
            alive.has_failed = true;
        }
    }

    /// Dies after a step of the commit under way, where one is. Returns what became of it and its
    /// batches: what is on the disk counts, though nobody was told.
    pub(super) fn dies(
        &mut self,
        step: Step,
        power_is_lost: bool,
        dice: &mut Dice,
    ) -> (Option<Fate>, Vec<Batch>) {
        self.life += 1;
        self.commands.clear();
        (self.board, self.frames) = (FrameBoard::default(), 0);
        self.frame_answers.clear();
        let Some(alive) = self.alive.take() else { return (None, Vec::new()) };
        let batches = alive.committing;
        let records: Vec<_> =
            batches.iter().flat_map(|batch| batch.records.iter().cloned()).collect();
        let fate = if records.is_empty() || alive.has_failed {
            None
        } else {
            Some(self.disk.dies_after(step, &records, power_is_lost, dice))
        };
        if self.storm.bug == Some(Bug::NeverSyncs) {
            self.disk.loses_the_last(self.unsynced.min(8));
        }
        self.unsynced = 0;
        (fate, batches)
    }

    /// Comes back from what is on the disk. What its core adds is written first of all.
    pub(super) fn start(&mut self) -> Result<Vec<Fact>, Breach> {
        self.life += 1;
        let bug = self.storm.bug;
        let found = self.disk.open()?;
        let incarnation =
            if bug == Some(Bug::CountsFromTheBeginning) { 1 } else { found.incarnation };
        let core = match self.storm.saboteur {
            None => Core::new(&self.config),
            Some(policy) => {
                Core::with_policies(&self.config, BTreeMap::from([(Lane::Background, policy())]))
            }
        };
        let mut recovery = Recovery::new(core);
        for record in found.records {
            match bug.and_then(|bug| misread(bug, record)) {
                None => recovery.take(record)?,
                Some(misread) => recovery.take(&misread)?,
            }
        }
        let (core, added) = recovery.finish(incarnation, TokenKey::default());
        let records = pack(added.iter().cloned());
        if !records.is_empty() {
            self.disk.append(&records);
        }
        self.alive = Some(Alive {
            dispatcher: Dispatcher::new(core, incarnation, Arc::clone(&self.metrics))
                .with_chunks(self.chunks.clone()),
            queue: VecDeque::new(),
            committing: Vec::new(),
            snapshot: None,
            has_failed: false,
        });
        Ok(added)
    }

    /// What waits for the disk and for the driver, and how much may.
    pub(super) fn check_bounds(&self) -> Result<(), Breach> {
        let Some(alive) = &self.alive else { return Ok(()) };
        let count = alive.queue.len();
        match count <= COMMIT_QUEUE_MAX {
            true => Ok(()),
            false => Err(Breach::Unbounded {
                what: "turns that wait for the disk",
                count,
                most: COMMIT_QUEUE_MAX,
            }),
        }
    }
}

/// A record as a planted bug reads it.
fn misread(bug: Bug, record: &[u8]) -> Option<Vec<u8>> {
    let facts: Vec<Fact> = gleaner_protocol::stored::decode(record).ok()?;
    let mut misread = match bug {
        Bug::ForgetsDecisions => {
            let is_vote = |fact: &Fact| {
                matches!(fact, Fact::Decided { .. } | Fact::Voted { .. } | Fact::Counted { .. })
            };
            pack(facts.into_iter().filter(|fact| !is_vote(fact)))
        }
        Bug::MixesUpVoters => pack(facts.into_iter().map(|fact| match fact {
            Fact::Voted { workunit, side, token, digest, cpu_us, .. } => {
                let host = format!("somebody{}", token.get());
                let host = HostName::new(host).expect("a plain name");
                Fact::Voted { workunit, side, host, owner: None, token, digest, cpu_us }
            }
            other => other,
        })),
        Bug::CutsRecordsShort => return record.split_last().map(|(_, rest)| rest.to_vec()),
        _ => return None,
    };
    Some(misread.pop().unwrap_or_else(|| gleaner_protocol::stored::encode(&Vec::<Fact>::new())))
}

/// The lanes of a farm, each under its usual policy but for background.
fn with_all_lanes(config: CoreConfig) -> CoreConfig {
    [Lane::Rendering, Lane::Deadline, Lane::Dataset, Lane::Batch]
        .into_iter()
        .fold(config, |config, lane| config.with_lane(lane, LanePolicy::default_of(lane)))
}

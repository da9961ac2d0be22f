//! Parts of frames: jobs of the rendering lane of which nothing is written down.
//!
//! A lost one is drawn again, so nobody waits for the disk: agents are answered at once, and so are
//! the views that wait for their frames.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::{BrokerMessage, Verdict};
use gleaner_protocol::job::{JobSpec, Task};
use gleaner_protocol::{AgentSecret, FrameStage, HostName, JobId, LeaseToken, Time, WorkunitId};
use gleaner_scheduling::{Effect, Fact, HostIx, Input, JobPhase, SubmitRefusal};

use super::super::contents::ContentRefusal;
use super::super::decided::Decided;
use super::Dispatcher;

/// Parts of frames that have ended, and are to be forgotten at the end of the turn.
#[derive(Debug, Default)]
pub(super) struct Frames {
    ended: Vec<JobId>,
    /// Hosts whose layers are joined, by what joins them.
    named: BTreeMap<JobId, BTreeSet<HostName>>,
}

impl Frames {
    /// What joins a strip of layers was told of these hosts.
    pub(super) fn note_named(&mut self, join: JobId, hosts: impl Iterator<Item = HostName>) {
        self.named.entry(join).or_default().extend(hosts);
    }

    /// These hosts, and none from then on.
    pub(super) fn take_named(&mut self, join: JobId) -> BTreeSet<HostName> {
        self.named.remove(&join).unwrap_or_default()
    }
}

/// How a frame comes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameNews {
    /// Which part.
    pub job: JobId,
    /// Of which frame.
    pub frame: u64,
    /// What happened.
    pub what: FrameStep,
}

/// What happened to a part of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameStep {
    /// A host got a task of it.
    Given {
        /// Which of its tasks. The same one comes again when its host gave it back or was lost.
        index: u32,
        /// Which host.
        host: HostName,
        /// Whether it has the chunk that is read, or none is.
        has_chunk: bool,
    },
    /// All of it is there.
    Done,
    /// It will not be there.
    Failed(String),
}

/// What a lease of a frame stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLease {
    /// Of which frame.
    pub frame: u64,
    /// Which part.
    pub stage: FrameStage,
    /// Which of its tasks.
    pub index: u32,
}

impl<M: Clone> Dispatcher<M> {
    /// Takes a part of a frame.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn submit_frame(
        &mut self,
        now: Time,
        spec: JobSpec,
        turn: &mut Decided<M>,
    ) -> Result<JobId, SubmitRefusal> {
        debug_assert!(spec.is_frame(), "what is written down is submitted in another way");
        let request = self.next_request();
        let mut effects = Vec::new();
        self.core.handle(now, Input::Submit { request, spec: Box::new(spec) }, &mut effects);
        let answer = effects.iter().find_map(|effect| match effect {
            Effect::Submitted { result, .. } => Some(result.clone()),
            _ => None,
        });
        effects.into_iter().for_each(|effect| self.translate(now, effect, turn));
        answer.expect("the core answers each submission")
    }

    /// Nobody wants these parts of frames any more.
    pub fn drop_frames(&mut self, now: Time, jobs: &[JobId], turn: &mut Decided<M>) {
        for &job in jobs.iter().filter(|job| job.is_frame()) {
            let request = self.next_request();
            self.feed(now, Input::Cancel { request, job }, turn);
        }
    }

    /// What joins layers of hosts that were told of it.
    pub fn joins(&self) -> impl Iterator<Item = JobId> {
        self.frames.named.keys().copied()
    }

    /// What the lease stands for that the agent which shows this secret has.
    ///
    /// # Errors
    /// It has no such lease.
    pub fn frame_lease(
        &self,
        secret: &AgentSecret,
        token: LeaseToken,
    ) -> Result<FrameLease, ContentRefusal> {
        let host = self.links.host_of(secret).ok_or(ContentRefusal::NoLink)?;
        let farm = self.core.farm();
        farm.host_named(host).ok_or(ContentRefusal::NoLink)?;
        let id = self.workunit_of_lease(host, token).ok_or(ContentRefusal::NoLease)?;
        match farm.job(id.job).map(|job| &job.spec.task) {
            Some(Task::Frame(task)) => {
                Ok(FrameLease { frame: task.frame, stage: task.stage, index: id.index })
            }
            _ => Err(ContentRefusal::NoLease),
        }
    }

    /// The part of a frame that a lease of a host is for.
    pub(super) fn job_of_frame(&self, host: &HostName, token: LeaseToken) -> Option<JobId> {
        self.workunit_of_lease(host, token).map(|id| id.job).filter(|job| job.is_frame())
    }

    fn workunit_of_lease(&self, host: &HostName, token: LeaseToken) -> Option<WorkunitId> {
        let farm = self.core.farm();
        let lease = farm.host_named(host)?.all_leases().find(|lease| lease.token == token)?;
        Some(farm.workunit(lease.workunit).id)
    }

    /// A task of a frame was given to a host.
    pub(super) fn frame_given(&self, host: HostIx, id: WorkunitId, turn: &mut Decided<M>) {
        let farm = self.core.farm();
        let chunk = farm.chunk_of(id);
        let has_chunk = chunk.is_none_or(|chunk| farm.has_copy(chunk, host));
        let host = farm.host(host).info.name.clone();
        self.tell_frame(id.job, FrameStep::Given { index: id.index, host, has_chunk }, turn);
    }

    /// What would be written down of another job.
    pub(super) fn note_of_frame(&mut self, now: Time, fact: &Fact, turn: &mut Decided<M>) {
        if let Fact::GivenUp { workunit, reason } = fact {
            self.note_layers(now, workunit.job, false);
            self.tell_frame(workunit.job, FrameStep::Failed(reason.clone()), turn);
        }
    }

    /// Answers a report at once.
    pub(super) fn answer_frame(
        &self,
        host: HostIx,
        token: LeaseToken,
        verdict: Verdict,
        turn: &mut Decided<M>,
    ) {
        if let Some(link) = self.links.of_host(host)
            && let Some(open) = self.links.get(link)
        {
            turn.order(link, &open.mailbox, BrokerMessage::Verdict { token, verdict });
        }
    }

    pub(super) fn frame_changed(&mut self, now: Time, job: JobId, turn: &mut Decided<M>) {
        let Some(known) = self.core.farm().job(job) else { return };
        match known.phase {
            JobPhase::Active => return,
            JobPhase::Ended if known.status().failed == 0 => {
                self.note_layers(now, job, true);
                self.tell_frame(job, FrameStep::Done, turn);
            }
            JobPhase::Cancelled => {
                self.tell_frame(job, FrameStep::Failed("it was cancelled".into()), turn);
            }
            // Told before.
            JobPhase::Ended => {}
        }
        self.frames.take_named(job);
        self.frames.ended.push(job);
    }

    /// Forgets what has ended in this turn.
    pub(super) fn forget_frames(&mut self, now: Time, turn: &mut Decided<M>) {
        for job in std::mem::take(&mut self.frames.ended) {
            for link in self.links.unteach(job) {
                self.write_link(link, BrokerMessage::Forget { job }, turn);
            }
            self.feed(now, Input::Forget { job }, turn);
        }
    }

    fn tell_frame(&self, job: JobId, what: FrameStep, turn: &mut Decided<M>) {
        let known = self.core.farm().job(job).map(|job| &job.spec.task);
        if let Some(Task::Frame(task)) = known {
            turn.frames.push(FrameNews { job, frame: task.frame, what });
        }
    }
}

//! What the driver is asked, and the handle to ask it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::api::{FarmEventsAccepted, Submitted};
use gleaner_protocol::control::{AgentMessage, BrokerMessage, ChunkSource, Outcome, Report};
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::limits::CPU_US_MAX;
use gleaner_protocol::{
    Account, AgentSecret, DatasetId, Digest, HostName, JobId, LeaseToken, Measured, ReplicaId,
    Time, boottime,
};
use gleaner_scheduling::{Core, ReportedOutcome, SubmitRefusal};
use thiserror::Error;
use tokio::sync::{Notify, mpsc, oneshot};

use super::Forgotten;
use super::contents::{ContentRefusal, ContentUse};
use super::dispatcher::FrameLease;
use crate::limits::OUTBOX_BATCHES_MAX;
use crate::people::People;

/// One control link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u64);

impl LinkId {
    /// Wraps a number that no other link of this broker's life has.
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Where a link's messages go.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    letters: mpsc::Sender<Vec<BrokerMessage>>,
    overflow: Arc<Notify>,
}

impl Outbox {
    /// An outbox, its other end, and what tells the link that it was full.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Vec<BrokerMessage>>, Arc<Notify>) {
        let (letters, receiver) = mpsc::channel(OUTBOX_BATCHES_MAX);
        let overflow = Arc::new(Notify::new());
        (Self { letters, overflow: Arc::clone(&overflow) }, receiver, overflow)
    }

    /// Posts messages. A link that does not keep up is told to end, since it would miss some:
    /// its agent comes back and says what it holds. `false` then.
    pub(crate) fn post(&self, messages: Vec<BrokerMessage>) -> bool {
        let posted = self.letters.try_send(messages).is_ok();
        if !posted {
            self.overflow.notify_one();
        }
        posted
    }
}

/// A report whose output was checked and hashed by its link.
#[derive(Debug, Clone)]
pub struct PreparedReport {
    /// When it came.
    pub received: Time,
    /// Its lease.
    pub token: LeaseToken,
    /// Which replica it is.
    pub replica: ReplicaId,
    /// What came of it.
    pub outcome: ReportedOutcome,
    /// The manifest's encoding, where there is an output.
    pub manifest: Option<(Digest, Vec<u8>)>,
    /// CPU time it took, in microseconds.
    pub cpu_us: u64,
    /// How long it took, where it has an output and was measured.
    pub measured: Option<Measured>,
    /// What went by while it ran, in microseconds; 0 where that is not known.
    pub wall_us: u64,
    /// Most memory that it took, in MiB.
    pub peak_memory_mib: Option<u64>,
}

impl PreparedReport {
    /// Checks and hashes what an agent reports, which came at `received`. `is_uploaded` says
    /// whether every blob that it names was uploaded.
    #[must_use]
    pub fn of(report: Report, is_uploaded: bool, received: Time) -> Self {
        let Report { token, replica, outcome, cpu_us, measured, wall_us, peak_memory_mib } = report;
        let (outcome, manifest) = match outcome {
            Outcome::Failed(reason) => (ReportedOutcome::Failed(reason), None),
            Outcome::Output(manifest) => match manifest.check() {
                Err(error) => {
                    tracing::warn!(%replica, "output refused: {error}");
                    (ReportedOutcome::Malformed, None)
                }
                Ok(()) if !is_uploaded => (ReportedOutcome::Malformed, None),
                Ok(()) => {
                    let encoded = manifest.encode();
                    let digest = Digest::of(&encoded);
                    (ReportedOutcome::Output(digest), Some((digest, encoded)))
                }
            },
        };
        let measured = measured.filter(|_| manifest.is_some());
        Self {
            received,
            token,
            replica,
            outcome,
            manifest,
            cpu_us: cpu_us.min(CPU_US_MAX),
            measured,
            wall_us: wall_us.min(CPU_US_MAX),
            peak_memory_mib,
        }
    }

    /// Counts its output as the one of this digest, which is stored already.
    pub(crate) fn join(&mut self, class: Digest) {
        self.outcome = ReportedOutcome::Output(class);
        self.manifest = None;
    }
}

/// A message from an agent.
#[derive(Debug, Clone)]
pub enum LinkMessage {
    /// As it came.
    Plain(AgentMessage),
    /// A report, prepared.
    Report(PreparedReport),
}

/// Reads the core, and returns what to do with what was read once all that is in it is durable.
type Query = Box<dyn FnOnce(&Core) -> Box<dyn FnOnce() + Send> + Send>;

/// Something for the driver to do.
pub(crate) enum Command {
    Submit {
        /// When it came.
        received: Time,
        spec: Box<JobSpec>,
        reply: oneshot::Sender<Result<Submitted, SubmitRefusal>>,
    },
    Cancel {
        job: JobId,
        reply: oneshot::Sender<bool>,
    },
    Forget {
        job: JobId,
        reply: oneshot::Sender<Forgotten>,
    },
    /// Outputs that come from now on are stored even where they were stored a moment ago.
    StoreAnew {
        reply: oneshot::Sender<()>,
    },
    LinkOpened {
        link: LinkId,
        outbox: Outbox,
    },
    LinkMessages {
        link: LinkId,
        messages: Vec<LinkMessage>,
    },
    LinkClosed {
        link: LinkId,
    },
    /// It was closed for good: whoever had it may not come back.
    LinkExpelled {
        link: LinkId,
    },
    /// These get nothing more in background for now, and all others do.
    HoldBack(BTreeSet<Account>),
    /// Somebody has a key from now on, or has none any more.
    KeysChanged(People),
    Farm {
        events: Vec<FarmEvent>,
        reply: oneshot::Sender<FarmEventsAccepted>,
    },
    /// Answered at once: a lease is not durable anyway.
    MayUse {
        secret: AgentSecret,
        what: ContentUse,
        reply: oneshot::Sender<Result<(), ContentRefusal>>,
    },
    /// Harvest is stopped for this reason, or goes on.
    Halt(Option<String>),
    /// A dataset is there from now on.
    DatasetAdded(DatasetId),
    /// A dataset is gone.
    DatasetRemoved(DatasetId),
    /// What was used for accounts before this broker began, in core-seconds as they count now.
    NoteUsed(BTreeMap<Account, f64>),
    /// A part of a frame; answered at once, for nothing of it is written down.
    Frame {
        spec: Box<JobSpec>,
        reply: oneshot::Sender<Result<JobId, SubmitRefusal>>,
    },
    /// Nobody wants these parts of frames any more.
    DropFrames(Vec<JobId>),
    FrameLease {
        secret: AgentSecret,
        token: LeaseToken,
        reply: oneshot::Sender<Result<FrameLease, ContentRefusal>>,
    },
    LayerKeeper {
        secret: AgentSecret,
        token: LeaseToken,
        reply: oneshot::Sender<Result<(FrameLease, Option<HostName>), ContentRefusal>>,
    },
    NameLayers {
        secret: AgentSecret,
        token: LeaseToken,
        layers: Vec<(HostName, Digest)>,
        reply: oneshot::Sender<Option<Vec<ChunkSource>>>,
    },
    Query(Query),
}

/// The driver does not answer: the broker is stopping, or its store has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the broker is stopping or has failed; it is not known whether it took this: look before you try again"
)]
pub struct DriverGone;

/// The way to the driver. Clones lead to the same one.
#[derive(Clone)]
pub struct DriverHandle {
    commands: mpsc::Sender<Command>,
}

impl DriverHandle {
    pub(crate) fn new(commands: mpsc::Sender<Command>) -> Self {
        Self { commands }
    }

    /// Whether the driver has ended, and nobody will answer any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.commands.is_closed()
    }

    pub(crate) async fn send(&self, command: Command) -> Result<(), DriverGone> {
        self.commands.send(command).await.map_err(|_| DriverGone)
    }

    /// Accepts a job; on disk when this returns.
    pub(crate) async fn submit(
        &self,
        spec: JobSpec,
    ) -> Result<Result<Submitted, SubmitRefusal>, DriverGone> {
        let (received, (reply, answer)) = (boottime(), oneshot::channel());
        self.send(Command::Submit { received, spec: Box::new(spec), reply }).await?;
        answer.await.map_err(|_| DriverGone)
    }

    /// Cancels a job; `false` where there is none.
    pub(crate) async fn cancel(&self, job: JobId) -> Result<bool, DriverGone> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Cancel { job, reply }).await?;
        answer.await.map_err(|_| DriverGone)
    }

    /// Forgets a job that has ended; on disk when this returns.
    pub(crate) async fn forget(&self, job: JobId) -> Result<Forgotten, DriverGone> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Forget { job, reply }).await?;
        answer.await.map_err(|_| DriverGone)
    }

    /// Hands every output that is reported from now on to the store, equal ones too.
    pub(crate) async fn store_anew(&self) -> Result<(), DriverGone> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::StoreAnew { reply }).await?;
        answer.await.map_err(|_| DriverGone)
    }

    /// Passes the monitor's word on to the agents concerned.
    pub(crate) async fn farm(
        &self,
        events: Vec<FarmEvent>,
    ) -> Result<FarmEventsAccepted, DriverGone> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Farm { events, reply }).await?;
        answer.await.map_err(|_| DriverGone)
    }

    /// Whether the agent that shows this secret may do this with contents.
    pub(crate) async fn may_use(
        &self,
        secret: AgentSecret,
        what: ContentUse,
    ) -> Result<Result<(), ContentRefusal>, DriverGone> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::MayUse { secret, what, reply }).await?;
        answer.await.map_err(|_| DriverGone)
    }

    /// Has a part of a frame drawn.
    pub(crate) async fn submit_frame(
        &self,
        spec: JobSpec,
    ) -> Result<Result<JobId, SubmitRefusal>, DriverGone> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Frame { spec: Box::new(spec), reply }).await?;
        answer.await.map_err(|_| DriverGone)
    }

    /// Ends parts of frames that nobody wants any more.
    pub(crate) async fn drop_frames(&self, jobs: Vec<JobId>) -> Result<(), DriverGone> {
        if jobs.is_empty() { Ok(()) } else { self.send(Command::DropFrames(jobs)).await }
    }

    /// What the lease stands for that the agent which shows this secret has.
    pub(crate) async fn frame_lease(
        &self,
        secret: AgentSecret,
        token: LeaseToken,
    ) -> Result<Result<FrameLease, ContentRefusal>, DriverGone> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::FrameLease { secret, token, reply }).await?;
        answer.await.map_err(|_| DriverGone)
    }

    /// The same of a layer that an agent would keep: its host, where it may.
    pub(crate) async fn layer_keeper(
        &self,
        secret: AgentSecret,
        token: LeaseToken,
    ) -> Result<Result<(FrameLease, Option<HostName>), ContentRefusal>, DriverGone> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::LayerKeeper { secret, token, reply }).await?;
        answer.await.map_err(|_| DriverGone)
    }

    /// Lets an agent fetch layers that others keep; where each is, or none where one is gone.
    pub(crate) async fn name_layers(
        &self,
        secret: AgentSecret,
        token: LeaseToken,
        layers: Vec<(HostName, Digest)>,
    ) -> Result<Option<Vec<ChunkSource>>, DriverGone> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::NameLayers { secret, token, layers, reply }).await?;
        answer.await.map_err(|_| DriverGone)
    }

    /// Reads the core. The answer comes when everything in it is durable.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, DriverGone> {
        let (reply, answer) = oneshot::channel();
        let query: Query = Box::new(move |core| {
            let read = read(core);
            Box::new(move || {
                // Whoever asked may have gone.
                let _ = reply.send(read);
            })
        });
        self.send(Command::Query(query)).await?;
        answer.await.map_err(|_| DriverGone)
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{JobId, WorkunitId};

    use super::*;

    #[test]
    fn no_replica_takes_more_cpu_time_than_there_is() {
        let workunit = WorkunitId { job: JobId::new(1), index: 0 };
        let report = Report {
            token: LeaseToken::new(1),
            replica: ReplicaId { workunit, attempt: 1 },
            outcome: Outcome::Failed("no".into()),
            cpu_us: u64::MAX,
            measured: None,
            wall_us: u64::MAX,
            peak_memory_mib: None,
        };
        assert_eq!(PreparedReport::of(report, true, Time::ZERO).cpu_us, CPU_US_MAX);
    }
}

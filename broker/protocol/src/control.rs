//! The control link: one WebSocket per agent, opened by the agent at `/v1/control`.
//!
//! Binary frames, each a [`codec`]-encoded `Vec` of messages, so that what is ready together
//! travels together. The agent speaks first ([`AgentMessage::Hello`]), the broker answers with
//! [`BrokerMessage::Welcome`]; anything else before that ends the link.
//!
//! # Invariants
//! - No frame is longer than [`CONTROL_MESSAGE_BYTES_MAX`], or has more messages than
//!   [`FRAME_MESSAGES_MAX`]; either end may hang up on a longer one.
//! - A replica is named by its lease's token alone; every message about it carries the token.
//! - The agent keeps a report until its [`BrokerMessage::Verdict`] has come, over reconnects and
//!   restarts of the broker. The verdict comes after the report is on the broker's disk.
//! - The agent has the last word on its fragment: its replicas never take more than the
//!   [`Fragment`] that it announced last, but for those that save where they are before they go, which
//!   do so on the same cores.

mod moves;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::codec::{self, DecodeError};
use crate::farm::OpeningSeal;
use crate::job::{OnRelease, Task};
use crate::limits::{CONTROL_MESSAGE_BYTES_MAX, FRAME_MESSAGES_MAX};
use crate::{
    AgentMetrics, AgentSecret, BookingId, ChunkFile, Digest, DigestHasher, Epoch, HostInfo,
    HostName, JobId, Kept, LeaseToken, Limit, LimitsChange, Manifest, Measured, ReplicaId, Share,
};

pub use moves::{
    ChunkPeer, ChunkSource, FetchChunk, ServeChunk, SourceFailed, SourceFault, Within,
};

/// From an agent to the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentMessage {
    /// First on every link.
    Hello(Hello),
    /// What the host gives from now on.
    Fragment(Fragment),
    /// Asks for work for so many more cores, which nothing runs on.
    Request {
        /// How many.
        cores: u32,
    },
    /// What a replica produced.
    Report(Report),
    /// A replica is no longer held, and not done.
    Released(Released),
    /// How far a running replica has come.
    Progress {
        /// Which replica.
        token: LeaseToken,
        /// Done, in thousandths.
        permille: u16,
    },
    /// An opening was not obeyed.
    OpeningRefused {
        /// The epoch it was decided on.
        decided_on: Epoch,
        /// The epoch at which the host stands.
        current: Epoch,
    },
    /// A replica is frozen from now on and takes no slot, or goes on and takes one again.
    Frozen {
        /// Which replica.
        token: LeaseToken,
        /// Whether it is frozen.
        frozen: bool,
    },
    /// A running replica saved where it is, and the broker has it under this name.
    Saved {
        /// Which replica.
        token: LeaseToken,
        /// What it saved.
        state: Digest,
    },
    /// Which copies of chunks the host keeps.
    Copies(Copies),
    /// Another host gave no copy, or a wrong one.
    SourceFailed(SourceFailed),
    /// What it counted and measured, now and then.
    Metrics(AgentMetrics),
    /// Something on the host needs a person, and nothing runs there; or does not any more.
    Alarm {
        /// What, in words; none where it is over.
        reason: Option<String>,
    },
}

/// Which copies of chunks a host keeps, or what has changed of that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Copies {
    /// The hash of all of them ([`copies_digest`]), after each [`BrokerMessage::Welcome`].
    Have(Digest),
    /// What came and what went since. What could not be fetched is among what went.
    Changed {
        /// Copies that are there now.
        gained: Vec<ChunkCopy>,
        /// Copies that are not.
        lost: Vec<Digest>,
    },
    /// All of them, as the broker asked for, in one message or several.
    All {
        /// Whether none came before: what is not listed from here on is not there.
        is_first: bool,
        /// Copies that are there.
        copies: Vec<ChunkCopy>,
    },
}

/// A copy of a chunk on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkCopy {
    /// Its content.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
}

/// The hash of a set of copies, given in order.
#[must_use]
pub fn copies_digest<'a>(sorted: impl IntoIterator<Item = &'a Digest>) -> Digest {
    let mut hasher = DigestHasher::default();
    sorted.into_iter().for_each(|digest| hasher.update(digest.as_bytes()));
    hasher.finish()
}

/// Who connects, and what it still holds from before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The host.
    pub host: HostInfo,
    /// Known to this host's agent alone: without it nobody takes the place of a link that stands.
    pub secret: AgentSecret,
    /// Drawn at random when the agent process started: tells a reconnect from a restart.
    pub incarnation: u64,
    /// The fragment now.
    pub fragment: Fragment,
    /// Replicas that run, or are done with an unacknowledged report.
    pub held: Vec<Held>,
    /// How other agents know it, where it keeps copies of chunks.
    pub peer: Option<Box<ChunkPeer>>,
}

/// A replica that an agent holds over a reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Its lease.
    pub token: LeaseToken,
    /// Which replica it is.
    pub replica: ReplicaId,
    /// What it does.
    pub state: HeldState,
    /// Whether another host had a say in where it went on from.
    pub goes_on: bool,
    /// What it takes of the host's cores while it runs.
    pub share: Share,
}

/// What a replica does that an agent holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldState {
    /// It is in a slot.
    Runs,
    /// It takes no slot: a render has frozen it.
    Aside,
    /// It takes nothing: it has ended, and only its report is unacknowledged.
    Ended,
    /// It takes no slot: the broker parked it, and it waits for [`BrokerMessage::Resume`].
    Parked,
}

impl HeldState {
    /// Whether it takes a slot.
    #[must_use]
    pub fn takes_slot(self) -> bool {
        self == Self::Runs
    }
}

/// What a host gives: the agent's decision, no larger than the monitor's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fragment {
    /// The host's epoch.
    pub epoch: Epoch,
    /// Cores for replicas to run on; 0 while it is closed.
    pub cores: u32,
    /// Memory for all replicas that it holds, in MiB; without a bound where it does not say.
    pub memory_mib: Option<u64>,
    /// GPUs likewise.
    pub gpus: u32,
}

impl Fragment {
    /// What of memory and GPUs all replicas may have together, those included that stand still.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let most = |mib| u32::try_from(mib).unwrap_or(u32::MAX);
        let memory_mib = self.memory_mib.map_or(u32::MAX, most);
        Kept { memory_mib, gpus: u8::try_from(self.gpus).unwrap_or(u8::MAX) }
    }

    /// What of that is left beside what replicas have. Of memory without a bound as much is left.
    #[must_use]
    pub fn kept_left(&self, held: Kept) -> Kept {
        let given = self.kept();
        let left = given.minus(held);
        let is_bound = self.memory_mib.is_some();
        Kept { memory_mib: if is_bound { left.memory_mib } else { given.memory_mib }, ..left }
    }
}

/// What came of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its lease.
    pub token: LeaseToken,
    /// Which replica it is.
    pub replica: ReplicaId,
    /// Its output, or why there is none.
    pub outcome: Outcome,
    /// CPU time it took, in microseconds.
    pub cpu_us: u64,
    /// How long it took from its beginning to its end, where it is a kernel with a specification and
    /// nothing held it up.
    pub measured: Option<Measured>,
    /// What went by while it ran, without the time for which it stood still, in microseconds; 0 where
    /// that is not known.
    pub wall_us: u64,
    /// Most memory that it took, in MiB, where its host can say.
    pub peak_memory_mib: Option<u64>,
}

/// Whether a replica has an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Done.
    Output(Manifest),
    /// It ran and failed; in the task's words.
    Failed(String),
}

/// A replica that a host gave back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Its lease.
    pub token: LeaseToken,
    /// Why.
    pub reason: ReleaseReason,
    /// CPU time that it took, as it was seen last and by what went by since then, in microseconds.
    pub cpu_us: u64,
}

/// Why a host gave a replica back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseReason {
    /// A render wants the cores.
    Preempted,
    /// The fragment ended: it was closed, or nobody confirmed it in time.
    FragmentClosed,
    /// The broker asked for it.
    Aborted,
    /// It cannot run here at all: not allowed, an input missing, a broken runner. It is no attempt
    /// at the workunit; the host gets nothing that asks for the same ability for a while, which
    /// grows with each refusal in a row.
    CannotRun(String),
    /// Something of the host itself is in the way: its work folder is full ("No space left on
    /// device" while an input is fetched), a file system is read-only, memory ran out. The agent
    /// gives the replica back with this reason, never with a failure, and says
    /// [`AgentMessage::Alarm`] where a person has to act. It is no attempt at the workunit, and
    /// nobody holds it against the job; the host gets nothing that asks for the same ability for
    /// a while, as after [`ReleaseReason::CannotRun`].
    HostTrouble(String),
}

/// From the broker to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BrokerMessage {
    /// Answers [`AgentMessage::Hello`].
    Welcome {
        /// Which start of the broker this is; its lower 16 bits are the upper part of its tokens.
        incarnation: u32,
        /// Which of the held replicas stay held. All others are to be ended and forgotten, but for
        /// reports, which are sent again: each waits for its verdict.
        adopted: Vec<LeaseToken>,
    },
    /// The monitor's word that the farm leaves cores free. Farm hosts only.
    Opening(Opening),
    /// The monitor's word that it does not, any more.
    Closing {
        /// Why, for the log and for people.
        reason: String,
    },
    /// The task of a job, before the first lease of it on this link.
    Task {
        /// The job.
        job: JobId,
        /// What its workunits run.
        task: Task,
        /// What becomes of one that a render drives out.
        on_release: OnRelease,
        /// GPUs that each of them has to itself.
        gpus: u8,
    },
    /// The agent need not remember this job's task any longer.
    Forget {
        /// The job.
        job: JobId,
    },
    /// A replica to run.
    Lease(Lease),
    /// What a replica that runs may use from now on, until it ends.
    Limit {
        /// Its lease.
        token: LeaseToken,
        /// What changes.
        limits: LimitsChange,
    },
    /// A replica to freeze where it is: a lane before its own takes its slot, with the next lease.
    /// A host that cannot keep it, or has kept it for as long as its owner allows, gives it back.
    Park {
        /// Its lease.
        token: LeaseToken,
    },
    /// A parked replica to let go on, in the place of one that was asked for. Where there is no
    /// room for it any more the host keeps it frozen, and says so.
    Resume {
        /// Its lease.
        token: LeaseToken,
    },
    /// A replica to end: nobody wants its output any more.
    Abort {
        /// Its lease.
        token: LeaseToken,
        /// Why.
        reason: AbortReason,
    },
    /// A report was received, and is on disk where it counts: forget it.
    Verdict {
        /// Its lease.
        token: LeaseToken,
        /// What it changed.
        verdict: Verdict,
    },
    /// The agent is to say which copies of chunks it keeps: the broker knows of others.
    ListCopies,
    /// A copy of a chunk to fetch and keep.
    FetchChunk(FetchChunk),
    /// Who may read a copy that this host has.
    ServeChunk(ServeChunk),
    /// Copies that nobody wants any more: their dataset was removed.
    DropCopies(Vec<Digest>),
    /// The agent broke the rules of this link, which ends now.
    Refused {
        /// Which rule.
        reason: String,
    },
}

/// A fragment that the farm leaves, itself a lease: it ends unless it is confirmed by another
/// opening.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The host's epoch when this was decided.
    pub epoch: Epoch,
    /// Cores that no render has booked, the reserve taken off.
    pub cores: u32,
    /// Memory likewise, in MiB.
    pub memory_mib: u64,
    /// Cores that renders have booked there.
    pub booked_cores: u32,
    /// GPUs likewise; none where one of them does not say.
    pub gpus: Option<u32>,
    /// For how long, in milliseconds from its arrival.
    pub valid_ms: u64,
    /// Bookings that the host's run folder still had when it was last heard of, and that the
    /// farm itself says have ended: their postflight was lost.
    pub ended: Vec<BookingId>,
    /// By whom all that is said. A host that knows its monitor's key obeys nobody else.
    pub seal: Option<Box<OpeningSeal>>,
}

impl Opening {
    /// What a monitor signs of an opening of a host: a hash of all that it says, and of when. Its form
    /// outlives versions of this protocol: a monitor may be of another release.
    ///
    /// # Panics
    /// If one of our own types cannot be serialised, which all can.
    #[must_use]
    pub fn sealed_text(&self, host: &HostName, at_ms: u64) -> String {
        let Self { epoch, cores, memory_mib, booked_cores, gpus, valid_ms, ended, seal: _ } = self;
        let said = (host, at_ms, epoch, cores, memory_mib, booked_cores, gpus, valid_ms, ended);
        let said = postcard::to_extend(&said, Vec::new()).expect("our own types serialise");
        format!("1 {}", Digest::of(&said))
    }
}

/// A replica given to a host until a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its fencing token.
    pub token: LeaseToken,
    /// Which replica.
    pub replica: ReplicaId,
    /// The workunit's item, where the job has items.
    pub item: Option<String>,
    /// The chunk that the workunit reads, where its job reads a dataset.
    pub chunk: Option<Box<ChunkFile>>,
    /// What it may use of its host from the beginning.
    pub limits: LimitsChange,
    /// What an earlier replica saved, if it is to go on from there. Where it cannot be had it begins
    /// anew.
    pub goes_on: Option<GoesOn>,
    /// Whether what it saves may be of use to another host; else it need not be brought to the broker.
    pub hands_on: bool,
}

impl Lease {
    /// What it takes of its host's cores from the beginning: one where its limits say nothing.
    #[must_use]
    pub fn share(&self) -> Share {
        self.limits.share.and_then(Limit::value).unwrap_or(Share::WHOLE)
    }
}

/// Where a replica goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoesOn {
    /// What was saved.
    pub state: Digest,
    /// Whether nobody but this host has a say in it; then what the host itself has is as good.
    pub is_own: bool,
}

/// Why a replica is no longer wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbortReason {
    /// The workunit was decided without it.
    Decided,
    /// The workunit was given up.
    GivenUp,
    /// The job was cancelled.
    Cancelled,
    /// The lease ran out.
    Expired,
    /// Another one is to have its slot, which counts as asked for: its lease comes without a
    /// request.
    Preempted,
    /// The host's fragment shrank.
    FragmentClosed,
    /// The broker does not know this lease.
    Unknown,
}

/// What a report changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is a vote.
    Counted,
    /// The same report came before and was counted then.
    Duplicate,
    /// The lease had ended: it expired, was aborted, or belongs to another host.
    OldToken,
    /// This host, or another of its owner, has voted on the workunit before.
    SecondVote,
    /// The workunit was decided or given up before.
    Late,
    /// The job is not known (any more).
    UnknownJob,
    /// The output was refused: malformed, too large, or a blob of it was not uploaded.
    Malformed,
    /// It failed where it went on from what another host saved: it is nobody's failure, and begun
    /// anew.
    Spoiled,
}

/// Encodes messages into one frame.
#[must_use]
pub fn encode_frame<M: Serialize>(messages: &[M]) -> Vec<u8> {
    codec::encode(messages)
}

/// Encodes messages into frames, in order: one where they fit, else as few as halving makes. None has
/// more than [`FRAME_MESSAGES_MAX`].
///
/// # Errors
/// [`TooLong`], with the first message that no frame can carry.
pub fn encode_frames<M: Serialize>(messages: &[M]) -> Result<Vec<Vec<u8>>, TooLong> {
    if messages.len() <= FRAME_MESSAGES_MAX {
        let frame = encode_frame(messages);
        if frame.len() <= CONTROL_MESSAGE_BYTES_MAX {
            return Ok(vec![frame]);
        }
        if messages.len() == 1 {
            return Err(TooLong { bytes: frame.len() });
        }
    }
    let (first, second) = messages.split_at(messages.len() / 2);
    let mut frames = encode_frames(first)?;
    frames.extend(encode_frames(second)?);
    Ok(frames)
}

/// A message that no frame can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a message of {bytes} bytes is longer than a frame may be ({CONTROL_MESSAGE_BYTES_MAX})")]
pub struct TooLong {
    /// How long its frame would be.
    pub bytes: usize,
}

/// Decodes a frame. How many messages it has is known before memory is taken for them.
///
/// # Errors
/// Those of [`codec::decode`], and too many messages.
pub fn decode_frame<M: DeserializeOwned>(frame: &[u8]) -> Result<Vec<M>, DecodeError> {
    let count = codec::list_length(frame)?;
    if count > FRAME_MESSAGES_MAX {
        return Err(DecodeError::TooMany { count, max: FRAME_MESSAGES_MAX });
    }
    codec::decode(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_tiny_messages_go_in_more_frames_and_are_refused_in_one() {
        let many = vec![AgentMessage::Request { cores: 0 }; 3 * FRAME_MESSAGES_MAX];
        let frames = encode_frames(&many).expect("each fits");
        assert_eq!(frames.len(), 4, "as few as halving makes");
        let decoded = frames.iter().flat_map(|frame| decode_frame(frame).expect("our own"));
        assert_eq!(decoded.collect::<Vec<AgentMessage>>(), many);
        let error = decode_frame::<AgentMessage>(&encode_frame(&many)).expect_err("too many");
        assert!(matches!(error, DecodeError::TooMany { count, .. } if count == many.len()));
        // It is the number that is believed, not what follows.
        let claimed = codec::encode(&[u64::MAX][..]);
        let claims_much = [&claimed[..1], &claimed[2..]].concat();
        assert!(matches!(
            decode_frame::<AgentMessage>(&claims_much),
            Err(DecodeError::TooMany { .. } | DecodeError::Malformed(_))
        ));
    }
}

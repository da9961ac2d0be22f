//! What can happen.

use gleaner_protocol::control::{AgentMessage, BrokerMessage, ChunkCopy};
use gleaner_protocol::farm::{Booked, FarmEvent, HookEvent, HostSample};
use gleaner_protocol::{BookingId, DatasetId, JobId, LeaseToken, Time, ViewWish};

use super::faults::Fault;
use super::monitor_life::Poll;
use crate::storm::disk::Step;
use crate::storm::machine::WireId;
use crate::storm::viewer::Shown;

/// Something that happens at its time. What was meant for a process that is gone says for which.
pub(super) enum Event {
    Submit,
    Cancel(JobId),
    Turn { life: u64 },
    BrokerTimer { at: Time },
    Committed { life: u64 },
    BrokerDies { life: u64, step: Step },
    BrokerStarts,
    DiskHasSpace,
    WireOpens { host: usize, life: u64 },
    ToBroker { wire: WireId, messages: Vec<AgentMessage> },
    ToAgent { wire: WireId, messages: Vec<BrokerMessage> },
    ClosesAtBroker { wire: WireId },
    ClosesAtAgent { wire: WireId },
    SilentForAgent { wire: WireId },
    SilentForBroker { wire: WireId },
    AgentStarts { host: usize, boot: u64 },
    AgentWakes { host: usize, life: u64 },
    AgentGoesOn { host: usize, life: u64 },
    ReleaseHeard { host: usize, life: u64 },
    TaskBegins { host: usize, token: LeaseToken },
    TaskSaves { host: usize, token: LeaseToken },
    TaskEnds { host: usize, token: LeaseToken },
    Stored { host: usize, token: LeaseToken, works: bool },
    DatasetComes(DatasetId),
    DatasetGoes(DatasetId),
    Fetched { host: usize, life: u64, chunk: ChunkCopy, works: bool },
    ViewerComes { viewer: usize },
    ViewerMoves { viewer: usize, visit: u64 },
    ViewerSays { viewer: usize, visit: u64, wish: ViewWish },
    SessionLeft { viewer: usize, visit: u64 },
    SessionWakes { viewer: usize, visit: u64, at: Time },
    FrameArrives { viewer: usize, visit: u64, frame: Shown },
    FrameDrawn { viewer: usize, visit: u64, seq: u64 },
    SampleDue { host: usize, life: u64 },
    SampleArrives(Box<HostSample>),
    RenderComes { host: usize },
    Preflight(Box<Hook>),
    PreflightAsks(Box<Hook>),
    RenderEnds { host: usize, boot: u64, booking: BookingId },
    HookTells { event: Box<HookEvent>, tries: u8 },
    PollDue,
    PollAnswers(Box<Poll>),
    MonitorStarts,
    MonitorWakes { at: Time },
    MonitorPosts { life: u64 },
    PostArrives { post: u64, events: Vec<FarmEvent> },
    PostAnswered { post: u64, is_taken: bool },
    HostBoots { host: usize },
    FolderWorks { host: usize },
    Fault(Fault),
    Calm,
}

/// A preflight hook under way.
#[derive(Debug, Clone)]
pub(super) struct Hook {
    pub(super) host: usize,
    pub(super) boot: u64,
    pub(super) booking: BookingId,
    pub(super) booked: Booked,
    pub(super) epoch: Option<gleaner_protocol::Epoch>,
    pub(super) change: Option<gleaner_hooks::BookingChange>,
}

/// What is told of an event where something went wrong after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label {
    pub(super) name: &'static str,
    pub(super) host: Option<usize>,
}

impl Event {
    pub(super) fn label(&self) -> Label {
        let on = |name, host: &usize| Label { name, host: Some(*host) };
        let of = |name| Label { name, host: None };
        match self {
            Self::Submit => of("a submission"),
            Self::Cancel(_) => of("a cancellation"),
            Self::Turn { .. } => of("a turn of the broker"),
            Self::BrokerTimer { .. } => of("the broker's timer"),
            Self::Committed { .. } => of("a commit"),
            Self::BrokerDies { .. } => of("the broker's death"),
            Self::BrokerStarts => of("the broker's start"),
            Self::DiskHasSpace => of("space on the disk"),
            Self::WireOpens { host, .. } => on("a new link", host),
            Self::ToBroker { .. } => of("messages to the broker"),
            Self::ToAgent { .. } => of("messages to an agent"),
            Self::ClosesAtBroker { .. } => of("the end of a link at the broker"),
            Self::ClosesAtAgent { .. } => of("the end of a link at an agent"),
            Self::SilentForAgent { .. } => of("silence at an agent"),
            Self::SilentForBroker { .. } => of("silence at the broker"),
            Self::AgentStarts { host, .. } => on("the agent's start", host),
            Self::AgentWakes { host, .. } => on("the agent's timer", host),
            Self::AgentGoesOn { host, .. } => on("the agent going on", host),
            Self::ReleaseHeard { host, .. } => on("a release", host),
            Self::TaskBegins { host, .. } => on("a replica's begin", host),
            Self::TaskSaves { host, .. } => on("a replica's state", host),
            Self::TaskEnds { host, .. } => on("a replica's end", host),
            Self::Stored { host, .. } => on("an upload", host),
            Self::DatasetComes(_) => of("a new dataset"),
            Self::DatasetGoes(_) => of("the end of a dataset"),
            Self::Fetched { host, .. } => on("a copy of a chunk", host),
            Self::ViewerComes { .. } => of("a viewer's coming"),
            Self::ViewerMoves { .. } => of("a viewer's move"),
            Self::ViewerSays { .. } => of("the word of a viewer"),
            Self::SessionLeft { .. } => of("a viewer's going"),
            Self::SessionWakes { .. } => of("news of frames"),
            Self::FrameArrives { .. } => of("a frame at its viewer"),
            Self::FrameDrawn { .. } => of("a frame that is drawn"),
            Self::SampleDue { host, .. } => on("taking a sample", host),
            Self::SampleArrives(_) => of("a sample"),
            Self::RenderComes { host } => on("a render", host),
            Self::Preflight(hook) => on("the begin of a preflight", &hook.host),
            Self::PreflightAsks(hook) => on("a preflight", &hook.host),
            Self::RenderEnds { host, .. } => on("the end of a render", host),
            Self::HookTells { .. } => of("the word of a hook"),
            Self::PollDue => of("a poll"),
            Self::PollAnswers(_) => of("the answer to a poll"),
            Self::MonitorStarts => of("the monitor's start"),
            Self::MonitorWakes { .. } => of("the monitor's timer"),
            Self::MonitorPosts { .. } => of("the monitor posting"),
            Self::PostArrives { .. } => of("a post of the monitor"),
            Self::PostAnswered { .. } => of("the answer to the monitor"),
            Self::HostBoots { host } => on("a boot", host),
            Self::FolderWorks { host } => on("space in the run folder", host),
            Self::Fault(fault) => of(fault.name()),
            Self::Calm => of("the calm"),
        }
    }
}

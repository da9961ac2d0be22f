//! A host: its run folder, the processes on it, and what the farm does with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_agent::Gate;
use gleaner_agent::harvest::{Harvest, RunResult};
use gleaner_protocol::control::{AgentMessage, BrokerMessage, ChunkCopy};
use gleaner_protocol::farm::Booked;
use gleaner_protocol::{
    BookingId, Capabilities, Digest, Epoch, FRAME_KERNEL, FrameStage, HostInfo, HostName,
    KernelName, LeaseToken, Origin, OwnerName, ReplicaId, Share, Span, Time,
};

use super::folder::Folder;
use super::rules::{LARGE_MIB, MEMORY_MIB};

/// One connection, open at one end or at both.
pub(super) type WireId = u64;

/// A host.
pub(super) struct Machine {
    pub(super) info: HostInfo,
    pub(super) is_faulty: bool,
    /// Whether it fails or refuses all it is given, at once.
    pub(super) is_black_hole: bool,
    /// How many times longer than elsewhere everything takes.
    pub(super) slowness: u32,
    pub(super) is_on: bool,
    /// Counts boots; what was meant for an earlier one is dropped.
    pub(super) boot: u64,
    /// How far its clock has jumped ahead of the true time.
    pub(super) ahead: Span,
    pub(super) folder: Folder,
    /// Processes of replicas.
    pub(super) tasks: BTreeMap<LeaseToken, Task>,
    /// What the farm runs on it, or its owner does.
    pub(super) renders: BTreeMap<BookingId, Render>,
    pub(super) agent: Option<Agent>,
    /// Copies of chunks on its disk.
    pub(super) copies: BTreeMap<Digest, u64>,
    /// Until when nothing gets through: to the broker, from it, and to the monitor.
    pub(super) cut_until: [Time; 3],
}

/// The process of a replica.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) replica: ReplicaId,
    pub(super) item: Option<String>,
    /// What of a frame it draws, where it does.
    pub(super) drawn: Option<Drawn>,
    /// What another saved, where it goes on from that.
    pub(super) goes_on: Option<Digest>,
    /// Whether what it saves may be of use to another host.
    pub(super) hands_on: bool,
    /// What it takes of the cores.
    pub(super) share: Share,
    pub(super) epoch: Epoch,
    pub(super) since: Time,
    /// Whether it computes; before, its runner is only being readied.
    pub(super) runs: bool,
    pub(super) stands: Stands,
}

/// A part of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub(super) stage: FrameStage,
    /// Strips of a layer.
    pub(super) strips: u8,
}

/// Whether a process stands still for another lane.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stands {
    pub(super) is_parked: bool,
    /// Whether it would have ended meanwhile.
    pub(super) is_due: bool,
}

/// What a host is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Render {
    pub(super) booked: Booked,
    /// Whether its preflight has returned, so that it uses its cores.
    pub(super) renders: bool,
}

/// The process of an agent.
pub(super) struct Agent {
    /// Counts agents of all hosts; what was meant for another is dropped.
    pub(super) life: u64,
    pub(super) harvest: Harvest,
    pub(super) gate: Gate,
    pub(super) wire: Option<WireId>,
    pub(super) outgoing: Vec<AgentMessage>,
    /// A hook could not raise the epoch: it has to.
    pub(super) owes_epoch: bool,
    /// When to look at the run folder again, by its own clock.
    pub(super) look_again: Option<Time>,
    /// When it is woken next, in true time.
    pub(super) wake: Option<Time>,
    /// Stopped as a whole, until it goes on.
    pub(super) is_stopped: bool,
    /// Its main loop is held up; it answers hooks all the same.
    pub(super) is_busy: bool,
    pub(super) releases: VecDeque<Released>,
    pub(super) waiting: VecDeque<News>,
    /// Chunks that it fetches.
    pub(super) fetching: BTreeSet<Digest>,
    /// Layers of frames that it keeps, the oldest first.
    pub(super) layers: Vec<Digest>,
    /// The longest wait before the next try to reach the broker, in milliseconds.
    pub(super) backoff_ms: u64,
}

/// What a hook did, for the main loop.
#[derive(Debug)]
pub(super) struct Released {
    pub(super) stopped: Vec<LeaseToken>,
    pub(super) raise_epoch: bool,
}

/// What else its main loop hears of.
#[derive(Debug)]
pub(super) enum News {
    Begins(LeaseToken),
    Ended { token: LeaseToken, result: RunResult, epoch_raised: bool },
    Stored(LeaseToken, Result<(), String>),
    Kept(LeaseToken, Digest),
    Fetched { chunk: ChunkCopy, works: bool },
    Messages(WireId, Vec<BrokerMessage>),
    Gone(WireId),
}

impl Task {
    /// Whether it uses a core.
    pub(super) fn computes(&self) -> bool {
        self.runs && !self.stands.is_parked
    }
}

impl Machine {
    pub(super) fn new(number: usize, origin: Origin, cores: u32, is_faulty: bool) -> Self {
        let prefix = if origin == Origin::Farm { "render" } else { "desk" };
        // Each fourth desktop belongs to an owner who has several.
        let owner = (origin == Origin::Desktop && number.is_multiple_of(4)).then_some("carl");
        let kernels = ["model", FRAME_KERNEL].map(|of| KernelName::new(of).expect("a plain name"));
        let kernels = BTreeSet::from(kernels);
        let info = HostInfo {
            name: HostName::new(format!("{prefix}{number:03}")).expect("a plain name"),
            origin,
            owner: owner.map(|owner| OwnerName::new(owner).expect("a plain name")),
            cores,
            memory_mib: MEMORY_MIB,
            capabilities: Capabilities {
                kernels,
                kernel_memory_mib: 2 * LARGE_MIB,
                ..Capabilities::default()
            },
            kind: None,
            chunk_cache_mib: 0,
        };
        Self {
            info,
            is_faulty,
            // A render host in each ten hosts.
            is_black_hole: number % 10 == 7,
            slowness: 1,
            is_on: true,
            boot: 0,
            ahead: Span::ZERO,
            folder: Folder::new(1),
            tasks: BTreeMap::new(),
            renders: BTreeMap::new(),
            agent: None,
            copies: BTreeMap::new(),
            cut_until: [Time::ZERO; 3],
        }
    }

    pub(super) fn is_farm(&self) -> bool {
        self.info.origin == Origin::Farm
    }

    /// Parts of frames that its agent has.
    pub(super) fn frames(&self) -> u64 {
        self.tasks.values().filter(|task| task.drawn.is_some()).count() as u64
    }

    /// What its clock shows.
    pub(super) fn clock(&self, now: Time) -> Time {
        now + self.ahead
    }

    /// Cores that renders use now.
    pub(super) fn rendering(&self) -> u32 {
        let cores = self.info.cores;
        let of = |render: &Render| render.booked.cores.unwrap_or(cores);
        self.renders.values().filter(|render| render.renders).map(of).sum::<u32>().min(cores)
    }

    /// Cores that the farm has given to nobody.
    pub(super) fn unbooked(&self) -> u32 {
        let cores = self.info.cores;
        let of = |render: &Render| render.booked.cores.unwrap_or(cores);
        cores.saturating_sub(self.renders.values().map(of).sum())
    }

    /// What replicas that compute take of the cores.
    pub(super) fn taken(&self) -> Share {
        let running = self.tasks.values().filter(|task| task.computes());
        running.fold(Share::NONE, |sum, task| sum.plus(task.share))
    }

    /// Stops what computes beyond so many cores, the youngest first.
    pub(super) fn freeze(&mut self, slots_left: u32) -> Vec<LeaseToken> {
        let running = self.tasks.iter().filter(|(_, task)| task.computes());
        let mut running: Vec<_> =
            running.map(|(token, task)| (task.since, *token, task.share)).collect();
        running.sort_unstable();
        let mut left = Share::cores(slots_left);
        running.retain(|(.., share)| {
            let fits = *share <= left;
            left = if fits { left.minus(*share) } else { left };
            !fits
        });
        for (_, token, _) in &running {
            self.tasks.remove(token);
        }
        running.into_iter().rev().map(|(_, token, _)| token).collect()
    }
}

impl Agent {
    pub(super) fn new(life: u64, harvest: Harvest) -> Self {
        let gate = Gate::new(harvest.fragment());
        Self {
            life,
            harvest,
            gate,
            wire: None,
            outgoing: Vec::new(),
            owes_epoch: false,
            look_again: None,
            wake: None,
            is_stopped: false,
            is_busy: false,
            releases: VecDeque::new(),
            waiting: VecDeque::new(),
            fetching: BTreeSet::new(),
            layers: Vec::new(),
            backoff_ms: 100,
        }
    }

    /// Whether its main loop goes on.
    pub(super) fn listens(&self) -> bool {
        !self.is_stopped && !self.is_busy
    }
}

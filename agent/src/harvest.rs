//! What an agent decides: which cores of its host it uses now, which replica runs in which
//! slot, which reports still wait for their verdict, and what to ask the broker for.
//!
//! A pure state machine: [`Harvest::handle`] is told what happened and pushes [`Effect`]s,
//! [`Harvest::next_deadline`] says when to call back at the latest. The driver performs the
//! effects in order.
//!
//! The fragment of a desktop host is what its owner gives, less what its run folder has booked.
//! That of a farm host is closed until an [`Opening`] comes that was decided on exactly the epoch
//! at which the run folder stands, and closes by itself when no other confirms it in time. A
//! booking only ever makes it smaller; it grows by openings alone.
//!
//! The owner's allowance limits what is given on either kind of host. What runs beyond it is frozen
//! by others and still held: it stays in the fragment until it may run again or is ended.
//!
//! What a render drives out is killed, or parked where its job wants that: then it takes no slot,
//! and either goes on before anything new begins or is ended when its time is over. What the broker
//! parks for another lane takes none either, and goes on when the broker says so.
//!
//! # Invariants
//! See [`Harvest::check_invariants`].

mod effect;
mod fragment;
mod held;
mod input;
mod invariants;
mod leases;
mod link_state;
mod parked;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::{AgentMessage, ChunkPeer, Fragment, Opening, ReleaseReason};
use gleaner_protocol::limits::REPLICAS_PER_CORE_MAX;
use gleaner_protocol::{
    AgentSecret, Digest, HostInfo, JobId, LeaseToken, Origin, Share, Span, Time,
};

pub use effect::Effect;
pub use fragment::RunFolderState;
pub use input::{Input, Product, RunResult};
pub use invariants::Violation;

use fragment::Opened;
use held::Held;
use leases::Known;
use link_state::LinkState;

/// Places for replicas on a host of so many cores: as many for each core as may share it, and one for
/// what is parked beside them.
#[must_use]
pub const fn places(cores: u32) -> u32 {
    cores.saturating_mul(REPLICAS_PER_CORE_MAX + 1)
}

/// The decisions of one agent.
#[derive(Debug)]
pub struct Harvest {
    host: HostInfo,
    secret: AgentSecret,
    incarnation: u64,
    link: LinkState,
    /// What the run folder says; None while it cannot be read, which closes the host.
    run_folder: Option<RunFolderState>,
    /// What the monitor leaves us. Farm hosts only.
    opened: Option<Opened>,
    /// Cores that the owner allows.
    allowed: u32,
    /// What is given now: what was last passed on by [`Effect::Fragment`].
    fragment: Fragment,
    /// The start of the broker that the last link was to.
    broker: Option<u32>,
    /// The broker's jobs.
    tasks: BTreeMap<JobId, Known>,
    held: BTreeMap<LeaseToken, Held>,
    /// Those of them that go on from where other hosts were.
    heirs: BTreeSet<LeaseToken>,
    /// Slots in which there is nothing.
    empty: BTreeSet<u32>,
    /// Slots whose last replica ended by itself, so that a runner waits there for the next.
    warm: BTreeSet<u32>,
    /// The slot that drew a chunk last: its runner may have it in memory.
    drawn: BTreeMap<Digest, u32>,
    /// Replicas that are in a slot and take no core.
    parked: u32,
    /// How long a replica is kept frozen at most.
    keep_max: Span,
    /// How other agents know this one, where it keeps copies of chunks.
    peer: Option<ChunkPeer>,
    /// Cores for which replicas were asked for on this link that have not come.
    requested: u32,
    /// Reports that wait for their verdict, and the bytes of their outputs.
    unacked: usize,
    unacked_bytes: u64,
    /// Why nothing may run until a person has looked after the host.
    alarm: Option<String>,
    /// Whether the agent is about to end.
    leaving: bool,
}

impl Harvest {
    /// An agent that has just started and holds nothing. `secret` is known to this host's
    /// agents and the broker alone.
    #[must_use]
    pub fn new(
        host: HostInfo,
        secret: AgentSecret,
        incarnation: u64,
        run_folder: Option<RunFolderState>,
    ) -> Self {
        let mut harvest = Self {
            empty: (0..places(host.cores)).collect(),
            warm: BTreeSet::new(),
            drawn: BTreeMap::new(),
            host,
            secret,
            incarnation,
            link: LinkState::Down,
            run_folder,
            opened: None,
            allowed: u32::MAX,
            fragment: Fragment::default(),
            broker: None,
            tasks: BTreeMap::new(),
            held: BTreeMap::new(),
            heirs: BTreeSet::new(),
            parked: 0,
            keep_max: Span::ZERO,
            peer: None,
            requested: 0,
            unacked: 0,
            unacked_bytes: 0,
            alarm: None,
            leaving: false,
        };
        harvest.fragment = harvest.due_fragment();
        harvest
    }

    /// Whose the host is.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.host.origin
    }

    /// How many cores the host has.
    #[must_use]
    pub fn cores(&self) -> u32 {
        self.host.cores
    }

    /// What is given now.
    #[must_use]
    pub fn fragment(&self) -> Fragment {
        self.fragment
    }

    /// With what the broker tells other agents of this one.
    #[must_use]
    pub fn known_as(self, peer: Option<ChunkPeer>) -> Self {
        Self { peer, ..self }
    }

    /// Reports that wait for their verdict.
    #[must_use]
    pub fn unacked(&self) -> usize {
        self.unacked
    }

    /// Replicas that run now.
    #[must_use]
    pub fn running(&self) -> u32 {
        places(self.host.cores) - self.empty_slots() - self.parked
    }

    /// What those take of the cores.
    #[must_use]
    pub fn taken(&self) -> Share {
        self.held.values().filter_map(Held::taken).fold(Share::NONE, Share::plus)
    }

    /// What is left of the fragment for more to run: what the owner does not allow is none of it, even
    /// where what stands still beyond that is still in the fragment.
    fn left(&self) -> Share {
        Share::cores(self.fragment.cores.min(self.allowed)).minus(self.taken())
    }

    fn empty_slots(&self) -> u32 {
        u32::try_from(self.empty.len()).expect("a few entries per core")
    }

    /// Takes note of what happened and pushes what is to be done, in order.
    pub fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        let mut why = ReleaseReason::FragmentClosed;
        self.end_opening_if_due(now);
        self.end_overdue(now, effects);
        match input {
            Input::LinkUp => self.greet(effects),
            Input::LinkDown => self.lose_link(),
            Input::Broker(message) => self.hear(now, message, effects),
            Input::RunFolder { run_folder, stopped, parked, cores_left } => {
                why = ReleaseReason::Preempted;
                self.note_run_folder(run_folder, cores_left);
                for token in stopped {
                    self.end_running(token, ReleaseReason::Preempted, effects);
                }
                self.park(now, &parked, effects);
            }
            Input::Allowance { slots, stopped } => {
                self.allowed = slots;
                for token in stopped {
                    self.end_running(token, ReleaseReason::Preempted, effects);
                }
            }
            Input::Ended { token, result } => self.take_result(token, result, effects),
            Input::Stored { token, result } => self.take_stored(token, result, effects),
            Input::Progress { token, permille } => {
                if self.link.is_up() && self.held.get(&token).is_some_and(Held::is_running) {
                    effects.push(Effect::Send(AgentMessage::Progress { token, permille }));
                }
            }
            Input::StateStored { token, state } => self.tell_saved(now, token, state, effects),
            Input::Saved { token } => self.take_saved(token, effects),
            Input::Alarm(reason) => {
                self.alarm = reason;
                // Where it is over, the monitor opens the host anew.
                self.close();
                self.end_all_parked(effects);
            }
            Input::FarmStops => self.close(),
            Input::Tick => {}
            Input::Leave => {
                self.leaving = true;
                self.end_all_parked(effects);
            }
        }
        self.bring_in_line(&why, effects);
    }

    /// When [`Input::Tick`] is due at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let opening = self.opened.as_ref().map(|opened| opened.until);
        opening.into_iter().chain(self.first_overdue()).min()
    }

    /// Brings the fragment, what runs in it and what is asked for in line with each other.
    fn bring_in_line(&mut self, why: &ReleaseReason, effects: &mut Vec<Effect>) {
        let mut due = self.due_fragment();
        while due != self.fragment {
            self.fragment = due;
            effects.push(Effect::Fragment(due));
            // The broker is told what ends before it is told the fragment: it chooses nothing itself.
            self.shed(why, effects);
            // What has just ended may be all that kept more in the fragment than the owner allows.
            due = self.due_fragment();
        }
        if let Some(reason) = self.link.tell_alarm(&self.alarm) {
            effects.push(Effect::Send(AgentMessage::Alarm { reason }));
        }
        if self.link.tell_fragment(due) {
            effects.push(Effect::Send(AgentMessage::Fragment(due)));
            // The broker may or may not remember what was asked before; it never gives more
            // than the fragment holds, so asking again is safe and asking too little is not.
            self.requested = 0;
        }
        self.go_on(effects);
        self.ask(effects);
    }

    fn obey_opening(&mut self, now: Time, opening: &Opening, effects: &mut Vec<Effect>) {
        if let Err(current) = self.open(now, opening) {
            let refused = AgentMessage::OpeningRefused { decided_on: opening.epoch, current };
            effects.push(Effect::Send(refused));
        }
    }
}

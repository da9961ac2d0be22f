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
//! # Invariants
//! See [`Harvest::check_invariants`].

mod effect;
mod fragment;
mod held;
mod input;
mod invariants;
mod leases;
mod link_state;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::control::{AgentMessage, Fragment, Opening, ReleaseReason};
use gleaner_protocol::job::Task;
use gleaner_protocol::{HostInfo, JobId, LeaseToken, Time};

pub use effect::Effect;
pub use fragment::Ground;
pub use input::{Input, Product, RunResult};
pub use invariants::Violation;

use fragment::Opened;
use held::Held;
use link_state::LinkState;

/// The decisions of one agent.
#[derive(Debug)]
pub struct Harvest {
    host: HostInfo,
    incarnation: u64,
    link: LinkState,
    /// What the run folder says; None while it cannot be read, which closes the host.
    ground: Option<Ground>,
    /// What the monitor leaves us. Farm hosts only.
    opened: Option<Opened>,
    /// Replicas that the owner allows.
    allowed: u32,
    /// What is given now: what was last passed on by [`Effect::Fragment`].
    fragment: Fragment,
    /// Tasks of the broker's jobs, or why they cannot run here.
    tasks: BTreeMap<JobId, Result<Arc<Task>, String>>,
    held: BTreeMap<LeaseToken, Held>,
    /// Slots in which nothing runs.
    empty: BTreeSet<u32>,
    /// Replicas that were asked for on this link, and have not come.
    requested: u32,
    /// Reports that wait for their verdict, and the bytes of their outputs.
    unacked: usize,
    unacked_bytes: u64,
    /// Whether the agent is about to end.
    leaving: bool,
}

impl Harvest {
    /// An agent that has just started and holds nothing. `incarnation` is drawn at random.
    #[must_use]
    pub fn new(host: HostInfo, incarnation: u64, ground: Option<Ground>) -> Self {
        let mut harvest = Self {
            empty: (0..host.cores).collect(),
            host,
            incarnation,
            link: LinkState::Down,
            ground,
            opened: None,
            allowed: u32::MAX,
            fragment: Fragment::default(),
            tasks: BTreeMap::new(),
            held: BTreeMap::new(),
            requested: 0,
            unacked: 0,
            unacked_bytes: 0,
            leaving: false,
        };
        harvest.fragment = harvest.due_fragment();
        harvest
    }

    /// What is given now.
    #[must_use]
    pub fn fragment(&self) -> Fragment {
        self.fragment
    }

    /// Reports that wait for their verdict.
    #[must_use]
    pub fn unacked(&self) -> usize {
        self.unacked
    }

    /// Replicas that run now.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.host.cores - u32::try_from(self.empty.len()).expect("at most one entry per core")
    }

    /// Takes note of what happened and pushes what is to be done, in order.
    pub fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        let mut why = ReleaseReason::FragmentClosed;
        self.end_opening_if_due(now);
        match input {
            Input::LinkUp => self.greet(effects),
            Input::LinkDown => self.lose_link(),
            Input::Broker(message) => self.hear(now, message, effects),
            Input::Ground { ground, stopped } => {
                why = ReleaseReason::Preempted;
                self.stand_on(ground);
                for token in stopped {
                    self.end_running(token, ReleaseReason::Preempted, effects);
                }
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
            Input::Tick => {}
            Input::Leave => self.leaving = true,
        }
        self.settle(&why, effects);
    }

    /// When [`Input::Tick`] is due at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.opened.as_ref().map(|opened| opened.until)
    }

    /// Brings the fragment, what runs in it and what is asked for in line with each other.
    fn settle(&mut self, why: &ReleaseReason, effects: &mut Vec<Effect>) {
        let due = self.due_fragment();
        if due != self.fragment {
            self.fragment = due;
            effects.push(Effect::Fragment(due));
            self.shed(why, effects);
        }
        if self.link.tell_fragment(due) {
            effects.push(Effect::Send(AgentMessage::Fragment(due)));
            // The broker may or may not remember what was asked before; it never gives more
            // than the fragment holds, so asking again is safe and asking too little is not.
            self.requested = 0;
        }
        self.ask(effects);
    }

    fn obey_opening(&mut self, now: Time, opening: &Opening, effects: &mut Vec<Effect>) {
        if let Err(current) = self.open(now, opening) {
            let refused = AgentMessage::OpeningRefused { decided_on: opening.epoch, current };
            effects.push(Effect::Send(refused));
        }
    }
}

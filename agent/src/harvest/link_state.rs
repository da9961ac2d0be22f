//! The link as the agent's decisions see it: the greeting, and what a new link is told.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::LeaseToken;
use gleaner_protocol::control::{
    AgentMessage, Fragment, Held as HeldReplica, Hello, ReleaseReason, Released,
};

use super::held::Held;
use super::{Effect, Harvest};

/// Where the link stands.
#[derive(Debug)]
pub(super) enum LinkState {
    /// None.
    Down,
    /// The hello is sent, the welcome has not come.
    Greeting {
        /// The fragment in the hello.
        told: Fragment,
        /// What the hello named and was given back since.
        parted: BTreeMap<LeaseToken, ReleaseReason>,
        /// What it named as taking no slot, but for what was done.
        parked: BTreeSet<LeaseToken>,
    },
    /// Welcome.
    Up {
        /// The fragment that was told last.
        told: Fragment,
        /// The alarm that was told last.
        alarm: Option<String>,
    },
}

impl LinkState {
    pub(super) fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }

    /// Whether the fragment is news to the broker; it counts as told then.
    pub(super) fn tell_fragment(&mut self, due: Fragment) -> bool {
        match self {
            Self::Up { told, .. } if *told != due => {
                *told = due;
                true
            }
            _ => false,
        }
    }
}

impl LinkState {
    /// The alarm, where it is news to the broker; it counts as told then.
    pub(super) fn tell_alarm(&mut self, due: &Option<String>) -> Option<Option<String>> {
        match self {
            Self::Up { alarm, .. } if alarm != due => {
                alarm.clone_from(due);
                Some(due.clone())
            }
            _ => None,
        }
    }
}

impl Harvest {
    /// Says who we are and what we hold.
    pub(super) fn greet(&mut self, effects: &mut Vec<Effect>) {
        self.lose_link();
        // The broker sends each task again before the first lease of it on this link.
        self.tasks.clear();
        self.bring_in_line(&ReleaseReason::FragmentClosed, effects);
        self.link = LinkState::Greeting {
            told: self.fragment,
            parted: BTreeMap::new(),
            parked: self.parked_tokens(),
        };
        let held = self
            .held
            .iter()
            .map(|(token, held)| HeldReplica {
                token: *token,
                replica: held.replica(),
                state: held.state(),
                goes_on: self.heirs.contains(token),
                share: held.share(),
            })
            .collect();
        effects.push(Effect::Send(AgentMessage::Hello(Hello {
            host: self.host.clone(),
            secret: self.secret,
            incarnation: self.incarnation,
            fragment: self.fragment,
            held,
            peer: self.peer.map(Box::new),
        })));
    }

    /// What runs runs on; it is told when a link stands again.
    pub(super) fn lose_link(&mut self) {
        self.link = LinkState::Down;
        self.requested = 0;
    }

    /// The broker knows us: end what it does not want, and send what it may not have seen.
    pub(super) fn be_welcome(
        &mut self,
        broker: u32,
        adopted: &[LeaseToken],
        effects: &mut Vec<Effect>,
    ) {
        let LinkState::Greeting { told, parted, parked } = &mut self.link else {
            effects.push(Effect::EndLink { reason: "a welcome that nothing asked for" });
            return;
        };
        let (told, mut parted) = (*told, std::mem::take(parted));
        let parked = std::mem::take(parked);
        self.link = LinkState::Up { told, alarm: None };
        // One that has started since has none of what was saved.
        let has_saved = self.broker.replace(broker) == Some(broker);
        let adopted: BTreeSet<LeaseToken> = adopted.iter().copied().collect();
        let unwanted: Vec<LeaseToken> =
            self.held.keys().filter(|token| !adopted.contains(token)).copied().collect();
        for token in unwanted {
            // Perhaps it was counted, and is not on the broker's disk yet: its verdict will say so.
            if let Some(Held::Reported { report }) = self.held.get(&token) {
                effects.push(Effect::Send(AgentMessage::Report(report.clone())));
                continue;
            }
            match self.let_go(token) {
                Some(Held::Running { slot, .. }) => effects.push(Effect::Stop { slot, token }),
                Some(Held::Storing { .. }) => effects.push(Effect::Discard { token }),
                Some(Held::Reported { .. }) | None => {}
            }
        }
        if !has_saved {
            self.forget_saved();
        }
        for token in adopted {
            if has_saved
                && let Some(Held::Running { saved: Some(state), .. }) = self.held.get(&token)
            {
                effects.push(Effect::Send(AgentMessage::Saved { token, state: *state }));
            }
            match self.held.get(&token) {
                Some(Held::Reported { report }) => {
                    effects.push(Effect::Send(AgentMessage::Report(report.clone())));
                }
                // A render came in between.
                Some(held) if held.parked_until().is_some() && !parked.contains(&token) => {
                    effects.push(Effect::Send(AgentMessage::Frozen { token, frozen: true }));
                }
                Some(Held::Running { .. } | Held::Storing { .. }) => {}
                None => {
                    let why = parted.remove(&token).unwrap_or(ReleaseReason::FragmentClosed);
                    self.say_released(token, why, effects);
                }
            }
        }
    }

    /// Tells the broker that a replica is no longer held.
    pub(super) fn say_released(
        &mut self,
        token: LeaseToken,
        reason: ReleaseReason,
        effects: &mut Vec<Effect>,
    ) {
        if reason == ReleaseReason::FragmentClosed {
            // The broker gives nothing more until it is asked anew.
            self.requested = 0;
        }
        match &mut self.link {
            // The next hello does not name it, which says the same.
            LinkState::Down => {}
            LinkState::Greeting { parted, .. } => {
                parted.insert(token, reason);
            }
            LinkState::Up { .. } => {
                // Whoever sends it sees what it took.
                let released = Released { token, reason, cpu_us: 0 };
                effects.push(Effect::Send(AgentMessage::Released(released)));
            }
        }
    }
}

//! The red button: while whoever runs the broker has stopped harvest, no host gives anything, whatever
//! its agent says. To the core a host that is stopped is one whose fragment is closed.
//!
//! # Invariants
//! - What an agent and the farm's monitor say meanwhile is remembered, and holds again once harvest goes on.
//! - However many hosts there are, a turn stops, or lets go on, [`TURN_HALTS_MAX`] of them at most.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gleaner_protocol::api::FarmEventsAccepted;
use gleaner_protocol::control::{BrokerMessage, Fragment};
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::limits::bounded_reason;
use gleaner_protocol::{HostName, Time};
use gleaner_scheduling::{Core, Input};

use super::Dispatcher;
use crate::driver::Decided;
use crate::limits::TURN_HALTS_MAX;

/// Whether harvest is stopped, and what hosts would give.
#[derive(Debug, Default)]
pub(super) struct Halt {
    /// In words; none where it goes on.
    why: Option<Arc<str>>,
    /// Of connected hosts that are stopped.
    said: BTreeMap<HostName, Said>,
    /// Those that are yet to be stopped, or to go on.
    due: VecDeque<HostName>,
}

/// What is said of a host.
#[derive(Debug, Clone)]
struct Said {
    /// By its agent.
    fragment: Fragment,
    /// By its monitor: why it gives nothing.
    closed: Option<String>,
}

impl Halt {
    /// When the next hosts are due.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        if self.due.is_empty() { None } else { Some(Time::ZERO) }
    }

    /// What a host gives, where its agent says `fragment`.
    pub(super) fn given(&mut self, core: &Core, host: &HostName, fragment: Fragment) -> Fragment {
        if self.why.is_none() && !self.said.contains_key(host) {
            return fragment;
        }
        let known = core.farm().host_named(host);
        let closed = || known.and_then(|host| host.closed.as_deref().map(str::to_owned));
        let said = self.said.entry(host.clone());
        said.or_insert_with(|| Said { fragment, closed: closed() }).fragment = fragment;
        Fragment { cores: 0, ..fragment }
    }
}

impl<M: Clone> Dispatcher<M> {
    /// Stops harvest on all hosts, for this reason, or lets it go on.
    pub fn halt(&mut self, why: Option<&str>) {
        self.halt.why = why.map(Arc::from);
        let connected = self.core.farm().hosts().filter(|(_, host)| host.connected);
        self.halt.due = connected.map(|(_, host)| host.info.name.clone()).collect();
    }

    /// Has the next hosts obey.
    pub(super) fn carry_halt(&mut self, now: Time, turn: &mut Decided<M>) {
        for _ in 0..TURN_HALTS_MAX {
            let Some(host) = self.halt.due.pop_front() else { return };
            let known = self.core.farm().host_named(&host).filter(|host| host.connected);
            let Some(fragment) = known.map(|host| host.fragment) else { continue };
            match self.halt.why.clone() {
                Some(why) => {
                    let was_stopped = self.halt.said.contains_key(&host);
                    let closed = self.halt.given(&self.core, &host, fragment);
                    if !was_stopped {
                        self.feed(
                            now,
                            Input::Fragment { host: host.clone(), fragment: closed },
                            turn,
                        );
                    }
                    self.core.note_closed(&host, Some(&why));
                }
                None => {
                    let Some(Said { fragment, closed }) = self.halt.said.remove(&host) else {
                        continue;
                    };
                    self.core.note_closed(&host, closed.as_deref());
                    self.feed(now, Input::Fragment { host, fragment }, turn);
                }
            }
        }
    }

    /// A host that has come is stopped as all are.
    pub(super) fn halt_newcomer(&mut self, host: &HostName) {
        if let Some(why) = &self.halt.why {
            self.core.note_closed(host, Some(why));
        }
    }

    /// A host has left: what is said of it is said anew when it comes back.
    pub(super) fn unhalt(&mut self, host: &HostName) {
        if let Some(Said { closed, .. }) = self.halt.said.remove(host) {
            self.core.note_closed(host, closed.as_deref());
        }
    }

    /// The farm's monitor says why a host gives nothing, or that it gives again.
    fn hear_closed(&mut self, host: &HostName, reason: Option<&str>) {
        match self.halt.said.get_mut(host) {
            Some(said) => said.closed = reason.map(str::to_owned),
            None => self.core.note_closed(host, reason),
        }
    }

    /// Passes the monitor's word on to the agents concerned.
    pub fn farm_events(
        &mut self,
        events: Vec<FarmEvent>,
        turn: &mut Decided<M>,
    ) -> FarmEventsAccepted {
        let mut accepted = FarmEventsAccepted { delivered: 0, unknown_hosts: Vec::new() };
        for event in events {
            let (host, mut message) = event.into_message();
            let closed_by = match &mut message {
                BrokerMessage::Closing { reason } => {
                    *reason = bounded_reason(std::mem::take(reason));
                    Some(reason.as_str())
                }
                _ => None,
            };
            self.hear_closed(&host, closed_by);
            match self.links.of_name(&host) {
                Some(link) => {
                    self.write_link(link, message, turn);
                    accepted.delivered += 1;
                }
                None => accepted.unknown_hosts.push(host),
            }
        }
        accepted
    }
}

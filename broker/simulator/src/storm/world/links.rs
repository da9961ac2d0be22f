//! Links between agents and the broker: they break, stall, and come back.

use gleaner_broker::{LinkId, LinkMessage, PreparedReport};
use gleaner_protocol::control::{AgentMessage, BrokerMessage};
use gleaner_protocol::{Span, Time};

use super::{Event, World};
use crate::storm::broker::Command;
use crate::storm::machine::{News, WireId};
use crate::storm::{Breach, Bug};

/// To the broker.
const UP: usize = 0;
/// To the agent.
const DOWN: usize = 1;

impl World<'_> {
    /// The agent tries to reach the broker after a while.
    pub(super) fn reconnect_later(&mut self, host: usize) {
        let Some(agent) = &mut self.machines[host].agent else { return };
        let (life, most_ms) = (agent.life, agent.backoff_ms);
        agent.backoff_ms = (most_ms * 2).min(10_000);
        let again = self.chances.network.millis(most_ms / 2, most_ms);
        self.after(again, Event::WireOpens { host, life });
    }

    pub(super) fn wire_opens(&mut self, host: usize, life: u64) -> Result<(), Breach> {
        let (now, machine) = (self.now, &mut self.machines[host]);
        let Some(agent) = machine.agent.as_ref().filter(|agent| agent.life == life) else {
            return Ok(());
        };
        if agent.wire.is_some() {
            return Ok(());
        }
        let is_cut = machine.cut_until[UP] > now || machine.cut_until[DOWN] > now;
        if is_cut || !self.broker.is_up() || !agent.listens() {
            self.reconnect_later(host);
            return Ok(());
        }
        let wire = self.wires.open(host);
        self.ask_broker(Command::LinkOpened(LinkId::new(wire)));
        self.link_is_up(host, wire)
    }

    /// When a message sent now arrives: behind those sent before it, and when it gets through.
    fn arrives(&mut self, wire: WireId, direction: usize) -> Time {
        let most_ms = if self.chances.network.chance(20) { 4_000 } else { 20 };
        let slow = self.chances.network.millis(0, most_ms);
        let entry = self.wires.get(wire);
        let through = self.machines[entry.host].cut_until[direction].max(self.now);
        let last = &mut entry.arrivals[direction];
        *last = (through + slow).max(*last);
        *last
    }

    pub(super) fn send_up(&mut self, wire: WireId, messages: Vec<AgentMessage>) {
        if self.wires.get(wire).open_at_agent {
            let at = self.arrives(wire, UP);
            self.calendar.enter(at, Event::ToBroker { wire, messages });
        }
    }

    pub(super) fn send_down(&mut self, wire: WireId, mut messages: Vec<BrokerMessage>) {
        let is_welcome =
            |message: &&BrokerMessage| matches!(message, BrokerMessage::Welcome { .. });
        if self.config.bug == Some(Bug::WelcomesTwice)
            && let Some(welcome) = messages.iter().find(is_welcome).cloned()
        {
            messages.push(welcome);
        }
        if self.wires.get(wire).open_at_broker {
            let ends = messages.iter().any(|m| matches!(m, BrokerMessage::Refused { .. }));
            let at = self.arrives(wire, DOWN);
            self.calendar.enter(at, Event::ToAgent { wire, messages });
            if ends {
                // The broker's end closes behind a refusal.
                self.calendar.enter(at, Event::ClosesAtAgent { wire });
                self.after(Span::from_millis(1), Event::ClosesAtBroker { wire });
            }
        }
    }

    pub(super) fn broker_receives(&mut self, wire: WireId, messages: Vec<AgentMessage>) {
        let host = self.wires.get(wire).host;
        if !self.wires.get(wire).open_at_broker {
            return;
        }
        self.touched_host = Some(host);
        let now = self.broker_clock();
        let prepared = messages.into_iter().map(|message| match message {
            AgentMessage::Report(report) => {
                LinkMessage::Report(PreparedReport::of(report, true, now))
            }
            other => LinkMessage::Plain(other),
        });
        self.pass_to_broker(wire, prepared.collect());
    }

    pub(super) fn agent_receives(
        &mut self,
        wire: WireId,
        messages: Vec<BrokerMessage>,
    ) -> Result<(), Breach> {
        let entry = self.wires.get(wire);
        if !entry.open_at_agent {
            return Ok(());
        }
        let host = entry.host;
        self.agent_hears(host, News::Messages(wire, messages))
    }

    /// A link breaks: each end finds out in its own time.
    pub(super) fn wire_breaks(&mut self, wire: WireId) {
        self.report.links_broken += 1;
        let (one, other) =
            (self.chances.network.millis(1, 20_000), self.chances.network.millis(1, 2_000));
        let (broker, agent) =
            if self.chances.network.chance(500) { (one, other) } else { (other, one) };
        self.after(broker, Event::ClosesAtBroker { wire });
        self.after(agent, Event::ClosesAtAgent { wire });
    }

    /// The agent's end is gone; the broker learns of it when that gets through.
    pub(super) fn end_reaches_broker(&mut self, wire: WireId) {
        let at = self.arrives(wire, UP);
        self.calendar.enter(at, Event::ClosesAtBroker { wire });
    }

    pub(super) fn end_reaches_agent(&mut self, wire: WireId) {
        let at = self.arrives(wire, DOWN);
        self.calendar.enter(at, Event::ClosesAtAgent { wire });
    }

    pub(super) fn closes_at_broker(&mut self, wire: WireId) {
        let entry = self.wires.get(wire);
        if std::mem::take(&mut entry.open_at_broker) {
            if entry.open_at_agent {
                self.end_reaches_agent(wire);
            }
            self.ask_broker(Command::LinkClosed(LinkId::new(wire)));
        }
    }

    pub(super) fn closes_at_agent(&mut self, wire: WireId) -> Result<(), Breach> {
        let entry = self.wires.get(wire);
        if !std::mem::take(&mut entry.open_at_agent) {
            return Ok(());
        }
        let (host, at_broker) = (entry.host, entry.open_at_broker);
        if at_broker {
            self.end_reaches_broker(wire);
        }
        self.agent_hears(host, News::Gone(wire))
    }

    /// Nothing got through for so long that the agent gives the link up.
    pub(super) fn silent_for_agent(&mut self, wire: WireId) -> Result<(), Breach> {
        let now = self.now;
        let host = self.wires.get(wire).host;
        let cut = self.machines[host].cut_until;
        match cut[UP] > now || cut[DOWN] > now {
            true => self.closes_at_agent(wire),
            false => Ok(()),
        }
    }

    /// Nothing was heard for so long that the broker gives the link up.
    pub(super) fn silent_for_broker(&mut self, wire: WireId) {
        let now = self.now;
        let host = self.wires.get(wire).host;
        let machine = &self.machines[host];
        let is_stopped = machine.agent.as_ref().is_none_or(|agent| agent.is_stopped);
        if machine.cut_until[UP] > now || is_stopped || !machine.is_on {
            self.closes_at_broker(wire);
        }
    }
}

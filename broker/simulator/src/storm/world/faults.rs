//! What goes wrong, how often, and the moment in which all of it stops.

use gleaner_protocol::{Span, Time};

use super::{Event, World};
use crate::storm::Breach;
use crate::storm::disk::Step;
use crate::storm::folder::Folder;
use crate::storm::rules::{AGENT_SILENCE, BROKER_SILENCE};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    BrokerDies,
    BrokerClockJumps,
    DiskIsFull,
    DiskFails,
    MonitorDies,
    MonitorClockJumps,
    MonitorIsCut,
    LinkBreaks,
    HostsAreCut,
    AgentDies,
    AgentStops,
    AgentIsBusy,
    HostReboots,
    HostClockJumps,
    HostBecomesSlow,
    FolderIsFull,
}

impl Fault {
    const ALL: [Self; 16] = [
        Self::BrokerDies,
        Self::BrokerClockJumps,
        Self::DiskIsFull,
        Self::DiskFails,
        Self::MonitorDies,
        Self::MonitorClockJumps,
        Self::MonitorIsCut,
        Self::LinkBreaks,
        Self::HostsAreCut,
        Self::AgentDies,
        Self::AgentStops,
        Self::AgentIsBusy,
        Self::HostReboots,
        Self::HostClockJumps,
        Self::HostBecomesSlow,
        Self::FolderIsFull,
    ];

    /// How often it happens, once in so many seconds on average: on each host, or where there is
    /// only one.
    const fn mean_s(self) -> (u64, bool) {
        match self {
            Self::BrokerDies => (1_500, false),
            Self::BrokerClockJumps => (15_000, false),
            Self::DiskIsFull => (4_000, false),
            Self::DiskFails => (12_000, false),
            Self::MonitorDies => (5_000, false),
            Self::MonitorClockJumps => (15_000, false),
            Self::MonitorIsCut => (4_000, false),
            Self::LinkBreaks => (3_600, true),
            Self::HostsAreCut => (7_200, true),
            Self::AgentDies => (10_800, true),
            Self::AgentStops => (10_800, true),
            Self::AgentIsBusy => (3_600, true),
            Self::HostReboots => (28_800, true),
            Self::HostClockJumps => (36_000, true),
            Self::HostBecomesSlow => (14_400, true),
            Self::FolderIsFull => (28_800, true),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::BrokerDies => "a death of the broker",
            Self::BrokerClockJumps => "a jump of the broker's clock",
            Self::DiskIsFull => "a full disk",
            Self::DiskFails => "a failing disk",
            Self::MonitorDies => "a death of the monitor",
            Self::MonitorClockJumps => "a jump of the monitor's clock",
            Self::MonitorIsCut => "a partition of the monitor",
            Self::LinkBreaks => "a broken link",
            Self::HostsAreCut => "a partition of hosts",
            Self::AgentDies => "a death of an agent",
            Self::AgentStops => "a stopped agent",
            Self::AgentIsBusy => "a busy agent",
            Self::HostReboots => "a power cut",
            Self::HostClockJumps => "a jump of a host's clock",
            Self::HostBecomesSlow => "a slow host",
            Self::FolderIsFull => "a full run folder",
        }
    }
}

impl World<'_> {
    pub(super) fn begin_faults(&mut self) {
        Fault::ALL.into_iter().for_each(|fault| self.strikes_later(fault));
    }

    fn strikes_later(&mut self, fault: Fault) {
        let (mean_s, is_per_host) = fault.mean_s();
        let hosts = if is_per_host { self.machines.len() as u64 } else { 1 };
        let mean_ms = (mean_s * 1000 / (hosts * self.config.fury).max(1)).max(1);
        let wait = self.chances.faults.millis(0, 2 * mean_ms);
        self.after(wait, Event::Fault(fault));
    }

    pub(super) fn strikes(&mut self, fault: Fault) -> Result<(), Breach> {
        if self.is_calm {
            return Ok(());
        }
        self.strikes_later(fault);
        let host = self.chances.faults.below(self.machines.len());
        match fault {
            Fault::BrokerDies => {
                if self.config.dies_at_write.is_some() {
                    return Ok(());
                }
                let step = Step::ALL[self.chances.broker.below(Step::ALL.len())];
                return self.broker_dies(self.broker.life, step);
            }
            Fault::BrokerClockJumps => {
                self.report.clock_jumps += 1;
                self.broker_ahead = self.broker_ahead + self.chances.faults.millis(1, 3_600_000);
                self.broker_timer = None;
                self.set_broker_timer();
            }
            Fault::DiskIsFull => {
                self.report.disks_full += 1;
                self.broker.disk.is_full = true;
                let full = self.chances.faults.millis(1_000, 300_000);
                self.after(full, Event::DiskHasSpace);
            }
            Fault::DiskFails => {
                self.broker.fails();
                let noticed = self.chances.faults.millis(1_000, 60_000);
                let (life, step) = (self.broker.life, Step::Begun);
                self.after(noticed, Event::BrokerDies { life, step });
            }
            Fault::MonitorDies => self.monitor_dies(),
            Fault::MonitorClockJumps => {
                self.report.clock_jumps += 1;
                let by = self.chances.faults.millis(1, 3_600_000);
                return self.monitor_clock_jumps(by);
            }
            Fault::MonitorIsCut => {
                self.report.partitions += 1;
                let until = self.now + self.chances.faults.millis(1_000, 300_000);
                let direction = self.chances.faults.below(3);
                for (of, cut) in self.monitor.cut_until.iter_mut().enumerate() {
                    if direction == of || direction == 2 {
                        *cut = until.max(*cut);
                    }
                }
            }
            Fault::LinkBreaks => {
                let agent = self.machines[host].agent.as_ref();
                if let Some(wire) = agent.and_then(|agent| agent.wire) {
                    self.wire_breaks(wire);
                }
            }
            Fault::HostsAreCut => self.cut_hosts(host),
            Fault::AgentDies => {
                if self.machines[host].agent.is_some() {
                    self.report.agent_deaths += 1;
                    self.report.frames_lost_with_host += self.machines[host].frames();
                    self.touched_host = Some(host);
                    self.agent_dies(host);
                    let boot = self.machines[host].boot;
                    let down = self.chances.faults.millis(500, 60_000);
                    self.after(down, Event::AgentStarts { host, boot });
                }
            }
            Fault::AgentStops => self.stop_agent(host),
            Fault::AgentIsBusy => {
                if let Some(agent) = &mut self.machines[host].agent
                    && agent.listens()
                {
                    agent.is_busy = true;
                    let life = agent.life;
                    let busy = self.chances.faults.millis(100, 10_000);
                    self.after(busy, Event::AgentGoesOn { host, life });
                }
            }
            Fault::HostReboots => self.host_dies(host),
            Fault::HostClockJumps => {
                self.report.clock_jumps += 1;
                let by = self.chances.faults.millis(1, 3_600_000);
                let machine = &mut self.machines[host];
                machine.ahead = machine.ahead + by;
                if let Some(agent) = &mut machine.agent {
                    agent.wake = None;
                    self.agent_rests(host);
                }
            }
            Fault::HostBecomesSlow => {
                let slowness = [1, 1, 4, 12][self.chances.faults.below(4)];
                self.machines[host].slowness = slowness;
            }
            Fault::FolderIsFull => {
                if self.machines[host].is_farm() {
                    self.report.folders_full += 1;
                    self.machines[host].folder.is_full = true;
                    let full = self.chances.faults.millis(1_000, 120_000);
                    self.after(full, Event::FolderWorks { host });
                }
            }
        }
        Ok(())
    }

    /// Stopped as a whole, often past its leases; what it runs runs on.
    fn stop_agent(&mut self, host: usize) {
        let Some(agent) = &mut self.machines[host].agent else { return };
        if !agent.listens() {
            return;
        }
        self.report.agents_stopped += 1;
        agent.is_stopped = true;
        let (life, wire) = (agent.life, agent.wire);
        let most_ms = if self.chances.faults.chance(400) { 2_700_000 } else { 60_000 };
        let stopped = self.chances.faults.millis(1_000, most_ms);
        self.after(stopped, Event::AgentGoesOn { host, life });
        if let Some(wire) = wire.filter(|_| stopped > BROKER_SILENCE) {
            self.after(BROKER_SILENCE, Event::SilentForBroker { wire });
        }
    }

    /// Nothing gets through from or to a host or several, in one direction or both.
    fn cut_hosts(&mut self, first: usize) {
        self.report.partitions += 1;
        let count = if self.chances.faults.chance(100) { self.machines.len() / 4 } else { 1 };
        let lasts = self.chances.faults.millis(1_000, 600_000);
        let until = self.now + lasts;
        let direction = self.chances.faults.below(4);
        let hosts = self.machines.len();
        for host in (first..first + count).map(|host| host % hosts) {
            let machine = &mut self.machines[host];
            for (of, cut) in machine.cut_until.iter_mut().enumerate() {
                if direction == of || direction == 3 {
                    *cut = until.max(*cut);
                }
            }
            let Some(wire) = machine.agent.as_ref().and_then(|agent| agent.wire) else { continue };
            if direction != 2 && lasts > AGENT_SILENCE {
                self.after(AGENT_SILENCE, Event::SilentForAgent { wire });
            }
            if direction != 2 && lasts > BROKER_SILENCE {
                self.after(BROKER_SILENCE, Event::SilentForBroker { wire });
            }
        }
    }

    /// It loses its power: nobody is told, nothing of its run folder is left.
    fn host_dies(&mut self, host: usize) {
        if !self.machines[host].is_on {
            return;
        }
        self.report.reboots += 1;
        self.touched_host = Some(host);
        let wire = self.machines[host].agent.take().and_then(|agent| agent.wire);
        let machine = &mut self.machines[host];
        self.report.frames_lost_with_host += machine.frames();
        machine.is_on = false;
        machine.boot += 1;
        machine.tasks.clear();
        machine.renders.clear();
        if let Some(wire) = wire {
            self.wires.get(wire).open_at_agent = false;
            self.after(BROKER_SILENCE, Event::ClosesAtBroker { wire });
        }
        let off = self.chances.faults.millis(30_000, 600_000);
        self.after(off, Event::HostBoots { host });
    }

    pub(super) fn host_boots(&mut self, host: usize) {
        let machine = &mut self.machines[host];
        if machine.is_on {
            return;
        }
        machine.is_on = true;
        let life = self.chances.hosts.millis(2, u64::from(u32::MAX)).as_millis();
        machine.folder = Folder::new(life);
        let boot = machine.boot;
        let up = self.chances.hosts.millis(100, 10_000);
        self.after(up, Event::AgentStarts { host, boot });
    }

    /// Nothing goes wrong from now on, and what is broken is mended.
    pub(super) fn calm(&mut self) -> Result<(), Breach> {
        (self.is_calm, self.calm_since) = (true, self.now);
        self.monitor.cut_until = [Time::ZERO; 2];
        for host in 0..self.machines.len() {
            let machine = &mut self.machines[host];
            machine.cut_until = [Time::ZERO; 3];
            machine.folder.is_full = false;
            machine.slowness = 1;
            let (boot, is_on) = (machine.boot, machine.is_on);
            let going_on = machine.agent.as_ref().filter(|agent| !agent.listens());
            if let Some(life) = going_on.map(|agent| agent.life) {
                self.after(Span::ZERO, Event::AgentGoesOn { host, life });
            }
            let mended = match is_on {
                true => Event::AgentStarts { host, boot },
                false => Event::HostBoots { host },
            };
            self.after(Span::from_secs(1), mended);
        }
        self.after(Span::ZERO, Event::BrokerStarts);
        self.after(Span::ZERO, Event::MonitorStarts);
        self.disk_has_space()
    }
}

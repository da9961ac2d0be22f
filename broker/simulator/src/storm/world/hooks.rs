//! What the farm does on its hosts, and owners on theirs; and the hooks that say so.

use gleaner_hooks::BookingChange;
use gleaner_protocol::farm::{Booked, HookEvent, HookKind};
use gleaner_protocol::{BookingId, Epoch, Span};

use super::event::Hook;
use super::{Event, World};
use crate::storm::machine::{Released, Render};
use crate::storm::rules::HOOK_TRIES;
use crate::storm::{Breach, Bug};

impl World<'_> {
    pub(super) fn render_later(&mut self, host: usize) {
        let comes = self.chances.renders.around_secs(900);
        self.after(comes, Event::RenderComes { host });
    }

    pub(super) fn render_comes(&mut self, host: usize) {
        self.render_later(host);
        let machine = &self.machines[host];
        let (unbooked, cores, boot) = (machine.unbooked(), machine.info.cores, machine.boot);
        if !machine.is_on || unbooked == 0 {
            return;
        }
        self.bookings += 1;
        let booking = BookingId::new(format!("r{}", self.bookings)).expect("a plain name");
        let dice = &mut self.chances.renders;
        let some = u32::try_from(1 + dice.below(unbooked as usize)).expect("few cores");
        let is_whole = unbooked == cores && dice.chance(300);
        let booked = Booked { cores: (!is_whole).then_some(some), memory_mib: None, gpus: None };
        let hook = Box::new(Hook {
            host,
            boot,
            booking: booking.clone(),
            booked,
            epoch: None,
            change: None,
        });
        if self.machines[host].is_farm() && !self.is_calm && self.chances.renders.chance(10) {
            // Taken back before it began: its postflight overtakes its preflight.
            self.postflight_now(host, &booking);
            let late = self.chances.renders.millis(10, 5_000);
            return self.after(late, Event::Preflight(hook));
        }
        self.machines[host].renders.insert(booking, Render { booked, renders: false });
        self.after(Span::ZERO, Event::Preflight(hook));
    }

    /// A preflight raises the epoch and books; then it asks.
    pub(super) fn preflight(&mut self, mut hook: Box<Hook>) -> Result<(), Breach> {
        let host = hook.host;
        let clock = self.host_clock(host);
        let machine = &mut self.machines[host];
        if machine.boot != hook.boot || !machine.is_on {
            return Ok(());
        }
        let is_killed = machine.is_farm() && !self.is_calm && self.chances.renders.chance(40);
        let killed_at = if is_killed { self.chances.renders.below(3) } else { 3 };
        if killed_at > 0 {
            hook.epoch = machine.folder.raise_epoch();
        }
        if killed_at > 1 {
            hook.change = machine.folder.begin(clock, &hook.booking, &hook.booked);
        }
        if is_killed {
            // The farm takes a preflight that was killed for one that failed.
            self.report.hooks_killed += 1;
            machine.renders.remove(&hook.booking);
            return Ok(());
        }
        let asks = self.chances.renders.below(3_000) as u64;
        self.after(Span::from_micros(200 + asks), Event::PreflightAsks(hook));
        Ok(())
    }

    pub(super) fn preflight_asks(&mut self, hook: &Hook) -> Result<(), Breach> {
        let Hook { host, boot, ref booking, booked, epoch, change } = *hook;
        let machine = &mut self.machines[host];
        if machine.boot != boot || !machine.is_on {
            return Ok(());
        }
        let slots_left = machine.folder.cores_left(booking, booked, machine.info.cores);
        let is_slow = self.config.bug == Some(Bug::IgnoresTheGate);
        match machine.agent.as_mut().filter(|agent| !agent.is_stopped) {
            Some(agent) => {
                agent.gate.narrow(epoch, slots_left);
                let life = agent.life;
                // What begins before the agent hears of the render is what shows the bug.
                agent.is_busy |= is_slow && agent.listens();
                if is_slow {
                    self.after(Span::from_secs(20), Event::AgentGoesOn { host, life });
                }
                let machine = &mut self.machines[host];
                let stopped = machine.freeze(slots_left);
                self.report.preempted += stopped.len() as u64;
                self.agent_releases(host, Released { stopped, raise_epoch: epoch.is_none() });
            }
            None if self.config.bug == Some(Bug::TrustsTheAgent) => {}
            None => self.stop_groups(host)?,
        }
        if change == Some(BookingChange::AlreadyEnded) {
            self.agent_releases(host, Released { stopped: Vec::new(), raise_epoch: false });
        }
        if let Some(render) = self.machines[host].renders.get_mut(booking) {
            render.renders = true;
            self.report.renders += 1;
            let lasts = self.chances.renders.around_secs(500);
            let booking = booking.clone();
            self.after(lasts, Event::RenderEnds { host, boot, booking });
        }
        let kind = match change {
            Some(BookingChange::AlreadyEnded) => HookKind::Postflight,
            _ => HookKind::Preflight,
        };
        self.hook_spawns(host, kind, booking, booked, epoch);
        Ok(())
    }

    pub(super) fn render_ends(
        &mut self,
        host: usize,
        boot: u64,
        booking: &BookingId,
    ) -> Result<(), Breach> {
        let machine = &mut self.machines[host];
        if machine.boot != boot || machine.renders.remove(booking).is_none() {
            return Ok(());
        }
        if machine.is_farm() && !self.is_calm && self.chances.renders.chance(20) {
            // Its postflight is lost.
            self.report.messages_lost += 1;
            return Ok(());
        }
        self.postflight_now(host, booking);
        Ok(())
    }

    fn postflight_now(&mut self, host: usize, booking: &BookingId) {
        let clock = self.host_clock(host);
        let machine = &mut self.machines[host];
        let epoch = Some(machine.folder.epoch());
        machine.folder.end(clock, booking);
        if machine.agent.as_ref().is_some_and(|agent| !agent.is_stopped) {
            self.agent_releases(host, Released { stopped: Vec::new(), raise_epoch: false });
        }
        self.hook_spawns(host, HookKind::Postflight, booking, Booked::default(), epoch);
    }

    /// A process is started that tells the monitor. Nobody tells it of desktops.
    fn hook_spawns(
        &mut self,
        host: usize,
        kind: HookKind,
        booking: &BookingId,
        booked: Booked,
        epoch: Option<Epoch>,
    ) {
        if !self.machines[host].is_farm() {
            return;
        }
        let resources = if kind == HookKind::Preflight { booked } else { Booked::default() };
        let event = HookEvent {
            host: self.machines[host].info.name.clone(),
            kind,
            booking: booking.clone(),
            resources,
            epoch: epoch.unwrap_or_default(),
            release_us: None,
            failed: None,
        };
        if self.chances.network.chance(10) {
            self.report.messages_doubled += 1;
            let late = self.chances.network.millis(1, 20_000);
            let event = Box::new(event.clone());
            self.after(late, Event::HookTells { event, tries: HOOK_TRIES });
        }
        let takes = self.hook_takes();
        let event = Box::new(event);
        self.after(takes, Event::HookTells { event, tries: HOOK_TRIES });
    }

    /// Each hook has its own way to the monitor, so they overtake each other.
    fn hook_takes(&mut self) -> Span {
        let most_ms = if self.chances.network.chance(30) { 8_000 } else { 50 };
        self.chances.network.millis(2, most_ms)
    }

    pub(super) fn hook_tells(&mut self, event: Box<HookEvent>, tries: u8) -> Result<(), Breach> {
        let host = self.names[&event.host];
        let is_cut = self.machines[host].cut_until[2] > self.now;
        if !is_cut && self.monitor.is_up() {
            return self.tell_monitor(gleaner_monitor::Input::Hook(*event));
        }
        if tries > 1 {
            let pause = Span::from_millis(200 << (HOOK_TRIES - tries));
            self.after(pause, Event::HookTells { event, tries: tries - 1 });
        } else {
            self.report.messages_lost += 1;
        }
        Ok(())
    }
}

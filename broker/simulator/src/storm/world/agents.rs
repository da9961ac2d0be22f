//! The loop around an agent's decisions: takes inputs in its order, performs what is decided.

use gleaner_agent::harvest::{Effect, Harvest, Input};
use gleaner_protocol::control::{BrokerMessage, ChunkCopy, Lease, Opening};
use gleaner_protocol::{Span, Time};

use super::frames::{drawn_by, peer_of, secret_of};
use super::{Event, World};
use crate::storm::machine::{Agent, News, Released, Stands, Task, WireId};
use crate::storm::{Breach, Bug};

/// How long an unreadable run folder is left alone.
const LOOK_AGAIN: Span = Span::from_secs(1);

impl World<'_> {
    pub(super) fn agent_starts(&mut self, host: usize, boot: u64) {
        let machine = &mut self.machines[host];
        if machine.boot != boot || !machine.is_on || machine.agent.is_some() {
            return;
        }
        self.lives += 1;
        // What an earlier agent left running is stopped before anything else.
        machine.tasks.clear();
        let run_folder = Some(machine.folder.run_folder(machine.info.cores));
        // It lies in the agent's work folder, over all its lives.
        let secret = secret_of(host);
        let keep_max = Span::from_secs(gleaner_agent::Config::default().keep_s_max);
        let harvest =
            Harvest::new(machine.info.clone(), secret, self.lives, run_folder).keeping(keep_max);
        // In each second storm hosts read from each other.
        let peer = self.seed.is_multiple_of(2).then(|| peer_of(host));
        let harvest = harvest.known_as(peer.filter(|_| !self.viewers.is_empty()));
        machine.agent = Some(Agent::new(self.lives, harvest));
        let life = self.lives;
        let soon = self.chances.hosts.millis(10, 500);
        self.after(soon, Event::WireOpens { host, life });
        let sampled = self.chances.hosts.millis(10, 10_000);
        self.after(sampled, Event::SampleDue { host, life });
    }

    /// The process is gone, and with it what it ran.
    pub(super) fn agent_dies(&mut self, host: usize) {
        let Some(agent) = self.machines[host].agent.take() else { return };
        self.machines[host].tasks.clear();
        if let Some(wire) = agent.wire {
            self.wires.get(wire).open_at_agent = false;
            self.end_reaches_broker(wire);
        }
    }

    /// Its main loop hears of something, now or when it goes on.
    pub(super) fn agent_hears(&mut self, host: usize, news: News) -> Result<(), Breach> {
        self.touched_host = Some(host);
        let Some(agent) = &mut self.machines[host].agent else { return Ok(()) };
        if !agent.listens() {
            agent.waiting.push_back(news);
            return Ok(());
        }
        self.agent_takes(host, news)?;
        self.agent_rests(host);
        Ok(())
    }

    pub(super) fn agent_releases(&mut self, host: usize, released: Released) {
        if let Some(agent) = &mut self.machines[host].agent {
            agent.releases.push_back(released);
            let life = agent.life;
            // What was frozen is killed a moment later, and only then it is told.
            self.after(Span::from_millis(5), Event::ReleaseHeard { host, life });
        }
    }

    pub(super) fn release_heard(&mut self, host: usize, life: u64) -> Result<(), Breach> {
        let agent = self.machines[host].agent.as_ref();
        if agent.is_some_and(|agent| agent.life == life && agent.listens()) {
            self.take_releases(host)?;
            self.agent_rests(host);
        }
        Ok(())
    }

    fn take_releases(&mut self, host: usize) -> Result<(), Breach> {
        while let Some(agent) = &mut self.machines[host].agent
            && let Some(released) = agent.releases.pop_front()
        {
            agent.owes_epoch |= released.raise_epoch;
            self.look_at_folder(host, released.stopped)?;
            self.sample(host);
        }
        Ok(())
    }

    /// Goes on after it was stopped or held up: what hooks did comes first, then its slots, then
    /// the broker.
    pub(super) fn agent_goes_on(&mut self, host: usize, life: u64) -> Result<(), Breach> {
        let Some(agent) = self.machines[host].agent.as_mut().filter(|agent| agent.life == life)
        else {
            return Ok(());
        };
        (agent.is_stopped, agent.is_busy) = (false, false);
        let waiting = std::mem::take(&mut agent.waiting);
        let is_of_broker = |news: &News| matches!(news, News::Messages(..) | News::Gone(_));
        let (of_broker, of_slots): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_of_broker);
        self.take_releases(host)?;
        for news in of_slots.into_iter().chain(of_broker) {
            self.agent_takes(host, news)?;
        }
        self.handle(host, Input::Tick)?;
        self.agent_rests(host);
        Ok(())
    }

    pub(super) fn agent_wakes(&mut self, host: usize, life: u64) -> Result<(), Breach> {
        let (now, clock) = (self.now, self.host_clock(host));
        let Some(agent) = self.machines[host].agent.as_mut().filter(|agent| agent.life == life)
        else {
            return Ok(());
        };
        if agent.wake.is_none_or(|wake| wake > now) {
            return Ok(());
        }
        agent.wake = None;
        if !agent.listens() {
            return Ok(());
        }
        if agent.look_again.is_some_and(|at| at <= clock) {
            self.look_at_folder(host, Vec::new())?;
        }
        let agent = self.machines[host].agent.as_ref().expect("it was just there");
        if agent.harvest.next_deadline().is_some_and(|due| due <= clock) {
            self.handle(host, Input::Tick)?;
        }
        self.agent_rests(host);
        Ok(())
    }

    fn agent_takes(&mut self, host: usize, news: News) -> Result<(), Breach> {
        match news {
            News::Begins(token) => self.task_begins(host, token),
            News::Ended { token, result, epoch_raised } => {
                if epoch_raised {
                    self.look_at_folder(host, Vec::new())?;
                }
                self.handle(host, Input::Ended { token, result })
            }
            News::Stored(token, result) => self.handle(host, Input::Stored { token, result }),
            News::Fetched { chunk, works } => {
                self.take_copy(host, chunk, works);
                Ok(())
            }
            News::Kept(token, state) => self.handle(host, Input::StateStored { token, state }),
            News::Messages(wire, messages) => {
                messages.into_iter().try_for_each(|message| self.take_message(host, wire, message))
            }
            News::Gone(wire) => {
                let agent = self.machines[host].agent.as_mut().expect("it hears");
                if agent.wire != Some(wire) {
                    return Ok(());
                }
                agent.wire = None;
                agent.outgoing.clear();
                self.reconnect_later(host);
                self.handle(host, Input::LinkDown)
            }
        }
    }

    pub(super) fn link_is_up(&mut self, host: usize, wire: WireId) -> Result<(), Breach> {
        let agent = self.machines[host].agent.as_mut().expect("it has called");
        agent.wire = Some(wire);
        agent.outgoing.clear();
        self.look_at_folder(host, Vec::new())?;
        self.handle(host, Input::LinkUp)?;
        self.agent_rests(host);
        Ok(())
    }

    fn take_message(
        &mut self,
        host: usize,
        wire: WireId,
        message: BrokerMessage,
    ) -> Result<(), Breach> {
        let agent = self.machines[host].agent.as_mut().expect("it hears");
        if agent.wire != Some(wire) {
            // Ended from its side; what was under way means nothing any more.
            return Ok(());
        }
        agent.backoff_ms = 100;
        match &message {
            BrokerMessage::Opening(opening) => {
                self.take_releases(host)?;
                self.end_bookings(host, opening);
                self.look_at_folder(host, Vec::new())?;
            }
            BrokerMessage::Welcome { .. } => self.say_copies(host),
            BrokerMessage::FetchChunk(order) => {
                self.fetch(host, order.clone());
                return Ok(());
            }
            BrokerMessage::ListCopies => {
                self.list_copies(host);
                return Ok(());
            }
            BrokerMessage::DropCopies(contents) => {
                self.drop_copies(host, contents);
                return Ok(());
            }
            BrokerMessage::ServeChunk(_) => return Ok(()),
            BrokerMessage::Verdict { .. } if self.config.bug == Some(Bug::KeepsReports) => {
                return Ok(());
            }
            _ => {}
        }
        self.handle(host, Input::Broker(message))
    }

    /// Ends the bookings whose postflight was lost, if the monitor's word is as new as the folder.
    fn end_bookings(&mut self, host: usize, opening: &Opening) {
        let clock = self.host_clock(host);
        let folder = &mut self.machines[host].folder;
        if folder.epoch() == opening.epoch {
            for booking in &opening.ended {
                folder.end(clock, booking);
            }
        }
    }

    /// Reads the run folder and has it obeyed.
    fn look_at_folder(
        &mut self,
        host: usize,
        stopped: Vec<gleaner_protocol::LeaseToken>,
    ) -> Result<(), Breach> {
        let clock = self.host_clock(host);
        let machine = &mut self.machines[host];
        let agent = machine.agent.as_mut().expect("it looks");
        if agent.owes_epoch && machine.folder.raise_epoch().is_some() {
            agent.owes_epoch = false;
        }
        let cores_left = agent.gate.hear();
        let run_folder = (!agent.owes_epoch).then(|| machine.folder.run_folder(machine.info.cores));
        agent.look_again = run_folder.is_none().then(|| clock + LOOK_AGAIN);
        let parked = Vec::new();
        self.handle(host, Input::RunFolder { run_folder, stopped, parked, cores_left })?;
        if let Some(agent) = &mut self.machines[host].agent {
            agent.gate.set(agent.harvest.fragment());
        }
        Ok(())
    }

    fn handle(&mut self, host: usize, input: Input) -> Result<(), Breach> {
        let clock = self.host_clock(host);
        let mut effects = std::mem::take(&mut self.effects);
        let agent = self.machines[host].agent.as_mut().expect("it has inputs");
        agent.harvest.handle(clock, input, &mut effects);
        if let Some(sabotage) = self.config.agent_saboteur {
            sabotage(&mut agent.harvest);
        }
        let performed = effects.drain(..).try_for_each(|effect| self.perform(host, effect));
        self.effects = effects;
        performed
    }

    fn perform(&mut self, host: usize, effect: Effect) -> Result<(), Breach> {
        let machine = &mut self.machines[host];
        let agent = machine.agent.as_mut().expect("it has effects");
        match effect {
            Effect::Send(message) => {
                let is_report =
                    matches!(message, gleaner_protocol::control::AgentMessage::Report(_));
                if !is_report || self.config.bug != Some(Bug::NeverReports) {
                    agent.outgoing.push(message);
                }
            }
            Effect::Fragment(fragment) => {
                agent.gate.set(fragment);
                self.sample(host);
            }
            Effect::Start { lease, task: what, epoch, since, .. } => {
                let share = lease.share();
                let chunk = lease.chunk.as_ref();
                let chunk = chunk.map(|of| ChunkCopy { digest: of.digest, bytes: of.bytes });
                let Lease { token, replica, item, goes_on, hands_on, .. } = lease;
                if let Some(goes_on) = &goes_on {
                    self.watcher.goes_on(token, &self.states[&goes_on.state]);
                    self.report.gone_on += u64::from(!goes_on.is_own);
                }
                let goes_on = goes_on.map(|goes_on| goes_on.state);
                let task = Task {
                    replica,
                    item,
                    drawn: drawn_by(&what),
                    goes_on,
                    hands_on,
                    share,
                    epoch,
                    since,
                    runs: false,
                    stands: Stands::default(),
                };
                let is_frame = task.drawn.is_some();
                machine.tasks.insert(token, task);
                let ready = match is_frame {
                    true => self.readies_frame(host, chunk.clone()),
                    false => self.readies_task(),
                };
                self.after(ready, Event::TaskBegins { host, token });
                if let Some(chunk) = chunk {
                    self.opens_copy(host, chunk.digest);
                }
            }
            Effect::Stop { token, .. } => {
                let is_frame = machine.tasks.get(&token).is_some_and(|task| task.drawn.is_some());
                let goes_on = match self.config.bug {
                    Some(Bug::StopsNothing) => true,
                    Some(Bug::DrawsOn) => is_frame,
                    _ => false,
                };
                if !goes_on {
                    machine.tasks.remove(&token);
                    self.report.preempted += 1;
                }
            }
            Effect::Park { token, .. } => {
                if let Some(task) = machine.tasks.get_mut(&token) {
                    task.stands.is_parked = true;
                }
            }
            Effect::Thaw { token, .. } => {
                let Some(task) = machine.tasks.get_mut(&token) else { return Ok(()) };
                task.stands.is_parked = false;
                if std::mem::take(&mut task.stands.is_due) {
                    let rest = self.chances.work.millis(1, 1_000);
                    self.after(rest, Event::TaskEnds { host, token });
                }
            }
            // It says at the beginning what its lease says.
            Effect::Limit { .. } => {}
            Effect::Save { .. } => {
                unreachable!("the jobs of this world are killed by a render")
            }
            Effect::Store { token, .. } => self.store(host, token),
            Effect::Discard { .. } => {}
            Effect::EndLink { reason } => {
                return Err(Breach::LinkRule { host: machine.info.name.to_string(), reason });
            }
        }
        Ok(())
    }

    /// Passes on what was said, and sets its timer.
    pub(super) fn agent_rests(&mut self, host: usize) {
        let (now, ahead) = (self.now, self.machines[host].ahead);
        let Some(agent) = &mut self.machines[host].agent else { return };
        let due = agent.harvest.next_deadline().into_iter().chain(agent.look_again).min();
        let due = due.map(|due| {
            let due = due.as_micros().saturating_sub(ahead.as_micros());
            Time::from_micros(due).max(now + Span::from_millis(1))
        });
        if let Some(due) = due.filter(|due| agent.wake.is_none_or(|wake| *due < wake)) {
            agent.wake = Some(due);
            let life = agent.life;
            self.calendar.enter(due, Event::AgentWakes { host, life });
        }
        let agent = self.machines[host].agent.as_mut().expect("it was just there");
        let messages = std::mem::take(&mut agent.outgoing);
        if let Some(wire) = agent.wire.filter(|_| !messages.is_empty()) {
            self.send_up(wire, messages);
        }
    }
}

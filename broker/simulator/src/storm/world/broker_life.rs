//! The broker's turns and commits, its deaths and its starts.

use gleaner_broker::{Letters, LinkId, LinkMessage};
use gleaner_protocol::job::Cause;
use gleaner_protocol::{Span, Time};
use gleaner_scheduling::Fact;

use super::{Event, World};
use crate::storm::broker::{Answer, Batch, Command};
use crate::storm::disk::{Fate, Step};
use crate::storm::{Breach, Bug};

/// How rarely the broker dies in a commit: in one of so many.
const COMMITS_PER_DEATH: u64 = 2_000;
/// How rarely it wakes for its timer alone.
const TIMER_REST: Span = Span::from_secs(1);

impl World<'_> {
    pub(super) fn broker_clock(&self) -> Time {
        self.now + self.broker_ahead
    }

    pub(super) fn ask_broker(&mut self, command: Command) {
        if self.broker.is_up() {
            self.broker.commands.push_back(command);
            self.turn_soon();
        }
    }

    fn turn_soon(&mut self) {
        if !self.turn_is_due {
            self.turn_is_due = true;
            let most_us = if self.chances.broker.chance(5) { 500_000 } else { 2_000 };
            let wait = self.chances.broker.below(most_us) as u64;
            self.after(Span::from_micros(wait), Event::Turn { life: self.broker.life });
        }
    }

    pub(super) fn turn(&mut self, life: u64) -> Result<(), Breach> {
        if life != self.broker.life || !self.broker.is_up() {
            return Ok(());
        }
        self.turn_is_due = false;
        if self.broker.is_held_up() {
            // A commit that ends makes room.
            return Ok(());
        }
        self.turned = true;
        self.turns += 1;
        self.watch_commands();
        let clock = self.broker_clock();
        let orders = self.broker.turn(clock);
        self.sessions_hear();
        if let Some(orders) = orders {
            self.give_orders(orders)?;
        }
        self.set_broker_timer();
        self.commit()
    }

    /// What was decided leaves, and it is looked at before.
    pub(super) fn give_orders(&mut self, orders: Letters<()>) -> Result<(), Breach> {
        for (link, (_, messages)) in &orders {
            let wire = link.get();
            let host = self.wires.get(wire).host;
            self.watcher.decides(host, wire, messages)?;
        }
        self.watcher.check_turn(|host| self.machines[host].info.name.clone())?;
        self.report.back_offs += u64::from(self.is_backing_off());
        self.deliver(orders)
    }

    fn watch_commands(&mut self) {
        let overhears = self.config.bug == Some(Bug::OverhearsSmallerFragments);
        for command in &mut self.broker.commands {
            match command {
                Command::LinkMessages(link, messages) => {
                    let wire = link.get();
                    let host = self.wires.get(wire).host;
                    self.watcher.hears(host, wire, messages);
                    if overhears {
                        messages.retain(|message| !is_closing(message));
                    }
                }
                Command::LinkClosed(link) => {
                    let wire = link.get();
                    let host = self.wires.get(wire).host;
                    self.watcher.closed(host, wire);
                }
                _ => {}
            }
        }
    }

    fn count_attempt(&mut self, fact: &Fact) {
        let Fact::AttemptFailed { cause, .. } = fact else { return };
        *match cause {
            Cause::Failed => &mut self.report.attempts_failed,
            Cause::TimedOut => &mut self.report.attempts_timed_out,
            Cause::Lost => &mut self.report.attempts_lost,
        } += 1;
    }

    /// Whether a host that fails or refuses all it is given backs off from that.
    fn is_backing_off(&self) -> bool {
        let Some(core) = self.broker.core() else { return false };
        let black_holes = self.machines.iter().filter(|machine| machine.is_black_hole);
        let mut known = black_holes.filter_map(|of| core.farm().host_named(&of.info.name));
        known.any(|host| host.backoffs.iter().any(|of| of.is_on))
    }

    pub(super) fn set_broker_timer(&mut self) {
        let Some(due) = self.broker.next_deadline() else { return };
        let ahead = self.broker_ahead.as_micros();
        let due = Time::from_micros(due.as_micros().saturating_sub(ahead));
        let at = due.max(self.now + TIMER_REST);
        if self.broker_timer.is_none_or(|timer| at < timer) {
            self.broker_timer = Some(at);
            self.calendar.enter(at, Event::BrokerTimer { at });
        }
    }

    pub(super) fn broker_wakes(&mut self, at: Time) -> Result<(), Breach> {
        if self.broker_timer != Some(at) {
            return Ok(());
        }
        self.broker_timer = None;
        let clock = self.broker_clock();
        match self.broker.next_deadline() {
            Some(due) if due <= clock => self.turn(self.broker.life),
            _ => {
                self.set_broker_timer();
                Ok(())
            }
        }
    }

    fn commit(&mut self) -> Result<(), Breach> {
        while let Some(steps) = self.broker.begin_commit() {
            if steps == 0 {
                self.tell_committed()?;
                continue;
            }
            let first = self.report.writes;
            self.report.writes += steps;
            let life = self.broker.life;
            let wait = self.chances.broker.millis(1, 40);
            if let Some(step) = self.dies_in(first) {
                self.after(wait, Event::BrokerDies { life, step });
            } else {
                if self.config.bug == Some(Bug::TellsBeforeItIsWritten) {
                    return self.tell_too_soon();
                }
                self.after(wait, Event::Committed { life });
            }
            return Ok(());
        }
        Ok(())
    }

    /// After which step of a commit the broker dies, if it does.
    fn dies_in(&mut self, first: u64) -> Option<Step> {
        if let Some(at) = self.config.dies_at_write {
            let step = at.checked_sub(first + 1)?;
            return Step::ALL.get(usize::try_from(step).ok()?).copied();
        }
        let one_in = COMMITS_PER_DEATH / self.config.fury.clamp(1, COMMITS_PER_DEATH);
        let one_in = usize::try_from(one_in).expect("a small number");
        let dies = !self.is_calm && self.chances.broker.below(one_in) == 0;
        dies.then(|| Step::ALL[self.chances.broker.below(Step::ALL.len())])
    }

    pub(super) fn committed(&mut self, life: u64) -> Result<(), Breach> {
        if life != self.broker.life || !self.broker.is_up() {
            return Ok(());
        }
        self.tell_committed()?;
        if !self.broker.commands.is_empty() {
            self.turn_soon();
        }
        self.commit()
    }

    fn tell_committed(&mut self) -> Result<(), Breach> {
        let (batches, is_snapshot) = self.broker.committed(self.broker_clock());
        self.report.snapshots += u64::from(is_snapshot);
        for batch in batches {
            self.tell(batch)?;
        }
        Ok(())
    }

    /// What a batch says is durable: it leaves.
    fn tell(&mut self, batch: Batch) -> Result<(), Breach> {
        for fact in &batch.facts {
            self.watcher.written(fact)?;
            self.count_attempt(fact);
        }
        self.deliver(batch.verdicts)?;
        for answer in batch.answers {
            match answer {
                Answer::Accepted(job) => self.accepted(job),
                Answer::Declined => self.declined(),
                Answer::Taken(post) => self.answer_post(post),
            }
        }
        Ok(())
    }

    fn deliver(&mut self, letters: Letters<()>) -> Result<(), Breach> {
        for (link, (_, messages)) in letters {
            for message in &messages {
                self.watcher.told(message, &mut self.report)?;
            }
            self.send_down(link.get(), messages);
        }
        Ok(())
    }

    /// A planted bug: what is decided is told while it is being written.
    fn tell_too_soon(&mut self) -> Result<(), Breach> {
        let life = self.broker.life;
        let step = Step::Begun;
        if self.chances.broker.chance(20) {
            for batch in self.broker.forget_commit() {
                self.tell(batch)?;
            }
            self.after(Span::from_millis(1), Event::BrokerDies { life, step });
        } else {
            self.after(Span::from_millis(1), Event::Committed { life });
        }
        Ok(())
    }

    pub(super) fn broker_dies(&mut self, life: u64, step: Step) -> Result<(), Breach> {
        if life != self.broker.life || !self.broker.is_up() {
            return Ok(());
        }
        self.report.broker_deaths += 1;
        let power_is_lost = self.chances.broker.chance(300);
        let (fate, batches) = self.broker.dies(step, power_is_lost, &mut self.chances.broker);
        self.report.deaths_amid_writing += u64::from(fate.is_some());
        match fate {
            None => {}
            Some(Fate::Lost) => self.report.commits_lost += 1,
            Some(Fate::Torn) => self.report.commits_torn += 1,
            Some(Fate::Whole) => {
                // Some may have been told before it died.
                let told = match step {
                    Step::Marked => self.chances.broker.below(batches.len() + 1),
                    _ => 0,
                };
                for (place, batch) in batches.into_iter().enumerate() {
                    if place < told {
                        self.tell(batch)?;
                    } else {
                        let facts = batch.facts.iter();
                        facts.into_iter().try_for_each(|fact| self.watcher.written(fact))?;
                    }
                }
            }
        }
        (self.turn_is_due, self.broker_timer) = (false, None);
        for wire in self.wires.close_at_broker() {
            self.end_reaches_agent(wire);
        }
        self.submit_again();
        self.sessions_die();
        let down = self.chances.broker.millis(200, 60_000);
        self.after(down, Event::BrokerStarts);
        Ok(())
    }

    pub(super) fn broker_starts(&mut self) -> Result<(), Breach> {
        if self.broker.is_up() {
            return Ok(());
        }
        let added = self.broker.start()?;
        added.iter().try_for_each(|fact| self.watcher.written(fact))?;
        let core = self.broker.core().expect("it has just started");
        gleaner_scheduling::check_invariants(core)?;
        self.watcher.restarted(core)?;
        self.set_broker_timer();
        if self.chances.broker.chance(300) {
            // Every agent at once.
            for host in 0..self.machines.len() {
                if let Some(life) = self.machines[host].agent.as_ref().map(|agent| agent.life) {
                    let soon = self.chances.network.millis(0, 5);
                    self.after(soon, Event::WireOpens { host, life });
                }
            }
        }
        Ok(())
    }

    pub(super) fn disk_has_space(&mut self) -> Result<(), Breach> {
        self.broker.disk.is_full = false;
        self.commit()
    }

    /// The broker hears messages of a link.
    pub(super) fn pass_to_broker(&mut self, wire: u64, messages: Vec<LinkMessage>) {
        self.ask_broker(Command::LinkMessages(LinkId::new(wire), messages));
    }
}

/// Whether it makes a fragment smaller, as far as can be told from it alone.
fn is_closing(message: &LinkMessage) -> bool {
    use gleaner_protocol::control::AgentMessage;
    matches!(message, LinkMessage::Plain(AgentMessage::Fragment(fragment)) if fragment.cores == 0)
}

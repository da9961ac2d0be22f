//! Replicas as processes: they begin if they may, end in their time, and some lie.

use std::collections::BTreeSet;

use gleaner_agent::harvest::{Product, RunResult};
use gleaner_protocol::{Content, Digest, FrameStage, LeaseToken, Span, WorkunitId};

use super::{Event, World};
use crate::storm::machine::News;
use crate::storm::{Breach, Bug};

impl World<'_> {
    /// A slot hands a replica to its runner, if the host still stands where it stood.
    pub(super) fn task_begins(&mut self, host: usize, token: LeaseToken) -> Result<(), Breach> {
        let machine = &mut self.machines[host];
        let taken = machine.taken();
        let Some(agent) = &machine.agent else { return Ok(()) };
        if agent.is_stopped {
            return self.agent_hears(host, News::Begins(token));
        }
        let Some(task) = machine.tasks.get_mut(&token).filter(|task| !task.runs) else {
            return Ok(());
        };
        let may_begin = task.epoch == machine.folder.epoch()
            && agent.gate.admits(taken.plus(task.share), task.epoch);
        let may_begin = may_begin && !task.stands.is_parked;
        if !may_begin && self.config.bug != Some(Bug::IgnoresTheGate) {
            machine.tasks.remove(&token);
            let ended = News::Ended { token, result: RunResult::Preempted, epoch_raised: true };
            return self.agent_hears(host, ended);
        }
        let drawn = task.drawn;
        if drawn.is_some_and(|of| of.stage == FrameStage::Join)
            && let Err(reason) = self.gets_layers(host, token)?
        {
            self.machines[host].tasks.remove(&token);
            let result = RunResult::Failed { reason, cpu_us: 0 };
            return self.agent_hears(host, News::Ended { token, result, epoch_raised: false });
        }
        let machine = &mut self.machines[host];
        let Some(task) = machine.tasks.get_mut(&token) else { return Ok(()) };
        task.runs = true;
        let slowness = u64::from(machine.slowness);
        let is_black_hole = machine.is_black_hole;
        let takes = match drawn {
            Some(_) => self.draws_for(),
            None => {
                let mean_s = if self.chances.work.chance(30) { 1_200 } else { 100 };
                self.chances.work.around_secs(mean_s)
            }
        };
        let takes = takes.times(slowness);
        let takes = if is_black_hole { Span::from_millis(10) } else { takes };
        self.after(takes, Event::TaskEnds { host, token });
        if drawn.is_none() && self.chances.work.chance(500) {
            let some = self.chances.work.millis(1, takes.as_millis().max(1));
            self.after(some, Event::TaskSaves { host, token });
        }
        Ok(())
    }

    /// How long it takes until a replica can begin. Some have inputs to fetch first. Where that is what shows a
    /// bug, all have.
    pub(super) fn readies_task(&mut self) -> Span {
        let fetches = self.chances.work.chance(50);
        let fetches = fetches || self.config.bug == Some(Bug::IgnoresTheGate);
        let most_ms = if fetches { 20_000 } else { 300 };
        self.chances.work.millis(1, most_ms)
    }

    /// What it has saved is at the broker: who has a say in it is known here, whatever is said there.
    pub(super) fn task_saves(&mut self, host: usize, token: LeaseToken) -> Result<(), Breach> {
        let machine = &self.machines[host];
        let Some(task) = machine.tasks.get(&token).filter(|task| task.computes() && task.hands_on)
        else {
            return Ok(());
        };
        let mut said = match task.goes_on {
            Some(state) => self.states.get(&state).cloned().expect("somebody saved it"),
            None => BTreeSet::new(),
        };
        said.insert(machine.info.name.clone());
        let state = Digest::of(format!("{token} {}", self.now.as_micros()).as_bytes());
        self.states.insert(state, said);
        self.agent_hears(host, News::Kept(token, state))
    }

    pub(super) fn task_ends(&mut self, host: usize, token: LeaseToken) -> Result<(), Breach> {
        let Some(task) = self.machines[host].tasks.get_mut(&token).filter(|task| task.runs) else {
            return Ok(());
        };
        if task.stands.is_parked {
            task.stands.is_due = true;
            return Ok(());
        }
        let task = self.machines[host].tasks.remove(&token).expect("it was just there");
        let is_spoiled = task.goes_on.is_some() && self.chances.work.chance(300);
        let result = if is_spoiled {
            RunResult::Failed { reason: "it cannot go on from there".into(), cpu_us: 1_000 }
        } else if self.machines[host].is_black_hole {
            black_hole(token)
        } else {
            match self.result(host, task.replica.workunit, task.item.as_deref()) {
                RunResult::Output { .. } if task.drawn.is_some() => {
                    self.brings_part(host, token, &task)
                }
                result => result,
            }
        };
        self.agent_hears(host, News::Ended { token, result, epoch_raised: false })
    }

    fn result(&mut self, host: usize, workunit: WorkunitId, item: Option<&str>) -> RunResult {
        let is_faulty = self.machines[host].is_faulty;
        let dice = &mut self.chances.hosts;
        let lies = is_faulty && dice.chance(300);
        let cpu_us = 1_000;
        if lies && dice.chance(200) {
            return RunResult::Failed { reason: "out of order".into(), cpu_us };
        }
        if dice.chance(2) {
            return RunResult::CannotRun("its runner is broken".into());
        }
        let colludes = self.config.bug == Some(Bug::LiarsCollude);
        let lie = lies.then_some(if colludes { 0 } else { 1 + host as u64 });
        RunResult::Output {
            files: output(workunit, item, lie),
            cpu_us,
            measured: None,
            wall_us: cpu_us,
            peak_memory_mib: None,
        }
    }

    /// Large files are on their way to the broker.
    pub(super) fn store(&mut self, host: usize, token: LeaseToken) {
        let works = !self.chances.network.chance(10);
        let takes = self.chances.network.millis(10, 10_000);
        self.after(takes, Event::Stored { host, token, works });
    }

    pub(super) fn stored(
        &mut self,
        host: usize,
        token: LeaseToken,
        works: bool,
    ) -> Result<(), Breach> {
        let result = if works { Ok(()) } else { Err("it was broken off".into()) };
        self.agent_hears(host, News::Stored(token, result))
    }

    /// Nobody answered the hook: it stops what runs itself.
    pub(super) fn stop_groups(&mut self, host: usize) -> Result<(), Breach> {
        let tasks = &mut self.machines[host].tasks;
        let killed: Vec<_> =
            tasks.iter().filter(|(_, task)| task.runs).map(|(token, _)| *token).collect();
        for token in killed {
            self.machines[host].tasks.remove(&token);
            let ended = News::Ended { token, result: RunResult::Preempted, epoch_raised: true };
            self.agent_hears(host, ended)?;
        }
        Ok(())
    }
}

/// What comes of a replica where all is failed or refused.
fn black_hole(token: LeaseToken) -> RunResult {
    match token.get() % 2 {
        0 => RunResult::CannotRun("it is not allowed".into()),
        _ => RunResult::Failed { reason: "exit code 127".into(), cpu_us: 1_000 },
    }
}

/// The right output of a workunit with its item, or a liar's own. Those of some jobs are too large to travel with
/// their report.
pub(super) fn output(workunit: WorkunitId, item: Option<&str>, lie: Option<u64>) -> Vec<Product> {
    let mut bytes = workunit.job.get().to_le_bytes().to_vec();
    bytes.extend(workunit.index.to_le_bytes());
    bytes.extend(item.unwrap_or_default().bytes());
    bytes.extend(lie.iter().flat_map(|lie| lie.to_le_bytes()));
    let volume = workunit.job.get().is_multiple_of(16).then(|| {
        let content = Content::Stored { digest: Digest::of(&bytes), bytes: 1 << 20 };
        Product { name: "volume".into(), content }
    });
    let result = Product { name: "result".into(), content: Content::Inline(bytes) };
    std::iter::once(result).chain(volume).collect()
}

//! How the agent stands with its owner, in words and lines.

use gleaner_hooks::{SocketAnswer, Standing, StandingReason, Stopped, TaskLine, encode_line};
use gleaner_protocol::{Epoch, LeaseToken, LimitsChange, Time};
use tracing::info;

use super::{Inner, Owner};
use crate::limits::TASK_LINES_MAX;
use crate::release::slot_table::Occupancy;

impl Owner {
    /// How the agent is, in short.
    pub(super) fn status(&self, epoch: Option<Epoch>) -> SocketAnswer {
        let occupancy = self.of.table.occupancy();
        let (slots, running, connected) = (occupancy.slots, occupancy.running, occupancy.connected);
        SocketAnswer::Status { epoch, slots, running, connected }
    }

    /// How the agent stands.
    pub(super) fn standing(&self, now: Time, epoch: Option<Epoch>) -> Standing {
        // Before the owner's own lock: nobody waits for the table with that.
        let occupancy = self.of.table.occupancy();
        let link_trouble = self.of.table.link_trouble();
        let inner = self.lock();
        let paused = inner.paused.filter(|pause| pause.until.is_none_or(|until| until > now));
        let mut standing = Standing {
            host: self.of.host.to_string(),
            cores: self.of.cores,
            isolation: self.of.isolation.into(),
            slots: occupancy.slots,
            allowed: occupancy.allowed.min(self.of.cores),
            running: occupancy.running,
            frozen: occupancy.frozen,
            connected: occupancy.connected,
            epoch,
            paused: paused.is_some() && !inner.finishing,
            finishing: inner.finishing,
            paused_ms: paused.and_then(|p| p.until).map(|until| until.since(now).as_millis()),
            stopped_by: inner.stopped.as_ref().map(|mark| mark.path.display().to_string()),
            reasons: Vec::new(),
            watched: inner.watched.clone(),
            missing_abilities: inner.missing_abilities.clone(),
            commands: inner.commands.clone(),
            workers: self.of.workers.clone(),
            bookings: Vec::new(),
            gpu: inner.gpu.clone(),
            counted: self.of.metrics.counted(),
        };
        standing.reasons = reasons(&inner, &standing, occupancy);
        if !standing.connected {
            let text = link_trouble
                .unwrap_or_else(|| "the broker cannot be reached, or has not answered yet".into());
            standing.reasons.push(StandingReason { kind: "no_broker".into(), text });
        }
        standing
    }

    /// Limits what runs in a slot.
    pub(super) fn limit(&self, slot: u32, limits: LimitsChange) -> SocketAnswer {
        match self.of.table.limit_slot(slot, limits) {
            Ok(()) => {
                info!(slot, ?limits, "limited by the owner");
                SocketAnswer::Noted
            }
            Err(reason) => SocketAnswer::Error { reason },
        }
    }

    /// What the owner has wished; as much of it as an answer holds.
    pub(super) fn wishes(&self) -> SocketAnswer {
        let mut wishes = self.of.wishes.clone();
        loop {
            let answer = SocketAnswer::Wishes { wishes: wishes.clone() };
            if wishes.is_empty() || encode_line(&answer).is_ok() {
                return answer;
            }
            wishes.truncate(wishes.len() / 2);
        }
    }

    /// What the agent runs; as much of it as an answer holds.
    pub(super) fn tasks(&self, now: Time) -> SocketAnswer {
        let held = self.of.table.held_replicas();
        let labels = self.lock().labels.clone();
        let what = |slot: u32, token: LeaseToken| {
            let label = labels.get(slot as usize).cloned().flatten();
            label.filter(|(of, _)| *of == token).map(|(_, what)| what).unwrap_or_default()
        };
        let lines = held.iter().map(|held| TaskLine {
            slot: held.slot,
            what: what(held.slot, held.token),
            frozen: held.frozen,
            age_ms: now.since(held.since).as_millis(),
            pgid: held.pgid,
            share_percent: held.share_percent,
        });
        let mut tasks: Vec<TaskLine> = lines.take(TASK_LINES_MAX).collect();
        loop {
            let more = u32::try_from(held.len() - tasks.len()).unwrap_or(u32::MAX);
            let answer = SocketAnswer::Tasks { tasks: tasks.clone(), more };
            if tasks.is_empty() || encode_line(&answer).is_ok() {
                return answer;
            }
            tasks.truncate(tasks.len() / 2);
        }
    }
}

fn reasons(inner: &Inner, standing: &Standing, occupancy: Occupancy) -> Vec<StandingReason> {
    let mut reasons = Vec::new();
    let mut say = |kind: &str, text: String| {
        reasons.push(StandingReason { kind: kind.into(), text });
    };
    if let Some(Stopped { path, unreadable }) = &inner.stopped {
        let path = path.display();
        match unreadable {
            None => say(
                "stopped",
                format!("harvest is stopped by {path}; `gleaner stop --lift` lifts it"),
            ),
            Some(why) => say(
                "stopped",
                format!("{path} cannot be looked at ({why}), which counts as stopped"),
            ),
        }
    }
    if standing.finishing {
        let until = "until `gleaner agent resume`";
        let text = match standing.running + standing.frozen {
            0 => format!("nothing new begins {until}, and nothing runs any more"),
            _ => format!("what runs comes to its end, and nothing new begins {until}"),
        };
        say("finishing", text);
    }
    match (standing.paused, standing.paused_ms) {
        (true, Some(ms)) => say("paused", format!("paused for {} s more", ms.div_ceil(1_000))),
        (true, None) => say("paused", "paused until `gleaner agent resume`".into()),
        (false, _) => {}
    }
    if let Some(alarm) = &inner.alarm {
        say("alarm", alarm.clone());
    }
    for reason in &inner.wished.reasons {
        say(reason.kind(), reason.to_string());
    }
    if occupancy.off_disk > 0 {
        say(
            "disk_beside_render",
            format!(
                "{} tasks that keep a disk busy stand still beside a render",
                occupancy.off_disk
            ),
        );
    }
    let is_off = inner.stopped.is_some() || inner.paused.is_some();
    if standing.slots == 0 && !is_off && reasons.is_empty() {
        reasons.push(StandingReason {
            kind: "booked".into(),
            text: "renders have booked this host, or the monitor has not opened it".into(),
        });
    }
    reasons
}

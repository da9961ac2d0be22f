//! What the driver counts, and when it tells the broker of it.

use std::collections::BTreeSet;

use gleaner_protocol::control::AgentMessage;
use gleaner_protocol::{LeaseToken, Time, boottime};

use super::Driver;
use crate::limits::METRICS_INTERVAL;

impl Driver {
    /// A render's hook has stopped these, of which some may be gone already.
    pub(super) fn note_going(&mut self, asked: Time, stopped: &[LeaseToken]) {
        let stopped = stopped.iter().copied();
        let going: BTreeSet<_> = stopped.filter(|token| self.in_slots.contains(token)).collect();
        if going.is_empty() {
            self.metrics.gone(boottime() - asked);
        } else {
            self.going.push((asked, going));
        }
    }

    /// A replica has ended: where it was the last that a render's hook stopped, all is gone. Says
    /// whether a hook stopped it.
    pub(super) fn note_gone(&mut self, token: LeaseToken) -> bool {
        self.in_slots.remove(&token);
        let metrics = &self.metrics;
        let mut was_stopped = false;
        self.going.retain_mut(|(asked, tokens)| {
            let is_of_these = tokens.remove(&token);
            was_stopped |= is_of_these;
            let is_gone = is_of_these && tokens.is_empty();
            if is_gone {
                metrics.gone(boottime() - *asked);
            }
            !is_gone
        });
        was_stopped
    }

    /// When the broker is to be told what was counted.
    pub(super) fn metrics_due(&self) -> Option<Time> {
        (self.link.is_some() && self.metrics.has_unsent()).then_some(self.metrics_at)
    }

    pub(super) fn say_metrics(&mut self) {
        self.metrics.stands(self.harvest.fragment().cores, self.harvest.running());
        let now = boottime();
        if self.metrics_due().is_some_and(|at| at <= now) {
            self.outgoing.push(AgentMessage::Metrics(self.metrics.take_unsent()));
            self.metrics_at = now + METRICS_INTERVAL;
        }
    }
}

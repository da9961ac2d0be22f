//! What happens on hosts.

use gleaner_protocol::control::ReleaseReason;
use gleaner_protocol::{LeaseToken, Origin, ReplicaId, Span};
use gleaner_scheduling::{Input, ReportedOutcome};

use super::{Event, World, output};
use crate::storm::host::{Done, LinkId, ToHost};

impl World<'_> {
    pub(super) fn host_receives(&mut self, host: usize, link: LinkId, message: ToHost) {
        let entry = &mut self.hosts[host];
        if entry.link != Some(link) {
            return;
        }
        match message {
            ToHost::Welcome(adopted) => {
                entry.is_welcome = true;
                entry.running.retain(|token, _| adopted.contains(token));
                entry.done.retain(|token, _| adopted.contains(token));
                let done: Vec<_> = entry.done.keys().copied().collect();
                for token in done {
                    self.reports(host, token);
                }
                self.asks(host);
            }
            ToHost::Lease(token, replica) => {
                entry.asked = entry.asked.saturating_sub(1);
                if entry.running.len() >= entry.slots as usize {
                    return self.releases(host, token, ReleaseReason::FragmentClosed);
                }
                entry.running.insert(token, replica);
                let takes_s = if self.chances.work.chance(50) { 1500 } else { 60 };
                let takes = self.chances.work.around_secs(takes_s);
                self.after(takes, Event::ReplicaEnds(host, token));
            }
            ToHost::Abort(token) => {
                entry.done.remove(&token);
                if entry.running.remove(&token).is_some() {
                    self.releases(host, token, ReleaseReason::Aborted);
                }
                self.asks(host);
            }
            ToHost::Verdict(token) => {
                entry.done.remove(&token);
            }
        }
    }

    pub(super) fn asks(&mut self, host: usize) {
        let entry = &mut self.hosts[host];
        let slots = entry.wants();
        if slots > 0 && entry.is_welcome && entry.link.is_some() {
            entry.asked += slots;
            let host_name = entry.info.name.clone();
            self.says(host, Input::Request { host: host_name, slots });
        }
    }

    pub(super) fn releases(&mut self, host: usize, token: LeaseToken, reason: ReleaseReason) {
        let name = self.hosts[host].info.name.clone();
        self.says(host, Input::Released { host: name, token, reason });
    }

    pub(super) fn replica_ends(&mut self, host: usize, token: LeaseToken) {
        let Some(replica) = self.hosts[host].running.remove(&token) else { return };
        let outcome = self.outcome(host, replica);
        self.hosts[host].done.insert(token, Done { replica, outcome });
        self.reports(host, token);
        if self.chances.network.chance(50) {
            self.reports(host, token);
        }
        self.asks(host);
    }

    pub(super) fn outcome(&mut self, host: usize, replica: ReplicaId) -> ReportedOutcome {
        let lies =
            self.hosts[host].is_faulty && self.chances.hosts.chance(self.config.lie_permille);
        if lies && self.chances.hosts.chance(300) {
            return ReportedOutcome::Failed("out of order".into());
        }
        let lie = if lies { host.to_string() } else { String::new() };
        ReportedOutcome::Output(output(replica.workunit, &lie))
    }

    pub(super) fn reports(&mut self, host: usize, token: LeaseToken) {
        let entry = &self.hosts[host];
        if !entry.is_welcome {
            return;
        }
        let Some(Done { replica, outcome }) = entry.done.get(&token).cloned() else { return };
        let name = entry.info.name.clone();
        self.says(host, Input::Report { host: name, token, replica, outcome, cpu_us: 1000 });
    }

    /// Preflight: what no longer fits is driven out before anything else happens.
    pub(super) fn is_taken(&mut self, host: usize) {
        if self.is_calm || self.hosts[host].is_taken {
            return;
        }
        self.hosts[host].is_taken = true;
        let slots = self.hosts[host].most_slots as usize;
        let left = if self.chances.hosts.chance(500) { 0 } else { self.chances.hosts.below(slots) };
        self.set_slots(host, u32::try_from(left).expect("few slots"));
        let free = self.chances.hosts.around_secs(120);
        self.after(free, Event::Free(host));
        if self.hosts[host].info.origin == Origin::Desktop && self.chances.hosts.chance(300) {
            // It is switched off: what ran is lost, nobody is told.
            self.hosts[host].running.clear();
            self.hosts[host].done.clear();
            if let Some(link) = self.hosts[host].link.take() {
                self.after(Span::from_secs(10), Event::LinkLost(host, link));
            }
        }
    }

    pub(super) fn set_slots(&mut self, host: usize, slots: u32) {
        self.hosts[host].slots = slots;
        let driven_out = self.hosts[host].drive_out();
        self.report.preempted += driven_out.len() as u64;
        let (name, fragment) = (self.hosts[host].info.name.clone(), self.hosts[host].fragment());
        for token in driven_out {
            self.releases(host, token, ReleaseReason::Preempted);
        }
        self.says(host, Input::Fragment { host: name, fragment });
    }

    pub(super) fn is_free(&mut self, host: usize) {
        self.hosts[host].is_taken = false;
        let slots = self.hosts[host].most_slots;
        self.set_slots(host, slots);
        self.asks(host);
        if self.hosts[host].link.is_none() {
            self.reconnect_later(host);
        }
        let taken = self.chances.hosts.around_secs(240);
        self.after(taken, Event::Taken(host));
    }
}

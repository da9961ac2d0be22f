//! A replica that was given out, and what is recorded of it when it is over.

use gleaner_history::{ANY_KIND, Run};
use gleaner_protocol::api::ReplicaOutcome;
use gleaner_protocol::{
    Computer, Digest, HostInfo, HostKind, HostName, Measured, OwnerName, Share, Span, Time,
    WorkunitId,
};
use gleaner_scheduling::{Core, application, features};

use crate::usage::{EndedReplica, OutputMark};

/// What was cut off earlier than this says nothing.
const CUT_OFF_MIN: Span = Span::from_secs(1);

/// See the module's page.
#[derive(Debug, Clone)]
pub(in crate::driver) struct Begun {
    /// Its host, which may be forgotten before this is, and what that is called where it has a kind.
    pub(super) host: HostName,
    kind: Option<HostKind>,
    host_owner: Option<OwnerName>,
    pub(super) workunit: WorkunitId,
    since: Time,
    /// When its host was heard of last, where that is gone.
    pub(super) heard: Option<Time>,
    /// Since when it is frozen, and for how long it was before.
    frozen: Option<Time>,
    stood: Span,
    /// What it has of its host's cores, and what it had until a time: cores times microseconds, in
    /// thousandths.
    share: Share,
    had_permille_us: u64,
    had_until: Time,
    /// Whether its beginning was seen, and not only that its host holds it.
    is_seen: bool,
    /// Whether it does all of the workunit.
    is_whole: bool,
    /// Whether it had anything but one core: what went by says little then.
    is_shared: bool,
    told: Told,
}

/// How a replica began.
#[derive(Debug, Clone, Copy)]
pub(in crate::driver) enum Beginning {
    /// It was given out, and does all of the workunit.
    Whole,
    /// It was given out, and goes on from what another one saved.
    GoesOn,
    /// Its host was found to hold it.
    Held,
}

/// What an agent measured of a replica.
#[derive(Debug, Clone)]
pub(in crate::driver) struct Times {
    pub(in crate::driver) cpu_us: u64,
    pub(in crate::driver) wall_us: u64,
    pub(in crate::driver) peak_memory_mib: Option<u64>,
    pub(in crate::driver) measured: Option<Measured>,
}

/// What of that goes into the accounts.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    cpu_us: u64,
    wall_us: u64,
    peak_memory_mib: Option<u64>,
}

/// How a replica ended.
#[derive(Debug, Clone, Copy)]
pub(in crate::driver) struct End {
    pub(in crate::driver) outcome: ReplicaOutcome,
    /// Its output, where that is a vote.
    pub(in crate::driver) output: Option<Digest>,
}

impl From<ReplicaOutcome> for End {
    fn from(outcome: ReplicaOutcome) -> Self {
        Self { outcome, output: None }
    }
}

impl Begun {
    pub(super) fn new(
        host: &HostInfo,
        workunit: WorkunitId,
        now: Time,
        share: Share,
        beginning: Beginning,
    ) -> Self {
        Self {
            host: host.name.clone(),
            kind: host.kind.clone(),
            host_owner: host.owner.clone(),
            workunit,
            since: now,
            heard: None,
            frozen: None,
            stood: Span::ZERO,
            share,
            had_permille_us: 0,
            had_until: now,
            is_seen: !matches!(beginning, Beginning::Held),
            is_whole: matches!(beginning, Beginning::Whole),
            is_shared: share != Share::WHOLE,
            told: Told::default(),
        }
    }

    /// It has another share of its host's cores.
    pub(super) fn share(&mut self, now: Time, share: Share) {
        self.settle(now);
        self.share = share;
        self.is_shared |= share != Share::WHOLE;
    }

    /// It is frozen or parked, or goes on.
    pub(super) fn freeze(&mut self, now: Time, frozen: bool) {
        self.settle(now);
        self.stood = self.stood + self.stands(now);
        self.frozen = frozen.then_some(now);
    }

    /// Its agent has said what it took.
    pub(super) fn tell(&mut self, times: &Times) {
        let Times { cpu_us, wall_us, peak_memory_mib, .. } = *times;
        self.told = Told { cpu_us, wall_us, peak_memory_mib };
    }

    /// Its agent has given it back, and says about what it took: no more than it had.
    pub(super) fn estimate(&mut self, now: Time, cpu_us: u64) {
        self.settle(now);
        self.told.cpu_us = cpu_us.min(self.had_permille_us / 1_000);
    }

    /// Counts what it has had until now. What stands still takes no slot.
    fn settle(&mut self, now: Time) {
        if self.frozen.is_none() {
            let us = now.since(self.had_until).as_micros();
            let had = us.saturating_mul(self.share.as_permille().into());
            self.had_permille_us = self.had_permille_us.saturating_add(had);
        }
        self.had_until = self.had_until.max(now);
    }

    /// For how long it has stood still since it was frozen last.
    fn stands(&self, now: Time) -> Span {
        self.frozen.map_or(Span::ZERO, |since| now.since(since))
    }

    /// What is recorded of it where it came to its end. When, the history says itself.
    pub(in crate::driver) fn run(&self, core: &Core, times: Times) -> Option<Run> {
        let Times { cpu_us, wall_us, peak_memory_mib, measured } = times;
        let farm = core.farm();
        let WorkunitId { job, index } = self.workunit;
        let spec = &farm.job(job)?.spec;
        let kind = self.kind.as_ref();
        let kind = match measured {
            Some(Measured { by: by @ Computer::Gpu, .. }) => by.kind(kind).to_string(),
            _ => kind.map_or_else(|| ANY_KIND.to_owned(), ToString::to_string),
        };
        Some(Run {
            application: application(spec, index),
            kind,
            features: features(spec, index),
            cpu_us,
            wall_us: if self.is_shared { 0 } else { wall_us },
            peak_memory_mib,
            // What another replica saved is no work of this one.
            ended: self.is_whole,
            at_ms: 0,
        })
    }

    /// What is recorded of it where it was cut off now: it would have taken longer.
    pub(in crate::driver) fn cut_off(&self, core: &Core, now: Time) -> Option<Run> {
        let until = self.heard.unwrap_or(now);
        let stood = self.stood + self.stands(until);
        let ran = until.since(self.since).as_micros().saturating_sub(stood.as_micros());
        if self.is_shared || ran < CUT_OFF_MIN.as_micros() {
            return None;
        }
        let times = Times { cpu_us: 0, wall_us: ran, peak_memory_mib: None, measured: None };
        Some(Run { ended: false, ..self.run(core, times)? })
    }

    /// What the accounts say of it. Of one whose beginning was not seen, at least what its agent saw.
    pub(in crate::driver) fn account(
        mut self,
        core: &Core,
        now: Time,
        end: End,
    ) -> Option<EndedReplica> {
        let WorkunitId { job, index } = self.workunit;
        let spec = &core.farm().job(job)?.spec;
        self.settle(self.heard.unwrap_or(now));
        let mut slot_us = self.had_permille_us / 1_000;
        let mut began_us = core.utc_us(self.since);
        let ended_us = core.utc_us(now);
        let Told { cpu_us, wall_us, peak_memory_mib } = self.told;
        if !self.is_seen {
            let share = u64::from(self.share.as_permille());
            slot_us = slot_us.max(wall_us.saturating_mul(share) / 1_000);
            began_us = began_us.min(ended_us.saturating_sub(wall_us));
        }
        Some(EndedReplica {
            job,
            index,
            owner: spec.owner.clone(),
            project: spec.project.clone(),
            host: self.host,
            host_owner: self.host_owner,
            lane: spec.lane,
            began_ms: began_us / 1_000,
            ended_ms: ended_us / 1_000,
            slot_us,
            cpu_us,
            peak_memory_mib,
            outcome: end.outcome,
            output: end.output.map(OutputMark::of),
        })
    }
}

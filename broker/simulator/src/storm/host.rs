//! A modelled host with its agent.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::{Fragment, Held};
use gleaner_protocol::{
    Capabilities, Epoch, HostInfo, HostName, KernelName, LeaseToken, Origin, OwnerName, ReplicaId,
};
use gleaner_scheduling::ReportedOutcome;

/// One end of a link that was opened at some time.
pub(super) type LinkId = u64;

/// From the broker to a host, as far as the model goes.
#[derive(Debug, Clone)]
pub(super) enum ToHost {
    Welcome(Vec<LeaseToken>),
    Lease(LeaseToken, ReplicaId),
    Abort(LeaseToken),
    Verdict(LeaseToken),
}

/// A replica that has ended and whose report is not acknowledged.
#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) replica: ReplicaId,
    pub(super) outcome: ReportedOutcome,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) info: HostInfo,
    /// Slots while nothing is booked.
    pub(super) most_slots: u32,
    /// Slots now.
    pub(super) slots: u32,
    /// Whether a render has it (farm) or its owner sits at it (desktop).
    pub(super) is_taken: bool,
    pub(super) is_faulty: bool,
    pub(super) link: Option<LinkId>,
    /// Whether the broker has greeted it on this link.
    pub(super) is_welcome: bool,
    pub(super) running: BTreeMap<LeaseToken, ReplicaId>,
    pub(super) done: BTreeMap<LeaseToken, Done>,
    /// Replicas asked for on this link and not received.
    pub(super) asked: u32,
}

impl Host {
    pub(super) fn new(number: u32, origin: Origin, slots: u32, is_faulty: bool) -> Self {
        let prefix = if origin == Origin::Farm { "render" } else { "desk" };
        // Each fourth desktop belongs to an owner who has several.
        let owner = (origin == Origin::Desktop && number.is_multiple_of(4)).then_some("carl");
        let kernels = BTreeSet::from([KernelName::new("model").expect("a plain name")]);
        let info = HostInfo {
            name: HostName::new(format!("{prefix}{number:02}")).expect("a plain name"),
            origin,
            owner: owner.map(|owner| OwnerName::new(owner).expect("a plain name")),
            cores: slots,
            memory_mib: 1024,
            capabilities: Capabilities { kernels, commands: BTreeSet::new() },
            kind: None,
            chunk_cache_mib: 0,
        };
        Self {
            info,
            most_slots: slots,
            slots,
            is_taken: false,
            is_faulty,
            link: None,
            is_welcome: false,
            running: BTreeMap::new(),
            done: BTreeMap::new(),
            asked: 0,
        }
    }

    pub(super) fn fragment(&self) -> Fragment {
        Fragment { epoch: Epoch::default(), slots: self.slots }
    }

    /// What it says it holds when it connects.
    pub(super) fn held(&self) -> Vec<Held> {
        let running = self.running.iter().map(|(token, replica)| (*token, *replica, false));
        let done = self.done.iter().map(|(token, done)| (*token, done.replica, true));
        let held = running.chain(done);
        held.map(|(token, replica, done)| Held { token, replica, done }).collect()
    }

    /// How many more replicas it should ask for.
    pub(super) fn wants(&self) -> u32 {
        let running = u32::try_from(self.running.len()).expect("few replicas run");
        self.slots.saturating_sub(running + self.asked)
    }

    /// Replicas that no longer fit its slots, ended now: the youngest.
    pub(super) fn drive_out(&mut self) -> Vec<LeaseToken> {
        let fit = self.slots as usize;
        let out: Vec<_> = self.running.keys().copied().skip(fit).collect();
        for token in &out {
            self.running.remove(token);
        }
        out
    }
}

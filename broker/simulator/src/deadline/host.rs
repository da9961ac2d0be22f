//! A host that runs tasks on cores that they share.

use std::collections::BTreeSet;

use gleaner_protocol::{
    Capabilities, HostInfo, HostKind, HostName, KernelName, LeaseToken, Origin, ReplicaId, Time,
};

use super::shared_core::share_evenly;

/// What tasks run, and on which kind of host.
pub(super) const KERNEL: &str = "segmentation";
pub(super) const KIND: &str = "node";

/// A host with what runs on it.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: HostName,
    /// Cores that it has, whatever it announces.
    cores: u32,
    running: Vec<Running>,
    /// Until when the work left is what it says.
    at: Time,
}

/// A replica that runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    pub(super) token: LeaseToken,
    pub(super) replica: ReplicaId,
    /// What is left to do, in thousandths of core-microseconds.
    pub(super) left: u64,
    /// The most that it may use of a core, and what it gets, in thousandths.
    share: u32,
    rate: u32,
}

impl Host {
    pub(super) fn new(number: usize, cores: u32) -> Self {
        let name = HostName::new(format!("node{number:02}")).expect("a plain name");
        Self { name, cores, running: Vec::new(), at: Time::ZERO }
    }

    pub(super) fn info(&self) -> HostInfo {
        let kernel = KernelName::new(KERNEL).expect("a plain name");
        HostInfo {
            name: self.name.clone(),
            origin: Origin::Farm,
            owner: None,
            cores: self.cores,
            memory_mib: 4096,
            kind: Some(HostKind::new(KIND).expect("a plain name")),
            chunk_cache_mib: 0,
            capabilities: Capabilities {
                kernels: BTreeSet::from([kernel]),
                ..Capabilities::default()
            },
        }
    }

    /// When the first of its replicas ends if nothing changes.
    pub(super) fn next_end(&self) -> Option<Time> {
        let ends = self.running.iter().filter(|task| task.rate > 0);
        let spans = ends.map(|task| task.left.div_ceil(u64::from(task.rate)));
        spans.min().map(|micros| Time::from_micros(self.at.as_micros() + micros))
    }

    pub(super) fn start(
        &mut self,
        now: Time,
        token: LeaseToken,
        replica: ReplicaId,
        left: u64,
        share: u32,
    ) {
        self.advance(now);
        self.running.push(Running { token, replica, left, share, rate: 0 });
        self.share_out();
    }

    pub(super) fn set_share(&mut self, now: Time, token: LeaseToken, share: u32) {
        self.advance(now);
        if let Some(task) = self.running.iter_mut().find(|task| task.token == token) {
            task.share = share;
        }
        self.share_out();
    }

    /// Ends a replica before its end; `None` where it does not run here.
    pub(super) fn stop(&mut self, now: Time, token: LeaseToken) -> Option<Running> {
        self.advance(now);
        let at = self.running.iter().position(|task| task.token == token)?;
        let task = self.running.remove(at);
        self.share_out();
        Some(task)
    }

    /// Ends the first replica that has nothing left to do.
    pub(super) fn take_done(&mut self, now: Time) -> Option<Running> {
        self.advance(now);
        let at = self.running.iter().position(|task| task.left == 0)?;
        let task = self.running.remove(at);
        self.share_out();
        Some(task)
    }

    fn advance(&mut self, now: Time) {
        let micros = now.since(self.at).as_micros();
        for task in &mut self.running {
            task.left = task.left.saturating_sub(micros * u64::from(task.rate));
        }
        self.at = now;
    }

    /// A share is a cap; where caps are more than the cores, the hypervisor splits them evenly.
    fn share_out(&mut self) {
        for task in &mut self.running {
            task.rate = task.share.min(1000);
        }
        let mut rates: Vec<&mut u32> = self.running.iter_mut().map(|task| &mut task.rate).collect();
        share_evenly(self.cores * 1000, &mut rates);
    }
}

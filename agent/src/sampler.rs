//! Telling the resource monitor how this host is.
//!
//! A sample goes out regularly, and at once after a hook or a change of the fragment. Nothing
//! waits for it, and one that fails is not repeated: the next says more.

use std::sync::Arc;
use std::time::Duration;

use gleaner_hooks::RunDir;
use gleaner_protocol::farm::HostSample;
use gleaner_protocol::{Epoch, HostInfo, HostName, Origin};
use reqwest::Client;
use sysinfo::System;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use crate::limits::SAMPLE_POST_MS_MAX;
use crate::slot_table::SlotTable;
use crate::worker_watch::Alive;

const MIB: u64 = 1 << 20;

/// Whom to tell, and how often.
pub(crate) struct SamplerTarget {
    /// With our trust settings.
    pub(crate) client: Client,
    /// Address of the monitor.
    pub(crate) monitor: String,
    /// The token to show.
    pub(crate) token: Option<String>,
    /// Seconds between two samples.
    pub(crate) interval_s: u64,
    /// Whether all that the farm's workers start is watched.
    pub(crate) watches: bool,
}

/// Takes samples and posts them.
pub(crate) struct Sampler {
    target: SamplerTarget,
    address: String,
    host: HostName,
    origin: Origin,
    cores: u32,
    run_dir: RunDir,
    alive: Alive,
    table: Arc<SlotTable>,
    changed: Arc<Notify>,
    system: Option<System>,
}

impl Sampler {
    /// `changed` is notified when a sample is to go out at once.
    pub(crate) fn new(
        target: SamplerTarget,
        host: &HostInfo,
        run_dir: RunDir,
        alive: Alive,
        table: Arc<SlotTable>,
        changed: Arc<Notify>,
    ) -> Self {
        Self {
            address: format!("{}/v1/samples", target.monitor.trim_end_matches('/')),
            target,
            host: host.name.clone(),
            origin: host.origin,
            cores: host.cores,
            run_dir,
            alive,
            table,
            changed,
            system: System::new().ok(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let mut regular = interval(Duration::from_secs(self.target.interval_s));
        regular.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut complained = false;
        loop {
            tokio::select! {
                _ = regular.tick() => {}
                () = self.changed.notified() => {}
            }
            let sample = self.sample();
            match self.post(&sample).await {
                Ok(()) => complained = false,
                Err(error) if complained => debug!("{error}"),
                Err(error) => {
                    complained = true;
                    warn!("the monitor gets no samples of this host: {error}");
                }
            }
        }
    }

    fn sample(&mut self) -> HostSample {
        let (mut cpu_percent, mut memory_mib, mut used_memory_mib) = (0.0, 0, 0);
        if let Some(system) = &mut self.system {
            system.refresh_cpu_usage();
            system.refresh_memory();
            cpu_percent = system.global_cpu_usage().clamp(0.0, 100.0);
            memory_mib = system.total_memory() / MIB;
            used_memory_mib = system.used_memory() / MIB;
        }
        // A folder that is unreadable, even in part, shows as an epoch that no host has: a missing
        // booking would look like one that has ended.
        // Before the folder: what ends in between is in neither, and nobody takes it for a hook's.
        let alive = self.alive.all();
        let (epoch, bookings) = match (self.run_dir.epoch(), self.run_dir.bookings()) {
            (Ok(epoch), Ok(bookings)) => (epoch, bookings),
            _ => (Epoch::default(), Vec::new()),
        };
        HostSample {
            host: self.host.clone(),
            origin: self.origin,
            cores: self.cores,
            memory_mib,
            epoch,
            watches: self.target.watches,
            alive: bookings
                .iter()
                .map(|booking| &booking.booking)
                .filter(|id| alive.contains(*id))
                .cloned()
                .collect(),
            bookings,
            cpu_percent,
            used_memory_mib,
            replicas: self.table.occupancy().running,
        }
    }

    async fn post(&self, sample: &HostSample) -> Result<(), String> {
        let mut request = self
            .target
            .client
            .post(&self.address)
            .timeout(Duration::from_millis(SAMPLE_POST_MS_MAX))
            .json(sample);
        if let Some(token) = &self.target.token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|error| error.to_string())?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("{} answers {status}", self.address)),
        }
    }
}

/// Memory of this host, in MiB; 0 where it cannot be told.
pub(crate) fn total_memory_mib() -> u64 {
    System::new().map_or(0, |mut system| {
        system.refresh_memory();
        system.total_memory() / MIB
    })
}

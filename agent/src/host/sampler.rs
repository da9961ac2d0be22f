//! Telling the resource monitor how this host is.
//!
//! A sample goes out regularly, and at once after a hook or a change of the fragment. Nothing
//! waits for it, and one that fails is not repeated: the next says more. The answer says whether the
//! farm's harvest is stopped, which the broker says too, where it is not away.
//!
//! A preflight raises the epoch before it books. A sample that was taken between the two would show
//! the monitor a preflight that nobody knows of, which closes the whole host: it is taken anew once
//! that hook has spoken to the agent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gleaner_hooks::RunDir;
use gleaner_identity::Credentials;
use gleaner_protocol::farm::{HostSample, SampleAnswer};
use gleaner_protocol::{BookingId, Epoch, HostInfo, HostName, Origin, Span, boottime};
use reqwest::Client;
use sysinfo::System;
use tokio::sync::{Notify, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{debug, warn};

use crate::host::worker_watch::Alive;
use crate::limits::{HALF_BOOKED_MS_MAX, SAMPLE_POST_MS_MAX};
use crate::release::slot_table::SlotTable;

const MIB: u64 = 1 << 20;

/// Whom to tell, and how often.
pub(crate) struct SamplerTarget {
    /// With our trust settings.
    pub(crate) client: Client,
    /// Address of the monitor.
    pub(crate) monitor: String,
    /// What to show.
    pub(crate) credentials: Credentials,
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
    /// Told that the farm's harvest is stopped, after each answer that says so.
    stops: mpsc::UnboundedSender<()>,
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
        stops: mpsc::UnboundedSender<()>,
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
            stops,
            system: System::new().ok(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let mut regular = interval(Duration::from_secs(self.target.interval_s));
        regular.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut complained = false;
        let changed = Arc::clone(&self.changed);
        let mut told = Told::default();
        loop {
            tokio::select! {
                _ = regular.tick() => {}
                () = changed.notified() => {}
            }
            // First: a sample must not wait for a session.
            let session = self.has_session().await;
            let sample = told.settled(&changed, || self.sample()).await;
            told = Told::by(&sample);
            let posted = match session {
                Ok(()) => self.post(&sample).await,
                Err(why) => Err(why),
            };
            match posted {
                Ok(answer) => {
                    complained = false;
                    if answer.stopped {
                        // Nobody listens only when the agent ends.
                        let _ = self.stops.send(());
                    }
                }
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

    /// Gets a session for the next sample, where one is wanted and there is none.
    async fn has_session(&self) -> Result<(), String> {
        let bearer = self.target.credentials.bearer();
        match timeout(Duration::from_millis(SAMPLE_POST_MS_MAX), bearer).await {
            Ok(shown) => shown.map(drop).map_err(|error| error.to_string()),
            Err(_) => Err(format!("{} gives no session in time", self.target.monitor)),
        }
    }

    async fn post(&self, sample: &HostSample) -> Result<SampleAnswer, String> {
        let request = self.target.client.post(&self.address);
        let request = request.timeout(Duration::from_millis(SAMPLE_POST_MS_MAX)).json(sample);
        let sent = self.target.credentials.send(request);
        let sent = timeout(Duration::from_millis(SAMPLE_POST_MS_MAX), sent).await;
        let response = sent.map_err(|_| format!("{} does not answer in time", self.address))??;
        match response.status() {
            status if status.is_success() => {
                response.json().await.map_err(|error| format!("its answer is none: {error}"))
            }
            status => Err(format!("{} answers {status}", self.address)),
        }
    }
}

/// What the last sample said of this host's renders.
#[derive(Debug, Default)]
struct Told {
    epoch: Epoch,
    bookings: BTreeSet<BookingId>,
}

impl Told {
    fn by(sample: &HostSample) -> Self {
        let bookings = sample.bookings.iter().map(|booking| booking.booking.clone()).collect();
        Self { epoch: sample.epoch, bookings }
    }

    /// Whether a sample has a new booking for each preflight since.
    fn explains(&self, sample: &HostSample) -> bool {
        if sample.epoch.incarnation != self.epoch.incarnation {
            return true;
        }
        let is_new = |id: &BookingId| !self.bookings.contains(id);
        let new = sample.bookings.iter().filter(|booking| is_new(&booking.booking)).count();
        new as u64 >= sample.epoch.count.saturating_sub(self.epoch.count)
    }

    /// A sample by `take` that leaves no preflight half-way; or, as one may have died there, or
    /// its render may be over already, the one at the end of [`HALF_BOOKED_MS_MAX`].
    async fn settled(
        &self,
        changed: &Notify,
        mut take: impl FnMut() -> HostSample + Send,
    ) -> HostSample {
        let latest = boottime() + Span::from_millis(HALF_BOOKED_MS_MAX);
        loop {
            let sample = take();
            let left = latest.since(boottime());
            if self.explains(&sample) || left == Span::ZERO {
                return sample;
            }
            // Over is over: the turn of the loop says so.
            let _ = timeout(left.into(), changed.notified()).await;
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt;
    use gleaner_protocol::farm::{Booked, SampledBooking};

    use super::*;

    fn sample(count: u64, bookings: &[&str]) -> HostSample {
        let booking = |id: &&str| SampledBooking {
            booking: BookingId::new(id).expect("an id"),
            resources: Booked::default(),
        };
        HostSample {
            host: HostName::new("farm1").expect("a name"),
            origin: Origin::Farm,
            cores: 4,
            memory_mib: 1024,
            epoch: Epoch { incarnation: 7, count },
            watches: false,
            alive: Vec::new(),
            bookings: bookings.iter().map(booking).collect(),
            cpu_percent: 0.0,
            used_memory_mib: 0,
            replicas: 0,
        }
    }

    #[tokio::test]
    async fn a_preflight_that_has_not_booked_yet_is_waited_for() {
        let (told, changed) = (Told::by(&sample(3, &["a"])), Notify::new());
        let now = Mutex::new(sample(4, &["a"]));
        let mut settled = Box::pin(told.settled(&changed, || now.lock().expect("held").clone()));
        assert_eq!((&mut settled).now_or_never(), None);
        // Something else has changed.
        changed.notify_one();
        assert_eq!((&mut settled).now_or_never(), None);

        *now.lock().expect("held") = sample(4, &["a", "b"]);
        changed.notify_one();
        assert_eq!(settled.await, sample(4, &["a", "b"]));
    }

    #[tokio::test]
    async fn a_preflight_that_never_books_is_told_all_the_same() {
        let (told, changed) = (Told::by(&sample(3, &["a"])), Notify::new());
        let asked = boottime();
        assert_eq!(told.settled(&changed, || sample(4, &["a"])).await, sample(4, &["a"]));
        assert!(asked + Span::from_millis(HALF_BOOKED_MS_MAX) <= boottime());
    }

    #[tokio::test]
    async fn what_explains_itself_waits_for_nothing() {
        let changed = Notify::new();
        for (told, now) in [
            (sample(3, &["a"]), sample(3, &["a"])),
            (sample(3, &["a"]), sample(3, &[])),
            (sample(3, &["a"]), sample(5, &["b", "c"])),
            (HostSample { epoch: Epoch::default(), ..sample(0, &[]) }, sample(9, &["a"])),
        ] {
            let told = Told::by(&told);
            let settled = told.settled(&changed, || now.clone()).now_or_never();
            assert_eq!(settled, Some(now.clone()), "after {told:?}");
        }
    }
}

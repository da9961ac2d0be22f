//! A farm for stories about the monitor: hosts with run folders of their own, whose hooks and
//! agents speak to it when the story says so.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_monitor::{Effect, HostAllocation, HostView, Input, Monitor, Rules};
use gleaner_protocol::farm::{Booked, FarmEvent, HookEvent, HookKind, HostSample, SampledBooking};
use gleaner_protocol::{BookingId, Epoch, HostName, Origin, Span, Time};

/// Cores of every host of the stories.
pub(crate) const CORES: u32 = 12;
/// Memory of every host of the stories, in MiB.
pub(crate) const MEMORY_MIB: u64 = 48_000;
/// The quiet period of the stories, in seconds.
pub(crate) const QUIET_S: u64 = 60;
/// How often agents send samples, in seconds.
pub(crate) const SAMPLE_S: u64 = 10;

pub(crate) fn rules() -> Rules {
    Rules {
        quiet: Span::from_secs(QUIET_S),
        reserve_cores: 0,
        reserve_memory_mib: 0,
        fragment_valid: Span::from_secs(30),
        booking_limit: Span::from_secs(86_400),
        poll_interval: Span::from_secs(15),
    }
}

pub(crate) fn host(name: &str) -> HostName {
    HostName::new(name).expect("a name")
}

pub(crate) fn booking(name: &str) -> BookingId {
    BookingId::new(name).expect("a name")
}

pub(crate) fn cores(cores: u32) -> Booked {
    Booked { cores: Some(cores), memory_mib: None }
}

pub(crate) const WHOLE: Booked = Booked { cores: None, memory_mib: None };

/// A host's run folder.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    pub(crate) epoch: Epoch,
    pub(crate) bookings: BTreeMap<BookingId, Booked>,
    has_agent: bool,
}

pub(crate) struct Farm {
    pub(crate) monitor: Monitor,
    pub(crate) now: Time,
    pub(crate) folders: BTreeMap<HostName, Folder>,
    /// What the broker was told, in words; confirmations left out.
    told: Vec<String>,
    pub(crate) confirmations: usize,
    open: BTreeMap<HostName, (u32, u64, Epoch)>,
    next_sample: Time,
}

impl Farm {
    pub(crate) fn new() -> Self {
        Self::with(rules())
    }

    pub(crate) fn with(rules: Rules) -> Self {
        let now = Time::from_micros(1_000_000_000);
        Self {
            monitor: Monitor::new(rules),
            now,
            folders: BTreeMap::new(),
            told: Vec::new(),
            confirmations: 0,
            open: BTreeMap::new(),
            next_sample: now + Span::from_secs(SAMPLE_S),
        }
    }

    /// With host `a`, idle, its agent sending samples, its fragment open.
    pub(crate) fn with_open_host() -> Self {
        let mut farm = Self::new();
        farm.starts_agent("a");
        farm.advance(QUIET_S);
        farm.tells(["open a 12 at 0"]);
        farm
    }

    pub(crate) fn folder(&mut self, name: &str) -> &mut Folder {
        let incarnation = u64::try_from(self.folders.len()).expect("few") + 1;
        self.folders.entry(host(name)).or_insert_with(|| Folder {
            epoch: Epoch { incarnation, count: 0 },
            bookings: BTreeMap::new(),
            has_agent: false,
        })
    }

    pub(crate) fn starts_agent(&mut self, name: &str) {
        self.folder(name).has_agent = true;
        self.samples(name);
    }

    pub(crate) fn stops_agent(&mut self, name: &str) {
        self.folder(name).has_agent = false;
    }

    /// The preflight runs on the host; the monitor has not heard of it yet.
    pub(crate) fn preflight(&mut self, name: &str, render: &str, booked: Booked) -> HookEvent {
        let folder = self.folder(name);
        folder.epoch.count += 1;
        folder.bookings.insert(booking(render), booked);
        let epoch = folder.epoch;
        HookEvent {
            host: host(name),
            kind: HookKind::Preflight,
            booking: booking(render),
            resources: booked,
            epoch,
        }
    }

    /// Likewise the postflight.
    pub(crate) fn postflight(&mut self, name: &str, render: &str) -> HookEvent {
        let folder = self.folder(name);
        folder.bookings.remove(&booking(render));
        let epoch = folder.epoch;
        HookEvent {
            host: host(name),
            kind: HookKind::Postflight,
            booking: booking(render),
            resources: WHOLE,
            epoch,
        }
    }

    pub(crate) fn hears(&mut self, event: &HookEvent) {
        self.input(Input::Hook(event.clone()));
    }

    pub(crate) fn begins(&mut self, name: &str, render: &str, booked: Booked) {
        let event = self.preflight(name, render, booked);
        self.hears(&event);
    }

    pub(crate) fn ends(&mut self, name: &str, render: &str) {
        let event = self.postflight(name, render);
        self.hears(&event);
    }

    /// What its agent would send now.
    pub(crate) fn sample(&mut self, name: &str) -> HostSample {
        let folder = self.folder(name).clone();
        let bookings = folder.bookings.into_iter();
        HostSample {
            host: host(name),
            origin: Origin::Farm,
            cores: CORES,
            memory_mib: MEMORY_MIB,
            epoch: folder.epoch,
            bookings: bookings
                .map(|(booking, resources)| SampledBooking { booking, resources })
                .collect(),
            cpu_percent: 1.0,
            used_memory_mib: 1_000,
            replicas: 0,
        }
    }

    pub(crate) fn samples(&mut self, name: &str) {
        let sample = self.sample(name);
        self.input(Input::Sample(sample));
    }

    /// The farm's own record, asked for now and answered at once.
    pub(crate) fn polls(&mut self, hosts: &[(&str, &[(&str, u32)])]) {
        let asked_at = self.now;
        self.polls_asked_at(asked_at, hosts);
    }

    pub(crate) fn polls_asked_at(&mut self, asked_at: Time, hosts: &[(&str, &[(&str, u32)])]) {
        let allocation = |(name, bookings): &(&str, &[(&str, u32)])| HostAllocation {
            host: host(name),
            cores: CORES,
            memory_mib: MEMORY_MIB,
            bookings: bookings
                .iter()
                .map(|(render, n)| SampledBooking {
                    booking: booking(render),
                    resources: cores(*n),
                })
                .collect(),
        };
        let allocations = Some(hosts.iter().map(allocation).collect());
        self.input(Input::Poll { source: "farm".into(), asked_at, allocations });
    }

    pub(crate) fn poll_fails(&mut self) {
        let asked_at = self.now;
        self.input(Input::Poll { source: "farm".into(), asked_at, allocations: None });
    }

    /// Lets time pass: agents send their samples, the monitor is called when it asked to be.
    pub(crate) fn advance(&mut self, secs: u64) {
        self.advance_span(Span::from_secs(secs));
    }

    pub(crate) fn advance_span(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            let due = self.monitor.next_deadline().map_or(self.next_sample, |deadline| {
                assert!(deadline > self.now, "a deadline that has passed was not acted on");
                deadline.min(self.next_sample)
            });
            if due > end {
                break;
            }
            self.now = due;
            if due == self.next_sample {
                self.next_sample = due + Span::from_secs(SAMPLE_S);
                let agents: BTreeSet<HostName> = self
                    .folders
                    .iter()
                    .filter(|(_, folder)| folder.has_agent)
                    .map(|(name, _)| name.clone())
                    .collect();
                for name in agents {
                    self.samples(name.as_str());
                }
            }
            self.input(Input::Tick);
        }
        self.now = end;
        self.input(Input::Tick);
    }

    pub(crate) fn input(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.monitor.handle(self.now, input, &mut effects).expect("few hosts");
        self.monitor.check_invariants().expect("invariants hold");
        for effect in effects {
            match effect {
                Effect::Tell(event) => self.take(event),
                Effect::Occupied(occupied) => assert!(occupied.busy <= occupied.cores),
            }
        }
    }

    fn take(&mut self, event: FarmEvent) {
        match event {
            FarmEvent::FragmentOpened { host, epoch, cores, memory_mib, valid_ms, .. } => {
                assert_eq!(valid_ms, 30_000);
                let told = format!("open {} {cores} at {}", host.as_str(), epoch.count);
                let now = (cores, memory_mib, epoch);
                if self.open.insert(host, now) == Some(now) {
                    self.confirmations += 1;
                } else {
                    self.told.push(told);
                }
            }
            FarmEvent::FragmentClosed { host, reason } => {
                assert!(!reason.is_empty());
                self.told.push(format!("close {}", host.as_str()));
                self.open.remove(&host).expect("only what is open is closed");
            }
        }
    }

    /// Asserts what the broker was told since the last time, and nothing else.
    #[track_caller]
    pub(crate) fn tells<const N: usize>(&mut self, expected: [&str; N]) {
        assert_eq!(std::mem::take(&mut self.told), expected.map(str::to_owned));
    }

    /// What the broker was told last: cores and memory, if open.
    pub(crate) fn open_now(&self, name: &str) -> Option<(u32, u64, Epoch)> {
        self.open.get(&host(name)).copied()
    }

    pub(crate) fn view(&self, name: &str) -> HostView {
        self.monitor.view(self.now, &host(name)).expect("a known host")
    }

    /// Why it is closed.
    pub(crate) fn reason(&self, name: &str) -> String {
        match self.view(name).fragment {
            gleaner_monitor::FragmentView::Closed { reason } => reason,
            open @ gleaner_monitor::FragmentView::Open { .. } => panic!("{open:?}"),
        }
    }

    pub(crate) fn contradictions(&self, name: &str) -> Vec<String> {
        self.view(name).contradictions.into_iter().map(|known| known.text).collect()
    }
}

//! A farm for stories about the monitor: hosts with run folders of their own, whose hooks and
//! agents speak to it when the story says so.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_monitor::limits::END_LAG;
use gleaner_monitor::{
    BookingNames, Effect, FarmAnswer, HostAllocation, HostView, Input, Monitor, Polling,
    Remembered, Rendering, Rules,
};
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
/// For how long a farm may list what its host has ended, in seconds.
pub(crate) const END_LAG_S: u64 = END_LAG.as_millis() / 1_000;

pub(crate) fn rules() -> Rules {
    Rules {
        quiet: Span::from_secs(QUIET_S),
        reserve_cores: 0,
        reserve_memory_mib: 0,
        fragment_valid: Span::from_secs(30),
        booking_limit: Span::from_secs(86_400),
        poll_interval: Span::from_secs(15),
        polling: Polling::Off,
    }
}

pub(crate) fn host(name: &str) -> HostName {
    HostName::new(name).expect("a name")
}

pub(crate) fn booking(name: &str) -> BookingId {
    BookingId::new(name).expect("a name")
}

pub(crate) fn cores(cores: u32) -> Booked {
    Booked { cores: Some(cores), memory_mib: None, gpus: None }
}

pub(crate) const WHOLE: Booked = Booked { cores: None, memory_mib: None, gpus: None };

/// Hosts that a farm's own record lists, each with its renders and their cores.
type Listed<'a> = &'a [(&'a str, &'a [(&'a str, u32)])];

/// A host's run folder.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    pub(crate) epoch: Epoch,
    pub(crate) bookings: BTreeMap<BookingId, Booked>,
    /// Of these, those whose processes the agent sees to live.
    alive: BTreeSet<BookingId>,
    /// Whether the agent watches the farm's workers.
    pub(crate) watches: bool,
    has_agent: bool,
}

pub(crate) struct Farm {
    pub(crate) monitor: Monitor,
    rules: Rules,
    pub(crate) now: Time,
    pub(crate) folders: BTreeMap<HostName, Folder>,
    /// What the broker was told, in words; confirmations left out.
    told: Vec<String>,
    pub(crate) confirmations: usize,
    open: BTreeMap<HostName, (u32, u64, Epoch)>,
    /// GPUs that renders have booked, as the broker was told last.
    pub(crate) booked_gpus: BTreeMap<HostName, Option<u32>>,
    /// Whether the broker shows a stop as the reason why a host is closed.
    shown_stops: BTreeMap<HostName, bool>,
    /// Cores that a fragment opened or grew to, and the epoch that the opening carried.
    grown: Vec<(u32, Epoch)>,
    /// What was to be counted.
    pub(crate) rendered: Vec<Rendering>,
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
            rules,
            now,
            folders: BTreeMap::new(),
            told: Vec::new(),
            confirmations: 0,
            open: BTreeMap::new(),
            booked_gpus: BTreeMap::new(),
            shown_stops: BTreeMap::new(),
            grown: Vec::new(),
            rendered: Vec::new(),
            next_sample: now + Span::from_secs(SAMPLE_S),
        }
    }

    /// One that is polled.
    pub(crate) fn polled() -> Self {
        Self::with(Rules { polling: Polling::Awaited, ..rules() })
    }

    /// With host `a`, idle, its agent sending samples, its fragment open.
    pub(crate) fn with_open_host() -> Self {
        let mut farm = Self::new();
        farm.starts_agent("a");
        farm.advance(QUIET_S);
        farm.tells(["open a 12 at 0"]);
        farm
    }

    /// With host `a` without hooks, which the farm lists and which is open.
    pub(crate) fn polled_and_open() -> Self {
        let mut farm = Self::polled();
        farm.starts_agent("a");
        for _ in 0..=QUIET_S / 15 {
            farm.polls(&[("a", &[])]);
            farm.advance(15);
        }
        farm.tells(["open a 12 at 0"]);
        farm
    }

    pub(crate) fn folder(&mut self, name: &str) -> &mut Folder {
        let incarnation = u64::try_from(self.folders.len()).expect("few") + 1;
        self.folders.entry(host(name)).or_insert_with(|| Folder {
            epoch: Epoch { incarnation, count: 0 },
            bookings: BTreeMap::new(),
            watches: false,
            alive: BTreeSet::new(),
            has_agent: false,
        })
    }

    /// The monitor ends and another begins with what it was to remember. What the broker was told is
    /// over in time, and is left out here.
    pub(crate) fn restarts_monitor(&mut self) {
        let memory = self.monitor.remember(self.now);
        self.restarts_monitor_with(memory);
    }

    pub(crate) fn restarts_monitor_with(&mut self, memory: Vec<Remembered>) {
        self.monitor = Monitor::new(self.rules);
        self.monitor.recall(self.now, memory);
        self.open.clear();
        self.shown_stops.clear();
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
            release_us: None,
            failed: None,
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
            release_us: None,
            failed: None,
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

    /// Its agent sees a worker of the farm start something, and says so.
    pub(crate) fn sees_begin(&mut self, name: &str, render: &str, booked: Booked) {
        self.preflight(name, render, booked);
        self.folder(name).watches = true;
        self.folder(name).alive.insert(booking(render));
        self.samples(name);
    }

    /// Likewise its end.
    pub(crate) fn sees_end(&mut self, name: &str, render: &str) {
        self.postflight(name, render);
        self.folder(name).alive.remove(&booking(render));
        self.samples(name);
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
            watches: folder.watches,
            alive: folder.alive.into_iter().collect(),
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

    /// The farm's own record of one host, with what each render there books.
    pub(crate) fn polls_books(&mut self, name: &str, books: &[(&str, Booked)]) {
        let mut hosts = allocations(&[(name, &[])]);
        let booked = |(render, resources): &(&str, Booked)| SampledBooking {
            booking: booking(render),
            resources: *resources,
        };
        hosts[0].bookings = books.iter().map(booked).collect();
        let (source, asked_at) = ("farm".into(), self.now);
        self.input(Input::Poll { source, asked_at, is_extra: false, answer: Some(hosts.into()) });
    }

    /// Likewise, where hooks should have told of each of those renders.
    pub(crate) fn polls_of_frames(&mut self, hosts: Listed<'_>) {
        let mut hosts = allocations(hosts);
        for host in &mut hosts {
            host.announced = host.bookings.iter().map(|one| one.booking.clone()).collect();
        }
        let (source, asked_at) = ("farm".into(), self.now);
        self.input(Input::Poll { source, asked_at, is_extra: false, answer: Some(hosts.into()) });
    }

    /// Likewise, where a core of the farm's is so many of the host's.
    pub(crate) fn polls_of_threads(&mut self, core_threads: u32, hosts: Listed<'_>) {
        let mut hosts = allocations(hosts);
        for host in &mut hosts {
            host.core_threads = core_threads;
        }
        let (source, asked_at) = ("farm".into(), self.now);
        self.input(Input::Poll { source, asked_at, is_extra: false, answer: Some(hosts.into()) });
    }

    /// The farm's own record of one host: its renders, and what the manager withholds, each with its cores.
    pub(crate) fn polls_withheld(
        &mut self,
        name: &str,
        renders: &[(&str, u32)],
        withheld: &[(&str, u32)],
    ) {
        let mut hosts = allocations(&[(name, &[renders, withheld].concat())]);
        hosts[0].withheld = withheld.iter().map(|(name, _)| booking(name)).collect();
        let (source, asked_at) = ("farm".into(), self.now);
        self.input(Input::Poll { source, asked_at, is_extra: false, answer: Some(hosts.into()) });
    }

    /// The record of a farm manager whose bookings' names begin with this word.
    pub(crate) fn polls_of(&mut self, manager: &'static str, hosts: Listed<'_>) {
        let (source, asked_at) = (manager.into(), self.now);
        let names = BookingNames::Of(manager);
        let answer = Some(FarmAnswer { names, ..allocations(hosts).into() });
        self.input(Input::Poll { source, asked_at, is_extra: false, answer });
    }

    pub(crate) fn polls_asked_at(&mut self, asked_at: Time, hosts: &[(&str, &[(&str, u32)])]) {
        let (source, answer) = ("farm".into(), Some(allocations(hosts).into()));
        self.input(Input::Poll { source, asked_at, is_extra: false, answer });
    }

    /// The farm's own record, of which these texts are not understood.
    pub(crate) fn polls_with_unclear(&mut self, hosts: Listed<'_>, unclear: &[&str]) {
        let unclear = unclear.iter().map(|text| (*text).to_owned()).collect();
        let (source, asked_at) = ("farm".into(), self.now);
        let answer = Some(FarmAnswer { unclear, ..allocations(hosts).into() });
        self.input(Input::Poll { source, asked_at, is_extra: false, answer });
    }

    /// Each host was asked by itself, then, in a poll that began before.
    pub(crate) fn polls_each_asked_at(&mut self, began: Time, asked_at: Time, hosts: Listed<'_>) {
        let mut hosts = allocations(hosts);
        for host in &mut hosts {
            host.asked_at = Some(asked_at);
        }
        let (source, answer) = ("farm".into(), Some(hosts.into()));
        self.input(Input::Poll { source, asked_at: began, is_extra: false, answer });
    }

    /// It is asked out of turn; none stands for no answer.
    pub(crate) fn polls_out_of_turn(&mut self, hosts: Option<Listed<'_>>) {
        let (source, asked_at) = ("farm".into(), self.now);
        let answer = hosts.map(|hosts| allocations(hosts).into());
        self.input(Input::Poll { source, asked_at, is_extra: true, answer });
    }

    pub(crate) fn poll_fails(&mut self) {
        let (source, asked_at) = ("farm".into(), self.now);
        self.input(Input::Poll { source, asked_at, is_extra: false, answer: None });
    }

    /// Of some hosts it could not tell.
    pub(crate) fn polls_without(&mut self, silent: &[&str], hosts: Listed<'_>) {
        let (source, asked_at) = ("farm".into(), self.now);
        let silent = silent.iter().map(|name| host(name)).collect();
        let answer = Some(FarmAnswer { silent, ..allocations(hosts).into() });
        self.input(Input::Poll { source, asked_at, is_extra: false, answer });
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
                Effect::Rendering(rendering) => self.rendered.push(rendering),
            }
        }
    }

    fn take(&mut self, event: FarmEvent) {
        match event {
            FarmEvent::FragmentOpened {
                host, epoch, cores, memory_mib, gpus, valid_ms, ..
            } => {
                assert_eq!(valid_ms, 30_000);
                self.booked_gpus.insert(host.clone(), gpus);
                let told = format!("open {} {cores} at {}", host.as_str(), epoch.count);
                let now = (cores, memory_mib, epoch);
                if self.open.get(&host).is_none_or(|(before, ..)| *before < cores) {
                    self.grown.push((cores, epoch));
                }
                self.shown_stops.remove(&host);
                if self.open.insert(host, now) == Some(now) {
                    self.confirmations += 1;
                } else {
                    self.told.push(told);
                }
            }
            FarmEvent::FragmentClosed { host, reason } => {
                assert!(!reason.is_empty());
                let was_open = self.open.remove(&host).is_some();
                // Of one that is closed anyway only a stop and its end are told.
                let shown = self.shown_stops.insert(host.clone(), reason.contains("stopped by"));
                let is_news = shown.unwrap_or(false) != reason.contains("stopped by");
                assert!(was_open || is_news, "{} is told twice: {reason}", host.as_str());
                let word = if was_open { "close" } else { "why" };
                self.told.push(format!("{word} {}", host.as_str()));
            }
        }
    }

    /// Asserts what the broker was told since the last time, and nothing else.
    #[track_caller]
    pub(crate) fn tells<const N: usize>(&mut self, expected: [&str; N]) {
        assert_eq!(std::mem::take(&mut self.told), expected.map(str::to_owned));
    }

    /// What fragments grew to since this was asked last.
    pub(crate) fn grown(&mut self) -> Vec<(u32, Epoch)> {
        std::mem::take(&mut self.grown)
    }

    /// What was told until now is of no interest.
    pub(crate) fn forget(&mut self) {
        self.told.clear();
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

/// What the farm's own record says of hosts and their renders.
fn allocations(hosts: Listed<'_>) -> Vec<HostAllocation> {
    let allocation = |(name, bookings): &(&str, &[(&str, u32)])| HostAllocation {
        host: host(name),
        asked_at: None,
        cores: Some(CORES),
        memory_mib: Some(MEMORY_MIB),
        core_threads: 1,
        bookings: bookings
            .iter()
            .map(|(render, n)| SampledBooking { booking: booking(render), resources: cores(*n) })
            .collect(),
        announced: BTreeSet::new(),
        withheld: BTreeSet::new(),
    };
    hosts.iter().map(allocation).collect()
}

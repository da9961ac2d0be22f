//! A modelled farm whose hooks and agents speak to the monitor's state machine.

use gleaner_monitor::{Effect, Input, Monitor, Orders, Polling, Rules, Scribe};
use gleaner_protocol::farm::{Booked, HookEvent, HookKind, HostSample, SampledBooking};
use gleaner_protocol::recording::Line;
use gleaner_protocol::{BookingId, Epoch, HostName, Origin, Span, Time};

/// Cores of every host.
const CORES: u32 = 12;
/// The monitor's quiet period, in seconds.
pub(crate) const QUIET_S: u64 = 60;
/// How often agents send samples, in seconds.
const SAMPLE_S: u64 = 10;

struct Host {
    name: HostName,
    epoch: Epoch,
    /// Renders with their cores and when they end, in seconds.
    renders: Vec<(BookingId, u32, u64)>,
    next_render_s: u64,
    /// Until when its agent says nothing, in seconds.
    silent_until_s: u64,
}

/// A farm; time goes by in seconds.
pub(crate) struct Farm {
    monitor: Monitor,
    scribe: Scribe,
    hosts: Vec<Host>,
    random: u64,
    now_s: u64,
    idle_core_s: u64,
    /// How many hooks of a thousand never reach the monitor.
    pub(crate) hooks_lost_permille: u64,
    /// How many samples of a thousand are followed by two minutes of silence.
    pub(crate) agents_silent_permille: u64,
    /// Preflights that the monitor heard of.
    pub(crate) renders: u64,
    /// What was recorded.
    pub(crate) lines: Vec<Line>,
}

const START_S: u64 = 1_000;

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

impl Farm {
    pub(crate) fn new(seed: u64, hosts: u64) -> Self {
        Self::with_reserve(seed, hosts, 0)
    }

    /// One that keeps so many cores of every host.
    pub(crate) fn with_reserve(seed: u64, hosts: u64, reserve_cores: u32) -> Self {
        let rules = Rules {
            quiet: Span::from_secs(QUIET_S),
            reserve_cores,
            reserve_memory_mib: 0,
            fragment_valid: Span::from_secs(30),
            booking_limit: Span::from_secs(86_400),
            poll_interval: Span::from_secs(15),
            polling: Polling::Off,
        };
        let host = |number: u64| Host {
            name: HostName::new(format!("render{number}")).expect("a name"),
            epoch: Epoch { incarnation: number + 1, count: 0 },
            renders: Vec::new(),
            next_render_s: START_S + 100 * number,
            silent_until_s: 0,
        };
        Self {
            monitor: Monitor::new(rules),
            scribe: Scribe::default(),
            hosts: (0..hosts).map(host).collect(),
            random: seed,
            now_s: START_S,
            idle_core_s: 0,
            hooks_lost_permille: 0,
            agents_silent_permille: 0,
            renders: 0,
            lines: vec![Scribe::head(at(START_S), &rules)],
        }
    }

    /// Has the administrator order something.
    pub(crate) fn order(&mut self, orders: Orders) {
        self.tell(at(self.now_s), Input::Orders(orders));
    }

    /// Lets so many seconds pass.
    pub(crate) fn run(&mut self, seconds: u64) {
        let end_s = self.now_s + seconds;
        while self.now_s < end_s {
            while let Some(due) = self.monitor.next_deadline().filter(|due| *due < at(self.now_s)) {
                self.tell(due, Input::Tick);
            }
            self.tell(at(self.now_s), Input::Tick);
            for index in 0..self.hosts.len() {
                self.live(index);
            }
            for host in &self.hosts {
                let busy: u32 = host.renders.iter().map(|(_, cores, _)| cores).sum();
                self.idle_core_s += u64::from(CORES - busy);
            }
            self.now_s += 1;
        }
        self.tell(at(self.now_s), Input::Tick);
        let t_us = at(self.now_s).as_micros();
        self.lines.push(Line::Alive(gleaner_protocol::recording::AliveLine { t_us }));
    }

    /// What the farm left idle.
    pub(crate) fn idle_core_hours(&self) -> f64 {
        self.idle_core_s as f64 / 3600.0
    }

    /// One second of a host.
    fn live(&mut self, index: usize) {
        let now_s = self.now_s;
        let ended = self.hosts[index].renders.iter().position(|(_, _, until)| *until <= now_s);
        if let Some(place) = ended {
            let (booking, ..) = self.hosts[index].renders.remove(place);
            self.hook(index, HookKind::Postflight, booking, None);
        }
        let busy: u32 = self.hosts[index].renders.iter().map(|(_, cores, _)| cores).sum();
        if self.hosts[index].next_render_s <= now_s && busy < CORES {
            let free = u64::from(CORES - busy);
            let cores = u32::try_from(1 + self.below(free)).expect("few");
            let until_s = now_s + 20 + self.below(1800);
            let pause_s = self.below(1200);
            let host = &mut self.hosts[index];
            host.epoch.count += 1;
            host.next_render_s = now_s + 1 + pause_s;
            let booking = BookingId::new(format!("shot{}", host.epoch.count)).expect("a name");
            host.renders.push((booking.clone(), cores, until_s));
            // A render that takes the whole host says no number.
            let said = Some(cores).filter(|cores| *cores < CORES);
            self.hook(index, HookKind::Preflight, booking, said);
        }
        // Agents do not all speak at once.
        if (now_s + index as u64).is_multiple_of(SAMPLE_S) || now_s == START_S {
            self.sample(index);
        }
    }

    fn hook(&mut self, index: usize, kind: HookKind, booking: BookingId, cores: Option<u32>) {
        if self.below(1000) < self.hooks_lost_permille {
            return;
        }
        self.renders += u64::from(kind == HookKind::Preflight);
        let Host { name, epoch, .. } = &self.hosts[index];
        let resources = Booked { cores, memory_mib: None, gpus: None };
        let (host, epoch) = (name.clone(), *epoch);
        let event =
            HookEvent { host, kind, booking, resources, epoch, release_us: None, failed: None };
        self.tell(at(self.now_s), Input::Hook(event));
    }

    fn sample(&mut self, index: usize) {
        let now_s = self.now_s;
        if self.hosts[index].silent_until_s > now_s {
            return;
        }
        if self.below(1000) < self.agents_silent_permille {
            self.hosts[index].silent_until_s = now_s + 120;
        }
        let Host { name, epoch, renders, .. } = &self.hosts[index];
        let booking = |(booking, cores, _): &(BookingId, u32, u64)| SampledBooking {
            booking: booking.clone(),
            resources: Booked {
                cores: Some(*cores).filter(|c| *c < CORES),
                memory_mib: None,
                gpus: None,
            },
        };
        let sample = HostSample {
            host: name.clone(),
            origin: Origin::Farm,
            cores: CORES,
            // Not the subject: there is enough for every core.
            memory_mib: 1_000_000,
            epoch: *epoch,
            bookings: renders.iter().map(booking).collect(),
            watches: false,
            alive: Vec::new(),
            cpu_percent: 1.0,
            used_memory_mib: 1_000,
            replicas: 0,
        };
        self.tell(at(now_s), Input::Sample(sample));
    }

    fn tell(&mut self, now: Time, input: Input) {
        let mut effects: Vec<Effect> = Vec::new();
        self.lines.extend(Scribe::heard(now, &input));
        self.monitor.handle(now, input, &mut effects).expect("few hosts");
        for effect in &effects {
            self.lines.extend(self.scribe.decided(now, effect));
        }
    }

    /// A number below `bound`.
    ///
    /// Source: G. Marsaglia, "Xorshift RNGs", 2003.
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x9e37_79b9_7f4a_7c15) % bound
    }
}

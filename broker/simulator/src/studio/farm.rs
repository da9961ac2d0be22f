//! The hosts of the studio, and which of their cores are given when.

use std::collections::BTreeSet;

use gleaner_protocol::{
    Capabilities, HostInfo, HostKind, HostName, KernelName, Origin, Span, Time,
};

use super::loads::Kernel;
use crate::dice::Dice;
use crate::fragment::availability::{Lengths, Presence, Rhythm};
use crate::parameters::Settings;
use crate::replay::bookings::{Booking, lay_out};
use crate::replay::openings::{Step, openings};
use crate::replay::trace::TraceHost;

/// Purpose of chance: renders and owners, by host and part of it.
const PRESENCE: u64 = 20_000;
/// Renders book a host in so many equal parts.
const PARTS: u32 = 2;

/// What sort of host it is: that is what run times of a batch are told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A render host with many slower cores.
    Fat,
    /// A render host with fewer faster ones.
    Light,
    /// A desktop.
    Desktop,
}

impl Kind {
    /// The word for it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Fat => "fat",
            Self::Light => "light",
            Self::Desktop => "desktop",
        }
    }

    /// Its name as the core knows it.
    pub(super) fn name(self) -> HostKind {
        HostKind::new(self.as_str()).expect("a plain name")
    }
}

/// A host.
#[derive(Debug, Clone)]
pub(super) struct StudioHost {
    pub(super) info: HostInfo,
    pub(super) kind: Kind,
    /// How fast it computes what is not timed by kinds, a render host being 1.
    pub(super) speed: f64,
}

/// A host gives another number of cores from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gives {
    pub(super) at: Time,
    pub(super) host: u32,
    /// Cores that its renders, or its owner, leave.
    pub(super) left: u32,
    /// Of these, what no other lane is taken to hold, in thousandths of cores.
    pub(super) own_permille: u32,
}

impl Gives {
    /// All that is left.
    fn all(Step { at, host, slots }: Step) -> Self {
        Self { at, host, left: slots, own_permille: slots * 1_000 }
    }

    /// Cores to run something on: of the last one there may be a part.
    pub(super) fn slots(&self) -> u32 {
        self.own_permille.div_ceil(1_000)
    }
}

/// All hosts, and what they give.
#[derive(Debug, Clone)]
pub(super) struct StudioFarm {
    /// Render hosts first.
    pub(super) hosts: Vec<StudioHost>,
    /// What they give, in order of time.
    pub(super) steps: Vec<Gives>,
    /// After this time nothing changes any more.
    pub(super) end: Time,
}

impl StudioFarm {
    /// Draws one whose renders go on until `end`.
    pub(super) fn draw(settings: &Settings, seed: u64, end: Time) -> Result<Self, String> {
        let hosts = hosts(settings);
        let mut bookings = Vec::new();
        for (index, host) in (0_u32..).zip(&hosts) {
            let is_farm = host.kind != Kind::Desktop;
            let parts = if is_farm && host.info.cores >= PARTS { PARTS } else { 1 };
            let rhythm = if is_farm { renders(settings) } else { owners(settings) };
            for part in 0..parts {
                let purpose = PRESENCE + u64::from(PARTS * index + part);
                let presence = Presence::begin(rhythm, Dice::new(seed, purpose));
                let cores = (host.info.cores + part) / parts;
                book(presence, (index, cores), end, &mut bookings);
            }
        }
        let named = |host: &StudioHost| TraceHost {
            name: host.info.name.to_string(),
            cores: host.info.cores,
        };
        let traced = hosts.iter().map(named).collect();
        let trace = lay_out("the studio", traced, &bookings, Time::ZERO, end);
        let trace = trace.map_err(|error| error.to_string())?;
        let steps = openings(&trace, span_s(settings, "quiet_s"), 0);
        let steps = steps.into_iter().map(Gives::all).collect();
        Ok(Self { hosts, steps, end })
    }

    /// How many of the hosts are render hosts.
    pub(super) fn render_hosts(&self) -> usize {
        self.hosts.iter().filter(|host| host.kind != Kind::Desktop).count()
    }
}

/// A span that is set in seconds.
pub(super) fn span_s(settings: &Settings, name: &str) -> Span {
    Span::from_micros((settings.number(name) * 1e6) as u64)
}

/// How long nothing renders on a part of a render host, and how long something does.
fn renders(settings: &Settings) -> Rhythm {
    let used = settings.number("render_utilization_percent") / 100.0;
    let busy_s = 60.0 * settings.number("render_mean_min");
    let sigma = settings.number("render_sigma");
    Rhythm {
        there: Lengths::LogNormal(busy_s * (1.0 - used) / used, sigma),
        away: Lengths::LogNormal(busy_s, sigma),
    }
}

/// How long a desktop is left alone, and how long its owner uses it.
fn owners(settings: &Settings) -> Rhythm {
    Rhythm {
        there: Lengths::Exponential(60.0 * settings.number("desktop_idle_min")),
        away: Lengths::Exponential(60.0 * settings.number("desktop_used_min")),
    }
}

/// Books cores of a host while somebody else uses them.
fn book(mut of: Presence, (host, cores): (u32, u32), end: Time, into: &mut Vec<Booking>) {
    let mut from = Time::ZERO;
    while from < end {
        let until = of.until().min(end);
        if !of.is_there() {
            into.push(Booking { host, cores, from, until });
        }
        from = of.until();
        of.change();
    }
}

fn hosts(settings: &Settings) -> Vec<StudioHost> {
    let small = |name| u32::try_from(settings.count(name)).expect("within its range");
    let cache_mib = settings.count("chunk_cache_mib");
    let farm = |kind, number: u32| host(kind, number, (small("cores"), cache_mib, 1.0));
    let desktop = (small("desktop_cores"), 0, settings.number("desktop_speed"));
    let fat = (0..small("fat_hosts")).map(|number| farm(Kind::Fat, number));
    let light = (0..small("light_hosts")).map(|number| farm(Kind::Light, number));
    let desktops = (0..small("desktops")).map(|number| host(Kind::Desktop, number, desktop));
    fat.chain(light).chain(desktops).collect()
}

fn host(kind: Kind, number: u32, (cores, cache_mib, speed): (u32, u64, f64)) -> StudioHost {
    let is_farm = kind != Kind::Desktop;
    let name = HostName::new(format!("{}{number:03}", kind.as_str())).expect("a plain name");
    let kernels: BTreeSet<KernelName> = Kernel::ALL
        .into_iter()
        .filter(|of| is_farm || of.is_on_desktops())
        .map(Kernel::name)
        .collect();
    let info = HostInfo {
        name,
        origin: if is_farm { Origin::Farm } else { Origin::Desktop },
        owner: None,
        cores,
        memory_mib: 48 << 10,
        kind: Some(kind.name()),
        chunk_cache_mib: cache_mib,
        capabilities: Capabilities {
            kernels,
            wasm_memory_mib: if is_farm { 1 << 10 } else { 0 },
            ..Capabilities::default()
        },
    };
    StudioHost { info, kind, speed }
}

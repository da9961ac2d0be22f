//! What is known of the hosts, for people and programs to look at.

use std::cmp::Reverse;

use gleaner_protocol::api::{Contradiction, HostContradiction};
use gleaner_protocol::{BookingId, Epoch, HostName, Origin, Time};
use serde::Serialize;

use super::Monitor;
use super::bookings::Witness;
use super::fragment::Fragment;
use super::host::Host;

/// An element of the monitor's `GET /v1/hosts`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostView {
    /// Its name: its agent's, where one has spoken.
    pub host: HostName,
    /// What else the farm and its hooks call it.
    pub also_called: Vec<HostName>,
    /// Which side it is on, where its agent said so.
    pub origin: Option<Origin>,
    /// Cores it has.
    pub cores: Option<u32>,
    /// Its memory, in MiB.
    pub memory_mib: Option<u64>,
    /// CPU use of the whole host in percent of all its cores.
    pub cpu_percent: Option<f32>,
    /// Memory in use, in MiB.
    pub used_memory_mib: Option<u64>,
    /// Harvested replicas that run.
    pub replicas: Option<u32>,
    /// Renders that run.
    pub bookings: Vec<BookingView>,
    /// What is left.
    pub fragment: FragmentView,
    /// For how long nothing opens or grows yet, in milliseconds.
    pub quiet_ms: u64,
    /// Its epoch, where it is known.
    pub epoch: Option<Epoch>,
    /// How long ago a hook was heard, in milliseconds.
    pub event_age_ms: Option<u64>,
    /// How long ago its agent was heard, in milliseconds.
    pub sample_age_ms: Option<u64>,
    /// How long ago the farm listed it, in milliseconds.
    pub poll_age_ms: Option<u64>,
    /// Where sources disagreed, the oldest first.
    pub contradictions: Vec<Contradiction>,
}

/// A render that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BookingView {
    /// Which attempt of which render.
    pub booking: BookingId,
    /// Cores it books; none stands for the whole host.
    pub cores: Option<u32>,
    /// Memory it books, in MiB, where somebody said so.
    pub memory_mib: Option<u64>,
    /// Who says that it runs: `hook`, `sample`, `poll`.
    pub seen_by: Vec<&'static str>,
    /// How long it is known, in milliseconds.
    pub age_ms: u64,
}

/// What is left of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum FragmentView {
    /// Cores are free.
    Open {
        /// How many.
        cores: u32,
        /// Free memory, in MiB.
        memory_mib: u64,
        /// The epoch that the opening carries.
        epoch: Epoch,
    },
    /// None are.
    Closed {
        /// Why.
        reason: String,
    },
}

/// What was learned of a group of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LearnedView {
    /// Its name.
    pub group: String,
    /// For how long its hosts have to be quiet, in milliseconds.
    pub quiet_ms: u64,
    /// How many idle gaps between two renders that goes by; too few, and it is the configured one.
    pub gaps: usize,
}

/// Sums over all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Hosts that are known.
    pub hosts: u64,
    /// Their cores.
    pub cores: u64,
    /// Renders that run.
    pub bookings: u64,
    /// Open fragments.
    pub fragments: u64,
    /// Their cores.
    pub fragment_cores: u64,
    /// Contradictions so far.
    pub contradictions: u64,
}

impl Monitor {
    /// What is known of every host, in order of their names.
    pub fn views(&self, now: Time) -> impl Iterator<Item = HostView> + '_ {
        self.hosts.iter().map(move |(name, host)| self.view_of(now, name, host))
    }

    /// What is known of one host, by any of its names.
    #[must_use]
    pub fn view(&self, now: Time, name: &HostName) -> Option<HostView> {
        let name = self.known_as(name);
        self.hosts.get(name).map(|host| self.view_of(now, name, host))
    }

    fn view_of(&self, now: Time, name: &HostName, host: &Host) -> HostView {
        let also_called = self.names.aliases(name).cloned().collect();
        HostView { also_called, ..host.view(now, name) }
    }

    /// The quiet periods that are learned, in order of their groups' names.
    pub fn learned(&self) -> impl Iterator<Item = LearnedView> + '_ {
        self.learners.views()
    }

    /// Sums over all hosts, each of which counts once.
    #[must_use]
    pub fn totals(&self, now: Time) -> Totals {
        let mut totals = Totals::default();
        for (name, host) in &self.hosts {
            if !self.is_anothers(now, name, host) {
                host.add_to(&mut totals);
            }
        }
        totals
    }

    /// Where sources disagreed about hosts, the newest `most`, and how often they have.
    #[must_use]
    pub fn contradictions(&self, now: Time, most: usize) -> (Vec<HostContradiction>, u64) {
        let hosts = self.hosts.iter().filter(|(_, host)| host.contradictions_total > 0);
        let total = hosts.clone().map(|(_, host)| host.contradictions_total).sum();
        let mut all: Vec<_> = hosts
            .flat_map(|(name, host)| host.contradictions.iter().map(move |of| (name, of)))
            .collect();
        if all.len() > most {
            all.select_nth_unstable_by_key(most, |(_, of)| Reverse(of.at));
            all.truncate(most);
        }
        all.sort_unstable_by_key(|(_, of)| Reverse(of.at));
        let newest = all.into_iter().take(most).map(|(name, of)| HostContradiction {
            host: name.clone(),
            contradiction: of.view(now),
        });
        (newest.collect(), total)
    }
}

impl Host {
    pub(super) fn view(&self, now: Time, name: &HostName) -> HostView {
        let age_ms = |time: Time| now.since(time).as_millis();
        let size = self.size();
        let bookings = self.bookings.iter().map(|(id, booking)| BookingView {
            booking: id.clone(),
            cores: booking.cores(),
            memory_mib: booking.memory_mib(),
            seen_by: Witness::ALL
                .into_iter()
                .filter(|witness| booking.has(*witness))
                .map(Witness::as_str)
                .collect(),
            age_ms: age_ms(booking.began),
        });
        HostView {
            host: name.clone(),
            also_called: Vec::new(),
            origin: self.origin,
            cores: size.map(|size| size.cores),
            memory_mib: size.map(|size| size.memory_mib),
            cpu_percent: self.gauges.map(|gauges| gauges.cpu_percent),
            used_memory_mib: self.gauges.map(|gauges| gauges.used_memory_mib),
            replicas: self.gauges.map(|gauges| gauges.replicas),
            bookings: bookings.collect(),
            fragment: match &self.fragment {
                Fragment::Open { free, epoch, .. } => FragmentView::Open {
                    cores: free.cores,
                    memory_mib: free.memory_mib,
                    epoch: *epoch,
                },
                Fragment::Closed(reason) => FragmentView::Closed { reason: reason.clone() },
            },
            quiet_ms: self.quiet_until.since(now).as_micros().div_ceil(1_000),
            epoch: self.epoch,
            event_age_ms: self.last_event.map(age_ms),
            sample_age_ms: self.last_sample.map(age_ms),
            poll_age_ms: self.last_poll().map(age_ms),
            contradictions: self.contradictions.iter().map(|of| of.view(now)).collect(),
        }
    }

    pub(super) fn add_to(&self, totals: &mut Totals) {
        totals.hosts += 1;
        totals.cores += u64::from(self.size().map_or(0, |size| size.cores));
        totals.bookings += self.bookings.len() as u64;
        totals.contradictions += self.contradictions_total;
        if let Fragment::Open { free, .. } = &self.fragment {
            totals.fragments += 1;
            totals.fragment_cores += u64::from(free.cores);
        }
    }
}

impl super::host::Contradiction {
    fn view(&self, now: Time) -> Contradiction {
        let age_ms = now.since(self.at).as_millis();
        Contradiction { text: self.text.clone(), times: self.times, age_ms }
    }
}

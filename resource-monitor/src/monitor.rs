//! What the farm has booked, host by host, and which fragments that leaves: a plain state machine.
//!
//! It is told of hooks, samples, polls and the time, and says which fragments open, shrink,
//! grow, are confirmed and close.
//!
//! # Invariants
//! - A fragment never has more cores or memory than the host has, minus what is booked, minus
//!   the reserve.
//! - A fragment shrinks and closes at once; it opens and grows only after a quiet period in which
//!   nothing was booked, freed or lost sight of.
//! - An opening carries the newest epoch that the host was seen at; older news never lowers it,
//!   and an epoch that rose for an unknown reason closes the host.
//! - Where two sources contradict each other, what is booked by any of them is booked.
//! - A desktop host, and a host whose epoch is unknown, is never opened.

mod bookings;
mod fragment;
mod host;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::farm::{FarmEvent, HookEvent, HostSample, SampledBooking};
use gleaner_protocol::{HostName, Span, Time};
use thiserror::Error;

use crate::limits::HOSTS_MAX;
use host::Host;

pub use view::{BookingView, ContradictionView, FragmentView, HostView, Totals};

/// The rules by which fragments open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// For how long nothing must change before a fragment opens or grows.
    pub quiet: Span,
    /// Cores of every host that are never given.
    pub reserve_cores: u32,
    /// Memory of every host that is never given, in MiB.
    pub reserve_memory_mib: u64,
    /// For how long an opening holds unless it is confirmed.
    pub fragment_valid: Span,
    /// After how long a booking counts as ended although nobody said so.
    pub booking_limit: Span,
    /// How often the farm is polled.
    pub poll_interval: Span,
}

/// What the monitor is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A hook ran.
    Hook(HookEvent),
    /// An agent looked at its host.
    Sample(HostSample),
    /// The farm was asked what it has booked.
    Poll {
        /// Which source was asked.
        source: String,
        /// When: what it says may be as old as that.
        asked_at: Time,
        /// What it said; none where it could not be asked.
        allocations: Option<Vec<HostAllocation>>,
    },
    /// Nothing but time has passed.
    Tick,
}

/// What a farm says that it has booked on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAllocation {
    /// The host.
    pub host: HostName,
    /// Cores it has.
    pub cores: u32,
    /// Its memory, in MiB.
    pub memory_mib: u64,
    /// Renders on it.
    pub bookings: Vec<SampledBooking>,
}

/// What the monitor wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Tell the broker.
    Tell(FarmEvent),
    /// Write down what a host is like, where it is recorded.
    Occupied(Occupied),
}

/// What a host of the farm is like from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupied {
    /// Which host.
    pub host: HostName,
    /// Cores that it has.
    pub cores: u32,
    /// Of these, booked by the farm.
    pub busy: u32,
    /// Whether what happens on it is known.
    pub seen: bool,
    /// Whether a quiet period begins.
    pub disturbed: bool,
    /// Whether what was given of it ended as a whole, until that period is over.
    pub shut: bool,
}

/// The state of all hosts.
#[derive(Debug)]
pub struct Monitor {
    rules: Rules,
    hosts: BTreeMap<HostName, Host>,
    /// Of each host that waits for a time, that time. Kept equal to what the hosts say.
    deadlines: BTreeSet<(Time, HostName)>,
}

impl Monitor {
    /// Without any host yet.
    #[must_use]
    pub const fn new(rules: Rules) -> Self {
        Self { rules, hosts: BTreeMap::new(), deadlines: BTreeSet::new() }
    }

    /// Takes note of one input and pushes what is to be done.
    ///
    /// # Errors
    /// A host that would be one too many is not taken in.
    pub fn handle(
        &mut self,
        now: Time,
        input: Input,
        effects: &mut Vec<Effect>,
    ) -> Result<(), TooManyHosts> {
        self.on_time(now, effects);
        match input {
            Input::Hook(event) => {
                let name = event.host.clone();
                self.with_host(now, &name, effects, |host, rules| host.on_hook(now, rules, event))
            }
            Input::Sample(sample) => {
                let name = sample.host.clone();
                self.with_host(now, &name, effects, |host, rules| {
                    host.on_sample(now, rules, sample);
                })
            }
            Input::Poll { source, asked_at, allocations } => {
                self.on_poll(now, &source, asked_at, allocations, effects)
            }
            Input::Tick => Ok(()),
        }
    }

    /// When to call [`Monitor::handle`] with [`Input::Tick`] at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    /// What is known of every host, in order of their names.
    pub fn views(&self, now: Time) -> impl Iterator<Item = HostView> + '_ {
        self.hosts.iter().map(move |(name, host)| host.view(now, name))
    }

    /// What is known of one host.
    #[must_use]
    pub fn view(&self, now: Time, name: &HostName) -> Option<HostView> {
        self.hosts.get(name).map(|host| host.view(now, name))
    }

    /// Sums over all hosts.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for host in self.hosts.values() {
            host.add_to(&mut totals);
        }
        totals
    }

    /// Checks what must hold between any two inputs.
    ///
    /// # Errors
    /// The first check that fails, by its name.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        for (name, host) in &self.hosts {
            host.check(&self.rules)
                .map_err(|check| Violation { check, host: Some(name.clone()) })?;
        }
        let waiting: BTreeSet<(Time, HostName)> = self
            .hosts
            .iter()
            .filter_map(|(name, host)| Some((host.indexed_deadline?, name.clone())))
            .collect();
        if waiting != self.deadlines {
            return Err(Violation { check: "deadlines_are_indexed", host: None });
        }
        if self.hosts.len() > HOSTS_MAX {
            return Err(Violation { check: "hosts_are_bounded", host: None });
        }
        Ok(())
    }

    /// Breaks `deadlines_are_indexed`, and nothing else: only for tests, which show that the check
    /// sees it.
    #[cfg(feature = "sabotage")]
    pub fn mislay_deadlines(&mut self) {
        self.deadlines.clear();
    }

    /// Checks what must hold of one host between any two inputs; [`Monitor::check_invariants`] does
    /// it for all of them.
    ///
    /// # Errors
    /// The first check that fails, by its name.
    pub fn check_host(&self, name: &HostName) -> Result<(), Violation> {
        let Some(host) = self.hosts.get(name) else { return Ok(()) };
        let violation = |check| Violation { check, host: Some(name.clone()) };
        host.check(&self.rules).map_err(violation)?;
        let is_indexed = |time| self.deadlines.contains(&(time, name.clone()));
        match host.indexed_deadline.is_none_or(is_indexed) {
            true => Ok(()),
            false => Err(violation("deadlines_are_indexed")),
        }
    }

    fn on_poll(
        &mut self,
        now: Time,
        source: &str,
        asked_at: Time,
        allocations: Option<Vec<HostAllocation>>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), TooManyHosts> {
        let mut listed = BTreeSet::new();
        let mut outcome = Ok(());
        for allocation in allocations.into_iter().flatten() {
            let name = allocation.host.clone();
            let taken_in = self.with_host(now, &name, effects, |host, rules| {
                host.on_poll(now, rules, source, asked_at, allocation);
            });
            outcome = outcome.and(taken_in);
            listed.insert(name);
        }
        let missed: Vec<HostName> = self
            .hosts
            .iter()
            .filter(|(name, host)| host.is_covered_by(source) && !listed.contains(*name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in missed {
            self.with_host(now, &name, effects, |host, _| host.on_missed_poll())
                .expect("a host that was there is still there");
        }
        outcome
    }

    /// Hosts whose time has come.
    fn on_time(&mut self, now: Time, effects: &mut Vec<Effect>) {
        while let Some((time, name)) = self.deadlines.first() {
            if *time > now {
                return;
            }
            let name = name.clone();
            self.with_host(now, &name, effects, |_, _| {})
                .expect("a host that waits for a time is there");
        }
    }

    fn with_host(
        &mut self,
        now: Time,
        name: &HostName,
        effects: &mut Vec<Effect>,
        act: impl FnOnce(&mut Host, &Rules),
    ) -> Result<(), TooManyHosts> {
        if !self.hosts.contains_key(name) {
            if self.hosts.len() == HOSTS_MAX {
                return Err(TooManyHosts(name.clone()));
            }
            self.hosts.insert(name.clone(), Host::new(now, &self.rules));
        }
        let host = self.hosts.get_mut(name).expect("it was just put there");
        if let Some(time) = host.indexed_deadline.take() {
            self.deadlines.remove(&(time, name.clone()));
        }
        act(host, &self.rules);
        host.settle(now, &self.rules, name, effects);
        host.indexed_deadline = host.next_deadline(now, &self.rules);
        if let Some(time) = host.indexed_deadline {
            self.deadlines.insert((time, name.clone()));
        }
        Ok(())
    }
}

/// A farm larger than the monitor is made for, or someone who makes up hosts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("host {0} would be one more than the {HOSTS_MAX} hosts that a monitor watches")]
pub struct TooManyHosts(HostName);

/// An invariant that does not hold: a bug.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("check {check} fails on host {host:?}")]
pub struct Violation {
    /// The check's name.
    pub check: &'static str,
    /// On which host.
    pub host: Option<HostName>,
}

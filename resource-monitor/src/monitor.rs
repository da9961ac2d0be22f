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
//! - A farm that does not list a booking ends it only where it speaks of it, by its name or as it has listed it
//!   before: what a host renders for others is not its to end.
//! - What a process of lives, as its host's agent sees and says, runs: neither a farm that does not
//!   list it nor a limit ends it, as long as the agent speaks. Its own postflight does.
//! - A desktop host, a host whose epoch is unknown, and one whose agent has never spoken is never opened.
//! - Where the farm is polled, a host of which no hook has spoken is not opened before the farm has
//!   answered once since the start, and has listed it if it did so before or is known to have it: its
//!   agent alone knows nothing of its renders.
//! - What the administrator's orders bar is closed at once, and does not open while they hold; so
//!   is a host that they keep free.
//! - A closing is sent when a host closes, and to tell of one that is closed that the farm is
//!   stopped, or is no more.

mod bookings;
mod fragment;
mod host;
mod identity;
mod learners;
mod memory;
mod quiet_learner;
mod reserves;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::farm::{FarmEvent, HookEvent, HostSample, SampledBooking};
use gleaner_protocol::{BookingId, HostName, Span, Time};
use thiserror::Error;

use crate::comparison::Arm;
use crate::limits::HOSTS_MAX;
use crate::orders::Standing;
use crate::{BookingNames, Orders};
use host::Host;
use identity::Names;
use learners::Learners;
use memory::MEMORY_KEPT;
use reserves::{Reserves, Spare};

pub(crate) use host::UNNAMED_RENDERS;
pub use learners::RememberedGaps;
pub use memory::Remembered;
pub use view::{BookingView, FragmentView, HostView, LearnedView, Totals};

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
    /// Whether the farm is polled.
    pub polling: Polling,
}

/// What becomes of hosts of which only polls could tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polling {
    /// The farm is not polled: their agents' word is enough.
    Off,
    /// The farm has not answered since the start: none of them opens.
    Awaited,
    /// It has: those that it does not list, and never did, are taken by their agents' word.
    Answered,
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
        /// It was asked out of turn, because something may have changed: what it leaves out is
        /// missed only by those in turn, which leave time between them.
        is_extra: bool,
        /// What it said; none where it could not be asked.
        answer: Option<FarmAnswer>,
    },
    /// What the administrator orders, from now on.
    Orders(Orders),
    /// Nothing but time has passed.
    Tick,
}

/// How the farm was asked, see [`Input::Poll`].
#[derive(Debug, Clone, Copy)]
struct Poll<'a> {
    source: &'a str,
    asked_at: Time,
    is_extra: bool,
    names: BookingNames,
}

/// What a farm says when it is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FarmAnswer {
    /// What it has booked, host by host.
    pub hosts: Vec<HostAllocation>,
    /// Hosts that it has and could not tell of this time: nothing of them is known to have changed,
    /// and their agents' word alone opens none of them.
    pub silent: Vec<HostName>,
    /// Which bookings it would have listed, did they run; those that it has listed before as well.
    pub names: BookingNames,
    /// What it says of hosts whose names are not understood. A host whose name is one of these texts' words
    /// is not opened.
    pub unclear: Vec<String>,
    /// What people should know of it.
    pub notes: Vec<String>,
    /// How many parts of it were not understood. Each has cost a host of its own, or stands in `unclear`.
    pub not_understood: u64,
}

impl From<Vec<HostAllocation>> for FarmAnswer {
    fn from(hosts: Vec<HostAllocation>) -> Self {
        Self { hosts, ..Self::default() }
    }
}

/// What a farm says that it has booked on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAllocation {
    /// The host.
    pub host: HostName,
    /// When it was asked, where each host is; none where all of the farm was asked at once.
    pub asked_at: Option<Time>,
    /// Cores it has, where the farm says.
    pub cores: Option<u32>,
    /// Its memory, in MiB, where the farm says.
    pub memory_mib: Option<u64>,
    /// Threads of a core, where the farm books whole cores: it tells of all their threads, and the
    /// hook of a render that has one on each tells of as many.
    pub core_threads: u32,
    /// Renders on it, and what else keeps it from others.
    pub bookings: Vec<SampledBooking>,
    /// Of these, those that are no renders: the manager withholds the host, or a part of it.
    pub withheld: BTreeSet<BookingId>,
    /// Of these, those that a hook, where there is one, tells of by the same name before they begin;
    /// none where the farm's names or its ways are others.
    pub announced: BTreeSet<BookingId>,
}

/// What the monitor wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Tell the broker.
    Tell(FarmEvent),
    /// Write down what a host is like, where it is recorded.
    Occupied(Occupied),
    /// Count what a host renders, where harvest is compared with none.
    Rendering(Rendering),
}

/// What a host that is compared with others renders from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendering {
    /// Which host.
    pub host: HostName,
    /// What it is drawn for; none while it is not compared.
    pub arm: Option<Arm>,
    /// Whether it renders: what a manager withholds is no render.
    pub renders: bool,
    /// Renders that have ended since this was said last.
    pub ended: u32,
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
    orders: Orders,
    /// Why no host at all is harvested, where that is so; as the orders say.
    bar_to_all: Option<Arc<str>>,
    reserves: Reserves,
    learners: Learners,
    /// Of hosts that nobody has spoken of since the start.
    memory: BTreeMap<HostName, Remembered>,
    /// Until when that is passed on.
    memory_until: Time,
    hosts: BTreeMap<HostName, Host>,
    names: Names,
    /// Of each host that waits for a time, that time. Kept equal to what the hosts say.
    deadlines: BTreeSet<(Time, HostName)>,
}

impl Monitor {
    /// Without any host yet.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            orders: Orders::default(),
            bar_to_all: None,
            reserves: Reserves::default(),
            learners: Learners::new(rules.quiet),
            memory: BTreeMap::new(),
            memory_until: Time::ZERO,
            hosts: BTreeMap::new(),
            names: Names::default(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Begins with what a monitor knew before it ended: to be called before anything is heard.
    pub fn recall(&mut self, now: Time, memory: Vec<Remembered>) {
        let known = memory.into_iter().take(HOSTS_MAX);
        self.memory = known.map(|host| (host.host.clone(), host)).collect();
        self.memory_until = now + MEMORY_KEPT;
    }

    /// What another monitor should know that begins when this one has ended.
    #[must_use]
    pub fn remember(&self, now: Time) -> Vec<Remembered> {
        let unheard = self.memory.values().filter(|_| now < self.memory_until).cloned();
        let hosts = self.hosts.iter().filter_map(|(name, host)| host.remember(name));
        hosts.chain(unheard).take(HOSTS_MAX).collect()
    }

    /// Begins with what a monitor learned of quiet periods before it ended: to be called before
    /// anything is heard.
    pub fn recall_gaps(&mut self, memory: Vec<RememberedGaps>) {
        self.learners.recall(memory);
    }

    /// What of that another monitor should know that begins when this one has ended.
    #[must_use]
    pub fn remember_gaps(&self) -> Vec<RememberedGaps> {
        self.learners.remember()
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
        // Before what time brings: nothing opens in between.
        if let Input::Orders(orders) = input {
            self.on_orders(now, orders, effects);
            self.on_time(now, effects);
            return Ok(());
        }
        self.on_time(now, effects);
        match input {
            Input::Hook(event) => {
                let name = self.meant_by(&event.host);
                self.with_host(now, &name, effects, |host, rules| host.on_hook(now, rules, event))
            }
            Input::Sample(sample) => {
                let name = sample.host.clone();
                self.with_host(now, &name, effects, |host, rules| {
                    host.on_sample(now, rules, sample);
                })?;
                self.take_over(now, &name, effects);
                Ok(())
            }
            Input::Poll { source, asked_at, is_extra, answer } => {
                let answer = answer.map(|answer| self.with_known_names(answer));
                let names = answer.as_ref().map(|answer| answer.names).unwrap_or_default();
                let poll = Poll { source: &source, asked_at, is_extra, names };
                self.on_poll(now, poll, answer, effects)
            }
            Input::Orders(_) | Input::Tick => Ok(()),
        }
    }

    /// When to call [`Monitor::handle`] with [`Input::Tick`] at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    /// Checks what must hold between any two inputs.
    ///
    /// # Errors
    /// The first check that fails, by its name.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        for (name, host) in &self.hosts {
            let standing = self.orders.standing(name, self.bar_to_all.as_ref());
            host.check(&self.rules, &standing)
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
        let of_all = self.reserves.check().and_then(|()| self.learners.check(&self.orders));
        of_all.map_err(|check| Violation { check, host: None })?;
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
        let standing = self.orders.standing(name, self.bar_to_all.as_ref());
        host.check(&self.rules, &standing).map_err(violation)?;
        let is_indexed = |time| self.deadlines.contains(&(time, name.clone()));
        match host.indexed_deadline.is_none_or(is_indexed) {
            true => Ok(()),
            false => Err(violation("deadlines_are_indexed")),
        }
    }

    fn on_poll(
        &mut self,
        now: Time,
        poll: Poll<'_>,
        answer: Option<FarmAnswer>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), TooManyHosts> {
        let is_answered = answer.is_some();
        let FarmAnswer { hosts, silent, unclear, .. } = answer.unwrap_or_default();
        let mut listed = BTreeSet::new();
        let mut outcome = Ok(());
        for name in silent {
            let taken_in = self.with_host(now, &name, effects, |host, _| host.on_silent_poll());
            outcome = outcome.and(taken_in);
        }
        for allocation in hosts {
            let name = allocation.host.clone();
            let taken_in = self.with_host(now, &name, effects, |host, rules| {
                host.on_poll(now, rules, poll, allocation);
            });
            outcome = outcome.and(taken_in);
            listed.insert(name);
        }
        if is_answered {
            for name in self.note_unclear(&unclear) {
                self.with_host(now, &name, effects, |_, _| {})
                    .expect("a host that was there is still there");
            }
        }
        let missed: Vec<HostName> = self
            .hosts
            .iter()
            .filter(|_| !poll.is_extra)
            .filter(|(name, host)| host.is_covered_by(poll.source) && !listed.contains(*name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in missed {
            self.with_host(now, &name, effects, |host, _| host.on_missed_poll())
                .expect("a host that was there is still there");
        }
        // For hosts that it does not list this holds from their next sample on.
        if is_answered {
            self.rules.polling = Polling::Answered;
        }
        outcome
    }

    fn on_orders(&mut self, now: Time, orders: Orders, effects: &mut Vec<Effect>) {
        self.bar_to_all = orders.bar_to_all();
        self.reserves = Reserves::new(&orders);
        self.learners.follow(&orders);
        self.orders = orders;
        // All hosts are known to be spare before the first is kept, and kept before one opens.
        for (name, host) in &mut self.hosts {
            host.standing = self.orders.standing(name, self.bar_to_all.as_ref());
            host.spare = host.spare_now(now, &self.rules);
            self.reserves.note(&host.standing.reserves, name, Spare::No, host.spare);
        }
        let groups: Vec<usize> = (0..self.orders.groups.len()).collect();
        let kept = self.reserves.fill(&groups);
        let mut all: Vec<HostName> = self.hosts.keys().cloned().collect();
        // What is open is closed before it is said why others are closed.
        all.sort_by_key(|name| !self.hosts.get(name).is_some_and(Host::is_open));
        for name in kept.into_iter().chain(all) {
            self.with_host(now, &name, effects, |_, _| {})
                .expect("a host that was there is still there");
        }
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
            let standing = self.orders.standing(name, self.bar_to_all.as_ref());
            let rules = rules_of(&self.rules, &self.learners, &standing);
            let mut host = Host::new(now, &rules, standing);
            if let Some(memory) = self.memory.remove(name) {
                host.restore(now, memory);
            }
            self.hosts.insert(name.clone(), host);
            self.names.add(name);
        }
        let host = self.hosts.get_mut(name).expect("it was just put there");
        let rules = rules_of(&self.rules, &self.learners, &host.standing);
        act(host, &rules);
        host.end_overdue(now, &rules);
        host.recall(now, &rules);
        if let (Some(gap), Some(group)) = (host.note_gap(now), &host.standing.learns_quiet) {
            self.learners.note(group, gap);
        }
        self.look_whose_it_is(now, name, effects);
        // Others that are kept from now on close before this one may open.
        let mut kept = self.take_stock(now, name);
        while let Some(other) = kept.pop() {
            if other != *name {
                kept.extend(self.take_stock(now, &other));
                self.settle(now, &other, effects);
            }
        }
        self.settle(now, name, effects);
        Ok(())
    }

    /// Sees whether it is clear what is said of a host, and of others that may be the same.
    fn look_whose_it_is(&mut self, now: Time, name: &HostName, effects: &mut Vec<Effect>) {
        let others: Vec<HostName> = self.names.near(name).cloned().collect();
        for name in others.iter().chain([name]) {
            let Some(host) = self.hosts.get(name) else { continue };
            let doubt = self.doubt_of(now, name, host);
            let is_news = host.doubt != doubt;
            if let Some(host) = self.hosts.get_mut(name).filter(|_| is_news) {
                host.doubt = doubt;
            }
            if is_news && others.contains(name) {
                self.settle(now, name, effects);
            }
        }
    }

    /// Sees whether a host that is there is spare; the hosts that are kept from now on.
    fn take_stock(&mut self, now: Time, name: &HostName) -> Vec<HostName> {
        let host = self.hosts.get_mut(name).expect("a host that is kept is there");
        let now_spare = host.spare_now(now, &self.rules);
        let before = std::mem::replace(&mut host.spare, now_spare);
        let groups = &host.standing.reserves;
        self.reserves.note(groups, name, before, host.spare);
        self.reserves.fill(groups)
    }

    /// Brings a host that is there in line with what is known, kept and ordered.
    fn settle(&mut self, now: Time, name: &HostName, effects: &mut Vec<Effect>) {
        let host = self.hosts.get_mut(name).expect("a host that is kept is there");
        if let Some(time) = host.indexed_deadline.take() {
            self.deadlines.remove(&(time, name.clone()));
        }
        let groups = &host.standing.reserves;
        host.kept = self.reserves.why_kept(groups, name);
        let rules = rules_of(&self.rules, &self.learners, &host.standing);
        host.settle(now, &rules, name, effects);
        // Whether it is open may have changed.
        let spare = host.spare_now(now, &self.rules);
        self.reserves.note(&host.standing.reserves, name, host.spare, spare);
        host.spare = spare;
        host.indexed_deadline = host.next_deadline(now, &self.rules);
        if let Some(time) = host.indexed_deadline {
            self.deadlines.insert((time, name.clone()));
        }
    }
}

/// The rules, with the quiet period that was learned for a host of this standing.
fn rules_of(rules: &Rules, learners: &Learners, standing: &Standing) -> Rules {
    Rules { quiet: learners.wait(standing).unwrap_or(rules.quiet), ..*rules }
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

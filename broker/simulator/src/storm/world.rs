//! The world of a storm: events, and what each does.

mod agents;
mod broker_life;
mod links;

use std::fmt;

use gleaner_protocol::{Digest, JobId, LeaseToken, Origin, Span, Time, WorkunitId};
use gleaner_scheduling::{Input, JobPhase, RequestId};

use super::broker::Broker;
use super::host::{Host, LinkId, ToHost};
use super::watcher::Watcher;
use super::{Breach, StormConfig, StormFailure, StormReport};
use crate::calendar::Calendar;
use crate::dice::Dice;

/// How long after the last fault all work must have ended.
const CALM: Span = Span::from_secs(12 * 3600);
const LEASE_S: u64 = 900;

#[derive(Debug, Clone)]
enum Event {
    Submit,
    Cancel(JobId),
    /// A render begins on a farm host, or an owner comes back to a desktop.
    Taken(usize),
    Free(usize),
    LinkOpens(usize),
    LinkBreaks(usize),
    /// The broker finds out that a link is gone.
    LinkLost(usize, LinkId),
    ToBroker(usize, LinkId, Box<Input>),
    ToHost(usize, LinkId, ToHost),
    ReplicaEnds(usize, LeaseToken),
    Written,
    /// The broker dies, if it is still in this life.
    Crash(u64),
    Start,
    Deadline,
    Calm,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One purpose, one stream.
struct Chances {
    hosts: Dice,
    network: Dice,
    work: Dice,
    broker: Dice,
}

pub(super) struct World<'a> {
    seed: u64,
    config: &'a StormConfig,
    now: Time,
    calendar: Calendar<Event>,
    chances: Chances,
    hosts: Vec<Host>,
    broker: Broker,
    /// The link of each host as the broker knows it.
    links: Vec<Option<LinkId>>,
    /// When the last message on each host's link arrives, in both directions: none overtakes.
    arrivals: Vec<[Time; 2]>,
    next_link: LinkId,
    watcher: Watcher,
    report: StormReport,
    submissions: u32,
    /// When the core is to be told that time went by.
    deadline: Option<Time>,
    /// Lives of the broker so far.
    lives: u64,
    is_calm: bool,
    calm_since: Time,
}

impl<'a> World<'a> {
    pub(super) fn new(seed: u64, config: &'a StormConfig) -> Self {
        let mut chances = Chances {
            hosts: Dice::new(seed, 1),
            network: Dice::new(seed, 2),
            work: Dice::new(seed, 3),
            broker: Dice::new(seed, 4),
        };
        let slots = config.slots as usize;
        let origins = std::iter::repeat_n(Origin::Farm, config.farm_hosts as usize)
            .chain(std::iter::repeat_n(Origin::Desktop, config.desktop_hosts as usize));
        let hosts: Vec<_> = (0..)
            .zip(origins)
            .map(|(number, origin)| {
                let slots = u32::try_from(1 + chances.hosts.below(slots)).expect("few slots");
                Host::new(number, origin, slots, chances.hosts.chance(config.faulty_permille))
            })
            .collect();
        let mut world = Self {
            seed,
            config,
            now: Time::ZERO,
            calendar: Calendar::new(),
            chances,
            links: vec![None; hosts.len()],
            arrivals: vec![[Time::ZERO; 2]; hosts.len()],
            hosts,
            broker: Broker::new(config),
            next_link: 1,
            watcher: Watcher::default(),
            report: StormReport::default(),
            submissions: 0,
            deadline: None,
            lives: 0,
            is_calm: false,
            calm_since: Time::ZERO,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for host in 0..self.hosts.len() {
            let opens = self.chances.hosts.millis(0, 60_000);
            self.after(opens, Event::LinkOpens(host));
            let taken = self.chances.hosts.around_secs(240);
            self.after(taken, Event::Taken(host));
            let breaks = self.chances.network.around_secs(600);
            self.after(breaks, Event::LinkBreaks(host));
        }
        let lasts_ms = self.config.lasts.as_millis();
        for _ in 0..self.config.jobs {
            let at = self.chances.work.millis(0, lasts_ms / 2);
            self.after(at, Event::Submit);
        }
        self.crash_later();
        self.after(self.config.lasts, Event::Calm);
    }

    fn after(&mut self, span: Span, event: Event) {
        self.calendar.enter(self.now + span, event);
    }

    fn crash_later(&mut self) {
        let mean_s = (self.config.crash_every.as_millis() / 1000).max(1);
        let crash = self.chances.broker.around_secs(mean_s);
        self.after(crash, Event::Crash(self.lives));
    }

    pub(super) fn run(mut self) -> Result<StormReport, StormFailure> {
        while let Some((at, event)) = self.calendar.pop() {
            self.now = at;
            self.report.events += 1;
            let told = event.to_string();
            if let Err(breach) = self.happens(event).and_then(|()| self.check_progress()) {
                let (seed, policy) = (self.seed, self.config.policy);
                return Err(StormFailure { seed, policy, at, event: told, breach });
            }
            if self.is_calm && self.all_has_ended() {
                break;
            }
        }
        self.conclude().map_err(|breach| StormFailure {
            seed: self.seed,
            policy: self.config.policy,
            at: self.now,
            event: "the end".into(),
            breach,
        })?;
        Ok(self.report)
    }

    fn happens(&mut self, event: Event) -> Result<(), Breach> {
        match event {
            Event::Submit => return self.submit(),
            Event::Cancel(job) => {
                return self.feed(Input::Cancel { request: RequestId::new(0), job });
            }
            Event::Taken(host) => self.is_taken(host),
            Event::Free(host) => self.is_free(host),
            Event::LinkOpens(host) => self.link_opens(host),
            Event::LinkBreaks(host) => self.link_breaks(host),
            Event::LinkLost(host, link) => return self.link_lost(host, link),
            Event::ToBroker(host, link, input) => return self.broker_receives(host, link, *input),
            Event::ToHost(host, link, message) => self.host_receives(host, link, message),
            Event::ReplicaEnds(host, token) => self.replica_ends(host, token),
            Event::Written if self.broker.sync_is_due => {
                // The moment in which most is at stake.
                if !self.is_calm && self.chances.broker.chance(3) {
                    self.crash();
                    return Ok(());
                }
                return self.perform();
            }
            Event::Written => {}
            Event::Crash(life) if life == self.lives => self.crash(),
            Event::Crash(_) => {}
            Event::Start => return self.start(),
            Event::Deadline => {
                let due = self.broker.core().and_then(gleaner_scheduling::Core::next_deadline);
                if due.is_some_and(|due| due <= self.now) {
                    self.deadline = None;
                    return self.feed(Input::Tick);
                }
            }
            Event::Calm => {
                self.is_calm = true;
                self.calm_since = self.now;
            }
        }
        Ok(())
    }

    fn check_progress(&mut self) -> Result<(), Breach> {
        let calm = self.now - self.calm_since;
        if !self.is_calm || calm < CALM {
            return Ok(());
        }
        let Some(core) = self.broker.core() else { return Ok(()) };
        let stuck = core.farm().jobs().find(|job| job.phase == JobPhase::Active);
        stuck.map_or(Ok(()), |job| {
            let reasons = core.explain_job(job.id).unwrap_or_default();
            let why: Vec<_> = reasons.iter().map(ToString::to_string).collect();
            Err(Breach::Stuck { job: job.id, calm, why: why.join("; ") })
        })
    }

    fn all_has_ended(&self) -> bool {
        self.submissions >= self.config.jobs
            && !self.broker.has_unwritten()
            && self
                .broker
                .core()
                .is_some_and(|core| core.farm().jobs().all(|job| job.phase != JobPhase::Active))
    }

    fn conclude(&mut self) -> Result<(), Breach> {
        let core = self.broker.core().expect("the broker is up when all has ended");
        self.report.ended_at = self.now;
        for id in self.watcher.jobs() {
            let job = core.farm().job(*id).ok_or(Breach::JobLost(*id))?;
            self.report.jobs_cancelled += u32::from(job.phase == JobPhase::Cancelled);
            self.report.decided += u64::from(job.ended.decided());
            self.report.given_up += u64::from(job.ended.failed());
        }
        for (id, digest) in self.watcher.decided() {
            let job = core.farm().job(id.job).ok_or(Breach::JobLost(id.job))?;
            if job.ended.digest(id.index) != Some(*digest) {
                return Err(Breach::DecisionChanged(*id));
            }
            if *digest != output(*id, "") {
                self.report.wrong += 1;
                // Faulty hosts lie each in their own way: two that agree tell the truth.
                if job.spec.quorum() > 1 {
                    return Err(Breach::WrongOutput(*id));
                }
            }
        }
        Ok(())
    }
}

/// The right output of a workunit, or a liar's own.
fn output(workunit: WorkunitId, lie: &str) -> Digest {
    Digest::of(format!("{workunit}{lie}").as_bytes())
}

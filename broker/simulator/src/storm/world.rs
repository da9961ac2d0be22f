//! The world of a storm: events, and what each does.

use std::fmt;

use gleaner_protocol::control::ReleaseReason;
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Digest, HostName, JobId, KernelName, LeaseToken, Origin, OwnerName, ReplicaId, Span, Time,
    WorkunitId,
};
use gleaner_scheduling::{Effect, Input, JobPhase, ReportedOutcome, RequestId};

use super::broker::Broker;
use super::host::{Done, Host, LinkId, ToHost};
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
    ToBroker(usize, LinkId, Input),
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
            Event::ToBroker(host, link, input) => return self.to_broker(host, link, input),
            Event::ToHost(host, link, message) => self.to_host(host, link, message),
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
                let due = self.broker.core().and_then(|core| core.next_deadline());
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

    fn submit(&mut self) -> Result<(), Breach> {
        if self.broker.core().is_none() {
            // Its submitter tries again.
            self.after(Span::from_secs(5), Event::Submit);
            return Ok(());
        }
        self.submissions += 1;
        let dice = &mut self.chances.work;
        let replication = u8::try_from(1 + dice.below(3)).expect("at most 3");
        let count = 1 + dice.below(self.config.workunits as usize);
        let more = dice.below(1 + usize::from(replication));
        let spec = JobSpec {
            name: format!("storm-{}", self.submissions),
            owner: OwnerName::new(format!("owner{}", dice.below(3))).expect("a plain name"),
            lane: Lane::Background,
            task: Task::Kernel(KernelName::new("model").expect("a plain name")),
            workunits: Workunits::Count(u32::try_from(count).expect("few workunits")),
            replication,
            quorum: None,
            max_replicas: Some(u16::from(replication) + u16::try_from(more).expect("few")),
            lease_s: LEASE_S,
        };
        if dice.chance(250) {
            let job = JobId::new(u64::from(self.submissions));
            let cancel = dice.around_secs(200);
            self.after(cancel, Event::Cancel(job));
        }
        self.feed(Input::Submit { request: RequestId::new(u64::from(self.submissions)), spec })
    }

    // The broker.

    fn feed(&mut self, input: Input) -> Result<(), Breach> {
        let effects = self.broker.handle(self.now, input)?.to_vec();
        let Some(core) = self.broker.core() else { return Ok(()) };
        let name = |host| core.farm().host(host).info.name.clone();
        let hosts = &self.hosts;
        let is_done = |token| hosts.iter().any(|host| host.done.contains_key(&token));
        self.watcher.wanted(&effects, name, is_done)?;
        let due = core.next_deadline();
        if due != self.deadline {
            self.deadline = due;
            if let Some(due) = due {
                self.calendar.enter(due.max(self.now), Event::Deadline);
            }
        }
        if !self.broker.has_unwritten() {
            return self.perform();
        }
        if !self.broker.sync_is_due {
            self.broker.sync_is_due = true;
            let sync = self.chances.broker.millis(1, 40);
            self.after(sync, Event::Written);
        }
        Ok(())
    }

    fn perform(&mut self) -> Result<(), Breach> {
        self.broker.sync_is_due = false;
        for effect in self.broker.performed() {
            self.watcher.performed(&effect, &mut self.report)?;
            let (host, message) = match effect {
                Effect::Welcome { host, adopted } => (host, ToHost::Welcome(adopted)),
                Effect::Lease { host, token, replica } => (host, ToHost::Lease(token, replica)),
                Effect::Abort { host, token, .. } => (host, ToHost::Abort(token)),
                Effect::Verdict { host, token, .. } => (host, ToHost::Verdict(token)),
                _ => continue,
            };
            let Some(core) = self.broker.core() else { continue };
            let host = self.number_of(&core.farm().host(host).info.name);
            if let Some(link) = self.links[host] {
                let at = self.arrives(host, 0);
                self.calendar.enter(at, Event::ToHost(host, link, message));
            }
        }
        Ok(())
    }

    fn number_of(&self, name: &HostName) -> usize {
        let mut hosts = self.hosts.iter();
        hosts.position(|host| host.info.name == *name).expect("only hosts of this world join")
    }

    fn crash(&mut self) {
        if self.is_calm || self.broker.core().is_none() {
            return;
        }
        self.lives += 1;
        self.report.crashes += 1;
        self.report.facts_lost += self.broker.crash(&mut self.chances.broker);
        for host in 0..self.hosts.len() {
            self.links[host] = None;
            if self.hosts[host].link.take().is_some() {
                self.reconnect_later(host);
            }
        }
        let down = self.chances.broker.millis(100, 60_000);
        self.after(down, Event::Start);
    }

    fn start(&mut self) -> Result<(), Breach> {
        self.broker.start(&mut self.chances.broker)?;
        self.deadline = None;
        let core = self.broker.core().expect("it has just started");
        self.watcher.restarted(core, &self.broker.durable)?;
        self.crash_later();
        Ok(())
    }

    // Links.

    fn reconnect_later(&mut self, host: usize) {
        let most_ms = if self.chances.network.chance(150) { 400_000 } else { 5_000 };
        let again = self.chances.network.millis(100, most_ms);
        self.after(again, Event::LinkOpens(host));
    }

    fn link_opens(&mut self, host: usize) {
        if self.hosts[host].link.is_some() {
            return;
        }
        if self.broker.core().is_none() {
            return self.reconnect_later(host);
        }
        let link = self.next_link;
        self.next_link += 1;
        let entry = &mut self.hosts[host];
        (entry.link, entry.is_welcome, entry.asked) = (Some(link), false, 0);
        let (info, fragment, held) = (entry.info.clone(), entry.fragment(), entry.held());
        self.says(host, Input::HostJoined { info, fragment, held });
    }

    fn link_breaks(&mut self, host: usize) {
        if self.is_calm {
            return;
        }
        if let Some(link) = self.hosts[host].link.take() {
            self.report.links_broken += 1;
            let found_out = self.chances.network.millis(10, 20_000);
            self.after(found_out, Event::LinkLost(host, link));
            self.reconnect_later(host);
        }
        let breaks = self.chances.network.around_secs(600);
        self.after(breaks, Event::LinkBreaks(host));
    }

    fn link_lost(&mut self, host: usize, link: LinkId) -> Result<(), Breach> {
        if self.links[host] != Some(link) {
            return Ok(());
        }
        self.links[host] = None;
        let name = self.hosts[host].info.name.clone();
        self.watcher.left(&name);
        self.feed(Input::HostLeft { host: name })
    }

    /// When a message sent now arrives: behind those sent before it.
    fn arrives(&mut self, host: usize, direction: usize) -> Time {
        let most_ms = if self.chances.network.chance(20) { 5_000 } else { 20 };
        let at = self.now + self.chances.network.millis(0, most_ms);
        let last = &mut self.arrivals[host][direction];
        *last = at.max(*last);
        *last
    }

    /// The agent sends a message, if it has a link.
    fn says(&mut self, host: usize, input: Input) {
        if let Some(link) = self.hosts[host].link {
            let at = self.arrives(host, 1);
            self.calendar.enter(at, Event::ToBroker(host, link, input));
        }
    }

    fn to_broker(&mut self, host: usize, link: LinkId, input: Input) -> Result<(), Breach> {
        if self.broker.core().is_none() || self.hosts[host].link != Some(link) {
            return Ok(());
        }
        let name = self.hosts[host].info.name.clone();
        match &input {
            Input::HostJoined { fragment, .. } => {
                self.links[host] = Some(link);
                self.watcher.joined(&name, fragment.slots);
            }
            _ if self.links[host] != Some(link) => return Ok(()),
            Input::Fragment { fragment, .. } => self.watcher.fragment(&name, fragment.slots),
            Input::Report { token, .. } | Input::Released { token, .. } => {
                self.watcher.ended(&name, *token);
            }
            _ => {}
        }
        self.feed(input)
    }

    // Hosts.

    fn to_host(&mut self, host: usize, link: LinkId, message: ToHost) {
        let entry = &mut self.hosts[host];
        if entry.link != Some(link) {
            return;
        }
        match message {
            ToHost::Welcome(adopted) => {
                entry.is_welcome = true;
                entry.running.retain(|token, _| adopted.contains(token));
                entry.done.retain(|token, _| adopted.contains(token));
                let done: Vec<_> = entry.done.keys().copied().collect();
                for token in done {
                    self.reports(host, token);
                }
                self.asks(host);
            }
            ToHost::Lease(token, replica) => {
                entry.asked = entry.asked.saturating_sub(1);
                if entry.running.len() >= entry.slots as usize {
                    return self.releases(host, token, ReleaseReason::FragmentClosed);
                }
                entry.running.insert(token, replica);
                let takes_s = if self.chances.work.chance(50) { 1500 } else { 60 };
                let takes = self.chances.work.around_secs(takes_s);
                self.after(takes, Event::ReplicaEnds(host, token));
            }
            ToHost::Abort(token) => {
                entry.done.remove(&token);
                if entry.running.remove(&token).is_some() {
                    self.releases(host, token, ReleaseReason::Aborted);
                }
                self.asks(host);
            }
            ToHost::Verdict(token) => {
                entry.done.remove(&token);
            }
        }
    }

    fn asks(&mut self, host: usize) {
        let entry = &mut self.hosts[host];
        let slots = entry.wants();
        if slots > 0 && entry.is_welcome && entry.link.is_some() {
            entry.asked += slots;
            let host_name = entry.info.name.clone();
            self.says(host, Input::Request { host: host_name, slots });
        }
    }

    fn releases(&mut self, host: usize, token: LeaseToken, reason: ReleaseReason) {
        let name = self.hosts[host].info.name.clone();
        self.says(host, Input::Released { host: name, token, reason });
    }

    fn replica_ends(&mut self, host: usize, token: LeaseToken) {
        let Some(replica) = self.hosts[host].running.remove(&token) else { return };
        let outcome = self.outcome(host, replica);
        self.hosts[host].done.insert(token, Done { replica, outcome });
        self.reports(host, token);
        if self.chances.network.chance(50) {
            self.reports(host, token);
        }
        self.asks(host);
    }

    fn outcome(&mut self, host: usize, replica: ReplicaId) -> ReportedOutcome {
        let lies =
            self.hosts[host].is_faulty && self.chances.hosts.chance(self.config.lie_permille);
        if lies && self.chances.hosts.chance(300) {
            return ReportedOutcome::Failed("out of order".into());
        }
        let lie = if lies { host.to_string() } else { String::new() };
        ReportedOutcome::Output(output(replica.workunit, &lie))
    }

    fn reports(&mut self, host: usize, token: LeaseToken) {
        let entry = &self.hosts[host];
        if !entry.is_welcome {
            return;
        }
        let Some(Done { replica, outcome }) = entry.done.get(&token).cloned() else { return };
        let name = entry.info.name.clone();
        self.says(host, Input::Report { host: name, token, replica, outcome, cpu_us: 1000 });
    }

    /// Preflight: what no longer fits is driven out before anything else happens.
    fn is_taken(&mut self, host: usize) {
        if self.is_calm || self.hosts[host].is_taken {
            return;
        }
        self.hosts[host].is_taken = true;
        let slots = self.hosts[host].most_slots as usize;
        let left = if self.chances.hosts.chance(500) { 0 } else { self.chances.hosts.below(slots) };
        self.set_slots(host, u32::try_from(left).expect("few slots"));
        let free = self.chances.hosts.around_secs(120);
        self.after(free, Event::Free(host));
        if self.hosts[host].info.origin == Origin::Desktop && self.chances.hosts.chance(300) {
            // It is switched off: what ran is lost, nobody is told.
            self.hosts[host].running.clear();
            self.hosts[host].done.clear();
            if let Some(link) = self.hosts[host].link.take() {
                self.after(Span::from_secs(10), Event::LinkLost(host, link));
            }
        }
    }

    fn set_slots(&mut self, host: usize, slots: u32) {
        self.hosts[host].slots = slots;
        let driven_out = self.hosts[host].drive_out();
        self.report.preempted += driven_out.len() as u64;
        let (name, fragment) = (self.hosts[host].info.name.clone(), self.hosts[host].fragment());
        for token in driven_out {
            self.releases(host, token, ReleaseReason::Preempted);
        }
        self.says(host, Input::Fragment { host: name, fragment });
    }

    fn is_free(&mut self, host: usize) {
        self.hosts[host].is_taken = false;
        let slots = self.hosts[host].most_slots;
        self.set_slots(host, slots);
        self.asks(host);
        if self.hosts[host].link.is_none() {
            self.reconnect_later(host);
        }
        let taken = self.chances.hosts.around_secs(240);
        self.after(taken, Event::Taken(host));
    }

    // The end.

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

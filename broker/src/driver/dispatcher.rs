//! Commands into the core's inputs, the core's effects into messages, answers and events: all of
//! the driver that needs no runtime, so that a simulator can drive it too.

use gleaner_protocol::api::{FarmEventsAccepted, JobStatus, ProgressEvent, Submitted};
use gleaner_protocol::control::{AgentMessage, BrokerMessage, Hello, Lease, Opening};
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::job::{JobSpec, Task};
use gleaner_protocol::limits::{OPENING_ENDED_MAX, bounded_reason};
use gleaner_protocol::{
    HostName, JobId, KernelTime, LimitsChange, Measured, ReplicaId, Share, Span, Time, WorkunitId,
};
use gleaner_scheduling::{Core, Effect, HostIx, Input, JobPhase, RequestId, SubmitRefusal};

use super::command::LinkMessage;
use super::decided::Decided;
use super::links::Links;
use super::progress::Progress;
use super::recent::RecentDigests;
use super::retention::Retention;
use super::{LinkId, PreparedReport};
use crate::limits::TURN_FORGETS_MAX;

/// The core and the links that speak for its hosts. `M` is where a link's messages go.
///
/// # Invariants
/// - The core is touched through this alone.
/// - What a turn decided is in its [`Decided`], in the order in which it was decided.
pub struct Dispatcher<M> {
    core: Core,
    incarnation: u32,
    links: Links<M>,
    progress: Progress,
    stored: RecentDigests,
    effects: Vec<Effect>,
    next_request: u64,
    retention: Retention,
}

/// What came of the wish that a job be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forgotten {
    /// It is; this was the last of it.
    Yes(JobStatus),
    /// It goes on.
    Active,
    /// There is no such job.
    Unknown,
}

impl<M: Clone> Dispatcher<M> {
    /// Begins a life of the broker with a core that was restored, or a new one.
    #[must_use]
    pub fn new(core: Core, incarnation: u32) -> Self {
        Self {
            core,
            incarnation,
            links: Links::default(),
            progress: Progress::default(),
            stored: RecentDigests::default(),
            effects: Vec::new(),
            next_request: 0,
            retention: Retention::default(),
        }
    }

    /// Forgets jobs so long after their end, those that have ended before now so long after now.
    pub fn forget_after(&mut self, now: Time, keep: Span) {
        self.retention = Retention::new(Some(keep));
        let ended = self.core.farm().jobs().filter(|job| job.phase != JobPhase::Active);
        ended.for_each(|job| self.retention.ended(now, job.id));
    }

    /// What it knows.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// When [`Dispatcher::tick`] is due at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let core = self.core.next_deadline();
        let ours = [self.progress.next_deadline(), self.retention.next_deadline()];
        ours.into_iter().chain([core]).flatten().min()
    }

    /// Nothing but time went by.
    pub fn tick(&mut self, now: Time, turn: &mut Decided<M>) {
        self.feed(now, Input::Tick, turn);
    }

    /// Tells of the progress that is due. The last of each turn.
    pub fn end_turn(&mut self, now: Time, turn: &mut Decided<M>) {
        for _ in 0..TURN_FORGETS_MAX {
            let Some(job) = self.retention.take_due(now) else { break };
            self.feed(now, Input::Forget { job }, turn);
        }
        self.progress.emit_due(now, &self.core, turn);
    }

    /// Takes a job. The answer may be given once the turn is durable.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn submit(
        &mut self,
        now: Time,
        spec: JobSpec,
        turn: &mut Decided<M>,
    ) -> Result<Submitted, SubmitRefusal> {
        let request = self.next_request();
        let workunits = spec.workunits.len();
        let mut effects = Vec::new();
        self.core.handle(now, Input::Submit { request, spec }, &mut effects);
        let mut result = None;
        for effect in effects {
            match effect {
                Effect::Submitted { result: of, .. } => result = Some(of),
                other => self.translate(now, other, turn),
            }
        }
        let job = result.expect("the core answers each submission")?;
        turn.events.push(ProgressEvent::JobAccepted { job, workunits });
        Ok(Submitted { job, workunits })
    }

    /// Cancels a job; `false` where there is none. The answer may be given once the turn is
    /// durable.
    pub fn cancel(&mut self, now: Time, job: JobId, turn: &mut Decided<M>) -> bool {
        let request = self.next_request();
        self.feed(now, Input::Cancel { request, job }, turn);
        self.core.farm().job(job).is_some()
    }

    /// Forgets a job that has ended. The answer may be given once the turn is durable.
    pub fn forget(&mut self, now: Time, job: JobId, turn: &mut Decided<M>) -> Forgotten {
        let Some(known) = self.core.farm().job(job) else { return Forgotten::Unknown };
        if known.phase == JobPhase::Active {
            return Forgotten::Active;
        }
        let status = known.status();
        self.feed(now, Input::Forget { job }, turn);
        Forgotten::Yes(status)
    }

    /// A link was opened; nobody has spoken on it yet.
    pub fn link_opened(&mut self, link: LinkId, mailbox: M) {
        self.links.open(link, mailbox);
    }

    /// Messages came over a link, in this order.
    pub fn link_messages(
        &mut self,
        now: Time,
        link: LinkId,
        messages: impl IntoIterator<Item = LinkMessage>,
        turn: &mut Decided<M>,
    ) {
        for message in messages {
            self.take_from(now, link, message, turn);
        }
    }

    /// A link is gone.
    pub fn link_closed(&mut self, now: Time, link: LinkId, turn: &mut Decided<M>) {
        if let Some(host) = self.links.close(link) {
            self.feed(now, Input::HostLeft { host }, turn);
        }
    }

    /// Passes the monitor's word on to the agents concerned.
    pub fn farm_events(
        &mut self,
        events: Vec<FarmEvent>,
        turn: &mut Decided<M>,
    ) -> FarmEventsAccepted {
        let mut accepted = FarmEventsAccepted { delivered: 0, unknown_hosts: Vec::new() };
        for event in events {
            let (host, message) = match event {
                FarmEvent::FragmentOpened {
                    host,
                    epoch,
                    cores,
                    memory_mib,
                    booked_cores,
                    gpus,
                    valid_ms,
                    mut ended,
                } => {
                    // Openings are confirmed again and again: the rest comes with the next.
                    ended.truncate(OPENING_ENDED_MAX);
                    self.core.note_closed(&host, None);
                    let opening =
                        Opening { epoch, cores, memory_mib, booked_cores, gpus, valid_ms, ended };
                    (host, BrokerMessage::Opening(opening))
                }
                FarmEvent::FragmentClosed { host, reason } => {
                    let reason = bounded_reason(reason);
                    self.core.note_closed(&host, Some(&reason));
                    (host, BrokerMessage::Closing { reason })
                }
            };
            match self.links.of_name(&host) {
                Some(link) => {
                    self.write_link(link, message, turn);
                    accepted.delivered += 1;
                }
                None => accepted.unknown_hosts.push(host),
            }
        }
        accepted
    }

    fn next_request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId::new(self.next_request)
    }

    /// Feeds the core and translates what it asks for.
    fn feed(&mut self, now: Time, input: Input, turn: &mut Decided<M>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.core.handle(now, input, &mut effects);
        for effect in effects.drain(..) {
            self.translate(now, effect, turn);
        }
        self.effects = effects;
    }

    fn take_from(&mut self, now: Time, link: LinkId, message: LinkMessage, turn: &mut Decided<M>) {
        let host = self.links.get(link).and_then(|link| link.host.clone());
        let message = match message {
            LinkMessage::Plain(AgentMessage::Hello(hello)) => {
                return self.greet(now, link, hello, turn);
            }
            LinkMessage::Plain(message) => message,
            LinkMessage::Report(report) => {
                if let Some(host) = host {
                    self.report(now, host, report, turn);
                }
                return;
            }
        };
        let Some(host) = host else {
            let reason = "say hello first, and once: another agent may speak for this host now";
            return self.refuse(link, reason.into(), turn);
        };
        let input = match message {
            AgentMessage::Fragment(fragment) => Input::Fragment { host, fragment },
            AgentMessage::Request { slots } => Input::Request { host, slots },
            AgentMessage::Released(released) => {
                Input::Released { host, token: released.token, reason: released.reason }
            }
            AgentMessage::Saved { token, state } => Input::Saved { host, token, state },
            AgentMessage::Frozen { token, frozen } => Input::Frozen { host, token, frozen },
            AgentMessage::Alarm { reason } => {
                let reason = reason.map(bounded_reason);
                match &reason {
                    Some(reason) => tracing::error!(%host, "alarm: {reason}"),
                    None => tracing::info!(%host, "its alarm is over"),
                }
                Input::Alarm { host, reason }
            }
            AgentMessage::OpeningRefused { decided_on, current } => {
                tracing::info!(%host, %decided_on, %current, "opening refused: a render came first");
                turn.openings_refused += 1;
                return;
            }
            AgentMessage::Progress { .. } | AgentMessage::Report(_) | AgentMessage::Hello(_) => {
                return;
            }
        };
        self.feed(now, input, turn);
    }

    fn greet(&mut self, now: Time, link: LinkId, hello: Hello, turn: &mut Decided<M>) {
        if let Some(before) = self.links.greet(link, &hello.host.name) {
            let reason = format!("another agent connected for {}", hello.host.name);
            self.refuse(before, reason, turn);
        }
        let name = hello.host.name.clone();
        let (info, fragment, held) = (hello.host, hello.fragment, hello.held);
        let mut effects = Vec::new();
        self.core.handle(now, Input::HostJoined { info, fragment, held }, &mut effects);
        let number = effects.iter().find_map(|effect| match effect {
            Effect::Welcome { host, .. } => Some(*host),
            _ => None,
        });
        match number {
            Some(number) => self.links.number(number, link),
            None => {
                self.refuse(link, format!("no room for {name}: too many hosts or owners"), turn);
            }
        }
        for effect in effects {
            self.translate(now, effect, turn);
        }
    }

    fn report(&mut self, now: Time, host: HostName, report: PreparedReport, turn: &mut Decided<M>) {
        let PreparedReport { token, replica, outcome, manifest, cpu_us, measured } = report;
        let facts_before = turn.facts.len();
        let time = measured.and_then(|measured| self.kernel_time(&host, replica, &measured));
        self.feed(now, Input::Report { host, token, replica, outcome, cpu_us }, turn);
        let counted = turn.facts.len() > facts_before;
        if let Some((digest, encoded)) = manifest.filter(|_| counted)
            && self.stored.insert(digest)
        {
            turn.small_blobs.push((digest, encoded));
        }
        turn.kernel_times.extend(time.filter(|_| counted));
    }

    /// What a replica's measurement says of its kernel on this kind of host.
    fn kernel_time(
        &self,
        host: &HostName,
        replica: ReplicaId,
        measured: &Measured,
    ) -> Option<KernelTime> {
        let farm = self.core.farm();
        let WorkunitId { job, index } = replica.workunit;
        let spec = &farm.job(job)?.spec;
        let Task::Application(application) = &spec.task else { return None };
        let part = spec.workunits.item(index);
        let kind = farm.host_named(host).and_then(|host| host.info.kind.as_ref());
        KernelTime::new(application.kernel.clone(), part, measured, kind)
    }

    fn refuse(&mut self, link: LinkId, reason: String, turn: &mut Decided<M>) {
        self.write_link(link, BrokerMessage::Refused { reason }, turn);
    }

    fn write_link(&mut self, link: LinkId, message: BrokerMessage, turn: &mut Decided<M>) {
        if let Some(open) = self.links.get(link) {
            turn.write(link, &open.mailbox, message);
        }
    }

    fn write(&mut self, host: HostIx, message: BrokerMessage, turn: &mut Decided<M>) {
        if let Some(link) = self.links.of_host(host) {
            self.write_link(link, message, turn);
        }
    }

    fn translate(&mut self, now: Time, effect: Effect, turn: &mut Decided<M>) {
        match effect {
            Effect::Persist(fact) => turn.facts.push(fact),
            Effect::Submitted { .. } | Effect::Cancelled { .. } => {}
            Effect::Welcome { host, adopted } => {
                let incarnation = self.incarnation;
                self.write(host, BrokerMessage::Welcome { incarnation, adopted }, turn);
            }
            Effect::Lease { host, token, replica, share, goes_on, hands_on } => {
                // A slot is a core as it is, and no task has to be kept to that.
                let limits = match share {
                    Share::WHOLE => LimitsChange::NONE,
                    part => LimitsChange::to_share(part),
                };
                let lease = Lease { token, replica, item: None, limits, goes_on, hands_on };
                self.lease(host, lease, turn);
            }
            Effect::Share { host, token, share } => {
                let limits = match share {
                    Share::WHOLE => LimitsChange::to_no_share(),
                    part => LimitsChange::to_share(part),
                };
                self.write(host, BrokerMessage::Limit { token, limits }, turn);
            }
            Effect::Abort { host, token, reason } => {
                self.write(host, BrokerMessage::Abort { token, reason }, turn);
            }
            Effect::Verdict { host, token, workunit, verdict } => {
                turn.counted.push(verdict);
                if verdict != gleaner_protocol::control::Verdict::Counted {
                    let host = self.core.farm().host(host).info.name.clone();
                    turn.events.push(ProgressEvent::ReportRefused { host, workunit, verdict });
                }
                self.write(host, BrokerMessage::Verdict { token, verdict }, turn);
            }
            Effect::Move { .. } => {
                unreachable!("no policy that a broker can be configured with orders these");
            }
            Effect::JobChanged { job } => self.job_changed(now, job, turn),
            Effect::HostConnected { host, origin } => {
                turn.events.push(ProgressEvent::HostConnected { host, origin });
            }
            Effect::HostDisconnected { host } => {
                turn.events.push(ProgressEvent::HostDisconnected { host });
            }
            Effect::FragmentChanged { host, slots } => {
                turn.events.push(ProgressEvent::FragmentChanged { host, slots });
            }
        }
    }

    /// Sends a lease to a host, with the item that it is of.
    fn lease(&mut self, host: HostIx, lease: Lease, turn: &mut Decided<M>) {
        let Some(link) = self.links.of_host(host) else { return };
        let id = lease.replica.workunit;
        let Some(job) = self.core.farm().job(id.job) else { return };
        let item = job.spec.workunits.item(id.index).map(str::to_owned);
        let (task, on_release) = (|| job.spec.task.clone(), job.spec.on_release);
        if self.links.teach(link, id.job) {
            let message = BrokerMessage::Task { job: id.job, task: task(), on_release };
            self.write_link(link, message, turn);
        }
        self.write_link(link, BrokerMessage::Lease(Lease { item, ..lease }), turn);
    }

    fn job_changed(&mut self, now: Time, job: JobId, turn: &mut Decided<M>) {
        self.progress.changed(now, job);
        let ended = self.core.farm().job(job).is_some_and(|job| job.phase != JobPhase::Active);
        if ended {
            self.retention.ended(now, job);
            for link in self.links.unteach(job) {
                self.write_link(link, BrokerMessage::Forget { job }, turn);
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Commands into the core's inputs, the core's effects into messages, answers and events: all of
//! the driver that needs no runtime, so that a simulator can drive it too.

mod copies;
mod ends;
mod frames;
mod halt;
mod standing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::api::{JobStatus, ProgressEvent, Promise, ReplicaOutcome, Submitted};
use gleaner_protocol::control::{AgentMessage, BrokerMessage, Hello, Lease};
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::limits::bounded_reason;
use gleaner_protocol::{
    Account, AgentSecret, HostName, JobId, LeaseToken, LimitsChange, Share, Span, Time,
};
use gleaner_scheduling::{Core, Effect, HostIx, Input, JobPhase, RequestId, SubmitRefusal};

use super::command::LinkMessage;
use super::contents::{self, ContentRefusal, ContentUse};
use super::decided::Decided;
use super::links::{Links, NameTaken};
use super::progress::Progress;
use super::recent::RecentDigests;
use super::retention::Retention;
use super::run_watch::{Beginning, RunWatch, leased};
use super::{LinkId, PreparedReport};
use crate::datasets::ChunkTable;
use crate::limits::TURN_FORGETS_MAX;
use crate::metrics::Metrics;
use copies::Keepers;
use frames::Frames;
pub use frames::{FrameLease, FrameNews, FrameStep};
use halt::Halt;
pub(crate) use standing::Revocations;

/// The core and the links that speak for its hosts. `M` is where a link's messages go.
///
/// # Invariants
/// - The core is touched through this alone.
/// - What a turn decided is in its [`Decided`], in the order in which it was decided.
pub struct Dispatcher<M> {
    core: Core,
    incarnation: u32,
    metrics: Arc<Metrics>,
    links: Links<M>,
    progress: Progress,
    stored: RecentDigests,
    effects: Vec<Effect>,
    next_request: u64,
    retention: Retention,
    pub(super) watch: RunWatch,
    keepers: Keepers,
    frames: Frames,
    halt: Halt,
}

/// What came of the wish that a job be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forgotten {
    /// It is; this was the last of it.
    Yes(Box<JobStatus>),
    /// It goes on.
    Active,
    /// There is no such job.
    Unknown,
}

impl<M: Clone> Dispatcher<M> {
    /// Begins a life of the broker with a core that was restored, or a new one. What happens is
    /// counted in `metrics`.
    #[must_use]
    pub fn new(core: Core, incarnation: u32, metrics: Arc<Metrics>) -> Self {
        Self {
            core,
            incarnation,
            metrics,
            links: Links::default(),
            progress: Progress::default(),
            stored: RecentDigests::default(),
            effects: Vec::new(),
            next_request: 0,
            retention: Retention::default(),
            watch: RunWatch::default(),
            keepers: Keepers::default(),
            frames: Frames::default(),
            halt: Halt::default(),
        }
    }

    /// With these datasets, of which its hosts keep copies.
    #[must_use]
    pub fn with_chunks(self, chunks: ChunkTable) -> Self {
        Self { keepers: Keepers::of(chunks), ..self }
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

    /// So many core-seconds were used before for accounts, as they count now.
    pub fn note_used(&mut self, now: Time, used: &BTreeMap<Account, f64>) {
        used.iter().for_each(|(account, seconds)| self.core.note_used(now, account, *seconds));
    }

    /// The core, to be told of now.
    pub fn core_at(&mut self, now: Time) -> &Core {
        self.core.note_time(now);
        &self.core
    }

    /// When [`Dispatcher::tick`] is due at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let core = self.core.next_deadline();
        let ours = [
            self.progress.next_deadline(),
            self.retention.next_deadline(),
            self.keepers.next_deadline(),
            self.halt.next_deadline(),
        ];
        ours.into_iter().chain([core]).flatten().min()
    }

    /// Nothing but time went by.
    pub fn tick(&mut self, now: Time, turn: &mut Decided<M>) {
        self.feed(now, Input::Tick, turn);
    }

    /// Tells of the progress that is due. The last of each turn.
    pub fn end_turn(&mut self, now: Time, turn: &mut Decided<M>) {
        self.carry_halt(now, turn);
        for _ in 0..TURN_FORGETS_MAX {
            let Some(job) = self.retention.take_due(now) else { break };
            self.feed(now, Input::Forget { job }, turn);
        }
        self.forget_frames(now, turn);
        self.end_forgotten(now, turn);
        self.place_copies(now, turn);
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
        self.core.handle(now, Input::Submit { request, spec: Box::new(spec) }, &mut effects);
        let mut result = None;
        for effect in effects {
            match effect {
                Effect::Submitted { result: of, .. } => result = Some(of),
                other => self.translate(now, other, turn),
            }
        }
        let result = result.expect("the core answers each submission");
        let result = result.map(|job| Submitted { job, workunits, promise: self.promise(job) });
        self.metrics.submitted(&result);
        let submitted = result?;
        turn.events.push(ProgressEvent::JobAccepted { job: submitted.job, workunits });
        Ok(submitted)
    }

    /// What a job is promised, where it is due at a time.
    fn promise(&self, job: JobId) -> Option<Promise> {
        let known = self.core.farm().job(job)?;
        let profile = &known.spec.profile;
        let as_now = || Some(self.core.utc_us(self.core.expected_end(job)?) / 1_000);
        let expected_end_ms = match profile.promised {
            Some(promised) => promised.expected_end_ms.map(|ms| known.accepted_us / 1_000 + ms),
            None => as_now(),
        };
        Some(Promise {
            due_ms: known.due_utc_ms()?,
            confidence_permille: profile.confidence_permille,
            chance_permille: profile.promised.map(|promised| promised.chance_permille),
            expected_end_ms,
        })
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
        Forgotten::Yes(Box::new(status))
    }

    /// Forgets which outputs were stored a moment ago: all that come now are stored.
    pub(crate) fn store_anew(&mut self) {
        self.stored = RecentDigests::default();
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
        self.end_link(now, link, |host| Input::HostLeft { host }, turn);
    }

    /// A link is gone, and whoever had it may not come back.
    pub fn link_expelled(&mut self, now: Time, link: LinkId, turn: &mut Decided<M>) {
        self.end_link(now, link, |host| Input::HostExpelled { host }, turn);
    }

    fn end_link(
        &mut self,
        now: Time,
        link: LinkId,
        input: fn(HostName) -> Input,
        turn: &mut Decided<M>,
    ) {
        if let Some(host) = self.links.close(link) {
            if let Some(host) = self.core.farm().host_named(&host) {
                self.watch.host_left(host, now);
            }
            self.keepers.left(&host, now);
            self.unhalt(&host);
            self.feed(now, input(host), turn);
        }
    }

    /// Whether the agent that shows this secret may do this with contents.
    ///
    /// # Errors
    /// Why not.
    pub fn may_use(&self, secret: &AgentSecret, what: ContentUse) -> Result<(), ContentRefusal> {
        let host = self.links.host_of(secret).ok_or(ContentRefusal::NoLink)?;
        match what {
            ContentUse::ReadBlob(blob) if self.keepers.fetches(host, &blob) => Ok(()),
            what => contents::check(&self.core, self.keepers.chunks(), host, what),
        }
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
            AgentMessage::Fragment(fragment) => {
                self.links.asks_anew(link, fragment.cores > 0);
                self.keepers.note_fragment();
                let fragment = self.halt.given(&self.core, &host, fragment);
                Input::Fragment { host, fragment }
            }
            AgentMessage::Request { cores } => {
                self.links.asks(link, now, cores);
                Input::Request { host, cores }
            }
            AgentMessage::Released(released) => {
                self.metrics.released(&released.reason);
                self.given_back(now, &host, &released, turn);
                Input::Released { host, token: released.token, reason: released.reason }
            }
            AgentMessage::Saved { token, state } => Input::Saved { host, token, state },
            AgentMessage::Frozen { token, frozen } => {
                // What is parked goes on when the broker says so.
                if self.watch.is_of(&host, token) && (frozen || !self.is_parked(&host, token)) {
                    self.watch.freeze(token, now, frozen);
                }
                Input::Frozen { host, token, frozen }
            }
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
                self.metrics.opening_refused();
                return;
            }
            AgentMessage::Copies(copies) => {
                if let Some(number) = self.links.number_of(link) {
                    self.hear_copies(now, number, host, copies, turn);
                }
                return;
            }
            AgentMessage::SourceFailed(failed) => {
                return self.hear_source_failed(now, &host, &failed);
            }
            AgentMessage::Metrics(of) => {
                if let Some(host) = self.core.farm().host_named(&host) {
                    self.metrics.agent_says(host.origin(), &of);
                }
                return;
            }
            AgentMessage::Progress { .. } | AgentMessage::Report(_) | AgentMessage::Hello(_) => {
                return;
            }
        };
        self.feed(now, input, turn);
    }

    fn greet(&mut self, now: Time, link: LinkId, hello: Hello, turn: &mut Decided<M>) {
        let name = hello.host.name.clone();
        match self.links.greet(link, &name, &hello.secret) {
            Ok(None) => {}
            Ok(Some(before)) => {
                self.refuse(before, format!("this agent connected anew as {name}"), turn);
            }
            Err(NameTaken) => {
                let reason = format!(
                    "another agent is connected as {name}: set `name` in the settings of one of them"
                );
                return self.refuse(link, reason, turn);
            }
        }
        let Hello { host: info, fragment, held, incarnation, peer, .. } = hello;
        let before: Vec<_> =
            self.core.farm().host_named(&name).into_iter().flat_map(leased).collect();
        let fragment = self.halt.given(&self.core, &name, fragment);
        let joined = Input::HostJoined { info, fragment, held, incarnation };
        let mut effects = Vec::new();
        self.core.handle(now, joined, &mut effects);
        let number = effects.iter().find_map(|effect| match effect {
            Effect::Welcome { host, .. } => Some(*host),
            _ => None,
        });
        match number {
            Some(number) => {
                self.links.number(number, link);
                self.keepers.came(&name, number, peer.map(|peer| *peer));
            }
            None => {
                self.refuse(link, format!("no room for {name}: too many hosts or owners"), turn);
                self.unhalt(&name);
            }
        }
        self.halt_newcomer(&name);
        for effect in effects {
            self.translate(now, effect, turn);
        }
        // What it was given before and does not hold any more.
        let after: BTreeSet<_> =
            self.core.farm().host_named(&name).into_iter().flat_map(leased).collect();
        let lost = before.into_iter().filter(|token| !after.contains(token));
        lost.for_each(|token| self.ended(now, token, ReplicaOutcome::Lost, turn));
    }

    fn is_parked(&self, host: &HostName, token: LeaseToken) -> bool {
        let host = self.core.farm().host_named(host);
        host.is_some_and(|host| host.parked.iter().any(|lease| lease.token == token))
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
            Effect::Persist(fact) if fact.job().is_some_and(JobId::is_frame) => {
                self.note_of_frame(now, &fact, turn);
            }
            Effect::Persist(fact) => {
                self.note_fact(now, &fact, turn);
                turn.facts.push(fact);
            }
            Effect::Submitted { .. } | Effect::Cancelled { .. } => {}
            Effect::Welcome { host, adopted } => {
                let incarnation = self.incarnation;
                self.watch.host_came(&self.core, now, host, &adopted);
                self.write(host, BrokerMessage::Welcome { incarnation, adopted }, turn);
            }
            Effect::Lease { host, token, replica, share, goes_on, hands_on } => {
                // A slot is a core as it is, and no task has to be kept to that.
                let limits = match share {
                    Share::WHOLE => LimitsChange::NONE,
                    part => LimitsChange::to_share(part),
                };
                let what = (host, token, replica.workunit);
                let beginning = match goes_on {
                    None => Beginning::Whole,
                    Some(_) => Beginning::GoesOn,
                };
                if !replica.workunit.job.is_frame() {
                    self.watch.begin(&self.core, now, what, share, beginning);
                }
                if replica.workunit.job.is_frame() {
                    self.frame_given(host, replica.workunit, turn);
                }
                let (item, chunk) = (None, None);
                let lease = Lease { token, replica, item, chunk, limits, goes_on, hands_on };
                self.lease(now, host, lease, turn);
            }
            Effect::Share { host, token, share } => {
                self.watch.share(token, now, share);
                let limits = match share {
                    Share::WHOLE => LimitsChange::to_no_share(),
                    part => LimitsChange::to_share(part),
                };
                self.write(host, BrokerMessage::Limit { token, limits }, turn);
            }
            Effect::Park { host, token } => {
                self.metrics.parked();
                self.watch.freeze(token, now, true);
                self.write(host, BrokerMessage::Park { token }, turn);
            }
            Effect::Resume { host, token } => {
                self.metrics.resumed();
                self.watch.freeze(token, now, false);
                self.write(host, BrokerMessage::Resume { token }, turn);
            }
            Effect::Abort { host, token, reason } => {
                self.metrics.aborted(reason);
                self.aborted(now, token, reason, turn);
                self.write(host, BrokerMessage::Abort { token, reason }, turn);
            }
            Effect::Verdict { host, token, workunit, verdict } if workunit.job.is_frame() => {
                self.answer_frame(host, token, verdict, turn);
            }
            Effect::Verdict { host, token, workunit, verdict } => {
                self.metrics.judged(verdict);
                self.judged(now, (host, token), verdict, turn);
                if verdict != gleaner_protocol::control::Verdict::Counted {
                    let host = self.core.farm().host(host).info.name.clone();
                    turn.events.push(ProgressEvent::ReportRefused { host, workunit, verdict });
                }
                self.write(host, BrokerMessage::Verdict { token, verdict }, turn);
            }
            Effect::Move { chunk, from, to, patience } => {
                self.move_copy(now, chunk, (from, to), patience, turn);
            }
            Effect::JobChanged { job } if job.is_frame() => self.frame_changed(now, job, turn),
            Effect::JobChanged { job } => self.job_changed(now, job, turn),
            Effect::HostConnected { host, origin } => {
                turn.events.push(ProgressEvent::HostConnected { host, origin });
            }
            Effect::HostDisconnected { host } => {
                turn.events.push(ProgressEvent::HostDisconnected { host });
            }
            Effect::FragmentChanged { host, cores } => {
                turn.events.push(ProgressEvent::FragmentChanged { host, cores });
            }
        }
    }

    /// Sends a lease to a host, with the item that it is of.
    fn lease(&mut self, now: Time, host: HostIx, lease: Lease, turn: &mut Decided<M>) {
        let Some(link) = self.links.of_host(host) else { return };
        if let Some(waited) = self.links.gets(link, now) {
            self.metrics.leased(waited);
        }
        let id = lease.replica.workunit;
        let Some(job) = self.core.farm().job(id.job) else { return };
        let item = job.spec.workunits.item(id.index).map(str::to_owned);
        let chunk = self.core.farm().chunk_of(id);
        let chunk = chunk.and_then(|chunk| self.keepers.chunks().chunk(chunk)).map(Box::new);
        let (task, on_release) = (|| job.spec.task.clone(), job.spec.on_release);
        let gpus = job.spec.gpus;
        if self.links.teach(link, id.job) {
            let message = BrokerMessage::Task { job: id.job, task: task(), on_release, gpus };
            self.write_link(link, message, turn);
        }
        self.write_link(link, BrokerMessage::Lease(Lease { item, chunk, ..lease }), turn);
    }

    fn job_changed(&mut self, now: Time, job: JobId, turn: &mut Decided<M>) {
        self.progress.changed(now, job);
        self.note_reader(job);
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

//! A player who is an agent: takes replicas, computes outputs, reports them until it is told
//! what came of it, over as many links as that takes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gleaner_agent::{Link, LinkError, LinkSender, LinkTarget, Received};
use gleaner_protocol::control::{
    AgentMessage, BrokerMessage, Fragment, Held, HeldState, Hello, Lease, Outcome, ReleaseReason,
    Released, Report, Verdict,
};
use gleaner_protocol::{
    AgentSecret, Capabilities, Digest, HostInfo, HostName, JobId, LeaseToken, Origin, OwnerName,
    ReplicaId, Span, Time, boottime,
};
use tokio::time::interval;

use crate::api::Api;
use crate::draw::Draw;
use crate::ledger::Kind;
use crate::output::Output;
use crate::plan::Fate;
use crate::stage::Stage;

/// How often an agent that has nothing to say shows that it lives: a host that lies soon has nothing
/// to do for long.
const PING_EVERY: Duration = Duration::from_secs(10);

/// Counted reports that are remembered, to be sent again one day.
const REMEMBERED: usize = 64;

/// How honest a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Temper {
    Honest,
    /// Lies where others vote too.
    Liar,
    /// Fails now and then.
    Frail,
}

/// Who it is.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) name: HostName,
    pub(crate) origin: Origin,
    pub(crate) owner: Option<OwnerName>,
    pub(crate) temper: Temper,
    pub(crate) cores: u32,
    /// Milliseconds that a replica takes at most.
    pub(crate) work_ms_max: u64,
}

enum Work {
    Running {
        lease: Lease,
        fate: Fate,
        due: Time,
    },
    /// Its verdict has not come.
    Reported(Report),
}

pub(crate) struct Farmhand {
    stage: Arc<Stage>,
    host: Host,
    voter: String,
    draw: Draw,
    slots: u32,
    tasks: BTreeMap<JobId, Fate>,
    held: BTreeMap<LeaseToken, Work>,
    counted: VecDeque<Report>,
    /// Counted before, sent again.
    retold: BTreeMap<LeaseToken, ReplicaId>,
    outgoing: Vec<AgentMessage>,
}

/// The same over all its lives.
fn secret_of(host: &HostName) -> AgentSecret {
    let mut secret = [0; 16];
    secret.copy_from_slice(&Digest::of(host.as_str().as_bytes()).as_bytes()[..16]);
    AgentSecret::new(secret)
}

impl Farmhand {
    pub(crate) fn new(stage: Arc<Stage>, host: Host, draw: Draw) -> Self {
        let voter = host.owner.as_ref().map_or(host.name.to_string(), OwnerName::to_string);
        Self {
            stage,
            voter,
            draw,
            slots: host.cores,
            host,
            tasks: BTreeMap::new(),
            held: BTreeMap::new(),
            counted: VecDeque::new(),
            retold: BTreeMap::new(),
            outgoing: Vec::new(),
        }
    }

    /// Serves one broker after the other.
    pub(crate) async fn run(mut self) {
        let mut start = 0;
        loop {
            let (api, now) = self.stage.broker_after(start).await;
            start = now;
            // The link breaks when the broker is killed.
            if let Err(LinkError::Closed | LinkError::WebSocket(_) | LinkError::Connect { .. }) =
                self.serve(&api, start).await
            {
                continue;
            }
            let what = format!("{} had its link ended", self.host.name);
            self.stage.write(|ledger| ledger.fault(Kind::Wrong, what));
        }
    }

    async fn serve(&mut self, api: &Api, start: u32) -> Result<(), LinkError> {
        let (mut sender, mut receiver) =
            Link::connect(&LinkTarget::plain(api.url())).await?.split();
        if self.draw.one_in(12) {
            // The agent itself was started anew: it knows nothing of what it held.
            self.held.clear();
        }
        self.tasks.clear();
        self.retold.clear();
        sender.send(&[AgentMessage::Hello(self.hello())]).await?;
        let mut ping = interval(PING_EVERY);
        loop {
            let due = self.held.values().filter_map(Work::due).min();
            let received = tokio::select! {
                received = receiver.receive() => received?,
                _ = ping.tick() => {
                    sender.ping().await?;
                    continue;
                }
                () = sleep_until(due) => {
                    self.finish_due(api, &mut sender).await?;
                    continue;
                }
            };
            let Received::Messages(messages) = received else { continue };
            for message in messages {
                self.hear(message, start);
            }
            if self.draw.one_in(50) {
                self.change_fragment();
            }
            sender.send(&std::mem::take(&mut self.outgoing)).await?;
        }
    }

    fn hello(&self) -> Hello {
        let held = self.held.iter().map(|(token, work)| match work {
            Work::Running { lease, .. } => Held {
                token: *token,
                replica: lease.replica,
                state: HeldState::Runs,
                goes_on: false,
                share: gleaner_protocol::Share::WHOLE,
            },
            Work::Reported(report) => Held {
                token: *token,
                replica: report.replica,
                state: HeldState::Aside,
                goes_on: false,
                share: gleaner_protocol::Share::WHOLE,
            },
        });
        Hello {
            host: HostInfo {
                name: self.host.name.clone(),
                origin: self.host.origin,
                owner: self.host.owner.clone(),
                cores: self.host.cores,
                memory_mib: 1024,
                capabilities: Capabilities {
                    kernels: Fate::ALL.iter().map(|fate| fate.kernel()).collect(),
                    ..Capabilities::default()
                },
                kind: None,
                chunk_cache_mib: 0,
            },
            secret: secret_of(&self.host.name),
            incarnation: 1,
            fragment: self.fragment(),
            held: held.collect(),
            peer: None,
        }
    }

    fn fragment(&self) -> Fragment {
        Fragment { cores: self.slots, ..Fragment::default() }
    }

    fn running(&self) -> u32 {
        self.held.values().filter(|work| work.due().is_some()).count() as u32
    }

    fn hear(&mut self, message: BrokerMessage, start: u32) {
        match message {
            BrokerMessage::Welcome { incarnation, adopted } => {
                self.stage.write(|ledger| ledger.welcomed(start, incarnation));
                self.held.retain(|token, _| adopted.contains(token));
                self.resume();
            }
            BrokerMessage::Task { job, task, .. } => {
                self.tasks.insert(job, Fate::of(&task));
            }
            BrokerMessage::Forget { job } => {
                self.tasks.remove(&job);
            }
            BrokerMessage::Lease(lease) => {
                self.stage.write(|ledger| ledger.leased(start, &self.host.name, &lease));
                let fate =
                    *self.tasks.get(&lease.replica.workunit.job).expect("its task came first");
                let due = boottime() + Span::from(self.draw.millis(0..self.host.work_ms_max));
                self.held.insert(lease.token, Work::Running { lease, fate, due });
            }
            BrokerMessage::Park { token } | BrokerMessage::Resume { token } => {
                panic!("{token} is parked, on a farm of one lane")
            }
            BrokerMessage::Limit { token, .. } => panic!("{token} is limited, by no policy"),
            BrokerMessage::Abort { token, .. } => {
                if let Some(Work::Running { .. }) = self.held.remove(&token) {
                    self.outgoing.push(AgentMessage::Request { cores: 1 });
                }
            }
            BrokerMessage::Verdict { token, verdict } => self.take_verdict(token, verdict),
            BrokerMessage::Refused { reason } => {
                let what = format!("{} was refused: {reason}", self.host.name);
                self.stage.write(|ledger| ledger.fault(Kind::Wrong, what));
            }
            // It keeps no copies of chunks.
            BrokerMessage::ListCopies
            | BrokerMessage::FetchChunk(_)
            | BrokerMessage::ServeChunk(_)
            | BrokerMessage::DropCopies(_)
            | BrokerMessage::Opening(_)
            | BrokerMessage::Closing { .. } => {}
        }
    }

    /// What a new link is told: reports without a verdict, some that have theirs, and how many
    /// slots stand empty.
    fn resume(&mut self) {
        for work in self.held.values() {
            if let Work::Reported(report) = work {
                self.outgoing.push(AgentMessage::Report(report.clone()));
            }
        }
        for _ in 0..2.min(self.counted.len()) {
            let which = self.draw.from(0..self.counted.len() as u64) as usize;
            let report = self.counted[which].clone();
            self.retold.insert(report.token, report.replica);
            self.outgoing.push(AgentMessage::Report(report));
        }
        let slots = self.slots.saturating_sub(self.running());
        self.outgoing.push(AgentMessage::Request { cores: slots });
    }

    fn take_verdict(&mut self, token: LeaseToken, verdict: Verdict) {
        if let Some(replica) = self.retold.remove(&token) {
            return self.stage.write(|ledger| ledger.retold(replica, verdict));
        }
        // Aborted meanwhile: whatever came of the report.
        let Some(Work::Reported(report)) = self.held.remove(&token) else { return };
        let replica = report.replica;
        match verdict {
            Verdict::Counted | Verdict::Duplicate => {
                let vote = match &report.outcome {
                    Outcome::Output(manifest) => Some(manifest.digest()),
                    Outcome::Failed(_) => None,
                };
                let host = &self.host.name;
                self.stage.write(|ledger| ledger.counted(host, &self.voter, replica, vote));
                self.counted.push_back(report);
                if self.counted.len() > REMEMBERED {
                    self.counted.pop_front();
                }
            }
            Verdict::Late => {}
            Verdict::UnknownJob => {
                let what = format!("{replica} was given out, and its job is not known");
                self.stage.write(|ledger| ledger.fault(Kind::Lost, what));
            }
            Verdict::OldToken | Verdict::SecondVote | Verdict::Malformed | Verdict::Spoiled => {
                let what = format!("{replica} on {}: {verdict:?}", self.host.name);
                self.stage.write(|ledger| ledger.fault(Kind::Wrong, what));
            }
        }
    }

    /// Another fragment; what no longer fits is given back.
    fn change_fragment(&mut self) {
        let before = self.slots;
        self.slots = self.draw.from(1..u64::from(self.host.cores) + 1) as u32;
        while self.running() > self.slots {
            let running = self.held.iter().rev().find(|(_, work)| work.due().is_some());
            let token = *running.expect("some run").0;
            self.give_back(token, ReleaseReason::FragmentClosed);
        }
        self.outgoing.push(AgentMessage::Fragment(self.fragment()));
        let slots = self.slots.saturating_sub(before);
        self.outgoing.push(AgentMessage::Request { cores: slots });
    }

    fn give_back(&mut self, token: LeaseToken, reason: ReleaseReason) {
        self.held.remove(&token);
        self.outgoing.push(AgentMessage::Released(Released { token, reason, cpu_us: 0 }));
        self.outgoing.push(AgentMessage::Request { cores: 1 });
    }

    /// Ends the replicas that are due, and reports them.
    async fn finish_due(&mut self, api: &Api, sender: &mut LinkSender) -> Result<(), LinkError> {
        let now = boottime();
        let is_due = |work: &Work| work.due().is_some_and(|due| due <= now);
        let due: Vec<_> =
            self.held.iter().filter(|(_, work)| is_due(work)).map(|(token, _)| *token).collect();
        for token in due {
            if self.draw.one_in(40) {
                self.give_back(token, ReleaseReason::Preempted);
                continue;
            }
            let Some(Work::Running { lease, fate, .. }) = self.held.get(&token) else { continue };
            let replica = lease.replica;
            let (outcome, blob) = match self.outcome(lease, *fate) {
                Ok(output) => (Outcome::Output(output.manifest), output.blob),
                Err(why) => (Outcome::Failed(why), None),
            };
            if let Some((digest, content)) = blob
                && let Err(refused) = api.upload(digest, content).await
            {
                if refused.is_cut() {
                    return Err(LinkError::Closed);
                }
                self.try_later(token);
                continue;
            }
            let (wall_us, peak_memory_mib) = (1_000, None);
            let cpu_us = 1_000;
            let report = Report {
                token,
                replica,
                outcome,
                cpu_us,
                measured: None,
                wall_us,
                peak_memory_mib,
            };
            self.outgoing.push(AgentMessage::Report(report.clone()));
            self.outgoing.push(AgentMessage::Request { cores: 1 });
            self.held.insert(token, Work::Reported(report));
        }
        sender.send(&std::mem::take(&mut self.outgoing)).await
    }

    /// The broker has no room for the output now.
    fn try_later(&mut self, token: LeaseToken) {
        if let Some(Work::Running { due, .. }) = self.held.get_mut(&token) {
            *due = boottime() + Span::from_millis(100);
        }
    }

    fn outcome(&self, lease: &Lease, fate: Fate) -> Result<Output, String> {
        let workunit = lease.replica.workunit;
        let fails = self.host.temper == Temper::Frail && self.draw.clone().one_in(8);
        match fate {
            Fate::Doomed => Err("it always fails".into()),
            _ if fails => Err("it fails at times".into()),
            Fate::Voted if self.host.temper == Temper::Liar => {
                Ok(Output::lie(workunit, &self.host.name))
            }
            Fate::Voted | Fate::Once | Fate::Endless => {
                Ok(Output::honest(workunit, lease.item.as_deref()))
            }
        }
    }
}

impl Work {
    fn due(&self) -> Option<Time> {
        match self {
            Self::Running { due, .. } => Some(*due),
            Self::Reported(_) => None,
        }
    }
}

async fn sleep_until(due: Option<Time>) {
    match due {
        None => std::future::pending().await,
        Some(due) => tokio::time::sleep(Duration::from(due.since(boottime()))).await,
    }
}

//! The view from outside: what submitters and agents were told, and whether it stays true.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_broker::LinkMessage;
use gleaner_protocol::control::{AgentMessage, BrokerMessage, Verdict};
use gleaner_protocol::job::Cause;
use gleaner_protocol::{Digest, HostName, JobId, LeaseToken, OwnerName, Share, WorkunitId};
use gleaner_scheduling::{Core, Fact, JobPhase};

use super::machine::WireId;
use super::rules::LARGE_MIB;
use super::{Breach, StormReport};

/// Knows only what crossed the broker's border.
#[derive(Default)]
pub(super) struct Watcher {
    jobs: BTreeSet<JobId>,
    votes: BTreeMap<WorkunitId, Votes>,
    decided: BTreeMap<WorkunitId, Digest>,
    /// Every token that was ever given out, and for what.
    tokens: BTreeMap<LeaseToken, WorkunitId>,
    /// Jobs whose replicas have memory.
    large: BTreeSet<JobId>,
    /// What those have that have memory, in MiB.
    memory: BTreeMap<LeaseToken, u64>,
    /// What those take that take anything but one core.
    shares: BTreeMap<LeaseToken, Share>,
    /// Who else has a say in what is reported under a token.
    says: BTreeMap<LeaseToken, BTreeSet<HostName>>,
    /// What each host was given and its fragment, as the broker knows them.
    given: Vec<Given>,
    touched: BTreeSet<usize>,
}

/// Who has voted, under which tokens.
#[derive(Default)]
struct Votes {
    hosts: BTreeMap<HostName, LeaseToken>,
    /// Those who have a say in an output, and in which.
    says: BTreeMap<HostName, LeaseToken>,
    owners: BTreeMap<OwnerName, LeaseToken>,
    /// Leases whose replicas failed, and such as ran out or were lost.
    failed: BTreeSet<LeaseToken>,
    unheard: BTreeSet<LeaseToken>,
}

#[derive(Default, Clone)]
struct Given {
    wire: Option<WireId>,
    slots: u32,
    memory_mib: Option<u64>,
    held: BTreeSet<LeaseToken>,
    /// Held, and stand still for another lane.
    parked: BTreeSet<LeaseToken>,
    /// Held, but done: they take no slot.
    done: BTreeSet<LeaseToken>,
}

impl Given {
    /// A replica is the host's no more.
    fn drop_lease(&mut self, token: LeaseToken) {
        self.held.remove(&token);
        self.parked.remove(&token);
    }
}

impl Watcher {
    pub(super) fn new(hosts: usize) -> Self {
        Self { given: vec![Given::default(); hosts], ..Self::default() }
    }

    /// The broker takes messages from a host.
    pub(super) fn hears(&mut self, host: usize, wire: WireId, messages: &[LinkMessage]) {
        self.touched.insert(host);
        let given = &mut self.given[host];
        for message in messages {
            if let LinkMessage::Plain(AgentMessage::Hello(hello)) = message {
                let done = hello
                    .held
                    .iter()
                    .filter(|held| !held.state.takes_slot())
                    .map(|held| held.token);
                let (slots, memory_mib) = (hello.fragment.cores, hello.fragment.memory_mib);
                *given = Given {
                    wire: Some(wire),
                    slots,
                    memory_mib,
                    done: done.collect(),
                    ..Given::default()
                };
            }
            if given.wire != Some(wire) {
                continue;
            }
            match message {
                LinkMessage::Plain(AgentMessage::Fragment(fragment)) => {
                    (given.slots, given.memory_mib) = (fragment.cores, fragment.memory_mib);
                }
                LinkMessage::Plain(AgentMessage::Released(released)) => {
                    given.drop_lease(released.token);
                }
                LinkMessage::Plain(AgentMessage::Frozen { token, frozen: true }) => {
                    given.held.remove(token);
                }
                LinkMessage::Plain(AgentMessage::Frozen { token, frozen: false }) => {
                    given.held.insert(*token);
                }
                LinkMessage::Report(report) => given.drop_lease(report.token),
                LinkMessage::Plain(_) => {}
            }
        }
    }

    /// A connection is gone for the broker.
    pub(super) fn closed(&mut self, host: usize, wire: WireId) {
        if self.given[host].wire == Some(wire) {
            self.given[host] = Given::default();
        }
    }

    /// The broker decided to say this to a host.
    pub(super) fn decides(
        &mut self,
        host: usize,
        wire: WireId,
        messages: &[BrokerMessage],
    ) -> Result<(), Breach> {
        self.touched.insert(host);
        let given = &mut self.given[host];
        let is_present = given.wire == Some(wire);
        for message in messages {
            match message {
                // An id that was never told of may be that of another job later.
                BrokerMessage::Task { job, task, .. } => {
                    self.large.remove(job);
                    self.large.extend((task.kept(0).memory_mib > 0).then_some(*job));
                }
                BrokerMessage::Lease(lease) => {
                    let workunit = lease.replica.workunit;
                    if self.large.contains(&workunit.job) {
                        self.memory.insert(lease.token, LARGE_MIB.into());
                    }
                    if lease.share() != Share::WHOLE {
                        self.shares.insert(lease.token, lease.share());
                    }
                    if self.tokens.insert(lease.token, workunit).is_some() {
                        return Err(Breach::TokenReused(lease.token));
                    }
                    if is_present {
                        given.held.insert(lease.token);
                    }
                }
                BrokerMessage::Welcome { adopted, .. } if is_present => {
                    let runs = |token: &&LeaseToken| !given.done.contains(token);
                    given.held = adopted.iter().filter(runs).copied().collect();
                    given.parked = adopted.iter().filter(|token| !runs(token)).copied().collect();
                }
                BrokerMessage::Abort { token, .. } if is_present => given.drop_lease(*token),
                // What the host has reported in the same turn stands still no more, nor goes on.
                BrokerMessage::Park { token } if is_present && given.held.remove(token) => {
                    given.parked.insert(*token);
                }
                BrokerMessage::Resume { token } if is_present && given.parked.remove(token) => {
                    given.held.insert(*token);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Between two turns nobody holds more than fits.
    pub(super) fn check_turn(&mut self, name: impl Fn(usize) -> HostName) -> Result<(), Breach> {
        for host in std::mem::take(&mut self.touched) {
            let Given { slots, memory_mib, held, parked, wire, .. } = &self.given[host];
            let shares = held.iter().map(|token| self.shares.get(token).copied());
            let shares = shares.map(|share| share.unwrap_or(Share::WHOLE));
            let taken = shares.fold(Share::NONE, Share::plus);
            if wire.is_some() && taken > Share::cores(*slots) {
                let (held, slots) = (held.len(), *slots);
                return Err(Breach::OverFragment { host: name(host).to_string(), held, slots });
            }
            // What a render has frozen aside, of which less is known here.
            let had = held.iter().chain(parked).filter_map(|token| self.memory.get(token));
            let (had_mib, most_mib) = (had.sum::<u64>(), memory_mib.unwrap_or(u64::MAX));
            if wire.is_some() && had_mib > most_mib {
                let host = name(host).to_string();
                return Err(Breach::OverMemory { host, had_mib, most_mib });
            }
        }
        Ok(())
    }

    /// A replica goes on from what these have a say in.
    pub(super) fn goes_on(&mut self, token: LeaseToken, said: &BTreeSet<HostName>) {
        self.says.insert(token, said.clone());
    }

    /// A submitter was told.
    pub(super) fn accepted(&mut self, job: JobId) {
        self.jobs.insert(job);
    }

    /// A message leaves for a host.
    pub(super) fn told(
        &mut self,
        message: &BrokerMessage,
        report: &mut StormReport,
    ) -> Result<(), Breach> {
        match message {
            BrokerMessage::Lease(_) => report.leases += 1,
            BrokerMessage::Park { .. } => report.parked += 1,
            BrokerMessage::Resume { .. } => report.resumed += 1,
            BrokerMessage::Welcome { adopted, .. } => report.adopted += adopted.len() as u64,
            // What a frame's parts come to is written down nowhere.
            BrokerMessage::Verdict { token, .. } if self.is_of_frame(*token) => {}
            BrokerMessage::Verdict { token, verdict: Verdict::Counted } => {
                report.counted += 1;
                let Some(workunit) = self.tokens.get(token) else { return Ok(()) };
                let votes = self.votes.get(workunit);
                let is_written = |votes: &Votes| {
                    votes.failed.contains(token) || votes.hosts.values().any(|of| of == token)
                };
                if !votes.is_some_and(is_written) {
                    return Err(Breach::VoteLost(*workunit));
                }
            }
            BrokerMessage::Verdict { .. } => report.refused += 1,
            _ => {}
        }
        Ok(())
    }

    fn is_of_frame(&self, token: LeaseToken) -> bool {
        self.tokens.get(&token).is_some_and(|workunit| workunit.job.is_frame())
    }

    /// A fact is on disk. It may be told a second time after a restart.
    pub(super) fn written(&mut self, fact: &Fact) -> Result<(), Breach> {
        if let Some(job) = fact.job().filter(|job| job.is_frame()) {
            return Err(Breach::FrameWritten(job));
        }
        match fact {
            Fact::AttemptFailed { workunit, token, cause: Cause::Failed, .. } => {
                self.votes.entry(*workunit).or_default().failed.insert(*token);
                Ok(())
            }
            Fact::AttemptFailed { workunit, token, .. } => {
                self.votes.entry(*workunit).or_default().unheard.insert(*token);
                Ok(())
            }
            Fact::Voted { workunit, host, owner, token, .. } => {
                let votes = self.votes.entry(*workunit).or_default();
                let twice = |who: &str| Breach::SecondVote(*workunit, who.to_owned());
                let before = votes.hosts.insert(host.clone(), *token);
                if before.is_some_and(|before| before != *token) {
                    return Err(twice(host.as_str()));
                }
                let others = self.says.get(token).into_iter().flatten();
                for party in others.chain([host]) {
                    let before = votes.says.insert(party.clone(), *token);
                    if before.is_some_and(|before| before != *token) {
                        return Err(twice(party.as_str()));
                    }
                }
                if let Some(owner) = owner {
                    let before = votes.owners.insert(owner.clone(), *token);
                    if before.is_some_and(|before| before != *token) {
                        return Err(twice(owner.as_str()));
                    }
                }
                Ok(())
            }
            Fact::Decided { workunit, digest } => {
                let before = self.decided.insert(*workunit, *digest);
                match before.is_some_and(|before| before != *digest) {
                    true => Err(Breach::DecisionChanged(*workunit)),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// A broker came back: does it still know what was told?
    pub(super) fn restarted(&mut self, core: &Core) -> Result<(), Breach> {
        self.given.fill_with(Given::default);
        if let Some(job) = self.jobs.iter().find(|job| core.farm().job(**job).is_none()) {
            return Err(Breach::JobLost(*job));
        }
        self.check_decisions(core)?;
        let lost = |(id, votes): &(&WorkunitId, &Votes)| match core.farm().find(**id) {
            Some(open) => {
                let unit = core.farm().workunit(open);
                let attempts = votes.failed.len() + votes.unheard.len();
                unit.reported() < votes.hosts.len() || unit.failed_attempts.len() < attempts
            }
            None => core
                .farm()
                .job(id.job)
                .is_some_and(|job| job.phase == JobPhase::Active && !job.ended.contains(id.index)),
        };
        match self.votes.iter().find(lost) {
            Some((id, _)) => Err(Breach::VoteLost(*id)),
            None => Ok(()),
        }
    }

    /// Whether every decision is still what it was.
    pub(super) fn check_decisions(&self, core: &Core) -> Result<(), Breach> {
        let digest = |id: &WorkunitId| core.farm().job(id.job)?.ended.digest(id.index);
        match self.decided.iter().find(|(id, of)| digest(id) != Some(**of)) {
            Some((id, _)) => Err(Breach::DecisionChanged(*id)),
            None => Ok(()),
        }
    }

    pub(super) fn jobs(&self) -> &BTreeSet<JobId> {
        &self.jobs
    }

    pub(super) fn decided(&self) -> &BTreeMap<WorkunitId, Digest> {
        &self.decided
    }
}

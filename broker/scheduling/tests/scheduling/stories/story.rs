//! The language of the stories: a core that is told what happens, line by line, and what it said.
//!
//! Every step checks all invariants, and returns what the core wants done as lines ([`Seen`])
//! that the story has to look at.

use std::collections::BTreeMap;

use gleaner_protocol::control::{Fragment, Held, HeldState, ReleaseReason};
use gleaner_protocol::job::Lane;
use gleaner_protocol::{
    ChunkId, DatasetId, Digest, Epoch, HostInfo, HostName, JobId, LeaseToken, Origin, ReplicaId,
    Span, Time, WorkunitId,
};
use gleaner_scheduling::{
    Core, CoreConfig, Effect, Fact, Input, LanePolicy, Policy, PolicyName, ReportedOutcome,
    RequestId, check_invariants,
};

use super::builders::{HostBuilder, JobBuilder};

pub(crate) struct Story {
    pub(crate) core: Core,
    pub(crate) facts: Vec<Fact>,
    config: CoreConfig,
    /// What lanes have that no configuration names.
    more: fn() -> Policies,
    now: Time,
    incarnation: u32,
    hosts: BTreeMap<String, StoryHost>,
    /// Every lease ever given and to whom, in order.
    leases: Vec<(HostName, StoryLease)>,
}

/// Policies by their lanes.
pub(crate) type Policies = BTreeMap<Lane, Box<dyn Policy>>;

#[derive(Clone)]
pub(super) struct StoryHost {
    pub(super) info: HostInfo,
    pub(super) fragment: Fragment,
    pub(super) incarnation: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StoryLease {
    pub(crate) token: LeaseToken,
    pub(crate) replica: ReplicaId,
}

/// What the core wanted done, a line each.
#[must_use = "a story looks at what was done"]
pub(crate) struct Seen(Vec<String>);

impl Seen {
    /// Exactly these and nothing else, in this order.
    #[track_caller]
    pub(crate) fn is<const N: usize>(self, lines: [&str; N]) {
        assert_eq!(self.0, lines);
    }

    #[track_caller]
    pub(crate) fn nothing(self) {
        self.is([]);
    }

    /// These first, in this order.
    #[track_caller]
    pub(crate) fn begins<const N: usize>(self, lines: [String; N]) {
        assert_eq!(self.0.get(..N), Some(&lines[..]), "{:?}", self.0);
    }

    /// For the steps that are not the subject.
    pub(crate) fn whatever(self) {}

    /// The hosts that got leases, in order.
    pub(crate) fn leases(self) -> Vec<String> {
        let leases = self.0.iter().filter_map(|line| line.strip_prefix("lease "));
        leases.map(str::to_owned).collect()
    }
}

/// A farm with a deadline lane before background.
pub(crate) fn with_deadlines() -> CoreConfig {
    let deadline = LanePolicy::default_of(Lane::Deadline);
    CoreConfig::background(PolicyName::FragmentAware).with_lane(Lane::Deadline, deadline)
}

impl Story {
    pub(crate) fn of(policy: PolicyName) -> Self {
        Self::with(CoreConfig::background(policy))
    }

    pub(crate) fn with(config: CoreConfig) -> Self {
        Self::with_more(config, Policies::new)
    }

    /// With lanes beside those of the configuration.
    pub(crate) fn with_more(config: CoreConfig, more: fn() -> Policies) -> Self {
        Self {
            core: core(&config, more),
            facts: Vec::new(),
            incarnation: config.incarnation,
            config,
            more,
            now: Time::ZERO,
            hosts: BTreeMap::new(),
            leases: Vec::new(),
        }
    }

    /// Why a job waits.
    pub(crate) fn why(&self, job: u64) -> String {
        let reasons = self.core.explain_job(JobId::new(job)).expect("a job");
        reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    /// A host to be described further; it is not there yet.
    pub(crate) fn host(&mut self, name: &str, origin: Origin) -> HostBuilder<'_> {
        HostBuilder::new(self, name, origin)
    }

    pub(super) fn enter(&mut self, host: StoryHost) {
        self.hosts.insert(host.info.name.as_str().to_owned(), host);
    }

    /// Hosts with one slot each that are there at once, on one side.
    pub(crate) fn hosts<const N: usize>(&mut self, names: [&str; N], origin: Origin) {
        for name in names {
            self.host(name, origin).joins().whatever();
        }
    }

    /// A job to be described further: one workunit of one replica.
    pub(crate) fn job(&mut self) -> JobBuilder<'_> {
        JobBuilder::new(self)
    }

    /// Copies of these chunks of a dataset come to a host.
    pub(crate) fn gains<const N: usize>(
        &mut self,
        host: &str,
        dataset: u64,
        chunks: [u32; N],
    ) -> Seen {
        let dataset = DatasetId::new(dataset);
        let gained = chunks.map(|index| ChunkId { dataset, index }).to_vec();
        self.feed(Input::Copies { host: host_name(host), gained, lost: Vec::new() })
    }

    pub(crate) fn cancels(&mut self, job: u64) -> Seen {
        self.feed(Input::Cancel { request: RequestId::new(1), job: JobId::new(job) })
    }

    pub(crate) fn asks(&mut self, host: &str, slots: u32) -> Seen {
        self.feed(Input::Request { host: host_name(host), cores: slots })
    }

    pub(crate) fn gives(&mut self, host: &str, slots: u32) -> Seen {
        self.gives_of(host, |fragment| fragment.cores = slots)
    }

    /// The host gives another fragment.
    pub(crate) fn gives_of(&mut self, host: &str, change: impl FnOnce(&mut Fragment)) -> Seen {
        let known = self.hosts.get_mut(host).expect("a host of the story");
        change(&mut known.fragment);
        let fragment = known.fragment;
        self.feed(Input::Fragment { host: host_name(host), fragment })
    }

    /// The host gives so much memory, in MiB.
    pub(crate) fn gives_memory(&mut self, host: &str, mib: u64) -> Seen {
        self.gives_of(host, |fragment| fragment.memory_mib = Some(mib))
    }

    /// The host reports `output` for its lease on the workunit (`"1/0"`: job 1, index 0).
    pub(crate) fn reports(&mut self, host: &str, workunit: &str, output: &str) -> Seen {
        let lease = self.lease(host, workunit);
        self.reports_lease(host, lease, output)
    }

    pub(crate) fn reports_lease(&mut self, host: &str, lease: StoryLease, output: &str) -> Seen {
        self.reports_outcome(host, lease, ReportedOutcome::Output(Digest::of(output.as_bytes())))
    }

    pub(crate) fn reports_outcome(
        &mut self,
        host: &str,
        lease: StoryLease,
        outcome: ReportedOutcome,
    ) -> Seen {
        let StoryLease { token, replica } = lease;
        self.feed(Input::Report {
            host: host_name(host),
            token,
            replica,
            outcome,
            cpu_us: 10,
            took_us: 10,
        })
    }

    /// The same as [`Story::reports`], after so many seconds of CPU time.
    pub(crate) fn reports_time(&mut self, host: &str, workunit: &str, seconds: u64) -> Seen {
        let StoryLease { token, replica } = self.lease(host, workunit);
        let (outcome, cpu_us) = (ReportedOutcome::Output(Digest::of(b"x")), seconds * 1_000_000);
        self.feed(Input::Report {
            host: host_name(host),
            token,
            replica,
            outcome,
            cpu_us,
            took_us: cpu_us,
        })
    }

    /// The workunit that the host runs, the first of them.
    pub(crate) fn held_by(&self, host: &str) -> String {
        let name = host_name(host);
        let mut hosts = self.core.farm().hosts();
        let (_, host) = hosts.find(|(_, of)| of.info.name == name).expect("a host of the story");
        let workunit = host.leases.first().expect("it runs something").workunit;
        short_workunit(self.core.farm().workunit(workunit).id)
    }

    pub(crate) fn fails(&mut self, host: &str, workunit: &str) -> Seen {
        let lease = self.lease(host, workunit);
        self.reports_outcome(host, lease, ReportedOutcome::Failed("no memory".into()))
    }

    pub(crate) fn releases(&mut self, host: &str, workunit: &str, reason: ReleaseReason) -> Seen {
        let token = self.lease(host, workunit).token;
        self.feed(Input::Released { host: host_name(host), token, reason })
    }

    /// The host saves where its replica of the workunit is, and is driven out.
    pub(crate) fn saves_and_goes(&mut self, host: &str, workunit: &str, state: &str) -> Seen {
        let (token, state) = (self.lease(host, workunit).token, Digest::of(state.as_bytes()));
        self.feed(Input::Saved { host: host_name(host), token, state }).nothing();
        self.is_preempted(host, workunit)
    }

    pub(crate) fn is_preempted(&mut self, host: &str, workunit: &str) -> Seen {
        self.releases(host, workunit, ReleaseReason::Preempted)
    }

    pub(crate) fn leaves(&mut self, host: &str) -> Seen {
        self.feed(Input::HostLeft { host: host_name(host) })
    }

    /// It is sent away, and may not come back.
    pub(crate) fn is_expelled(&mut self, host: &str) -> Seen {
        self.feed(Input::HostExpelled { host: host_name(host) })
    }

    /// The host connects again, holding these of its replicas, done or not.
    pub(crate) fn returns(&mut self, host: &str, held: &[(&str, bool)]) -> Seen {
        let held: Vec<_> =
            held.iter().map(|(unit, done)| held_of(self.lease(host, unit), *done)).collect();
        self.returns_with(host, held)
    }

    pub(crate) fn returns_with(&mut self, host: &str, held: Vec<Held>) -> Seen {
        let known = self.hosts.get(host).expect("a host of the story").clone();
        let StoryHost { info, fragment, incarnation } = known;
        self.feed(Input::HostJoined { info, fragment, held, incarnation })
    }

    /// The host's agent starts again, and holds nothing.
    pub(crate) fn starts_again(&mut self, host: &str) -> Seen {
        self.hosts.get_mut(host).expect("a host of the story").incarnation += 1;
        self.returns_with(host, Vec::new())
    }

    /// Changes what a host will say of itself when it connects next.
    pub(crate) fn known_as(&mut self, host: &str, change: impl FnOnce(&mut HostInfo)) {
        change(&mut self.hosts.get_mut(host).expect("a host of the story").info);
    }

    /// Time goes by, and nothing else.
    pub(crate) fn advance(&mut self, span: Span) -> Seen {
        self.now = self.now + span;
        self.feed(Input::Tick)
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// The broker dies and starts again from its first `facts` facts, a new incarnation.
    pub(crate) fn restarts_from(&mut self, facts: usize) -> Seen {
        self.facts.truncate(facts);
        self.incarnation += 1;
        self.core = core(&self.config, self.more);
        for fact in self.facts.clone() {
            self.core.restore(fact).expect("facts of a core restore a core");
        }
        let mut effects = Vec::new();
        self.core.restored(&mut effects);
        self.core.set_incarnation(self.incarnation);
        check_invariants(&self.core).expect("after a restart");
        self.note(effects)
    }

    /// The same after the broker's host was booted, at this time of UTC in microseconds.
    pub(crate) fn reboots(&mut self, zero_us: u64) {
        self.config.zero_us = zero_us;
        self.now = Time::ZERO;
        self.restarts().whatever();
    }

    pub(crate) fn restarts(&mut self) -> Seen {
        self.restarts_from(self.facts.len())
    }

    /// The same from a snapshot.
    pub(crate) fn restarts_from_snapshot(&mut self) -> Seen {
        self.facts = self.core.facts().collect();
        self.restarts()
    }

    /// The latest lease of a host on a workunit.
    #[track_caller]
    pub(crate) fn lease(&self, host: &str, workunit: &str) -> StoryLease {
        let (name, id) = (host_name(host), workunit_id(workunit));
        let mut latest = self.leases.iter().rev();
        let found = latest.find(|(host, lease)| *host == name && lease.replica.workunit == id);
        found.unwrap_or_else(|| panic!("{host} never had a lease on {workunit}")).1
    }

    pub(crate) fn feed(&mut self, input: Input) -> Seen {
        let mut effects = Vec::new();
        self.core.handle(self.now, input.clone(), &mut effects);
        if let Err(violation) = check_invariants(&self.core) {
            panic!("after {input:?}: {violation}");
        }
        self.note(effects)
    }

    fn note(&mut self, effects: Vec<Effect>) -> Seen {
        let lines = effects.iter().map(|effect| self.line(effect)).collect();
        self.facts.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Persist(fact) => Some(fact),
            _ => None,
        }));
        Seen(lines)
    }

    fn line(&mut self, effect: &Effect) -> String {
        let name = |host| self.core.farm().host(host).info.name.as_str().to_owned();
        match effect {
            Effect::Persist(fact) => format!("persist {}", fact_line(fact)),
            Effect::Submitted { result: Ok(job), .. } => format!("accepted {job}"),
            Effect::Submitted { result: Err(refusal), .. } => format!("refused: {refusal}"),
            Effect::Cancelled { known, .. } => format!("cancelled: {known}"),
            Effect::Welcome { host, adopted } => {
                let adopted: Vec<_> = adopted.iter().map(|token| self.short(*token)).collect();
                format!("welcome {} keeps [{}]", name(*host), adopted.join(" "))
            }
            Effect::Lease { host, token, replica, goes_on, .. } => {
                let from = goes_on.map_or("", |goes_on| match goes_on.is_own {
                    true => " from its own state",
                    false => " from others' state",
                });
                let line = format!("lease {} {}{from}", name(*host), short(*replica));
                let lease = StoryLease { token: *token, replica: *replica };
                let host = self.core.farm().host(*host).info.name.clone();
                self.leases.push((host, lease));
                line
            }
            Effect::Abort { host, token, reason } => {
                format!("abort {} {} {reason:?}", name(*host), self.short(*token))
            }
            Effect::Verdict { host, workunit, verdict, .. } => {
                format!("verdict {} {} {verdict:?}", name(*host), short_workunit(*workunit))
            }
            Effect::Share { host, token, share } => {
                format!("share {} {} {share}", name(*host), self.short(*token))
            }
            Effect::Park { host, token } => format!("park {} {}", name(*host), self.short(*token)),
            Effect::Resume { host, token } => {
                format!("resume {} {}", name(*host), self.short(*token))
            }
            Effect::Move { chunk, from, to, .. } => {
                let (of, index) = (chunk.dataset, chunk.index);
                format!("move {of}/{index} {} {}", name(*from), name(*to))
            }
            Effect::JobChanged { job } => format!("changed {job}"),
            Effect::HostConnected { host, .. } => format!("connected {host}"),
            Effect::HostDisconnected { host } => format!("disconnected {host}"),
            Effect::FragmentChanged { host, cores: slots } => format!("fragment {host} {slots}"),
        }
    }

    fn short(&self, token: LeaseToken) -> String {
        let known = self.leases.iter().find(|(_, lease)| lease.token == token);
        known.map_or_else(|| token.to_string(), |(_, lease)| short(lease.replica))
    }
}

fn core(config: &CoreConfig, more: fn() -> Policies) -> Core {
    let named = config.lanes.iter().map(|(lane, of)| (*lane, of.policy.build(config.audit_seed)));
    let mut lanes: Policies = named.collect();
    lanes.extend(more());
    Core::with_policies(config, lanes)
}

/// One that goes on from what others saved.
pub(crate) fn heir_of(lease: StoryLease) -> Held {
    Held { goes_on: true, ..held_of(lease, false) }
}

pub(crate) fn held_of(lease: StoryLease, done: bool) -> Held {
    let state = if done { HeldState::Ended } else { HeldState::Runs };
    Held {
        token: lease.token,
        replica: lease.replica,
        state,
        goes_on: false,
        share: gleaner_protocol::Share::WHOLE,
    }
}

/// `"1/0"` is index 0 of job 1.
pub(crate) fn workunit_id(text: &str) -> WorkunitId {
    let (job, index) = text.split_once('/').expect("JOB/INDEX");
    let job = JobId::new(job.parse().expect("a job's number"));
    WorkunitId { job, index: index.parse().expect("an index") }
}

fn short(replica: ReplicaId) -> String {
    format!("{}#{}", short_workunit(replica.workunit), replica.attempt)
}

fn short_workunit(workunit: WorkunitId) -> String {
    format!("{}/{}", workunit.job.get(), workunit.index)
}

fn fact_line(fact: &Fact) -> String {
    match fact {
        Fact::JobAccepted { job, .. } => format!("accepted {job}"),
        Fact::JobCancelled { job } => format!("cancelled {job}"),
        Fact::Voted { workunit, host, .. } => format!("vote {} {host}", short_workunit(*workunit)),
        Fact::AttemptFailed { workunit, host, cause, .. } => {
            format!("{cause} {} {host}", short_workunit(*workunit))
        }
        Fact::Decided { workunit, .. } => format!("decided {}", short_workunit(*workunit)),
        Fact::GivenUp { workunit, .. } => format!("given-up {}", short_workunit(*workunit)),
        Fact::Counted { job, .. } => format!("counted {job}"),
        Fact::JobForgotten { job } => format!("forgotten {job}"),
        Fact::HostStood { host, reported: 0, failures: 0, .. } => format!("forgotten {host}"),
        Fact::HostStood { host, .. } => format!("standing {host}"),
        Fact::OwnerStood { owner, agreed, disagreed } => {
            format!("owner {owner} {agreed} {disagreed}")
        }
        Fact::VoteStood { workunit, .. } => format!("standing {}", short_workunit(*workunit)),
        Fact::HandedOver { workunit, host, .. } => {
            format!("part {} {host}", short_workunit(*workunit))
        }
    }
}

pub(super) fn host_name(name: &str) -> HostName {
    HostName::new(name).expect("a plain name")
}

pub(super) fn fragment(slots: u32) -> Fragment {
    Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() }
}

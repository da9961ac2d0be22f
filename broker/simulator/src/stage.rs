//! The core on a stage: the model tells it what happens and performs what it asks for.

use std::collections::BTreeMap;

use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{Epoch, HostInfo, HostName, JobId, LeaseToken, ReplicaId, Time};
use gleaner_scheduling::{
    Core, CoreConfig, Effect, Farm, Input, Policy, PolicyName, ReportedOutcome, RequestId,
    SubmitRefusal, Violation, check_invariants,
};

/// A core with one lane under one policy, or with several lanes.
///
/// Effects pile up in the order of emission until the model takes them; what was to be persisted
/// counts as written at once (the storm has a store that fails).
pub(crate) struct Stage {
    core: Core,
    effects: Vec<Effect>,
    requests: u64,
}

impl Stage {
    pub(crate) fn new(lane: Lane, policy: Box<dyn Policy>) -> Self {
        Self::with(&CoreConfig::background(PolicyName::Plain), lane, policy)
    }

    /// With another configuration than the usual one; its lanes are not looked at.
    pub(crate) fn with(config: &CoreConfig, lane: Lane, policy: Box<dyn Policy>) -> Self {
        Self::with_lanes(config, BTreeMap::from([(lane, policy)]))
    }

    /// With several lanes under these policies.
    pub(crate) fn with_lanes(
        config: &CoreConfig,
        policies: BTreeMap<Lane, Box<dyn Policy>>,
    ) -> Self {
        let core = Core::with_policies(config, policies);
        Self { core, effects: Vec::new(), requests: 0 }
    }

    pub(crate) fn farm(&self) -> &Farm {
        self.core.farm()
    }

    /// When the core is to be ticked at the latest.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.core.next_deadline()
    }

    pub(crate) fn tell(&mut self, now: Time, input: Input) {
        self.core.handle(now, input, &mut self.effects);
    }

    pub(crate) fn tick(&mut self, now: Time) {
        self.tell(now, Input::Tick);
    }

    /// Submits a job. The other effects of it wait to be taken.
    pub(crate) fn submit(&mut self, now: Time, spec: JobSpec) -> Result<JobId, SubmitRefusal> {
        self.requests += 1;
        let request = RequestId::new(self.requests);
        let before = self.effects.len();
        self.tell(now, Input::Submit { request, spec: Box::new(spec) });
        let answer = self.effects[before..].iter().position(
            |effect| matches!(effect, Effect::Submitted { request: of, .. } if *of == request),
        );
        let answer = self.effects.remove(before + answer.expect("a submission is answered"));
        match answer {
            Effect::Submitted { result, .. } => result,
            _ => unreachable!("it was found as an answer"),
        }
    }

    /// Takes a job back, and forgets it.
    pub(crate) fn cancel(&mut self, now: Time, job: JobId) {
        self.requests += 1;
        self.tell(now, Input::Cancel { request: RequestId::new(self.requests), job });
        self.tell(now, Input::Forget { job });
    }

    /// A host connects, gives `slots` and asks for as many.
    pub(crate) fn join(&mut self, now: Time, info: HostInfo, slots: u32) {
        let host = info.name.clone();
        let fragment = Fragment { epoch: Epoch::default(), cores: slots, ..Fragment::default() };
        self.tell(now, Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
        self.ask(now, host, slots);
    }

    /// A host asks for more replicas.
    pub(crate) fn ask(&mut self, now: Time, host: HostName, slots: u32) {
        self.tell(now, Input::Request { host, cores: slots });
    }

    /// A host reports what came of a replica.
    pub(crate) fn report(
        &mut self,
        now: Time,
        host: HostName,
        token: LeaseToken,
        replica: ReplicaId,
        outcome: ReportedOutcome,
        cpu_us: u64,
    ) {
        self.tell(now, Input::Report { host, token, replica, outcome, cpu_us, took_us: cpu_us });
    }

    /// Whether a job can no longer be done in time, as its policy says.
    pub(crate) fn is_out_of_reach(&self, job: JobId) -> bool {
        self.core.is_out_of_reach(job)
    }

    /// What is to be done, in order. Replaces `into`, whose room is used again.
    pub(crate) fn take_effects(&mut self, into: &mut Vec<Effect>) {
        into.clear();
        std::mem::swap(&mut self.effects, into);
    }

    /// The invariants of the core and of its policy.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        check_invariants(&self.core)
    }
}

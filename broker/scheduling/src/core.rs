//! The core itself: takes inputs one by one.

mod hosts;
mod jobs;
mod replicas;
mod restore;
mod settle;
mod snapshot;
mod tokens;

pub use restore::RestoreError;
pub use tokens::TokenKey;
pub(crate) use tokens::{Asked, TokenMint};

use std::collections::BTreeMap;
use std::sync::Arc;

use gleaner_protocol::job::Lane;
use gleaner_protocol::limits::CORES_MAX;
use gleaner_protocol::{ChunkId, HostName, JobId, Span, Time, WorkunitId};

use crate::farm::{Begins, Farm, HostIx, Rule, WorkunitIx};
use crate::policy::{Change, Policy, PolicyName, Trigger};
use crate::{Desk, Effect, Input};

/// What a core is told at its birth.
#[derive(Debug, Clone)]
pub struct CoreConfig {
    /// Which start of the broker this is.
    pub incarnation: u32,
    /// The policy of each lane, in the lanes' order. A lane without one takes no jobs.
    pub lanes: BTreeMap<Lane, PolicyName>,
    /// How long a host whose link is down keeps its leases.
    pub reconnect_grace: Span,
    /// Where the choice of the results that are checked comes from. Agents must not know it.
    pub audit_seed: u64,
}

impl CoreConfig {
    /// One lane, [`Lane::Background`], under `policy`.
    #[must_use]
    pub fn background(policy: PolicyName) -> Self {
        Self {
            incarnation: 1,
            lanes: BTreeMap::from([(Lane::Background, policy)]),
            reconnect_grace: Span::from_secs(120),
            audit_seed: 0,
        }
    }
}

/// The scheduling core. See the [crate's page](crate).
pub struct Core {
    pub(crate) farm: Farm,
    pub(crate) lanes: BTreeMap<Lane, Box<dyn Policy>>,
    tokens: TokenMint,
    reconnect_grace: Span,
    /// When the input in hand was taken.
    now: Time,
    next_job: u64,
    /// Whether work appeared that standing requests may want.
    new_work: bool,
    /// Hosts that passed a check or were caught, of whose other results that may be the end.
    unsettled: Vec<HostIx>,
}

impl Core {
    /// An empty core.
    #[must_use]
    pub fn new(config: &CoreConfig) -> Self {
        let lanes = config
            .lanes
            .iter()
            .map(|(lane, name)| (*lane, name.build(config.audit_seed)))
            .collect();
        Self::with_policies(config, lanes)
    }

    /// An empty core with these policies instead of the configured ones.
    #[must_use]
    pub fn with_policies(config: &CoreConfig, lanes: BTreeMap<Lane, Box<dyn Policy>>) -> Self {
        Self {
            farm: Farm::default(),
            lanes,
            tokens: TokenMint::new(TokenKey::default(), config.incarnation),
            reconnect_grace: config.reconnect_grace,
            now: Time::ZERO,
            next_job: 1,
            new_work: false,
            unsettled: Vec::new(),
        }
    }

    /// Begins a new life of a restored core: tokens are of this incarnation from now on.
    pub fn set_incarnation(&mut self, incarnation: u32) {
        self.tokens = self.tokens.reborn(incarnation);
    }

    /// Makes tokens with this key from now on. Agents must not know it: they could name leases
    /// that nobody gave them.
    pub fn set_token_key(&mut self, key: TokenKey) {
        self.tokens = self.tokens.with_key(key);
    }

    /// What it knows.
    #[must_use]
    pub fn farm(&self) -> &Farm {
        &self.farm
    }

    /// How many jobs were accepted and are forgotten by now.
    #[must_use]
    pub fn forgotten_count(&self) -> u64 {
        self.next_job - 1 - self.farm.job_count() as u64
    }

    /// The policy of a lane, by its name.
    #[must_use]
    pub fn policy(&self, lane: Lane) -> Option<&'static str> {
        self.lanes.get(&lane).map(|policy| policy.name())
    }

    /// When [`Input::Tick`] is due at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let lease = self.farm.ends.first().map(|end| end.until);
        let grace = self.farm.hosts.first_grace().map(|(time, _)| time);
        let policies = self.lanes.values().filter_map(|policy| policy.next_deadline());
        lease.into_iter().chain(grace).chain(policies).min()
    }

    /// Takes an input and pushes what is to be done, in order. What is overdue at `now` is done
    /// first.
    pub fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        self.now = now;
        self.end_overdue(now, effects);
        match input {
            Input::Submit { request, spec } => self.submit(request, spec, effects),
            Input::Cancel { request, job } => self.cancel(request, job, effects),
            Input::HostJoined { info, fragment, held } => {
                self.host_joined(now, info, fragment, &held, effects);
            }
            Input::HostLeft { host } => self.host_left(now, &host, effects),
            Input::Fragment { host, fragment } => {
                if let Some(host) = self.connected(&host) {
                    self.set_fragment(host, fragment, effects);
                }
            }
            Input::Copies { host, gained, lost } => {
                if let Some(host) = self.connected(&host) {
                    self.change_copies(host, &gained, &lost);
                }
            }
            Input::Forget { job } => self.forget(job, effects),
            Input::Request { host, slots } => {
                if let Some(host) = self.connected(&host) {
                    self.farm.hosts.change(host, |entry| {
                        let most = entry.info.cores.max(entry.fragment.slots).min(CORES_MAX);
                        entry.asked = entry.asked.saturating_add(slots).min(most);
                    });
                }
            }
            Input::Report { host, token, replica, outcome, cpu_us } => {
                if let Some(host) = self.connected(&host) {
                    self.report(host, token, replica, outcome, cpu_us, effects);
                }
            }
            Input::Released { host, token, reason } => {
                if let Some(host) = self.connected(&host) {
                    self.released(host, token, &reason, effects);
                }
            }
            Input::Saved { host, token, state } => {
                if let Some(host) = self.connected(&host) {
                    self.saved(host, token, state);
                }
            }
            Input::Frozen { host, token, frozen } => {
                if let Some(host) = self.connected(&host) {
                    self.set_frozen(host, token, frozen, effects);
                }
            }
            Input::Alarm { host, reason } => {
                if let Some(host) = self.connected(&host) {
                    self.farm.hosts.change(host, |entry| entry.alarm = reason);
                }
            }
            Input::Tick => {}
        }
        self.settle(effects);
        self.plan_woken(now, effects);
        if std::mem::take(&mut self.new_work) {
            self.plan(now, Trigger::Work, effects);
        }
        self.plan_deadlines(now, effects);
        // What a policy took back at its deadline is room that others may want.
        self.plan_woken(now, effects);
    }

    /// The monitor of a host's farm says why it gives nothing, or that it gives again. That is shown,
    /// and decides nothing: what a host gives it says itself.
    pub fn note_closed(&mut self, host: &HostName, reason: Option<&str>) {
        if let Some(host) = self.farm.hosts.find(host)
            && self.farm.hosts.get(host).closed.as_deref() != reason
        {
            self.farm.hosts.change(host, |entry| entry.closed = reason.map(Arc::from));
        }
    }

    fn connected(&self, host: &HostName) -> Option<HostIx> {
        self.farm.hosts.find(host).filter(|host| self.farm.hosts.get(*host).connected)
    }

    fn end_overdue(&mut self, now: Time, effects: &mut Vec<Effect>) {
        while let Some(lease) = self.farm.first_overdue(now) {
            self.expire(lease, effects);
        }
        while let Some((until, host)) = self.farm.hosts.first_grace()
            && until <= now
        {
            self.grace_ended(host, effects);
        }
    }

    /// Serves the hosts that came to have room; what is left of their requests stands.
    fn plan_woken(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let woken = self.farm.hosts.take_woken();
        for host in &woken {
            let entry = self.farm.hosts.get(*host);
            if entry.free() > 0 && !entry.listed {
                self.plan(now, Trigger::Host(*host), effects);
                self.farm.hosts.list(*host);
            }
        }
        self.farm.hosts.keep_buffer(woken);
    }

    /// Offers the fragment to the lanes in their order.
    fn plan(&mut self, now: Time, trigger: Trigger, effects: &mut Vec<Effect>) {
        for policy in self.lanes.values_mut() {
            let mut desk = Desk::new(now, &mut self.farm, &self.tokens, effects);
            policy.plan(&mut desk, trigger);
        }
    }

    fn plan_deadlines(&mut self, now: Time, effects: &mut Vec<Effect>) {
        for policy in self.lanes.values_mut() {
            if policy.next_deadline().is_some_and(|due| due <= now) {
                let mut desk = Desk::new(now, &mut self.farm, &self.tokens, effects);
                policy.plan(&mut desk, Trigger::Deadline);
            }
        }
    }

    /// Tells the policy that has this job.
    fn tell(&mut self, job: JobId, change: Change) {
        let lane = self.farm.lane_of(job);
        if let Some(policy) = lane.and_then(|lane| self.lanes.get_mut(&lane)) {
            policy.observe(self.now, &self.farm, change);
        }
    }

    /// Tells every policy.
    fn tell_all(&mut self, change: Change) {
        for policy in self.lanes.values_mut() {
            policy.observe(self.now, &self.farm, change);
        }
    }

    /// Copies of chunks came to a host, or are gone from it.
    fn change_copies(&mut self, host: HostIx, gained: &[ChunkId], lost: &[ChunkId]) {
        for (chunks, held) in [(lost, false), (gained, true)] {
            for &chunk in chunks {
                if self.farm.copies.set(host, chunk, held) {
                    self.tell_all(Change::CopyChanged { host, chunk, held });
                }
            }
        }
    }

    fn workunit_changed(&mut self, workunit: WorkunitIx) {
        let unit = self.farm.workunits.get(workunit);
        let is_provisional = unit.rule == Rule::Credible && unit.pending.is_empty();
        self.new_work |= unit.waiting > 0 || is_provisional;
        self.tell(unit.id.job, Change::WorkunitChanged(workunit));
    }

    /// Opens an untouched workunit outside a policy's plan: an agent or the journal knows it.
    fn open(&mut self, id: WorkunitId) -> WorkunitIx {
        let spec = Arc::clone(&self.farm.jobs.get(&id.job).expect("the job was looked up").spec);
        let policy = self.lanes.get(&spec.lane);
        let begins = policy.map_or(Begins::fixed(&spec), |policy| policy.begins(&spec));
        let workunit = self.farm.open_at(id, begins);
        if self.farm.job(id.job).is_some_and(|job| !job.has_untouched()) {
            self.tell(id.job, Change::JobTouched(id.job));
        }
        workunit
    }
}

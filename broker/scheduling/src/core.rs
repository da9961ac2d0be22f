//! The core itself: takes inputs one by one.

mod blame;
mod freed;
mod given_up;
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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::job::Lane;
use gleaner_protocol::{Account, ChunkId, HostName, JobId, OwnerName, Span, Time, WorkunitId};
use smallvec::SmallVec;

use crate::farm::{
    AccountLimit, Begins, Farm, HostIx, LaneLimits, OwnerlessVote, Rule, VoterIx, WorkunitIx,
};
use crate::limits::{GONE_HOSTS_MAX, PLAN_PASSES_MAX};
use crate::policy::visualization::TestRun;
use crate::policy::{Change, LanePolicy, Policy, PolicyName, Trigger};
use crate::{Desk, Effect, Input};
use replicas::Took;

/// How a lane is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneConfig {
    /// Its policy.
    pub policy: LanePolicy,
    /// How much of the farm it may hold, and keeps.
    pub limits: LaneLimits,
    /// What a policy of the rendering lane expects of tasks before it has seen any; what it expects of
    /// those of views where not given.
    pub test_run: Option<TestRun>,
    /// Time between two steps of a deadline policy's monitor; as published where not given.
    pub monitor: Option<Span>,
}

impl LaneConfig {
    /// A lane under this policy, with the limits that it has where nothing else is said.
    #[must_use]
    pub fn of(lane: Lane, policy: LanePolicy) -> Self {
        Self { policy, limits: LaneLimits::of(lane), test_run: None, monitor: None }
    }

    /// A fresh one of its policy.
    fn build(&self, seed: u64) -> Box<dyn Policy> {
        match (self.policy, self.test_run, self.monitor) {
            (LanePolicy::Rendering(name), Some(run), _) => name.build_on(run),
            (LanePolicy::Deadline(name), _, Some(monitor)) => name.build_with(monitor),
            (policy, ..) => policy.build(seed),
        }
    }
}

/// What a core is told at its birth.
#[derive(Debug, Clone)]
pub struct CoreConfig {
    /// Which start of the broker this is.
    pub incarnation: u32,
    /// The lanes that there are. One that is not among them takes no jobs.
    pub lanes: BTreeMap<Lane, LaneConfig>,
    /// How long a host whose link is down keeps its leases.
    pub reconnect_grace: Span,
    /// Microseconds of UTC at [`Time::ZERO`]: due times outlive the clock that counts from there.
    pub zero_us: u64,
    /// How hosts vote that belong to no owner.
    pub ownerless_hosts_vote: OwnerlessVote,
    /// Owners of hosts for whom whoever runs the farm vouches; see [`Voice`](crate::Voice).
    pub vouched: BTreeSet<OwnerName>,
    /// Where the choice of the results that are checked comes from. Agents must not know it.
    pub audit_seed: u64,
    /// Weights of owners and projects among each other; 1 where none is given.
    pub weights: BTreeMap<Account, u32>,
    /// Accounts that may be told to hold no more than so much.
    pub limited: BTreeMap<Account, AccountLimit>,
    /// Cores that the background replicas of each owner may hold who is not one of those; any number, where
    /// there is none.
    pub owner_cores: Option<u32>,
    /// Jobs of one account that go on at once.
    pub open_jobs_max: u32,
    /// Workunits of all jobs of one account that go on.
    pub workunits_max: u64,
    /// How many hosts are remembered that have left, those aside that something open speaks of.
    pub gone_hosts_max: usize,
}

impl CoreConfig {
    /// One lane, [`Lane::Background`], under `policy`, of a farm on which each host has a vote.
    #[must_use]
    pub fn background(policy: PolicyName) -> Self {
        Self {
            incarnation: 1,
            lanes: BTreeMap::new(),
            reconnect_grace: Span::from_secs(120),
            zero_us: 0,
            ownerless_hosts_vote: OwnerlessVote::Each,
            vouched: BTreeSet::new(),
            audit_seed: 0,
            weights: BTreeMap::new(),
            limited: BTreeMap::new(),
            owner_cores: None,
            open_jobs_max: u32::MAX,
            workunits_max: u64::MAX,
            gone_hosts_max: GONE_HOSTS_MAX,
        }
        .with_lane(Lane::Background, LanePolicy::Greedy(policy))
    }

    /// The same with one more lane, or with another policy for it.
    #[must_use]
    pub fn with_lane(mut self, lane: Lane, policy: LanePolicy) -> Self {
        self.lanes.insert(lane, LaneConfig::of(lane, policy));
        self
    }
}

/// The scheduling core. See the [crate's page](crate).
pub struct Core {
    pub(crate) farm: Farm,
    pub(crate) lanes: BTreeMap<Lane, Box<dyn Policy>>,
    tokens: TokenMint,
    reconnect_grace: Span,
    gone_hosts_max: usize,
    open_jobs_max: u32,
    workunits_max: u64,
    next_job: u64,
    /// Of the next part of a frame.
    next_frame: u64,
    /// Microseconds of UTC at [`Time::ZERO`].
    zero_us: u64,
    /// Whether work appeared that standing requests may want.
    new_work: bool,
    /// By lane: how much more it could have held in its last turn, where its limits kept it from what
    /// its jobs want.
    held_back_to: [Option<u64>; Lane::COUNT],
    /// Hosts that passed a check or were caught, of whose other results that may be the end.
    unsettled: Vec<HostIx>,
    /// Owners whose voices are others than before, of whose votes that may be the end; of all, where
    /// none is given.
    revoiced: Vec<Option<VoterIx>>,
}

impl Core {
    /// An empty core.
    #[must_use]
    pub fn new(config: &CoreConfig) -> Self {
        let lanes =
            config.lanes.iter().map(|(lane, of)| (*lane, of.build(config.audit_seed))).collect();
        Self::with_policies(config, lanes)
    }

    /// An empty core with these policies instead of the configured ones.
    #[must_use]
    pub fn with_policies(config: &CoreConfig, lanes: BTreeMap<Lane, Box<dyn Policy>>) -> Self {
        let mut farm = Farm::default();
        farm.hosts.ownerless = config.ownerless_hosts_vote;
        farm.hosts.vouch_for(&config.vouched);
        farm.usage.weights.clone_from(&config.weights);
        farm.usage.limited.clone_from(&config.limited);
        farm.usage.owner_cores = config.owner_cores;
        for (lane, of) in &config.lanes {
            farm.lanes.limits[lane.index()] = of.limits;
        }
        Self {
            farm,
            lanes,
            tokens: TokenMint::new(TokenKey::default(), config.incarnation),
            reconnect_grace: config.reconnect_grace,
            gone_hosts_max: config.gone_hosts_max,
            open_jobs_max: config.open_jobs_max,
            workunits_max: config.workunits_max,
            next_job: 1,
            next_frame: JobId::FRAMES_FROM.get(),
            zero_us: config.zero_us,
            new_work: false,
            held_back_to: [None; Lane::COUNT],
            unsettled: Vec::new(),
            revoiced: Vec::new(),
        }
    }

    /// Puts another policy in the place of a lane's, made of that one: which watches it, and does the same.
    pub fn wrap_policy(
        &mut self,
        lane: Lane,
        wrap: impl FnOnce(Box<dyn Policy>) -> Box<dyn Policy>,
    ) {
        if let Some(policy) = self.lanes.remove(&lane) {
            self.lanes.insert(lane, wrap(policy));
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

    /// Makes an empty core one that notes which workunits have ended and not with which outputs, for
    /// those who restore it only to ask for its [`Core::standing_facts`].
    #[must_use]
    pub fn without_outputs(mut self) -> Self {
        self.farm.keeps_no_outputs = true;
        self
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

    /// A time of the core in microseconds of UTC.
    #[must_use]
    pub fn utc_us(&self, time: Time) -> u64 {
        self.zero_us.saturating_add(time.as_micros())
    }

    /// Milliseconds of UTC now, as due times are counted.
    #[must_use]
    pub fn utc_now_ms(&self) -> u64 {
        self.utc_us(self.farm.now) / 1_000
    }

    /// How long each task of a job that has not ended is still expected to take on a core, in
    /// microseconds, where its lane's policy keeps account of that.
    #[must_use]
    pub fn left_us(&self, job: JobId) -> Vec<u64> {
        let lane = self.farm.lane_of(job).and_then(|lane| self.lanes.get(&lane));
        lane.map_or(Vec::new(), |policy| policy.left_us(self.farm.now, job))
    }

    /// When a job is expected to be done, where its lane's policy can tell.
    #[must_use]
    pub fn expected_end(&self, job: JobId) -> Option<Time> {
        let lane = self.farm.lane_of(job)?;
        self.lanes.get(&lane)?.expected_end(&self.farm, job)
    }

    /// Whether a job can no longer be done in time, as far as its lane's policy can tell.
    #[must_use]
    pub fn is_out_of_reach(&self, job: JobId) -> bool {
        let lane = self.farm.lane_of(job).and_then(|lane| self.lanes.get(&lane));
        lane.is_some_and(|policy| policy.is_out_of_reach(job))
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
        let backoff = self.farm.hosts.first_backoff().map(|(time, ..)| time);
        let policies = self.lanes.values().filter_map(|policy| policy.next_deadline());
        let quota = self.farm.hosts.first_quota().map(|(time, _)| time);
        let freed = self.farm.usage.has_freed().then_some(self.farm.now);
        let all = lease.into_iter().chain(grace).chain(backoff).chain(quota).chain(policies);
        all.chain(freed).min()
    }

    /// Takes an input and pushes what is to be done, in order. What is overdue at `now` is done
    /// first.
    pub fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        self.farm.now = now;
        if matches!(input, Input::HostLeft { .. } | Input::HostExpelled { .. }) {
            // Before anything else: what this input has done names hosts by their numbers.
            self.forget_gone(effects);
        }
        self.farm.usage.settle(now);
        self.end_overdue(now, effects);
        match input {
            Input::Submit { request, spec } => self.submit(request, *spec, effects),
            Input::Cancel { request, job } => self.cancel(request, job, effects),
            Input::HostJoined { info, fragment, held, incarnation } => {
                self.host_joined(now, info, fragment, &held, incarnation, effects);
                self.look_again();
            }
            Input::HostLeft { host } => {
                self.host_left(now, &host, effects);
                self.look_again();
            }
            Input::HostExpelled { host } => {
                self.expel(now, &host, effects);
                self.look_again();
            }
            Input::Fragment { host, fragment } => {
                if let Some(host) = self.connected(&host) {
                    self.set_fragment(host, fragment, effects);
                }
            }
            Input::Copies { host, gained, lost } => {
                // Copies of a host that is away may be lost, and none come.
                let known = self.farm.hosts.find(&host);
                let is_right =
                    |host: &HostIx| gained.is_empty() || self.farm.hosts.get(*host).connected;
                if let Some(host) = known.filter(is_right) {
                    self.change_copies(host, &gained, &lost);
                }
            }
            Input::Forget { job } => self.forget(job, effects),
            Input::HoldBack { accounts } => self.farm.usage.hold_back(accounts),
            Input::Vouch { owners } => {
                if self.farm.hosts.vouch_for(&owners) {
                    self.revoiced.push(None);
                }
            }
            Input::KeyRevoked { host, last_of } => {
                self.distrust(&host, last_of.as_ref(), effects);
            }
            Input::Request { host, cores } => {
                if let Some(host) = self.connected(&host) {
                    self.farm.hosts.change(host, |entry| entry.ask(cores));
                }
            }
            Input::Report { host, token, replica, outcome, cpu_us, took_us } => {
                if let Some(host) = self.connected(&host) {
                    self.report((host, token, replica), outcome, Took { cpu_us, took_us }, effects);
                }
            }
            Input::Released { host, token, reason } => {
                if let Some(host) = self.connected(&host) {
                    self.released(host, token, &reason);
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
        self.plan_all(now, effects);
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

    /// So many core-seconds were used for an account before this core began, as they count now.
    pub fn note_used(&mut self, now: Time, account: &Account, seconds: f64) {
        if seconds.is_finite() && seconds > 0.0 {
            self.farm.usage.add_used(account, seconds, now);
        }
    }

    /// What is told of the core next is told at this time: back-offs end then.
    pub fn note_time(&mut self, now: Time) {
        self.farm.now = now;
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
        while let Some((until, host, ability)) = self.farm.hosts.first_backoff()
            && until <= now
        {
            self.farm.hosts.end_backoff(host, ability);
            self.tell_all(Change::HostChanged(host));
        }
        while let Some((until, host)) = self.farm.hosts.first_quota()
            && until <= now
        {
            self.farm.hosts.renew_quota(host, now);
            self.tell_all(Change::HostChanged(host));
        }
    }

    /// Asks the lanes until none has anything to do: what a larger replica takes the place of waits
    /// again, and another host may have room for it; and where less is left of a host, larger ones may
    /// take the place of what was begun there.
    fn plan_all(&mut self, now: Time, effects: &mut Vec<Effect>) {
        for _ in 0..PLAN_PASSES_MAX {
            self.plan_once(now, effects);
            if !self.has_more_to_offer() {
                break;
            }
        }
    }

    /// Whether the lanes are to be asked once more: there is work again, or a host or a lane that more
    /// may be had of, or by, than it seemed.
    fn has_more_to_offer(&self) -> bool {
        let hosts = &self.farm.hosts;
        self.new_work
            || hosts.has_narrowed()
            || hosts.has_more_kept
            || self.farm.usage.has_freed()
            || (hosts.has_uneven && self.lanes.keys().any(|lane| self.may_more(*lane)))
    }

    /// Asks the lanes in their order. Each has its whole turn before the next one, so that no lane
    /// gets what one before it wants. One that may hold more again than its limits allowed before is
    /// offered all standing requests.
    fn plan_once(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.wake_for_freed();
        let mut has_work = false;
        let mut open = self.farm.hosts.take_narrowed();
        let lanes: SmallVec<[Lane; Lane::COUNT]> = self.lanes.keys().copied().collect();
        let last = lanes.last().copied();
        for lane in lanes {
            self.farm.begin_turn(lane);
            has_work |= std::mem::take(&mut self.new_work);
            has_work |= std::mem::take(&mut self.farm.hosts.has_more_kept);
            for host in &open {
                if self.farm.hosts.get(*host).has_room() {
                    self.plan_host(lane, *host, now, effects);
                }
            }
            self.plan_woken(lane, now, &mut open, effects);
            let may_more = self.may_more(lane);
            if may_more {
                self.plan_listed(lane, now, effects);
            }
            if has_work || self.new_work || may_more {
                has_work |= std::mem::take(&mut self.new_work);
                self.plan(lane, Trigger::Work, now, effects);
            }
            if self.lanes[&lane].next_deadline().is_some_and(|due| due <= now) {
                self.plan(lane, Trigger::Deadline, now, effects);
            }
            // What the policy took back is room that it may want itself.
            self.plan_woken(lane, now, &mut open, effects);
            if Some(lane) == last {
                open.clear();
            }
            self.held_back_to[lane.index()] = self.farm.held_back_to(lane);
        }
    }

    /// Whether a lane was kept from more by its limits alone, and may hold more now.
    fn may_more(&self, lane: Lane) -> bool {
        let before = self.held_back_to[lane.index()];
        before.is_some_and(|before| self.farm.may_more(lane, before))
    }

    /// Offers the standing requests to a lane, as far as it may hold more.
    fn plan_listed(&mut self, lane: Lane, now: Time, effects: &mut Vec<Effect>) {
        let asking: Vec<HostIx> = self.farm.hosts.asking().iter().collect();
        for host in asking {
            if self.farm.is_lane_full(lane) {
                return;
            }
            if self.farm.hosts.get(host).has_room() {
                self.plan_host(lane, host, now, effects);
            }
        }
    }

    /// Serves the hosts that came to have room; what is left of their requests stands. They are
    /// noted for the lanes behind.
    fn plan_woken(
        &mut self,
        lane: Lane,
        now: Time,
        open: &mut Vec<HostIx>,
        effects: &mut Vec<Effect>,
    ) {
        let woken = self.farm.hosts.take_woken();
        for host in &woken {
            let entry = self.farm.hosts.get(*host);
            if entry.has_room() && !entry.listed {
                self.plan_host(lane, *host, now, effects);
                self.farm.hosts.list(*host);
            }
        }
        if self.lanes.len() > 1 {
            open.extend_from_slice(&woken);
        }
        self.farm.hosts.keep_buffer(woken);
    }

    /// Offers a host that asks to a lane: what was parked of it goes on first.
    fn plan_host(&mut self, lane: Lane, host: HostIx, now: Time, effects: &mut Vec<Effect>) {
        if !self.farm.hosts.get(host).parked.is_empty() {
            self.resume_parked(lane, host, effects);
            if !self.farm.hosts.get(host).has_room() {
                return;
            }
        }
        self.plan(lane, Trigger::Host(host), now, effects);
    }

    fn plan(&mut self, lane: Lane, trigger: Trigger, now: Time, effects: &mut Vec<Effect>) {
        let policy = self.lanes.get_mut(&lane).expect("a lane that is there");
        let mut desk = Desk::new(now, &mut self.farm, &self.tokens, effects, lane);
        policy.plan(&mut desk, trigger);
        self.tell_displaced();
    }

    /// Tells policies of what was displaced since.
    fn tell_displaced(&mut self) {
        for workunit in std::mem::take(&mut self.farm.displaced) {
            self.workunit_changed(workunit);
        }
    }

    /// Tells the policy that has this job.
    fn tell(&mut self, job: JobId, change: Change) {
        let lane = self.farm.lane_of(job);
        if let Some(policy) = lane.and_then(|lane| self.lanes.get_mut(&lane)) {
            policy.observe(self.farm.now, &self.farm, change);
        }
    }

    /// Tells every policy.
    fn tell_all(&mut self, change: Change) {
        for policy in self.lanes.values_mut() {
            policy.observe(self.farm.now, &self.farm, change);
        }
    }

    /// Copies of chunks came to a host, or are gone from it.
    fn change_copies(&mut self, host: HostIx, gained: &[ChunkId], lost: &[ChunkId]) {
        for (chunks, held) in [(lost, false), (gained, true)] {
            for &chunk in chunks {
                let had = self.farm.copies.is_held(chunk, host);
                if self.farm.copies.set(host, chunk, held) {
                    match (had, held) {
                        (false, true) => self.farm.hosts.mention(host),
                        (true, false) => self.farm.hosts.drop_mention(host),
                        _ => {}
                    }
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

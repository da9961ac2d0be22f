//! Why something waits: a typed reason for each rule that can hold it up.

mod reason;
mod too_little;

pub use reason::WaitReason;
pub use too_little::TooLittle;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::job::{Attempts, Cause, JobSpec, Lane};
use gleaner_protocol::{JobId, Share, Span, WorkunitId};

use crate::ability::{Need, gpus_of};
use crate::farm::{
    AccountShare, AtLimit, Backoff, Demand, Host, HostIx, Job, JobPhase, Quota, Rule, Takes,
    VOICES_WANTED, Voice, Workunit,
};
use crate::limits::{FAILURES_TOLD_MAX, INDEXES_TOLD_MAX};
use crate::{Core, Farm};

impl Core {
    /// Why a job stands where it stands; `None` where there is no such job.
    #[must_use]
    pub fn explain_job(&self, id: JobId) -> Option<Vec<WaitReason>> {
        let job = self.farm.job(id)?;
        match job.phase {
            JobPhase::Cancelled => return Some(vec![WaitReason::Cancelled]),
            JobPhase::Ended => {
                return Some(std::iter::once(WaitReason::Ended).chain(failures(job)).collect());
            }
            JobPhase::Active => {}
        }
        let mut reasons = failures(job);
        let parked = self.farm.parked_of(job);
        let running = (job.pending as usize).saturating_sub(parked);
        if running > 0 {
            reasons.push(WaitReason::Running { pending: running });
        }
        let policy = self.lanes.get(&job.spec.lane);
        let insured = job.open.keys().filter_map(|index| {
            let workunit = WorkunitId { job: id, index: *index };
            policy?.insured_on(workunit)
        });
        let insured: Vec<_> = insured.collect();
        reasons.extend(self.insured(&insured));
        if policy.is_some_and(|policy| policy.is_out_of_reach(id)) {
            reasons.push(WaitReason::OutOfReach);
        }
        if parked > 0 {
            reasons.push(WaitReason::Parked { replicas: parked });
        }
        reasons.extend(begun_anew(job));
        reasons.extend(self.farm.hosts_against(id));
        reasons.extend(self.farm.refused(job));
        if let Some(index) = job.next_untouched().filter(|_| job.pending == 0) {
            // Where what it reads is comes before whose turn it is.
            let reads = job.spec.profile.reads.is_some();
            let policy = policy.filter(|_| reads && job.spec.lane == Lane::Dataset);
            let workunit = WorkunitId { job: id, index };
            let elsewhere = policy.map(|policy| policy.explain(&self.farm, workunit));
            reasons.extend(elsewhere.unwrap_or_else(|| vec![WaitReason::InTurn]));
            reasons.extend(self.farm.share_against(job));
        }
        if let Some((index, _)) = job.open.iter().find(|(_, workunit)| {
            let unit = self.farm.workunit(**workunit);
            unit.waiting > 0 && unit.pending.is_empty()
        }) {
            reasons.extend(self.explain_workunit(WorkunitId { job: id, index: *index })?);
        }
        let mut seen: Vec<WaitReason> = Vec::new();
        reasons.retain(|reason| {
            let new = !seen.contains(reason);
            seen.push(reason.clone());
            new
        });
        Some(reasons)
    }

    /// Why a workunit stands where it stands; `None` where there is no such workunit.
    #[must_use]
    pub fn explain_workunit(&self, id: WorkunitId) -> Option<Vec<WaitReason>> {
        let job = self.farm.job(id.job)?;
        if id.index >= job.workunit_count() {
            return None;
        }
        if job.ended.digest(id.index).is_some() {
            return Some(vec![WaitReason::Decided]);
        }
        if let Some(reason) = job.ended.failure(id.index) {
            return Some(vec![WaitReason::GivenUp { reason: reason.into() }]);
        }
        if job.phase == JobPhase::Cancelled {
            return Some(vec![WaitReason::Cancelled]);
        }
        let mut reasons = Vec::new();
        if let Some(unit) = self.farm.find(id).map(|workunit| self.farm.workunit(workunit)) {
            if !unit.pending.is_empty() {
                reasons.push(WaitReason::Running { pending: unit.pending.len() });
            }
            let policy = self.lanes.get(&job.spec.lane);
            let insured = policy.and_then(|policy| policy.insured_on(id));
            reasons.extend(self.insured(insured.as_slice()));
            reasons.extend(self.farm.attempts(unit, job.spec.attempts));
            let demand = self.farm.demand(unit);
            reasons.push(match demand.later_checks {
                Some(checks) if unit.waiting == 0 => {
                    WaitReason::Provisional { agreeing: demand.agreeing, checks }
                }
                _ => WaitReason::AwaitsVotes {
                    agreeing: demand.agreeing,
                    quorum: u8::try_from(demand.wanted).unwrap_or(u8::MAX),
                    votes: unit.reported(),
                    waiting: unit.waiting,
                },
            });
            reasons.extend(self.farm.voices_against(unit, &demand));
            if unit.waiting == 0 {
                return Some(reasons);
            }
        }
        reasons.extend(self.farm.hosts_against(id.job));
        reasons.extend(self.farm.refused(job));
        if let Some(policy) = self.lanes.get(&job.spec.lane) {
            reasons.extend(policy.explain(&self.farm, id));
        }
        Some(reasons)
    }
}

impl Core {
    /// Where second replicas run for insurance.
    fn insured(&self, on: &[HostIx]) -> Option<WaitReason> {
        let host = self.farm.host(*on.first()?).info.name.clone();
        Some(WaitReason::Insured { replicas: on.len(), host })
    }
}

fn begun_anew(job: &Job) -> Option<WaitReason> {
    let (replicas, lease_s) = (job.counts.expired, job.spec.lease_s);
    let most = job.spec.attempts;
    (replicas > 0).then_some(WaitReason::BegunAnew { replicas, lease_s, most })
}

/// The workunits of a job that were given up, those for one reason together, the most first.
fn failures(job: &Job) -> Vec<WaitReason> {
    let mut reasons: BTreeMap<&str, (usize, Vec<u32>)> = BTreeMap::new();
    for (index, reason) in job.ended.failures() {
        let (workunits, first) = reasons.entry(reason).or_default();
        *workunits += 1;
        if first.len() < INDEXES_TOLD_MAX {
            first.push(index);
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, (workunits, first))| (std::cmp::Reverse(*workunits), first[0]));
    let more = reasons.split_off(reasons.len().min(FAILURES_TOLD_MAX));
    let workunits = more.into_iter().map(|(_, (workunits, _))| workunits).sum();
    let told = reasons.into_iter().map(|(reason, (workunits, first))| WaitReason::Failures {
        workunits,
        first,
        reason: reason.to_owned(),
    });
    let more = (workunits > 0).then_some(WaitReason::MoreFailures { workunits });
    told.chain(more).collect()
}

/// What is said most often, and how often; of several the first in order.
fn most_said<'a>(reasons: impl Iterator<Item = &'a Arc<str>>) -> Option<(Arc<str>, usize)> {
    let mut times: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for reason in reasons {
        *times.entry(reason).or_default() += 1;
    }
    let (reason, times) = times.into_iter().rev().max_by_key(|(_, times)| *times)?;
    Some((reason.clone(), times))
}

impl Farm {
    /// Who comes before a job's account, where anybody does.
    fn share_against(&self, job: &Job) -> Option<WaitReason> {
        let (AccountShare { account, weight, used_s, .. }, before) =
            self.usage.standing(job.account, self.now);
        let used = (used_s / 36.0).round() as u64;
        (before > 0).then_some(WaitReason::Share { account, used, weight, before })
    }

    /// What about the hosts holds this job up, if anything does.
    fn hosts_against(&self, id: JobId) -> Vec<WaitReason> {
        let Some(job) = self.job(id) else { return Vec::new() };
        let connected = self.hosts().filter(|(_, host)| host.connected).count();
        if connected == 0 {
            return vec![WaitReason::NoHosts];
        }
        let able: Vec<_> = self
            .hosts()
            .filter(|(index, host)| host.connected && self.is_able(*index, id))
            .map(|(_, host)| host)
            .collect();
        if able.is_empty() {
            return vec![self.nobody_can(&job.spec, connected)];
        }
        let mut reasons = Vec::new();
        let voters: BTreeSet<_> = able.iter().map(|host| host.voter).collect();
        let quorum = job.spec.quorum();
        if voters.len() < usize::from(quorum) {
            reasons.push(WaitReason::TooFewVoters { quorum, voters: voters.len() });
        }
        let voices: usize = voters.iter().map(|voter| self.voice_of(*voter).weight()).sum();
        if quorum > 1 && voices < VOICES_WANTED {
            reasons.push(WaitReason::TooFewVoices { voices });
        }
        reasons.extend(self.backing_off(job, &able));
        let account = || job.spec.account();
        match self.at_limit(job.spec.lane, job.ability) {
            Some(AtLimit::Cap { held, cores }) => {
                reasons.push(WaitReason::AtCap { account: account(), held, cores });
            }
            Some(AtLimit::HeldBack) => {
                reasons.push(WaitReason::BudgetUsedUp { account: account() });
            }
            None => {}
        }
        let spent = able.iter().filter_map(|host| host.quota.filter(|_| host.has_spent_quota()));
        let hosts = spent.clone().count();
        reasons.extend(spent.map(|quota| quota.until).min().map(|until| WaitReason::QuotasSpent {
            hosts,
            of: able.len(),
            after: until.since(self.now),
        }));
        let given: u32 = able.iter().map(|host| host.fragment.cores).sum();
        let share = job.spec.cores_permille;
        let is_busy = able.iter().all(|host| host.free_share() < share);
        let too_little = TooLittle::of(Takes::of(&job.spec), &able);
        if given == 0 {
            let why = most_said(able.iter().filter_map(|host| host.closed.as_ref()));
            reasons.push(WaitReason::FragmentsClosed { hosts: able.len(), why });
        } else if is_busy || too_little.is_some() {
            let (hosts, cores) = (able.len(), share.cores_touched());
            reasons.extend(is_busy.then_some(WaitReason::AllBusy { hosts, given, cores }));
            reasons.extend(too_little.map(WaitReason::TooLittleLeft));
            reasons.extend(self.lanes_before(job.spec.lane));
        } else if self.is_lane_full(job.spec.lane) {
            let lane = job.spec.lane;
            let max_percent = self.lane_limits(lane).max_percent;
            reasons.push(WaitReason::LaneIsFull { lane, max_percent });
        }
        reasons
    }

    /// Whether a workunit waits for the voice of an owner that decides, and no more votes of others.
    fn voices_against(&self, unit: &Workunit, demand: &Demand) -> Option<WaitReason> {
        let is_wanted = demand.voices_missing > 0 || unit.rule == Rule::Credible;
        let new = |voter| self.voice_of(voter) == Voice::New;
        let outputs = unit.votes.iter().filter(|vote| vote.digest.is_some());
        let votes = outputs.filter(|vote| new(vote.voter)).count();
        let running = unit.pending.iter().filter(|pending| new(pending.voter)).count();
        (is_wanted && votes > 0 && unit.waiting > 0)
            .then_some(WaitReason::AwaitsVoice { votes, running })
    }

    /// Lanes before this one that hold cores.
    fn lanes_before(&self, lane: Lane) -> impl Iterator<Item = WaitReason> {
        let (given, held) = self.lane_shares();
        let before = Lane::ALL.into_iter().take_while(move |other| *other < lane);
        let before = before.map(move |lane| (lane, held[lane.index()]));
        before.filter(|(_, held)| *held > 0).map(move |(lane, held)| WaitReason::LaneBefore {
            lane,
            held,
            given,
        })
    }

    /// How many replicas of a job stand still for lanes before it.
    fn parked_of(&self, job: &Job) -> usize {
        let units = job.open.values().map(|workunit| self.workunit(*workunit));
        let pending = units.flat_map(|unit| &unit.pending);
        pending.filter(|of| self.host(of.host).is_parked(of.token)).count()
    }

    /// What a job asks for, where there are connected hosts and none of them offers it.
    pub(crate) fn why_nobody_can(&self, spec: &JobSpec) -> Option<WaitReason> {
        let need = Need::of(spec);
        let hosts = self.hosts().map(|(_, host)| host).filter(|host| host.connected);
        let (connected, able) = hosts.fold((0, 0), |(connected, able), host| {
            (connected + 1, able + usize::from(need.is_met_by(&host.info)))
        });
        (connected > 0 && able == 0).then(|| self.nobody_can(spec, connected))
    }

    /// What a job asks for that no connected host offers, and what is offered instead.
    fn nobody_can(&self, spec: &JobSpec, hosts: usize) -> WaitReason {
        let need = Need::of(spec);
        let Need { what, on, share, kept, .. } = &need;
        let connected = || {
            let hosts = self.hosts().map(|(_, host)| host).filter(|host| host.connected);
            hosts.map(|host| &host.info)
        };
        let offering = || connected().filter(|info| what.is_offered(info));
        let right = || offering().filter(|info| on.admits(info.origin));
        let (elsewhere, most_gpus) = (offering().count(), right().map(gpus_of).max().unwrap_or(0));
        let offered = match right().map(|info| info.cores).max() {
            Some(cores) if Share::cores(cores) < *share => {
                format!("the largest that offers it has {cores}")
            }
            Some(_) if most_gpus < kept.gpus => match most_gpus {
                0 => "none that offers it gives a GPU".into(),
                most => format!("the most that one gives is {most}"),
            },
            _ if elsewhere > 0 => format!("{elsewhere} others offer it, and are not {on} hosts"),
            _ => {
                let hosts: Vec<_> = connected().collect();
                what.nearest(&hosts)
            }
        };
        WaitReason::NobodyCan { needs: need.to_string(), hosts, offered }
    }

    /// Who of the hosts that could run a job backs off from what it asks for.
    fn backing_off(&self, job: &Job, able: &[&Host]) -> Option<WaitReason> {
        let backing_off = able.iter().filter_map(|host| Some((host.backs_off(job.ability)?, host)));
        let hosts = backing_off.clone().count();
        let (backoff, host) = backing_off.min_by_key(|(backoff, _)| backoff.until)?;
        Some(WaitReason::BackingOff {
            hosts,
            of: able.len(),
            what: self.abilities.need(job.ability)?.what.to_string(),
            first: host.info.name.clone(),
            after: backoff.until.since(self.now),
            why: Arc::clone(&backoff.why),
        })
    }

    /// What a host backs off from now, what it last failed at, and for how long it still does.
    pub fn backoffs<'a>(
        &'a self,
        host: &'a Host,
    ) -> impl Iterator<Item = (String, &'a Backoff, Span)> + 'a {
        host.backoffs.iter().filter(|of| of.is_on).filter_map(|of| {
            let what = self.abilities.need(of.ability)?.what.to_string();
            Some((what, of, of.until.since(self.now)))
        })
    }

    /// How many replicas a host may be given, and for how long that counts.
    #[must_use]
    pub fn quota_of(&self, host: &Host) -> Option<(Quota, Span)> {
        Some((host.quota?, host.quota?.until.since(self.now)))
    }

    /// Who refused a job last, where nobody has done any of it since.
    fn refused(&self, job: &Job) -> Option<WaitReason> {
        let (host, why) = job.refusal.as_ref()?;
        Some(WaitReason::Refused { host: host.clone(), why: Arc::clone(why) })
    }

    fn attempts(&self, unit: &Workunit, most: Attempts) -> Option<WaitReason> {
        let ended = Cause::ALL.map(|cause| unit.attempts_of(cause));
        let history = || self.history(unit);
        (ended != [0; 3]).then(|| WaitReason::Attempts { ended, most, history: history() })
    }
}

//! What must hold after every input, whatever happened.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::LeaseToken;
use gleaner_protocol::api::ReplicaCounts;
use thiserror::Error;

use crate::farm::{
    Host, HostIx, Job, JobPhase, LaneUse, Party, Pending, Takes, Vote, Workunit, WorkunitIx,
};
use crate::limits::{HOSTS_MAX, JOBS_MAX};
use crate::{Core, Farm};

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invariant {name} does not hold: {detail}")]
pub struct Violation {
    /// Which.
    pub name: &'static str,
    /// Where and how.
    pub detail: String,
}

impl Violation {
    pub(crate) fn new(name: &'static str, detail: String) -> Self {
        Self { name, detail }
    }
}

/// The names of all that [`check_invariants`] checks.
pub const INVARIANTS: [&str; 17] = [
    "no-workunit-lost",
    "job-end",
    "quorum",
    "attempts",
    "one-vote",
    "lease-tables",
    "fragment",
    "asking",
    "nobody-idles",
    "grace",
    "back-off",
    "counts",
    "mentions",
    "queue-keys",
    "queue-members",
    "bounds",
    "lanes",
];

/// `Ok` where `holds`, else the invariant and where it does not.
fn require(
    holds: bool,
    name: &'static str,
    detail: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::new(name, detail())) }
}

/// Checks everything. Takes time in proportion to all that is open: for simulations and tests.
///
/// - `no-workunit-lost`: every workunit of an active job is untouched, open or ended.
/// - `job-end`: a job is active exactly while a workunit of it has not ended, or is cancelled.
/// - `quorum`: no open workunit has a quorum, each can still reach it, within `max_replicas`.
/// - `attempts`: no open workunit has used up the attempts of a cause; those with some are noted.
/// - `one-vote`: no host and no voter has two replicas or votes on a workunit.
/// - `lease-tables`: leases, pending lists and host lists are the same leases.
/// - `fragment`: no host holds more of cores, memory or GPUs than its fragment has.
/// - `asking`: the standing requests are exactly those of hosts that can take something.
/// - `nobody-idles`: there is no standing request for which there is work that may start.
/// - `grace`: exactly the hosts that hold leases without a link have a time when they lose them.
/// - `back-off`: a host has none of the abilities that it backs off from, and each such time ends; and
///   exactly the hosts with a quota have a time when it begins anew.
/// - `counts`: the sums equal what they sum up.
/// - `mentions`: each host counts how often it is spoken of, and those without a link that nothing
///   speaks of are the ones that may be forgotten.
/// - `queue-keys`, `queue-members`: queues hold what waits, under the keys that the formula gives.
/// - `bounds`: nothing exceeds its named limit.
/// - `lanes`: what lanes are said to hold is what their leases hold on connected hosts.
///
/// # Errors
/// The first that does not hold.
pub fn check_invariants(core: &Core) -> Result<(), Violation> {
    let farm = core.farm();
    check_bounds(farm)?;
    farm.jobs().try_for_each(|job| check_job(farm, job))?;
    farm.workunits().try_for_each(|(workunit, unit)| {
        check_workunit(farm, unit)?;
        check_attempts(farm, workunit, unit)
    })?;
    check_leases(farm)?;
    farm.hosts().try_for_each(|(index, host)| check_host(farm, index, host))?;
    check_sums(farm)?;
    check_mentions(farm)?;
    core.lanes.iter().try_for_each(|(lane, policy)| policy.check_invariants(farm, *lane))?;
    check_lanes(farm)
}

fn check_bounds(farm: &Farm) -> Result<(), Violation> {
    let (jobs, hosts, open) = (farm.jobs.len(), farm.hosts.len(), farm.workunits.len());
    require(jobs <= JOBS_MAX, "bounds", || format!("{jobs} jobs"))?;
    require(hosts <= HOSTS_MAX, "bounds", || format!("{hosts} hosts"))?;
    require(open <= farm.workunits.max, "bounds", || format!("{open} open workunits"))
}

fn check_job(farm: &Farm, job: &Job) -> Result<(), Violation> {
    let ended = job.ended.decided() + job.ended.failed();
    let expected = match job.phase {
        JobPhase::Cancelled => JobPhase::Cancelled,
        _ if ended == job.workunit_count() => JobPhase::Ended,
        _ => JobPhase::Active,
    };
    let is_active = job.phase == JobPhase::Active;
    let listed = job.ended.digests().count() + job.ended.failures().count();
    require(job.phase == expected, "job-end", || format!("{} is {:?}", job.id, job.phase))?;
    require(is_active || job.open.is_empty(), "job-end", || {
        format!("{} has ended and has open workunits", job.id)
    })?;
    require(listed == ended as usize, "counts", || {
        format!("{} counts {ended} ended workunits and lists {listed}", job.id)
    })?;
    let is_known = |index: u32| job.open.contains_key(&index) || job.ended.contains(index);
    if is_active && let Some(index) = (0..job.next).find(|index| !is_known(*index)) {
        return Err(Violation::new("no-workunit-lost", format!("{}/{index}", job.id)));
    }
    require(!is_active || !job.has_untouched() || !is_known(job.next), "no-workunit-lost", || {
        format!("{}/{} is touched and would be opened again", job.id, job.next)
    })?;
    for (index, workunit) in &job.open {
        require(!job.ended.contains(*index), "no-workunit-lost", || {
            format!("{}/{index} is open and ended", job.id)
        })?;
        let is_there = farm.workunits.contains(*workunit) && {
            let id = farm.workunit(*workunit).id;
            id.job == job.id && id.index == *index
        };
        require(is_there, "no-workunit-lost", || format!("{}/{index} is not there", job.id))?;
    }
    Ok(())
}

fn check_workunit(farm: &Farm, unit: &Workunit) -> Result<(), Violation> {
    if farm.find(unit.id).is_none() {
        return Err(Violation::new("no-workunit-lost", format!("{} is not found", unit.id)));
    }
    let demand = farm.demand(unit);
    let (quorum, agreeing) = (demand.wanted, demand.agreeing);
    let incomplete = usize::from(unit.waiting) + unit.pending.len();
    require(!demand.is_decided, "quorum", || format!("{} is decided and open", unit.id))?;
    require(agreeing + incomplete >= quorum, "quorum", || {
        format!("{}: {agreeing} agree, {incomplete} to come, quorum {quorum}", unit.id)
    })?;
    let replicas = unit.reported() + incomplete;
    require(replicas <= demand.max, "quorum", || format!("{} has {replicas} replicas", unit.id))?;
    let (mut voters, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    let pending = unit.pending.iter().map(|pending| (pending.voter, pending.host));
    // Those of one owner may have parts in one vote.
    let has_own = |part: &&Vote| {
        let is_same =
            |vote: &Vote| !vote.handed_over && vote.token == part.token && vote.voter == part.voter;
        !part.handed_over || !unit.votes.iter().any(is_same)
    };
    let votes = unit.votes.iter().filter(has_own).map(|vote| (vote.voter, vote.host));
    let is_for_time_alone = unit.is_for_time_alone();
    for (voter, host) in pending.chain(votes) {
        let is_new = voters.insert(voter) || is_for_time_alone;
        require(is_new && hosts.insert(host), "one-vote", || {
            format!("{} on {} twice", farm.host(host).info.name, unit.id)
        })?;
    }
    // Who has a say in what a replica goes on from has no other, and none in two.
    for saved in &unit.saved {
        let of = |pending: &&Pending| pending.token == saved.token;
        let Some(pending) = unit.pending.iter().find(of) else { continue };
        let me = Party { host: pending.host, voter: pending.voter };
        for party in saved.others(me).filter(|party| party.voter != me.voter) {
            let is_new = voters.insert(party.voter) || is_for_time_alone;
            require(is_new && hosts.insert(party.host), "one-vote", || {
                format!("{} has two says on {}", farm.host(party.host).info.name, unit.id)
            })?;
        }
    }
    for pending in &unit.pending {
        require(farm.host(pending.host).voter == pending.voter, "one-vote", || {
            format!("{} votes for another owner than its host", pending.token)
        })?;
    }
    Ok(())
}

fn check_attempts(farm: &Farm, workunit: WorkunitIx, unit: &Workunit) -> Result<(), Violation> {
    let used_up = farm.used_up(unit);
    require(used_up.is_none(), "attempts", || format!("{} goes on after {used_up:?}", unit.id))?;
    let has_trouble = !(unit.failed_attempts.is_empty() && unit.refused.is_empty());
    require(farm.troubled.contains(&workunit) == has_trouble, "attempts", || {
        format!("{} has failed attempts or refusals: {has_trouble}", unit.id)
    })
}

fn check_leases(farm: &Farm) -> Result<(), Violation> {
    let mut of_hosts: BTreeMap<(HostIx, LeaseToken), WorkunitIx> = BTreeMap::new();
    for (index, host) in farm.hosts() {
        for lease in host.all_leases() {
            let before = of_hosts.insert((index, lease.token), lease.workunit);
            require(before.is_none(), "lease-tables", || {
                format!("{} lists {} twice", host.info.name, lease.token)
            })?;
        }
    }
    let (entries, most) = farm.ends.entries();
    let mut timed = BTreeSet::new();
    let mut left_behind = 0;
    for end in entries {
        match farm.workunits.pending_at(end) {
            Some(pending) => drop(timed.insert((pending.host, pending.token))),
            None => left_behind += 1,
        }
    }
    require(left_behind <= most, "bounds", || format!("{left_behind} ends are left behind"))?;
    let (firsts, noted) = farm.ends.firsts();
    let live = firsts.filter(|end| farm.workunits.pending_at(end).is_some()).count();
    require(live == noted, "lease-tables", || {
        format!("{live} of {noted} first ends are those of leases")
    })?;
    let mut count = 0;
    for (workunit, unit) in farm.workunits() {
        for Pending { token, host, .. } in &unit.pending {
            count += 1;
            let of_host = of_hosts.get(&(*host, *token)) == Some(&workunit);
            let is_timed = timed.contains(&(*host, *token));
            require(of_host && is_timed, "lease-tables", || {
                format!("{token}: listed by its host {of_host}, has an end {is_timed}")
            })?;
        }
    }
    let counts = [farm.lease_count(), of_hosts.len(), timed.len()];
    require(counts.iter().all(|other| *other == count), "lease-tables", || {
        format!("{count} leases pend, {counts:?} are counted, with hosts, and have an end")
    })?;
    farm.jobs().try_for_each(|job| {
        let open = job.open.values().map(|workunit| farm.workunit(*workunit).pending.len());
        let pending: usize = open.sum();
        require(pending == job.pending as usize, "counts", || {
            format!("{} counts {} leases of {pending}", job.id, job.pending)
        })
    })
}

fn check_host(farm: &Farm, index: HostIx, host: &Host) -> Result<(), Violation> {
    let name = &host.info.name;
    let (used, capacity) = (host.leased_share(), host.capacity());
    require(!host.connected || used <= capacity, "fragment", || {
        format!("{name} holds {used} of {capacity}")
    })?;
    let (kept, given) = (host.kept(), host.fragment.kept());
    require(!host.connected || kept.fits(given), "fragment", || {
        format!("{name} holds {kept:?} of {given:?}")
    })?;
    check_kept(farm, host)?;
    let is_listed = host.listed && farm.hosts.asking().contains(index, host);
    require(is_listed == host.has_room(), "asking", || {
        format!("{name} has {} left and asks: {is_listed}", host.free_share())
    })?;
    let holds = host.holds_any();
    require(host.grace_until.is_some() == (holds && !host.connected), "grace", || {
        format!("{name} holds: {holds}, is connected: {}", host.connected)
    })
}

/// What stands still has what its job takes of memory and GPUs, and so has what runs.
fn check_kept(farm: &Farm, host: &Host) -> Result<(), Violation> {
    for lease in host.leases.iter().chain(&host.parked) {
        let job = farm.job(farm.workunit(lease.workunit).id.job);
        let wanted = job.map(|job| job.spec.kept());
        require(wanted == Some(lease.kept()), "fragment", || {
            format!("{} has {:?}, not {wanted:?}", lease.token, lease.kept())
        })?;
    }
    Ok(())
}

fn check_mentions(farm: &Farm) -> Result<(), Violation> {
    let mut mentions: BTreeMap<HostIx, u32> = BTreeMap::new();
    let of_workunits = farm.workunits().flat_map(|(_, unit)| unit.mentioned());
    let of_jobs = farm.jobs().flat_map(|job| job.unfit.iter().copied());
    for host in of_workunits.chain(of_jobs).chain(farm.copies.all_holders()) {
        *mentions.entry(host).or_default() += 1;
    }
    for (index, host) in farm.hosts() {
        let (counted, found) = (host.mentions, mentions.remove(&index).unwrap_or(0));
        require(counted == found, "mentions", || {
            format!("{} is spoken of {found} times and counts {counted}", host.info.name)
        })?;
    }
    require(mentions.is_empty(), "mentions", || format!("{mentions:?} are forgotten"))?;
    require(farm.hosts.is_oblivion_right(), "mentions", || {
        "other hosts are listed as those that may be forgotten".to_owned()
    })
}

fn check_sums(farm: &Farm) -> Result<(), Violation> {
    let ends = farm.hosts.backoff_ends();
    let mut backing_off = 0;
    for (index, host) in farm.hosts() {
        for of in host.backoffs.iter().filter(|of| of.is_on) {
            backing_off += 1;
            let is_right = ends.contains(&(of.until, index, of.ability))
                && !host.abilities.contains(of.ability);
            require(is_right, "back-off", || format!("{} until {:?}", host.info.name, of.until))?;
        }
    }
    require(backing_off == ends.len(), "back-off", || {
        format!("{backing_off} hosts back off, and {} ends are noted", ends.len())
    })?;
    let quotas = farm.hosts().filter_map(|(index, host)| Some((host.quota?.until, index)));
    let quotas: BTreeSet<_> = quotas.collect();
    require(quotas == *farm.hosts.quota_ends(), "back-off", || {
        format!("{} hosts have a quota", quotas.len())
    })?;
    let troubled = farm.troubled.len();
    let open = farm.troubled.iter().filter(|of| farm.workunits.contains(**of)).count();
    require(troubled == open, "attempts", || format!("{troubled} are noted, {open} are open"))?;
    let asking = farm.hosts().filter(|(_, host)| host.has_room()).count();
    let listed = farm.hosts.asking().len();
    require(asking == listed, "asking", || format!("{asking} ask, {listed} are listed"))?;
    let grace = farm.hosts().filter(|(_, host)| host.grace_until.is_some()).count();
    let timed = farm.hosts.grace_count();
    require(grace == timed, "grace", || format!("{grace} have grace, {timed} are timed"))?;
    let open: usize = farm.jobs().map(|job| job.open.len()).sum();
    let slab = farm.workunits.len();
    require(open == slab, "no-workunit-lost", || format!("{open} are listed, {slab} are open"))?;
    let of_jobs = farm.jobs().map(|job| job.counts);
    let totals = of_jobs.fold(farm.forgotten, ReplicaCounts::plus);
    require(totals == farm.totals, "counts", || format!("{totals:?} in all, not {:?}", farm.totals))
}

fn check_lanes(farm: &Farm) -> Result<(), Violation> {
    let mut expected = LaneUse::default();
    for (_, host) in farm.hosts().filter(|(_, host)| host.connected) {
        expected.given += u64::from(host.capacity().as_permille());
        for lease in &host.leases {
            expected.take(farm.workunit(lease.workunit).lane, lease.share);
        }
    }
    for job in farm.jobs().filter(|job| job.phase == JobPhase::Active) {
        expected.add_job(job.spec.lane, Takes::of(&job.spec));
    }
    let mut held = BTreeMap::new();
    for (_, host) in farm.hosts().filter(|(_, host)| host.connected) {
        for lease in &host.leases {
            let job = farm.job(farm.workunit(lease.workunit).id.job).expect("a job that is known");
            *held.entry(job.spec.account()).or_default() += u64::from(lease.share.as_permille());
        }
    }
    let noted = farm.usage.held();
    require(held == noted, "lanes", || format!("{noted:?} held, not {held:?}"))?;
    let of = |lanes: &LaneUse| (lanes.given, lanes.held, lanes.jobs.clone(), lanes.keeping);
    let (expected, noted) = (of(&expected), of(&farm.lanes));
    require(expected == noted, "lanes", || format!("{noted:?}, not {expected:?}"))?;
    require(farm.displaced.is_empty(), "lanes", || format!("{:?} untold", farm.displaced))
}

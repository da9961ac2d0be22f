//! What must hold after every input, whatever happened.

use std::collections::BTreeSet;

use gleaner_protocol::LeaseToken;
use thiserror::Error;

use crate::farm::JobPhase;
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

/// Checks everything. Takes time in proportion to all that is open: for simulations and tests.
///
/// - `no-workunit-lost`: every workunit of an active job is untouched, open or ended.
/// - `job-end`: a job is active exactly while a workunit of it has not ended, or is cancelled.
/// - `one-replica-state`: replicas of an open workunit can still reach its quorum.
/// - `one-vote`: no voter has two replicas or votes on a workunit.
/// - `lease-tables`: leases, pending lists and host lists are the same leases.
/// - `fragment`: no host holds more leases than its fragment has slots.
/// - `asking`: the hosts that are offered work are exactly those that can take it.
/// - `queue-keys`, `queue-members`: queues hold what waits, under the keys that the formula gives.
///
/// # Errors
/// The first that does not hold.
pub fn check_invariants(core: &Core) -> Result<(), Violation> {
    let farm = core.farm();
    check_jobs(farm)?;
    check_workunits(farm)?;
    check_leases(farm)?;
    check_hosts(farm)?;
    core.lanes.iter().try_for_each(|(lane, policy)| policy.check_invariants(farm, *lane))
}

fn check_jobs(farm: &Farm) -> Result<(), Violation> {
    for job in farm.jobs() {
        let ended = job.ended.decided() + job.ended.failed();
        let expected = match job.phase {
            JobPhase::Cancelled => JobPhase::Cancelled,
            _ if ended == job.workunit_count() => JobPhase::Ended,
            _ => JobPhase::Active,
        };
        if job.phase != expected {
            return Err(Violation::new("job-end", format!("{} is {:?}", job.id, job.phase)));
        }
        if job.phase != JobPhase::Active && !job.open.is_empty() {
            return Err(Violation::new("job-end", format!("{} has open workunits", job.id)));
        }
        let lost = (0..job.next).find(|index| {
            job.phase == JobPhase::Active
                && !job.open.contains_key(index)
                && !job.ended.contains(*index)
        });
        if let Some(index) = lost {
            return Err(Violation::new("no-workunit-lost", format!("{}/{index}", job.id)));
        }
        if let Some(index) = job.open.keys().find(|index| job.ended.contains(**index)) {
            return Err(Violation::new(
                "no-workunit-lost",
                format!("{}/{index} is open and ended", job.id),
            ));
        }
    }
    Ok(())
}

fn check_workunits(farm: &Farm) -> Result<(), Violation> {
    for (index, unit) in farm.workunits() {
        if farm.find(unit.id) != Some(index) {
            return Err(Violation::new("no-workunit-lost", format!("{} is not found", unit.id)));
        }
        let quorum = farm.job(unit.id.job).map_or(0, |job| job.spec.quorum());
        let agreeing = unit.leader().map_or(0, |(_, votes)| votes);
        let reachable = agreeing + usize::from(unit.waiting) + unit.pending.len();
        if reachable < usize::from(quorum) || agreeing >= usize::from(quorum) {
            return Err(Violation::new(
                "one-replica-state",
                format!("{}: {agreeing} agree, {reachable} reachable, quorum {quorum}", unit.id),
            ));
        }
        let mut voters = BTreeSet::new();
        let pending = unit.pending.iter().map(|pending| pending.voter);
        if pending
            .chain(unit.votes.iter().map(|vote| vote.voter))
            .any(|voter| !voters.insert(voter))
        {
            return Err(Violation::new("one-vote", format!("{} has a voter twice", unit.id)));
        }
    }
    Ok(())
}

fn check_leases(farm: &Farm) -> Result<(), Violation> {
    let by_table: BTreeSet<LeaseToken> = farm.leases.iter().map(|(token, _)| token).collect();
    let by_workunit: BTreeSet<LeaseToken> = farm
        .workunits()
        .flat_map(|(_, unit)| unit.pending.iter().map(|pending| pending.token))
        .collect();
    let by_host: BTreeSet<LeaseToken> = farm
        .hosts()
        .flat_map(|(_, host)| host.leases.iter().chain(&host.finished).copied())
        .collect();
    if by_table != by_workunit || by_table != by_host || by_table.len() != farm.lease_count() {
        return Err(Violation::new(
            "lease-tables",
            format!("table {by_table:?}, workunits {by_workunit:?}, hosts {by_host:?}"),
        ));
    }
    for job in farm.jobs() {
        let open = job.open.values().map(|workunit| farm.workunit(*workunit).pending.len());
        if open.sum::<usize>() != job.pending as usize {
            return Err(Violation::new(
                "lease-tables",
                format!("{} counts {}", job.id, job.pending),
            ));
        }
    }
    Ok(())
}

fn check_hosts(farm: &Farm) -> Result<(), Violation> {
    for (index, host) in farm.hosts() {
        if host.connected && host.leases.len() > host.fragment.slots as usize {
            return Err(Violation::new(
                "fragment",
                format!(
                    "{} holds {} of {}",
                    host.info.name,
                    host.leases.len(),
                    host.fragment.slots
                ),
            ));
        }
        if farm.hosts.is_asking(index) != (host.free() > 0) {
            return Err(Violation::new("asking", format!("{}", host.info.name)));
        }
        if host.grace_until.is_some() && host.connected {
            return Err(Violation::new("asking", format!("{} has grace", host.info.name)));
        }
    }
    Ok(())
}

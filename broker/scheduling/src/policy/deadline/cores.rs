//! Cores of the farm, as the deadline lane counts them.

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Kept, Share, WorkunitId};

use crate::ability::Need;
use crate::farm::{Farm, HostIx};

/// Tasks of such a job that connected hosts which can run it have room for at a time: in what they
/// give, or in all that they have.
pub(crate) fn places_for(farm: &Farm, spec: &JobSpec, all: bool) -> u32 {
    let need = Need::of(spec);
    let able = farm.hosts().filter(|(_, host)| host.connected && need.is_met_by(&host.info));
    let places = able.map(|(index, host)| {
        let cores = match all {
            true => Share::cores(host.info.cores),
            false => whole(farm.reach(Lane::Deadline, index), need.share),
        };
        let places = cores.as_permille() / need.share.as_permille().max(1);
        places.min(need.kept.times_in(host.fragment.kept()))
    });
    places.fold(0, u32::saturating_add)
}

/// What of a host's cores tasks on this share can use: whole ones have no use for part of a core.
fn whole(cores: Share, share: Share) -> Share {
    let is_whole = share.as_permille().is_multiple_of(Share::WHOLE.as_permille());
    if is_whole { Share::cores(cores.whole_cores()) } else { cores }
}

/// Cores that connected hosts give.
pub(crate) fn given(farm: &Farm) -> u32 {
    let given = farm.hosts().map(|(host, _)| farm.reach(Lane::Deadline, host).whole_cores());
    given.fold(0, u32::saturating_add)
}

/// What a lane holds of a host.
pub(crate) fn held(farm: &Farm, lane: Lane, host: HostIx) -> Share {
    let leases = farm.host(host).leases.iter();
    let own = leases.filter(|lease| farm.workunit(lease.workunit).lane == lane);
    own.fold(Share::NONE, |sum, lease| sum.plus(lease.share))
}

/// Whether a host is a right one for a workunit, and has enough left beside cores.
pub(crate) fn may_run(farm: &Farm, id: WorkunitId, host: HostIx) -> bool {
    let job = farm.job(id.job);
    job.is_some_and(|job| farm.has_left(job.spec.lane, host, job.ability))
        && is_right(farm, id, host)
}

/// The same once others of the lane, which run there, are gone.
pub(crate) fn may_run_without(
    farm: &Farm,
    id: WorkunitId,
    host: HostIx,
    others: impl Iterator<Item = WorkunitId>,
) -> bool {
    let Some(job) = farm.job(id.job) else { return false };
    let kept = |id: WorkunitId| farm.job(id.job).map_or(Kept::NONE, |job| job.spec.kept());
    let wanted = job.spec.kept();
    let reach = || {
        let reach = farm.kept_reach(job.spec.lane, host, wanted);
        others.fold(reach, |sum, id| sum.plus(kept(id)))
    };
    (wanted == Kept::NONE || wanted.fits(reach())) && is_right(farm, id, host)
}

/// Whether one workunit has any of what another takes beside cores.
pub(super) fn have_alike(farm: &Farm, id: WorkunitId, other: WorkunitId) -> bool {
    let kept = |id: WorkunitId| farm.job(id.job).map_or(Kept::NONE, |job| job.spec.kept());
    kept(other).has_any_of(kept(id))
}

/// How many more tasks of a job connected hosts have enough for beside cores, where need be in the place of
/// what lanes behind have.
pub(crate) fn places_left(farm: &Farm, job: JobId) -> u32 {
    let Some(job) = farm.job(job).filter(|job| job.spec.kept() != Kept::NONE) else {
        return u32::MAX;
    };
    let hosts = farm.hosts().filter(|(_, entry)| entry.connected);
    let able = hosts.filter(|(host, _)| farm.has_ability(*host, job.ability));
    let kept = job.spec.kept();
    let places = able.map(|(host, _)| kept.times_in(farm.kept_reach(job.spec.lane, host, kept)));
    places.fold(0, u32::saturating_add)
}

/// Whether a host is a right one for a workunit, whatever is left of it.
pub(crate) fn is_right(farm: &Farm, id: WorkunitId, host: HostIx) -> bool {
    match farm.find(id) {
        Some(workunit) => farm.is_eligible(workunit, host).is_ok(),
        None => farm.job(id.job).is_some_and(|job| farm.has_ability(host, job.ability)),
    }
}

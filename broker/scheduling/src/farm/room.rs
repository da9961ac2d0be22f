//! What a lane may take of a host: the arbiter between lanes.
//!
//! A lane sees what is idle and what lanes behind it hold as room; it never takes from lanes
//! before it. Each lane has a cap and a floor in percent of the cores that connected hosts give: no
//! lane goes beyond its cap, and none before it pushes a lane that has a job below its floor.
//! Percents become whole cores, to the nearest one, so that a farm of few cores is not tied up by a
//! floor of a few percent.

use std::collections::BTreeMap;

use gleaner_protocol::job::Lane;
use gleaner_protocol::{Kept, LeaseToken, Share};
use serde::{Deserialize, Serialize};

use super::{AccountIx, Farm, Host, HostIx, Lease, Pending, Takes, WorkunitIx};
use crate::ability::AbilityIx;

/// How much of the farm a lane may hold, and how much the lanes before it leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LaneLimits {
    /// Most that its replicas may hold together, in percent of all cores that are given.
    pub max_percent: u32,
    /// What the lanes before it leave it at least while it has a job, likewise.
    pub min_percent: u32,
}

impl Default for LaneLimits {
    fn default() -> Self {
        Self { max_percent: 100, min_percent: 0 }
    }
}

impl LaneLimits {
    /// Those of a lane where nothing else is said: background has a floor, so that nothing starves
    /// for ever.
    #[must_use]
    pub const fn of(lane: Lane) -> Self {
        let min_percent = if matches!(lane, Lane::Background) { 5 } else { 0 };
        Self { max_percent: 100, min_percent }
    }
}

/// What all lanes hold of what all connected hosts give, in thousandths of cores.
///
/// # Invariants
/// - `lanes`: it is the sum over connected hosts, replicas that take no slot left out.
#[derive(Debug)]
pub(crate) struct LaneUse {
    /// What is given.
    pub(crate) given: u64,
    /// By lane: what leases hold.
    pub(crate) held: [u64; Lane::COUNT],
    /// By lane: how many jobs go on, by what a replica of them takes.
    pub(crate) jobs: [BTreeMap<Share, u32>; Lane::COUNT],
    /// By lane: how many of them take memory or a GPU.
    pub(crate) keeping: [u32; Lane::COUNT],
    /// By lane.
    pub(crate) limits: [LaneLimits; Lane::COUNT],
    /// By lane: the least that it could still hold at any time of its turn. What takes the place of
    /// several may leave it more than that at the end.
    low: [u64; Lane::COUNT],
}

impl Default for LaneUse {
    fn default() -> Self {
        Self {
            given: 0,
            held: [0; Lane::COUNT],
            jobs: Default::default(),
            keeping: [0; Lane::COUNT],
            limits: Lane::ALL.map(LaneLimits::of),
            low: [u64::MAX; Lane::COUNT],
        }
    }
}

impl LaneUse {
    pub(crate) fn take(&mut self, lane: Lane, share: Share) {
        self.held[lane.index()] += u64::from(share.as_permille());
    }

    pub(crate) fn give_back(&mut self, lane: Lane, share: Share) {
        self.held[lane.index()] -= u64::from(share.as_permille());
    }

    /// So many percent of what is given, as whole cores.
    fn cores_of(&self, percent: u32) -> u64 {
        (self.given.saturating_mul(percent.into()) / 100 + 500) / 1000 * 1000
    }

    fn floor(&self, lane: Lane) -> u64 {
        let percent = self.limits[lane.index()].min_percent;
        if percent == 0 { 0 } else { self.cores_of(percent) }
    }

    /// How much more a lane may hold in all.
    pub(crate) fn left_for(&self, lane: Lane) -> u64 {
        let held_before: u64 = self.held[..=lane.index()].iter().sum();
        let kept: u64 = lane
            .behind()
            .map(|behind| {
                let floor = self.floor(behind);
                let has_jobs = !self.jobs[behind.index()].is_empty();
                if has_jobs { floor } else { floor.min(self.held[behind.index()]) }
            })
            .sum();
        let left = self.given.saturating_sub(held_before + kept);
        let max_percent = self.limits[lane.index()].max_percent;
        if max_percent >= 100 {
            return left;
        }
        left.min(self.cores_of(max_percent).saturating_sub(self.held[lane.index()]))
    }

    /// Where its own cap, or the floors of lanes behind, keep a lane from what the largest replica of
    /// its jobs takes: how much more it could hold in its last turn. Also where a host asks: then others
    /// hold more than they give, until their replicas are gone.
    fn held_back_to(&self, lane: Lane, is_asked: bool) -> Option<u64> {
        let largest = self.jobs[lane.index()].last_key_value();
        let largest = largest.map_or(Share::WHOLE, |(share, _)| Share::WHOLE.max(*share));
        let held_before: u64 = self.held[..=lane.index()].iter().sum();
        let left = self.left_for(lane).min(self.low[lane.index()]);
        let is_kept = left < largest.as_permille().into()
            && (is_asked || left < self.given.saturating_sub(held_before));
        is_kept.then_some(left)
    }

    /// A job goes on from now on.
    pub(crate) fn add_job(&mut self, lane: Lane, Takes { share, kept }: Takes) {
        self.keeping[lane.index()] += u32::from(kept != Kept::NONE);
        *self.jobs[lane.index()].entry(share).or_default() += 1;
    }

    /// A job has ended.
    pub(crate) fn end_job(&mut self, lane: Lane, Takes { share, kept }: Takes) {
        self.keeping[lane.index()] -= u32::from(kept != Kept::NONE);
        let jobs = &mut self.jobs[lane.index()];
        if let Some(count) = jobs.get_mut(&share) {
            *count -= 1;
            jobs.retain(|_, count| *count > 0);
        }
    }

    /// Whether a job that goes on takes memory or a GPU.
    pub(crate) fn has_keeping(&self) -> bool {
        self.keeping.iter().any(|jobs| *jobs > 0)
    }

    /// Whether a job that goes on takes anything but one core.
    pub(crate) fn has_uneven(&self) -> bool {
        self.has_keeping()
            || self.jobs.iter().flat_map(BTreeMap::keys).any(|share| *share != Share::WHOLE)
    }

    /// The most that a replica of a job that goes on takes.
    fn largest(&self) -> Share {
        let largest = self.jobs.iter().filter_map(|jobs| jobs.keys().next_back());
        largest.max().copied().unwrap_or(Share::NONE)
    }

    /// Whether a lane keeps its floor without this share, and without what it gives already.
    pub(super) fn can_spare(&self, lane: Lane, given: u64, share: Share) -> bool {
        let floor = self.floor(lane);
        let held = self.held[lane.index()];
        floor == 0 || held >= floor + given + u64::from(share.as_permille())
    }
}

/// Where a lane's next replica on a host would run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// In an idle slot.
    Idle,
    /// In the place of replicas of lanes behind.
    Lent,
}

const JOB_KNOWN: &str = "a workunit's job is known";

impl Farm {
    /// How many more replicas on whole cores a lane could be given on a host now: in its idle
    /// slots as far as it asks, and in the place of replicas of lanes behind it once none is idle.
    #[must_use]
    pub fn room(&self, lane: Lane, host: HostIx) -> u32 {
        let entry = self.hosts.get(host);
        if entry.is_open().is_err() || entry.has_spent_quota() {
            return 0;
        }
        let left = u32::try_from(self.lanes.left_for(lane) / 1000).unwrap_or(u32::MAX);
        let (free, free_share) = (entry.free(), entry.free_share());
        if free < free_share.whole_cores() {
            // It has not asked for all that is idle yet, and nobody gives way for what is idle.
            return free.min(left).min(entry.quota_left());
        }
        let takes = Takes { share: Share::WHOLE, kept: Kept::NONE };
        let with_lent = self.to_displace(lane, host, takes, entry.capacity()).free;
        with_lent.whole_cores().min(left).min(entry.quota_left())
    }

    /// How many jobs of a lane go on.
    #[must_use]
    pub fn jobs_of(&self, lane: Lane) -> u32 {
        self.lanes.jobs[lane.index()].values().sum()
    }

    /// How many more whole cores a lane may hold of the whole farm.
    #[must_use]
    pub fn room_of(&self, lane: Lane) -> u64 {
        self.lanes.left_for(lane) / 1000
    }

    /// Whether a lane may hold no more of the whole farm, not even what the smallest replica takes.
    #[must_use]
    pub fn is_lane_full(&self, lane: Lane) -> bool {
        let smallest = self.lanes.jobs[lane.index()].first_key_value();
        let smallest = smallest.map_or(Share::WHOLE, |(share, _)| Share::WHOLE.min(*share));
        self.lanes.left_for(lane) < smallest.as_permille().into()
    }

    /// The turn of a lane begins.
    pub(crate) fn begin_turn(&mut self, lane: Lane) {
        self.lanes.low[lane.index()] = u64::MAX;
        self.note_left(lane);
    }

    /// A lane holds something more, or its turn begins.
    pub(crate) fn note_left(&mut self, lane: Lane) {
        // Where all take one core, none takes the place of several.
        if self.hosts.has_uneven {
            let left = self.lanes.left_for(lane);
            let low = &mut self.lanes.low[lane.index()];
            *low = left.min(*low);
        }
    }

    /// Where its limits, or those of lanes behind, keep a lane from what the largest replica of its
    /// jobs takes: how much more it could hold in its last turn.
    pub(crate) fn held_back_to(&self, lane: Lane) -> Option<u64> {
        let is_asked = self.hosts.asking().iter().next().is_some();
        self.lanes.held_back_to(lane, is_asked)
    }

    /// Whether a lane that was held back to so much may hold more than that.
    pub(crate) fn may_more(&self, lane: Lane, before: u64) -> bool {
        self.lanes.left_for(lane) > before && !self.is_lane_full(lane)
    }

    /// A job goes on from now on.
    pub(crate) fn job_begins(&mut self, lane: Lane, takes: Takes) {
        self.lanes.add_job(lane, takes);
        self.hosts.has_uneven = self.lanes.has_uneven();
        self.hosts.has_keeping = self.lanes.has_keeping();
        self.hosts.largest = self.lanes.largest();
    }

    /// A job has ended.
    pub(crate) fn job_ends(&mut self, lane: Lane, takes: Takes) {
        self.lanes.end_job(lane, takes);
        self.hosts.has_uneven = self.lanes.has_uneven();
        self.hosts.has_keeping = self.lanes.has_keeping();
        self.hosts.largest = self.lanes.largest();
    }

    /// Whether a lane before that of a parked lease runs something on its host: that is what it
    /// stands still for.
    pub(crate) fn stands_for_another_lane(&self, host: HostIx, token: LeaseToken) -> bool {
        let entry = self.hosts.get(host);
        let lane_of = |lease: &Lease| self.workunit(lease.workunit).lane;
        let lane = entry.parked.iter().find(|lease| lease.token == token).map(lane_of);
        lane.is_some_and(|lane| entry.leases.iter().any(|lease| lane_of(lease) < lane))
    }

    /// What of a host's fragment the lanes before this one do not hold: its own and what is room
    /// for it. None where the host is away.
    #[must_use]
    pub fn reach(&self, lane: Lane, host: HostIx) -> Share {
        let entry = self.hosts.get(host);
        if !entry.connected {
            return Share::NONE;
        }
        let before = entry.leases.iter().filter(|lease| self.workunit(lease.workunit).lane < lane);
        before.fold(entry.capacity(), |left, lease| left.minus(lease.share))
    }

    /// What lanes hold of what is given, as a share of cores: all that is given, and by lane.
    #[must_use]
    pub fn lane_shares(&self) -> (u64, [u64; Lane::COUNT]) {
        (self.lanes.given, self.lanes.held)
    }

    /// How much of the farm a lane may hold.
    #[must_use]
    pub fn lane_limits(&self, lane: Lane) -> LaneLimits {
        self.lanes.limits[lane.index()]
    }

    /// A lane, and an account, have so much less of what is given.
    pub(crate) fn give_back_share(&mut self, lane: Lane, account: AccountIx, share: Share) {
        self.lanes.give_back(lane, share);
        self.usage.hold(account, self.now, share, false);
    }

    /// What a host gives and holds counts no longer, until [`Farm::count_in`].
    pub(crate) fn count_out(&mut self, host: HostIx) {
        let entry = self.hosts.get(host);
        if entry.connected {
            self.lanes.given -= u64::from(entry.capacity().as_permille());
            for lease in &entry.leases {
                let unit = self.workunits.get(lease.workunit);
                let account = self.jobs.get(&unit.id.job).expect(JOB_KNOWN).account;
                self.lanes.give_back(unit.lane, lease.share);
                self.usage.hold(account, self.now, lease.share, false);
            }
        }
    }

    /// What a host gives and holds counts from now on, where it is connected.
    pub(crate) fn count_in(&mut self, host: HostIx) {
        let entry = self.hosts.get(host);
        if entry.connected {
            self.lanes.given += u64::from(entry.capacity().as_permille());
            for lease in &entry.leases {
                let unit = self.workunits.get(lease.workunit);
                let account = self.jobs.get(&unit.id.job).expect(JOB_KNOWN).account;
                self.lanes.take(unit.lane, lease.share);
                self.usage.hold(account, self.now, lease.share, true);
            }
        }
    }

    /// Changes what a host gives, or which of its leases take a slot.
    pub(crate) fn change_giving<R>(
        &mut self,
        host: HostIx,
        change: impl FnOnce(&mut Host) -> R,
    ) -> R {
        self.count_out(host);
        let result = self.hosts.change(host, change);
        self.count_in(host);
        result
    }

    /// Whether a host may be given now what a replica of this ability takes, on this lane.
    pub(crate) fn fits(&self, lane: Lane, host: HostIx, ability: AbilityIx) -> bool {
        if self.hosts.get(host).has_spent_quota() || self.at_limit(lane, ability).is_some() {
            return false;
        }
        (!self.hosts.has_uneven && self.hosts.get(host).free() > 0)
            || self.may_take(lane, host, self.abilities.takes(ability)).is_ok()
    }

    /// Whether a host has an ability, and may be given now what a replica of it takes.
    pub(crate) fn may_begin(&self, lane: Lane, host: HostIx, ability: AbilityIx) -> bool {
        self.has_ability(host, ability) && self.fits(lane, host, ability)
    }

    /// What is parked on a host of a lane behind that of a workunit, to be taken back next: of the
    /// last lane, what was begun last.
    pub(crate) fn next_to_unpark(&self, host: HostIx, workunit: WorkunitIx) -> Option<Lease> {
        let lane_of = |lease: &Lease| self.workunit(lease.workunit).lane;
        let lane = self.workunit(workunit).lane;
        let behind = self.hosts.get(host).parked.iter().filter(|lease| lane_of(lease) > lane);
        behind.max_by_key(|lease| (lane_of(lease), self.begun(host, lease))).copied()
    }

    /// The serial number of a lease: greater ones were begun, or had their time renewed, later.
    pub(super) fn begun(&self, host: HostIx, lease: &Lease) -> Option<u32> {
        let pending = &self.workunit(lease.workunit).pending;
        let is_it = |of: &&Pending| of.token == lease.token && of.host == host;
        pending.iter().find(is_it).map(|of| of.serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(given: u64, held: [u64; Lane::COUNT]) -> LaneUse {
        let cores = |of: u64| of * 1000;
        LaneUse { given: cores(given), held: held.map(cores), ..LaneUse::default() }
    }

    #[test]
    fn a_lane_is_left_what_lanes_before_it_do_not_hold_and_floors_do_not_keep() {
        let mut use_ = lanes(100, [10, 20, 0, 0, 70]);
        assert_eq!(use_.left_for(Lane::Rendering), 85_000, "the floor of what runs is kept");
        assert_eq!(use_.left_for(Lane::Deadline), 65_000);
        assert_eq!(use_.left_for(Lane::Background), 0);
        assert!(use_.can_spare(Lane::Background, 0, Share::cores(65)));
        assert!(!use_.can_spare(Lane::Background, 0, Share::cores(66)));
        assert!(!use_.can_spare(Lane::Background, 1, Share::cores(65)));
        use_.held = lanes(100, [0, 40, 0, 0, 0]).held;
        assert_eq!(use_.left_for(Lane::Deadline), 60_000, "nobody is kept from what nobody wants");
        use_.add_job(Lane::Background, Takes { share: Share::WHOLE, kept: Kept::NONE });
        assert_eq!(use_.left_for(Lane::Deadline), 55_000);
        assert_eq!(use_.held_back_to(Lane::Deadline, false), None);
        use_.limits[Lane::Deadline.index()].max_percent = 50;
        assert_eq!(use_.left_for(Lane::Deadline), 10_000);
        use_.held[Lane::Deadline.index()] = 50_000;
        assert_eq!(use_.held_back_to(Lane::Deadline, false), Some(0), "its cap alone");
        use_.held = lanes(100, [0, 0, 0, 0, 100]).held;
        assert_eq!(use_.held_back_to(Lane::Background, false), None, "the farm is full");
    }

    #[test]
    fn a_floor_of_a_few_percent_ties_up_nothing_of_few_cores() {
        let mut use_ = lanes(8, [0, 0, 0, 0, 0]);
        use_.add_job(Lane::Background, Takes { share: Share::WHOLE, kept: Kept::NONE });
        assert_eq!(use_.left_for(Lane::Deadline), 8_000);
        use_.given = 10_000;
        assert_eq!(use_.left_for(Lane::Deadline), 9_000);
    }
}

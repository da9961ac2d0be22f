//! The published fragment-aware scheduler.
//!
//! Source: L.-P. Chen and Y.-S. Cheng, "On Increasing Resource Utilization of a
//! High-Performance Computing System", 2016, Algorithm 1.
//!
//! Deviations, each forced by what the pseudo code leaves open:
//! - `extractMin(Q)` takes the first workunit that the asking host may have a replica of; a
//!   host has one vote on a workunit, and a queue holds only workunits with a waiting replica.
//! - "If Q is empty" is likewise "if Q has nothing for this host".
//! - Qinit serves owners and jobs in turn ([`Turns`]): all its keys are 1.
//! - A request that finds nothing stands. When work appears in a queue, the least of it is given
//!   to the first standing request of a host that may have it, and so on; when it appears in
//!   Qinit, to the standing requests in order, what these leave of its replicas likewise.

use gleaner_protocol::job::Lane;
use gleaner_protocol::{Origin, Time, WorkunitId};

use super::turns::Turn;
use super::{Backlog, Change, Policy, PolicyName, Trigger, Turns, anyone};
use crate::explain::WaitReason;
use crate::farm::{Farm, HostIx, Job, Workunit, WorkunitIx};
use crate::{Desk, Violation};

/// Workunits move from Qinit to the side of the host that first asks for them, and stay there;
/// on each side those with the most complete replicas come first.
#[derive(Default)]
pub struct FragmentAware {
    qinit: Turns,
    qrf: Backlog,
    qdg: Backlog,
    /// Workunits that entered a queue while requests were standing.
    fresh: Vec<WorkunitIx>,
    /// Whether Qinit may have something for standing requests.
    qinit_is_fresh: bool,
}

impl FragmentAware {
    fn queue(&mut self, side: Origin) -> &mut Backlog {
        match side {
            Origin::Farm => &mut self.qrf,
            Origin::Desktop => &mut self.qdg,
        }
    }

    /// Step B for one host: one replica, or `false` where there is none for it.
    fn serve(&mut self, desk: &mut Desk<'_>, host: HostIx) -> bool {
        let side = desk.farm().host(host).origin();
        if let Some((_, workunit)) = self.queue(side).first_for(desk, host) {
            return self.start(desk, workunit, host);
        }
        let Some(workunit) = self.open_for(desk, host) else {
            let refused = self.queue(side).last_resort(desk, host);
            return refused.is_some_and(|workunit| self.start(desk, workunit, host));
        };
        let started = desk.start(workunit, host);
        debug_assert!(started.is_ok(), "a fresh workunit and an able host with a free slot");
        let unit = desk.farm().workunit(workunit);
        if unit.waiting > 0 {
            self.queue(side).put(unit.ability, workunit, unit.key());
            if self.qinit_is_fresh {
                self.fresh.push(workunit);
            }
        }
        started.is_ok()
    }

    /// Starts a replica of a queued workunit. Its key does not change.
    fn start(&mut self, desk: &mut Desk<'_>, workunit: WorkunitIx, host: HostIx) -> bool {
        let started = desk.start(workunit, host);
        debug_assert!(started.is_ok(), "an eligible workunit and a host with a free slot");
        let unit = desk.farm().workunit(workunit);
        if unit.waiting == 0 {
            self.queue(side_of(unit)).remove(unit.ability, workunit);
        }
        started.is_ok()
    }

    /// Step B(2): the next workunit of Qinit that this host can run.
    fn open_for(&mut self, desk: &mut Desk<'_>, host: HostIx) -> Option<WorkunitIx> {
        self.qinit.refresh(desk);
        let job = self.qinit.first(|ability| desk.may_begin(host, ability))?;
        let workunit = desk.open(job)?;
        let job = desk.farm().job(job)?;
        self.qinit.served(Turn::of(job));
        if !job.has_untouched() {
            self.qinit.remove(Turn::of(job));
        }
        Some(workunit)
    }

    fn serve_all(&mut self, desk: &mut Desk<'_>, host: HostIx) {
        while desk.may_serve(host) && self.serve(desk, host) {}
    }

    /// Gives what entered the queues to standing requests, the least first.
    fn serve_fresh(&mut self, desk: &mut Desk<'_>) {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_by_cached_key(|workunit| {
            let unit = desk.farm().workunit(*workunit);
            let side = side_of(unit);
            (side, self.queue(side).rank(unit.ability, *workunit))
        });
        for workunit in fresh {
            let side = desk.farm().workunit(workunit).side;
            while desk.may_hold_more()
                && let Some(host) = desk.farm().first_asking_for(workunit, side, anyone)
                && self.start(desk, workunit, host)
            {}
        }
    }

    /// Gives untouched workunits to standing requests. Where Qinit has nothing more for a host,
    /// it has nothing for the hosts like it.
    fn serve_qinit(&mut self, desk: &mut Desk<'_>) {
        let mut next = desk.farm().first_asking(anyone);
        while let Some(host) = next
            && desk.may_hold_more()
        {
            self.serve_all(desk, host);
            let farm = desk.farm();
            let like = (!farm.host(host).has_room())
                .then(|| farm.first_asking_like(host, anyone))
                .flatten();
            next = like.or_else(|| farm.first_asking_behind(host, anyone));
        }
    }
}

/// The side of a workunit whose first replica was assigned.
fn side_of(unit: &Workunit) -> Origin {
    unit.side.unwrap_or(Origin::Farm)
}

impl Policy for FragmentAware {
    fn name(&self) -> &'static str {
        PolicyName::FragmentAware.as_str()
    }

    fn observe(&mut self, _now: Time, farm: &Farm, change: Change) {
        match change {
            Change::JobAdded(_) | Change::JobTouched(_) | Change::JobEnded(_) => {
                self.qinit_is_fresh |= self.qinit.observe(farm, change);
            }
            Change::WorkunitChanged(workunit) => {
                let unit = farm.workunit(workunit);
                self.queue(side_of(unit)).update(workunit, unit, unit.key());
                if unit.waiting > 0 && farm.anyone_asks() {
                    self.fresh.push(workunit);
                }
            }
            Change::WorkunitEnded(workunit) => {
                let unit = farm.workunit(workunit);
                self.queue(side_of(unit)).remove(unit.ability, workunit);
                self.fresh.retain(|fresh| *fresh != workunit);
                self.qinit_is_fresh |= farm.is_full();
            }
            Change::HostForgotten(host) => {
                self.qrf.forget_host(host);
                self.qdg.forget_host(host);
            }
            Change::HostChanged(_)
            | Change::DecidedBefore(_)
            | Change::CopyChanged { .. }
            | Change::Completed { .. } => {}
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        match trigger {
            Trigger::Host(host) => self.serve_all(desk, host),
            Trigger::Work => {
                self.serve_fresh(desk);
                if self.qinit_is_fresh {
                    self.serve_qinit(desk);
                    self.qinit_is_fresh = false;
                    self.serve_fresh(desk);
                }
            }
            Trigger::Deadline => {}
        }
    }

    fn keeps(&self, farm: &Farm, workunit: WorkunitIx, host: HostIx) -> bool {
        let side = farm.workunit(workunit).side;
        side.is_none_or(|side| side == farm.host(host).origin())
    }

    fn explain(&self, farm: &Farm, id: WorkunitId) -> Vec<WaitReason> {
        let Some(unit) = farm.find(id).map(|workunit| farm.workunit(workunit)) else {
            return vec![WaitReason::InTurn];
        };
        let Some(side) = unit.side else { return Vec::new() };
        let rest = farm.hosts().filter(|(index, host)| {
            host.connected
                && host.origin() == side
                && farm.has_ability(*index, unit.ability)
                && !unit.is_touched_by(*index, host.voter)
        });
        vec![WaitReason::StaysOnSide { side, other_hosts: rest.count() }]
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        let queued_on = |side| {
            move |unit: &Workunit| {
                let queued = unit.side == Some(side) && unit.waiting > 0;
                (queued && farm.lane_of(unit.id.job) == Some(lane)).then(|| unit.key())
            }
        };
        self.qrf.check("QRF", farm, queued_on(Origin::Farm))?;
        self.qdg.check("QDG", farm, queued_on(Origin::Desktop))?;
        let untouched = |job: &Job| job.spec.lane == lane && job.has_untouched();
        if let Some(job) = self.qinit.difference(farm, untouched) {
            return Err(Violation::new("queue-members", format!("Qinit and {job} differ")));
        }
        super::check_nobody_idles(farm, lane, |unit| unit.side, anyone)
    }
}

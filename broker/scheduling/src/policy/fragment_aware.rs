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

use gleaner_protocol::job::Lane;
use gleaner_protocol::{Origin, WorkunitId};

use super::{Backlog, Change, Policy, PolicyName, Trigger, Turns};
use crate::explain::WaitReason;
use crate::farm::{Farm, HostIx, Job, WorkunitIx};
use crate::{Desk, Violation};

/// Workunits move from Qinit to the side of the host that first asks for them, and stay there;
/// on each side those with the most complete replicas come first.
#[derive(Default)]
pub struct FragmentAware {
    qinit: Turns,
    qrf: Backlog,
    qdg: Backlog,
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
        let found = self.queue(side).first_for(desk.farm(), host);
        let Some(workunit) = found.or_else(|| self.open_for(desk, host)) else {
            return false;
        };
        let started = desk.start(workunit, host);
        debug_assert!(started.is_ok(), "an eligible workunit and a host with a free slot");
        let unit = desk.farm().workunit(workunit);
        if unit.waiting == 0 {
            self.queue(side).remove(workunit);
        } else if found.is_none() {
            self.queue(side).put(workunit, unit.key());
        }
        started.is_ok()
    }

    /// Step B(2): the next workunit of Qinit that this host can run.
    fn open_for(&mut self, desk: &mut Desk<'_>, host: HostIx) -> Option<WorkunitIx> {
        let (owner, job) = self.qinit.first(|job| desk.farm().is_able(host, job))?;
        let workunit = desk.open(job)?;
        if desk.farm().job(job).is_some_and(Job::has_untouched) {
            self.qinit.served(&owner, job);
        } else {
            self.qinit.remove(&owner, job);
        }
        Some(workunit)
    }

    fn serve_all(&mut self, desk: &mut Desk<'_>, host: HostIx) {
        while desk.farm().host(host).free() > 0 && self.serve(desk, host) {}
    }
}

impl Policy for FragmentAware {
    fn name(&self) -> PolicyName {
        PolicyName::FragmentAware
    }

    fn observe(&mut self, farm: &Farm, change: Change) {
        match change {
            Change::JobAdded(id) => {
                if let Some(job) = farm.job(id).filter(|job| job.has_untouched()) {
                    self.qinit.add(&job.spec.owner, id);
                }
            }
            Change::JobEnded(id) => {
                if let Some(job) = farm.job(id) {
                    self.qinit.remove(&job.spec.owner, id);
                }
            }
            Change::WorkunitChanged(workunit) => {
                let unit = farm.workunit(workunit);
                let job = farm.job(unit.id.job);
                if let Some(job) = job.filter(|job| !job.has_untouched()) {
                    self.qinit.remove(&job.spec.owner, job.id);
                }
                let queue = self.queue(unit.side.unwrap_or(Origin::Farm));
                if unit.waiting > 0 {
                    queue.put(workunit, unit.key());
                } else {
                    queue.remove(workunit);
                }
            }
            Change::WorkunitEnded(workunit) => {
                if !self.qrf.remove(workunit) {
                    self.qdg.remove(workunit);
                }
            }
            Change::HostChanged(host) => {
                self.qrf.host_changed(host);
                self.qdg.host_changed(host);
            }
            Change::Completed { .. } => {}
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        if let Trigger::Host(host) = trigger {
            return self.serve_all(desk, host);
        }
        let mut after = None;
        while let Some(host) = desk.farm().next_asking(after) {
            if self.qinit.is_empty() && self.qrf.is_empty() && self.qdg.is_empty() {
                return;
            }
            self.serve_all(desk, host);
            after = Some(host);
        }
    }

    fn explain(&self, farm: &Farm, id: WorkunitId) -> Vec<WaitReason> {
        let Some(unit) = farm.find(id).map(|workunit| farm.workunit(workunit)) else {
            return vec![WaitReason::InTurn];
        };
        let Some(side) = unit.side else { return Vec::new() };
        let rest = farm.hosts().filter(|(_, host)| {
            host.connected && host.origin() == side && !unit.is_touched_by(host.voter)
        });
        vec![WaitReason::StaysOnSide { side, other_hosts: rest.count() }]
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        let queued_on = |side| {
            move |workunit| {
                let unit = farm.workunit(workunit);
                let queued = unit.side == Some(side) && unit.waiting > 0;
                (queued && farm.lane_of(unit.id.job) == Some(lane)).then(|| unit.key())
            }
        };
        self.qrf.check("QRF", farm, queued_on(Origin::Farm))?;
        self.qdg.check("QDG", farm, queued_on(Origin::Desktop))?;
        let untouched = |job: &Job| job.spec.lane == lane && job.has_untouched();
        match self.qinit.difference(farm, untouched) {
            None => Ok(()),
            Some(job) => Err(Violation::new("queue-members", format!("Qinit and {job} differ"))),
        }
    }
}

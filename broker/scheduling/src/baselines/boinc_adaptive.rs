//! BOINC's adaptive replication, over its first come, first served.
//!
//! Source: D. P. Anderson, "BOINC: A Platform for Volunteer Computing", 2019, section 3.4, and
//! the scheduler and validator of BOINC.

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{Time, WorkunitId};

use super::Plain;
use crate::explain::WaitReason;
use crate::farm::{Begins, Farm, HostIx, Rule, WorkunitIx};
use crate::policy::chance::Chance;
use crate::policy::{Change, Policy, PolicyName, Trigger};
use crate::{Desk, Violation};

/// A host with fewer valid results in a row than this is never left alone.
const TRUSTED_AFTER: u32 = 10;
/// Replicas of a result that is checked.
const CHECKED: u8 = 2;

/// For a job that names an error: a workunit is sent to one host. If N of its results were valid
/// in a row, fewer than 10, the workunit is replicated as the job says, but twice at least;
/// otherwise with probability 1 / N it gets one replica more. Only replicated results count
/// towards N, and an invalid one sets it to 0. What was sent alone is accepted as it is.
///
/// Deviation: N is kept per host, not per host and version of an application, because jobs here
/// have no versions; and what a job allows a single output of stays alone.
pub struct BoincAdaptive(Plain);

impl BoincAdaptive {
    /// Which results are checked depends on `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Plain::with(Alone { chance: Chance::new(seed) }))
    }
}

/// Whether a workunit that is sent to a host stays alone.
pub(crate) struct Alone {
    chance: Chance,
}

impl Alone {
    /// How a workunit begins that may be left alone.
    pub(crate) const BEGINS: Begins = Begins { replicas: 1, rule: Rule::Quorum(1), attempts: 0 };

    /// How a workunit begins again of which is not known whether it was left alone: an agent or
    /// the journal knows of a replica of it, and what was left alone is decided with its first
    /// vote. It is computed once more, where the job allows it.
    pub(crate) fn begins_again(spec: &JobSpec) -> Begins {
        if spec.max_replicas() < u16::from(CHECKED) {
            return Self::BEGINS;
        }
        let (replicas, quorum) = Self::checked(spec);
        Begins { replicas, rule: Rule::Quorum(quorum), attempts: 0 }
    }

    /// Replicas and quorum of a workunit that is not left alone.
    fn checked(spec: &JobSpec) -> (u8, u8) {
        (spec.replication.max(CHECKED), spec.quorum().max(CHECKED))
    }

    /// A workunit was sent to a host.
    pub(crate) fn sent(&mut self, desk: &mut Desk<'_>, workunit: WorkunitIx, host: HostIx) {
        let farm = desk.farm();
        let unit = farm.workunit(workunit);
        let Some(job) = farm.job(unit.id.job) else { return };
        let may_be_alone = self.may_be_alone(&job.spec) && unit.rule == Rule::Quorum(1);
        if !may_be_alone || unit.replication > 1 {
            return;
        }
        let valid = farm.host(host).standing.passed_since();
        let (replication, quorum) = if valid < TRUSTED_AFTER {
            Self::checked(&job.spec)
        } else if self.chance.one_in(valid.into()) {
            (CHECKED, CHECKED)
        } else {
            return;
        };
        let most = job.spec.max_replicas.map_or(3 * usize::from(quorum), usize::from);
        if usize::from(replication) <= most {
            desk.replicate(workunit, replication, quorum);
        }
    }

    fn may_be_alone(&self, spec: &JobSpec) -> bool {
        spec.trust != gleaner_protocol::Trust::Fixed
    }
}

impl Policy for BoincAdaptive {
    fn name(&self) -> &'static str {
        PolicyName::BoincAdaptive.as_str()
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        self.0.observe(now, farm, change);
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        self.0.plan(desk, trigger);
    }

    fn begins(&self, spec: &JobSpec) -> Begins {
        self.0.begins(spec)
    }

    fn explain(&self, farm: &Farm, workunit: WorkunitId) -> Vec<WaitReason> {
        self.0.explain(farm, workunit)
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        self.0.check_invariants(farm, lane)
    }
}

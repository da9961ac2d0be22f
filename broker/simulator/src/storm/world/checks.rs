//! What is checked after an event, and what at the end.
//!
//! What an event cannot have touched still holds as it did: a turn of the broker is the only event
//! that changes the core, an agent is changed by events of its own host alone, and so on.

use gleaner_protocol::{JobId, Share, Trust};

use gleaner_scheduling::{Core, JobPhase, PolicyName, check_invariants};

use super::monitor_life::Touched;
use super::{World, right_output};
use crate::storm::{Breach, FULL_CHECK_TURNS};

/// Reports that may wait at an agent: what a host of a storm can have asked for, many times over.
const UNACKED_MAX: usize = 64;

impl World<'_> {
    pub(super) fn check(&mut self) -> Result<(), Breach> {
        if let Some(host) = self.touched_host {
            self.check_host(host)?;
        }
        if let Some(touched) = self.monitor.touched.take() {
            self.check_monitor(&touched)?;
        }
        if self.turned {
            self.check_broker()?;
        }
        self.check_progress()
    }

    fn is_small(&self) -> bool {
        self.config.hosts <= self.config.full_checks_up_to
    }

    fn check_host(&self, host: usize) -> Result<(), Breach> {
        let machine = &self.machines[host];
        let (rendering, taken) = (machine.rendering(), machine.taken());
        let cores = machine.info.cores;
        if rendering > 0 && taken > Share::cores(cores - rendering) {
            let (host, running) = (machine.info.name.to_string(), taken.cores_touched() as usize);
            return Err(Breach::InTheWay { host, rendering, cores, running });
        }
        let Some(agent) = &machine.agent else { return Ok(()) };
        agent.harvest.check_invariants().map_err(|violation| Breach::Agent {
            host: machine.info.name.to_string(),
            violation,
        })?;
        let held = agent.harvest.running() as usize;
        // News that wait may be of the end of what runs no more, never of what runs.
        let running = machine.tasks.values().filter(|task| !task.stands.is_parked).count();
        if agent.listens() && agent.releases.is_empty() && running != held {
            return Err(Breach::Stray { host: machine.info.name.to_string(), running, held });
        }
        let (what, count) = ("reports that wait at an agent", agent.harvest.unacked());
        match count <= UNACKED_MAX {
            true => Ok(()),
            false => Err(Breach::Unbounded { what, count, most: UNACKED_MAX }),
        }
    }

    fn check_monitor(&self, touched: &Touched) -> Result<(), Breach> {
        let Some(monitor) = &self.monitor.monitor else { return Ok(()) };
        match touched {
            Touched::Host(name) if !self.is_small() => monitor.check_host(name)?,
            _ => monitor.check_invariants()?,
        }
        let (count, most) = (self.monitor.waits(), self.machines.len());
        match count <= most {
            true => Ok(()),
            false => {
                Err(Breach::Unbounded { what: "events that wait at the monitor", count, most })
            }
        }
    }

    fn check_broker(&self) -> Result<(), Breach> {
        self.broker.check_bounds()?;
        let Some(core) = self.broker.core() else { return Ok(()) };
        if self.is_small() || self.turns.is_multiple_of(FULL_CHECK_TURNS) {
            check_invariants(core)?;
        }
        self.check_frames()
    }

    fn check_progress(&self) -> Result<(), Breach> {
        let calm = self.now - self.calm_since;
        if !self.is_calm || calm < self.config.calm {
            return Ok(());
        }
        if let Some((viewer, why)) = self.unseen() {
            return Err(Breach::Unseen { viewer, calm, why });
        }
        let Some(core) = self.broker.core() else { return Ok(()) };
        let stuck = core.farm().jobs().find(|job| job.phase == JobPhase::Active);
        let Some(job) = stuck else {
            let (job, why) = (JobId::new(0), "it was never accepted".to_owned());
            return Err(Breach::Stuck { job, calm, why });
        };
        let reasons = core.explain_job(job.id).unwrap_or_default();
        let why: Vec<_> = reasons.iter().map(ToString::to_string).collect();
        Err(Breach::Stuck { job: job.id, calm, why: why.join("; ") })
    }

    /// Reads what `/metrics` shows at the end, over all lives of the broker.
    fn read_metrics(&mut self) -> Result<(), Breach> {
        let text = self.broker.metrics().expect("the broker is up when all has ended");
        let judged = self.broker.judged;
        for family in ["gleaner_reports_total", "gleaner_report_outcomes_total"] {
            let counted = samples(&text, family);
            if counted != judged {
                return Err(Breach::Miscounted { family, counted, judged });
            }
        }
        self.report.openings_refused = samples(&text, "gleaner_openings_refused_total");
        self.report.spoiled = samples(&text, "gleaner_reports_total{verdict=\"spoiled\"}");
        Ok(())
    }

    pub(super) fn all_has_ended(&self) -> bool {
        let has_ended = |core: &Core| core.farm().jobs().all(|job| job.phase != JobPhase::Active);
        self.to_submit == 0
            && self.broker.is_quiet()
            && self.broker.core().is_some_and(has_ended)
            && self.unseen().is_none()
    }

    /// At the end everything is as everyone was told.
    pub(super) fn conclude(&mut self) -> Result<(), Breach> {
        self.read_metrics()?;
        let core = self.broker.core().expect("the broker is up when all has ended");
        check_invariants(core)?;
        self.watcher.check_decisions(core)?;
        self.report.ended_at = self.now;
        for id in self.watcher.jobs() {
            let job = core.farm().job(*id).ok_or(Breach::JobLost(*id))?;
            self.report.jobs_cancelled += u64::from(job.phase == JobPhase::Cancelled);
            self.report.decided += u64::from(job.ended.decided());
            self.report.given_up += u64::from(job.ended.failed());
        }
        for (id, digest) in self.watcher.decided() {
            let job = core.farm().job(id.job).ok_or(Breach::JobLost(id.job))?;
            if *digest != right_output(*id, job.spec.workunits.item(id.index)) {
                self.report.wrong += 1;
                // Faulty hosts lie each in their own way: two that agree tell the truth. Where hosts
                // are trusted alone some lies come through.
                let is_fixed = job.spec.trust == Trust::Fixed
                    && self.config.policy != PolicyName::BoincAdaptive;
                if job.spec.quorum() > 1 && is_fixed {
                    return Err(Breach::WrongOutput(*id));
                }
            }
        }
        Ok(())
    }
}

/// All samples of metrics whose name, or name with labels, begins so, added up.
fn samples(text: &str, begins: &str) -> u64 {
    let values = text.lines().filter(|line| line.starts_with(begins));
    values.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

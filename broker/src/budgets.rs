//! What projects may use in all, and what becomes of their jobs when it is used up.
//!
//! What is charged counts (see [`crate::usage`]): accepted results, and the redundancy that was asked
//! for. A look sums the records, beside everything else; between two looks a project may use more than it
//! has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use gleaner_protocol::api::UsageBy;
use gleaner_protocol::job::Lane;
use gleaner_protocol::{Account, JobId, ProjectName, Span, boottime, error_chain};
use gleaner_scheduling::{Core, JobPhase};

use crate::config::{AtEnd, ProjectSettings};
use crate::driver::{Command, DriverHandle};
use crate::limits::{BUDGETS_LOOK, BUDGETS_REST, JOBS_PAGE_MAX};
use crate::usage::{Usage, UsageError, UsageQuery};

/// The budgets of projects. Clones are of the same ones.
#[derive(Debug, Clone)]
pub(crate) struct Budgets {
    of: Arc<BTreeMap<ProjectName, Budget>>,
    /// Core hours that were charged by the last look.
    charged: Arc<Mutex<BTreeMap<ProjectName, f64>>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Budget {
    core_h: f64,
    at_end: AtEnd,
}

impl Budgets {
    pub(crate) fn of(projects: &BTreeMap<ProjectName, ProjectSettings>) -> Self {
        let budget = |(name, of): (&ProjectName, &ProjectSettings)| {
            let budget = Budget { core_h: of.budget_core_h?, at_end: of.at_end };
            Some((name.clone(), budget))
        };
        Self { of: Arc::new(projects.iter().filter_map(budget).collect()), charged: Arc::default() }
    }

    /// Core hours of a project's budget, and those of it that are used.
    pub(crate) fn standing(&self, project: &ProjectName) -> Option<(f64, f64)> {
        let budget = self.of.get(project)?;
        let charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        Some((budget.core_h, charged.get(project).copied().unwrap_or(0.0)))
    }

    /// Why a project gets no more jobs in a lane, where it gets none.
    pub(crate) fn refusal(&self, project: &ProjectName, lane: Lane) -> Option<String> {
        let (core_h, used) = self.standing(project)?;
        let is_refused = match self.of.get(project)?.at_end {
            AtEnd::Warn => false,
            // It waits.
            AtEnd::Hold => lane != Lane::Background,
            AtEnd::Refuse | AtEnd::Cancel => true,
        };
        let is_refused = is_refused && used >= core_h;
        is_refused.then(|| {
            format!(
                "project {project} has used {used:.2} of its {core_h:.2} core hours: whoever runs this \
                 broker can raise budget_core_h of [projects.{project}]"
            )
        })
    }

    /// Looks as long as the broker runs.
    pub(crate) async fn run(self, usage: Usage, driver: DriverHandle) {
        if self.of.is_empty() {
            return;
        }
        let (mut rest, mut held_before) = (Span::ZERO, BTreeSet::new());
        loop {
            tokio::time::sleep(rest.into()).await;
            let began = boottime();
            let within_ms = 0..u64::MAX;
            let rows = usage
                .sum(UsageQuery { by: UsageBy::Project, each: None, within_ms, of: None })
                .await;
            // All records are read: of many of them a look takes long, and comes as much less often.
            rest = BUDGETS_LOOK.max((boottime() - began).times(BUDGETS_REST));
            let rows = match rows {
                Ok(rows) => rows,
                Err(UsageError::Ends) => return,
                Err(error) => {
                    tracing::error!(
                        "what projects have used is not known: {}",
                        error_chain(&error)
                    );
                    continue;
                }
            };
            let rows =
                rows.into_iter().filter_map(|row| Some((row.project?, row.charged_s / 3_600.0)));
            let over = self.note(rows.collect());
            let waits = |of: &&ProjectName| self.of[*of].at_end == AtEnd::Hold;
            let held: BTreeSet<_> =
                over.iter().filter(waits).cloned().map(Account::Project).collect();
            if held != held_before {
                held_before = held.clone();
                if driver.send(Command::HoldBack(held)).await.is_err() {
                    return;
                }
            }
            for project in over {
                self.end(&project, &driver).await;
            }
        }
    }

    /// Takes note of what is charged; the projects whose budgets are used up.
    fn note(&self, charged: BTreeMap<ProjectName, f64>) -> Vec<ProjectName> {
        let mut known = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |of: &BTreeMap<_, f64>, project: &ProjectName, core_h: f64| {
            of.get(project).copied().unwrap_or(0.0) >= core_h
        };
        let mut over = Vec::new();
        for (project, budget) in &*self.of {
            if is_over(&charged, project, budget.core_h) {
                if !is_over(&known, project, budget.core_h) {
                    let Budget { core_h, at_end } = budget;
                    tracing::warn!(%project, core_h, ?at_end, "the budget of a project is used up");
                }
                over.push(project.clone());
            }
        }
        *known = charged;
        over
    }

    /// Ends the jobs of a project, where that is wanted.
    async fn end(&self, project: &ProjectName, driver: &DriverHandle) {
        if self.of.get(project).is_none_or(|budget| budget.at_end != AtEnd::Cancel) {
            return;
        }
        let mut from = JobId::new(0);
        loop {
            let project = project.clone();
            let page = driver.query(move |core| jobs_of(core, &project, from)).await;
            // The driver is gone only where the broker ends.
            let Ok((jobs, next)) = page else { return };
            for job in jobs {
                tracing::warn!(%job, "cancelled: the budget of its project is used up");
                if driver.cancel(job).await.is_err() {
                    return;
                }
            }
            let Some(next) = next else { return };
            from = next;
        }
    }
}

/// A page of the jobs of a project that go on, and where the next page begins.
fn jobs_of(core: &Core, project: &ProjectName, from: JobId) -> (Vec<JobId>, Option<JobId>) {
    let page: Vec<_> = core.farm().jobs_from(from).take(JOBS_PAGE_MAX).collect();
    let next = page.last().filter(|_| page.len() == JOBS_PAGE_MAX);
    let next = next.map(|job| JobId::new(job.id.get() + 1));
    let is_of = |job: &gleaner_scheduling::Job| {
        job.phase == JobPhase::Active && job.spec.project.as_ref() == Some(project)
    };
    (page.into_iter().filter(|job| is_of(job)).map(|job| job.id).collect(), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ProjectName {
        text.parse().expect("a plain name")
    }

    #[test]
    fn what_is_used_up_is_refused_unless_it_is_only_told() {
        let project = |budget_core_h, at_end| ProjectSettings {
            budget_core_h,
            at_end,
            ..ProjectSettings::default()
        };
        let budgets = Budgets::of(&BTreeMap::from([
            (name("lit"), project(Some(2.0), AtEnd::Refuse)),
            (name("told"), project(Some(2.0), AtEnd::Warn)),
            (name("held"), project(Some(2.0), AtEnd::Hold)),
            (name("free"), project(None, AtEnd::Refuse)),
        ]));
        let charged =
            |hours: f64| ["lit", "told", "held", "free"].map(|of| (name(of), hours)).into();
        assert!(budgets.note(charged(1.9)).is_empty());
        assert_eq!(budgets.refusal(&name("lit"), Lane::Background), None);
        assert_eq!(budgets.note(charged(2.5)), [name("held"), name("lit"), name("told")]);
        assert_eq!(budgets.refusal(&name("held"), Lane::Background), None, "its jobs wait");
        assert!(budgets.refusal(&name("held"), Lane::Batch).is_some());
        let refusal = budgets.refusal(&name("lit"), Lane::Background).expect("used up");
        assert!(refusal.contains("has used 2.50 of its 2.00 core hours"), "{refusal}");
        assert_eq!(budgets.refusal(&name("told"), Lane::Deadline), None);
        assert_eq!(budgets.standing(&name("told")), Some((2.0, 2.5)));
        assert_eq!(budgets.standing(&name("free")), None);
    }
}

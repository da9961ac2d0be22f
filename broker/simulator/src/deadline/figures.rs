//! What a policy made of a workload, in numbers.

use gleaner_protocol::Time;

use super::workload::DeadlineJob;
use super::world::{Fate, Record};
use crate::scenario::{Better, Metric, Numbers};

/// The metrics of the clinic.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "utilization_percent",
        about: "work of the jobs done over what all cores could do from the first arrival to the last completion",
        better: Better::Higher,
    },
    Metric {
        name: "expansion_factor",
        about: "mean of response time over the time that one task computes, jobs done",
        better: Better::Lower,
    },
    Metric {
        name: "violations",
        about: "jobs that were taken and ended late",
        better: Better::Lower,
    },
    Metric {
        name: "violations_beyond_error",
        about: "of these, jobs whose tasks took no longer than predicted",
        better: Better::Lower,
    },
    Metric {
        name: "jobs_processed",
        about: "jobs that were taken and done",
        better: Better::Higher,
    },
    Metric {
        name: "jobs_in_time",
        about: "jobs that were done by their deadline",
        better: Better::Higher,
    },
    Metric {
        name: "last_completion_min",
        about: "from the first arrival to the last completion",
        better: Better::Lower,
    },
    Metric {
        name: "interruptions",
        about: "times that a task was taken from its host, to go on later or elsewhere",
        better: Better::Neither,
    },
    Metric {
        name: "bound_proven_percent",
        about: "workloads of which it is known that as many jobs as the bound says can be done in time; of the others, that no more can",
        better: Better::Neither,
    },
];

/// The numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) utilization_percent: f64,
    pub(super) expansion_factor: f64,
    pub(super) violations: usize,
    pub(super) violations_beyond_error: usize,
    pub(super) jobs_processed: usize,
    pub(super) jobs_in_time: usize,
    pub(super) last_completion_min: f64,
    pub(super) interruptions: u64,
}

impl Figures {
    pub(super) fn of(cores: usize, jobs: &[DeadlineJob], record: &Record) -> Self {
        let mut figures = Self { interruptions: record.interruptions, ..Self::default() };
        let (mut last, mut work_us, mut expansion) = (Time::ZERO, 0, 0.0);
        for (job, fate) in jobs.iter().zip(&record.fates) {
            let is_late = match fate {
                Fate::Declined => continue,
                Fate::Lost => true,
                Fate::Done(at) => {
                    figures.jobs_processed += 1;
                    last = last.max(*at);
                    work_us += job.work_us();
                    expansion += at.since(job.arrival).as_secs_f64() / job.takes.as_secs_f64();
                    *at > job.due
                }
            };
            figures.violations += usize::from(is_late);
            figures.jobs_in_time += usize::from(!is_late);
            figures.violations_beyond_error += usize::from(is_late && job.takes <= job.predicted);
        }
        let first = jobs.first().map_or(Time::ZERO, |job| job.arrival);
        let span_us = last.since(first).as_micros();
        if figures.jobs_processed > 0 && span_us > 0 {
            let possible = span_us as f64 * cores as f64;
            figures.utilization_percent = 100.0 * work_us as f64 / possible;
            figures.expansion_factor = expansion / figures.jobs_processed as f64;
            figures.last_completion_min = span_us as f64 / 60e6;
        }
        figures
    }

    /// By the names of their metrics.
    pub(super) fn numbers(&self) -> Numbers {
        Numbers::from([
            ("utilization_percent", self.utilization_percent),
            ("expansion_factor", self.expansion_factor),
            ("violations", self.violations as f64),
            ("violations_beyond_error", self.violations_beyond_error as f64),
            ("jobs_processed", self.jobs_processed as f64),
            ("jobs_in_time", self.jobs_in_time as f64),
            ("last_completion_min", self.last_completion_min),
            ("interruptions", self.interruptions as f64),
        ])
    }
}

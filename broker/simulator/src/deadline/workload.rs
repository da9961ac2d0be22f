//! Jobs with deadlines: the published ones, and others like them.

use std::collections::BTreeMap;

use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::limits::LEASE_S_MAX;
use gleaner_protocol::{HostKind, KernelName, OwnerName, Profile, Span, Time, Trust};
use gleaner_scheduling::deadline::{Claim, Predictor, RecordedRun};

use super::host::{KERNEL, KIND};
use super::tables::JobRow;
use crate::dice::Dice;

/// Deadlines of the published jobs over the time that one of their tasks takes.
const SLACKS: [f64; 10] = [1.58, 1.40, 3.42, 1.11, 9.49, 1.12, 1.12, 1.12, 2.10, 1.12];

/// A job: tasks that all take as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeadlineJob {
    pub(super) arrival: Time,
    pub(super) tasks: u32,
    /// When all of it is to be done.
    pub(super) due: Time,
    /// How long each task takes on a whole core.
    pub(super) takes: Span,
    /// How long it is predicted to take.
    pub(super) predicted: Span,
}

impl DeadlineJob {
    /// What a submitter says of it, with what the predictor says.
    pub(super) fn spec(&self, checkpoint: Span) -> JobSpec {
        let kind = HostKind::new(KIND).expect("a plain name");
        JobSpec {
            name: String::new(),
            owner: OwnerName::new("clinic").expect("a plain name"),
            lane: Lane::Deadline,
            task: Task::Kernel(KernelName::new(KERNEL).expect("a plain name")),
            workunits: Workunits::Count(self.tasks),
            replication: 1,
            quorum: None,
            max_replicas: None,
            lease_s: LEASE_S_MAX,
            profile: Profile {
                run_time_us: BTreeMap::from([(kind, self.predicted.as_micros())]),
                due_ms: Some(self.due.since(self.arrival).as_millis()),
                checkpoint_ms: Some(checkpoint.as_millis()),
                ..Profile::default()
            },
            trust: Trust::default(),
        }
    }

    /// What it takes of the cores, if one knows how long it will take.
    pub(super) fn claim(&self) -> Claim {
        Claim {
            from_us: self.arrival.as_micros(),
            due_us: self.due.as_micros(),
            tasks: self.tasks,
            work_us: self.takes.as_micros(),
        }
    }

    /// What all its tasks take, in microseconds of a core.
    pub(super) fn work_us(&self) -> u64 {
        self.takes.as_micros() * u64::from(self.tasks)
    }
}

fn seconds(seconds: f64) -> Span {
    Span::from_micros((seconds * 1e6) as u64)
}

/// The jobs of a table. `recalls` where the predictor may use that a data set was run before.
pub(super) fn of_table(rows: &[JobRow], runs: &[RecordedRun], predictor: &Predictor, recalls: bool) -> Vec<DeadlineJob> {
    let job = |row: &JobRow| {
        let run = &runs[row.run];
        let arrival = Time::ZERO + seconds(row.arrival_min * 60.0);
        let predicted = if recalls {
            predictor.predict_subject(&run.subject, &run.parameters)
        } else {
            predictor.predict(&run.parameters)
        };
        DeadlineJob {
            arrival,
            tasks: row.tasks,
            due: arrival + Span::from_millis((row.deadline_min * 60_000.0) as u64),
            takes: seconds(run.time_s),
            predicted: seconds(predicted),
        }
    };
    rows.iter().map(job).collect()
}

/// How random workloads are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recipe {
    pub(super) jobs: usize,
    pub(super) tasks: (u32, u32),
    /// Work over what all cores could do while jobs arrive.
    pub(super) load: f64,
    pub(super) cores: u32,
}

/// Recorded runs, each with what a predictor says that has seen all but that one.
pub(super) struct Catalogue {
    entries: Vec<(Span, Span)>,
    mean_s: f64,
}

impl Catalogue {
    pub(super) fn new(runs: &[RecordedRun]) -> Result<Self, String> {
        let mut entries = Vec::new();
        for (place, run) in runs.iter().enumerate() {
            let others: Vec<_> =
                runs.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, run)| run.clone()).collect();
            let predictor = Predictor::fit(&others)
                .map_err(|error| format!("without {}: {error}", run.subject))?;
            entries.push((seconds(run.time_s), seconds(predictor.predict(&run.parameters))));
        }
        let mean_s = runs.iter().map(|run| run.time_s).sum::<f64>() / runs.len() as f64;
        Ok(Self { entries, mean_s })
    }

    /// Jobs of data sets that the predictor has not seen, arriving at random at a constant rate,
    /// with deadlines as tight as the published ones.
    pub(super) fn draw(&self, recipe: &Recipe, dice: &mut Dice) -> Vec<DeadlineJob> {
        let (least, most) = recipe.tasks;
        let work_s = self.mean_s * f64::from(least + most) / 2.0;
        let gap_s = work_s / (recipe.load * f64::from(recipe.cores));
        let mut at_s = 0.0;
        let job = |_| {
            let arrival = Time::ZERO + seconds(at_s);
            at_s += dice.exponential(gap_s);
            let (takes, predicted) = self.entries[dice.below(self.entries.len())];
            let slack = SLACKS[dice.below(SLACKS.len())];
            let tasks = least + u32::try_from(dice.below((most - least + 1) as usize)).expect("a small range");
            let due_ms = (takes.as_secs_f64() * slack * 1000.0) as u64;
            DeadlineJob { arrival, tasks, due: arrival + Span::from_millis(due_ms), takes, predicted }
        };
        (0..recipe.jobs).map(job).collect()
    }
}


//! Jobs with deadlines: the published ones, and others like them.

use std::collections::BTreeMap;

use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::limits::LEASE_S_MAX;
use gleaner_protocol::{HostKind, KernelName, OwnerName, Profile, Span, Time, Trust};
use gleaner_scheduling::deadline::{Claim, Predictor, RecordedRun};

use super::host::{KERNEL, KIND};
use super::tables::JobRow;
use crate::dice::Dice;

/// A job: tasks that all take as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeadlineJob {
    pub(crate) arrival: Time,
    pub(crate) tasks: u32,
    /// When all of it is to be done.
    pub(crate) due: Time,
    /// How long each task takes on a whole core.
    pub(crate) takes: Span,
    /// How long it is predicted to take.
    pub(crate) predicted: Span,
}

impl DeadlineJob {
    /// What a submitter says of it, with what the predictor says.
    pub(crate) fn spec(&self, checkpoint: Option<Span>) -> JobSpec {
        let kind = HostKind::new(KIND).expect("a plain name");
        JobSpec {
            name: String::new(),
            owner: OwnerName::new("clinic").expect("a plain name"),
            project: None,
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
                checkpoint_ms: checkpoint.map(Span::as_millis),
                ..Profile::default()
            },
            trust: Trust::default(),
            on_release: Default::default(),
            attempts: Default::default(),
            on: None,
            cores_permille: gleaner_protocol::Share::WHOLE,
            gpus: 0,
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
pub(super) fn of_table(
    rows: &[JobRow],
    runs: &[RecordedRun],
    predictor: &Predictor,
    recalls: bool,
) -> Vec<DeadlineJob> {
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

/// Draws workloads like that of a table.
pub(crate) struct Recipe {
    /// How long each recorded run took, and what a predictor says that has seen all but that one.
    runs: Vec<(Span, Span)>,
    /// Tasks of each job of the table, and its deadline over the time of one of them.
    shapes: Vec<(u32, f64)>,
    /// Spans between arrivals, in seconds.
    gaps_s: Vec<f64>,
}

impl Recipe {
    /// Jobs of the table's shapes and gaps, the latter stretched so that the work that arrives is
    /// `load` of what the cores can do meanwhile. `is_known` where the predictor has seen all runs.
    pub(crate) fn new(
        rows: &[JobRow],
        runs: &[RecordedRun],
        (load, cores): (f64, u32),
        is_known: bool,
    ) -> Result<Self, String> {
        let predicted = |place: usize| {
            if is_known {
                return Ok(runs[place].time_s);
            }
            let others = runs.iter().enumerate().filter(|(at, _)| *at != place);
            let others: Vec<_> = others.map(|(_, run)| run.clone()).collect();
            let predictor = Predictor::fit(&others)
                .map_err(|error| format!("without {}: {error}", runs[place].subject))?;
            Ok::<_, String>(predictor.predict(&runs[place].parameters))
        };
        let both = |place: usize| Ok((seconds(runs[place].time_s), seconds(predicted(place)?)));
        let both: Vec<_> = (0..runs.len()).map(both).collect::<Result<_, String>>()?;
        let shape = |row: &JobRow| (row.tasks, row.deadline_min * 60.0 / runs[row.run].time_s);
        let shapes: Vec<_> = rows.iter().map(shape).collect();
        let mut gaps_s: Vec<f64> = rows
            .windows(2)
            .map(|pair| (pair[1].arrival_min - pair[0].arrival_min) * 60.0)
            .collect();
        let mean = |sum: f64, count: usize| sum / count.max(1) as f64;
        let run_s = mean(runs.iter().map(|run| run.time_s).sum(), runs.len());
        let tasks = mean(rows.iter().map(|row| f64::from(row.tasks)).sum(), rows.len());
        let wanted_s = run_s * tasks / (load * f64::from(cores));
        let found_s = mean(gaps_s.iter().sum(), gaps_s.len());
        if found_s > 0.0 {
            gaps_s.iter_mut().for_each(|gap_s| *gap_s *= wanted_s / found_s);
        } else {
            gaps_s = vec![wanted_s];
        }
        Ok(Self { runs: both, shapes, gaps_s })
    }

    /// So many jobs, each with a run, a shape and a gap of its own.
    pub(crate) fn draw(&self, jobs: usize, dice: &mut Dice) -> Vec<DeadlineJob> {
        let mut at_s = 0.0;
        let job = |_| {
            let arrival = Time::ZERO + seconds(at_s);
            at_s += self.gaps_s[dice.below(self.gaps_s.len())];
            let (takes, predicted) = self.runs[dice.below(self.runs.len())];
            let (tasks, slack) = self.shapes[dice.below(self.shapes.len())];
            let due = arrival + Span::from_millis((takes.as_secs_f64() * slack * 1000.0) as u64);
            DeadlineJob { arrival, tasks, due, takes, predicted }
        };
        (0..jobs).map(job).collect()
    }
}

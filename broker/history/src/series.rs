//! The runs of one application on one kind of host.

use std::collections::VecDeque;

use crate::left_out::LeftOut;
use crate::limits::RUNS_MAX;
use crate::model::Model;
use crate::run::{Clock, Run};

/// See the module's page.
///
/// # Invariants
/// - At most [`RUNS_MAX`] runs, the last ones, in the order in which they came.
#[derive(Debug, Clone, Default)]
pub struct Series {
    runs: VecDeque<Run>,
    models: [Learned; 2],
    /// Runs that came before the last one of it, of all series.
    pub(crate) touched: u64,
}

/// A model and how many runs have come since.
#[derive(Debug, Clone, Default)]
enum Learned {
    /// Nobody has asked yet.
    #[default]
    Nothing,
    /// None of the runs ended.
    None,
    Model {
        model: Box<Model>,
        since: usize,
    },
}

impl Series {
    /// Adds a run; whether one more is kept than before.
    pub(crate) fn add(&mut self, run: Run) -> bool {
        for (clock, learned) in [Clock::Wall, Clock::Cpu].into_iter().zip(&mut self.models) {
            let is_old = match learned {
                Learned::Model { model, since } => {
                    model.note(&run, clock);
                    *since += 1;
                    *since >= model.may_miss()
                }
                Learned::Nothing | Learned::None => true,
            };
            if is_old {
                *learned = Learned::Nothing;
            }
        }
        self.runs.push_back(run);
        if self.runs.len() > RUNS_MAX {
            self.runs.pop_front();
            return false;
        }
        true
    }

    /// Its runs, the oldest first.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter()
    }

    /// How many of them came to their end.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.runs.iter().filter(|run| run.ended).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// What is learned from them.
    pub fn model(&mut self, clock: Clock) -> Option<&Model> {
        let learned = &mut self.models[clock as usize];
        if matches!(learned, Learned::Nothing) {
            let runs: Vec<&Run> = self.runs.iter().collect();
            *learned = match Model::of(&runs, clock) {
                Some(model) => Learned::Model { model: Box::new(model), since: 0 },
                None => Learned::None,
            };
        }
        match learned {
            Learned::Model { model, .. } => Some(model),
            Learned::Nothing | Learned::None => None,
        }
    }

    /// How well each of the last runs is predicted by all the others.
    #[must_use]
    pub fn left_out(&self, clock: Clock) -> Option<LeftOut> {
        LeftOut::of(&self.runs.iter().collect::<Vec<_>>(), clock)
    }

    /// The middle of what ended runs took by a clock, in microseconds.
    #[must_use]
    pub fn median_us(&self, clock: Clock) -> Option<u64> {
        let ended = self.runs.iter().filter(|run| run.ended);
        let mut times: Vec<u64> = ended.filter_map(|run| run.time_us(clock)).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    /// Most memory that a run of it was seen to take, in MiB.
    #[must_use]
    pub fn peak_memory_mib(&self) -> Option<u64> {
        self.runs.iter().filter_map(|run| run.peak_memory_mib).max()
    }
}

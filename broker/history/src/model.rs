//! What is learned from the runs of one application on one kind of host.

use std::sync::Arc;

use crate::fit::Fit;
use crate::levels::Levels;
use crate::residuals::Residuals;
use crate::run::{Clock, Run};

/// A fit with the distribution of what it leaves over, and the levels at which that is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub(crate) fit: Fit,
    pub(crate) residuals: Arc<Residuals>,
    pub(crate) levels: Levels,
    /// Runs that it has learned from, and how many of them ended.
    pub(crate) runs: usize,
    pub(crate) ended: usize,
}

impl Model {
    /// Learns from runs in the order in which they came: the levels from each run as it was
    /// predicted by those before it. None where none of them ended.
    #[must_use]
    pub fn of(runs: &[&Run], clock: Clock) -> Option<Self> {
        let mut model: Option<Self> = None;
        let mut due = 1;
        for (at, run) in runs.iter().enumerate() {
            if let Some(model) = &mut model {
                model.note(run, clock);
            }
            if at + 1 >= due {
                model = Self::fitted(&runs[..=at], clock, model.map(|model| model.levels));
                due = at + 1 + rest_after(at + 1);
            }
        }
        let levels = model.map(|model| model.levels);
        Self::fitted(runs, clock, levels)
    }

    fn fitted(runs: &[&Run], clock: Clock, levels: Option<Levels>) -> Option<Self> {
        let (fit, residuals) = Fit::of(runs.iter().copied(), clock)?;
        let residuals = Arc::new(Residuals::of(residuals, fit.sigma()));
        let ended = runs.iter().filter(|run| run.ended && run.time_us(clock).is_some()).count();
        let levels = levels.unwrap_or_default();
        Some(Self { fit, residuals, levels, runs: runs.len(), ended })
    }

    /// Corrects the levels by a run that it has not learned from.
    pub(crate) fn note(&mut self, run: &Run, clock: Clock) {
        let Some(log) = run.log_time(clock) else { return };
        let spread = self.fit.spread(&run.features);
        let place = 1.0 - self.residuals.above((log - self.fit.log_of(&run.features)) / spread);
        match run.ended {
            true => self.levels.note(place),
            false => self.levels.note_beyond(place),
        }
    }

    /// The fit.
    #[must_use]
    pub fn fit(&self) -> &Fit {
        &self.fit
    }

    /// What a part `p` of runs stay below, in multiples of what the fit expects. Its level is the
    /// corrected one.
    #[must_use]
    pub fn ratio(&self, p: f64) -> f64 {
        libm::exp(self.residuals.quantile(self.levels.corrected(p)))
    }

    /// How many more runs it may not have learned from before another is made.
    pub(crate) fn may_miss(&self) -> usize {
        rest_after(self.runs)
    }
}

/// After so many runs, so many more come before they are fitted anew.
fn rest_after(runs: usize) -> usize {
    (runs / 8).max(1)
}

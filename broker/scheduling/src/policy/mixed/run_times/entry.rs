//! The last runs of an application on a kind of host.

use std::collections::VecDeque;

use gleaner_protocol::Time;

/// Runs that are kept, the last ones.
const RUNS_MAX: usize = 8;
/// So many surprises in a row flag an entry, and so many runs in a row that are none clear it.
const IN_A_ROW: usize = 3;
/// The spread of runs that are alike, in logarithms, where none is seen yet.
pub(super) const RUN_SIGMA: f64 = 0.1;
/// For how many runs that counts.
pub(super) const RUN_SIGMA_RUNS: f64 = 2.0;

/// One run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// Logarithm of what it took, in microseconds.
    pub(super) log: f64,
    /// Sum of the logarithms of its features.
    pub(super) size: f64,
    /// Logarithm of what it took over what its job said, where that said something.
    pub(super) off: Option<f64>,
    /// When it ended.
    pub(super) at: Time,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Entry {
    runs: VecDeque<Run>,
    /// Surprises in a row, and runs in a row that were none: one of them is 0.
    surprises: usize,
    calm: usize,
    is_flagged: bool,
}

impl Entry {
    /// Adds a run that was a surprise, or was not; none where nothing was expected.
    pub(super) fn add(&mut self, run: Run, is_surprise: Option<bool>) {
        self.runs.push_back(run);
        if self.runs.len() > RUNS_MAX {
            self.runs.pop_front();
        }
        match is_surprise {
            Some(true) => (self.surprises, self.calm) = (self.surprises + 1, 0),
            Some(false) => (self.surprises, self.calm) = (0, self.calm + 1),
            None => {}
        }
        if self.surprises >= IN_A_ROW {
            self.is_flagged = true;
            self.surprises = 0;
            self.runs.drain(..self.runs.len().saturating_sub(IN_A_ROW));
        } else if self.calm >= IN_A_ROW {
            self.is_flagged = false;
        }
    }

    /// Whether what is said of it is not to be believed at all.
    pub(super) fn is_flagged(&self) -> bool {
        self.is_flagged
    }

    /// Its runs, the oldest first.
    pub(super) fn runs(&self) -> impl ExactSizeIterator<Item = &Run> + Clone {
        self.runs.iter()
    }

    /// By how much what was said is off on average, in logarithms.
    pub(super) fn mean_off(&self) -> Option<f64> {
        let (mean, _, count) = self.offs(Time::ZERO);
        (count > 0.0).then_some(mean)
    }

    /// By how much what is said is off, in logarithms, and the variance of that: by the runs that
    /// ended after `since`, where all that is said spreads by `sigma` about what is.
    pub(super) fn off(&self, sigma: f64, since: Time) -> (f64, f64) {
        let (mean, squares, count) = self.offs(since);
        let before = RUN_SIGMA_RUNS * RUN_SIGMA * RUN_SIGMA;
        let of_run = (before + squares) / (RUN_SIGMA_RUNS + (count - 1.0).max(0.0));
        let variance = 1.0 / (1.0 / (sigma * sigma) + count / of_run);
        (mean * variance * count / of_run, variance)
    }

    /// Mean, sum of squares about it, and count.
    fn offs(&self, since: Time) -> (f64, f64, f64) {
        let offs = self.runs.iter().filter(|run| run.at > since || since == Time::ZERO);
        let offs = offs.filter_map(|run| run.off);
        let count = offs.clone().count() as f64;
        let mean = offs.clone().sum::<f64>() / count.max(1.0);
        (mean, offs.map(|off| (off - mean) * (off - mean)).sum(), count)
    }
}

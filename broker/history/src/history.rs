//! The last runs of all applications, and what they predict.

use std::collections::BTreeMap;

use crate::limits::{APPLICATIONS_MAX, KINDS_MAX, RUNS_ALL_MAX};
use crate::prediction::{Basis, Prediction};
use crate::run::{Clock, Run};
use crate::series::Series;

/// Ended runs on a kind of host from which on those on other kinds are not asked.
pub const OWN_RUNS_ENOUGH: usize = 3;
/// Applications that two kinds are compared by.
const COMPARED_MAX: usize = 32;
/// Runs of each of them, the last ones.
const COMPARED_RUNS_MAX: usize = 8;
/// How far kinds are apart that nothing is known of, in logarithms: a factor of two.
const KINDS_SIGMA: f64 = 0.7;

type Kinds = BTreeMap<String, Series>;

/// See the module's page.
///
/// # Invariants
/// - Its bounds are [`APPLICATIONS_MAX`], [`KINDS_MAX`], [`RUNS_ALL_MAX`] and the one of a
///   [`Series`].
#[derive(Debug, Default)]
pub struct History {
    applications: BTreeMap<String, Kinds>,
    runs: usize,
    added: u64,
}

impl History {
    /// Adds a run. What is too much because of it goes, the oldest first.
    pub fn add(&mut self, run: Run) {
        let run = run.bounded();
        self.added += 1;
        let kinds = self.applications.entry(run.application.clone()).or_default();
        let series = kinds.entry(run.kind.clone()).or_default();
        series.touched = self.added;
        self.runs += usize::from(series.add(run.clone()));
        if kinds.len() > KINDS_MAX {
            let oldest = kinds.iter().min_by_key(|(_, series)| series.touched);
            let oldest = oldest.map(|(kind, _)| kind.clone());
            self.drop_series(&run.application, oldest.as_deref());
        }
        if self.applications.len() > APPLICATIONS_MAX {
            let last = |kinds: &Kinds| kinds.values().map(|series| series.touched).max();
            let oldest = self.applications.iter().min_by_key(|(_, kinds)| last(kinds));
            if let Some(oldest) = oldest.map(|(application, _)| application.clone()) {
                self.drop_series(&oldest, None);
            }
        }
        while self.runs > RUNS_ALL_MAX {
            let all = self.applications.iter().flat_map(|(application, kinds)| {
                kinds.iter().map(move |(kind, series)| (series.touched, application, kind))
            });
            let Some((_, application, kind)) = all.min() else { break };
            let (application, kind) = (application.clone(), kind.clone());
            self.drop_series(&application, Some(&kind));
        }
    }

    /// Forgets one kind of an application, or all of it.
    fn drop_series(&mut self, application: &str, kind: Option<&str>) {
        let Some(kinds) = self.applications.get_mut(application) else { return };
        let gone = match kind {
            Some(kind) => kinds.remove(kind).map_or(0, |series| series.len()),
            None => std::mem::take(kinds).values().map(Series::len).sum(),
        };
        self.runs -= gone;
        if kinds.is_empty() {
            self.applications.remove(application);
        }
    }

    /// How many runs it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs == 0
    }

    /// All runs: those of one series in the order in which they came.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.applications.values().flat_map(BTreeMap::values).flat_map(Series::runs)
    }

    /// All applications with their kinds of hosts, by name.
    pub fn applications(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, Series>)> {
        self.applications.iter().map(|(application, kinds)| (application.as_str(), kinds))
    }

    /// The kinds of hosts that an application ran on.
    #[must_use]
    pub fn kinds(&self, application: &str) -> Option<&BTreeMap<String, Series>> {
        self.applications.get(application)
    }

    /// How long a run of an application with such features will take on a kind of host, by what
    /// goes by.
    pub fn predict(
        &mut self,
        application: &str,
        kind: &str,
        features: &BTreeMap<String, f64>,
    ) -> Option<Prediction> {
        self.predict_by(Clock::Wall, application, kind, features)
    }

    /// The same by a clock: from its own runs where enough of them ended, else from those on
    /// another kind, times what other applications take longer here than there. None where no run
    /// of it has ended anywhere.
    pub fn predict_by(
        &mut self,
        clock: Clock,
        application: &str,
        kind: &str,
        features: &BTreeMap<String, f64>,
    ) -> Option<Prediction> {
        let kinds = self.applications.get_mut(application)?;
        let ended = |series: &mut Series| series.model(clock).map_or(0, |model| model.ended);
        let own = kinds.get_mut(kind).map_or(0, ended);
        let counts = kinds.iter_mut().map(|(other, series)| (ended(series), other));
        let (most, other) = counts.max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(a.1)))?;
        if most == 0 {
            return None;
        }
        let is_own = own >= OWN_RUNS_ENOUGH || own == most;
        let from = if is_own { kind.to_owned() } else { other.clone() };
        let (ratio, apart) = if is_own { (0.0, 0.0) } else { self.ratio(clock, &from, kind) };
        let model = self.applications.get_mut(application)?.get_mut(&from)?.model(clock)?;
        let log = model.fit.log_of(features) + ratio;
        let sigma = model.residuals.sigma();
        let spread = model.fit.spread(features).hypot(apart / sigma);
        let basis = match is_own {
            true => Basis::Own,
            false => Basis::OtherKind { kind: from, ratio: libm::exp(ratio) },
        };
        Some(Prediction::of(model, log, spread, basis))
    }

    /// By how much longer runs take on a kind of host than on another, and how far off that may be,
    /// in logarithms: over all applications that ran on both.
    fn ratio(&mut self, clock: Clock, from: &str, to: &str) -> (f64, f64) {
        let mut apart = Vec::new();
        for kinds in self.applications.values_mut() {
            if apart.len() == COMPARED_MAX {
                break;
            }
            let Some(there) = kinds.get_mut(from).and_then(|series| series.model(clock)) else {
                continue;
            };
            let fit = there.fit.clone();
            let Some(here) = kinds.get(to) else { continue };
            let ended: Vec<&Run> = here.runs().filter(|run| run.ended).collect();
            let last = ended[ended.len().saturating_sub(COMPARED_RUNS_MAX)..].iter();
            let logs: Vec<f64> = last
                .filter_map(|run| Some(run.log_time(clock)? - fit.log_of(&run.features)))
                .collect();
            if !logs.is_empty() {
                apart.push(logs.iter().sum::<f64>() / logs.len() as f64);
            }
        }
        let count = apart.len() as f64;
        // What is known of nothing counts as one application more.
        let mean = if apart.is_empty() { 0.0 } else { apart.iter().sum::<f64>() / count };
        let squares: f64 = apart.iter().map(|one| (one - mean).powi(2)).sum();
        let variance = (squares + KINDS_SIGMA.powi(2)) / (count + 1.0);
        (mean, (variance * (1.0 + 1.0 / count.max(1.0))).sqrt())
    }
}

#[cfg(test)]
mod tests;

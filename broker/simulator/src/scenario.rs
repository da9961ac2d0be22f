//! What a scenario is: a modelled world with parameters, run under several policies.

use std::collections::BTreeMap;

use crate::parameters::{Parameter, Settings};

/// A number that a run is judged by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Its name in tables and JSON; ends in its unit.
    pub name: &'static str,
    /// What it says, in one line.
    pub about: &'static str,
    /// Which way is better.
    pub better: Better,
}

/// Which way a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More of it.
    Higher,
    /// Less of it.
    Lower,
    /// Neither: it explains the others.
    Neither,
}

/// Numbers by the names of their metrics.
pub type Numbers = BTreeMap<&'static str, f64>;

/// What one run brought.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// What no policy can beat, by the names of the metrics that it bounds.
    pub bound: Numbers,
    /// The metrics of each policy, in the order in which they were asked for.
    pub policies: Vec<(&'static str, Numbers)>,
}

/// What a run is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// Values of all parameters.
    pub settings: &'a Settings,
    /// Where all chance comes from.
    pub seed: u64,
    /// Which policies, of those that the scenario has.
    pub policies: &'a [&'static str],
    /// Whether to measure what scheduling costs; only then is the outcome not reproducible.
    pub measure: bool,
}

/// Is told how far a run has come.
pub trait Progress {
    /// So many of a million parts are done.
    fn done(&self, parts_per_million: u32, what: &str);
}

/// Nobody is told.
#[derive(Debug, Clone, Copy)]
pub struct Quiet;

impl Progress for Quiet {
    fn done(&self, _parts_per_million: u32, _what: &str) {}
}

/// A modelled world.
///
/// The same order gives the same outcome on any machine, unless it asks to measure: no clock, no
/// iteration over hash maps, and of floating point only what is exact everywhere
/// ([`libm`] for what the standard library leaves to the platform).
pub trait Scenario: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it models, in one line.
    fn about(&self) -> &'static str;

    /// What can be set, in the order of listing.
    fn parameters(&self) -> Vec<Parameter>;

    /// Its policies in the order of the table: what others do first, ours last.
    fn policies(&self) -> &'static [&'static str];

    /// What it measures.
    fn metrics(&self) -> &'static [Metric];

    /// Runs it.
    ///
    /// # Errors
    /// In words for the user: which file, line or parameter is wrong and what was expected.
    fn run(&self, order: &Order<'_>, progress: &dyn Progress) -> Result<Outcome, String>;
}

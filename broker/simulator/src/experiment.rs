//! A scenario run under several policies from one seed or from many.
//!
//! # Invariants
//! - The seeds' outcomes are put together in the order of the seeds, however many threads run
//!   them: the same order gives the same comparison.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use thiserror::Error;

use crate::comparison::Comparison;
use crate::nearest::{UnknownName, find};
use crate::parameters::Settings;
use crate::scenario::{Order, Outcome, Progress, Scenario};
use crate::seeds::Seeds;

/// How often it is told how far many seeds have come.
const TELL_INTERVAL: Duration = Duration::from_millis(200);
/// What is done when all is.
const ALL_PARTS: u32 = 1_000_000;

/// A scenario with all that a run of it needs.
pub struct Experiment {
    /// What is run.
    pub scenario: &'static dyn Scenario,
    /// Values of all its parameters.
    pub settings: Settings,
    /// Which of its policies.
    pub policies: Vec<&'static str>,
    /// From which seeds.
    pub seeds: Seeds,
    /// Whether to measure what scheduling costs; then one seed runs after the other.
    pub measure: bool,
    /// How many seeds may run at once.
    pub threads: NonZero<usize>,
}

/// Why a scenario does not run: in its parameters, or in a file that they name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{scenario}{}: {why}", seed.map(|seed| format!(" from seed {seed}")).unwrap_or_default())]
pub struct ExperimentError {
    /// The scenario.
    pub scenario: &'static str,
    /// From which of several seeds.
    pub seed: Option<u64>,
    /// What is wrong and what was expected.
    pub why: String,
}

/// The policies of a scenario that are called by these names; all of them where one is `all`.
///
/// # Errors
/// The first name that none has.
pub fn policies<'a>(
    scenario: &dyn Scenario,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<&'static str>, UnknownName> {
    let known = scenario.policies();
    let mut chosen = Vec::new();
    for name in names {
        if name == "all" {
            chosen.extend_from_slice(known);
        } else {
            let of = Some(scenario.name());
            chosen.push(find("policy", name, of, known.iter().copied())?);
        }
    }
    // In the order of the scenario, and each once, whatever the order of the names.
    Ok(known.iter().copied().filter(|policy| chosen.contains(policy)).collect())
}

impl Experiment {
    /// Runs it to its end.
    ///
    /// # Errors
    /// What the scenario finds wrong, from the first seed that finds something.
    pub fn run(&self, progress: &dyn Progress) -> Result<Comparison, ExperimentError> {
        let mut comparison =
            Comparison::new(self.scenario.name(), self.seeds.clone(), self.settings.clone());
        let threads = if self.measure { 1 } else { self.threads.get() };
        if self.seeds.count() == 1 || threads == 1 {
            for (place, seed) in self.seeds.iter().enumerate() {
                let one = OneOf { all: progress, place: place as u64, count: self.seeds.count() };
                comparison.add(&self.outcome(seed, &one)?);
            }
        } else {
            self.run_at_once(threads, progress, |outcome| comparison.add(outcome))?;
        }
        Ok(comparison)
    }

    /// Runs several seeds at once and gives what they bring to `take`, in order.
    fn run_at_once(
        &self,
        threads: usize,
        progress: &dyn Progress,
        mut take: impl FnMut(&Outcome),
    ) -> Result<(), ExperimentError> {
        let count = self.seeds.count();
        let threads = usize::try_from(count).map_or(threads, |count| count.min(threads));
        let next = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let parts: Vec<Part> = (0..threads).map(|_| Part::default()).collect();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            for part in &parts {
                let (sender, next, stop) = (sender.clone(), &next, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        if place >= count {
                            break;
                        }
                        part.0.store(0, Ordering::Relaxed);
                        let outcome = self.outcome(self.seeds.at(place), part);
                        part.0.store(0, Ordering::Relaxed);
                        if sender.send((place, outcome)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            let mut early = BTreeMap::new();
            let mut ended = 0;
            let mut taken = 0;
            while taken < count {
                match receiver.recv_timeout(TELL_INTERVAL) {
                    Ok((place, outcome)) => {
                        ended += 1;
                        early.insert(place, outcome);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    // A thread panicked; the scope tells of it.
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                while let Some(outcome) = early.remove(&taken) {
                    match outcome {
                        Ok(outcome) => take(&outcome),
                        Err(error) => {
                            stop.store(true, Ordering::Relaxed);
                            return Err(error);
                        }
                    }
                    taken += 1;
                }
                let running: u64 = parts.iter().map(Part::done_so_far).sum();
                let done = (ended * u64::from(ALL_PARTS) + running) / count;
                let done = u32::try_from(done).unwrap_or(ALL_PARTS).min(ALL_PARTS);
                progress.done(done, &format!("{ended} of {count} seeds"));
            }
            Ok(())
        })
    }

    fn outcome(&self, seed: u64, progress: &dyn Progress) -> Result<Outcome, ExperimentError> {
        let Self { scenario, settings, policies, seeds, measure, .. } = self;
        let order = Order { settings, seed, policies, measure: *measure };
        scenario.run(&order, progress).map_err(|why| {
            let seed = matches!(seeds, Seeds::Several(_)).then_some(seed);
            ExperimentError { scenario: scenario.name(), seed, why }
        })
    }
}

/// How far one seed has come, for the thread that tells of all.
#[derive(Debug, Default)]
struct Part(AtomicU32);

impl Part {
    fn done_so_far(&self) -> u64 {
        u64::from(self.0.load(Ordering::Relaxed))
    }
}

impl Progress for Part {
    fn done(&self, parts_per_million: u32, _what: &str) {
        self.0.store(parts_per_million.min(ALL_PARTS), Ordering::Relaxed);
    }
}

/// Tells of one seed as a part of all.
struct OneOf<'a> {
    all: &'a dyn Progress,
    place: u64,
    count: u64,
}

impl Progress for OneOf<'_> {
    fn done(&self, parts_per_million: u32, what: &str) {
        let parts = u64::from(parts_per_million.min(ALL_PARTS));
        let done = (self.place * u64::from(ALL_PARTS) + parts) / self.count;
        let done = u32::try_from(done).unwrap_or(ALL_PARTS);
        if self.count == 1 {
            self.all.done(done, what);
        } else {
            self.all.done(done, &format!("seed {} of {}: {what}", self.place + 1, self.count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;
    use crate::parameters::Parameter;
    use crate::scenario::{Metric, Numbers, Quiet};
    use std::cell::RefCell;

    /// Throws dice; some seeds take longer than those after them.
    struct Game;

    impl Scenario for Game {
        fn name(&self) -> &'static str {
            "game"
        }
        fn about(&self) -> &'static str {
            "a game"
        }
        fn parameters(&self) -> Vec<Parameter> {
            vec![Parameter::count("bad", 99, (0, 99), "seed that does not run", "this test")]
        }
        fn policies(&self) -> &'static [&'static str] {
            &["plain", "careful", "gleaner"]
        }
        fn metrics(&self) -> &'static [Metric] {
            &[]
        }
        fn run(&self, order: &Order<'_>, progress: &dyn Progress) -> Result<Outcome, String> {
            if order.seed >= order.settings.count("bad") {
                return Err("it is bad".to_owned());
            }
            progress.done(500_000, "half");
            thread::sleep(Duration::from_millis(if order.seed.is_multiple_of(3) { 5 } else { 0 }));
            let throw = |place| Dice::new(order.seed, place).unit();
            let policies = order.policies.iter().zip(1..);
            let numbers = |place| Numbers::from([("points", throw(place))]);
            progress.done(1_000_000, "all");
            Ok(Outcome {
                bound: numbers(0),
                policies: policies.map(|(policy, place)| (*policy, numbers(place))).collect(),
            })
        }
    }

    fn experiment(seeds: Seeds, threads: usize) -> Experiment {
        Experiment {
            scenario: &Game,
            settings: Settings::defaults(&Game.parameters()),
            policies: policies(&Game, ["all"]).expect("all"),
            seeds,
            measure: false,
            threads: NonZero::new(threads).expect("some"),
        }
    }

    #[test]
    fn however_many_threads_run_it_the_comparison_is_the_same() {
        let alone = experiment(Seeds::Several(0..20), 1).run(&Quiet).expect("it runs");
        assert_eq!(alone.bound["points"].count(), 20);
        for threads in [2, 7, 64] {
            let together = experiment(Seeds::Several(0..20), threads).run(&Quiet);
            assert_eq!(together.expect("it runs"), alone);
        }
    }

    #[test]
    fn the_first_bad_seed_is_named() {
        for threads in [1, 4] {
            let mut bad = experiment(Seeds::Several(0..20), threads);
            bad.settings = crate::setting::settings(&Game, ["bad=5"]).expect("a parameter");
            let error = bad.run(&Quiet).expect_err("seed 5 does not run");
            assert_eq!(error.to_string(), "game from seed 5: it is bad");
        }
        let error = experiment(Seeds::One(u64::MAX), 1).run(&Quiet).expect_err("it is over 99");
        assert_eq!(error.to_string(), "game: it is bad");
    }

    #[test]
    fn policies_are_named_once_in_the_order_of_the_scenario() {
        assert_eq!(policies(&Game, ["all"]), Ok(vec!["plain", "careful", "gleaner"]));
        let two = policies(&Game, ["gleaner", "plain", "gleaner"]);
        assert_eq!(two, Ok(vec!["plain", "gleaner"]));
        let error = policies(&Game, ["gleener"]).expect_err("a slip");
        assert!(error.to_string().contains("no policy \"gleener\" in game; nearest: gleaner"));
    }

    #[derive(Default)]
    struct Told(RefCell<Vec<(u32, String)>>);

    impl Progress for Told {
        fn done(&self, parts_per_million: u32, what: &str) {
            self.0.borrow_mut().push((parts_per_million, what.to_owned()));
        }
    }

    #[test]
    fn progress_goes_from_the_first_seed_to_the_last() {
        let told = Told::default();
        experiment(Seeds::Several(1..3), 1).run(&told).expect("it runs");
        let told = told.0.into_inner();
        assert_eq!(told[0], (250_000, "seed 1 of 2: half".to_owned()));
        assert_eq!(told[3], (1_000_000, "seed 2 of 2: all".to_owned()));
        let told = Told::default();
        experiment(Seeds::Several(1..30), 2).run(&told).expect("it runs");
        let last = told.0.into_inner().pop().expect("it tells");
        assert_eq!(last, (1_000_000, "29 of 29 seeds".to_owned()));
    }
}

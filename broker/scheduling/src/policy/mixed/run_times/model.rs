//! What all runs say together: the logarithm of a time is a sum of parts of an application, of a kind
//! of host, of the two together, and of the size of the work.
//!
//! Each part is drawn to none of it, the more the fewer runs tell of it, as the best linear unbiased
//! prediction of random effects is.
//!
//! Source: C. R. Henderson, "Best Linear Unbiased Estimation and Prediction under a Selection Model",
//! 1975.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Entry, RUN_SIGMA, RUN_SIGMA_RUNS};
use super::{Belief, EntryIx};

/// Variances of the parts of applications and of kinds, in squares of logarithms.
const OF_APPLICATION: f64 = 4.0;
const OF_KIND: f64 = 1.0;
/// The same of an application on a kind, and for how many entries that counts.
const OF_BOTH: f64 = 0.09;
const OF_BOTH_ENTRIES: f64 = 4.0;
/// By how much a power of the size spreads about that of all applications, squared; and that itself
/// about none.
const OF_POWER: f64 = 0.25;
/// How often the parts are gone through: each time what is left is a fraction of it.
const SWEEPS: usize = 12;

/// A part and how sure it is.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    value: f64,
    /// Sum of the weights of the entries that tell of it.
    weight: f64,
}

/// With which power of its size the time of work grows.
#[derive(Debug, Clone, Copy)]
struct Power {
    value: f64,
    variance: f64,
    /// The mean size of the runs that tell of it.
    size: f64,
}

/// An entry, as the fit sees it.
struct Row {
    /// Places of its application and of its kind among the parts.
    application: usize,
    kind: usize,
    /// Mean logarithm of its runs, as if they were of mean size.
    log: f64,
    count: f64,
    weight: f64,
}

/// The parts that rows have in common.
#[derive(Debug, Default)]
struct Parts {
    mean: f64,
    applications: Vec<Part>,
    kinds: Vec<Part>,
}

/// Sums over the runs of an entry, or of all entries of an application, about the means of each entry.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    sizes: f64,
    both: f64,
    logs: f64,
    /// Runs beyond the first of each entry.
    free: f64,
    /// All runs, and the sum of their sizes.
    count: f64,
    size: f64,
}

/// What was learned.
#[derive(Debug)]
pub(super) struct Model {
    mean: f64,
    /// The size that times are of, and the power of all applications.
    size: f64,
    power: Power,
    powers: BTreeMap<u32, Power>,
    applications: BTreeMap<u32, Part>,
    kinds: BTreeMap<u32, Part>,
    /// The part of both, and how many runs tell of it.
    entries: BTreeMap<EntryIx, Part>,
    of_both: f64,
    of_run: f64,
}

impl Model {
    /// Of all entries; none where there is none.
    pub(super) fn of(entries: &BTreeMap<EntryIx, Entry>) -> Option<Self> {
        let runs = entries.values().flat_map(Entry::runs);
        let count = runs.clone().count() as f64;
        if count == 0.0 {
            return None;
        }
        let size = runs.map(|run| run.size).sum::<f64>() / count;
        let before = RUN_SIGMA * RUN_SIGMA;
        let mut sums: BTreeMap<u32, Sums> = BTreeMap::new();
        for (of, entry) in entries {
            sums.entry(of.application).or_default().add(Sums::of(entry));
        }
        let mut all = Sums::default();
        sums.values().for_each(|of| all.add(*of));
        let prior = before / OF_POWER;
        let power = Power {
            value: all.both / (all.sizes + prior),
            variance: OF_POWER + before / (all.sizes + prior),
            size,
        };
        let power_of = |of: &Sums| Power {
            value: (of.both + prior * power.value) / (of.sizes + prior),
            variance: before / (of.sizes + prior),
            size: of.size / of.count,
        };
        let powers: BTreeMap<u32, Power> =
            sums.iter().map(|(number, of)| (*number, power_of(of))).collect();
        let left: f64 = sums.iter().map(|(number, of)| of.left(powers[number].value)).sum();
        let of_run = (RUN_SIGMA_RUNS * before + left) / (RUN_SIGMA_RUNS + all.free);
        let (applications, kinds) = (
            Places::of(entries.keys().map(|of| of.application)),
            Places::of(entries.keys().map(|of| of.kind)),
        );
        let row = |(of, entry): (&EntryIx, &Entry)| {
            let count = entry.runs().len() as f64;
            let power = powers[&of.application].value;
            let logs = entry.runs().map(|run| run.log - power * (run.size - size));
            let log = logs.sum::<f64>() / count;
            let (application, kind) = (applications.at(of.application), kinds.at(of.kind));
            Row { application, kind, log, count, weight: 0.0 }
        };
        let mut rows: Vec<Row> = entries.iter().map(row).collect();
        // The second time with the spread that the first one leaves.
        let none = || vec![Part::default(); applications.count()];
        let mut parts =
            Parts { mean: 0.0, applications: none(), kinds: vec![Part::default(); kinds.count()] };
        parts.fit(&mut rows, OF_BOTH, of_run);
        let squares: f64 = rows.iter().map(|row| parts.left(row).powi(2)).sum();
        // As many are free as there are entries beyond those that the parts take up.
        let taken = (applications.count() + kinds.count()) as f64 - 1.0;
        let free = (rows.len() as f64 - taken).max(0.0);
        let of_both = (OF_BOTH_ENTRIES * OF_BOTH + squares) / (OF_BOTH_ENTRIES + free);
        parts.fit(&mut rows, of_both, of_run);
        let both = |row: &Row| {
            let own = of_both / (of_both + of_run / row.count);
            Part { value: own * parts.left(row), weight: row.count }
        };
        Some(Self {
            mean: parts.mean,
            size,
            power,
            powers,
            entries: entries.keys().copied().zip(rows.iter().map(both)).collect(),
            applications: applications.with(&parts.applications),
            kinds: kinds.with(&parts.kinds),
            of_both,
            of_run,
        })
    }

    /// What is expected of an entry, for work of a size.
    pub(super) fn predict(&self, of: EntryIx, size: f64) -> Belief {
        let part = |parts: &BTreeMap<u32, Part>, of| parts.get(&of).copied().unwrap_or_default();
        let application = part(&self.applications, of.application);
        let kind = part(&self.kinds, of.kind);
        let both = self.entries.get(&of).copied().unwrap_or_default();
        let power = self.powers.get(&of.application).copied().unwrap_or(self.power);
        let log = self.mean + application.value + kind.value + both.value;
        let unsure = |part: Part, variance: f64| 1.0 / (part.weight + 1.0 / variance);
        let of_both = 1.0 / (1.0 / self.of_both + both.weight / self.of_run);
        // An entry's own runs tell of all its parts at once.
        let of_parts = if both.weight > 0.0 { 0.0 } else { 1.0 };
        let of_place = of_both + of_parts * unsure(kind, OF_KIND);
        let of_size = power.variance * (size - power.size) * (size - power.size);
        let variance = of_place + of_parts * unsure(application, OF_APPLICATION) + of_size;
        Belief { log: log + power.value * (size - self.size), variance, of_place }
    }
}

/// Numbers in order, each once: its place is where its part is.
struct Places(Vec<u32>);

impl Places {
    fn of(numbers: impl Iterator<Item = u32>) -> Self {
        let numbers: BTreeSet<u32> = numbers.collect();
        Self(numbers.into_iter().collect())
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn at(&self, number: u32) -> usize {
        self.0.binary_search(&number).expect("places are of all entries")
    }

    fn with(&self, parts: &[Part]) -> BTreeMap<u32, Part> {
        self.0.iter().copied().zip(parts.iter().copied()).collect()
    }
}

impl Parts {
    /// Goes through the parts again and again: each is what the others leave of its rows, drawn to
    /// none.
    fn fit(&mut self, rows: &mut [Row], of_both: f64, of_run: f64) {
        let mut weights = 0.0;
        self.applications.iter_mut().chain(&mut self.kinds).for_each(|part| part.weight = 0.0);
        for row in rows.iter_mut() {
            row.weight = 1.0 / (of_both + of_run / row.count);
            weights += row.weight;
            self.applications[row.application].weight += row.weight;
            self.kinds[row.kind].weight += row.weight;
        }
        for _ in 0..SWEEPS {
            let left = rows.iter().map(|row| row.weight * self.left(row)).sum::<f64>();
            self.mean += left / weights;
            let kinds = self.sums(rows, self.kinds.len(), |row| row.kind);
            draw(&mut self.kinds, &kinds, OF_KIND);
            let applications = self.sums(rows, self.applications.len(), |row| row.application);
            draw(&mut self.applications, &applications, OF_APPLICATION);
        }
    }

    /// What all parts leave, weighted, of the rows at each place.
    fn sums(&self, rows: &[Row], count: usize, place: impl Fn(&Row) -> usize) -> Vec<f64> {
        let mut sums = vec![0.0; count];
        rows.iter().for_each(|row| sums[place(row)] += row.weight * self.left(row));
        sums
    }

    /// What the parts leave of a row.
    fn left(&self, row: &Row) -> f64 {
        let Self { mean, applications, kinds } = self;
        row.log - mean - applications[row.application].value - kinds[row.kind].value
    }
}

/// Adds to parts what is left of them, where the prior of each has this variance.
fn draw(parts: &mut [Part], left: &[f64], variance: f64) {
    for (part, left) in parts.iter_mut().zip(left) {
        part.value = (left + part.weight * part.value) / (part.weight + 1.0 / variance);
    }
}

impl Sums {
    fn of(entry: &Entry) -> Self {
        let runs = entry.runs();
        let count = runs.len() as f64;
        let size = runs.clone().map(|run| run.size).sum::<f64>() / count;
        let log = runs.clone().map(|run| run.log).sum::<f64>() / count;
        let mut sums = Self { free: count - 1.0, count, size: count * size, ..Self::default() };
        for run in runs {
            sums.sizes += (run.size - size) * (run.size - size);
            sums.both += (run.size - size) * (run.log - log);
            sums.logs += (run.log - log) * (run.log - log);
        }
        sums
    }

    fn add(&mut self, other: Self) {
        self.sizes += other.sizes;
        self.both += other.both;
        self.logs += other.logs;
        self.free += other.free;
        self.count += other.count;
        self.size += other.size;
    }

    /// The squares that a power of the size leaves.
    fn left(&self, power: f64) -> f64 {
        (self.logs - 2.0 * power * self.both + power * power * self.sizes).max(0.0)
    }
}

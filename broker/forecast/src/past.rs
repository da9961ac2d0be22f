//! The record as futures are made of it: sums from its beginning, and how its moments are alike.

use crate::limits::{
    DEVIATION_MIN_SHARE, FRESH_DAYS, OTHER_DAY_COST, STEPS_PER_DAY, STEPS_PER_HOUR, STRIDE,
    WIDTH_DEVIATIONS, WIDTH_STEPS,
};
use crate::record::CapacityRecord;

/// How long the means are by which moments are compared, in steps.
const BACK: [usize; 3] = [STEPS_PER_HOUR, 6 * STEPS_PER_HOUR, STEPS_PER_DAY];

pub(crate) struct Past {
    open: Vec<f32>,
    idle: Vec<f32>,
    /// Of the steps before each place.
    open_sums: Vec<f64>,
    unknown_sums: Vec<u32>,
    idle_now: f64,
    pub(crate) open_now: f64,
    /// Cores of the farm, as far as they were ever seen idle.
    pub(crate) cores: f64,
}

/// A past moment, and how much it weighs.
pub(crate) struct Alike {
    /// The last step of its own past.
    pub(crate) place: usize,
    pub(crate) weight: f64,
}

impl Past {
    pub(crate) fn of(record: &CapacityRecord) -> Self {
        let (idle_now, open_now) = record.now();
        let mut past = Self {
            open: record.steps().map(|step| step.open).collect(),
            idle: record.steps().map(|step| step.idle).collect(),
            open_sums: Vec::with_capacity(record.len() + 1),
            unknown_sums: Vec::with_capacity(record.len() + 1),
            idle_now: idle_now.into(),
            open_now: open_now.into(),
            cores: record.cores().into(),
        };
        let (mut sum, mut unknown) = (0.0, 0);
        past.open_sums.push(sum);
        past.unknown_sums.push(unknown);
        for step in record.steps() {
            sum += f64::from(step.open);
            unknown += u32::from(!step.known);
            past.open_sums.push(sum);
            past.unknown_sums.push(unknown);
        }
        past
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn open(&self, place: usize) -> f64 {
        self.open[place].into()
    }

    /// Mean open cores of `steps` steps from `place` on.
    pub(crate) fn mean(&self, place: usize, steps: usize) -> f64 {
        (self.open_sums[place + steps] - self.open_sums[place]) / steps as f64
    }

    /// Mean of the last steps up to `place` and with it.
    fn mean_back(&self, place: usize, steps: usize) -> f64 {
        let steps = steps.min(place + 1);
        self.mean(place + 1 - steps, steps)
    }

    /// The mean of the day up to `place`.
    pub(crate) fn day(&self, place: usize) -> f64 {
        self.mean_back(place, STEPS_PER_DAY)
    }

    /// How much of what is known lies before now, in hours.
    pub(crate) fn known_hours(&self) -> f64 {
        let unknown = self.unknown_sums.last().copied().unwrap_or(0) as usize;
        (self.len() - unknown) as f64 / STEPS_PER_HOUR as f64
    }

    fn deviation(&self) -> f64 {
        let count = self.len().max(1) as f64;
        let mean = self.open_sums.last().copied().unwrap_or(0.0) / count;
        let square = |open: &f32| (f64::from(*open) - mean) * (f64::from(*open) - mean);
        let deviation = libm::sqrt(self.open.iter().map(square).sum::<f64>() / count);
        deviation.max(DEVIATION_MIN_SHARE * self.cores).max(0.5)
    }

    /// Moments that have `steps` steps behind them which are known, whatever they were like.
    pub(crate) fn moments(&self, steps: usize) -> impl Iterator<Item = usize> + '_ {
        let first = self.len().wrapping_sub(1) % STRIDE;
        let end = self.len().saturating_sub(steps);
        let is_known = move |place: &usize| {
            let until = *place + 1 + steps;
            let unknown = self.unknown_sums[until] - self.unknown_sums[*place];
            10 * unknown as usize <= steps + 1
        };
        (first..end).step_by(STRIDE).filter(is_known)
    }

    /// The same with their weights, the largest of which is 1.
    pub(crate) fn alike(&self, steps: usize) -> Vec<Alike> {
        let Some(last) = self.len().checked_sub(1) else { return Vec::new() };
        let width = WIDTH_DEVIATIONS * self.deviation();
        let now = BACK.map(|back| self.mean_back(last, back));
        let mut alike = Vec::with_capacity(self.len() / STRIDE + 1);
        let mut largest = f64::NEG_INFINITY;
        for place in self.moments(steps) {
            let square = |difference: f64| difference * difference / (width * width);
            let mut distance = square(self.open(place) - self.open_now)
                + square(f64::from(self.idle[place]) - self.idle_now);
            for (back, now) in BACK.iter().zip(now) {
                distance += square(self.mean_back(place, *back) - now);
            }
            let ago = last - place;
            let off = ago % STEPS_PER_DAY;
            let off = off.min(STEPS_PER_DAY - off) as f64 / WIDTH_STEPS;
            let days = (ago + STEPS_PER_DAY / 2) / STEPS_PER_DAY;
            let other_day = if days.is_multiple_of(7) { 0.0 } else { OTHER_DAY_COST };
            let old = ago as f64 / (STEPS_PER_DAY as f64 * FRESH_DAYS);
            let weight = -0.5 * (distance + off * off) - other_day - old;
            largest = largest.max(weight);
            alike.push(Alike { place, weight });
        }
        for moment in &mut alike {
            moment.weight = libm::exp(moment.weight - largest);
        }
        alike
    }

    /// How long a difference of open cores lasts, in steps: by how alike the farm is an hour later.
    pub(crate) fn memory_steps(&self) -> f64 {
        const LAG: usize = STEPS_PER_HOUR;
        const LEAST: f64 = STEPS_PER_HOUR as f64;
        const MOST: f64 = STEPS_PER_DAY as f64;
        let Some(pairs) = self.len().checked_sub(LAG).filter(|pairs| *pairs > 2 * LAG) else {
            return 6.0 * LEAST;
        };
        let before = self.mean(0, pairs);
        let after = self.mean(LAG, pairs);
        let (mut both, mut first, mut second) = (0.0, 0.0, 0.0);
        for place in 0..pairs {
            let (a, b) = (self.open(place) - before, self.open(place + LAG) - after);
            both += a * b;
            first += a * a;
            second += b * b;
        }
        let alike = if first * second > 0.0 { both / libm::sqrt(first * second) } else { 1.0 };
        let alike = alike.clamp(0.05, 0.995);
        (-(LAG as f64) / libm::log(alike)).clamp(LEAST, MOST)
    }
}

//! Sampled futures: how many cores may be open in the next hours.
//!
//! Most of them are past hours that began as this one does: as many cores idle and open now and
//! on average over the last hour, six hours and day, at the same time of day, on the same day of
//! the week if there is one. A tenth are any past hours. Each is moved so that it begins with what
//! is open now, and comes back to itself as fast as differences vanish on this farm: cores that
//! are open survive for a while, whatever happened in the past. Where there is little history, a
//! share of the futures jumps at some time to any number of cores.

use crate::chances::Chances;
use crate::grid::{Cell, grid};
use crate::limits::{
    ALIKE_MIN, ANY_SHARE, LEVEL_SHARE, PRIOR_HOURS, PRIOR_JUMP_HOURS, STEP_S, STEPS_PER_HOUR,
};
use crate::past::{Alike, Past};
use crate::record::CapacityRecord;

/// Purposes of random numbers.
const PLACES: u64 = 11;
const PRIOR: u64 = 12;

/// Sampled paths of open cores, from now to a horizon.
#[derive(Debug, Clone, PartialEq)]
pub struct Futures {
    pub(crate) cells: Vec<Cell>,
    /// Path by path, a number of cores for each cell.
    pub(crate) cores: Vec<f32>,
    pub(crate) count: usize,
}

impl Futures {
    /// Samples `count` paths from what was recorded, each as likely as the others.
    #[must_use]
    pub fn sampled(record: &CapacityRecord, horizon_s: f64, count: usize, seed: u64) -> Self {
        let past = Past::of(record);
        let cells = grid(horizon_s);
        let alike = past.alike(steps_of(&cells));
        let known = past.known_hours();
        let unlike =
            if alike.len() < ALIKE_MIN { 1.0 } else { PRIOR_HOURS / (PRIOR_HOURS + known) };
        let prior = libm::round(unlike * count as f64) as usize;
        let mut futures = Self { cells, cores: Vec::new(), count };
        futures.cores.reserve(count * futures.cells.len());
        futures.add_prior(&past, prior, seed);
        futures.add_alike(&past, &alike, count - prior, seed);
        futures
    }

    /// Samples any past hours as they were: what the farm is like, without looking at it now. With
    /// none, as many cores as now.
    #[must_use]
    pub fn any(record: &CapacityRecord, horizon_s: f64, count: usize, seed: u64) -> Self {
        let past = Past::of(record);
        let cells = grid(horizon_s);
        let places: Vec<usize> = past.moments(steps_of(&cells)).collect();
        if places.is_empty() {
            return Self::steady(record.now().1.into(), horizon_s, count);
        }
        let mut chances = Chances::new(seed, PLACES);
        let mut cores = Vec::with_capacity(count * cells.len());
        for path in 0..count {
            let share = (path as f64 + chances.unit()) / count as f64;
            let place = places[(share * places.len() as f64) as usize];
            cores.extend(
                cells.iter().map(|cell| past.mean(place + 1 + cell.from, cell.steps) as f32),
            );
        }
        Self { cells, cores, count }
    }

    /// Paths on which nothing changes.
    #[must_use]
    pub fn steady(open: f64, horizon_s: f64, count: usize) -> Self {
        Self::known(|_, _| open, horizon_s, count)
    }

    /// Paths that are all as `mean(from_s, until_s)` says, in seconds from now.
    #[must_use]
    pub fn known(mean: impl Fn(f64, f64) -> f64, horizon_s: f64, count: usize) -> Self {
        let cells = grid(horizon_s);
        let at = |step: usize| step as f64 * STEP_S as f64;
        let one = |cell: &Cell| mean(at(cell.from), at(cell.from + cell.steps)) as f32;
        let path: Vec<f32> = cells.iter().map(one).collect();
        let cores = path.iter().copied().cycle().take(count * path.len()).collect();
        Self { cells, cores, count }
    }

    /// How many paths there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Until when they reach, in seconds from now.
    #[must_use]
    pub fn horizon_s(&self) -> f64 {
        steps_of(&self.cells) as f64 * STEP_S as f64
    }

    pub(crate) fn path(&self, path: usize) -> &[f32] {
        &self.cores[path * self.cells.len()..(path + 1) * self.cells.len()]
    }

    /// The mean open cores of each path from now to `until_s`.
    #[must_use]
    pub fn means(&self, until_s: f64) -> Vec<f32> {
        let until = libm::ceil(until_s.max(1.0) / STEP_S as f64) as usize;
        let cells = self.cells.iter().filter(|cell| cell.from < until).count();
        let steps: usize = self.cells[..cells].iter().map(|cell| cell.steps).sum();
        let mean = |path: usize| {
            let cores = self.path(path)[..cells].iter().zip(&self.cells);
            let sum: f64 = cores.map(|(cores, cell)| f64::from(*cores) * cell.steps as f64).sum();
            (sum / steps as f64) as f32
        };
        (0..self.count).map(mean).collect()
    }

    /// Paths from no history: after some time any number of cores is open.
    fn add_prior(&mut self, past: &Past, count: usize, seed: u64) {
        let mut chances = Chances::new(seed, PRIOR);
        let most = past.cores.max(past.open_now);
        for _ in 0..count {
            let jump_h = -PRIOR_JUMP_HOURS * libm::log(1.0 - chances.unit());
            let jump = jump_h * STEPS_PER_HOUR as f64;
            let level = most * chances.unit();
            self.cores.extend(self.cells.iter().map(|cell| {
                let middle = cell.from as f64 + 0.5 * cell.steps as f64;
                let cores = if middle < jump { past.open_now } else { level };
                cores as f32
            }));
        }
    }

    /// Paths from moments, by their weights.
    fn add_alike(&mut self, past: &Past, alike: &[Alike], count: usize, seed: u64) {
        let sum: f64 = alike.iter().map(|moment| moment.weight).sum();
        let any = ANY_SHARE / alike.len().max(1) as f64;
        let share = |moment: &Alike| (1.0 - ANY_SHARE) * moment.weight / sum + any;
        let memory = past.memory_steps();
        // What is left of a difference, on average over each cell.
        let left = |cell: &Cell| {
            let at = |step: usize| libm::exp(-(step as f64) / memory);
            memory * (at(cell.from) - at(cell.from + cell.steps)) / cell.steps as f64
        };
        let left: Vec<f64> = self.cells.iter().map(left).collect();
        let last = past.len().saturating_sub(1);
        let mut chances = Chances::new(seed, PLACES);
        let start = chances.unit();
        let (mut moments, mut until) = (alike.iter(), 0.0);
        let mut moment = None;
        for path in 0..count {
            let wanted = (path as f64 + start) / count as f64;
            while until <= wanted {
                let Some(next) = moments.next() else { break };
                until += share(next);
                moment = Some(next);
            }
            let place = moment.expect("a path is asked for where there are moments").place;
            let now = past.open_now - past.open(place);
            let level = LEVEL_SHARE * (past.day(last) - past.day(place));
            self.cores.extend(self.cells.iter().zip(&left).map(|(cell, left)| {
                let then = past.mean(place + 1 + cell.from, cell.steps);
                let moved = then + now * left + level * (1.0 - left);
                moved.clamp(0.0, past.cores) as f32
            }));
        }
    }
}

fn steps_of(cells: &[Cell]) -> usize {
    cells.last().map_or(0, |cell| cell.from + cell.steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;

    /// Twenty cores by night, four from eight to twenty.
    fn studio(days: f64) -> CapacityRecord {
        let mut record = CapacityRecord::default();
        for step in 0..(days * 288.0) as u64 {
            let hour = (step % 288) / 12;
            let open = if (8..20).contains(&hour) { 4 } else { 20 };
            record.observe(step * STEP_S, open, open);
        }
        record
    }

    fn mean_at(futures: &Futures, cell: usize) -> f64 {
        let at = |path: usize| f64::from(futures.path(path)[cell]);
        (0..futures.count()).map(at).sum::<f64>() / futures.count() as f64
    }

    #[test]
    fn a_farm_that_knows_its_days_sees_the_evening_come() {
        // At six in the evening; two hours later, all is open.
        let record = studio(40.75);
        let futures = Futures::sampled(&record, 6.0 * 3600.0, 1000, 1);
        assert!((mean_at(&futures, 0) - 4.0).abs() < 1.0, "{}", mean_at(&futures, 0));
        let night = mean_at(&futures, futures.cells.len() - 1);
        assert!(night > 15.0, "{night}");
        assert!(futures.cores.iter().all(|cores| (0.0..=20.0).contains(cores)));
    }

    #[test]
    fn a_farm_without_history_says_that_anything_may_come() {
        let mut record = CapacityRecord::default();
        record.observe(0, 20, 20);
        record.advance(3600);
        let futures = Futures::sampled(&record, DAY_S as f64, 1000, 1);
        let mut means = futures.means(DAY_S as f64);
        means.sort_unstable_by(f32::total_cmp);
        assert!(means[100] < 8.0 && means[900] > 16.0, "{} {}", means[100], means[900]);
        // Of the first minutes it is surer, yet not sure.
        assert!(mean_at(&futures, 0) > 19.0);
    }

    #[test]
    fn it_begins_with_what_is_open_now_and_comes_back_to_what_was() {
        let mut record = CapacityRecord::default();
        for step in 0..2000 {
            record.observe(step * STEP_S, 50, 50 - u32::from(step % 5 == 0));
        }
        record.observe(2000 * STEP_S, 50, 10);
        let futures = Futures::sampled(&record, DAY_S as f64, 400, 1);
        let (first, last) = (mean_at(&futures, 0), mean_at(&futures, futures.cells.len() - 1));
        assert!(first < 20.0 && last > 30.0, "{first} {last}");
    }

    #[test]
    fn the_same_seed_samples_the_same() {
        let record = studio(9.3);
        let sample = |seed| Futures::sampled(&record, DAY_S as f64, 100, seed);
        assert_eq!(sample(1), sample(1));
        assert_ne!(sample(1), sample(2));
        assert_eq!(Futures::any(&record, 3600.0, 50, 1), Futures::any(&record, 3600.0, 50, 1));
    }

    #[test]
    fn nothing_recorded_is_nothing_to_harvest() {
        let futures = Futures::sampled(&CapacityRecord::default(), 3600.0, 10, 1);
        assert!(futures.cores.iter().all(|cores| *cores == 0.0));
        assert_eq!(futures.means(3600.0), [0.0; 10]);
        assert_eq!(Futures::any(&CapacityRecord::default(), 60.0, 2, 1).count(), 2);
        assert_eq!(Futures::steady(3.0, 3600.0, 2).means(1800.0), [3.0, 3.0]);
    }
}

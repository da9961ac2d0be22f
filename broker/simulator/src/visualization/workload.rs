//! Who asks for which frames, and when.

use gleaner_protocol::{Span, Time};

use crate::dice::Dice;

/// What a day at the service is made of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Demand {
    pub(crate) length: Span,
    pub(crate) interactive_jobs: usize,
    pub(crate) batch_jobs: usize,
    pub(crate) datasets: usize,
    /// Between two frames of an action.
    pub(crate) interval: Span,
    /// Mean length of an action, in seconds.
    pub(crate) action_s: f64,
    pub(crate) lengths: Lengths,
    /// Exponent of the popularity of datasets: 0 is uniform.
    pub(crate) zipf: f64,
    /// Frames of a batch request.
    pub(crate) batch_frames: usize,
}

/// How the lengths of actions are distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lengths {
    Constant,
    Exponential,
}

/// A rendering job: one frame of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) at: Time,
    pub(crate) dataset: u32,
    /// The user action that it belongs to; `None` for a batch job.
    pub(crate) action: Option<u32>,
    /// How much there is to render of each chunk, in thousandths of what is usual.
    pub(crate) work_permille: u32,
}

/// As much as usual.
pub(crate) const USUAL_WORK: u32 = 1_000;

/// All frames in the order of their coming.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Workload {
    pub(crate) frames: Vec<Frame>,
    pub(crate) actions: usize,
    /// Between two frames of an action.
    pub(crate) interval: Span,
}

impl Workload {
    /// Draws one. Users ask for frames all the time, one action behind the other, each on
    /// another dataset, so that exactly the number of interactive jobs comes up; batch requests
    /// come at any time, all their frames at once.
    pub(crate) fn draw(demand: &Demand, seed: u64) -> Self {
        let mut popularity = Popularity::new(demand, Dice::new(seed, 101));
        let mut load = Self { frames: Vec::new(), actions: 0, interval: demand.interval };
        load.draw_interactive(demand, &mut popularity, &mut Dice::new(seed, 102));
        load.draw_batch(demand, &mut popularity, &mut Dice::new(seed, 103));
        load.frames.sort_by_key(|frame| frame.at);
        load
    }

    fn draw_interactive(&mut self, demand: &Demand, sets: &mut Popularity, dice: &mut Dice) {
        let interval = demand.interval.as_micros().max(1);
        let ticks = usize::try_from(demand.length.as_micros() / interval).unwrap_or(usize::MAX);
        // A user who asks from the first moment to the last asks once more than there are
        // intervals.
        let most = ticks.saturating_add(1);
        let mut missing = demand.interactive_jobs;
        let mut fresh = sets.shuffled();
        while missing > 0 {
            let count = missing.min(most);
            let first = dice.below(most - count + 1) as u64;
            let phase = if count == most { 0 } else { dice.below(demand.interval_us()) as u64 };
            let mut left = 0;
            let mut dataset = 0;
            for tick in 0..count {
                if left == 0 {
                    dataset = fresh.pop().unwrap_or_else(|| sets.draw());
                    left = demand.action_frames(dice);
                    self.actions += 1;
                }
                left -= 1;
                let at = Time::from_micros((first + tick as u64) * interval + phase);
                let action = u32::try_from(self.actions - 1).ok();
                self.frames.push(Frame { at, dataset, action, work_permille: USUAL_WORK });
            }
            missing -= count;
        }
    }

    fn draw_batch(&mut self, demand: &Demand, sets: &mut Popularity, dice: &mut Dice) {
        let mut missing = demand.batch_jobs;
        while missing > 0 {
            let count = missing.min(demand.batch_frames.max(1));
            let length_us = usize::try_from(demand.length.as_micros()).unwrap_or(usize::MAX);
            let at = Time::from_micros(dice.below(length_us.max(1)) as u64);
            let (dataset, work_permille) = (sets.draw(), USUAL_WORK);
            let frame = Frame { at, dataset, action: None, work_permille };
            self.frames.extend(std::iter::repeat_n(frame, count));
            missing -= count;
        }
    }
}

impl Demand {
    fn interval_us(&self) -> usize {
        usize::try_from(self.interval.as_micros()).unwrap_or(usize::MAX).max(1)
    }

    /// The frames of one action; at least two, of which a rate can be told.
    fn action_frames(&self, dice: &mut Dice) -> usize {
        let seconds = match self.lengths {
            Lengths::Constant => self.action_s,
            Lengths::Exponential => dice.exponential(self.action_s),
        };
        let frames = seconds * 1e6 / self.interval_us() as f64;
        (frames as usize).max(2)
    }
}

/// Which datasets are asked for how often.
#[derive(Debug)]
struct Popularity {
    /// Weights added up, in the order of `sets`.
    sums: Vec<f64>,
    sets: Vec<u32>,
    dice: Dice,
}

impl Popularity {
    fn new(demand: &Demand, mut dice: Dice) -> Self {
        let mut sets: Vec<u32> = (0..).take(demand.datasets).collect();
        dice.shuffle(&mut sets);
        let mut sum = 0.0;
        let sums = (1..=demand.datasets).map(|rank| {
            sum += libm::pow(rank as f64, -demand.zipf);
            sum
        });
        Self { sums: sums.collect(), sets, dice }
    }

    fn draw(&mut self) -> u32 {
        let at = self.dice.unit() * self.sums.last().copied().unwrap_or(0.0);
        let rank = self.sums.partition_point(|sum| *sum <= at);
        self.sets[rank.min(self.sets.len() - 1)]
    }

    /// All of them once, so that users who come at the same time look at different ones.
    fn shuffled(&mut self) -> Vec<u32> {
        let mut sets = self.sets.clone();
        self.dice.shuffle(&mut sets);
        sets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand() -> Demand {
        Demand {
            length: Span::from_secs(60),
            interactive_jobs: 12_006,
            batch_jobs: 95,
            datasets: 6,
            interval: Span::from_millis(30),
            action_s: 61.0,
            lengths: Lengths::Constant,
            zipf: 0.0,
            batch_frames: 20,
        }
    }

    #[test]
    fn six_users_ask_for_six_datasets_from_the_first_moment_to_the_last() {
        let load = Workload::draw(&demand(), 1);
        assert_eq!(load.actions, 6);
        for action in 0..6 {
            let of: Vec<_> = load.frames.iter().filter(|of| of.action == Some(action)).collect();
            assert_eq!(of.len(), 2001);
            assert_eq!((of[0].at, of[2000].at), (Time::ZERO, Time::ZERO + Span::from_secs(60)));
            assert!(of.iter().all(|frame| frame.dataset == of[0].dataset));
        }
        let mut sets: Vec<_> = load.frames.iter().take(6).map(|frame| frame.dataset).collect();
        sets.sort_unstable();
        assert_eq!(sets, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn exactly_what_is_demanded_comes_in_order() {
        let short = Demand {
            action_s: 3.0,
            interactive_jobs: 5_555,
            lengths: Lengths::Exponential,
            ..demand()
        };
        let load = Workload::draw(&short, 7);
        let batch = load.frames.iter().filter(|frame| frame.action.is_none()).count();
        assert_eq!((load.frames.len() - batch, batch), (5_555, 95));
        assert!(load.frames.is_sorted_by_key(|frame| frame.at));
        assert!(load.actions > 30, "{} actions", load.actions);
        assert_eq!(load, Workload::draw(&short, 7));
        assert_ne!(load, Workload::draw(&short, 8));
    }

    #[test]
    fn some_datasets_are_asked_for_more_often_where_popularity_is_not_uniform() {
        let skewed = Demand { zipf: 1.0, batch_jobs: 20_000, batch_frames: 1, ..demand() };
        let load = Workload::draw(&skewed, 3);
        let mut counts = [0; 6];
        for frame in load.frames.iter().filter(|frame| frame.action.is_none()) {
            counts[frame.dataset as usize] += 1;
        }
        counts.sort_unstable();
        let ratio = f64::from(counts[5]) / f64::from(counts[0]);
        assert!((5.0..7.0).contains(&ratio), "{counts:?}");
    }
}

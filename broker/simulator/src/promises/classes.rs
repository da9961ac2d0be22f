//! Said chances beside what came, and how far apart they are where all chances are right.

use super::checks::Statement;
use crate::dice::Dice;

/// Classes of chances.
const CLASSES: usize = 10;
/// How often outcomes are drawn of which all chances are right.
const DRAWS: u64 = 100;
/// Purpose of random numbers.
const OUTCOMES: u64 = 4;

/// Chances that were said, and how often it came true, in classes.
#[derive(Debug, Default)]
pub(super) struct Classes([Class; CLASSES]);

#[derive(Debug, Default)]
struct Class {
    count: f64,
    said: f64,
    came: f64,
}

impl Classes {
    pub(super) fn add(&mut self, said: f64, came: bool) {
        let class = &mut self.0[((said * CLASSES as f64) as usize).min(CLASSES - 1)];
        class.count += 1.0;
        class.said += said;
        class.came += if came { 1.0 } else { 0.0 };
    }

    /// Mean distance of the chances of a class from what came of them.
    pub(super) fn error(&self) -> Option<f64> {
        let count: f64 = self.0.iter().map(|class| class.count).sum();
        let apart: f64 = self.0.iter().map(|class| (class.said - class.came).abs()).sum();
        (count > 0.0).then(|| apart / count)
    }
}

/// Statements of one farm, for what chance alone makes of their calibration error.
#[derive(Debug, Default)]
pub(super) struct Statements(Vec<Said>);

#[derive(Debug)]
struct Said {
    at: usize,
    hours: usize,
    chance: f64,
}

impl Statements {
    pub(super) fn add(&mut self, statement: &Statement) {
        let Statement { at, hours, said, .. } = *statement;
        self.0.push(Said { at, hours, chance: said });
    }

    /// Draws what comes of all statements, as right as they can be: each comes true with the chance that was
    /// said. Each hour has its luck, and a statement that of all its hours: so those that overlap come true
    /// together.
    fn draw(&self, dice: &mut Dice, classes: &mut Classes) {
        let hours = self.0.iter().map(|said| said.at + said.hours).max().unwrap_or(0);
        let mut sum = 0.0;
        let sums: Vec<f64> = std::iter::once(0.0)
            .chain((0..hours).map(|_| {
                sum += dice.normal();
                sum
            }))
            .collect();
        for Said { at, hours, chance } in &self.0 {
            let luck = (sums[at + hours] - sums[*at]) / libm::sqrt(*hours as f64);
            classes.add(*chance, normal_share_below(luck) < *chance);
        }
    }
}

/// Mean calibration error where all chances are right: what so few statements that overlap leave to chance.
pub(super) fn error_by_chance(farms: &[Statements], seed: u64) -> Option<f64> {
    let error = |draw| {
        let mut dice = Dice::new(seed ^ draw << 32, OUTCOMES);
        let mut classes = Classes::default();
        farms.iter().for_each(|farm| farm.draw(&mut dice, &mut classes));
        classes.error()
    };
    let errors: Option<Vec<f64>> = (0..DRAWS).map(error).collect();
    errors.map(|errors| errors.iter().sum::<f64>() / DRAWS as f64)
}

/// Share of the normal distribution below a number.
fn normal_share_below(number: f64) -> f64 {
    0.5 * libm::erfc(-number / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(count: usize, hours: usize) -> Statements {
        let chance = |at: usize| (at * 7919 % 997) as f64 / 997.0;
        Statements((0..count).map(|at| Said { at, hours, chance: chance(at) }).collect())
    }

    #[test]
    fn the_more_statements_and_the_less_they_overlap_the_less_is_chance() {
        let error =
            |count, hours| error_by_chance(&[statements(count, hours)], 1).expect("some were made");
        let (few, many, overlapping) = (error(200, 1), error(20_000, 1), error(20_000, 24));
        // Ten classes of 20: the mean deviation of a share of so many is about a twelfth.
        assert!((0.04..0.12).contains(&few), "{few}");
        assert!(many < few / 5.0, "{many}");
        assert!(overlapping > 1.5 * many && overlapping < few, "{overlapping}");
        assert_eq!(error_by_chance(&[], 1), None);
    }

    #[test]
    fn the_distance_is_that_of_each_class() {
        let mut classes = Classes::default();
        for (said, came) in [(0.92, true), (0.98, true), (0.1, false), (0.1, true)] {
            classes.add(said, came);
        }
        let error = classes.error().expect("four");
        assert!((error - (0.1 + 0.8) / 4.0).abs() < 1e-12, "{error}");
    }
}

//! The times for which futures are sampled: fine at first, coarser later.

use crate::limits::{COARSE_STEPS, FINE_STEPS, HORIZON_MAX_S, STEP_S};

/// Some steps of the record that are one in a future.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cell {
    /// How many steps of the record lie between now and its beginning.
    pub(crate) from: usize,
    /// How many it has.
    pub(crate) steps: usize,
}

impl Cell {
    pub(crate) fn length_s(&self) -> f32 {
        self.steps as f32 * STEP_S as f32
    }
}

/// The cells from now to a horizon, which is a step at least and rounded up to whole cells.
pub(crate) fn grid(horizon_s: f64) -> Vec<Cell> {
    let whole = libm::ceil(horizon_s.clamp(1.0, HORIZON_MAX_S) / STEP_S as f64) as usize;
    let mut cells = Vec::new();
    let mut from = 0;
    while from < whole {
        let steps = if from < FINE_STEPS { 1 } else { COARSE_STEPS };
        cells.push(Cell { from, steps });
        from += steps;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_few_cells_and_is_covered() {
        let cells = grid(86_400.0);
        assert_eq!(cells.len(), 24 + 88);
        let last = cells[cells.len() - 1];
        assert_eq!(last.from + last.steps, 288);
        assert!(cells.windows(2).all(|pair| pair[0].from + pair[0].steps == pair[1].from));
        assert_eq!(grid(0.0), [Cell { from: 0, steps: 1 }]);
        assert_eq!(grid(f64::INFINITY).len(), grid(HORIZON_MAX_S).len());
    }
}

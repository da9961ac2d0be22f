//! Measuring until a round does.

/// Rounds of a measurement.
const ROUNDS: usize = 3;

/// Measures until a round does.
///
/// # Panics
/// None of them did: why, of each.
#[track_caller]
pub fn in_some_round(mut round: impl FnMut() -> Result<(), String>) {
    let why: Vec<String> = (0..ROUNDS).map_while(|_| round().err()).collect();
    assert!(why.len() < ROUNDS, "in each of {ROUNDS} rounds: {}", why.join("; "));
}

/// As [`in_some_round`], for rounds that wait.
///
/// # Panics
/// None of them did: why, of each.
pub async fn in_some_awaited_round(mut round: impl AsyncFnMut() -> Result<(), String>) {
    let mut why = Vec::new();
    while let Err(reason) = round().await {
        why.push(reason);
        assert!(why.len() < ROUNDS, "in each of {ROUNDS} rounds: {}", why.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn one_round_of_three_must_do() {
        let rounds = |good: usize| {
            let mut round = 0;
            let measured = catch_unwind(AssertUnwindSafe(|| {
                in_some_round(|| {
                    round += 1;
                    (round == good).then_some(()).ok_or_else(|| "too long".into())
                });
            }));
            (measured.is_ok(), round)
        };
        assert_eq!([rounds(1), rounds(3), rounds(4)], [(true, 1), (true, 3), (false, 3)]);
    }
}

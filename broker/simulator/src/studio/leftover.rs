//! What the farm gives less what some lanes held of it.

use gleaner_protocol::Time;
use gleaner_protocol::job::Lane;

use super::farm::Gives;
use super::tally::Held;

/// The farm's steps less what the lanes before `lane` held, window by window: its mean over the
/// window, in thousandths of cores.
pub(super) fn left_over(steps: &[Gives], hosts: usize, held: &Held, lane: Lane) -> Vec<Gives> {
    let mut left = Vec::new();
    for host in 0..hosts {
        let number = u32::try_from(host).expect("hosts are counted by a u32");
        let of_host = steps.iter().filter(|step| step.host == number);
        let window_us = held.window.as_micros();
        let mean = |held_us: u64| u32::try_from(held_us * 1_000 / window_us).unwrap_or(u32::MAX);
        let taken: Vec<u32> = held.before(lane, host).into_iter().map(mean).collect();
        left.extend(of_one(of_host, number, &taken, window_us));
    }
    left.sort_by_key(|step| step.at);
    left
}

fn of_one<'a>(
    steps: impl Iterator<Item = &'a Gives>,
    host: u32,
    taken: &[u32],
    window_us: u64,
) -> Vec<Gives> {
    // What is left by renders and what is taken, each from its time on.
    let mut changes: Vec<(Time, Option<u32>, Option<u32>)> =
        steps.map(|step| (step.at, Some(step.left), None)).collect();
    for (place, cores) in (0..).zip(taken.iter().copied().chain([0])) {
        changes.push((Time::from_micros(place * window_us), None, Some(cores)));
    }
    changes.sort_by_key(|(at, ..)| *at);
    let (mut given, mut less, mut before) = (0, 0, (0, 0));
    let mut all: Vec<Gives> = Vec::new();
    for (place, &(at, gives, takes)) in changes.iter().enumerate() {
        given = gives.unwrap_or(given);
        less = takes.unwrap_or(less);
        let is_last_now = changes.get(place + 1).is_none_or(|(next, ..)| *next > at);
        let now = (given, u32::saturating_sub(given * 1_000, less));
        if is_last_now && now != before {
            before = now;
            all.push(Gives { at, host, left: now.0, own_permille: now.1 });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_protocol::Span;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn what_is_left_is_what_is_given_less_what_is_held() {
        let mut held = Held::new(2, Span::from_secs(10));
        held.add(0, Lane::Rendering, at(0), at(20));
        held.add(0, Lane::Deadline, at(14), at(20));
        let step =
            |seconds, host, left, own_permille| Gives { at: at(seconds), host, left, own_permille };
        let steps = [
            step(5, 0, 8, 8_000),
            step(7, 1, 4, 4_000),
            step(12, 0, 1, 1_000),
            step(40, 0, 8, 8_000),
        ];
        let left = left_over(&steps, 2, &held, Lane::Dataset);
        let expected = [
            step(5, 0, 8, 7_000),
            step(7, 1, 4, 4_000),
            step(10, 0, 8, 6_400),
            step(12, 0, 1, 0),
            step(20, 0, 1, 1_000),
            step(40, 0, 8, 8_000),
        ];
        assert_eq!(left, expected);
        assert_eq!(left_over(&steps, 2, &held, Lane::Rendering).len(), 4, "nobody is before it");
    }
}

//! What the farm gives less what some lanes held of it.

use gleaner_protocol::Time;
use gleaner_protocol::job::Lane;

use super::farm::Gives;
use super::tally::Held;

/// The farm's steps less the cores that the lanes before `lane` held: whole cores for each window
/// of time, to the nearest one, the rest carried on to the next window, so that over time as much is
/// taken as was held.
pub(super) fn left_over(steps: &[Gives], hosts: usize, held: &Held, lane: Lane) -> Vec<Gives> {
    let mut left = Vec::new();
    for host in 0..hosts {
        let number = u32::try_from(host).expect("hosts are counted by a u32");
        let of_host = steps.iter().filter(|step| step.host == number);
        let taken = whole_cores(&held.before(lane, host), held.window.as_micros());
        left.extend(of_one(of_host, number, &taken, held.window.as_micros()));
    }
    left.sort_by_key(|step| step.at);
    left
}

/// Core-time by windows as whole cores.
fn whole_cores(held_us: &[u64], window_us: u64) -> Vec<u32> {
    let mut carried: i128 = 0;
    let window = i128::from(window_us);
    let cores = held_us.iter().map(|held| {
        carried += i128::from(*held);
        let cores = (carried + window / 2).div_euclid(window).max(0);
        carried -= cores * window;
        u32::try_from(cores).unwrap_or(u32::MAX)
    });
    cores.collect()
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
        let now = (given, u32::saturating_sub(given, less));
        if is_last_now && now != before {
            before = now;
            all.push(Gives { at, host, left: now.0, slots: now.1 });
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
    fn parts_of_cores_are_carried_on_until_they_are_whole() {
        assert_eq!(whole_cores(&[4, 4, 4, 4, 4], 10), [0, 1, 0, 1, 0]);
        assert_eq!(whole_cores(&[25, 0, 17, 0], 10), [3, 0, 1, 0]);
    }

    #[test]
    fn what_is_left_is_what_is_given_less_what_is_held() {
        let mut held = Held::new(2, Span::from_secs(10));
        held.add(0, Lane::Rendering, at(0), at(20));
        held.add(0, Lane::Deadline, at(10), at(20));
        let step = |seconds, host, left, slots| Gives { at: at(seconds), host, left, slots };
        let steps = [step(5, 0, 8, 8), step(7, 1, 4, 4), step(12, 0, 1, 1), step(40, 0, 8, 8)];
        let left = left_over(&steps, 2, &held, Lane::Dataset);
        let expected = [
            step(5, 0, 8, 7),
            step(7, 1, 4, 4),
            step(10, 0, 8, 6),
            step(12, 0, 1, 0),
            step(20, 0, 1, 1),
            step(40, 0, 8, 8),
        ];
        assert_eq!(left, expected);
        assert_eq!(left_over(&steps, 2, &held, Lane::Rendering).len(), 4, "nobody is before it");
    }
}

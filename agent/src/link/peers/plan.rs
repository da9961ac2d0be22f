//! Which piece of a chunk is asked of which source.
//!
//! Each source is asked for the next piece that nobody was asked for. Near the end, when there is none,
//! whoever is done is asked for what another one is late with, if it is likely to bring it sooner.
//!
//! # Invariants
//! - A piece is asked of no more than two sources at a time, and of none twice.
//! - What only a source was asked for that is gone is asked of others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_protocol::{Span, Time};

/// See the module's page.
#[derive(Debug)]
pub(super) struct Plan {
    wanted: BTreeSet<usize>,
    asked: BTreeMap<usize, Vec<usize>>,
    sources: Vec<Pace>,
}

/// How a source does.
#[derive(Debug, Clone, Default)]
struct Pace {
    /// What it was asked for and has not brought, in order.
    asked: VecDeque<usize>,
    /// Since when it is about the first of these.
    since: Time,
    /// What it takes for a piece.
    per_piece: Option<Span>,
}

impl Pace {
    /// How long it will take for what is at this place of its list.
    fn rest(&self, now: Time, place: usize) -> Span {
        let spent = if self.asked.is_empty() { Span::ZERO } else { now.since(self.since) };
        let expected = self.per_piece.unwrap_or(Span::ZERO).times(place as u64 + 1);
        let rest = Span::from_micros(expected.as_micros().saturating_sub(spent.as_micros()));
        // Who is late is as late again.
        let late = Span::from_micros(spent.as_micros().saturating_sub(expected.as_micros()));
        rest.max(late)
    }
}

impl Plan {
    /// For pieces of which some are there, and so many sources.
    pub(super) fn new(wanted: impl IntoIterator<Item = usize>, sources: usize) -> Self {
        Self {
            wanted: wanted.into_iter().collect(),
            asked: BTreeMap::new(),
            sources: vec![Pace::default(); sources],
        }
    }

    /// What to ask of a source next; nothing where it is of no use now.
    pub(super) fn next(&mut self, source: usize, now: Time) -> Option<usize> {
        let piece = match self.wanted.pop_first() {
            Some(piece) => piece,
            None => self.late(source, now)?,
        };
        self.asked.entry(piece).or_default().push(source);
        let pace = &mut self.sources[source];
        if pace.asked.is_empty() {
            pace.since = now;
        }
        pace.asked.push_back(piece);
        Some(piece)
    }

    /// The piece that takes longest elsewhere, where it comes sooner from this source.
    fn late(&self, source: usize, now: Time) -> Option<usize> {
        let own = &self.sources[source];
        let own = own.rest(now, own.asked.len());
        let others = self.asked.iter().filter_map(|(piece, by)| match by[..] {
            [by] if by != source => Some((*piece, &self.sources[by])),
            _ => None,
        });
        let rests = others.filter_map(|(piece, by)| {
            let place = by.asked.iter().position(|of| *of == piece)?;
            Some((by.rest(now, place), piece))
        });
        let (rest, piece) = rests.max()?;
        (rest.times(4) > own.times(5)).then_some(piece)
    }

    /// A piece has come from a source, and is right; whether it is the first time.
    pub(super) fn came(&mut self, source: usize, piece: usize, now: Time) -> bool {
        let pace = &mut self.sources[source];
        if pace.asked.front() == Some(&piece) {
            pace.asked.pop_front();
            let took = now.since(pace.since);
            pace.per_piece = Some(match pace.per_piece {
                None => took,
                Some(before) => Span::from_micros((before.times(3) + took).as_micros() / 4),
            });
            pace.since = now;
        }
        self.wanted.remove(&piece) | self.asked.remove(&piece).is_some()
    }

    /// A source brings nothing any more.
    pub(super) fn gone(&mut self, source: usize) {
        for piece in std::mem::take(&mut self.sources[source].asked) {
            let Some(by) = self.asked.get_mut(&piece) else { continue };
            by.retain(|of| *of != source);
            if by.is_empty() {
                self.asked.remove(&piece);
                self.wanted.insert(piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Plan {
        fn is_done(&self) -> bool {
            self.wanted.is_empty() && self.asked.is_empty()
        }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn each_source_is_asked_for_another_piece_and_what_one_leaves_behind_is_asked_of_others() {
        let mut plan = Plan::new(0..5, 2);
        let asked = [0, 1, 0].map(|source| plan.next(source, at(0)));
        assert_eq!(asked, [Some(0), Some(1), Some(2)]);
        assert!(plan.came(0, 0, at(10)) && plan.came(1, 1, at(10)));
        plan.gone(0);
        assert_eq!(plan.next(1, at(20)), Some(2), "what the other one had");
        assert_eq!([3, 4].map(|_| plan.next(1, at(20))), [Some(3), Some(4)]);
        assert_eq!(plan.next(1, at(20)), None, "it has all of it");
        assert!([2, 3, 4].into_iter().all(|piece| plan.came(1, piece, at(30))));
        assert!(plan.is_done());
    }

    #[test]
    fn what_a_slow_source_is_late_with_is_asked_of_a_fast_one_and_not_the_other_way_round() {
        let mut plan = Plan::new(0..6, 2);
        assert_eq!([0, 1].map(|source| plan.next(source, at(0))), [Some(0), Some(1)]);
        assert_eq!([0, 1].map(|source| plan.next(source, at(0))), [Some(2), Some(3)]);
        assert!(plan.came(0, 0, at(10)), "the first takes ten milliseconds");
        assert!(plan.came(1, 1, at(100)), "the second a hundred");
        assert_eq!(plan.next(0, at(100)), Some(4));
        assert!(plan.came(0, 2, at(100)) && plan.came(0, 4, at(110)));
        assert_eq!(plan.next(1, at(110)), Some(5));
        assert_eq!(plan.next(0, at(110)), Some(5), "it takes the slow one longest");
        assert_eq!(plan.next(1, at(110)), None, "the fast one is not late");
        assert_eq!(plan.next(0, at(110)), Some(3));
        assert!(plan.came(0, 5, at(120)) && !plan.came(1, 5, at(121)), "it counts once");
        assert!(!plan.is_done());
        plan.gone(0);
        assert!(plan.came(1, 3, at(300)), "two were asked, one is there");
        assert!(plan.is_done());
    }

    #[test]
    fn who_says_nothing_is_late_as_time_goes_by() {
        let mut plan = Plan::new(0..4, 2);
        for (source, piece) in [(0, 0), (1, 1), (0, 2)] {
            assert_eq!(plan.next(source, at(0)), Some(piece));
        }
        assert!(plan.came(0, 0, at(10)) && plan.came(1, 1, at(10)) && plan.came(0, 2, at(20)));
        assert_eq!(plan.next(1, at(20)), Some(3));
        let later = [21, 40, 50].map(|ms| plan.next(0, at(ms)));
        assert_eq!(later, [None, None, Some(3)], "it was expected at 30");
    }
}

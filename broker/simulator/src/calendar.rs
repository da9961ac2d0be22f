//! What will happen, in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gleaner_protocol::Time;

/// Events in order of time; those of one time in the order in which they were entered.
#[derive(Debug)]
pub(crate) struct Calendar<E> {
    /// When, the how-manieth, and in which place of `events`.
    due: BinaryHeap<Reverse<(Time, u64, usize)>>,
    events: Vec<Option<E>>,
    vacant: Vec<usize>,
    next: u64,
}

impl<E> Calendar<E> {
    pub(crate) fn new() -> Self {
        Self { due: BinaryHeap::new(), events: Vec::new(), vacant: Vec::new(), next: 0 }
    }

    pub(crate) fn enter(&mut self, at: Time, event: E) {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.due.push(Reverse((at, self.next, place)));
        self.next += 1;
    }

    /// When the next one is due.
    pub(crate) fn next_time(&self) -> Option<Time> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, E)> {
        let Reverse((at, _, place)) = self.due.pop()?;
        let event = self.events[place].take().expect("entered in its place");
        self.vacant.push(place);
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_protocol::Span;

    #[test]
    fn events_come_in_order_of_time_and_then_of_entry() {
        let mut calendar = Calendar::new();
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        for (seconds, event) in [(2, 'c'), (1, 'a'), (2, 'd'), (1, 'b')] {
            calendar.enter(at(seconds), event);
        }
        let order: Vec<_> = std::iter::from_fn(|| calendar.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, ['a', 'b', 'c', 'd']);
    }
}

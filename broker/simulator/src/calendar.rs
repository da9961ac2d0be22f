//! What will happen, in order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use gleaner_protocol::Time;

/// Events in order of time; those of one time in the order in which they were entered.
#[derive(Debug)]
pub(crate) struct Calendar<E> {
    due: BinaryHeap<Reverse<(Time, u64)>>,
    events: BTreeMap<u64, E>,
    next: u64,
}

impl<E> Calendar<E> {
    pub(crate) fn new() -> Self {
        Self { due: BinaryHeap::new(), events: BTreeMap::new(), next: 0 }
    }

    pub(crate) fn enter(&mut self, at: Time, event: E) {
        self.due.push(Reverse((at, self.next)));
        self.events.insert(self.next, event);
        self.next += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, E)> {
        let Reverse((at, number)) = self.due.pop()?;
        let event = self.events.remove(&number).expect("entered with its number");
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

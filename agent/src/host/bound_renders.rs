//! Which CPUs renders are bound to, as far as their hooks show it by being bound to them too: a manager
//! may bind what it starts for a render before it calls the hook (Grid Engine's shepherd), and a wrapper
//! runs where its frame will. So harvested work leaves these when the render begins, and not only when
//! somebody is seen to compute there.
//!
//! # Invariants
//! - A booking that has ended has nothing here.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_isolation::Topology;
use gleaner_protocol::{BookingId, Time};

/// CPUs by booking.
#[derive(Debug, Default)]
pub(crate) struct BoundRenders {
    of: BTreeMap<BookingId, BTreeSet<u32>>,
    /// All that ran, those of which nothing is known here too.
    running: BTreeSet<BookingId>,
    /// When one of these ended, where it was not looked since who is bound where: it may be seen still.
    seen_before: Option<Time>,
}

impl BoundRenders {
    /// From then on it was looked who is bound where. Whether this changes what renders claim.
    pub(crate) fn note_seen(&mut self, at: Time) -> bool {
        self.seen_before.take_if(|ended| *ended <= at).is_some()
    }

    /// Notes what a hook showed, and forgets all but these bookings, which run.
    pub(crate) fn note(
        &mut self,
        now: Time,
        shown: Option<(BookingId, BTreeSet<u32>)>,
        running: &BTreeSet<BookingId>,
    ) {
        self.of.extend(shown);
        self.of.retain(|booking, _| running.contains(booking));
        if !self.running.is_subset(running) {
            self.seen_before = Some(now);
        }
        self.running.clone_from(running);
    }

    /// What renders that booked `booked` CPUs claim: those to which somebody is `seen` to be bound, who
    /// computes there, and then, as far as they booked more, what hooks showed. A hook may be bound because
    /// its manager's daemon is, to what its renders never use. Where who is seen may be of a render that has
    /// ended, all of both.
    pub(crate) fn claims(
        &self,
        topology: &Topology,
        seen: &BTreeSet<u32>,
        booked: u32,
    ) -> BTreeSet<u32> {
        let mut claims = seen.clone();
        for cpu in self.of.values().flatten() {
            if self.seen_before.is_none() && topology.whole_cores_of(&claims) >= booked {
                break;
            }
            claims.insert(*cpu);
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_micros(2);

    fn id(text: &str) -> BookingId {
        BookingId::new(text).expect("a plain name")
    }

    /// CPUs by their numbers.
    fn cpus(numbers: &[u32]) -> BTreeSet<u32> {
        numbers.iter().copied().collect()
    }

    fn shown(name: &str, numbers: &[u32]) -> Option<(BookingId, BTreeSet<u32>)> {
        Some((id(name), cpus(numbers)))
    }

    fn running(names: &[&str]) -> BTreeSet<BookingId> {
        names.iter().copied().map(id).collect()
    }

    fn machine() -> Topology {
        Topology::new(&(0..16).collect::<Vec<_>>(), |_| None)
    }

    #[test]
    fn a_render_has_its_cpus_until_it_ends() {
        let (mut renders, machine) = (BoundRenders::default(), machine());
        let claims = |renders: &BoundRenders| renders.claims(&machine, &cpus(&[7]), 16);
        renders.note(NOW, None, &running(&["a"]));
        assert_eq!(claims(&renders), cpus(&[7]));
        renders.note(NOW, shown("a", &[2, 3]), &running(&["a"]));
        renders.note(NOW, shown("b", &[5]), &running(&["a", "b"]));
        assert_eq!(claims(&renders), cpus(&[2, 3, 5, 7]));
        renders.note(NOW, shown("c", &[1]), &running(&["a", "b"]));
        assert_eq!(claims(&renders), cpus(&[2, 3, 5, 7]), "it had ended before");
        renders.note(NOW, None, &running(&["b"]));
        assert_eq!(claims(&renders), cpus(&[5, 7]));
    }

    #[test]
    fn who_is_seen_to_compute_comes_before_a_hook_that_its_daemon_has_bound() {
        let (mut renders, machine) = (BoundRenders::default(), machine());
        renders.note(NOW, shown("a", &[0]), &running(&["a"]));
        let seen: Vec<u32> = (8..16).collect();
        assert_eq!(renders.claims(&machine, &cpus(&[]), 8), cpus(&[0]), "nobody is seen yet");
        assert_eq!(renders.claims(&machine, &cpus(&seen), 8), cpus(&seen));
        assert_eq!(machine.beside(8, &cpus(&seen)), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn who_is_seen_of_a_render_that_has_ended_does_not_come_before_the_next_ones_hook() {
        let (mut renders, machine) = (BoundRenders::default(), machine());
        let (low, high): (Vec<u32>, Vec<u32>) = ((0..8).collect(), (8..16).collect());
        renders.note(NOW, None, &running(&["a"]));
        renders.note_seen(NOW);
        renders.note(NOW, None, &running(&[]));
        renders.note(NOW, shown("c", &low), &running(&["c"]));
        let all: Vec<u32> = (0..16).collect();
        assert_eq!(renders.claims(&machine, &cpus(&high), 8), cpus(&all));
        assert!(!renders.note_seen(Time::from_micros(1)), "it was looked before that");
        assert_eq!(renders.claims(&machine, &cpus(&high), 8), cpus(&all));
        assert!(renders.note_seen(NOW));
        assert!(!renders.note_seen(NOW), "no news");
        assert_eq!(renders.claims(&machine, &cpus(&[]), 8), cpus(&low));
    }
}

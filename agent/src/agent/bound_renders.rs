//! Which CPUs renders are bound to, as far as their hooks show it by being bound to them too: a manager
//! may bind what it starts for a render before it calls the hook (Grid Engine's shepherd), and a wrapper
//! runs where its frame will. So harvested work leaves these when the render begins, and not only when
//! somebody is seen to compute there.
//!
//! # Invariants
//! - A booking that has ended has nothing here.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::BookingId;

/// CPUs by booking.
#[derive(Debug, Default)]
pub(super) struct BoundRenders {
    of: BTreeMap<BookingId, BTreeSet<u32>>,
}

impl BoundRenders {
    /// Notes what a hook showed, and forgets all but these bookings, which run; whether either is news.
    pub(super) fn note(
        &mut self,
        shown: Option<(BookingId, BTreeSet<u32>)>,
        running: &BTreeSet<BookingId>,
    ) -> bool {
        let before = self.of.len();
        self.of.retain(|booking, _| running.contains(booking));
        let are_gone = self.of.len() < before;
        match shown.filter(|(booking, _)| running.contains(booking)) {
            Some((booking, cpus)) => {
                let is_news = self.of.get(&booking) != Some(&cpus);
                self.of.insert(booking, cpus);
                is_news || are_gone
            }
            None => are_gone,
        }
    }

    /// All of them, and these.
    pub(super) fn and(&self, others: &BTreeSet<u32>) -> BTreeSet<u32> {
        self.of.values().flatten().chain(others).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> BookingId {
        BookingId::new(text).expect("a plain name")
    }

    #[test]
    fn a_render_has_its_cpus_until_it_ends() {
        let mut renders = BoundRenders::default();
        let shown = |name: &str, cpus: &[u32]| Some((id(name), cpus.iter().copied().collect()));
        let running = |names: &[&str]| names.iter().copied().map(id).collect::<BTreeSet<_>>();
        let seen = BTreeSet::from([7]);
        assert!(!renders.note(None, &running(&["a"])));
        assert!(renders.note(shown("a", &[2, 3]), &running(&["a"])));
        assert!(!renders.note(shown("a", &[2, 3]), &running(&["a"])), "a doubled hook");
        assert!(renders.note(shown("b", &[5]), &running(&["a", "b"])));
        assert_eq!(renders.and(&seen), BTreeSet::from([2, 3, 5, 7]));
        assert!(!renders.note(shown("c", &[1]), &running(&["a", "b"])), "it had ended before");
        assert!(renders.note(None, &running(&["b"])));
        assert_eq!(renders.and(&seen), BTreeSet::from([5, 7]));
    }
}

//! The part of a queue whose workunits need the same ability.

use std::cmp::Reverse;

use priority_queue::PriorityQueue;
use rustc_hash::FxBuildHasher;

use super::Rank;
use super::marks::Marks;
use crate::Violation;
use crate::farm::{Farm, HostIx, WorkunitIx};
use crate::limits::LIST_SCANNED_MAX;

/// Workunits of one ability in order of rank.
///
/// Nearly every request is answered by the head. Where the asking host has touched the head, a
/// short list is looked through; for a long one, [`Marks`] are kept from then on until it is
/// short again.
///
/// # Invariants
/// - `marks` has the same entries as `queue`, where there are marks.
#[derive(Default)]
pub(crate) struct List {
    queue: PriorityQueue<WorkunitIx, Reverse<Rank>, FxBuildHasher>,
    marks: Option<Box<Marks>>,
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn rank(&self, workunit: WorkunitIx) -> Option<Rank> {
        self.queue.get_priority(&workunit).map(|rank| rank.0)
    }

    /// Enters a workunit, or changes its key and keeps its arrival.
    pub(crate) fn put(&mut self, workunit: WorkunitIx, mut rank: Rank) {
        let before = self.rank(workunit);
        if let Some(before) = before {
            rank.arrival = before.arrival;
        }
        self.queue.push(workunit, Reverse(rank));
        if let Some(marks) = &mut self.marks {
            if let Some(before) = before {
                marks.remove(before);
            }
            marks.insert(workunit, rank);
        }
    }

    pub(crate) fn remove(&mut self, workunit: WorkunitIx) {
        let Some((_, Reverse(rank))) = self.queue.remove(&workunit) else { return };
        if self.queue.len() <= LIST_SCANNED_MAX / 2 {
            self.marks = None;
        } else if let Some(marks) = &mut self.marks {
            marks.remove(rank);
        }
    }

    /// The number of a forgotten host will be that of another one.
    pub(crate) fn forget_host(&mut self, host: HostIx) {
        if let Some(marks) = &mut self.marks {
            marks.forget_host(host);
        }
    }

    /// The first workunit that `host`, which has the ability, may take a replica of.
    pub(crate) fn first_for(&mut self, farm: &Farm, host: HostIx) -> Option<(Rank, WorkunitIx)> {
        let (&head, &Reverse(rank)) = self.queue.peek()?;
        if farm.is_welcome(head, host) {
            return Some((rank, head));
        }
        if self.queue.len() <= LIST_SCANNED_MAX {
            let eligible = self.queue.iter().filter(|(unit, _)| farm.is_welcome(**unit, host));
            return eligible.map(|(workunit, Reverse(rank))| (*rank, *workunit)).min();
        }
        let queue = &self.queue;
        let marks = self.marks.get_or_insert_with(|| {
            Box::new(Marks::of(queue.iter().map(|(workunit, Reverse(rank))| (*rank, *workunit))))
        });
        marks.first_for(farm, host)
    }

    /// A workunit that `host` has refused, and may have again because nobody else is left; of a long
    /// list only some are looked at.
    pub(crate) fn last_resort(&self, farm: &Farm, host: HostIx) -> Option<(Rank, WorkunitIx)> {
        let some = self.queue.iter().take(LIST_SCANNED_MAX);
        let refused = some.filter(|(workunit, _)| farm.is_last_resort(**workunit, host));
        refused.map(|(workunit, Reverse(rank))| (*rank, *workunit)).min()
    }

    pub(crate) fn check(&self, name: &'static str) -> Result<(), Violation> {
        let Some(marks) = &self.marks else { return Ok(()) };
        let same = marks.len() == self.queue.len()
            && marks.iter().all(|(rank, workunit)| self.rank(workunit) == Some(rank));
        if same {
            return Ok(());
        }
        let detail = format!("{name}: {} entries, {} marked", self.queue.len(), marks.len());
        Err(Violation::new("queue-members", detail))
    }
}

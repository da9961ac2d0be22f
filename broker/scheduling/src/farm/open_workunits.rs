//! All open workunits, in a slab.

use super::lease::LeaseEnd;
use super::{Pending, Workunit, WorkunitIx};
use crate::limits::OPEN_WORKUNITS_MAX;

const PAGE: usize = 512;

/// Open workunits by number. Grows by pages, so that it neither moves what it holds nor reserves
/// as much again.
#[derive(Debug)]
pub(crate) struct OpenWorkunits {
    pages: Vec<Box<[Option<Workunit>]>>,
    vacant: Vec<WorkunitIx>,
    /// Numbers that were ever used are below this one.
    used: usize,
    /// [`OPEN_WORKUNITS_MAX`], less in tests.
    pub(crate) max: usize,
}

impl Default for OpenWorkunits {
    fn default() -> Self {
        Self { pages: Vec::new(), vacant: Vec::new(), used: 0, max: OPEN_WORKUNITS_MAX }
    }
}

impl OpenWorkunits {
    pub(crate) fn len(&self) -> usize {
        self.used - self.vacant.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    fn slot(&self, workunit: WorkunitIx) -> Option<&Workunit> {
        self.pages.get(workunit.get() / PAGE)?[workunit.get() % PAGE].as_ref()
    }

    pub(crate) fn get(&self, workunit: WorkunitIx) -> &Workunit {
        self.slot(workunit).expect("an index is dropped when its workunit ends")
    }

    pub(crate) fn get_mut(&mut self, workunit: WorkunitIx) -> &mut Workunit {
        let slot = &mut self.pages[workunit.get() / PAGE][workunit.get() % PAGE];
        slot.as_mut().expect("an index is dropped when its workunit ends")
    }

    pub(crate) fn contains(&self, workunit: WorkunitIx) -> bool {
        self.slot(workunit).is_some()
    }

    /// The pending replica that a lease's end is about; `None` where that has ended before.
    pub(crate) fn pending_at(&self, end: &LeaseEnd) -> Option<Pending> {
        let unit = self.slot(end.workunit)?;
        unit.pending.iter().find(|pending| pending.serial == end.serial).copied()
    }

    pub(crate) fn insert(&mut self, workunit: Workunit) -> WorkunitIx {
        let index = self.vacant.pop().unwrap_or_else(|| {
            if self.used == self.pages.len() * PAGE {
                self.pages.push((0..PAGE).map(|_| None).collect());
            }
            self.used += 1;
            WorkunitIx::from_index(self.used - 1)
        });
        self.pages[index.get() / PAGE][index.get() % PAGE] = Some(workunit);
        index
    }

    pub(crate) fn remove(&mut self, workunit: WorkunitIx) -> Workunit {
        let slot = self.pages[workunit.get() / PAGE][workunit.get() % PAGE].take();
        self.vacant.push(workunit);
        slot.expect("an index is dropped when its workunit ends")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkunitIx, &Workunit)> {
        let slots = self.pages.iter().flatten().take(self.used).enumerate();
        slots.filter_map(|(index, slot)| Some((WorkunitIx::from_index(index), slot.as_ref()?)))
    }
}

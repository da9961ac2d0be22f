//! The content of a host's run folder, under the rule that its hooks follow.

use std::collections::BTreeMap;

use gleaner_agent::booked_cores;
use gleaner_agent::harvest::RunFolderState;
use gleaner_hooks::limits::ENDED_BOOKINGS_MAX;
use gleaner_hooks::{BookingChange, BookingRecord};
use gleaner_protocol::farm::{Booked, SampledBooking};
use gleaner_protocol::{BookingId, Epoch, Time};

use super::rules::{GIVEN_MIB, MIB_PER_BOOKED_CORE};

/// One life of a run folder.
#[derive(Debug)]
pub(super) struct Folder {
    epoch: Epoch,
    bookings: BTreeMap<BookingId, BookingRecord>,
    /// Nothing can be written; names can still be made.
    pub(super) is_full: bool,
}

impl Folder {
    pub(super) fn new(incarnation: u64) -> Self {
        let epoch = Epoch { incarnation, count: 0 };
        Self { epoch, bookings: BTreeMap::new(), is_full: false }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// `None` where it cannot be written.
    pub(super) fn raise_epoch(&mut self) -> Option<Epoch> {
        if self.is_full {
            return None;
        }
        self.epoch.count += 1;
        Some(self.epoch)
    }

    /// A preflight books.
    pub(super) fn begin(
        &mut self,
        now: Time,
        id: &BookingId,
        booked: &Booked,
    ) -> Option<BookingChange> {
        let present = self.bookings.get(id).copied();
        let (record, change) = BookingRecord::preflight(present, now, booked);
        let Some(record) = record else { return Some(change) };
        let record = match (self.is_full, present) {
            (false, _) => record,
            // An empty file books the whole host, and one that is there can be emptied.
            (true, None | Some(BookingRecord::Running { .. })) => {
                BookingRecord::Running { resources: Booked::default() }
            }
            (true, Some(BookingRecord::Ended { .. })) => return None,
        };
        self.bookings.insert(id.clone(), record);
        Some(change)
    }

    /// A postflight ends a booking.
    pub(super) fn end(&mut self, now: Time, id: &BookingId) -> Option<BookingChange> {
        let present = self.bookings.get(id).copied();
        let (record, change) = BookingRecord::postflight(present, now);
        let Some(record) = record else { return Some(change) };
        match (self.is_full, present) {
            (false, _) => drop(self.bookings.insert(id.clone(), record)),
            (true, Some(_)) => drop(self.bookings.remove(id)),
            (true, None) => return None,
        }
        self.prune();
        Some(change)
    }

    fn prune(&mut self) {
        if self.bookings.len() <= ENDED_BOOKINGS_MAX {
            return;
        }
        let ended = self.bookings.iter().filter_map(|(id, record)| match record {
            BookingRecord::Ended { at_us, .. } => Some((*at_us, id.clone())),
            BookingRecord::Running { .. } => None,
        });
        let mut ended: Vec<_> = ended.collect();
        ended.sort_unstable();
        ended.truncate(ended.len().saturating_sub(ENDED_BOOKINGS_MAX / 2));
        for (_, id) in ended {
            self.bookings.remove(&id);
        }
    }

    pub(super) fn running(&self) -> impl Iterator<Item = SampledBooking> {
        self.bookings.iter().filter_map(|(id, record)| match record {
            BookingRecord::Running { resources } => {
                Some(SampledBooking { booking: id.clone(), resources: *resources })
            }
            BookingRecord::Ended { .. } => None,
        })
    }

    /// Cores that all bookings but one leave, of `cores`.
    pub(super) fn cores_left(&self, but: &BookingId, wanted: Booked, cores: u32) -> u32 {
        let Some(wanted) = wanted.cores else { return 0 };
        let others = self.running().filter(|other| other.booking != *but);
        let booked = booked_cores(others.map(|other| other.resources), cores);
        cores.saturating_sub(booked.saturating_add(wanted))
    }

    pub(super) fn run_folder(&self, cores: u32) -> RunFolderState {
        let booked = booked_cores(self.running().map(|booking| booking.resources), cores);
        let taken_mib = u64::from(booked) * MIB_PER_BOOKED_CORE;
        let memory_mib = Some(GIVEN_MIB.saturating_sub(taken_mib));
        RunFolderState { epoch: self.epoch, booked, has_fence: false, memory_mib, gpus: 0 }
    }
}

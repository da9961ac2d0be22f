//! What renders have booked of the host, as far as the driver acts on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use gleaner_protocol::control::Opening;
use gleaner_protocol::farm::Booked;
use gleaner_protocol::{Origin, boottime};
use tracing::{debug, warn};

use super::Driver;
use crate::agent::opening_seals::SealError;
use crate::host::booked_memory::today;
use crate::host::run_folder::NOTHING_BOOKED;

impl Driver {
    /// For how long an opening is good as the word of the farm's monitor, in milliseconds; nothing where it
    /// is not that. A desktop obeys none.
    pub(super) fn valid_ms(&mut self, opening: &Opening) -> Option<u64> {
        if self.harvest.origin() != Origin::Farm {
            return Some(opening.valid_ms);
        }
        let checked = self.seals.check(opening);
        if checked == Err(SealError::Old) {
            debug!("{}", SealError::Old);
            return None;
        }
        if self.alarms.note_openings(checked.as_ref().err().map(SealError::to_string)) {
            self.sound_alarm();
        }
        checked.ok()
    }

    /// A desktop is no farm's, and what was decided before a hook is not news.
    pub(super) fn hear_what_the_farm_books(&mut self, opening: &Opening) {
        let is_news = self.shop.run_dir.epoch().ok() == Some(opening.epoch);
        if is_news && self.harvest.origin() == Origin::Farm {
            let Opening { booked_cores, gpus, memory_mib, .. } = opening;
            self.shop.booked_memory.note_left(*memory_mib);
            self.farm_books = Booked { cores: Some(*booked_cores), gpus: *gpus, ..NOTHING_BOOKED };
        }
    }

    /// Notes which CPUs renders claim that booked so many, and has harvested work kept off them when it
    /// is looked at next; these, where they are others than before.
    pub(super) fn claim(&mut self, booked: u32) -> Option<BTreeSet<u32>> {
        let Self { bound, shop, seen, .. } = self;
        let claims = bound.claims(&shop.topology, seen, booked);
        if claims == shop.table.claims() {
            return None;
        }
        shop.table.note_claims(claims.clone());
        self.kept_off = None;
        Some(claims)
    }

    /// Memory that all harvested work may take together, in MiB.
    pub(super) fn harvest_mib(&self) -> u64 {
        self.shop.booked_memory.harvest_mib(today(), self.shop.memory_mib)
    }

    /// Remembers how much memory renders book, and has harvested work leave it to them.
    pub(super) fn note_booked_memory(&mut self, booked_mib: u64) {
        let day = today();
        if self.shop.booked_memory.note(day, booked_mib) {
            let memory = Arc::clone(&self.shop.booked_memory);
            tokio::task::spawn_blocking(move || memory.write_or_say());
        }
        let most_mib = self.harvest_mib();
        let set = |mib| self.shop.enclosure.set_memory_mib(mib);
        if let Err(error) = self.memory_limit.keep(boottime(), most_mib, set) {
            // The observer ends what takes too much all the same.
            warn!("harvested work goes without this limit of its memory for now: {error}");
        }
    }

    /// Keeps what goes on beside renders off their physical cores.
    pub(super) fn keep_off(&mut self, booked: u32) {
        if self.kept_off == Some(booked) {
            return;
        }
        let left = self.shop.topology.beside(booked, &self.shop.table.claims());
        if !self.has_fence {
            // Before the first render beside which something went on, nothing was kept off anything. All
            // that runs is gone over for it, which takes its time of the cores.
            let is_news = self.kept_to.as_ref().map_or(booked > 0, |kept| *kept != left);
            if is_news && !left.is_empty() {
                self.shop.table.keep_to_cpus(&left);
                self.kept_to = Some(left);
            }
            self.kept_off = Some(booked);
            return;
        }
        match self.shop.enclosure.set_cpus(&left) {
            Ok(()) => self.kept_off = Some(booked),
            Err(error) => warn!("{error}"),
        }
    }
}

//! Lines on their way to the disk.
//!
//! # Invariants
//! - At most [`RECORD_WAITING_MAX`] lines wait, and one more per host.
//! - Lines leave in the order of their times.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::HostName;
use gleaner_protocol::recording::{HostLine, Line, LostLine};

use crate::limits::RECORD_WAITING_MAX;

/// Between the monitor and the thread that writes.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    waiting: Mutex<Waiting>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<Line>,
    /// What hosts are like, for which there was no room any more.
    newest: BTreeMap<HostName, HostLine>,
    lost: u64,
    closed: bool,
}

impl Tape {
    /// Adds a line. Callers take care of the order of times.
    pub(crate) fn put(&self, line: Line) {
        self.lock().put(line);
        self.filled.notify_one();
    }

    /// Waits until there is something and takes it all; `None` once closed and empty.
    pub(super) fn take(&self) -> Option<Vec<Line>> {
        let waiting = self.lock();
        let is_idle = |waiting: &mut Waiting| waiting.lines.is_empty() && !waiting.closed;
        let waited = self.filled.wait_while(waiting, is_idle);
        let batch = waited.unwrap_or_else(PoisonError::into_inner).take();
        (!batch.is_empty()).then_some(batch)
    }

    /// Nothing more comes.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// No code that holds it can leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn put(&mut self, line: Line) {
        if self.lines.len() < RECORD_WAITING_MAX {
            self.lines.push(line);
            return;
        }
        let Line::Host(line) = line else {
            self.lost += 1;
            return;
        };
        match self.newest.entry(line.host.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(line);
            }
            Entry::Occupied(mut entry) => {
                let before = entry.get();
                let (disturbed, shut) = (before.disturbed, before.shut);
                let disturbed = disturbed || line.disturbed;
                let shut = shut || line.shut;
                entry.insert(HostLine { disturbed, shut, ..line });
                self.lost += 1;
            }
        }
    }

    fn take(&mut self) -> Vec<Line> {
        let mut batch = std::mem::take(&mut self.lines);
        let newest = std::mem::take(&mut self.newest);
        let behind = batch.len();
        batch.extend(newest.into_values().map(Line::Host));
        batch[behind..].sort_by_key(Line::t_us);
        let lines = std::mem::take(&mut self.lost);
        if let Some(t_us) = batch.last().map(Line::t_us).filter(|_| lines > 0) {
            batch.push(Line::Lost(LostLine { t_us, lines }));
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_protocol::recording::AliveLine;

    fn host(t_us: u64, name: &str, busy: u32, disturbed: bool) -> Line {
        let host = HostName::new(name).expect("a name");
        Line::Host(HostLine { t_us, host, cores: 8, busy, seen: true, disturbed, shut: false })
    }

    #[test]
    fn a_disk_that_is_too_slow_costs_lines_but_never_the_newest_state() {
        let tape = Tape::default();
        for t_us in 0..RECORD_WAITING_MAX as u64 {
            tape.put(Line::Alive(AliveLine { t_us }));
        }
        let full = RECORD_WAITING_MAX as u64;
        tape.put(host(full, "b", 1, true));
        tape.put(host(full + 1, "a", 2, false));
        tape.put(Line::Alive(AliveLine { t_us: full + 2 }));
        tape.put(host(full + 3, "b", 3, false));
        let batch = tape.take().expect("lines wait");
        let expected = [
            host(full + 1, "a", 2, false),
            host(full + 3, "b", 3, true),
            Line::Lost(LostLine { t_us: full + 3, lines: 2 }),
        ];
        assert_eq!(batch[RECORD_WAITING_MAX..], expected);
        tape.put(host(full + 4, "a", 0, false));
        assert_eq!(tape.take(), Some(vec![host(full + 4, "a", 0, false)]));
        tape.close();
        assert_eq!(tape.take(), None);
    }
}

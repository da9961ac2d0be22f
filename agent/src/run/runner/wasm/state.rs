//! What one run of a module has: its files and descriptors, its clock and its randomness, and
//! the line to the agent.

use std::collections::VecDeque;

use gleaner_protocol::Digest;
use wasmtime::Memory;

use super::checkpoint::Checkpoints;
use super::descriptors::Descriptors;
use super::files::{Files, NodeIx};
use super::limiter::Limiter;
use super::limits::STDERR_BYTES;
use super::random::Random;
use super::wire::Wire;

/// The state.
#[derive(Debug)]
pub(super) struct State {
    /// Its arguments, the program's name first.
    pub(super) args: Vec<String>,
    /// Its files.
    pub(super) files: Files,
    /// What it has open.
    pub(super) descriptors: Descriptors,
    /// Its clock.
    pub(super) clock: Clock,
    /// Its randomness.
    pub(super) random: Random,
    /// The end of what it wrote to standard error.
    pub(super) stderr: Tail,
    /// All of it, where that is an output.
    pub(super) stderr_node: Option<NodeIx>,
    /// Its memory, once it has been looked up.
    pub(super) memory: Option<Memory>,
    /// Counts its memory.
    pub(super) limiter: Limiter,
    /// What it saves, and what was saved.
    pub(super) checkpoints: Checkpoints,
    /// The line to the agent.
    pub(super) wire: Wire,
}

/// A clock that counts how often it is read, so that it shows the same on every host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Clock {
    /// Nanoseconds since the module began.
    nanos: u64,
}

impl Clock {
    /// Between two readings, in nanoseconds; also the resolution that it claims.
    pub(super) const STEP_NANOS: u64 = 1_000;

    /// What the calendar shows when a module begins: the first second of the year 2000, in
    /// nanoseconds since 1970.
    pub(super) const CALENDAR_START_NANOS: u64 = 946_684_800_000_000_000;

    /// One that shows this much already.
    pub(super) fn at(nanos: u64) -> Self {
        Self { nanos }
    }

    /// Nanoseconds since the module began, not counted as a reading.
    pub(super) fn nanos(self) -> u64 {
        self.nanos
    }

    /// Reads it.
    pub(super) fn read(&mut self) -> u64 {
        self.nanos = self.nanos.saturating_add(Self::STEP_NANOS);
        self.nanos
    }

    /// Waits until it shows this much, which takes no time.
    pub(super) fn wait_until(&mut self, nanos: u64) {
        self.nanos = self.nanos.max(nanos);
    }
}

/// The end of a text.
#[derive(Debug, Default)]
pub(super) struct Tail(VecDeque<u8>);

impl Tail {
    /// Adds to it.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let new = &bytes[bytes.len().saturating_sub(STDERR_BYTES)..];
        self.0.extend(new);
        let surplus = self.0.len().saturating_sub(STDERR_BYTES);
        self.0.drain(..surplus);
    }

    /// As text.
    pub(super) fn text(&mut self) -> String {
        String::from_utf8_lossy(self.0.make_contiguous()).trim().to_owned()
    }
}

/// The randomness of a workunit, from what names it.
pub(super) fn seed_of(workunit: &Digest) -> u64 {
    let (first, _) = workunit.as_bytes().split_first_chunk().expect("32 bytes");
    u64::from_le_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_shows_how_often_it_was_read() {
        let mut clock = Clock::default();
        assert_eq!((clock.read(), clock.read()), (1_000, 2_000));
        clock.wait_until(10_000);
        clock.wait_until(5_000);
        assert_eq!((clock.nanos(), clock.read()), (10_000, 11_000));
    }

    #[test]
    fn only_the_end_of_a_text_is_kept() {
        let mut tail = Tail::default();
        tail.take(&[b'a'; 5000]);
        tail.take(b"the end\n");
        assert_eq!(tail.0.len(), STDERR_BYTES);
        assert!(tail.text().ends_with("aathe end"));
    }
}

//! The settings of the modelled parts: those of a farm that takes itself seriously.

use gleaner_monitor::{Polling, Rules};
use gleaner_protocol::Span;

/// How long a replica is leased, in seconds.
pub(super) const LEASE_S: u64 = 900;
/// How often an agent sends a sample.
pub(super) const SAMPLE_EVERY: Span = Span::from_secs(10);
/// How often the farm is polled.
pub(super) const POLL_EVERY: Span = Span::from_secs(15);
/// How long an agent hears nothing before it gives a link up.
pub(super) const AGENT_SILENCE: Span = Span::from_secs(35);
/// How long the broker hears nothing before it gives a link up.
pub(super) const BROKER_SILENCE: Span = Span::from_secs(45);
/// How many tries a hook has to tell the monitor.
pub(super) const HOOK_TRIES: u8 = 5;
/// The name that polls go by.
pub(super) const POLL_SOURCE: &str = "farm";
/// When a snapshot takes the journal's place, in bytes.
pub(super) const SNAPSHOT_AFTER_BYTES: u64 = 64 << 10;
/// Memory of a host, in MiB.
pub(super) const MEMORY_MIB: u64 = 64 << 10;
/// What of that hosts give beside nothing that is booked, in MiB, and what a booked core takes of it.
pub(super) const GIVEN_MIB: u64 = 16 << 10;
pub(super) const MIB_PER_BOOKED_CORE: u64 = 4 << 10;
/// What a replica of some jobs takes of it, in MiB: two of them do not share a host.
pub(super) const LARGE_MIB: u32 = 9 << 10;

/// Disk space that a host gives to copies of chunks, in MiB.
pub(super) const CHUNK_CACHE_MIB: u64 = 64;
/// Length of a chunk, in bytes.
pub(super) const CHUNK_BYTES: u64 = 8 << 20;

/// The monitor's, as they are by default.
pub(super) const fn of_monitor() -> Rules {
    Rules {
        quiet: Span::from_secs(60),
        reserve_cores: 0,
        reserve_memory_mib: 0,
        fragment_valid: Span::from_secs(30),
        booking_limit: Span::from_secs(86_400),
        poll_interval: POLL_EVERY,
        polling: Polling::Awaited,
    }
}

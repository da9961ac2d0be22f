//! Named bounds of the monitor.

use gleaner_protocol::Span;

/// Most hosts that it watches.
pub const HOSTS_MAX: usize = 200_000;
/// Most running bookings of one host; one with more counts as wholly booked.
pub const BOOKINGS_MAX: usize = 4_096;
/// Most ended bookings that are remembered of one host.
pub const ENDED_BOOKINGS_MAX: usize = 256;
/// Most contradictions that are kept of one host, for display.
pub const CONTRADICTIONS_MAX: usize = 16;
/// Consecutive polls without a host, or without a booking that a hook told of, that end it.
pub const MISSED_POLLS_MAX: u8 = 2;
/// After this many poll intervals without an answer a poll-only host is closed, whatever the
/// poller is doing.
pub const SILENT_POLL_INTERVALS_MAX: u64 = 3;
/// Longest body of a sample, in bytes.
pub const SAMPLE_BYTES_MAX: u64 = 1 << 20;
/// Longest answer of a farm that is polled, in bytes.
pub const POLL_ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest wait for the answer of a farm that is polled.
pub const POLL_TIMEOUT: Span = Span::from_secs(10);
/// How long a sample may be on its way: within this time after a hook it may not know of it yet.
pub const SAMPLE_LAG: Span = Span::from_secs(5);
/// How long the last lines of a recording may take to be written after the monitor was told to stop.
pub const SHUTDOWN_TIMEOUT: Span = Span::from_secs(2);
/// Most events that are sent to the broker at once.
pub const BATCH_EVENTS_MAX: usize = 1_024;
/// Longest wait for the broker's answer.
pub const BROKER_TIMEOUT: Span = Span::from_secs(5);
/// Pause after the first failure to reach the broker; it doubles with each further one.
pub const BROKER_PAUSE_MIN: Span = Span::from_millis(100);
/// Longest pause between two tries to reach the broker.
pub const BROKER_PAUSE_MAX: Span = Span::from_secs(1);
/// Most lines of the recording that wait for the disk.
pub const RECORD_WAITING_MAX: usize = 1 << 16;
/// A recording's file that has grown beyond so many bytes gives way to a new one.
pub const RECORD_FILE_BYTES_MAX: u64 = 256 << 20;
/// Most files of a recording; the oldest goes first.
pub const RECORD_FILES_MAX: usize = 8;
/// How often a recording says that the monitor lives.
pub const RECORD_ALIVE_INTERVAL: Span = Span::from_secs(60);
/// Longest token file, in bytes.
pub const TOKEN_BYTES_MAX: u64 = 4 << 10;
/// Longest quiet period, poll interval or validity that can be configured, in seconds.
pub const SECONDS_MAX: f64 = 86_400.0;
/// Longest booking limit that can be configured, in seconds.
pub const BOOKING_LIMIT_S_MAX: f64 = 365.0 * 86_400.0;

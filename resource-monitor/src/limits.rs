//! Named bounds of the monitor.

use gleaner_protocol::Span;

/// Most hosts that it watches.
pub const HOSTS_MAX: usize = 200_000;
/// Most other names that one host is known by.
pub const ALIASES_MAX: usize = 8;
/// After how long without a sample a host counts as one without an agent: another name may be its own.
pub const AGENT_SILENT_MAX: Span = Span::from_secs(600);
/// Least memory of a fragment, in MiB: with less nothing that is started comes far.
pub const MEMORY_MIB_MIN: u64 = 64;
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
/// Longest answer of a farm that is polled, in bytes. Of a program's answer that is what is kept of it.
pub const POLL_ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest answer of a program of which most is dropped as it comes, in bytes.
pub const POLL_STREAM_BYTES_MAX: u64 = 4 << 30;
/// Most containers in each other in such an answer.
pub const POLL_DEPTH_MAX: usize = 100;
/// Longest name of a field in it, in bytes.
pub const POLL_NAME_BYTES_MAX: usize = 16 << 10;
/// Most that is quoted of an answer that is not understood, in characters.
pub const POLL_QUOTE_CHARS_MAX: usize = 160;
/// Most parts of an answer that are shown as not understood; the others are counted.
pub const POLL_UNCLEAR_MAX: usize = 64;
/// Longest wait for the answer of a farm that is polled.
pub const POLL_TIMEOUT: Span = Span::from_secs(10);
/// Shortest pause between the beginnings of two polls of which the second is one out of turn, because
/// the farm said that something changed; it is twice as long as the poll before took, at least.
pub const EVENT_POLL_PAUSE_MIN: Span = Span::from_millis(500);
/// Longest message in which a farm says so, in bytes.
pub const EVENT_BYTES_MAX: usize = 256 << 10;
/// Longest wait for a step of the connection to those messages.
pub const EVENTS_TIMEOUT: Span = Span::from_secs(10);
/// How often it is seen whether the other end of it lives.
pub const EVENTS_PING_INTERVAL: Span = Span::from_secs(15);
/// Pause after its first end; it doubles with each further one.
pub const EVENTS_PAUSE_MIN: Span = Span::from_millis(200);
/// Longest pause between two such connections. One that held for longer was a good one.
pub const EVENTS_PAUSE_MAX: Span = Span::from_secs(30);
/// Hosts that a farm manager is asked about at once, where it is asked about each.
pub const POLL_AT_ONCE_MAX: usize = 8;
/// Most hosts of an OpenCue farm, each of which is asked.
pub const RQD_HOSTS_MAX: usize = 4_096;
/// Of these, asked at once.
pub const RQD_AT_ONCE_MAX: usize = 128;
/// Hosts' names that are looked up at once.
pub const RQD_LOOKUPS_AT_ONCE_MAX: usize = 32;
/// Longest wait for a host's RQD: its name's lookup, its connection and its answer.
pub const RQD_TIMEOUT: Span = Span::from_secs(2);
/// Longest answer of an RQD, in bytes: the longest that gRPC's own libraries take unless told to.
pub const RQD_ANSWER_BYTES_MAX: usize = 4 << 20;
/// Most that an RQD may say beside its answer, in bytes.
pub const RQD_HEADERS_BYTES_MAX: u32 = 16 << 10;
/// Most frames that an RQD may report.
pub const RQD_FRAMES_MAX: usize = BOOKINGS_MAX;
/// Most attributes that its host may have, and all its frames together.
pub const RQD_ATTRIBUTES_MAX: usize = 1 << 16;
/// Most that is shown of why an RQD refuses, in characters.
pub const RQD_COMPLAINT_CHARS_MAX: usize = 200;
/// Most that is read of what a program complains of while the farm is polled by it, in bytes.
pub const POLL_COMPLAINT_BYTES_MAX: usize = 16 << 10;
/// How long a sample may be on its way: within this time after a hook it may not know of it yet.
pub const SAMPLE_LAG: Span = Span::from_secs(5);
/// How long after a farm has listed a render first a hook may tell of it.
pub const HOOK_LAG: Span = Span::from_secs(30);
/// How long after a host has told of a render's end its farm may list it: it hears of that later.
pub const END_LAG: Span = Span::from_secs(30);
/// How long the last lines of a recording may take to be written after the monitor was told to stop.
pub const SHUTDOWN_TIMEOUT: Span = Span::from_secs(2);
/// Most events that are sent to the broker at once.
pub const BATCH_EVENTS_MAX: usize = 1_024;
/// How often the broker is told how polls go and where sources disagree.
pub const REPORT_TOLD: Span = Span::from_secs(5);
/// Of the hosts' contradictions, how many it is told, the newest.
pub const REPORT_CONTRADICTIONS_MAX: usize = 100;
/// How often the broker is told what is compared.
pub const COMPARISON_TOLD: Span = Span::from_secs(60);
/// Longest answer of the broker that says whom it knows, in bytes.
pub const PEOPLE_ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest wait for it: a broker that has nothing new to tell answers some seconds before.
pub const PEOPLE_TIMEOUT: Span = Span::from_secs(30);
/// Longest body of whoever has yet to prove who it is, in bytes.
pub const OPEN_BODY_BYTES_MAX: u64 = 16 << 10;
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
/// Longest file with a password, in bytes.
pub const PASSWORD_BYTES_MAX: u64 = 4 << 10;
/// Longest quiet period, poll interval or validity that can be configured, in seconds.
pub const SECONDS_MAX: f64 = 86_400.0;
/// Longest booking limit that can be configured, in seconds.
pub const BOOKING_LIMIT_S_MAX: f64 = 365.0 * 86_400.0;
/// Most times of preflights that are kept, for their percentiles.
pub const RELEASE_TIMES_MAX: usize = 4_096;
/// Longest word for who stops the farm, in characters.
pub const STOP_BY_CHARS_MAX: usize = 200;
/// Longest reason for it, in characters.
pub const STOP_REASON_CHARS_MAX: usize = 1_000;
/// Longest body of a stop or a resume, in bytes.
pub const STOP_BODY_BYTES_MAX: u64 = 16 << 10;
/// Longest file of a stop, in bytes.
pub const STOP_FILE_BYTES_MAX: u64 = 16 << 10;
/// Most groups of hosts, each of which every host is compared with.
pub const GROUPS_MAX: usize = 64;
/// Most schedules.
pub const SCHEDULES_MAX: usize = 64;
/// Most patterns of one group.
pub const GROUP_HOSTS_MAX: usize = 1_000;
/// Longest pattern of hosts' names, in bytes.
pub const PATTERN_BYTES_MAX: usize = 128;
/// Longest name of a group or a schedule, in characters.
pub const RULE_NAME_CHARS_MAX: usize = 64;
/// Fewest idle gaps of a group's hosts from which a quiet period is learned.
pub const GAPS_MIN: usize = 32;
/// Most of them that are gone by, the newest.
pub const GAPS_MAX: usize = 512;
/// Most groups of which something is learned: the hosts of none are one more.
pub const LEARNED_GROUPS_MAX: usize = GROUPS_MAX + 1;
/// Shortest quiet period that is learned, but where a shorter one is configured.
pub const QUIET_LEARNED_MIN: Span = Span::from_secs(10);
/// Longest.
pub const QUIET_LEARNED_MAX: Span = Span::from_secs(600);
/// How often the clock on the wall is looked at, at least.
pub const ORDERS_INTERVAL_MAX: Span = Span::from_secs(10);
/// Longest file of what is known of the hosts, in bytes.
pub const HOSTS_FILE_BYTES_MAX: u64 = 256 << 20;
/// Longest file of what was learned of quiet periods, in bytes: [`LEARNED_GROUPS_MAX`] groups with
/// [`GAPS_MAX`] gaps each fit.
pub const LEARNED_FILE_BYTES_MAX: u64 = 1 << 20;
/// How often what is known of the hosts is written down, where it has changed.
pub const MEMORY_INTERVAL: Span = Span::from_secs(5);
/// Shortest pause between two times: so much of what must not be lost may be lost by a kill.
pub const MEMORY_PAUSE: Span = Span::from_millis(500);
/// Most hosts that are held out of harvest each day, in thousandths of all.
pub const HELD_OUT_PERMILLE_MAX: u16 = 500;
/// Fewest days with hosts of both arms from which a difference is estimated.
pub const COMPARED_DAYS_MIN: usize = 5;
/// Most days that are compared, the newest: ten years.
pub const COMPARED_DAYS_MAX: usize = 3_653;
/// For how long a host must have been compared on a day for the share of it that it rendered.
pub const COMPARED_PRESENCE_MIN: Span = Span::from_secs(3_600);
/// For how long a host must have rendered on a day to have a rate.
pub const COMPARED_RENDERING_MIN: Span = Span::from_secs(3_600);
/// How often what is compared is written down.
pub const COMPARISON_INTERVAL: Span = Span::from_secs(300);
/// Longest file of it, in bytes.
pub const COMPARISON_FILE_BYTES_MAX: u64 = 64 << 20;

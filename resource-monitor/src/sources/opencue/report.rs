//! What an RQD reports, as protocol buffers, and what that books.
//!
//! Of `report.proto`, `rqd.proto` and `host.proto` of OpenCue 1.37 only the fields that are read;
//! others are passed over. RQD counts a core as 100 and leaves cores of hyper-threading out, while
//! hosts here have as many as their system shows: a core of RQD's is as many of ours as its host has
//! threads in one.
//!
//! A frame books its cores with all their threads: RQD gives no other frame any of them, whether this
//! one is bound to them, as its wrapper has them in `CUE_THREADS` then, or runs on fewer. Only the
//! Python RQD says which it is. What a frame may use of memory RQD does not say, so it has its cores'
//! share, unless it has used more already. What is booked beyond the frames is booked as well. What is
//! locked is withheld, and wholly so a host whose user is at it, or that is not up.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::{BookingId, HostName, Time, booking_of};
use prost::Message;

use super::counted::is_too_much;
use crate::HostAllocation;
use crate::limits::{RQD_ATTRIBUTES_MAX, RQD_FRAMES_MAX};
use crate::sources::inventory::{Amount, Inventory};
use crate::sources::opencue::NAME;

/// RQD's number for a core.
const CORE: u64 = 100;
/// `UP` of `host.HardwareState`.
const UP: i32 = 0;
/// Memory of a frame counts in such parts of its host's: it grows all the time, and whatever changes
/// begins a quiet period.
const MEMORY_PARTS: u64 = 16;

/// `rqd.RqdStaticReportStatusResponse`.
#[derive(Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    host_report: Option<HostReport>,
}

/// `report.HostReport`.
#[derive(Message)]
struct HostReport {
    #[prost(message, optional, tag = "1")]
    host: Option<RenderHost>,
    #[prost(message, repeated, tag = "2")]
    frames: Vec<RunningFrameInfo>,
    #[prost(message, optional, tag = "3")]
    core_info: Option<CoreDetail>,
}

/// `report.RenderHost`.
#[derive(Message)]
struct RenderHost {
    /// Its user is at it, so that it takes no frames.
    #[prost(bool, tag = "3")]
    nimby_locked: bool,
    /// In KiB.
    #[prost(int64, tag = "8")]
    total_mem: i64,
    /// A `host.HardwareState`.
    #[prost(int32, tag = "16")]
    state: i32,
    /// Among them `hyperthreadingMultiplier`: threads of a core.
    #[prost(btree_map = "string, string", tag = "17")]
    attributes: BTreeMap<String, String>,
}

/// `report.RunningFrameInfo`.
#[derive(Message)]
struct RunningFrameInfo {
    /// What `CUE_FRAME_ID` is in its environment.
    #[prost(string, tag = "4")]
    frame_id: String,
    /// In hundredths.
    #[prost(int32, tag = "7")]
    num_cores: i32,
    /// The most memory that it has used, in KiB.
    #[prost(int64, tag = "9")]
    max_rss: i64,
    /// Among them `CPU_LIST`: to which it is bound.
    #[prost(btree_map = "string, string", tag = "13")]
    attributes: BTreeMap<String, String>,
    #[prost(int32, tag = "15")]
    num_gpus: i32,
}

/// `report.CoreDetail`, in hundredths of cores.
#[derive(Message)]
struct CoreDetail {
    #[prost(int32, tag = "1")]
    total_cores: i32,
    /// That take no frames.
    #[prost(int32, tag = "3")]
    locked_cores: i32,
    /// That frames have, or are about to have.
    #[prost(int32, tag = "4")]
    booked_cores: i32,
}

impl RunningFrameInfo {
    /// Cores of ours, of which a core of RQD's has so many; none where it does not say them.
    fn cores(&self, threads: u64) -> Option<u64> {
        let bound = self.attributes.get("CPU_LIST").filter(|list| !list.is_empty());
        let bound = bound.map_or(0, |list| list.split(',').count() as u64);
        let booked = u64::try_from(self.num_cores).ok().filter(|booked| *booked > 0)?;
        Some((booked * threads).div_ceil(CORE).max(bound))
    }

    /// Memory in MiB that it has used beyond its cores' share of the host's.
    fn memory_beyond_share_mib(&self, cores: Option<u64>, host: Amount) -> Option<u64> {
        let used = u64::try_from(self.max_rss).ok()? >> 10;
        let (all, share_of) = (host.memory_mib?, host.cores?.max(1));
        let share = all.saturating_mul(cores?) / share_of;
        let part = (all / MEMORY_PARTS).max(1);
        (used > share).then(|| used.div_ceil(part).saturating_mul(part))
    }
}

/// What the answer of this host's RQD says, which was asked then.
pub(super) fn allocation(
    host: &HostName,
    asked_at: Time,
    answer: &[u8],
) -> Result<HostAllocation, String> {
    if is_too_much(answer).map_err(|error| error.to_string())? {
        return Err(format!(
            "it reports more than {RQD_FRAMES_MAX} frames, or {RQD_ATTRIBUTES_MAX} attributes"
        ));
    }
    let answer = StatusResponse::decode(answer).map_err(|error| error.to_string())?;
    let report = answer.host_report.ok_or("it reports nothing")?;
    let (Some(machine), Some(of)) = (&report.host, &report.core_info) else {
        return Err("its report has no host or no cores".into());
    };
    let hundredths = |cores: i32| {
        u64::try_from(cores).map_err(|_| format!("it has {cores} hundredths of a core"))
    };
    let core_threads = threads_of(machine);
    let threads = u64::from(core_threads);
    let total = hundredths(of.total_cores)?;
    let memory_mib = u64::try_from(machine.total_mem).ok().filter(|kib| *kib > 0);
    let size = Amount::cores(total / CORE * threads).with_memory(memory_mib.map(|kib| kib >> 10));
    let name = host.as_str();
    let mut farm = Inventory::of(NAME);
    farm.host(name, size);
    // It may be asked by two at once, and then lists a frame twice.
    let mut listed = BTreeSet::new();
    for frame in report.frames.iter().filter(|frame| listed.insert(&frame.frame_id)) {
        let cores = frame.cores(threads);
        let memory_mib = frame.memory_beyond_share_mib(cores, size);
        let gpus = u32::try_from(frame.num_gpus).ok().filter(|gpus| *gpus > 0);
        let amount = Amount { cores, memory_mib, gpus };
        farm.books(name, booking_of(NAME, &frame.frame_id), amount);
    }
    let (booked, locked) = (hundredths(of.booked_cores)?, hundredths(of.locked_cores)?);
    // As those of frames are rounded.
    let of_ours = |hundredths: u64| (hundredths.min(total) * threads).div_ceil(CORE);
    farm.books_rest(name, unnamed(), of_ours(booked));
    farm.withholds_rest(name, booking_of(NAME, "locked"), of_ours(booked + locked));
    if machine.nimby_locked {
        farm.withholds(name, booking_of(NAME, "nimby"), Amount::default());
    }
    if machine.state != UP {
        let state = format!("host-state-{}", machine.state);
        farm.withholds(name, booking_of(NAME, &state), Amount::default());
    }
    let mut answer = farm.finish()?;
    if let Some(why) = answer.notes.into_iter().next() {
        return Err(why);
    }
    let mut host = answer.hosts.pop().ok_or("it is no host")?;
    host.asked_at = Some(asked_at);
    host.core_threads = core_threads;
    host.announced = listed.into_iter().map(|frame| booking_of(NAME, frame)).collect();
    Ok(host)
}

/// Whether it books more than its frames do: one that is about to begin, or one that has ended a
/// moment ago, whose cores the Rust RQD gives back in the course of a report, behind their count.
pub(super) fn has_unnamed(host: &HostAllocation) -> bool {
    host.bookings.iter().any(|booking| booking.booking == unnamed())
}

fn unnamed() -> BookingId {
    booking_of(NAME, "unnamed")
}

fn threads_of(machine: &RenderHost) -> u32 {
    /// More than any processor has.
    const THREADS_MAX: u32 = 16;
    let threads = machine.attributes.get("hyperthreadingMultiplier");
    let threads = threads.and_then(|threads| threads.parse().ok());
    threads.filter(|threads| (1..=THREADS_MAX).contains(threads)).unwrap_or(1)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;
    use crate::sources::inventory::seen;

    /// What an RQD 1.37.0 has answered, as gRPC sends it, but for the name of its kernel: one of four cores
    /// without frames.
    pub(in crate::sources::opencue) const IDLE: &[u8] =
        include_bytes!("../../../tests/answers/rqd-1.37.0-idle.bin");
    /// The same with frames of one core and of one and a half, and with a core locked.
    pub(in crate::sources::opencue) const BUSY: &[u8] =
        include_bytes!("../../../tests/answers/rqd-1.37.0-busy.bin");
    /// What that says.
    pub(in crate::sources::opencue) const BUSY_SEEN: &str =
        "farm1 4c 24105m: opencue:f-1 1c ?m, opencue:f-2 2c ?m, opencue:locked 1c ?m withheld";

    /// What the Rust RQD, 0.1.11, has answered: one of four cores with a frame of one.
    const OF_RUST: &[u8] = include_bytes!("../../../tests/answers/openrqd-0.1.11.bin");
    /// The same on a host of two cores with two threads each, whose frame is bound to both of one: it
    /// does not say so.
    const OF_THREADS: &[u8] = include_bytes!("../../../tests/answers/openrqd-0.1.11-threads.bin");
    /// The same a moment after that frame has ended, and once more.
    pub(in crate::sources::opencue) const ENDING: &[u8] =
        include_bytes!("../../../tests/answers/openrqd-0.1.11-ending.bin");
    pub(in crate::sources::opencue) const ENDED: &[u8] =
        include_bytes!("../../../tests/answers/openrqd-0.1.11-ended.bin");

    /// Before the message.
    const PREFIX_BYTES: usize = 5;

    fn read(answer: &[u8]) -> Result<Vec<HostAllocation>, String> {
        allocation(&HostName::new("farm1").expect("a name"), Time::ZERO, answer)
            .map(|host| vec![host])
    }

    /// Of 32 cores with two threads each and 64 GiB.
    fn machine() -> RenderHost {
        let threads = ("hyperthreadingMultiplier".to_owned(), "2".to_owned());
        RenderHost {
            total_mem: 64 << 20,
            attributes: BTreeMap::from([("SP_OS".into(), "rocky9".into()), threads]),
            ..RenderHost::default()
        }
    }

    fn cores(booked_cores: i32, locked_cores: i32) -> CoreDetail {
        CoreDetail { total_cores: 3_200, locked_cores, booked_cores }
    }

    fn frame(frame_id: &str, num_cores: i32) -> RunningFrameInfo {
        RunningFrameInfo { frame_id: frame_id.into(), num_cores, ..RunningFrameInfo::default() }
    }

    fn seen_of(host: RenderHost, core_info: CoreDetail, frames: Vec<RunningFrameInfo>) -> String {
        let report = HostReport { host: Some(host), frames, core_info: Some(core_info) };
        let answer = StatusResponse { host_report: Some(report) }.encode_to_vec();
        seen(read(&answer)).concat()
    }

    #[test]
    fn real_answers() {
        assert_eq!(seen(read(&IDLE[PREFIX_BYTES..])), ["farm1 4c 24105m:"]);
        assert_eq!(seen(read(&BUSY[PREFIX_BYTES..])), [BUSY_SEEN]);
        let of = |answer: &[u8]| seen(read(&answer[PREFIX_BYTES..])).concat();
        assert_eq!(
            of(OF_RUST),
            "farm1 4c 24105m: opencue:ac9c26d5-8534-4315-af40-be820cc0867c 1c ?m"
        );
        assert_eq!(
            of(OF_THREADS),
            "farm1 4c 24105m: opencue:68aacbff-fe68-40e8-95b1-acd2d00aea40 2c ?m"
        );
        assert_eq!(of(ENDING), "farm1 4c 24105m: opencue:unnamed 2c ?m");
        assert_eq!(of(ENDED), "farm1 4c 24105m:");
        let threads = |answer: &[u8]| read(&answer[PREFIX_BYTES..]).map(|it| it[0].core_threads);
        assert_eq!((threads(OF_RUST), threads(OF_THREADS)), (Ok(1), Ok(2)));
    }

    #[test]
    fn a_frame_books_all_threads_of_its_cores_and_what_is_booked_beyond_has_no_name() {
        let mut bound = frame("f-1", 400);
        bound.attributes.insert("CPU_LIST".into(), "0,1,2,3,32,33,34,35".into());
        assert_eq!(
            seen_of(machine(), cores(600, 0), vec![bound, frame("f-2", 100)]),
            "farm1 64c 65536m: opencue:f-1 8c ?m, opencue:f-2 2c ?m, opencue:unnamed 2c ?m"
        );
        let mut bound = frame("f-1", 100);
        bound.attributes.insert("CPU_LIST".into(), "0,32,1,33".into());
        assert_eq!(
            seen_of(machine(), cores(100, 0), vec![bound]),
            "farm1 64c 65536m: opencue:f-1 4c ?m"
        );
        // It is about to begin.
        assert_eq!(
            seen_of(machine(), cores(150, 0), Vec::new()),
            "farm1 64c 65536m: opencue:unnamed 3c ?m"
        );
        assert_eq!(
            seen_of(machine(), cores(50, 50), vec![frame("f-1", 50)]),
            "farm1 64c 65536m: opencue:f-1 1c ?m, opencue:locked 1c ?m withheld"
        );
        assert_eq!(
            seen_of(machine(), cores(0, 3_200), Vec::new()),
            "farm1 64c 65536m: opencue:locked 64c ?m withheld"
        );
    }

    #[test]
    fn a_frame_has_its_cores_share_of_the_memory_or_what_it_has_used() {
        let using = |mib: i64| {
            let used = RunningFrameInfo { max_rss: mib << 10, ..frame("f-1", 400) };
            seen_of(machine(), cores(0, 0), vec![used])
        };
        // An eighth of the cores, and of the memory.
        assert_eq!(using(8_192), "farm1 64c 65536m: opencue:f-1 8c ?m");
        // In steps of a sixteenth of it.
        for used in [8_193, 9_000, 12_288] {
            assert_eq!(using(used), "farm1 64c 65536m: opencue:f-1 8c 12288m");
        }
        assert_eq!(using(12_289), "farm1 64c 65536m: opencue:f-1 8c 16384m");
        assert_eq!(using(-1), "farm1 64c 65536m: opencue:f-1 8c ?m");
    }

    #[test]
    fn a_host_that_takes_no_frames_is_wholly_booked() {
        let host = |host| seen_of(host, cores(0, 0), Vec::new());
        assert_eq!(
            host(RenderHost { nimby_locked: true, ..machine() }),
            "farm1 64c 65536m: opencue:nimby all ?m withheld"
        );
        assert_eq!(
            host(RenderHost { state: 4, ..machine() }),
            "farm1 64c 65536m: opencue:host-state-4 all ?m withheld"
        );
        let odd = |threads: &str| {
            let threads = ("hyperthreadingMultiplier".to_owned(), threads.to_owned());
            host(RenderHost { attributes: BTreeMap::from([threads]), ..machine() })
        };
        for threads in ["", "0", "-2", "two", "99999999999999999999", "17"] {
            assert_eq!(odd(threads), "farm1 32c 65536m:", "{threads:?}");
        }
    }

    #[test]
    fn what_is_listed_twice_runs_once_and_a_frame_without_cores_has_all() {
        let twice = vec![frame("f-1", 100), frame("f-1", 100), frame("f-2", 0), frame("f-3", -100)];
        assert_eq!(
            seen_of(machine(), cores(100, 0), twice),
            "farm1 64c 65536m: opencue:f-1 2c ?m, opencue:f-2 all ?m, opencue:f-3 all ?m"
        );
    }

    #[test]
    fn an_answer_without_sense_is_refused() {
        let refused = |host, core_info, expected: &str| {
            let report = HostReport { host, frames: Vec::new(), core_info };
            let answer = StatusResponse { host_report: Some(report) }.encode_to_vec();
            let error = read(&answer).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        };
        let all = |cores: i32| CoreDetail { total_cores: cores, ..CoreDetail::default() };
        refused(None, Some(cores(0, 0)), "no host or no cores");
        refused(Some(machine()), None, "no host or no cores");
        refused(Some(machine()), Some(all(-100)), "-100 hundredths");
        refused(Some(machine()), Some(cores(-1, 0)), "-1 hundredths");
        refused(Some(machine()), Some(all(i32::MAX)), "cores are more than");
        assert!(read(b"").expect_err("nothing").contains("reports nothing"));
        assert!(read(b"\x0a\x09short").is_err() && read(b"<html>").is_err());
    }

    #[test]
    fn more_frames_than_a_host_has_are_not_taken_apart() {
        let some = |count: usize| (0..count).map(|number| (number.to_string(), String::new()));
        let report = |frames: usize, attributes: usize, of_each: usize| {
            let host = RenderHost { attributes: some(attributes).collect(), ..machine() };
            let frames = (0..frames).map(|number| RunningFrameInfo {
                attributes: some(of_each).collect(),
                ..frame(&number.to_string(), 1)
            });
            let frames = frames.collect();
            let report = HostReport { host: Some(host), frames, core_info: Some(cores(0, 0)) };
            StatusResponse { host_report: Some(report) }.encode_to_vec()
        };
        assert!(read(&report(64, RQD_ATTRIBUTES_MAX, RQD_ATTRIBUTES_MAX / 64)).is_ok());
        for many in [
            report(RQD_FRAMES_MAX + 1, 0, 0),
            report(0, RQD_ATTRIBUTES_MAX + 1, 0),
            report(2, 0, RQD_ATTRIBUTES_MAX / 2 + 1),
        ] {
            let error = read(&many).expect_err("too many");
            assert!(error.contains("more than 4096 frames"), "{error}");
        }
        // As small as they can be, in several parts that are one.
        let part = [&[0x0a, 0x80, 0x10][..], &[0x12, 0].repeat(1_024)].concat();
        let error = read(&part.repeat(5)).expect_err("too many");
        assert!(error.contains("more than 4096 frames"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_report_or_an_error(
            answer in proptest::collection::vec(any::<u8>(), 0..200),
            place in 0..BUSY.len() - PREFIX_BYTES,
            byte in any::<u8>(),
        ) {
            let _ = read(&answer);
            let mut damaged = BUSY[PREFIX_BYTES..].to_vec();
            damaged[place] = byte;
            let _ = read(&damaged);
        }
    }
}

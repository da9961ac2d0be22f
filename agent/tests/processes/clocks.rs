//! Clocks that jump under an agent that holds work, and a broker that is away meanwhile.
//!
//! The clocks are the C library's as `libfaketime` shows them to the agent, by a file that a story
//! rewrites: what the agent reads of the wall's clock, and where a story says so of the one that its
//! links and pauses between calls are timed by. The clock that its durations run on,
//! `CLOCK_BOOTTIME`, is read past that library, and nothing but a boot or a sleep of the machine
//! moves it.

use std::fs;
use std::path::{Path, PathBuf};

use gleaner_agent::{Config, Preferences};
use gleaner_hooks::{SocketAnswer, SocketRequest, Standing};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::Story;
use crate::agent::{AgentProcess, Folders, block_on};
use crate::broker::{Broker, kernel, output, script, text};
use crate::releases::{ENDLESS, nanos_run, wait_until_busy};
use crate::watch::wait_until;

pub(crate) const STORIES: &[Story] = &[
    ("a_wall_clock_that_jumps_loses_and_ends_nothing", a_wall_clock_that_jumps),
    ("a_quota_of_a_day_begins_anew_where_a_clock_jumps_ahead", a_quota_of_a_day),
    ("what_ends_while_the_broker_is_away_is_delivered_once", a_broker_that_is_away),
];

/// For how long an owner who comes back is given way to without anything being lost.
const KEEP_FROZEN_S: u64 = 3_600;
/// A pause, in milliseconds.
const HOUR_MS: u64 = 3_600_000;

/// The clocks of one agent.
struct Clocks {
    file: PathBuf,
}

/// Which of them are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moved {
    /// The wall's.
    Wall,
    /// As well the one that a boot starts, and a sleep of the machine stops.
    WallAndMonotonic,
}

impl Clocks {
    /// Shows this time of the wall, in UTC.
    fn show(&self, wall: &str) {
        let wall: DateTime = wall.parse().expect("a time");
        let wall = wall.to_zoned(TimeZone::UTC).expect("it exists").timestamp();
        self.move_by(wall.duration_since(Timestamp::now()));
    }

    /// Moves them by so much from what they are.
    fn move_by(&self, offset: SignedDuration) {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{:+}", offset.as_secs())).expect("written");
        fs::rename(new, &self.file).expect("in its place");
    }
}

fn start(config: &Config, folders: &Folders, moved: Moved) -> (AgentProcess, Clocks) {
    let clocks = Clocks { file: folders.path("clocks") };
    clocks.move_by(SignedDuration::ZERO);
    let library = library();
    let is_monotonic_real = if moved == Moved::Wall { "1" } else { "0" };
    let environment = [
        ("LD_PRELOAD", library.as_path()),
        ("FAKETIME_TIMESTAMP_FILE", &clocks.file),
        ("FAKETIME_NO_CACHE", Path::new("1")),
        ("FAKETIME_DONT_FAKE_MONOTONIC", Path::new(is_monotonic_real)),
        // Files have the times that the kernel gave them.
        ("NO_FAKE_STAT", Path::new("1")),
        ("TZ", Path::new("UTC")),
    ];
    (AgentProcess::start_with(config, folders, &environment), clocks)
}

/// Where the distribution has it.
fn library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").expect("there").flatten().map(|entry| entry.path());
    let mut files = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    files.find(|file| file.exists()).expect("libfaketime is not installed: tests/run installs it")
}

fn standing(folders: &Folders) -> Standing {
    match folders.ask(&SocketRequest::Standing) {
        SocketAnswer::Standing(standing) => *standing,
        other => panic!("{other:?}"),
    }
}

/// Why less runs, where that is for this reason.
fn reason(folders: &Folders, kind: &str) -> Option<String> {
    let reasons = standing(folders).reasons.into_iter();
    reasons.filter(|reason| reason.kind == kind).map(|reason| reason.text).next()
}

fn a_wall_clock_that_jumps() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 3);
        config.preferences = Preferences {
            hours: vec!["mon-fri 09:00-17:00".into()],
            network_mib_per_day: 1_000,
            keep_frozen_s: KEEP_FROZEN_S,
            ..config.preferences
        };
        let (_agent, clocks) = start(&config, &folders, Moved::Wall);
        let (mut session, _) = broker.welcome().await;
        let says_hours =
            |text: &str| reason(&folders, "hours").is_some_and(|said| said.contains(text));
        // Saturday and Monday: it is the clock of the wall that is looked at.
        clocks.show("2024-03-02T12:00:00");
        wait_until("Saturday", || says_hours("45 h 0 min"));
        clocks.show("2024-03-04T12:00:00");
        wait_until("Monday", || reason(&folders, "hours").is_none());

        session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        let group = wait_until_busy(&folders, 1)[0];
        let still_computes = || {
            let before = nanos_run(group);
            wait_until("it to compute on", || nanos_run(group) > before);
        };
        // Within the hours: forward and back while something runs whose end is waited for.
        for wall in ["2024-03-04T16:00:00", "2024-03-04T10:00:00", "2029-03-05T12:00:00"] {
            let tokens = session.give(script("sleep 1; echo over"), &[None]).await;
            clocks.show(wall);
            let report = session.count(tokens[0]).await;
            assert_eq!(text(&report, "stdout"), "over\n");
            still_computes();
        }

        // A pause of an hour is no shorter for four hours of the wall, and no longer.
        let answer = folders.ask(&SocketRequest::Pause { for_ms: Some(HOUR_MS) });
        assert_eq!(answer, SocketAnswer::Paused { frozen: 1 });
        for wall in ["2024-03-04T16:00:00", "2024-03-04T10:00:00"] {
            clocks.show(wall);
            let standing = standing(&folders);
            let left_ms = standing.paused_ms.expect("it is paused, and not for ever");
            assert!((HOUR_MS - 60_000..=HOUR_MS).contains(&left_ms), "{left_ms} ms are left");
            assert_eq!((standing.running, standing.frozen), (0, 1));
        }
        folders.ask(&SocketRequest::Resume);
        still_computes();

        // Outside of the hours it stands still, and is not given back before its time: neither by
        // hours that pass at once, nor by days.
        clocks.show("2024-03-04T20:00:00");
        wait_until("the evening", || says_hours("13 h 0 min"));
        wait_until("it to stand still", || standing(&folders).frozen == 1);
        clocks.show("2024-03-14T23:30:00");
        wait_until("another night", || says_hours("9 h 30 min"));
        clocks.show("2024-03-01T23:30:00");
        wait_until("a night before", || says_hours("57 h 30 min"));
        assert_eq!(standing(&folders).frozen, 1);
        clocks.show("2024-03-04T12:00:00");
        wait_until("it to go on", || standing(&folders).running == 1);
        still_computes();
        // Whatever had been given back would be heard of before this.
        session.perform(kernel("noop"), None).await;
    });
}

fn a_quota_of_a_day() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 3);
        config.preferences = Preferences {
            network_mib_per_day: 2,
            keep_frozen_s: KEEP_FROZEN_S,
            ..config.preferences
        };
        let (_agent, clocks) = start(&config, &folders, Moved::Wall);
        let (mut session, _) = broker.welcome().await;
        clocks.show("2024-03-04T12:00:00");
        session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        let group = wait_until_busy(&folders, 1)[0];
        let is_used_up = || reason(&folders, "network_limit").is_some();
        for (day, letter) in [("2024-03-04T12:00:00", "a"), ("2024-03-05T01:00:00", "b")] {
            clocks.show(day);
            wait_until("a day that has something left", || !is_used_up());
            // All of it, and no less, is what may be carried: none of it counts on the day after.
            let writes = format!("head -c {} /dev/zero | tr '\\0' {letter}", 2 << 20);
            let tokens = session.give(script(&writes), &[None]).await;
            let report = session.count(tokens[0]).await;
            assert_eq!(output(&report).files()[0].content.len(), 2 << 20);
            wait_until("it to be used up", is_used_up);
        }
        // Set back, it is used up as before, whatever day it is said to be.
        clocks.show("2024-03-04T12:00:00");
        let says_monday = || {
            fs::read_to_string(folders.path("work/usage.json")).is_ok_and(|t| t.contains("-03-04"))
        };
        wait_until("the note of it", says_monday);
        assert!(is_used_up());
        // What is held is none the worse for all of that.
        let before = nanos_run(group);
        wait_until("it to compute on", || nanos_run(group) > before);
        assert_eq!(standing(&folders).running, 1);
    });
}

fn a_broker_that_is_away() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let config = folders.config(&broker.address, 4);
        let (_agent, clocks) = start(&config, &folders, Moved::WallAndMonotonic);
        let (mut session, first) = broker.welcome().await;
        let held = session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        let group = wait_until_busy(&folders, 1)[0];
        let waits = "sleep 1; echo over";
        let ending = session.give(script(waits), &[None, None]).await;
        wait_until("the commands", || standing(&folders).running == 3);
        broker.leave().await;
        let given = session.given();
        drop(session);
        wait_until("the link to be gone", || !standing(&folders).connected);
        wait_until("what was held to end", || standing(&folders).running == 1);
        // An hour passes on the clock by which it calls again.
        for minutes in (10..=60).step_by(10) {
            clocks.move_by(SignedDuration::from_mins(minutes));
            let before = nanos_run(group);
            wait_until("it to compute on", || nanos_run(group) > before);
            assert!(!standing(&folders).connected);
        }
        broker.come_back().await;
        let (mut session, hello) = broker.welcome().await;
        session.go_on_after(given);
        assert_eq!(hello.incarnation, first.incarnation, "it is the agent that it was");
        let (mut done, mut runs) = (Vec::new(), Vec::new());
        for held in &hello.held {
            if !held.state.takes_slot() { done.push(held.token) } else { runs.push(held.token) }
        }
        done.sort_unstable();
        assert_eq!((&done, &runs), (&ending, &held));
        let mut told = Vec::new();
        for _ in &ending {
            let report = session.hear_report().await;
            assert_eq!(text(&report, "stdout"), "over\n");
            session.acknowledge(report.token).await;
            told.push(report.token);
        }
        told.sort_unstable();
        assert_eq!(told, ending);
        // What was acknowledged comes no second time: not here, and not on another link.
        session.perform(kernel("noop"), None).await;
        drop(session);
        let (_session, hello) = broker.welcome().await;
        let held_now: Vec<_> = hello.held.iter().map(|held| held.token).collect();
        assert_eq!(held_now, held);
    });
}

//! What is kept of a farm.

use std::fs;

use super::*;

fn look(at_s: u64, harvested: f64, reported: u64) -> Look {
    let now = FarmNow { hosts: 2, harvested, idle: 1.0, ..FarmNow::default() };
    let totals = ReplicaCounts { reported, ..ReplicaCounts::default() };
    let lanes = [0.0, 0.0, 0.0, harvested / 4.0, 3.0 * harvested / 4.0];
    Look { at: Time::from_micros(at_s * 1_000_000), now, totals, lanes }
}

/// A day's begin, in milliseconds of UTC.
const DAY_MS: u64 = 20_000 * 86_400_000;

#[test]
fn what_was_seen_last_counts_until_the_next_look() {
    let folder = tempfile::tempdir().expect("a folder");
    let history = FarmHistory::open(folder.path(), 0);
    history.look(DAY_MS, look(0, 4.0, 10));
    history.look(DAY_MS + 30_000, look(30, 2.0, 15));
    assert!(!history.look(DAY_MS + 40_000, look(40, 0.0, 16)));
    for by in HistoryBy::ALL {
        let rows = history.rows(by, 0, u64::MAX);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].start_ms, rows[0].seen_s), (DAY_MS, 40.0));
        assert_eq!((rows[0].harvested, rows[0].idle, rows[0].counted), (3.5, 1.0, 6));
        assert_eq!((rows[0].lanes.batch, rows[0].lanes.background), (0.875, 2.625));
    }
    assert!(history.look(DAY_MS + 60_000, look(60, 0.0, 16)), "a minute is over");
    assert_eq!(history.rows(HistoryBy::Minute, DAY_MS, DAY_MS + 1).len(), 1);
    assert_eq!(history.rows(HistoryBy::Minute, DAY_MS + 1, u64::MAX).len(), 1);
    // While the machine slept nobody saw anything.
    history.look(DAY_MS + 7_200_000, look(7_200, 0.0, 16));
    let hours = history.rows(HistoryBy::Hour, 0, u64::MAX);
    assert_eq!(hours.iter().map(|row| row.seen_s).collect::<Vec<_>>(), [60.0, 60.0]);
}

#[test]
fn rows_outlive_a_restart_and_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = FarmHistory::open(folder.path(), 0);
    first.look(DAY_MS, look(0, 4.0, 10));
    first.look(DAY_MS + 30_000, look(30, 4.0, 12));
    first.save();
    first.look(DAY_MS + 40_000, look(40, 4.0, 13));
    first.save();
    let before = first.rows(HistoryBy::Day, 0, u64::MAX);
    drop(first);
    let path = folder.path().join("farm.jsonl");
    // A kill cut the last line off.
    let mut bytes = fs::read(&path).expect("it was written");
    bytes.extend_from_slice(b"0123abcd {\"by\":");
    fs::write(&path, bytes).expect("written");
    let second = FarmHistory::open(folder.path(), 0);
    assert_eq!(second.rows(HistoryBy::Day, 0, u64::MAX), before);
    // Of a new life of the broker, counts begin anew.
    second.look(DAY_MS + 50_000, look(50, 4.0, 0));
    second.look(DAY_MS + 60_000, look(60, 4.0, 1));
    second.save();
    let third = FarmHistory::open(folder.path(), 0);
    let day = third.rows(HistoryBy::Day, 0, u64::MAX);
    assert_eq!((day[0].seen_s, day[0].counted), (50.0, 4));
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "nothing was damaged");
}

#[test]
fn what_a_damaged_file_still_says_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = FarmHistory::open(folder.path(), 0);
    first.look(DAY_MS, look(0, 4.0, 10));
    first.look(DAY_MS + 30_000, look(30, 4.0, 12));
    first.save();
    let path = folder.path().join("farm.jsonl");
    let text = fs::read_to_string(&path).expect("it was written");
    fs::write(&path, text.replacen("30.0", "99.0", 1)).expect("written");
    let second = FarmHistory::open(folder.path(), 0);
    let kept: usize = HistoryBy::ALL.map(|by| second.rows(by, 0, u64::MAX).len()).iter().sum();
    assert_eq!(kept, 2, "one line is damaged");
    let names = fs::read_dir(folder.path()).expect("listed");
    let mut names = names.map(|entry| entry.expect("an entry").file_name());
    assert!(names.any(|name| name.to_string_lossy().starts_with("farm.damaged-")));
    fs::write(&path, vec![b'x'; 3 * crate::limits::FARM_LINE_BYTES_MAX]).expect("written");
    assert!(FarmHistory::open(folder.path(), 0).rows(HistoryBy::Day, 0, u64::MAX).is_empty());
}

#[test]
fn the_oldest_rows_go_and_the_file_stays_short() {
    let folder = tempfile::tempdir().expect("a folder");
    let history = FarmHistory::open(folder.path(), 0);
    let minutes = FARM_ROWS_MAX[0] as u64 + 100;
    for minute in 0..minutes {
        history.look(DAY_MS + minute * 60_000, look(minute * 60, 1.0, minute));
        history.save();
    }
    let rows = history.rows(HistoryBy::Minute, 0, u64::MAX);
    assert_eq!(rows.len(), FARM_ROWS_MAX[0]);
    assert_eq!(rows.last().map(|row| row.start_ms), Some(DAY_MS + (minutes - 1) * 60_000));
    let text = fs::read_to_string(folder.path().join("farm.jsonl")).expect("it was written");
    let kept: usize = HistoryBy::ALL.map(|by| history.rows(by, 0, u64::MAX).len()).iter().sum();
    assert!(text.lines().count() <= 2 * kept + 1_024 + 3, "{} lines", text.lines().count());
    let again = FarmHistory::open(folder.path(), 0);
    assert_eq!(again.rows(HistoryBy::Minute, 0, u64::MAX), rows);
}

#[test]
fn ten_years_of_a_busy_farm_are_a_few_mebibytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let history = FarmHistory::open(folder.path(), 0);
    {
        let mut inner = history.lock();
        for (by, most) in HistoryBy::ALL.into_iter().zip(FARM_ROWS_MAX) {
            for number in 0..most as u64 {
                let seen_s = by.length_ms() as f64 / 1e3;
                // No number is shorter than those of ten thousand hosts.
                let cores = 640_000.0 * seen_s / 3.0;
                let sums = Sums {
                    seen_s: seen_s / 3.0,
                    hosts: 10_000.0 * seen_s / 3.0,
                    rendered: cores,
                    harvested: cores,
                    idle: cores,
                    closed: cores,
                    counted: u64::MAX / 3,
                    failed: u64::MAX / 3,
                    released: u64::MAX / 3,
                    ended_otherwise: u64::MAX / 3,
                    accepted_cpu_us: u64::MAX / 3,
                    lanes: [cores; Lane::COUNT],
                };
                let start_ms = DAY_MS + number * by.length_ms();
                inner.rows[by as usize].insert(start_ms, sums);
                inner.changed.insert((by, start_ms), ());
            }
        }
    }
    history.save();
    let path = folder.path().join("farm.jsonl");
    let text = fs::read_to_string(&path).expect("it was written");
    assert!(text.lines().all(|line| line.len() < crate::limits::FARM_LINE_BYTES_MAX));
    // Twice as long, at most, before it is written anew.
    let bytes = 2 * text.len();
    assert!(bytes < 10 << 20, "{bytes} bytes");
    let again = FarmHistory::open(folder.path(), 0);
    let shown = again.rows(HistoryBy::Day, DAY_MS, u64::MAX);
    assert_eq!(shown.len(), FARM_ROWS_MAX[2]);
}

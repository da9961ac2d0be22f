//! The run folder as many hooks, and an agent, share it.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;
use std::thread;

use gleaner_hooks::{BookingChange, RunDir, RunDirError};
use gleaner_protocol::BookingId;
use gleaner_protocol::farm::Booked;

fn id(text: impl AsRef<str>) -> BookingId {
    BookingId::new(text).expect("a name")
}

#[test]
fn whoever_opens_a_new_folder_first_all_share_one_life() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run/gleaner");
    let start = Barrier::new(16);
    let lives: BTreeSet<u64> = thread::scope(|scope| {
        let open = || {
            start.wait();
            let run_dir = RunDir::open(&path).expect("opens");
            run_dir.raise_epoch().expect("raises");
            run_dir.epoch().expect("reads").incarnation
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(lives.len(), 1, "{lives:?}");
    let epoch = RunDir::open(&path).expect("opens").epoch().expect("reads");
    assert_eq!(epoch.count, 16);
    let left: Vec<_> = fs::read_dir(&path).expect("lists").collect();
    assert_eq!(left.len(), 2, "the life and its name, nothing of those that lost: {left:?}");
}

#[test]
fn hooks_at_the_same_time_leave_the_right_set_and_epoch() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = Barrier::new(64);
    thread::scope(|scope| {
        for number in 0..64 {
            let (start, path) = (&start, folder.path());
            scope.spawn(move || {
                start.wait();
                let run_dir = RunDir::open(path).expect("opens");
                let booking = id(format!("render-{}", number / 2));
                // Each render has two hooks at once: doubled preflights, and for every fourth
                // render a postflight against its preflight.
                if number % 8 == 7 {
                    run_dir.end_booking(&booking).expect("ends");
                } else {
                    run_dir.raise_epoch().expect("raises");
                    run_dir.begin_booking(&booking, &Booked::default()).expect("begins");
                }
            });
        }
    });
    let run_dir = RunDir::open(folder.path()).expect("opens");
    assert_eq!(run_dir.epoch().expect("reads").count, 56);
    let expected: BTreeSet<_> = (0..32)
        .filter(|render| render % 4 != 3)
        .map(|render| id(format!("render-{render}")))
        .collect();
    let bookings = run_dir.bookings().expect("lists");
    let running: BTreeSet<_> = bookings.into_iter().map(|booking| booking.booking).collect();
    assert_eq!(running, expected);
}

#[test]
fn a_folder_that_was_emptied_begins_a_new_life_for_those_who_had_it_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let agents = RunDir::open(folder.path()).expect("opens");
    agents.raise_epoch().expect("raises");
    let before = agents.epoch().expect("reads");
    for entry in fs::read_dir(folder.path()).expect("lists") {
        let path = entry.expect("an entry").path();
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
    assert!(agents.epoch().is_err(), "no epoch at all is a closed host");
    let hooks = RunDir::open(folder.path()).expect("opens");
    hooks.raise_epoch().expect("raises");
    hooks.begin_booking(&id("a"), &Booked::default()).expect("begins");
    let after = agents.epoch().expect("reads");
    assert_ne!(after.incarnation, before.incarnation);
    assert_eq!(after, hooks.epoch().expect("reads"));
    assert_eq!(agents.bookings().expect("lists").len(), 1);
}

#[test]
fn a_life_of_another_boot_is_forgotten_with_its_bookings() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = RunDir::open(folder.path()).expect("opens");
    before.begin_booking(&id("a"), &Booked::default()).expect("begins");
    let old = before.epoch().expect("reads");
    for entry in fs::read_dir(folder.path()).expect("lists") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            fs::rename(&path, folder.path().join("life-another-boot")).expect("renames");
        }
    }
    let after = RunDir::open(folder.path()).expect("opens");
    assert_ne!(after.epoch().expect("reads").incarnation, old.incarnation);
    assert_eq!(after.bookings().expect("lists"), []);
    assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 2);
}

#[test]
fn folders_that_would_not_do_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = folder.path().join("open");
    fs::create_dir(&open).expect("makes");
    fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("opens up");
    assert!(matches!(RunDir::open(&open), Err(RunDirError::WorldWritable(_))));

    let long = folder.path().join("x".repeat(120));
    let error = RunDir::open(&long).expect_err("no socket fits");
    assert!(error.to_string().contains("bytes, more than 107"), "{error}");

    let file = folder.path().join("file");
    fs::write(&file, "").expect("writes");
    let error = RunDir::open(&file).expect_err("not a folder");
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");

    let damaged = folder.path().join("damaged");
    RunDir::open(&damaged).expect("opens");
    for entry in fs::read_dir(&damaged).expect("lists") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            fs::write(path, "ffff").expect("writes");
        }
    }
    assert!(matches!(RunDir::open(&damaged), Err(RunDirError::Damaged(_))));
}

#[test]
fn what_is_made_inside_follows_the_folders_mode() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o775)).expect("shares");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let incarnation = run_dir.epoch().expect("reads").incarnation;
    let life = folder.path().join(format!("{incarnation:016x}"));
    let mode = |path| fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    assert_eq!(mode(life.join("bookings")), 0o775);
    assert_eq!(mode(life.join("epoch")), 0o664);
}

#[test]
fn a_hook_killed_before_its_file_had_a_name_leaves_no_booking() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let life = format!("{:016x}", run_dir.epoch().expect("reads").incarnation);
    fs::write(folder.path().join(life).join("new/999999999.0"), "{\"state\"").expect("writes");
    assert_eq!(run_dir.bookings().expect("lists"), []);
    let change = run_dir.begin_booking(&id("a"), &Booked::default()).expect("begins");
    assert_eq!(change, BookingChange::New);
}

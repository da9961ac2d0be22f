//! The run folder as many hooks, and an agent, share it.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;
use std::thread;

use gleaner_hooks::{BookingChange, Environment, Farm, HookInvocation, RunDir, RunDirError, run};
use gleaner_protocol::BookingId;
use gleaner_protocol::farm::{Booked, HookKind};

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

#[test]
fn a_retry_that_books_more_after_a_lost_postflight_books_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let booked = |cores| Booked { cores, memory_mib: None, gpus: None };
    let mut cores = Vec::new();
    for asked in [Some(1), Some(12), Some(2), None, Some(3)] {
        let change = run_dir.begin_booking(&id("a"), &booked(asked)).expect("begins");
        assert_eq!(change == BookingChange::New, cores.is_empty());
        cores.push(run_dir.bookings().expect("lists")[0].resources.cores);
    }
    assert_eq!(cores, [Some(1), Some(12), Some(12), None, None]);
    run_dir.end_booking(&id("a")).expect("ends");
    assert_eq!(run_dir.bookings().expect("lists"), []);
    let life = format!("{:016x}", run_dir.epoch().expect("reads").incarnation);
    let left = fs::read_dir(folder.path().join(life).join("new")).expect("lists").count();
    assert_eq!(left, 0, "nothing is left of what was replaced");
}

#[test]
fn of_preflights_of_one_attempt_at_once_the_largest_counts() {
    for turn in 0..50 {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path()).expect("opens");
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for cores in 1..=8 {
                let (start, run_dir) = (&start, &run_dir);
                scope.spawn(move || {
                    start.wait();
                    let booked = Booked { cores: Some(cores), memory_mib: None, gpus: None };
                    run_dir.begin_booking(&id("a"), &booked).expect("begins");
                });
            }
        });
        let bookings = run_dir.bookings().expect("lists");
        assert_eq!(bookings[0].resources.cores, Some(8), "turn {turn}");
    }
}

#[test]
fn a_folder_behind_a_link_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    fs::create_dir(&real).expect("makes");
    std::os::unix::fs::symlink(&real, &link).expect("links");
    for path in [link.clone(), folder.path().join("link/")] {
        let error = RunDir::open(&path).expect_err("a link");
        assert!(matches!(error, RunDirError::NoFolder(_)), "{error}");
    }
    RunDir::open(&real).expect("opens");
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not root: folders of others cannot be made, so this is not tested");
    }
    is_root
}

#[test]
fn root_acts_in_anothers_folder_as_they_may_and_no_further() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let theirs = folder.path().join("run");
    fs::create_dir(&theirs).expect("makes");
    std::os::unix::fs::chown(&theirs, Some(65_534), Some(65_534)).expect("gives away");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("opens up");
    let run_dir = RunDir::open(&theirs).expect("root may use it");
    run_dir.begin_booking(&id("a"), &Booked::default()).expect("begins");
    let life = theirs.join(format!("{:016x}", run_dir.epoch().expect("reads").incarnation));
    let owner = |path| std::os::unix::fs::MetadataExt::uid(&fs::metadata(path).expect("there"));
    assert_eq!(owner(life.join("bookings/b-a")), 65_534, "its owner can end it");
    // What its owner could not write, root does not write for them.
    let precious = folder.path().join("precious");
    fs::create_dir(&precious).expect("makes");
    fs::remove_dir_all(life.join("bookings")).expect("removes");
    std::os::unix::fs::symlink(&precious, life.join("bookings")).expect("links");
    run_dir.begin_booking(&id("b"), &Booked::default()).expect_err("not theirs");
    fs::remove_file(life.join("epoch")).expect("removes");
    std::os::unix::fs::symlink(precious.join("file"), life.join("epoch")).expect("links");
    run_dir.raise_epoch().expect_err("not theirs");
    assert_eq!(fs::read_dir(&precious).expect("lists").count(), 0);
    assert!(fs::write(precious.join("mine"), "").is_ok(), "root again afterwards");
    let error = RunDir::open_for_agent(&theirs).expect_err("its processes are root's");
    assert!(matches!(error, RunDirError::NotRoots { owner: 65_534, .. }), "{error}");
}

#[test]
fn a_postflight_that_ends_only_what_is_booked_takes_back_no_preflight() {
    for (if_booked, running) in [(true, 1), (false, 0)] {
        let folder = tempfile::tempdir().expect("a folder");
        let hook = |kind| {
            let mut hook = HookInvocation::new(kind, Farm::Generic, folder.path());
            hook.environment = Environment::from_iter([("GLEANER_BOOKING", "deadline:node7")]);
            hook.if_booked = if_booked;
            let report = run(&hook);
            assert!(report.booking.is_some(), "{report:?}");
        };
        let bookings = || RunDir::open(folder.path()).expect("opens").bookings().expect("lists");
        hook(HookKind::Postflight);
        hook(HookKind::Preflight);
        assert_eq!(bookings().len(), running);
        hook(HookKind::Postflight);
        assert_eq!(bookings().len(), 0);
    }
}

#[test]
fn a_narrow_mask_of_the_hooks_user_takes_nothing_from_the_agent() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o775)).expect("shares");
    // The mask is the whole process's, and other tests make files as well.
    let mut hook = std::process::Command::new("sh");
    let me = std::env::current_exe().expect("a program");
    hook.args(["-c", "umask 077; exec \"$0\" --exact begins_a_booking"]).arg(me);
    let hook = hook.env("TEST_RUN_DIR", folder.path()).output().expect("runs");
    assert!(hook.status.success(), "{hook:?}");
    let run_dir = RunDir::open(folder.path()).expect("opens");
    let life = format!("{:016x}", run_dir.epoch().expect("reads").incarnation);
    let life = folder.path().join(life);
    let names = fs::read_dir(folder.path()).expect("lists");
    let named = names.map(|entry| entry.expect("an entry").path()).find(|path| path.is_file());
    for path in [life.join("bookings/b-a"), life.join("epoch"), named.expect("a life's name")] {
        let mode = fs::metadata(&path).expect("is there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o664, "{}", path.display());
    }
}

/// Not a test but a process of its own for the one above.
#[test]
fn begins_a_booking() {
    let Some(path) = std::env::var_os("TEST_RUN_DIR") else { return };
    let run_dir = RunDir::open(std::path::PathBuf::from(path)).expect("opens");
    run_dir.begin_booking(&id("a"), &Booked::default()).expect("begins");
}

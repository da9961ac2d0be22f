//! Bookings in the run folder: one file per render attempt, running or lately ended.
//!
//! # Invariants
//! - A file's name is `b-` and the id: ids have neither `/` nor NUL, so the name is safe and no
//!   two ids share one; the prefix keeps `.` and `..` from being names of their own.
//! - What has ended is a symbolic link, which leads nowhere: its target is the record. So the
//!   folder's list alone tells what runs, and nothing is read for what does not, when a render
//!   waits. A link is an end whatever it says, and none is ever followed.
//! - Each change is one link (from nothing), one rename (from something) or one exchange (of a
//!   running one), so hooks that act on one id at the same time leave a state that some order of
//!   them leaves.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gleaner_protocol::farm::{Booked, SampledBooking};
use gleaner_protocol::{BookingId, Time};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::record::BookingRecord as Record;
use super::{
    BookingChange, NO_LINK, NewFile, RunDirError, create_new, life, link_new, mode_of, names,
    names_of, read_small, write_new,
};
use crate::limits::ENDED_BOOKINGS_MAX;

/// Its folder below a life.
pub(super) const FOLDER: &str = "bookings";
const PREFIX: &str = "b-";
/// Each turn of the loop means that another hook changed the same booking in between.
const TURNS_MAX: usize = 16;

/// Bookings that run, in order of their ids.
pub(super) fn list(life: &Path) -> Result<Vec<SampledBooking>, RunDirError> {
    let folder = life.join(FOLDER);
    let mut bookings = Vec::new();
    // A type that nobody knows is read.
    let may_run = |entry: &DirEntry| !entry.file_type().is_ok_and(|kind| kind.is_symlink());
    for name in names_of(&folder, may_run)? {
        let id = name.strip_prefix(PREFIX).map(BookingId::new);
        let Some(Ok(booking)) = id else { continue };
        match read(&folder.join(&name))? {
            Some(Record::Running { resources }) => {
                bookings.push(SampledBooking { booking, resources });
            }
            Some(Record::Ended { .. }) | None => {}
        }
    }
    Ok(bookings)
}

/// A preflight.
pub(super) fn begin(
    life: &Path,
    now: Time,
    id: &BookingId,
    booked: &Booked,
) -> Result<BookingChange, RunDirError> {
    let path = path_of(life, id);
    let mut booked = *booked;
    for _ in 0..TURNS_MAX {
        let present = read(&path)?;
        let (record, change) = Record::preflight(present, now, &booked);
        match (present, record) {
            (_, None) => return Ok(change),
            (Some(Record::Running { .. }), Some(record)) => {
                match exchange(life, &path, &record)? {
                    // Another preflight was faster: what it booked counts as well.
                    Some(out @ Record::Running { resources }) if Some(out) != present => {
                        booked = resources;
                    }
                    Some(_) => return Ok(change),
                    // Its end came in between.
                    None => {}
                }
            }
            (Some(_), Some(record)) => {
                write(life, &record)?.replace(&path)?;
                return Ok(change);
            }
            (None, Some(record)) => match write(life, &record) {
                Ok(file) => {
                    if file.link(&path)? {
                        return Ok(change);
                    }
                }
                // A full disk may still have room for a name: an empty file books the host.
                Err(error) => {
                    return match create_new(&path, mode_of(life)) {
                        Ok(_) => Ok(change),
                        Err(_) => Err(error),
                    };
                }
            },
        }
    }
    Err(RunDirError::io("book in", &path, io::ErrorKind::ResourceBusy.into()))
}

/// Puts a record in the place of a running booking's and returns what was there at that moment;
/// none where nothing was.
fn exchange(life: &Path, path: &Path, record: &Record) -> Result<Option<Record>, RunDirError> {
    let refuse = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound if in_folder(path) => Ok(None),
        _ if is_link(&source) => Ok(None),
        _ => Err(RunDirError::io("exchange", path, source)),
    };
    let file = match write(life, record) {
        Ok(file) => file,
        // An emptied file books the whole host, and takes no room on a full disk.
        Err(_) => {
            let mut empty = fs::OpenOptions::new();
            empty.write(true).truncate(true).custom_flags(NO_LINK);
            return match empty.open(path) {
                Ok(_) => Ok(Some(*record)),
                Err(error) => refuse(error),
            };
        }
    };
    match renameat_with(CWD, &file.path, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => read(&file.path),
        // A file system without it: two preflights of one attempt at once are as the later one.
        Err(Errno::INVAL | Errno::NOSYS) => {
            file.replace(path)?;
            Ok(Some(*record))
        }
        Err(error) => refuse(error.into()),
    }
}

/// A postflight.
pub(super) fn end(life: &Path, now: Time, id: &BookingId) -> Result<BookingChange, RunDirError> {
    let path = path_of(life, id);
    for _ in 0..TURNS_MAX {
        let present = read(&path)?;
        let (record, change) = Record::postflight(present, now);
        match (present, record) {
            (_, None) => return Ok(change),
            (Some(_), Some(record)) => {
                match write(life, &record) {
                    Ok(file) => file.replace(&path)?,
                    // A full disk: better no memory of it than a booking without end.
                    Err(_) => fs::remove_file(&path)
                        .map_err(|source| RunDirError::io("remove", &path, source))?,
                }
                prune(life, &path);
                return Ok(change);
            }
            (None, Some(record)) => {
                if write(life, &record)?.link(&path)? {
                    prune(life, &path);
                    return Ok(change);
                }
            }
        }
    }
    Err(RunDirError::io("end a booking in", &path, io::ErrorKind::ResourceBusy.into()))
}

/// A postflight that may come without a preflight before it: it leaves nothing that would take back the
/// next one.
pub(super) fn end_if_booked(
    life: &Path,
    now: Time,
    id: &BookingId,
) -> Result<BookingChange, RunDirError> {
    match read(&path_of(life, id))? {
        Some(_) => end(life, now, id),
        None => Ok(BookingChange::AlreadyEnded),
    }
}

fn path_of(life: &Path, id: &BookingId) -> PathBuf {
    life.join(FOLDER).join(format!("{PREFIX}{id}"))
}

/// None where there is no such file. What cannot be understood books the whole host.
fn read(path: &Path) -> Result<Option<Record>, RunDirError> {
    for _ in 0..TURNS_MAX {
        let looked = read_small(path).map(|bytes| {
            let whole = Record::Running { resources: Booked::default() };
            serde_json::from_slice(&bytes).unwrap_or(whole)
        });
        let looked = match looked {
            Err(error) if is_link(&error) => fs::read_link(path).map(|target| ended(&target)),
            other => other,
        };
        match looked {
            Ok(record) => return Ok(Some(record)),
            // It was a link, and its booking has begun anew since.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            // The life's folder may be gone as a whole, which is another matter than a booking.
            Err(error) if error.kind() == io::ErrorKind::NotFound && in_folder(path) => {
                return Ok(None);
            }
            Err(source) => return Err(RunDirError::io("read", path, source)),
        }
    }
    Err(RunDirError::io("read", path, io::ErrorKind::ResourceBusy.into()))
}

/// What the target of a link says; one that says nothing ended long ago.
fn ended(target: &Path) -> Record {
    match serde_json::from_slice(target.as_os_str().as_bytes()) {
        Ok(record @ Record::Ended { .. }) => record,
        _ => Record::Ended { at_us: 0, first: false },
    }
}

/// Whether a file was not opened because it is a link.
fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ELOOP)
}

fn in_folder(path: &Path) -> bool {
    path.parent().is_some_and(Path::is_dir)
}

fn write(life: &Path, record: &Record) -> Result<NewFile, RunDirError> {
    let said = serde_json::to_vec(record).expect("our own types serialise");
    match record {
        // On a file system without links an end is a file, which says the same.
        Record::Ended { .. } => link_new(life, &said).or_else(|_| write_new(life, &said)),
        Record::Running { .. } => write_new(life, &said),
    }
}

/// Forgets the longest-ended bookings where there are too many, and what killed hooks left. Best
/// effort: it is tried again with the next postflight.
fn prune(life: &Path, just_ended: &Path) {
    let folder = life.join(FOLDER);
    let Ok(all) = names(&folder) else { return };
    if all.len() <= ENDED_BOOKINGS_MAX {
        return;
    }
    let mut ended: Vec<(u64, PathBuf)> = all
        .iter()
        .map(|name| folder.join(name))
        .filter(|path| path != just_ended)
        .filter_map(|path| match read(&path) {
            Ok(Some(Record::Ended { at_us, .. })) => Some((at_us, path)),
            _ => None,
        })
        .collect();
    ended.sort_unstable();
    let surplus = ended.len().saturating_sub(ENDED_BOOKINGS_MAX / 2);
    for (_, path) in &ended[..surplus] {
        forget_ended(life, path);
    }
    for name in names(&life.join(life::NEW)).unwrap_or_default() {
        let owner = name.split_once('.').map_or("", |(pid, _)| pid);
        if !Path::new("/proc").join(owner).exists() {
            let _ = fs::remove_file(life.join(life::NEW).join(name));
        }
    }
}

/// Takes the file away by a rename and looks again: had its booking begun anew meanwhile, it is
/// put back.
fn forget_ended(life: &Path, path: &Path) {
    let Ok(aside) = write_new(life, b"") else { return };
    if fs::rename(path, &aside.path).is_ok()
        && let Ok(Some(Record::Running { .. })) = read(&aside.path)
    {
        let _ = aside.link(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunDir;
    use crate::limits::LATE_PREFLIGHT;
    use gleaner_protocol::Span;

    fn id(text: &str) -> BookingId {
        BookingId::new(text).expect("a name")
    }

    struct Folder {
        _keep: tempfile::TempDir,
        life: PathBuf,
        now: Time,
    }

    impl Folder {
        fn new() -> Self {
            let keep = tempfile::tempdir().expect("a folder");
            let run_dir = RunDir::open(keep.path()).expect("opens");
            let incarnation = run_dir.epoch().expect("an epoch").incarnation;
            let life = life::folder(keep.path(), incarnation);
            Self { _keep: keep, life, now: Time::from_micros(1_000_000) }
        }

        fn begin(&self, name: &str) -> BookingChange {
            let booked = Booked { cores: Some(2), memory_mib: None, gpus: None };
            begin(&self.life, self.now, &id(name), &booked).expect("begins")
        }

        fn end(&self, name: &str) -> BookingChange {
            end(&self.life, self.now, &id(name)).expect("ends")
        }

        fn running(&self) -> Vec<String> {
            let list = list(&self.life).expect("lists");
            list.iter().map(|booking| booking.booking.to_string()).collect()
        }
    }

    #[test]
    fn bookings_are_a_set_whatever_the_hooks_repeat() {
        let folder = Folder::new();
        assert_eq!(folder.begin("a"), BookingChange::New);
        assert_eq!(folder.begin("a"), BookingChange::AlreadyThere);
        assert_eq!(folder.begin("b"), BookingChange::New);
        assert_eq!(folder.running(), ["a", "b"]);
        assert_eq!(folder.end("a"), BookingChange::New);
        assert_eq!(folder.end("a"), BookingChange::AlreadyEnded);
        assert_eq!(folder.running(), ["b"]);
    }

    #[test]
    fn a_postflight_that_comes_first_takes_back_one_preflight() {
        let folder = Folder::new();
        assert_eq!(folder.end("a"), BookingChange::New);
        assert_eq!(folder.begin("a"), BookingChange::AlreadyEnded);
        assert_eq!(folder.running(), [""; 0]);
        assert_eq!(folder.begin("a"), BookingChange::New, "another attempt of the same name");
        assert_eq!(folder.running(), ["a"]);
    }

    #[test]
    fn one_that_ends_only_what_is_booked_takes_nothing_back() {
        let folder = Folder::new();
        let end = || end_if_booked(&folder.life, folder.now, &id("a")).expect("ends");
        assert_eq!(end(), BookingChange::AlreadyEnded);
        assert_eq!(folder.begin("a"), BookingChange::New);
        assert_eq!(end(), BookingChange::New);
        assert_eq!(folder.running(), [""; 0]);
        assert_eq!(end(), BookingChange::AlreadyEnded);
        assert_eq!(folder.begin("a"), BookingChange::New);
        assert_eq!(folder.running(), ["a"]);
    }

    #[test]
    fn a_postflight_that_came_long_ago_takes_nothing_back() {
        let mut folder = Folder::new();
        folder.end("a");
        folder.now = folder.now + LATE_PREFLIGHT + Span::from_micros(1);
        assert_eq!(folder.begin("a"), BookingChange::New);
        assert_eq!(folder.running(), ["a"]);
    }

    #[test]
    fn an_attempt_that_is_repeated_under_its_name_is_booked_again() {
        let folder = Folder::new();
        for _ in 0..3 {
            assert_eq!(folder.begin("qube:1.0"), BookingChange::New);
            assert_eq!(folder.end("qube:1.0"), BookingChange::New);
        }
        assert_eq!(folder.running(), [""; 0]);
    }

    #[test]
    fn every_id_has_a_file_of_its_own() {
        let folder = Folder::new();
        let long = "x".repeat(128);
        let names = [".", "..", ".hidden", "-x", "b-a", "a", "A", "ж", "a:b@c+d_e.f", &long];
        for name in names {
            assert_eq!(folder.begin(name), BookingChange::New, "{name}");
        }
        let mut expected = names.map(str::to_owned).to_vec();
        expected.sort_unstable();
        assert_eq!(folder.running(), expected);
    }

    #[test]
    fn a_file_that_cannot_be_read_books_the_whole_host() {
        let folder = Folder::new();
        for (name, bytes) in [("empty", &b""[..]), ("torn", b"{\"sta"), ("noise", b"\xff\0\xff")] {
            fs::write(path_of(&folder.life, &id(name)), bytes).expect("writes");
        }
        fs::write(folder.life.join(FOLDER).join("README"), "not a booking").expect("writes");
        let list = list(&folder.life).expect("lists");
        assert_eq!(list.len(), 3);
        assert!(list.iter().all(|booking| booking.resources == Booked::default()));
        assert_eq!(folder.end("torn"), BookingChange::New);
        assert_eq!(folder.running(), ["empty", "noise"]);
    }

    /// Files that this thread has read from, so far.
    fn reads() -> u64 {
        let io = fs::read_to_string("/proc/thread-self/io").expect("the kernel counts");
        let count = io.lines().find_map(|line| line.strip_prefix("syscr: ")).expect("reads");
        count.parse().expect("a number")
    }

    #[test]
    fn what_has_ended_is_not_read_when_a_render_waits() {
        let folder = Folder::new();
        let cost = || {
            let before = reads();
            assert_eq!(folder.running(), ["live"]);
            reads() - before
        };
        folder.begin("live");
        let alone = cost();
        for index in 0..ENDED_BOOKINGS_MAX - 1 {
            folder.begin(&format!("frame-{index}"));
            folder.end(&format!("frame-{index}"));
        }
        assert_eq!(names(&folder.life.join(FOLDER)).expect("lists").len(), ENDED_BOOKINGS_MAX);
        assert_eq!(cost(), alone);
    }

    #[test]
    fn a_link_is_an_end_wherever_it_leads() {
        let folder = Folder::new();
        folder.begin("a");
        let targets = [("b", path_of(&folder.life, &id("a"))), ("c", "nowhere".into())];
        for (name, target) in targets {
            std::os::unix::fs::symlink(target, path_of(&folder.life, &id(name))).expect("links");
            assert_eq!(folder.running(), ["a"], "{name}");
            assert_eq!(folder.end(name), BookingChange::AlreadyEnded);
            assert_eq!(folder.begin(name), BookingChange::New, "it ended long ago");
            assert_eq!(folder.end(name), BookingChange::New);
        }
        assert_eq!(folder.running(), ["a"]);
    }

    #[test]
    fn an_end_that_is_a_file_is_an_end_as_well() {
        let folder = Folder::new();
        let said = |first| Record::Ended { at_us: folder.now.as_micros(), first };
        for (name, first) in [("a", true), ("b", false)] {
            let bytes = serde_json::to_vec(&said(first)).expect("serialises");
            fs::write(path_of(&folder.life, &id(name)), bytes).expect("writes");
            assert_eq!(folder.end(name), BookingChange::AlreadyEnded);
        }
        assert_eq!(folder.running(), [""; 0]);
        assert_eq!(folder.begin("a"), BookingChange::AlreadyEnded);
        assert_eq!(folder.begin("b"), BookingChange::New);
        assert_eq!(folder.running(), ["b"]);
    }

    #[test]
    fn ended_bookings_are_forgotten_oldest_first_and_running_ones_never() {
        let mut folder = Folder::new();
        folder.begin("keep");
        for index in 0..ENDED_BOOKINGS_MAX * 3 {
            folder.now = folder.now + Span::from_millis(1);
            folder.begin(&format!("frame-{index}"));
            folder.end(&format!("frame-{index}"));
        }
        let files = names(&folder.life.join(FOLDER)).expect("lists").len();
        assert!(files <= ENDED_BOOKINGS_MAX, "{files} files");
        assert_eq!(folder.running(), ["keep"]);
        let last = format!("frame-{}", ENDED_BOOKINGS_MAX * 3 - 1);
        assert_eq!(folder.end(&last), BookingChange::AlreadyEnded);
        assert_eq!(names(&folder.life.join(life::NEW)).expect("lists").len(), 0);
    }
}

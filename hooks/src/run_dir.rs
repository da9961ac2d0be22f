//! The host's run folder: what hooks and agent share, usable by each without the other.
//!
//! ```text
//! RUN/agent.sock            the agent's socket
//! RUN/life-<boot id>        the folder's present life: its incarnation, 16 hexadecimal digits
//! RUN/<incarnation>/epoch   one byte per preflight: its length is the epoch's count
//! RUN/<incarnation>/bookings/b-<booking>   one file per render attempt, a link once it has ended
//! RUN/<incarnation>/groups/<pgid>          one file per process group of harvested work
//! RUN/<incarnation>/enclosure              the control groups that hold them all, a path a line
//! RUN/<incarnation>/new/    files before they get their name
//! ```
//!
//! A life begins when the folder is made or the machine has booted; renders and process groups
//! of an earlier boot are none of the present one, so they live below their incarnation.
//!
//! The folder belongs on a local file system that a boot empties (`/run/gleaner`). Whoever may
//! write in it can have process groups stopped, so one that is world-writable, a link, or of an
//! owner who had no right to put it there is refused. Where the farm runs its hooks as other
//! users than the agent, have it made with a group of theirs and mode 2775 (by `Group=` of the
//! agent's unit, which gives it that at each start): what is made inside follows the folder's own
//! mode. Who is in that group is trusted to say what is booked;
//! to have processes stopped, each of them only as far as they are their own.
//!
//! # Invariants
//! - No state is ever half written: files get their name by link or rename, and the epoch grows
//!   by appending a byte. So nothing here takes a lock, and a hook may be killed anywhere.
//! - The epoch of one incarnation never falls.
//! - A booking that cannot be read counts as a booking of the whole host.

mod bookings;
mod enclosure;
mod groups;
mod life;
mod owner;
mod record;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, DirEntry, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gleaner_isolation::Marks;
use gleaner_protocol::farm::{Booked, SampledBooking};
use gleaner_protocol::{BookingId, Epoch};
use thiserror::Error;

use crate::TaskGroup;
use crate::limits::{FOLDER_ENTRIES_MAX, RUN_FILE_BYTES_MAX, SOCKET_PATH_BYTES_MAX};

use owner::Owner;

pub use groups::StopReport;
pub use record::BookingRecord;

/// A host's run folder, open. Clones share it.
#[derive(Debug, Clone)]
pub struct RunDir {
    path: Arc<Path>,
    /// As whom to act in it, where that is not as ourselves.
    owner: Option<Owner>,
    incarnation: Arc<AtomicU64>,
}

/// What beginning or ending a booking changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookingChange {
    /// It is as asked now and was not before.
    New,
    /// It was begun before and stands.
    AlreadyThere,
    /// It had ended before, or was never there: a second postflight, one that ends only what is booked,
    /// or a preflight after its postflight.
    AlreadyEnded,
}

impl RunDir {
    /// Where the folder is if nothing else is said: `/run/gleaner` of the administrator, else in the
    /// user's own folder of running programs, or in `/tmp` where there is none.
    #[must_use]
    pub fn usual() -> PathBuf {
        let uid = rustix::process::geteuid();
        match std::env::var_os("XDG_RUNTIME_DIR") {
            _ if uid.is_root() => "/run/gleaner".into(),
            Some(folder) if Path::new(&folder).is_absolute() => Path::new(&folder).join("gleaner"),
            _ => format!("/tmp/gleaner-{uid}").into(),
        }
    }

    /// Opens the folder; makes it, and its present life, where they are missing.
    ///
    /// # Errors
    /// It cannot be made or read, is world-writable or a link, belongs to somebody who had no
    /// right to put it there, or its path is too long for a socket.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, RunDirError> {
        // Without a slash at its end, behind which a link would be followed.
        let path: PathBuf = path.into().components().collect();
        let socket_bytes = path.join(SOCKET).as_os_str().as_bytes().len();
        if socket_bytes > SOCKET_PATH_BYTES_MAX {
            return Err(RunDirError::PathTooLong { path, socket_bytes });
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&path)
            .map_err(|source| RunDirError::io("make the run folder", &path, source))?;
        let (mode, owner) = owner::check(&path)?;
        let _as_owner = owner.map(|owner| owner.act(&path)).transpose()?;
        let incarnation = life::current_or_new(&path, mode)?;
        Ok(Self { path: path.into(), owner, incarnation: Arc::new(AtomicU64::new(incarnation)) })
    }

    /// Opens it for an agent, which records there the processes that it runs.
    ///
    /// # Errors
    /// As [`RunDir::open`]; and where root would record its processes in another's folder, who
    /// has no say over them.
    pub fn open_for_agent(path: impl Into<PathBuf>) -> Result<Self, RunDirError> {
        let folder = Self::open(path)?;
        match folder.owner {
            None => Ok(folder),
            Some(owner) => {
                Err(RunDirError::NotRoots { path: folder.path().to_owned(), owner: owner.uid() })
            }
        }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the agent listens.
    #[must_use]
    pub fn socket_path(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// The host's epoch. One `stat`: cheap enough to ask before every replica.
    ///
    /// # Errors
    /// The folder is gone or cannot be read: whoever asks must treat the host as closed.
    pub fn epoch(&self) -> Result<Epoch, RunDirError> {
        self.in_life(|incarnation, life| {
            let epoch = life.join(EPOCH);
            match fs::metadata(&epoch) {
                Ok(metadata) => Ok(Epoch { incarnation, count: metadata.len() }),
                Err(source) => Err(RunDirError::io("read the epoch", &epoch, source)),
            }
        })
    }

    /// Raises the epoch by one and returns where it stands then. Of two hooks that do it at once,
    /// both may be told the higher count; the count never misses one.
    ///
    /// # Errors
    /// The folder is gone or cannot be written, or the disk is full.
    pub fn raise_epoch(&self) -> Result<Epoch, RunDirError> {
        self.in_life(|incarnation, life| {
            let epoch = life.join(EPOCH);
            let raise = || {
                let mut open = OpenOptions::new();
                let mut file = open.append(true).custom_flags(NO_LINK).open(&epoch)?;
                file.write_all(b".")?;
                Ok(Epoch { incarnation, count: file.metadata()?.len() })
            };
            raise().map_err(|source| RunDirError::io("raise the epoch", &epoch, source))
        })
    }

    /// Renders that run now, in order of their ids.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn bookings(&self) -> Result<Vec<SampledBooking>, RunDirError> {
        self.in_life(|_, life| bookings::list(life))
    }

    /// Records that a render begins.
    ///
    /// A postflight that came before it, at most [`crate::limits::LATE_PREFLIGHT`] ago, takes it
    /// back at once; after a render that has begun and ended, the same id is another attempt.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn begin_booking(
        &self,
        id: &BookingId,
        booked: &Booked,
    ) -> Result<BookingChange, RunDirError> {
        let now = gleaner_protocol::boottime();
        self.in_life(|_, life| bookings::begin(life, now, id, booked))
    }

    /// Records that a render has ended.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn end_booking(&self, id: &BookingId) -> Result<BookingChange, RunDirError> {
        let now = gleaner_protocol::boottime();
        self.in_life(|_, life| bookings::end(life, now, id))
    }

    /// Records that a render has ended, if it is booked; where it is not, a preflight that comes later
    /// books all the same.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn end_booking_if_there(&self, id: &BookingId) -> Result<BookingChange, RunDirError> {
        let now = gleaner_protocol::boottime();
        self.in_life(|_, life| bookings::end_if_booked(life, now, id))
    }

    /// Notes the control groups that hold all harvested work of this host.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn note_enclosure(&self, marks: &Marks) -> Result<(), RunDirError> {
        self.in_life(|_, life| enclosure::note(life, marks))
    }

    /// The control groups that were noted; none where there are none.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn enclosure(&self) -> Result<Marks, RunDirError> {
        self.in_life(|_, life| enclosure::marks(life))
    }

    /// Records a process group, so that a hook can stop it without the agent. To be called
    /// before the group does any work; the epoch is to be checked after it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn register_group(&self, group: &TaskGroup) -> Result<(), RunDirError> {
        self.in_life(|_, life| groups::register(life, group))
    }

    /// Removes the record of a group that is gone. One that is not there is no error.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn forget_group(&self, pgid: i32) -> Result<(), RunDirError> {
        self.in_life(|_, life| groups::forget(life, pgid))
    }

    /// The recorded groups, in order of their numbers, living or not.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn groups(&self) -> Result<Vec<TaskGroup>, RunDirError> {
        self.in_life(|_, life| groups::list(life))
    }

    /// Freezes every recorded group that is still the one that was recorded, then kills each,
    /// waits a moment for their ends and forgets them. Never fails; says what came of it.
    #[must_use]
    pub fn stop_groups(&self) -> StopReport {
        self.in_life(|_, life| Ok(groups::stop_all(life))).unwrap_or_else(|error| StopReport {
            troubles: vec![error.to_string()],
            ..StopReport::default()
        })
    }

    /// Runs `act` on the present life; once more if another life has begun meanwhile.
    fn in_life<T>(
        &self,
        act: impl Fn(u64, &Path) -> Result<T, RunDirError>,
    ) -> Result<T, RunDirError> {
        let _as_owner = self.owner.map(|owner| owner.act(&self.path)).transpose()?;
        let incarnation = self.incarnation.load(Ordering::Acquire);
        match act(incarnation, &life::folder(&self.path, incarnation)) {
            Err(error) if error.is_not_found() => match life::current(&self.path)? {
                Some(present) if present != incarnation => {
                    self.incarnation.store(present, Ordering::Release);
                    act(present, &life::folder(&self.path, present))
                }
                _ => Err(error),
            },
            outcome => outcome,
        }
    }
}

/// Why the run folder could not be used.
#[derive(Debug, Error)]
pub enum RunDirError {
    /// A file or folder in it failed.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Anyone could have processes stopped.
    #[error(
        "run folder {path} is writable by everyone: take that away (chmod o-w)",
        path = .0.display()
    )]
    WorldWritable(PathBuf),
    /// A file, or a link that anybody may have laid.
    #[error("run folder {path} is no folder, or a link: name the folder itself", path = .0.display())]
    NoFolder(PathBuf),
    /// Anybody may have put it there.
    #[error(
        "run folder {path} belongs to user {owner}, who had no right to put it there for user {user}: remove it, or name another",
        path = path.display()
    )]
    ForeignOwner {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who was to use it.
        user: u32,
    },
    /// An agent of root's needs a folder of root's.
    #[error(
        "run folder {path} belongs to user {owner}, and the agent runs as root: chown root {path}, or run the agent as that user",
        path = path.display()
    )]
    NotRoots {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// No socket could be made in it.
    #[error(
        "run folder {path} is too long: its socket's path has {socket_bytes} bytes, more than {max}",
        path = path.display(),
        max = SOCKET_PATH_BYTES_MAX
    )]
    PathTooLong {
        /// The folder.
        path: PathBuf,
        /// Length of the socket's path.
        socket_bytes: usize,
    },
    /// A file holds something else than it should.
    #[error("{path} is damaged: remove the run folder and start the agent again", path = .0.display())]
    Damaged(PathBuf),
}

impl RunDirError {
    fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source }
    }

    fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// The socket's name in the folder.
pub(crate) const SOCKET: &str = "agent.sock";
const EPOCH: &str = "epoch";
/// For opening what nobody should have laid a link in place of.
const NO_LINK: i32 = libc::O_NOFOLLOW;
/// What the mode of a file may have that its owner alone writes.
const OF_ONE: u32 = 0o755;

/// Reads a small file; a longer one is cut, and a link is not followed.
fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    read_open(&open_no_link(path)?)
}

/// The same, and who has written it: nobody else may write to it.
fn read_small_of_one(path: &Path) -> io::Result<(u32, Vec<u8>)> {
    let file = open_no_link(path)?;
    let found = file.metadata()?;
    if found.mode() & !OF_ONE & 0o777 != 0 {
        return Err(io::Error::other("others than its owner may have written it (chmod go-w)"));
    }
    Ok((found.uid(), read_open(&file)?))
}

fn open_no_link(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(NO_LINK).open(path)
}

fn read_open(file: &File) -> io::Result<Vec<u8>> {
    // Room for all of most of them, so that one read has it.
    let mut bytes = Vec::with_capacity(256);
    file.take(RUN_FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Names of a folder's entries that are UTF-8, at most [`FOLDER_ENTRIES_MAX`], in order.
fn names(folder: &Path) -> Result<Vec<String>, RunDirError> {
    names_of(folder, |_| true)
}

/// Of these, the names of entries that are wanted.
fn names_of(
    folder: &Path,
    is_wanted: impl Fn(&DirEntry) -> bool,
) -> Result<Vec<String>, RunDirError> {
    let mut names = Vec::new();
    let entries = fs::read_dir(folder).map_err(|source| RunDirError::io("list", folder, source))?;
    for entry in entries.take(FOLDER_ENTRIES_MAX) {
        let entry = entry.map_err(|source| RunDirError::io("list", folder, source))?;
        if is_wanted(&entry) {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Writes a file under a name that nobody looks for, to be linked or renamed into place.
fn write_new(life: &Path, content: &[u8]) -> Result<NewFile, RunDirError> {
    let mode = mode_of(life);
    NewFile::make(life, |path| create_new(path, mode)?.write_all(content))
}

/// The same, for what has processes stopped in the name of who has written it.
fn write_new_of_one(life: &Path, content: &[u8]) -> Result<NewFile, RunDirError> {
    let mode = mode_of(life) & OF_ONE;
    NewFile::make(life, |path| create_new(path, mode)?.write_all(content))
}

/// Makes a link that leads nowhere but says something, under such a name.
fn link_new(life: &Path, said: &[u8]) -> Result<NewFile, RunDirError> {
    NewFile::make(life, |path| symlink(OsStr::from_bytes(said), path))
}

/// What files of a life may have of its folder's mode; the user's mask is none of it.
fn mode_of(life: &Path) -> u32 {
    fs::metadata(life).map_or(0o600, |life| life.mode() & 0o664)
}

/// Makes a file of exactly this mode, where there is none.
fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // A file system without modes is no reason not to book.
    let _ = file.set_permissions(Permissions::from_mode(mode));
    Ok(file)
}

/// A file without its final name; removed on drop.
struct NewFile {
    path: PathBuf,
}

impl NewFile {
    fn make(life: &Path, make: impl Fn(&Path) -> io::Result<()>) -> Result<Self, RunDirError> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = life.join(life::NEW).join(format!("{}.{serial}", std::process::id()));
        let file = Self { path };
        make(&file.path)
            .or_else(|error| match error.kind() {
                // A namesake can only be left from a killed process that had our number.
                io::ErrorKind::AlreadyExists => {
                    fs::remove_file(&file.path)?;
                    make(&file.path)
                }
                _ => Err(error),
            })
            .map_err(|source| RunDirError::io("write", &file.path, source))?;
        Ok(file)
    }

    /// Gives it a name that is free. False where it is taken.
    fn link(&self, to: &Path) -> Result<bool, RunDirError> {
        match fs::hard_link(&self.path, to) {
            Ok(()) => Ok(true),
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => Err(RunDirError::io("link", to, source)),
        }
    }

    /// Puts it in place of what has that name.
    fn replace(&self, to: &Path) -> Result<(), RunDirError> {
        fs::rename(&self.path, to).map_err(|source| RunDirError::io("replace", to, source))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Where it was renamed there is nothing left to remove.
        let _ = fs::remove_file(&self.path);
    }
}

//! The mark that ends all harvest on a host until it is lifted: a file that an administrator, or
//! `gleaner stop`, puts in one of these places.
//!
//! ```text
//! /var/lib/gleaner/stopped            every agent of this machine, also after a boot
//! ~/.local/state/gleaner/stopped      every agent of this user ($XDG_STATE_HOME is heeded)
//! RUN/stopped                         the agent of this run folder, for as long as that is there
//! ```
//!
//! Where `GLEANER_STATE_DIR` is set, its `stopped` takes the place of the first two.
//!
//! # Invariants
//! - A file of any content, even an empty one, is the mark.
//! - A place that cannot be looked at counts as marked: who may not know must not harvest.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Its name.
pub const STOPPED: &str = "stopped";
/// Where the machine's mark is put, and an administrator may put it by hand.
pub const MACHINE_STATE_DIR: &str = "/var/lib/gleaner";
/// The variable that names another folder for it.
pub const STATE_DIR_VARIABLE: &str = "GLEANER_STATE_DIR";

/// The places of one agent's mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopMark {
    run: PathBuf,
    /// Those that survive a boot; the last is this user's to write.
    lasting: Vec<PathBuf>,
}

/// The mark is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// Where.
    pub path: PathBuf,
    /// Why that place cannot be looked at, if that is so.
    pub unreadable: Option<String>,
}

/// Where a mark was put.
#[derive(Debug, Default)]
pub struct PutMarks {
    /// It stands here now.
    pub marks: Vec<PathBuf>,
    /// Whether one of these outlives a boot.
    pub outlives_boot: bool,
    /// What could not be put.
    pub refused: Vec<StopMarkError>,
}

impl StopMark {
    /// Of the agent with this run folder, as this process's user and environment have it.
    #[must_use]
    pub fn of(run_dir: &Path) -> Self {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let absolute = |path: &PathBuf| path.is_absolute();
        let machine = PathBuf::from(MACHINE_STATE_DIR);
        let users = || {
            let home = variable("HOME").filter(absolute).map(|home| home.join(".local/state"));
            Some(variable("XDG_STATE_HOME").filter(absolute).or(home)?.join("gleaner"))
        };
        let folders = match variable(STATE_DIR_VARIABLE).filter(absolute) {
            Some(folder) => vec![folder],
            None if rustix::process::geteuid().is_root() => vec![machine],
            None => [Some(machine), users()].into_iter().flatten().collect(),
        };
        Self {
            run: run_dir.join(STOPPED),
            lasting: folders.iter().map(|folder| folder.join(STOPPED)).collect(),
        }
    }

    /// Whether harvest is stopped, and by which mark.
    #[must_use]
    pub fn look(&self) -> Option<Stopped> {
        self.places().find_map(|path| match fs::symlink_metadata(path) {
            Ok(_) => Some(Stopped { path: path.clone(), unreadable: None }),
            Err(error) if is_absent(&error) => None,
            Err(error) => Some(Stopped { path: path.clone(), unreadable: Some(error.to_string()) }),
        })
    }

    /// Every place, that of the run folder first.
    pub fn places(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.run).chain(&self.lasting)
    }

    /// Puts the mark: in the run folder where it is there, and where it lasts. With `only_run`
    /// in the run folder alone. What cannot be put in one place is put in the other.
    #[must_use]
    pub fn put(&self, only_run: bool) -> PutMarks {
        let has_run = self.run.parent().is_some_and(Path::is_dir);
        let run = Some(&self.run).filter(|_| only_run || has_run);
        let lasting = self.lasting.last().filter(|_| !only_run);
        let mut put = PutMarks::default();
        for path in run.into_iter().chain(lasting) {
            match put_one(path) {
                Ok(()) => put.marks.push(path.clone()),
                Err(source) => put.refused.push(StopMarkError::new("put", path, source)),
            }
        }
        put.outlives_boot = lasting.is_some_and(|path| put.marks.contains(path));
        put
    }

    /// Takes the mark away from every place, or from the run folder alone. Returns what was there.
    ///
    /// # Errors
    /// One place at least could not be cleared; the others are.
    pub fn lift(&self, only_run: bool) -> Result<Vec<PathBuf>, StopMarkError> {
        let mut lifted = Vec::new();
        let mut refused = None;
        let places = self.places().take(if only_run { 1 } else { usize::MAX });
        for path in places {
            match fs::remove_file(path) {
                Ok(()) => lifted.push(path.clone()),
                Err(error) if is_absent(&error) => {}
                Err(source) => refused = Some(StopMarkError::new("remove", path, source)),
            }
        }
        refused.map_or(Ok(lifted), Err)
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn put_one(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        // For every user's agent to look into.
        DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    let text = format!("gleaner stop, by user {}\n", rustix::process::getuid());
    match File::create_new(path) {
        Ok(mut file) => {
            // The mark is what counts, not what it says: a full disk may keep it empty.
            let _ = file.write_all(text.as_bytes());
            let _ = file.set_permissions(fs::Permissions::from_mode(0o644));
            file.sync_all()
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// A mark could not be put or taken away.
#[derive(Debug, Error)]
#[error("cannot {what} {path}: {source}", path = path.display())]
pub struct StopMarkError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl StopMarkError {
    fn new(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self { what, path: path.into(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(folder: &Path) -> StopMark {
        let lasting = vec![folder.join("machine").join(STOPPED), folder.join("user").join(STOPPED)];
        StopMark { run: folder.join("run").join(STOPPED), lasting }
    }

    #[test]
    fn it_holds_until_it_is_lifted() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = mark(folder.path());
        assert_eq!(mark.look(), None);
        let put = mark.put(false);
        assert_eq!(put.marks, [folder.path().join("user/stopped")]);
        assert!(put.outlives_boot && put.refused.is_empty(), "{put:?}");
        fs::create_dir(folder.path().join("run")).expect("made");
        assert_eq!(mark.put(false).marks.len(), 2, "twice is once");
        assert_eq!(mark.look().map(|found| found.path), Some(folder.path().join("run/stopped")));
        assert_eq!(mark.lift(true).expect("ours").len(), 1);
        assert!(mark.look().is_some(), "the lasting one stands");
        assert_eq!(mark.lift(false).expect("ours").len(), 1);
        assert_eq!((mark.look(), mark.lift(false).expect("nothing to do")), (None, Vec::new()));
    }

    #[test]
    fn a_file_made_by_hand_is_a_mark_wherever_it_lies() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = mark(folder.path());
        for place in ["run", "machine", "user"] {
            let path = folder.path().join(place).join(STOPPED);
            fs::create_dir(folder.path().join(place)).expect("made");
            File::create(&path).expect("touched");
            assert_eq!(mark.look(), Some(Stopped { path, unreadable: None }));
            assert_eq!(mark.lift(false).expect("ours").len(), 1);
        }
    }

    #[test]
    fn what_cannot_be_put_everywhere_is_put_where_it_can() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = mark(folder.path());
        fs::create_dir(folder.path().join("run")).expect("made");
        File::create(folder.path().join("user")).expect("a file in the way");
        let put = mark.put(false);
        assert_eq!(put.marks, [folder.path().join("run/stopped")]);
        assert!(!put.outlives_boot, "a boot empties the run folder");
        let refused: Vec<String> = put.refused.iter().map(ToString::to_string).collect();
        assert!(refused.len() == 1 && refused[0].contains("user/stopped"), "{refused:?}");
        assert!(mark.look().is_some());
    }
}

//! Opening sled, and what it may do to us.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use rustix::fs::FlockOperation;
use rustix::rand::{GetRandomFlags, getrandom};
use sled::{Db, Tree};

use super::error::StoreError;
use super::folder::{remove_folder, sync_folder};
use super::meta::{FORMAT, Meta, MetaError};
use super::small_blobs::SmallBlobs;
use crate::limits::{STORE_CACHE_BYTES, STORE_LOCK_TIME_MAX};

/// What the tree `meta` says.
pub(crate) struct Facts {
    pub(crate) folder_id: String,
    pub(crate) incarnation: u32,
    pub(crate) token_key: Option<[u8; 16]>,
    /// Sequence of the live snapshot.
    pub(crate) snapshot: Option<u64>,
}

/// Reads it. What cannot be read is damage.
pub(crate) fn read_facts(
    folder: &Path,
    meta: &Meta,
    kept: &Option<PathBuf>,
) -> Result<Facts, StoreError> {
    let damaged =
        |what: String| StoreError::Damaged { folder: folder.to_owned(), what, kept: kept.clone() };
    let read = || -> Result<_, MetaError> {
        let (folder_id, token_key) = (meta.folder_id()?, meta.token_key()?);
        Ok((meta.format()?, folder_id, token_key, meta.incarnation()?, meta.snapshot()?))
    };
    let read = guarded(folder, "reading meta", || Ok(read()));
    let (format, folder_id, token_key, incarnation, snapshot) =
        read.map_err(|error| as_damage(error, kept))?.map_err(|error| match error {
            MetaError::Engine(error) => {
                as_damage(StoreError::engine("reading meta", folder)(error), kept)
            }
            MetaError::Damaged(what) => damaged(what),
        })?;
    if let Some(found) = format
        && found != FORMAT
    {
        return Err(StoreError::Format { folder: folder.to_owned(), found, known: FORMAT });
    }
    let (Some(_), Some(folder_id), Some(incarnation)) = (format, folder_id, incarnation) else {
        return Err(damaged("what every store of ours begins with is missing".into()));
    };
    let folder_id = folder_id.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Facts { folder_id, incarnation, token_key, snapshot })
}

/// Makes an empty store under another name first: a kill leaves either none or a whole one.
pub(crate) fn create(folder: &Path, store: &Path) -> Result<(), StoreError> {
    let draft = folder.join("sled.new");
    remove_folder(&draft)?;
    let folder_id = random_bytes()?;
    let (db, journal, blobs, meta) = open(folder, &draft)?;
    meta.initialise(&folder_id)?;
    db.flush().map_err(StoreError::engine("making a store", folder))?;
    drop((journal, blobs, meta, db));
    for entry in fs::read_dir(&draft).map_err(StoreError::file("list", &draft))? {
        let file = entry.map_err(StoreError::file("list", &draft))?.path();
        File::open(&file)
            .and_then(|file| file.sync_all())
            .map_err(StoreError::file("sync", &file))?;
    }
    sync_folder(&draft)?;
    fs::rename(&draft, store).map_err(StoreError::file("rename", &draft))?;
    sync_folder(folder)
}

/// Bytes that nobody can foretell.
pub(crate) fn random_bytes() -> Result<[u8; 16], StoreError> {
    let mut bytes = [0; 16];
    // So few bytes come at once, or not at all.
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| StoreError::Random(error.into()))?;
    Ok(bytes)
}

/// Opens the engine's files and the three trees.
pub(crate) fn open(
    folder: &Path,
    store: &Path,
) -> Result<(Db, Tree, SmallBlobs, Meta), StoreError> {
    wait_until_free(folder, &store.join("db"))?;
    remove_drafts(store)?;
    guarded(folder, "opening", || {
        let trees = || -> sled::Result<_> {
            let db = sled::Config::default()
                .path(store)
                .cache_capacity(STORE_CACHE_BYTES)
                .mode(sled::Mode::HighThroughput)
                .open()?;
            Ok((db.open_tree("journal")?, db.open_tree("blobs")?, db.open_tree("meta")?, db))
        };
        let (journal, blobs, meta, db) = trees().map_err(StoreError::engine("opening", folder))?;
        Ok((db, journal, SmallBlobs::new(blobs, folder), Meta::new(meta, folder)))
    })
}

/// Removes what a kill left of the engine's own snapshots. While it opens it writes one beside the
/// last, as `snap.….generating`, and renames it; but when it opens again it takes a half-written
/// one for the newest, finds it damaged, and refuses the whole store.
fn remove_drafts(store: &Path) -> Result<(), StoreError> {
    let entries = match fs::read_dir(store) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(StoreError::file("list", store))?,
    };
    for entry in entries {
        let file = entry.map_err(StoreError::file("list", store))?.path();
        if file.extension().is_some_and(|extension| extension == "generating") {
            fs::remove_file(&file).map_err(StoreError::file("remove", &file))?;
        }
    }
    Ok(())
}

/// Waits until nobody has the engine's file locked. That can only be an instance in this process
/// that was closed just now: threads of the engine outlive it by a moment.
pub(crate) fn wait_until_free(folder: &Path, db_path: &Path) -> Result<(), StoreError> {
    let file = match File::open(db_path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(StoreError::file("open", db_path))?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        // Dropping the file gives the lock back.
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {}
        Err(errno) => return Err(StoreError::file("lock", db_path)(errno.into())),
    }
    // A lock is waited for without a time-out, hence by a thread that can be left behind.
    let (done, wait) = mpsc::channel();
    thread::Builder::new()
        .name("store-lock".into())
        .spawn(move || {
            let locked = rustix::fs::flock(&file, FlockOperation::LockExclusive);
            drop(file);
            let _ = done.send(locked);
        })
        .map_err(StoreError::file("lock", db_path))?;
    match wait.recv_timeout(STORE_LOCK_TIME_MAX) {
        Ok(locked) => locked.map_err(|errno| StoreError::file("lock", db_path)(errno.into())),
        Err(_) => Err(StoreError::Locked { folder: folder.to_owned(), holder: None }),
    }
}

/// The engine stumbles over what it does not expect in its files in many ways.
pub(crate) fn as_damage(error: StoreError, kept: &Option<PathBuf>) -> StoreError {
    let (folder, what) = match error {
        StoreError::Engine { source: sled::Error::Io(_), .. } => return error,
        StoreError::Engine { folder, source, .. } => (folder, source.to_string()),
        StoreError::Panicked { folder, message, .. } => (folder, message),
        other => return other,
    };
    StoreError::Damaged { folder, what: format!("it cannot be read: {what}"), kept: kept.clone() }
}

/// The engine's own thread: it collects what is no longer needed in the file. A damaged page ends
/// it; what is acknowledged is written and synced by the committer, not by it.
const ENGINE_THREAD: &str = "log flusher";
static ENGINE_ENDED: AtomicBool = AtomicBool::new(false);

/// Closes the engine, which waits for its own thread: not where that has ended before.
pub(crate) fn close(db: &Db) {
    if ENGINE_ENDED.load(Ordering::Acquire) {
        // One reference more than will ever be dropped.
        std::mem::forget(db.clone());
    }
}

thread_local! {
    /// How many guarded operations this thread is in.
    static GUARDED: Cell<u32> = const { Cell::new(0) };
}

/// Runs an operation of the engine, which panics on some I/O errors and on most damage instead of
/// returning an error. The panic becomes one, and is not printed.
pub(crate) fn guarded<T>(
    folder: &Path,
    doing: &'static str,
    operation: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    static HUSH: Once = Once::new();
    HUSH.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if GUARDED.get() > 0 {
                return;
            }
            if thread::current().name() == Some(ENGINE_THREAD) {
                ENGINE_ENDED.store(true, Ordering::Release);
                let why = panic.payload_as_str().unwrap_or("without a word");
                tracing::error!("the store is damaged and is not cleaned up any more: {why}");
            } else {
                usual(panic);
            }
        }));
    });
    GUARDED.set(GUARDED.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(operation));
    GUARDED.set(GUARDED.get() - 1);
    done.unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("without a word");
        Err(StoreError::Panicked {
            folder: folder.to_owned(),
            doing,
            message: message.chars().take(500).collect(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_amid_the_engines_own_snapshot_does_not_damage_the_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("sled");
        create(folder.path(), &store).expect("created");
        drop(open(folder.path(), &store).expect("opens, and writes a snapshot"));
        let names = fs::read_dir(&store).expect("listed").filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.starts_with("snap.").then_some(name)
        });
        let newest = names.max().expect("the engine has snapshots");
        let whole = fs::read(store.join(&newest)).expect("read");
        for bytes in [0, 5, whole.len() / 2, whole.len() - 1] {
            let draft = store.join(format!("{newest}.generating"));
            fs::write(draft, &whole[..bytes]).expect("written");
            let (_, _, _, meta) = open(folder.path(), &store).expect("opens all the same");
            let facts = read_facts(folder.path(), &meta, &None).expect("read");
            assert_eq!(facts.incarnation, 0);
        }
    }
}

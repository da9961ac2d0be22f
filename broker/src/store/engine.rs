//! Opening sled, and what it may do to us.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use rustix::fs::FlockOperation;
use sled::{Db, Tree};

use super::error::StoreError;
use super::folder::{remove_folder, sync_folder};
use crate::limits::{STORE_CACHE_BYTES, STORE_LOCK_TIME_MAX};

/// The engine's files, opened, until the last one who has them lets go.
pub(crate) struct Engine {
    pub(crate) db: Db,
    pub(crate) journal: Tree,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Closing waits for the engine's own thread: not where that has ended before.
        if ENGINE_ENDED.load(Ordering::Acquire) {
            // One reference more than will ever be dropped.
            std::mem::forget(self.db.clone());
        }
    }
}

/// Makes an empty store under another name first: a kill leaves either none or a whole one.
pub(crate) fn create(folder: &Path, store: &Path) -> Result<(), StoreError> {
    let draft = folder.join("sled.new");
    remove_folder(&draft)?;
    let engine = open(folder, &draft)?;
    guarded(folder, "making a store", || {
        engine.db.flush().map_err(StoreError::engine("making a store", folder))
    })?;
    drop(engine);
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

/// Opens the engine's files and the tree of the journal.
pub(crate) fn open(folder: &Path, store: &Path) -> Result<Engine, StoreError> {
    wait_until_free(folder, &store.join("db"))?;
    remove_drafts(store)?;
    guarded(folder, "opening", || {
        let opened = || -> sled::Result<_> {
            let db = sled::Config::default()
                .path(store)
                .cache_capacity(STORE_CACHE_BYTES)
                .mode(sled::Mode::HighThroughput)
                .open()?;
            Ok(Engine { journal: db.open_tree("journal")?, db })
        };
        opened().map_err(StoreError::engine("opening", folder))
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
fn wait_until_free(folder: &Path, db_path: &Path) -> Result<(), StoreError> {
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
pub(crate) fn as_damage(error: StoreError) -> StoreError {
    let (folder, what) = match error {
        StoreError::Engine { source: sled::Error::Io(_), .. } => return error,
        StoreError::Engine { folder, source, .. } => (folder, source.to_string()),
        StoreError::Panicked { folder, message, .. } => (folder, message),
        other => return other,
    };
    StoreError::damaged(&folder, format!("sled: it cannot be read: {what}"))
}

/// The engine's own thread: it collects what is no longer needed in the file. A damaged page ends
/// it; what is acknowledged is written and synced by the committer, not by it.
const ENGINE_THREAD: &str = "log flusher";
static ENGINE_ENDED: AtomicBool = AtomicBool::new(false);

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
        let engine = open(folder.path(), &store).expect("opens, and writes a snapshot");
        engine.journal.insert("key", "value").expect("written");
        drop(engine);
        drop(open(folder.path(), &store).expect("opens, and writes another"));
        let names = fs::read_dir(&store).expect("listed").filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.starts_with("snap.").then_some(name)
        });
        let newest = names.max().expect("the engine has snapshots");
        let whole = fs::read(store.join(&newest)).expect("read");
        for bytes in [0, 5, whole.len() / 2, whole.len() - 1] {
            let draft = store.join(format!("{newest}.generating"));
            fs::write(draft, &whole[..bytes]).expect("written");
            let engine = open(folder.path(), &store).expect("opens all the same");
            let value = engine.journal.get("key").expect("read").expect("it is there");
            assert_eq!(&value[..], b"value");
        }
    }
}

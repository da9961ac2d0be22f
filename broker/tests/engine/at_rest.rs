//! The engine's files between two openings.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// Far longer than an instance that was closed needs to be gone.
const GONE_IN: Duration = Duration::from_secs(60);

/// The engine of a store that was closed, opened behind the store's back.
pub(crate) fn open_engine(folder: &Path) -> sled::Db {
    wait_until_at_rest(folder);
    sled::open(folder.join("sled")).expect("the engine opens")
}

/// Waits until nobody has the engine's files any more: its threads outlive it by a moment, on a
/// busy machine by a longer one, and it refuses to be opened until they are gone.
pub(crate) fn wait_until_at_rest(folder: &Path) {
    let file = File::open(folder.join("sled/db")).expect("there is a store");
    let (done, wait) = channel();
    // A lock is waited for without a time-out, hence by a thread that can be left behind.
    thread::spawn(move || {
        let locked = flock(&file, FlockOperation::LockExclusive);
        let _ = done.send(locked.and_then(|()| flock(&file, FlockOperation::Unlock)));
    });
    wait.recv_timeout(GONE_IN).expect("the store was closed").expect("a lock");
}

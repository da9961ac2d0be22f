//! Notices that a snapshot is being written.

use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use tokio::sync::watch;

/// Watches a folder of snapshots for new files.
pub(crate) struct Drafts {
    folder: PathBuf,
    begun: watch::Receiver<u64>,
}

impl Drafts {
    /// `None` while there is no such folder.
    pub(crate) fn watch(data: &Path) -> Option<Self> {
        let folder = data.join("snapshots");
        let events = init(CreateFlags::CLOEXEC).expect("inotify");
        add_watch(&events, &folder, WatchFlags::CREATE).ok()?;
        let (sender, begun) = watch::channel(0);
        let watched = folder.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4_096];
            // The last event is that the folder is gone.
            while rustix::io::read(&events, &mut buffer).is_ok() && watched.exists() {
                sender.send_modify(|count| *count += 1);
            }
        });
        Some(Self { folder, begun })
    }

    /// Waits until one is begun after [`Drafts::forget`].
    pub(crate) async fn begun(&mut self) {
        self.begun.changed().await.expect("the folder is there");
    }

    /// Forgets what was begun so far.
    pub(crate) fn forget(&mut self) {
        self.begun.mark_unchanged();
    }

    /// Names of the files that are there.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).expect("it was there");
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }
}

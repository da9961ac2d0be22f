//! Notices that a snapshot is being written.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use tokio::io::unix::AsyncFd;

/// Watches a folder of snapshots for new files.
pub(crate) struct Drafts {
    folder: PathBuf,
    events: AsyncFd<OwnedFd>,
}

impl Drafts {
    /// `None` while there is no such folder.
    pub(crate) fn watch(data: &Path) -> Option<Self> {
        let folder = data.join("snapshots");
        let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify");
        add_watch(&events, &folder, WatchFlags::CREATE).ok()?;
        Some(Self {
            folder,
            events: AsyncFd::try_new(events).expect("a descriptor for the runtime"),
        })
    }

    /// Waits until one is begun after the last call.
    pub(crate) async fn begun(&self) {
        let mut buffer = [0; 4_096];
        loop {
            let mut ready = self.events.readable().await.expect("inotify");
            let read =
                ready.try_io(|fd| rustix::io::read(fd, &mut buffer).map_err(io::Error::from));
            if let Ok(read) = read {
                read.expect("inotify");
                return;
            }
        }
    }

    /// Forgets what was begun so far.
    pub(crate) fn forget(&self) {
        let mut buffer = [0; 4_096];
        while rustix::io::read(self.events.get_ref(), &mut buffer).is_ok() {}
    }

    /// Names of the files that are there.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).expect("it was there");
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }
}

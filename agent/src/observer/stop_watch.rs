//! Hears of the mark that stops everything when it is put or lifted by hand.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use gleaner_hooks::StopMark;
use rustix::fs::inotify;
use tracing::debug;

/// Becomes readable when something comes or goes where a mark may lie.
#[derive(Debug)]
pub(super) struct StopWatch {
    fd: Option<OwnedFd>,
}

impl StopWatch {
    /// Watches the folders of these places; of one that is not there yet, the nearest above.
    pub(super) fn new(mark: &StopMark) -> Self {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let fd = inotify::init(flags);
        let fd = fd.inspect_err(|error| debug!("no inotify: {error}; the mark is looked for")).ok();
        let watch = Self { fd };
        for place in mark.places() {
            watch.add(place);
        }
        watch
    }

    fn add(&self, place: &Path) {
        use inotify::WatchFlags;
        let Some(fd) = &self.fd else { return };
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        // Where none can be watched it is looked for every second all the same.
        let _ =
            place.ancestors().skip(1).find(|folder| inotify::add_watch(fd, *folder, flags).is_ok());
    }

    /// To wait for.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Forgets what was heard.
    pub(super) fn drain(&self) {
        let mut events = [0; 4096];
        while self
            .fd
            .as_ref()
            .is_some_and(|fd| rustix::io::read(fd, &mut events).is_ok_and(|n| n > 0))
        {}
    }
}

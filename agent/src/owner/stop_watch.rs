//! Hears of the mark that stops everything when it is put or lifted by hand.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use gleaner_hooks::StopMark;
use rustix::fs::inotify;
use tracing::debug;

/// Becomes readable when something comes or goes where a mark may lie.
#[derive(Debug)]
pub(super) struct StopWatch {
    fd: Option<OwnedFd>,
    /// What a mark is called, or a folder on the way to one. In those folders much else comes and
    /// goes, with each task and each render.
    names: BTreeSet<OsString>,
}

impl StopWatch {
    /// Watches the folders of these places; of one that is not there yet, the nearest above.
    pub(super) fn new(mark: &StopMark) -> Self {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let fd = inotify::init(flags);
        let fd = fd.inspect_err(|error| debug!("no inotify: {error}; the mark is looked for")).ok();
        let names = mark.places().flat_map(|place| place.iter().map(OsString::from)).collect();
        let watch = Self { fd, names };
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

    /// Forgets what was heard; says whether any of it may be a mark.
    pub(super) fn drain(&self) -> bool {
        let Some(fd) = &self.fd else { return false };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(fd, &mut buffer);
        let mut is_news = false;
        while let Ok(event) = events.next() {
            // One without a name is of the folder itself, or says that some were lost.
            is_news |= event.file_name().is_none_or(|name| {
                self.names.contains(&OsString::from_vec(name.to_bytes().to_vec()))
            });
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_renders_and_tasks_leave_beside_a_mark_is_no_news() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = StopMark::of(folder.path());
        let watch = StopWatch::new(&mark);
        for name in ["epoch", "booking", "epoch.new"] {
            fs::write(folder.path().join(name), "x").expect("written");
        }
        fs::rename(folder.path().join("epoch.new"), folder.path().join("epoch")).expect("moved");
        assert!(!watch.drain(), "none of these is a mark");
        let place = mark.places().next().expect("that of the run folder");
        fs::write(place, "").expect("written");
        assert!(watch.drain());
        fs::remove_file(place).expect("there");
        assert!(watch.drain());
        assert!(!watch.drain(), "it was heard");
    }
}

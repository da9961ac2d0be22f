//! How long kernels took, written down as a profile of the farm's kinds of hosts.
//!
//! ```text
//!  data folder
//!  └── kernel-times.csv   a line for each counted output of a kernel with a specification
//! ```
//!
//! A thread of its own writes it: nothing that is promised to anyone waits for a statistic. What has
//! been added before is in what is read after.
//!
//! # Invariants
//! - The file is whole lines below [`KernelTime::HEADER`], and no longer than
//!   [`KERNEL_TIMES_BYTES_MAX`]: what came longest ago goes first.
//! - A file that is none of that is moved aside, not lost.
//! - On a disk that is nearly full nothing is written.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use gleaner_protocol::KernelTime;
use tokio::sync::oneshot;

use crate::limits::{KERNEL_TIMES_BYTES_MAX, KERNEL_TIMES_QUEUED_MAX};
use crate::store::FreeSpace;

const FILE_NAME: &str = "kernel-times.csv";

/// What the thread is to do.
enum Order {
    Add(Vec<KernelTime>),
    Read(oneshot::Sender<io::Result<Vec<u8>>>),
    End,
}

/// Adds to the profile and reads it. Clones are of the same one.
#[derive(Debug, Clone)]
pub(crate) struct KernelTimes {
    orders: SyncSender<Order>,
}

/// The thread that writes.
pub(crate) struct Recorder {
    orders: SyncSender<Order>,
    thread: thread::JoinHandle<()>,
}

/// Begins to write into the data folder.
///
/// # Errors
/// There can be no thread.
pub(crate) fn start(
    data_folder: &Path,
    min_free_bytes: u64,
) -> io::Result<(KernelTimes, Recorder)> {
    let (orders, queue) = sync_channel(KERNEL_TIMES_QUEUED_MAX);
    let mut profile = Profile {
        path: data_folder.join(FILE_NAME),
        space: FreeSpace::new(data_folder, min_free_bytes),
        bytes_max: KERNEL_TIMES_BYTES_MAX,
        open: None,
        has_failed: false,
    };
    let thread =
        thread::Builder::new().name("kernel-times".into()).spawn(move || profile.serve(&queue))?;
    Ok((KernelTimes { orders: orders.clone() }, Recorder { orders, thread }))
}

impl KernelTimes {
    /// Adds what was measured. It is not waited for, and where too much is waiting it is let go.
    pub(crate) fn add(&self, times: Vec<KernelTime>) {
        if times.is_empty() {
            return;
        }
        match self.orders.try_send(Order::Add(times)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                tracing::debug!("measured times of kernels are let go");
            }
        }
    }

    /// The profile, with all that was added before.
    ///
    /// # Errors
    /// It cannot be read, or the broker ends.
    pub(crate) async fn read(&self) -> io::Result<Vec<u8>> {
        let (answer, read) = oneshot::channel();
        let orders = self.orders.clone();
        let sent = tokio::task::spawn_blocking(move || orders.send(Order::Read(answer))).await;
        let ended = || io::Error::other("the broker ends");
        if !matches!(sent, Ok(Ok(()))) {
            return Err(ended());
        }
        read.await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Recorder {
    /// Writes what was added before, and ends.
    pub(crate) fn end(self) {
        let Self { orders, thread } = self;
        // One that has panicked is gone already, and its log says why.
        let _ = orders.send(Order::End);
        let _ = thread.join();
    }
}

/// The file, once it is needed.
struct Profile {
    path: PathBuf,
    space: FreeSpace,
    bytes_max: u64,
    open: Option<Open>,
    /// Whether it was said that it cannot be written.
    has_failed: bool,
}

struct Open {
    file: File,
    bytes: u64,
}

impl Profile {
    fn serve(&mut self, queue: &Receiver<Order>) {
        while let Ok(order) = queue.recv() {
            match order {
                Order::Add(times) => self.take(&times),
                Order::Read(answer) => {
                    // Who asked may have gone.
                    let _ = answer.send(self.read());
                }
                Order::End => break,
            }
        }
    }

    /// Writes some, and says so once where that cannot be.
    fn take(&mut self, times: &[KernelTime]) {
        if self.space.admit().is_err() {
            return;
        }
        let written = self.append(times);
        match written {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                // What was begun is looked at again.
                self.open = None;
                if !self.has_failed {
                    let path = self.path.display();
                    tracing::warn!("cannot write down how long kernels took into {path}: {error}");
                }
                self.has_failed = true;
            }
        }
    }

    fn append(&mut self, times: &[KernelTime]) -> io::Result<()> {
        let lines: String = times.iter().map(|time| format!("{time}\n")).collect();
        let mut open = match self.open.take() {
            Some(open) if open.is_at(&self.path) => open,
            // It is the first time, or somebody has taken it away to begin anew.
            _ => Open::of(&self.path)?,
        };
        if open.bytes + lines.len() as u64 > self.bytes_max {
            drop(open);
            self.shorten()?;
            open = Open::of(&self.path)?;
        }
        open.file.write_all(lines.as_bytes())?;
        open.bytes += lines.len() as u64;
        self.open = Some(open);
        Ok(())
    }

    /// Keeps the later half of the lines.
    fn shorten(&self) -> io::Result<()> {
        let text = fs::read_to_string(&self.path)?;
        let later = text.lines().skip(text.lines().count() / 2 + 1);
        let draft = self.path.with_extension("csv.new");
        let mut file = create(&draft)?;
        let kept: String =
            [KernelTime::HEADER].into_iter().chain(later).flat_map(|line| [line, "\n"]).collect();
        file.write_all(kept.as_bytes())?;
        fs::rename(&draft, &self.path)
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        if !self.path.exists() {
            return Ok(format!("{}\n", KernelTime::HEADER).into_bytes());
        }
        // A line that was cut off by a kill goes before anyone sees it.
        if !self.open.as_ref().is_some_and(|open| open.is_at(&self.path)) {
            self.open = Some(Open::of(&self.path)?);
        }
        fs::read(&self.path)
    }
}

impl Open {
    /// Whether it is the file that has this name.
    fn is_at(&self, path: &Path) -> bool {
        let place = |about: Metadata| (about.dev(), about.ino());
        let named = fs::metadata(path).map(place).ok();
        named.is_some() && named == self.file.metadata().map(place).ok()
    }

    /// Goes on with a profile, or begins one.
    fn of(path: &Path) -> io::Result<Self> {
        let mut text = Vec::new();
        match File::open(path).and_then(|mut file| file.read_to_end(&mut text)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => drop(read?),
        }
        let header = format!("{}\n", KernelTime::HEADER);
        let begins = text.starts_with(header.as_bytes()) && std::str::from_utf8(&text).is_ok();
        if !begins {
            if !header.as_bytes().starts_with(&text) {
                let aside = path.with_extension("csv.other");
                fs::rename(path, &aside)?;
                tracing::warn!("{} is no profile; it is {} now", path.display(), aside.display());
            }
            let mut file = create(path)?;
            file.write_all(header.as_bytes())?;
            return Ok(Self { file, bytes: header.len() as u64 });
        }
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let file = OpenOptions::new().append(true).open(path)?;
        file.set_len(whole as u64)?;
        Ok(Self { file, bytes: whole as u64 })
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{Computer, DataSize, KernelName, Measured};

    use super::*;

    fn time(run_us: u64) -> KernelTime {
        let size = DataSize::new("120x13440").expect("a size");
        let measured = Measured { size, by: Computer::Core, run_us };
        let kernel = KernelName::new("npairs").expect("a name");
        KernelTime::new(kernel, Some("4"), &measured, None).expect("a measurement")
    }

    /// The seconds of each line.
    fn seconds(text: &[u8]) -> Vec<&str> {
        let text = std::str::from_utf8(text).expect("text");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(KernelTime::HEADER));
        lines.map(|line| line.rsplit(',').next().expect("a word")).collect()
    }

    #[tokio::test]
    async fn what_was_added_is_read_and_is_there_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let (times, recorder) = start(folder.path(), 0).expect("it starts");
        assert_eq!(seconds(&times.read().await.expect("nothing yet")).len(), 0);
        times.add(vec![time(1_000_000), time(2_000_000)]);
        assert_eq!(seconds(&times.read().await.expect("read")), ["1.000000", "2.000000"]);
        times.add(vec![time(3_000_000)]);
        recorder.end();
        assert!(times.read().await.is_err(), "it has ended");
        // A line that was not written to its end is none.
        let path = folder.path().join(FILE_NAME);
        let mut file = OpenOptions::new().append(true).open(&path).expect("opened");
        file.write_all(b"npairs,4,120x1").expect("written");
        let (times, recorder) = start(folder.path(), 0).expect("it starts");
        times.add(vec![time(4_000_000)]);
        let read = times.read().await.expect("read");
        assert_eq!(seconds(&read), ["1.000000", "2.000000", "3.000000", "4.000000"]);
        recorder.end();
    }

    #[tokio::test]
    async fn a_profile_that_is_taken_away_begins_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        let (times, recorder) = start(folder.path(), 0).expect("it starts");
        times.add(vec![time(1_000_000)]);
        assert_eq!(seconds(&times.read().await.expect("read")).len(), 1);
        fs::rename(&path, folder.path().join("taken.csv")).expect("moved");
        assert_eq!(seconds(&times.read().await.expect("read")).len(), 0);
        times.add(vec![time(2_000_000)]);
        assert_eq!(seconds(&times.read().await.expect("read")), ["2.000000"]);
        fs::copy(folder.path().join("taken.csv"), folder.path().join("back")).expect("copied");
        fs::rename(folder.path().join("back"), &path).expect("put back");
        times.add(vec![time(3_000_000)]);
        assert_eq!(seconds(&times.read().await.expect("read")), ["1.000000", "3.000000"]);
        recorder.end();
    }

    #[tokio::test]
    async fn what_is_no_profile_is_moved_aside() {
        for other in
            [&b"kernel,seconds\nx,1\n"[..], b"\xff\xfe", b"kernel,part,size,kind,seconds\n\xff\n"]
        {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join(FILE_NAME);
            fs::write(&path, other).expect("written");
            let (times, recorder) = start(folder.path(), 0).expect("it starts");
            times.add(vec![time(1_000_000)]);
            assert_eq!(seconds(&times.read().await.expect("read")), ["1.000000"]);
            recorder.end();
            assert_eq!(fs::read(path.with_extension("csv.other")).expect("kept"), other);
        }
        // One whose first line was cut off by a kill is begun again.
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(FILE_NAME), "kernel,pa").expect("written");
        let (times, recorder) = start(folder.path(), 0).expect("it starts");
        assert_eq!(seconds(&times.read().await.expect("read")).len(), 0);
        recorder.end();
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }

    #[test]
    fn a_profile_that_grows_too_long_keeps_its_later_half() {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes_max = 1024;
        let mut profile = Profile {
            path: folder.path().join(FILE_NAME),
            space: FreeSpace::new(folder.path(), 0),
            bytes_max,
            open: None,
            has_failed: false,
        };
        for at in 1..=100 {
            profile.take(&[time(at * 1_000_000)]);
            assert!(fs::metadata(&profile.path).expect("there").len() <= bytes_max);
        }
        let read = profile.read().expect("read");
        let seconds = seconds(&read);
        assert!((10..=40).contains(&seconds.len()), "{}", seconds.len());
        let expected = (101 - seconds.len()..=100).map(|at| format!("{at}.000000"));
        assert!(seconds.iter().copied().eq(expected), "{seconds:?}");
    }

    #[test]
    fn a_disk_that_is_nearly_full_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (times, recorder) = start(folder.path(), u64::MAX).expect("it starts");
        times.add(vec![time(1)]);
        recorder.end();
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 0);
    }
}

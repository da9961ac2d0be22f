//! What a command prints, while it runs.
//!
//! # Invariants
//! - Standard output is kept in memory up to the inline limit, beyond it in a file, and the
//!   command is ended where it passes the largest size that an output may have.
//! - Of standard error only the end is kept, unless all of it is asked for.
//! - It is over when the command has ended, even where something it started still holds its
//!   output open.
//! - What the command leaves elsewhere is looked at now and then meanwhile.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use gleaner_protocol::limits::{BLOB_BYTES_MAX, INLINE_BYTES_MAX};
use gleaner_protocol::{Span, boottime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::fcntl_getpipe_size;

/// How much of standard error is kept.
const STDERR_BYTES: usize = 1024;

/// What a pipe holds, where it does not say.
const PIPE_BYTES: usize = 64 << 10;

/// What was printed.
pub(super) struct Printed {
    /// All of standard output.
    pub(super) stdout: Text,
    /// All of standard error, where it was asked for.
    pub(super) stderr: Option<Text>,
    /// The end of standard error.
    pub(super) stderr_tail: String,
}

/// All of one stream.
pub(super) struct Text {
    /// Its beginning, up to the inline limit; all of it where `overflow` is None.
    pub(super) head: Vec<u8>,
    /// All of it, where it is longer.
    pub(super) overflow: Option<File>,
}

/// A running command, as far as this is concerned.
pub(super) struct Running {
    /// What it prints.
    pub(super) stdout: Option<File>,
    /// What it prints as errors.
    pub(super) stderr: Option<File>,
    /// Becomes readable at its end. Where the kernel has no process handles, the ends of both
    /// streams tell of it.
    pub(super) exit: Option<OwnedFd>,
}

/// Why not everything could be kept.
pub(super) enum CaptureError {
    /// Over the limit.
    TooLong,
    /// It left too much elsewhere.
    Outgrown(String),
    /// Reading or writing failed.
    Io(io::Error),
}

impl From<io::Error> for CaptureError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads until the command has ended. `overflow` makes the file for a long output, and
/// `errors_overflow`, where all of standard error is asked for, that for these; `look` looks at what
/// it leaves elsewhere, first after the time `first`, and says when it is to look again.
pub(super) fn capture(
    running: Running,
    overflow: impl FnOnce() -> io::Result<File>,
    errors_overflow: Option<impl FnOnce() -> io::Result<File>>,
    first: Span,
    mut look: impl FnMut() -> Result<Span, String>,
) -> Result<Printed, CaptureError> {
    let Running { mut stdout, mut stderr, exit } = running;
    for file in [&stdout, &stderr].into_iter().flatten() {
        fcntl_setfl(file, OFlags::NONBLOCK).map_err(io::Error::from)?;
    }
    let mut out = Output::new(overflow);
    let mut errors = errors_overflow.map(Output::new);
    let mut tail = VecDeque::new();
    let mut due = boottime() + first;
    loop {
        let rest = due.since(boottime());
        let ended = wait(stdout.as_ref(), stderr.as_ref(), exit.as_ref(), rest)?;
        drain(&mut stdout, |bytes| out.take(bytes))?;
        drain(&mut stderr, |bytes| {
            tail.extend(bytes);
            let surplus = tail.len().saturating_sub(STDERR_BYTES);
            tail.drain(..surplus);
            errors.as_mut().map_or(Ok(()), |errors| errors.take(bytes))
        })?;
        if ended || (stdout.is_none() && stderr.is_none() && exit.is_none()) {
            break;
        }
        if boottime() >= due {
            due = boottime() + look().map_err(CaptureError::Outgrown)?;
        }
    }
    let stderr_tail = String::from_utf8_lossy(tail.make_contiguous()).trim().to_owned();
    Ok(Printed { stdout: out.text(), stderr: errors.map(Output::text), stderr_tail })
}

/// Waits for something to read, for the end, or for so long; says whether it is the end.
fn wait(
    stdout: Option<&File>,
    stderr: Option<&File>,
    exit: Option<&OwnedFd>,
    rest: Span,
) -> io::Result<bool> {
    let mut fds: Vec<PollFd<'_>> = exit
        .map(AsFd::as_fd)
        .into_iter()
        .chain([stdout, stderr].into_iter().flatten().map(AsFd::as_fd))
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let micros = i64::try_from(rest.as_micros()).unwrap_or(i64::MAX);
    let rest = Timespec { tv_sec: micros / 1_000_000, tv_nsec: micros % 1_000_000 * 1_000 };
    match poll(&mut fds, Some(&rest)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(exit.is_some() && !fds[0].revents().is_empty())
}

/// Reads what is there, and of what comes meanwhile no more than a pipe holds: whoever prints
/// without end keeps nobody from looking elsewhere. The stream goes at its end.
fn drain(
    stream: &mut Option<File>,
    mut take: impl FnMut(&[u8]) -> Result<(), CaptureError>,
) -> Result<(), CaptureError> {
    let mut part = [0; 16 << 10];
    let Some(file) = stream else { return Ok(()) };
    let mut rest = fcntl_getpipe_size(&*file).unwrap_or(PIPE_BYTES);
    while rest > 0 {
        match file.read(&mut part) {
            Ok(0) => {
                *stream = None;
                return Ok(());
            }
            Ok(read) => {
                take(&part[..read])?;
                rest = rest.saturating_sub(read);
                if read < part.len() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

struct Output<F> {
    head: Vec<u8>,
    file: Option<File>,
    bytes: u64,
    make: Option<F>,
}

impl<F: FnOnce() -> io::Result<File>> Output<F> {
    fn new(make: F) -> Self {
        Self { head: Vec::new(), file: None, bytes: 0, make: Some(make) }
    }

    fn text(self) -> Text {
        Text { head: self.head, overflow: self.file }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), CaptureError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > BLOB_BYTES_MAX {
            return Err(CaptureError::TooLong);
        }
        if self.bytes <= INLINE_BYTES_MAX as u64 {
            self.head.extend_from_slice(bytes);
            return Ok(());
        }
        if let Some(make) = self.make.take() {
            let mut file = make()?;
            file.write_all(&self.head)?;
            self.file = Some(file);
        }
        let file = self.file.as_mut().expect("made when the limit was passed");
        Ok(file.write_all(bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Only the end of standard error is wanted.
    const NO_FILE: Option<fn() -> io::Result<File>> = None;

    #[test]
    fn whoever_prints_without_end_is_looked_after_all_the_same() {
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let stderr = File::open("/dev/zero").expect("there");
            let running = Running { stdout: None, stderr: Some(stderr), exit: None };
            let overflow = || Err(io::ErrorKind::Unsupported.into());
            let look = || Err("it left too much".to_owned());
            let printed = capture(running, overflow, NO_FILE, Span::from_millis(1), look);
            done.send(matches!(printed, Err(CaptureError::Outgrown(_)))).expect("awaited");
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(true));
    }

    #[test]
    fn what_a_pipe_holds_at_the_end_is_read_to_its_last_byte() {
        let (out, writer) = io::pipe().expect("a pipe");
        let (exit, gone) = io::pipe().expect("a pipe");
        let text = vec![b'x'; fcntl_getpipe_size(&out).expect("a pipe")];
        (&writer).write_all(&text).expect("it fits");
        drop(gone);
        let stdout = Some(File::from(OwnedFd::from(out)));
        let running = Running { stdout, stderr: None, exit: Some(exit.into()) };
        let overflow = || tempfile::tempfile();
        let look = || Ok(Span::from_secs(1));
        let printed = capture(running, overflow, NO_FILE, Span::from_secs(1), look);
        let Ok(Printed { stdout: Text { overflow: Some(file), .. }, .. }) = printed else {
            panic!("it is long")
        };
        assert_eq!(file.metadata().expect("ours").len(), text.len() as u64);
    }
}

//! What a command prints, while it runs.
//!
//! # Invariants
//! - Standard output is kept in memory up to the inline limit, beyond it in a file, and the
//!   command is ended where it passes the largest size that an output may have.
//! - Of standard error only the end is kept.
//! - It is over when the command has ended, even where something it started still holds its
//!   output open.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use gleaner_protocol::limits::{BLOB_BYTES_MAX, INLINE_BYTES_MAX};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How much of standard error is kept.
const STDERR_BYTES: usize = 1024;

/// What was printed.
pub(super) struct Printed {
    /// Its beginning, up to the inline limit; all of it where `overflow` is None.
    pub(super) head: Vec<u8>,
    /// All of it, where it is longer.
    pub(super) overflow: Option<File>,
    /// The end of standard error.
    pub(super) stderr: String,
}

/// Why not everything could be kept.
pub(super) enum CaptureError {
    /// Over the limit.
    TooLong,
    /// Reading or writing failed.
    Io(io::Error),
}

impl From<io::Error> for CaptureError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads until the command has ended. `overflow` makes the file for a long output.
pub(super) fn capture(
    child: &mut Child,
    overflow: impl FnOnce() -> io::Result<File>,
) -> Result<Printed, CaptureError> {
    let mut stdout = Some(File::from(OwnedFd::from(child.stdout.take().expect("piped"))));
    let mut stderr = Some(File::from(OwnedFd::from(child.stderr.take().expect("piped"))));
    for file in [&stdout, &stderr].into_iter().flatten() {
        fcntl_setfl(file, OFlags::NONBLOCK).map_err(io::Error::from)?;
    }
    // Where the kernel has no process handles, the ends of both streams tell of the end.
    let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let exit = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let mut out = Output { head: Vec::new(), file: None, bytes: 0, make: Some(overflow) };
    let mut tail = VecDeque::new();
    loop {
        let ended = wait(stdout.as_ref(), stderr.as_ref(), exit.as_ref())?;
        drain(&mut stdout, |bytes| out.take(bytes))?;
        drain(&mut stderr, |bytes| {
            tail.extend(bytes);
            let surplus = tail.len().saturating_sub(STDERR_BYTES);
            tail.drain(..surplus);
            Ok(())
        })?;
        if ended || (stdout.is_none() && stderr.is_none() && exit.is_none()) {
            break;
        }
    }
    let stderr = String::from_utf8_lossy(tail.make_contiguous()).trim().to_owned();
    Ok(Printed { head: out.head, overflow: out.file, stderr })
}

/// Waits for something to read, or for the end; says whether it is the end.
fn wait(stdout: Option<&File>, stderr: Option<&File>, exit: Option<&OwnedFd>) -> io::Result<bool> {
    let mut fds: Vec<PollFd<'_>> = exit
        .map(AsFd::as_fd)
        .into_iter()
        .chain([stdout, stderr].into_iter().flatten().map(AsFd::as_fd))
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    loop {
        match poll(&mut fds, None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(exit.is_some() && !fds[0].revents().is_empty())
}

/// Reads what is there; the stream goes at its end.
fn drain(
    stream: &mut Option<File>,
    mut take: impl FnMut(&[u8]) -> Result<(), CaptureError>,
) -> Result<(), CaptureError> {
    let mut part = [0; 16 << 10];
    while let Some(file) = stream {
        match file.read(&mut part) {
            Ok(0) => *stream = None,
            Ok(read) => {
                take(&part[..read])?;
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

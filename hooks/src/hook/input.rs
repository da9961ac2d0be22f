//! What a farm manager writes to its hook's standard input, read without trusting that it ends.

use std::io;
use std::os::fd::AsFd;

use gleaner_protocol::{Span, boottime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::limits::INPUT_BYTES_MAX;

/// Reads to the end, for at most `wait` and [`INPUT_BYTES_MAX`] bytes. What is no UTF-8 is
/// replaced.
///
/// # Errors
/// It cannot be read, does not end in time, or is too long: then none of it counts, so that the
/// hook before a render and the one after it do not read two different halves.
pub(super) fn read(input: &impl AsFd, wait: Span) -> io::Result<String> {
    let end = boottime() + wait;
    let mut bytes = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        let left = end.since(boottime());
        if left == Span::ZERO {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(std::time::Duration::from(left))
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(input, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(input, &mut part) {
            Ok(0) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Ok(read) => bytes.extend_from_slice(&part[..read]),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(error) => return Err(error.into()),
        }
        if bytes.len() > INPUT_BYTES_MAX {
            return Err(io::Error::other(format!("it is longer than {INPUT_BYTES_MAX} bytes")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const SHORT: Span = Span::from_millis(20);

    #[test]
    fn it_is_read_to_its_end() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::write(&writer, b"A = 1\n\xff").expect("room");
        drop(writer);
        assert_eq!(read(&reader, Span::from_secs(20)).expect("ends"), "A = 1\n\u{fffd}");
    }

    #[test]
    fn what_does_not_end_or_is_too_long_does_not_count() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::write(&writer, b"A = 1\n").expect("room");
        let error = read(&reader, SHORT).expect_err("its writer lives");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let zeros = File::open("/dev/zero").expect("there");
        let error = read(&zeros, Span::from_secs(20)).expect_err("it never ends");
        assert!(error.to_string().contains("longer than"), "{error}");
        let folder = File::open("/").expect("there");
        assert!(read(&folder, SHORT).is_err());
    }
}

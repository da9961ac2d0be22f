//! One client of the local socket.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use gleaner_hooks::{SocketAnswer, SocketRequest, decode_line, encode_line};
use gleaner_protocol::limits::{HOOK_MESSAGE_BYTES_MAX, bounded_reason};
use gleaner_protocol::{Span, Time};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};
use tracing::{debug, warn};

use crate::limits::SOCKET_REQUEST_MS_MAX;

/// A connection whose request has not come whole.
pub(super) struct Connection {
    stream: UnixStream,
    line: Vec<u8>,
    end: Time,
}

/// What reading led to.
pub(super) enum Step {
    /// More is to come.
    Wait,
    /// The client is gone.
    Gone,
    /// No request of ours.
    Malformed(String),
    /// A request.
    Request(SocketRequest),
}

impl Connection {
    /// A client that has just come; its stream does not block.
    pub(super) fn new(stream: UnixStream, now: Time) -> Self {
        Self { stream, line: Vec::new(), end: now + Span::from_millis(SOCKET_REQUEST_MS_MAX) }
    }

    /// When its time is over.
    pub(super) fn ends_at(&self) -> Time {
        self.end
    }

    /// Whether it is.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.end <= now
    }

    /// Reads what is there.
    pub(super) fn read(&mut self, now: Time) -> Step {
        let mut part = [0; 4096];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) if self.line.is_empty() => return Step::Gone,
                Ok(0) => return self.decode(),
                Ok(read) => {
                    self.line.extend_from_slice(&part[..read]);
                    if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                        self.line.truncate(end + 1);
                        return self.decode();
                    }
                    if self.line.len() > HOOK_MESSAGE_BYTES_MAX {
                        return Step::Malformed(format!(
                            "a request longer than {HOOK_MESSAGE_BYTES_MAX} bytes"
                        ));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return if self.is_over(now) { Step::Gone } else { Step::Wait };
                }
                Err(_) => return Step::Gone,
            }
        }
    }

    /// The CPUs that the client may run on, where it can be seen.
    pub(super) fn client_cpus(&self) -> Option<CpuSet> {
        sched_getaffinity(Some(client_of(&self.stream)?)).ok()
    }

    /// Answers, where the client still listens.
    pub(super) fn answer(&mut self, answer: &SocketAnswer) {
        let line = match encode_line(answer) {
            Ok(line) => line,
            // Whatever it was: nobody's request may end this thread.
            Err(error) => {
                warn!("cannot answer a client of the hooks' socket: {error}");
                return;
            }
        };
        if let Err(error) = self.stream.write_all(&line) {
            debug!("cannot answer a client of the hooks' socket: {error}");
        }
    }

    fn decode(&self) -> Step {
        match decode_line(&self.line) {
            Ok(request) => Step::Request(request),
            // It quotes the request, which may be as long as an answer.
            Err(error) => Step::Malformed(bounded_reason(error.to_string())),
        }
    }
}

/// Who has connected. None where it has no number here: it is in another namespace of processes.
#[expect(unsafe_code, reason = "the safe wrapper takes it that everyone has a number")]
fn client_of(stream: &UnixStream) -> Option<Pid> {
    let mut client = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = libc::socklen_t::try_from(size_of_val(&client)).ok()?;
    let (socket, option) = (stream.as_raw_fd(), libc::SO_PEERCRED);
    // SAFETY: the socket is open, and the kernel writes no more than `bytes` bytes to `client`.
    let status = unsafe {
        let (client, bytes) = (&raw mut client, &raw mut bytes);
        libc::getsockopt(socket, libc::SOL_SOCKET, option, client.cast(), bytes)
    };
    // Of a number below zero it may not be asked what process it is.
    (status == 0 && client.pid > 0).then(|| Pid::from_raw(client.pid)).flatten()
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_its_number() {
        let (ours, _theirs) = UnixStream::pair().expect("two ends");
        assert_eq!(client_of(&ours), Some(rustix::process::getpid()));
    }
}

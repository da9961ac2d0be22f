//! One client of the local socket.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use gleaner_hooks::{Peer, SocketAnswer, SocketRequest, decode_line, encode_line};
use gleaner_protocol::limits::{HOOK_MESSAGE_BYTES_MAX, bounded_reason};
use gleaner_protocol::{Span, Time};
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
        sched_getaffinity(Some(Peer::of(&self.stream)?.pid?)).ok()
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

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

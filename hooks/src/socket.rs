//! Messages on the agent's Unix socket: one JSON line each way, then the connection ends.
//!
//! # Invariants
//! - A line has at most [`HOOK_MESSAGE_BYTES_MAX`] bytes, its end included.
//! - Whoever asks never waits longer than it said, whatever the other side does.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use gleaner_protocol::farm::Booked;
use gleaner_protocol::limits::HOOK_MESSAGE_BYTES_MAX;
use gleaner_protocol::{BookingId, Epoch, LimitsChange, Span, Time, boottime};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Peer, Standing, TaskLine, Wish};

/// What a hook, or a person, asks the agent of its own host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum SocketRequest {
    /// A render starts: stop what is in its way, then answer [`SocketAnswer::Released`].
    Preflight {
        /// Which attempt of which render.
        booking: BookingId,
        /// What it books.
        #[serde(default)]
        booked: Booked,
        /// The host's epoch, raised by this preflight. None where it could not be raised (a full
        /// disk, a lost folder): the agent then drops the opening that it has and takes no other
        /// until it has raised the epoch itself.
        epoch: Option<Epoch>,
    },
    /// A render has ended. Answered by [`SocketAnswer::Noted`].
    Postflight {
        /// Which attempt of which render.
        booking: BookingId,
        /// The host's epoch, where it could be read.
        epoch: Option<Epoch>,
    },
    /// How the agent is. Answered by [`SocketAnswer::Status`].
    Status,
    /// The owner wants nothing to run: freeze all, then answer [`SocketAnswer::Paused`].
    Pause {
        /// For how long, in milliseconds; until [`SocketRequest::Resume`] where not given.
        for_ms: Option<u64>,
    },
    /// The owner wants nothing new to run: what runs comes to its end, then the host is paused until
    /// [`SocketRequest::Resume`]. Answered by [`SocketAnswer::Noted`].
    Finish,
    /// The owner's pause is over. Answered by [`SocketAnswer::Noted`].
    Resume,
    /// The mark that stops all harvest was put or lifted: look, and obey it before
    /// [`SocketAnswer::Noted`].
    LookForStop,
    /// How the agent stands with its owner. Answered by [`SocketAnswer::Standing`].
    Standing,
    /// What it runs. Answered by [`SocketAnswer::Tasks`].
    Tasks,
    /// What its owner has wished. Answered by [`SocketAnswer::Wishes`].
    Wishes,
    /// Limits what runs in a slot from now on, until it ends. Answered by
    /// [`SocketAnswer::Noted`].
    Limit {
        /// Which slot.
        slot: u32,
        /// What it may use.
        limits: LimitsChange,
    },
}

/// The agent's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum SocketAnswer {
    /// Nothing harvested runs any more on what the render booked.
    Released {
        /// Replicas that were frozen.
        frozen: u32,
        /// Replicas that may still run.
        slots_left: u32,
    },
    /// Taken note of.
    Noted,
    /// How the agent is.
    Status {
        /// The epoch that it sees.
        epoch: Option<Epoch>,
        /// Replicas that may run now.
        slots: u32,
        /// Replicas that run now.
        running: u32,
        /// Whether it has a link to the broker.
        connected: bool,
    },
    /// Nothing harvested runs until the owner wants it again.
    Paused {
        /// Replicas that were frozen.
        frozen: u32,
    },
    /// How the agent stands with its owner.
    Standing(Box<Standing>),
    /// What it runs.
    Tasks {
        /// In order of their slots; as many as a line holds.
        tasks: Vec<TaskLine>,
        /// How many more there are.
        more: u32,
    },
    /// What its owner has wished; as much of it as a line holds.
    Wishes {
        /// Where its configuration has them.
        wishes: Vec<Wish>,
    },
    /// The request was not understood or not fulfilled.
    Error {
        /// Why.
        reason: String,
    },
}

/// A message as its line, the end of line included.
///
/// # Errors
/// Longer than [`HOOK_MESSAGE_BYTES_MAX`].
pub fn encode_line<T: Serialize>(message: &T) -> Result<Vec<u8>, LineError> {
    let mut line = serde_json::to_vec(message).map_err(LineError::Malformed)?;
    line.push(b'\n');
    if line.len() > HOOK_MESSAGE_BYTES_MAX { Err(LineError::TooLong) } else { Ok(line) }
}

/// A message from its line, with or without the end of line.
///
/// # Errors
/// Too long, or not this message.
pub fn decode_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, LineError> {
    if line.len() > HOOK_MESSAGE_BYTES_MAX {
        return Err(LineError::TooLong);
    }
    serde_json::from_slice(line).map_err(LineError::Malformed)
}

/// Reads one line: up to its end or the end of the stream, never more than
/// [`HOOK_MESSAGE_BYTES_MAX`] bytes.
///
/// # Errors
/// Too long, nothing there, or those of the reader.
pub fn read_line_bounded(reader: &mut impl Read) -> Result<Vec<u8>, LineError> {
    let mut line = Vec::new();
    let mut part = [0; 1024];
    loop {
        match reader.read(&mut part) {
            Ok(0) if line.is_empty() => return Err(LineError::Empty),
            Ok(0) => return Ok(line),
            Ok(read) => {
                line.extend_from_slice(&part[..read]);
                if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                    line.truncate(end + 1);
                }
                if line.len() > HOOK_MESSAGE_BYTES_MAX {
                    return Err(LineError::TooLong);
                }
                if line.last() == Some(&b'\n') {
                    return Ok(line);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(LineError::Io(error)),
        }
    }
}

/// Asks the agent that listens at `socket` and waits for its answer, `timeout` in all. What listens
/// there is an agent only if its user is root, the owner of the socket's folder, or our own.
///
/// # Errors
/// See [`AskError`].
pub fn ask(
    socket: &Path,
    request: &SocketRequest,
    timeout: Span,
) -> Result<SocketAnswer, AskError> {
    let line = encode_line(request)?;
    let stream = connect_to(socket)?;
    check_peer(socket, &stream)?;
    let mut stream = Timed { stream, end: boottime() + timeout };
    stream.write_all(&line).map_err(LineError::Io)?;
    Ok(decode_line(&read_line_bounded(&mut stream)?)?)
}

/// Connecting to a Unix socket never takes time: it succeeds at once, or the listener is gone or
/// its queue is full.
fn connect_to(socket: &Path) -> Result<UnixStream, AskError> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let attempt = || {
        let address = SocketAddrUnix::new(socket)?;
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&fd, &address)?;
        // Room for the longest request, so that writing it does not wait for its reader.
        let _ = sockopt::set_socket_send_buffer_size(&fd, HOOK_MESSAGE_BYTES_MAX * 2);
        Ok(UnixStream::from(fd))
    };
    attempt().map_err(|error: rustix::io::Errno| match error {
        rustix::io::Errno::NOENT => AskError::Missing,
        rustix::io::Errno::CONNREFUSED => AskError::Refused,
        rustix::io::Errno::AGAIN => AskError::TimedOut,
        other => AskError::Connect(other.into()),
    })
}

/// Whoever may write in the run folder could put a socket there that answers in the agent's place.
fn check_peer(socket: &Path, stream: &UnixStream) -> Result<(), AskError> {
    let uid = Peer::of(stream).ok_or(AskError::Refused)?.uid;
    let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty());
    let owner = fs::metadata(folder.unwrap_or(Path::new("."))).map_err(AskError::Connect)?.uid();
    match may_answer(uid, owner, rustix::process::geteuid().as_raw()) {
        true => Ok(()),
        false => Err(AskError::Stranger { uid, owner }),
    }
}

/// Whether what runs as `uid` is believed to be the agent whose folder is `owner`'s, by a process of
/// `user`'s.
const fn may_answer(uid: u32, owner: u32, user: u32) -> bool {
    const ROOT: u32 = 0;
    uid == ROOT || uid == owner || uid == user
}

/// A non-blocking stream that waits until a set time.
struct Timed {
    stream: UnixStream,
    end: Time,
}

impl Timed {
    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        loop {
            let rest = self.end.since(boottime());
            let mut fds = [PollFd::new(&self.stream, flags)];
            match poll(&mut fds, Some(&rest.into())) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(PollFlags::OUT)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a line is no message.
#[derive(Debug, Error)]
pub enum LineError {
    /// The stream ended before it began.
    #[error("the other side said nothing")]
    Empty,
    /// Over the limit.
    #[error("a message longer than {HOOK_MESSAGE_BYTES_MAX} bytes")]
    TooLong,
    /// Not the message that was expected.
    #[error("not a message of this protocol: {0}")]
    Malformed(serde_json::Error),
    /// The stream failed.
    #[error(transparent)]
    Io(io::Error),
}

/// Why there is no answer from the agent.
#[derive(Debug, Error)]
pub enum AskError {
    /// No socket: the agent never ran here, or was shut down in order.
    #[error("no agent has its socket here")]
    Missing,
    /// A socket without a listener: the agent died.
    #[error("the agent's socket has no listener: the agent is dead")]
    Refused,
    /// It did not answer, or does not even accept.
    #[error("the agent did not answer in time")]
    TimedOut,
    /// Somebody else than the agent listens there.
    #[error(
        "the agent's socket is served by user {uid}, who is neither root nor user {owner}, whose the \
         run folder is: it is no agent's; remove it and start the agent again"
    )]
    Stranger {
        /// Who listens.
        uid: u32,
        /// Whose the folder is.
        owner: u32,
    },
    /// The connection could not be made.
    #[error("cannot connect to the agent: {0}")]
    Connect(io::Error),
    /// The answer makes no sense.
    #[error("the agent's answer: {0}")]
    Line(LineError),
}

impl From<LineError> for AskError {
    fn from(error: LineError) -> Self {
        match error {
            LineError::Io(error) if error.kind() == io::ErrorKind::TimedOut => Self::TimedOut,
            other => Self::Line(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::channel;

    use rustix::process::Uid;
    use rustix::thread::set_thread_res_uid;

    use super::*;

    #[test]
    fn nobody_but_root_the_folders_owner_and_we_answer_for_the_agent() {
        assert!(may_answer(0, 1_000, 1_001), "root may");
        assert!(may_answer(1_000, 1_000, 0), "whose the folder is may");
        assert!(may_answer(1_001, 1_000, 1_001), "who fools themselves may");
        assert!(!may_answer(1_001, 1_000, 0), "a member of the folder's group may not");
        assert!(!may_answer(1_001, 0, 1_000), "nor for root");
    }

    #[test]
    fn a_stranger_who_listens_is_told_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("agent.sock");
        let ask = || ask(&socket, &SocketRequest::Status, Span::from_secs(60));
        let serve = |listener: UnixListener| {
            let (mut stream, _) = listener.accept().expect("asked");
            let line = read_line_bounded(&mut stream);
            let _ = stream.write_all(&encode_line(&SocketAnswer::Noted).expect("short"));
            line
        };
        let agent = std::thread::spawn({
            let listener = UnixListener::bind(&socket).expect("bound");
            move || serve(listener)
        });
        assert_eq!(ask().expect("ours"), SocketAnswer::Noted);
        assert!(agent.join().expect("no panic").is_ok());

        // Another user can be made up by root alone.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        const STRANGER: u32 = 54_321;
        fs::remove_file(&socket).expect("ours");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("ours");
        let (tell, listens) = channel();
        let stranger = std::thread::spawn({
            let socket = socket.clone();
            move || {
                let uid = Uid::from_raw(STRANGER);
                set_thread_res_uid(uid, uid, uid).expect("root may, this thread alone");
                let listener = UnixListener::bind(&socket).expect("bound");
                tell.send(()).expect("awaited");
                serve(listener)
            }
        });
        listens.recv().expect("it listens");
        let refused = ask().expect_err("no agent of root's");
        assert!(matches!(refused, AskError::Stranger { uid: STRANGER, owner: 0 }), "{refused}");
        let heard = stranger.join().expect("no panic");
        assert!(matches!(heard, Err(LineError::Empty)), "{heard:?}");
    }
}

//! The process, seen from both ends.
//!
//! It has one thread and allocates nothing after its start, so that a copy of it may go on where
//! the clone was made.

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::process::{Stdio, exit};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::sockopt::socket_type;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, recvmsg, send, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setpgid, setsid};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::timeout;

use super::child::Child;
use super::session::put_own_last;
use crate::host::gpu::driver_environment;
use crate::limits::{LATE_SPAWN_MS_MAX, RUNNER_FILES_MAX, SPAWNER_END_MS_MAX};
use crate::run::runner::{HUGE_PAGES, RUNNER_ARGUMENT};

/// The argument that makes an executable a spawner.
const SPAWNER_ARGUMENT: &str = "__spawner";

/// Name of the process, as `ps` shows it.
const NAME: &CStr = c"gleaner-spawner";

/// What it executes: itself, even where its file was replaced since.
const SELF: &CStr = c"/proc/self/exe";

/// Exit code of a spawner that no agent started.
const NOT_FOR_PEOPLE: i32 = 2;

/// Above the three standard ones.
const FIRST_FREE_FD: i32 = 3;

/// The process, from the agent's side. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct SpawnerProcess {
    child: tokio::process::Child,
    /// For each start a byte there, with open files, and a number back.
    socket: UnixStream,
}

impl SpawnerProcess {
    pub(super) fn start(program: &Path) -> io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = Command::new(program)
            .arg(SPAWNER_ARGUMENT)
            .env_clear()
            .envs([HUGE_PAGES])
            .envs(driver_environment())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { child, socket: UnixStream::from_std(ours)? })
    }

    /// Its number; none once it has been waited for.
    pub(super) fn pid(&self) -> Option<Pid> {
        number_of(&self.child)
    }

    /// Asks for a runner, and for its number; the inner error is the spawner's.
    pub(super) async fn start_runner(
        &mut self,
        files: &[OwnedFd],
    ) -> Result<io::Result<Pid>, Lost> {
        if files.len() > RUNNER_FILES_MAX {
            return Ok(Err(io::Error::other("a runner would be in too many control groups")));
        }
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        let socket = &mut self.socket;
        let sent = socket.async_io(Interest::WRITABLE, || send_files(socket.as_fd(), &files));
        sent.await.map_err(Lost::Before)?;
        answer(socket).await.map_err(Lost::After)
    }

    /// Asks nothing of it any more, and has it end soon. To be called on a runtime.
    pub(super) fn retire(self) -> Retired {
        let Self { child, socket } = self;
        let mut retired = Retired { child };
        let handle = retired.pid().and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        match handle {
            Some(handle) => drop(tokio::spawn(let_end(socket, handle))),
            // It has ended, or this kernel has no such thing.
            None => {
                let _ = retired.child.start_kill();
            }
        }
        retired
    }
}

/// One that nobody asks any more. Its number is its own until it was waited for. It ends when this is
/// dropped.
#[derive(Debug)]
pub(super) struct Retired {
    child: tokio::process::Child,
}

impl Retired {
    /// Its number; none once it has been waited for.
    pub(super) fn pid(&self) -> Option<Pid> {
        number_of(&self.child)
    }

    /// Waits for its end for a while.
    pub(super) async fn end(mut self) {
        // It may have something to tell still.
        let limit = Duration::from_millis(LATE_SPAWN_MS_MAX);
        if timeout(limit, self.child.wait()).await.is_err() {
            // It stands still, or gets no core.
            let _ = self.child.start_kill();
            let limit = Duration::from_millis(SPAWNER_END_MS_MAX);
            let _ = timeout(limit, self.child.wait()).await;
        }
    }
}

fn number_of(child: &tokio::process::Child) -> Option<Pid> {
    child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?))
}

/// The new runner's number, or the spawner's error.
async fn answer(socket: &mut UnixStream) -> io::Result<io::Result<Pid>> {
    let mut answer = [0; 4];
    socket.read_exact(&mut answer).await?;
    let number = i32::from_ne_bytes(answer);
    // Of a number below zero it may not be asked what process it is.
    Ok(match (number > 0).then(|| Pid::from_raw(number)).flatten() {
        Some(pid) => Ok(pid),
        None => Err(io::Error::from_raw_os_error(-number)),
    })
}

/// Has a spawner end that nobody asks any more. It may be in the middle of a start for which nobody waits:
/// it gets the time to tell of that, so that it can be ended.
async fn let_end(mut socket: UnixStream, spawner: OwnedFd) {
    // There it finds that there is nothing more to do.
    let _ = socket.shutdown().await;
    let limit = Duration::from_millis(LATE_SPAWN_MS_MAX);
    if timeout(limit, end_late_spawns(&mut socket)).await.is_err() {
        let _ = pidfd_send_signal(spawner, Signal::KILL);
        end_late_spawns(&mut socket).await;
    }
}

/// Ends what was started too late, and waits for its end, until nobody can tell of more.
async fn end_late_spawns(socket: &mut UnixStream) {
    while let Ok(late) = answer(socket).await {
        drop(late.map(Child::of));
    }
}

/// A spawner that is no more, or says nothing that makes sense.
#[derive(Debug)]
pub(super) enum Lost {
    /// It has not heard what was asked.
    Before(io::Error),
    /// It may have.
    After(io::Error),
}

fn send_files(socket: BorrowedFd<'_>, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(RUNNER_FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(b"b")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Becomes a spawner if this process was started as one; returns otherwise.
pub(crate) fn run_as_spawner_if_asked() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == SPAWNER_ARGUMENT) {
        spawner_main()
    }
}

fn spawner_main() -> ! {
    let stdin = io::stdin();
    // Under another number, that nobody inherits.
    let socket = fcntl_dupfd_cloexec(stdin.as_fd(), FIRST_FREE_FD);
    let Ok(socket) = socket else { exit(NOT_FOR_PEOPLE) };
    if socket_type(&socket) != Ok(SocketType::STREAM) || setsid().is_err() {
        exit(NOT_FOR_PEOPLE);
    }
    let _ = rustix::thread::set_name(NAME);
    put_own_last();
    let program = std::env::args_os().next().unwrap_or_default();
    let Ok(program) = CString::new(program.into_vec()) else { exit(NOT_FOR_PEOPLE) };
    let argument = CString::new(RUNNER_ARGUMENT).expect("it has no zero");
    let arguments = [program.as_ptr(), argument.as_ptr(), std::ptr::null()];
    let mut files = Vec::with_capacity(RUNNER_FILES_MAX);
    while receive_files(&socket, &mut files).is_ok() {
        let answer = match &files[..] {
            [stdin, stdout, trouble, doors @ ..] => {
                start_runner([stdin, stdout, trouble], doors, &arguments)
            }
            _ => Err(Errno::BADMSG),
        };
        let answer = answer.unwrap_or_else(|errno| -errno.raw_os_error());
        files.clear();
        if send(&socket, &answer.to_ne_bytes(), SendFlags::NOSIGNAL).is_err() {
            break;
        }
    }
    exit(0)
}

/// Fails where the agent is gone.
fn receive_files(socket: &OwnedFd, files: &mut Vec<OwnedFd>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(RUNNER_FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    if message.bytes == 0 {
        return Err(Errno::PIPE);
    }
    if !message.flags.contains(ReturnFlags::CTRUNC) {
        files.extend(
            control
                .drain()
                .flat_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(received) => Some(received),
                    _ => None,
                })
                .flatten(),
        );
    }
    Ok(())
}

/// Clones this process, and has the copy execute it as a runner. Says the copy's number at once: why
/// it could not be executed is written to `trouble`, which is closed where it was.
#[expect(unsafe_code, reason = "the standard library has no call for a child of one's parent")]
fn start_runner(
    [stdin, stdout, trouble]: [&OwnedFd; 3],
    doors: &[OwnedFd],
    arguments: &[*const libc::c_char; 3],
) -> Result<i32, Errno> {
    // SAFETY: without a stack of its own, the copy goes on here as after a fork. There is one
    // thread, so that nothing in it is half done.
    let number = unsafe {
        let (flags, nothing) = (libc::CLONE_PARENT as libc::c_ulong, 0 as libc::c_ulong);
        libc::syscall(libc::SYS_clone, flags, nothing, nothing, nothing, nothing)
    };
    match i32::try_from(number) {
        Ok(0) => {}
        Ok(number) if number > 0 => return Ok(number),
        _ => return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
    }
    let enter = || {
        setpgid(None, None)?;
        // The last of them leads into the idle group.
        doors.iter().try_for_each(|door| rustix::io::write(door, b"0").map(drop))?;
        dup2_stdin(stdin)?;
        dup2_stdout(stdout)
    };
    let errno = match enter() {
        // SAFETY: the path and the arguments end in a zero, their list in a null pointer.
        Ok(()) => unsafe {
            libc::execv(SELF.as_ptr(), arguments.as_ptr());
            Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOEXEC)
        },
        Err(errno) => errno,
    };
    let _ = rustix::io::write(trouble, &errno.raw_os_error().to_ne_bytes());
    // SAFETY: it does not return, and runs nothing of the original's.
    unsafe { libc::_exit(NOT_FOR_PEOPLE) }
}

#[cfg(test)]
mod tests {
    use gleaner_hooks::ProcessStat;
    use gleaner_protocol::{Span, boottime};

    use super::*;

    #[tokio::test]
    async fn what_is_told_of_too_late_is_ended_and_waited_for() {
        let (ours, mut theirs) = UnixStream::pair().expect("two ends");
        // A child of this process, as runners are.
        #[expect(clippy::zombie_processes, reason = "it is waited for by its number")]
        let late = std::process::Command::new("/bin/sleep").arg("1000").spawn().expect("starts");
        let late = i32::try_from(late.id()).expect("a number");
        let mut spawner =
            std::process::Command::new("/bin/sleep").arg("1000").spawn().expect("so too");
        let pid = Pid::from_raw(spawner.id().try_into().expect("a number")).expect("no zero");
        let handle = pidfd_open(pid, PidfdFlags::empty()).expect("it lives");
        for number in [late, -Errno::AGAIN.raw_os_error()] {
            theirs.write_all(&number.to_ne_bytes()).await.expect("told");
        }
        drop(theirs);
        let_end(ours, handle).await;
        // It is waited for by somebody who has the time.
        let end = boottime() + Span::from_secs(60);
        while let Ok(stat) = ProcessStat::of(late) {
            assert!(boottime() < end, "it is left: {stat:?}");
            std::thread::yield_now();
        }
        assert!(spawner.try_wait().expect("ours").is_none(), "it told of all");
        spawner.kill().and_then(|()| spawner.wait()).expect("ours");
    }
}

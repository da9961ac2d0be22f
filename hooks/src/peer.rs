//! Who is at the other end of a Unix socket, by what the kernel says.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use rustix::process::Pid;

/// Who connected, or who listened when the socket was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process. None where it has no number here: it is in another namespace of processes.
    pub pid: Option<Pid>,
    /// Its user.
    pub uid: u32,
}

impl Peer {
    /// Whoever is at the other end; none where the kernel does not say.
    #[must_use]
    #[expect(unsafe_code, reason = "the safe wrapper takes it that everyone has a number")]
    pub fn of(stream: &UnixStream) -> Option<Self> {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = libc::socklen_t::try_from(size_of_val(&peer)).ok()?;
        let (socket, option) = (stream.as_raw_fd(), libc::SO_PEERCRED);
        // SAFETY: the socket is open, and the kernel writes no more than `bytes` bytes to `peer`.
        let status = unsafe {
            let (peer, bytes) = (&raw mut peer, &raw mut bytes);
            libc::getsockopt(socket, libc::SOL_SOCKET, option, peer.cast(), bytes)
        };
        // Of a number below zero it may not be asked what process it is.
        let pid = (peer.pid > 0).then(|| Pid::from_raw(peer.pid)).flatten();
        (status == 0).then_some(Self { pid, uid: peer.uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_known_by_its_process_and_its_user() {
        let (ours, _theirs) = UnixStream::pair().expect("two ends");
        let me =
            Peer { pid: Some(rustix::process::getpid()), uid: rustix::process::geteuid().as_raw() };
        assert_eq!(Peer::of(&ours), Some(me));
    }
}

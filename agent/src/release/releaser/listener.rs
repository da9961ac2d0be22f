//! The local socket's file: bound, taken over from the dead, never from the living.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use thiserror::Error;
use tracing::warn;

/// The bound socket; its file goes with it.
pub(super) struct Listener {
    socket: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl Listener {
    pub(super) fn bind(path: &Path) -> Result<Self, SocketError> {
        let refuse = |source| SocketError::Bind { path: path.to_owned(), source };
        match UnixStream::connect(path) {
            Ok(_) => return Err(SocketError::InUse(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Nobody listens: it is left from an agent that died.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(refuse)?;
            }
            Err(source) => return Err(refuse(source)),
        }
        let socket = UnixListener::bind(path).map_err(refuse)?;
        socket.set_nonblocking(true).map_err(refuse)?;
        // Who may connect is decided by the run folder, whose own mode the socket follows.
        let folder = path.parent().and_then(|folder| fs::metadata(folder).ok());
        let mode = folder.map_or(0o600, |folder| 0o600 | folder.mode() & 0o060);
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(refuse)?;
        let inode = fs::metadata(path).map_err(refuse)?.ino();
        Ok(Self { socket, path: path.to_owned(), inode })
    }

    /// The next client, if one waits.
    pub(super) fn accept(&self) -> Accepted {
        loop {
            match self.socket.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    return Accepted::Client(stream);
                }
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    io::ErrorKind::WouldBlock => return Accepted::Nobody,
                    _ => {
                        warn!("cannot accept on the hooks' socket: {error}");
                        return Accepted::NotNow;
                    }
                },
            }
        }
    }
}

/// What accepting led to.
pub(super) enum Accepted {
    Client(UnixStream),
    Nobody,
    /// Somebody may wait, and cannot be had: most often for want of file descriptors. Nothing
    /// tells when there are some again.
    NotNow,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Only our own: another agent may have taken the place.
        if fs::metadata(&self.path).is_ok_and(|now| now.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Why the local socket cannot be had.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Another agent is there.
    #[error(
        "another agent answers on {path}: stop it, or give this one another run_dir",
        path = .0.display()
    )]
    InUse(PathBuf),
    /// The file could not be made.
    #[error("cannot listen on {path}: {source}", path = path.display())]
    Bind {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The thread or what it waits with could not be made.
    #[error("cannot start the release thread: {0}")]
    Setup(io::Error),
}

//! The sockets over which copies of chunks travel, so that all can be silenced at once.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::connect_unspec;
use rustix::net::sockopt::{set_ip_tos, set_ipv6_tclass, set_tcp_nodelay};
use tokio::net::{TcpSocket, TcpStream};
use tracing::debug;

/// Lower effort (RFC 8622), where it stands in an IP header: whatever else is on its way comes first.
const LOWER_EFFORT: u8 = 1 << 2;

/// The sockets that are open.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    sockets: BTreeMap<u64, OwnedFd>,
}

/// One that is open, as long as this lives.
#[derive(Debug)]
pub(super) struct Noted {
    sockets: Arc<Sockets>,
    number: u64,
}

impl Sockets {
    /// Notes one that somebody has called.
    ///
    /// # Errors
    /// No more files may be open.
    pub(super) fn note(self: &Arc<Self>, socket: &TcpStream) -> io::Result<Noted> {
        self.note_any(socket, socket.peer_addr()?.is_ipv6())
    }

    /// Calls somebody; also what has not come about yet is cut.
    ///
    /// # Errors
    /// Nobody is there, all was cut meanwhile, or no more files may be open.
    pub(super) async fn call(
        self: &Arc<Self>,
        address: SocketAddr,
    ) -> io::Result<(TcpStream, Noted)> {
        let is_v6 = address.is_ipv6();
        let socket = if is_v6 { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
        let noted = self.note_any(&socket, is_v6)?;
        let stream = socket.connect(address).await?;
        // A socket that was cut before it began to call has not been told.
        match self.open().sockets.contains_key(&noted.number) {
            true => Ok((stream, noted)),
            false => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    fn note_any(self: &Arc<Self>, socket: impl AsFd, is_v6: bool) -> io::Result<Noted> {
        let socket = socket.as_fd();
        set_tcp_nodelay(socket, true)?;
        let marked = match is_v6 {
            true => set_ipv6_tclass(socket, LOWER_EFFORT.into()),
            false => set_ip_tos(socket, LOWER_EFFORT),
        };
        if let Err(error) = marked {
            debug!("a transfer goes with the priority of others: {error}");
        }
        let other = socket.try_clone_to_owned()?;
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.sockets.insert(number, other);
        drop(open);
        Ok(Noted { sockets: Arc::clone(self), number })
    }

    /// Cuts all of them now: nothing is sent any more of what was written before. Whoever uses one finds
    /// it broken. Never waits, and may be called from any thread.
    pub(crate) fn silence(&self) {
        let cut = std::mem::take(&mut self.open().sockets);
        for socket in cut.values() {
            // One that has ended by itself is silent.
            let _ = connect_unspec(socket);
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        // The last of a socket is closed when nobody waits for the lock.
        let socket = self.sockets.open().sockets.remove(&self.number);
        drop(socket);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_was_written_and_not_sent_is_not_sent_any_more() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let sockets = Arc::new(Sockets::default());
        let mut one = TcpStream::connect(address).await.expect("it listens");
        let (mut other, _) = listener.accept().await.expect("connected");
        let noted = sockets.note(&one).expect("noted");
        // As much as there is room for on the way.
        let much = vec![7; 1 << 20];
        while let Ok(written) = one.try_write(&much) {
            assert!(written > 0);
        }
        sockets.silence();
        assert!(one.write_all(&much).await.is_err(), "it is cut");
        let mut read = Vec::new();
        assert!(other.read_to_end(&mut read).await.is_err(), "and nobody takes it for an end");
        drop(noted);
        assert!(sockets.open().sockets.is_empty());
    }

    #[tokio::test]
    async fn a_call_that_nobody_has_answered_is_cut_too() {
        let listener = TcpSocket::new_v4().expect("a socket");
        listener.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        // There is room for one that is not accepted, and for no other.
        let listener = listener.listen(0).expect("it listens");
        let address = listener.local_addr().expect("bound");
        let sockets = Arc::new(Sockets::default());
        let _first = sockets.call(address).await.expect("it listens");
        let mut second = pin!(sockets.call(address));
        let is_waiting = |cx: &mut Context<'_>| Poll::Ready(second.as_mut().poll(cx).is_pending());
        assert!(poll_fn(is_waiting).await);
        sockets.silence();
        let cut = second.await.map(drop).map_err(|error| error.kind());
        assert_eq!(cut, Err(io::ErrorKind::ConnectionReset));
    }
}

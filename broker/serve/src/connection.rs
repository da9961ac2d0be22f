//! A connection that is counted while it lives, and that can be cut.
//!
//! A request may be answered before all of its body is here: a refused upload, for one. So the server ends HTTP by
//! closing its own direction, and reads what still comes, for a bounded time, until the client has closed the
//! other one (a lingering close, RFC 9112, section 9.6).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Sleep;

use crate::limits::{LINGER_BYTES_MAX, LINGER_TIME_MAX};
use crate::places::{Place, Seat};

/// How far the shutdown has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// Finish what you are at, take nothing new.
    Stopping,
    /// End now.
    Cut,
}

/// Ends when the shutdown has come to `phase`.
pub(crate) async fn reached(mut phases: watch::Receiver<Phase>, phase: Phase) {
    // Without the server there is nothing left to wait for.
    let _ = phases.wait_for(|now| *now >= phase).await;
}

/// The socket. Its place among the connections is given back when it is dropped, which for a
/// WebSocket is long after HTTP has let go of it; and when it is cut, or has to go for another one,
/// whoever holds it sees the other end go away.
pub(crate) struct Connection {
    stream: TcpStream,
    phases: watch::Receiver<Phase>,
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_cut: bool,
    /// From when this end has closed its direction.
    linger: Option<Linger>,
    place: Place,
}

/// How much longer what comes is read and thrown away.
struct Linger {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, phases: watch::Receiver<Phase>, place: Place) -> Self {
        let evicted = Arc::clone(&place.seat).evicted();
        let told = phases.clone();
        let cut = Box::pin(async move {
            tokio::select! {
                () = reached(told, Phase::Cut) => {}
                () = evicted => {}
            }
        });
        Self { stream, phases, cut, is_cut: false, linger: None, place }
    }

    /// What is known of whoever is at the other end.
    pub(crate) fn seat(&self) -> Arc<Seat> {
        Arc::clone(&self.place.seat)
    }

    fn poll_cut(&mut self, context: &mut Context<'_>) -> bool {
        self.is_cut = self.is_cut || self.cut.as_mut().poll(context).is_ready();
        self.is_cut
    }

    /// Reads what still comes of a request until the other end closes, or nobody has time for it.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // A server that stops waits for nobody.
        if !self.place.seat.may_send()
            || self.poll_cut(context)
            || *self.phases.borrow() >= Phase::Stopping
        {
            return Poll::Ready(());
        }
        let linger = self.linger.get_or_insert_with(|| Linger {
            until: Box::pin(tokio::time::sleep(LINGER_TIME_MAX)),
            bytes_left: LINGER_BYTES_MAX,
        });
        if linger.until.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let mut bytes = [0; 8 << 10];
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
            let count = buffer.filled().len();
            if read.is_err() || count == 0 || count > linger.bytes_left {
                return Poll::Ready(());
            }
            linger.bytes_left -= count;
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.poll_cut(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let filled = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > filled {
            self.place.seat.has_spoken();
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_cut {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        // A writer that waits must be woken by the cut too.
        if written.is_pending() && self.poll_cut(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_cut {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if written.is_pending() && self.poll_cut(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        self.poll_linger(context).map(Ok)
    }
}

//! What hosts' names mean in the network, found out by few at once.
//!
//! A lookup that has begun cannot be ended: it holds a thread of the pool that all of the monitor's
//! slow work shares, however long the network's name servers are silent.
//!
//! # Invariants
//! - At most [`RQD_LOOKUPS_AT_ONCE_MAX`] threads look up, those that nobody waits for any more among
//!   them.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::address::RqdAddress;
use crate::limits::RQD_LOOKUPS_AT_ONCE_MAX;

/// Shared by all calls.
#[derive(Debug)]
pub(super) struct Lookups(Arc<Semaphore>);

impl Lookups {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(RQD_LOOKUPS_AT_ONCE_MAX)))
    }

    /// Where an RQD is.
    pub(super) async fn addresses(&self, rqd: &RqdAddress) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = rqd.host.parse::<IpAddr>() {
            return Ok(vec![(address, rqd.port).into()]);
        }
        let (host, port) = (rqd.host.clone(), rqd.port);
        self.run(move || Ok((host, port).to_socket_addrs()?.collect())).await?
    }

    /// Has this done where it may take long, when it is its turn.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let turn = Arc::clone(&self.0).acquire_owned().await.map_err(io::Error::other)?;
        let done = spawn_blocking(move || {
            let done = work();
            // Its turn ends here, whoever has stopped waiting before.
            drop(turn);
            done
        });
        done.await.map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_lookup_that_nobody_waits_for_any_more_keeps_its_turn_until_it_ends() {
        let lookups = Lookups::new();
        let (begun, begins) = channel();
        let mut hold = Vec::new();
        for _ in 0..RQD_LOOKUPS_AT_ONCE_MAX {
            let (end, ended) = channel::<()>();
            let begun = begun.clone();
            let mut hung = Box::pin(lookups.run(move || {
                begun.send(()).expect("the test listens");
                let _ = ended.recv();
            }));
            assert!((&mut hung).now_or_never().is_none());
            begins.recv().expect("it has begun");
            // Its two seconds are over.
            drop(hung);
            hold.push(end);
        }
        let mut next = Box::pin(lookups.run(|| 7));
        for _ in 0..100 {
            assert!((&mut next).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        // One of them has ended.
        hold.pop();
        assert_eq!(next.await.expect("its turn"), 7);
        assert_eq!(lookups.0.available_permits(), 1);
    }

    #[tokio::test]
    async fn an_address_is_not_looked_up() {
        let lookups = Lookups::new();
        lookups.0.close();
        for (entry, expected) in [("r1=127.0.0.1:7", "127.0.0.1:7"), ("[::1]:7", "[::1]:7")] {
            let rqd: RqdAddress = entry.parse().expect("an entry");
            let found = lookups.addresses(&rqd).await.expect("no lookup");
            assert_eq!(found, [expected.parse::<SocketAddr>().expect("an address")]);
        }
        let named: RqdAddress = "localhost".parse().expect("an entry");
        lookups.addresses(&named).await.expect_err("it takes a turn");
        let found = Lookups::new().addresses(&named).await.expect("every host has it");
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 8_444));
    }
}

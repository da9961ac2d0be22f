//! A slow link to a broker: what comes from the broker passes at a given rate, and what does not is held.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use gleaner_protocol::boottime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How often bytes pass: about as often as a packet on a link of 1 Mbit/s.
const STEP: Duration = Duration::from_millis(10);
/// What is read at once.
const READ_BYTES: usize = 64 << 10;

/// One connection through it at a time. It ends when it is dropped.
pub(super) struct SlowLink {
    /// As `http://HOST:PORT`.
    pub(super) address: String,
    held_max: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl SlowLink {
    /// A link to `broker` (`http://HOST:PORT`) of so many megabits a second.
    pub(super) async fn start(broker: &str, mbit_per_s: f64) -> anyhow::Result<Self> {
        let broker = broker.strip_prefix("http://").context("the broker has no plain address")?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
        let address = format!("http://{}", listener.local_addr().context("no address")?);
        let (held_max, broker) = (Arc::new(AtomicU64::new(0)), broker.to_owned());
        let held = Arc::clone(&held_max);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if let Ok(far) = TcpStream::connect(&broker).await {
                    // As with the broker's own connections: what is small is sent at once.
                    let _ = near.set_nodelay(true);
                    let _ = far.set_nodelay(true);
                    pass(near, far, mbit_per_s * 125_000.0, &held).await;
                }
            }
        });
        Ok(Self { address, held_max, task })
    }

    /// The most bytes that it held so far.
    pub(super) fn held_bytes_max(&self) -> u64 {
        self.held_max.load(Ordering::Relaxed)
    }
}

impl Drop for SlowLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes on what comes, until one of the two ends.
async fn pass(near: TcpStream, far: TcpStream, bytes_per_s: f64, held_max: &AtomicU64) {
    let (mut near_reads, mut near_writes) = near.into_split();
    let (mut far_reads, mut far_writes) = far.into_split();
    let up = async move {
        // Where one end has gone so has the connection.
        let _ = tokio::io::copy(&mut near_reads, &mut far_writes).await;
    };
    let down = async move {
        let (mut held, mut buffer) = (VecDeque::new(), vec![0; READ_BYTES]);
        let (mut steps, mut last, mut may) = (tokio::time::interval(STEP), boottime(), 0.0);
        loop {
            tokio::select! {
                read = far_reads.read(&mut buffer) => match read {
                    Ok(bytes) if bytes > 0 => {
                        held.extend(&buffer[..bytes]);
                        held_max.fetch_max(held.len() as u64, Ordering::Relaxed);
                    }
                    _ => return,
                },
                _ = steps.tick() => {
                    let now = boottime();
                    may += now.since(last).as_secs_f64() * bytes_per_s;
                    last = now;
                    let bytes = (may as usize).min(held.len());
                    may -= bytes as f64;
                    if held.is_empty() {
                        // What was not used is gone.
                        may = 0.0;
                    }
                    let some: Vec<u8> = held.drain(..bytes).collect();
                    if near_writes.write_all(&some).await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

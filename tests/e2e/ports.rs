//! Ports for programs that cannot say which one they were given, or that come back to theirs.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// A port that nobody has now, no other test is given, and no connection gets by chance while its
/// owner is away.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Below those that the kernel gives away; far from those of a process beside this one.
    let first = 12_000 + u16::try_from(std::process::id() * 257 % 16_000).expect("a port");
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let next = || first + GIVEN.fetch_add(1, Ordering::Relaxed);
    std::iter::repeat_with(next).take(1_000).find(is_free).expect("a free port")
}

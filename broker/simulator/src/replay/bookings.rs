//! From what ran where and when to how busy hosts were.

use gleaner_protocol::Time;

use super::log::LogError;
use super::trace::{Occupation, Trace, TraceHost};

/// Something that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Booking {
    pub(crate) host: u32,
    pub(crate) cores: u32,
    pub(crate) from: Time,
    pub(crate) until: Time,
}

/// Lays out a log of bookings. All hosts are there from `begin` to `end`; one that was seen
/// with more cores busy than it is said to have has so many.
///
/// # Errors
/// There is nothing in it, or too much.
pub(crate) fn lay_out(
    path: &str,
    hosts: Vec<TraceHost>,
    bookings: &[Booking],
    begin: Time,
    end: Time,
) -> Result<Trace, LogError> {
    let mut steps: Vec<(Time, bool, u32, u32)> = Vec::with_capacity(2 * bookings.len());
    // What took no time at all left no core busy.
    for booking in bookings.iter().filter(|booking| booking.from < booking.until) {
        steps.push((booking.from, true, booking.host, booking.cores));
        steps.push((booking.until, false, booking.host, booking.cores));
    }
    // At one moment, what ends makes room for what begins.
    steps.sort_unstable();
    let mut busy = vec![0_u32; hosts.len()];
    let mut hosts = hosts;
    for &(_, begins, host, cores) in &steps {
        let now = &mut busy[host as usize];
        *now = if begins { now.saturating_add(cores) } else { now.saturating_sub(cores) };
        let host = &mut hosts[host as usize];
        host.cores = host.cores.max(*now);
    }
    let idle = |(host, entry): (usize, &TraceHost)| Occupation {
        at: begin,
        host: u32::try_from(host).expect("HOSTS_MAX fits u32"),
        cores: entry.cores,
        busy: 0,
        least_idle: entry.cores,
        disturbed: true,
        shut: false,
    };
    let mut changes: Vec<_> = hosts.iter().enumerate().map(idle).collect();
    busy.fill(0);
    for (at, begins, host, cores) in steps {
        let now = &mut busy[host as usize];
        *now = if begins { now.saturating_add(cores) } else { now.saturating_sub(cores) };
        let (cores, busy) = (hosts[host as usize].cores, *now);
        let least_idle = cores - busy;
        let (disturbed, shut) = (true, false);
        changes.push(Occupation { at, host, cores, busy, least_idle, disturbed, shut });
    }
    let mut trace = Trace::new(path, hosts, changes, begin, end)?;
    trace.jobs = bookings.len() as u64;
    Ok(trace)
}

//! Hosts and bookings as they are gathered from a manager's answers.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::farm::{Booked, SampledBooking};
use gleaner_protocol::limits::CORES_MAX;
use gleaner_protocol::{BookingId, HostName};

use crate::HostAllocation;
use crate::limits::{BOOKINGS_MAX, HOSTS_MAX};

/// Cores and memory; none where the manager does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) cores: Option<u64>,
    /// In MiB.
    pub(super) memory_mib: Option<u64>,
    pub(super) gpus: Option<u32>,
}

impl Amount {
    pub(super) const fn cores(cores: u64) -> Self {
        Self { cores: Some(cores), memory_mib: None, gpus: None }
    }

    pub(super) const fn with_memory(self, memory_mib: Option<u64>) -> Self {
        Self { memory_mib, ..self }
    }
}

/// Two numbers together; one of them where the other is not known.
pub(super) fn both<N>(a: Option<N>, b: Option<N>, add: impl FnOnce(N, N) -> N) -> Option<N> {
    match (a, b) {
        (Some(a), Some(b)) => Some(add(a, b)),
        (a, b) => a.or(b),
    }
}

/// What is known so far.
///
/// # Invariants
/// - No name that a host or a booking could not have, and no more of either than are watched.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    hosts: BTreeMap<HostName, HostAllocation>,
}

impl Inventory {
    /// Enters a host; where it is known already, the larger of the two sizes is its own.
    pub(super) fn host(&mut self, name: &str, size: Amount) -> Result<(), String> {
        let cores = size.cores.map(|cores| cores_of(name, cores)).transpose()?;
        let host = self.entry(name)?;
        host.cores = host.cores.max(cores);
        host.memory_mib = host.memory_mib.max(size.memory_mib);
        Ok(())
    }

    /// Enters a booking on a host; several parts of one add up. Without cores it is the whole
    /// host's.
    pub(super) fn books(
        &mut self,
        host: &str,
        booking: BookingId,
        amount: Amount,
    ) -> Result<(), String> {
        let cores = amount.cores.map(|cores| cores_of(host, cores)).transpose()?;
        let host = self.entry(host)?;
        if let Some(known) = host.bookings.iter_mut().find(|known| known.booking == booking) {
            let of = &mut known.resources;
            of.cores = of.cores.zip(cores).map(|(a, b)| a.saturating_add(b).min(CORES_MAX));
            of.memory_mib = both(of.memory_mib, amount.memory_mib, u64::saturating_add);
            of.gpus = both(of.gpus, amount.gpus, u32::saturating_add);
            return Ok(());
        }
        if host.bookings.len() >= BOOKINGS_MAX {
            return Err(format!("host {} has more than {BOOKINGS_MAX} bookings", host.host));
        }
        let resources = Booked { cores, memory_mib: amount.memory_mib, gpus: amount.gpus };
        host.bookings.push(SampledBooking { booking, resources });
        Ok(())
    }

    /// Enters as a booking, and as no render, what the manager keeps of a host from its own renders. Without
    /// cores it is the whole host.
    pub(super) fn withholds(
        &mut self,
        host: &str,
        booking: BookingId,
        amount: Amount,
    ) -> Result<(), String> {
        self.books(host, booking.clone(), amount)?;
        self.entry(host)?.withheld.insert(booking);
        Ok(())
    }

    /// Enters as `booking` what the manager says is in use of a host beyond the bookings known.
    pub(super) fn books_rest(
        &mut self,
        host: &str,
        booking: BookingId,
        used_cores: u64,
    ) -> Result<(), String> {
        match self.rest(host, used_cores)? {
            Some(rest) => self.books(host, booking, rest),
            None => Ok(()),
        }
    }

    /// Likewise what it keeps from its own renders beyond the bookings known.
    pub(super) fn withholds_rest(
        &mut self,
        host: &str,
        booking: BookingId,
        kept_cores: u64,
    ) -> Result<(), String> {
        match self.rest(host, kept_cores)? {
            Some(rest) => self.withholds(host, booking, rest),
            None => Ok(()),
        }
    }

    /// What these cores are beyond those of the bookings known, if they are more.
    fn rest(&mut self, host: &str, cores: u64) -> Result<Option<Amount>, String> {
        let known: Option<u64> =
            self.entry(host)?.bookings.iter().map(|b| b.resources.cores.map(u64::from)).sum();
        Ok(known
            .and_then(|known| cores.checked_sub(known))
            .filter(|rest| *rest > 0)
            .map(Amount::cores))
    }

    pub(super) fn finish(self) -> Vec<HostAllocation> {
        self.hosts.into_values().collect()
    }

    fn entry(&mut self, name: &str) -> Result<&mut HostAllocation, String> {
        let name = HostName::new(name).map_err(|error| format!("host {name:?}: {error}"))?;
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(&name) {
            return Err(format!("there are more than {HOSTS_MAX} hosts"));
        }
        let empty = || HostAllocation {
            host: name.clone(),
            asked_at: None,
            cores: None,
            memory_mib: None,
            core_threads: 1,
            bookings: Vec::new(),
            withheld: BTreeSet::new(),
            announced: BTreeSet::new(),
        };
        Ok(self.hosts.entry(name.clone()).or_insert_with(empty))
    }
}

fn cores_of(host: &str, cores: u64) -> Result<u32, String> {
    let fits = u32::try_from(cores).ok().filter(|cores| *cores <= CORES_MAX);
    fits.ok_or_else(|| format!("host {host} has {cores} cores, more than {CORES_MAX}"))
}

/// `name cores memory: booking cores memory, …` of each host, `withheld` behind what is no render.
#[cfg(test)]
#[track_caller]
pub(super) fn seen(farm: Result<Vec<HostAllocation>, String>) -> Vec<String> {
    let known = |number: Option<u64>, unit| match number {
        Some(number) => format!("{number}{unit}"),
        None => format!("?{unit}"),
    };
    let line = |host: HostAllocation| {
        let mut line = format!(
            "{} {} {}:",
            host.host,
            known(host.cores.map(u64::from), "c"),
            known(host.memory_mib, "m")
        );
        for (place, booking) in host.bookings.iter().enumerate() {
            let Booked { cores, memory_mib, gpus } = booking.resources;
            let cores = cores.map_or_else(|| "all".into(), |cores| format!("{cores}c"));
            let withheld = if host.withheld.contains(&booking.booking) { " withheld" } else { "" };
            let comma = if place == 0 { "" } else { "," };
            line += &format!("{comma} {} {cores} {}", booking.booking, known(memory_mib, "m"));
            line += &gpus.map_or_else(String::new, |gpus| format!(" {gpus}g"));
            line += withheld;
        }
        line
    };
    farm.expect("a farm").into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_booking_add_up_and_the_rest_is_named_apart() {
        let id = |text: &str| BookingId::new(text).expect("a name");
        let mut farm = Inventory::default();
        farm.host("h", Amount::cores(8)).expect("a host");
        farm.host("h", Amount::cores(4).with_memory(Some(9))).expect("the same");
        farm.books("h", id("a"), Amount::cores(1)).expect("booked");
        farm.books("h", id("a"), Amount::cores(2).with_memory(Some(5))).expect("its other part");
        farm.books_rest("h", id("rest"), 3).expect("nothing");
        farm.books_rest("h", id("rest"), 5).expect("booked");
        farm.withholds_rest("h", id("kept"), 6).expect("withheld");
        farm.withholds_rest("h", id("none"), 6).expect("nothing");
        farm.books("h", id("b"), Amount::default()).expect("booked");
        farm.books("h", id("b"), Amount::cores(1)).expect("already whole");
        farm.books_rest("h", id("other"), 8).expect("nothing is left");
        farm.withholds("h", id("off"), Amount::default()).expect("withheld");
        assert_eq!(
            seen(Ok(farm.finish())),
            ["h 8c 9m: a 3c 5m, rest 2c ?m, kept 1c ?m withheld, b all ?m, off all ?m withheld"]
        );
    }
}

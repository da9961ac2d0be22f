//! Hosts and bookings as they are gathered from a manager's answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gleaner_protocol::farm::{Booked, SampledBooking};
use gleaner_protocol::limits::CORES_MAX;
use gleaner_protocol::{BookingId, HostName, booking_of};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::sieve::quote;
use crate::limits::{BOOKINGS_MAX, HOSTS_MAX, POLL_QUOTE_CHARS_MAX, POLL_UNCLEAR_MAX};
use crate::{FarmAnswer, HostAllocation};

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
/// - What is not understood of a host books the whole host. What is not understood of nobody knows
///   whom is kept as a text, by whose words the monitor knows the host.
#[derive(Debug)]
pub(super) struct Inventory {
    /// How the manager's bookings are named.
    manager: &'static str,
    hosts: BTreeMap<HostName, HostAllocation>,
    unclear: Vec<String>,
    notes: Vec<String>,
    not_understood: u64,
    is_too_large: bool,
}

impl Inventory {
    pub(super) const fn of(manager: &'static str) -> Self {
        Self {
            manager,
            hosts: BTreeMap::new(),
            unclear: Vec::new(),
            notes: Vec::new(),
            not_understood: 0,
            is_too_large: false,
        }
    }

    /// Enters a host; where it is known already, the larger of the two sizes is its own.
    pub(super) fn host(&mut self, name: &str, size: Amount) {
        let Some(name) = self.name_of(name) else { return };
        let (cores, why) = cores_of(size.cores);
        if let Some(host) = self.entry(&name) {
            host.cores = host.cores.max(cores);
            host.memory_mib = host.memory_mib.max(size.memory_mib);
        }
        if let Some(why) = why {
            self.misses_of(&name, &why);
        }
    }

    /// Enters a booking on a host; several parts of one add up. Without cores it is the whole
    /// host's.
    pub(super) fn books(&mut self, host: &str, booking: BookingId, amount: Amount) {
        let Some(name) = self.name_of(host) else { return };
        let (cores, why) = cores_of(amount.cores);
        if let Some(why) = why {
            self.say_of(&name, &why);
        }
        let Some(host) = self.entry(&name) else { return };
        if let Some(known) = host.bookings.iter_mut().find(|known| known.booking == booking) {
            let of = &mut known.resources;
            of.cores = of.cores.zip(cores).map(|(a, b)| a.saturating_add(b).min(CORES_MAX));
            of.memory_mib = both(of.memory_mib, amount.memory_mib, u64::saturating_add);
            of.gpus = both(of.gpus, amount.gpus, u32::saturating_add);
            return;
        }
        // One more than that, and the monitor takes the host for wholly booked.
        if host.bookings.len() <= BOOKINGS_MAX {
            let resources = Booked { cores, memory_mib: amount.memory_mib, gpus: amount.gpus };
            host.bookings.push(SampledBooking { booking, resources });
        }
    }

    /// Enters as a booking, and as no render, what the manager keeps of a host from its own renders. Without
    /// cores it is the whole host.
    pub(super) fn withholds(&mut self, host: &str, booking: BookingId, amount: Amount) {
        self.books(host, booking.clone(), amount);
        if let Some(host) = HostName::new(host).ok().and_then(|name| self.hosts.get_mut(&name)) {
            host.withheld.insert(booking);
        }
    }

    /// Enters as `booking` what the manager says is in use of a host beyond the bookings known.
    pub(super) fn books_rest(&mut self, host: &str, booking: BookingId, used_cores: u64) {
        if let Some(rest) = self.rest(host, used_cores) {
            self.books(host, booking, rest);
        }
    }

    /// Likewise what it keeps from its own renders beyond the bookings known.
    pub(super) fn withholds_rest(&mut self, host: &str, booking: BookingId, kept_cores: u64) {
        if let Some(rest) = self.rest(host, kept_cores) {
            self.withholds(host, booking, rest);
        }
    }

    /// What these cores are beyond those of the bookings known, if they are more.
    fn rest(&self, host: &str, cores: u64) -> Option<Amount> {
        let known = HostName::new(host).ok().and_then(|name| self.hosts.get(&name));
        let bookings = known.into_iter().flat_map(|host| &host.bookings);
        let known: Option<u64> = bookings.map(|b| b.resources.cores.map(u64::from)).sum();
        let rest = cores.checked_sub(known?).filter(|rest| *rest > 0)?;
        Some(Amount::cores(rest))
    }

    /// Those of these that are understood. Another one costs the host that its field `name` names.
    pub(super) fn understood<T: DeserializeOwned>(
        &mut self,
        all: Vec<Value>,
        name: &str,
    ) -> Vec<T> {
        let mut understood = Vec::with_capacity(all.len());
        for said in all {
            match T::deserialize(&said) {
                Ok(one) => understood.push(one),
                Err(error) => match said.get(name).and_then(Value::as_str) {
                    Some(host) if !host.is_empty() => self.misses(host, error),
                    _ => self.unclear(&said.to_string(), error),
                },
            }
        }
        understood
    }

    /// Something of a host is not understood: the whole host is booked.
    pub(super) fn misses(&mut self, host: &str, why: impl fmt::Display) {
        if let Some(name) = self.name_of(host) {
            self.misses_of(&name, &why);
        }
    }

    /// Something is not understood, and whose it is is not either.
    pub(super) fn unclear(&mut self, text: &str, why: impl fmt::Display) {
        let said: String = text.chars().take(POLL_QUOTE_CHARS_MAX).collect();
        if self.unclear.contains(&said) {
            return;
        }
        self.not_understood += 1;
        if self.unclear.len() < POLL_UNCLEAR_MAX {
            self.unclear.push(said);
            self.notes.push(format!("{} is not understood: {why}", quote(text)));
        }
    }

    /// Something is not understood, and what is known of the hosts says as much without it.
    pub(super) fn skips(&mut self, text: &str, why: impl fmt::Display) {
        self.not_understood += 1;
        self.note(format!("{} is not understood: {why}", quote(text)));
    }

    /// Something that people should know, and that costs nothing.
    pub(super) fn note(&mut self, text: String) {
        if self.notes.len() < POLL_UNCLEAR_MAX {
            self.notes.push(text);
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// None of it was understood, or the farm is larger than is watched.
    pub(super) fn finish(self) -> Result<FarmAnswer, String> {
        if self.is_too_large {
            return Err(format!("there are more than {HOSTS_MAX} hosts"));
        }
        if let (true, Some(first)) = (self.hosts.is_empty(), self.notes.first())
            && self.not_understood > 0
        {
            return Err(first.clone());
        }
        Ok(FarmAnswer {
            hosts: self.hosts.into_values().collect(),
            unclear: self.unclear,
            notes: self.notes,
            not_understood: self.not_understood,
            ..FarmAnswer::default()
        })
    }

    fn misses_of(&mut self, name: &HostName, why: &dyn fmt::Display) {
        self.say_of(name, why);
        let booking = booking_of(self.manager, "not-understood");
        self.withholds(name.as_str(), booking, Amount::default());
    }

    fn say_of(&mut self, name: &HostName, why: &dyn fmt::Display) {
        self.not_understood += 1;
        self.note(format!("host {name} is taken for wholly booked: {why}"));
    }

    fn name_of(&mut self, name: &str) -> Option<HostName> {
        let host = HostName::new(name);
        host.map_err(|error| self.unclear(name, format!("no agent could have that name ({error})")))
            .ok()
    }

    fn entry(&mut self, name: &HostName) -> Option<&mut HostAllocation> {
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(name) {
            self.is_too_large = true;
            return None;
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
        Some(self.hosts.entry(name.clone()).or_insert_with(empty))
    }
}

/// As many cores as a host may have; else none, and why.
fn cores_of(cores: Option<u64>) -> (Option<u32>, Option<String>) {
    let Some(cores) = cores else { return (None, None) };
    match u32::try_from(cores).ok().filter(|cores| *cores <= CORES_MAX) {
        Some(cores) => (Some(cores), None),
        None => (None, Some(format!("{cores} cores are more than {CORES_MAX}"))),
    }
}

/// `name cores memory: booking cores memory, …` of each host, `withheld` behind what is no render.
#[cfg(test)]
#[track_caller]
pub(super) fn seen(farm: Result<impl Into<FarmAnswer>, String>) -> Vec<String> {
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
    let answer: FarmAnswer = farm.expect("a farm").into();
    answer.hosts.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_booking_add_up_and_the_rest_is_named_apart() {
        let id = |text: &str| BookingId::new(text).expect("a name");
        let mut farm = Inventory::of("farm");
        farm.host("h", Amount::cores(8));
        farm.host("h", Amount::cores(4).with_memory(Some(9)));
        farm.books("h", id("a"), Amount::cores(1));
        farm.books("h", id("a"), Amount::cores(2).with_memory(Some(5)));
        farm.books_rest("h", id("rest"), 3);
        farm.books_rest("h", id("rest"), 5);
        farm.withholds_rest("h", id("kept"), 6);
        farm.withholds_rest("h", id("none"), 6);
        farm.books("h", id("b"), Amount::default());
        farm.books("h", id("b"), Amount::cores(1));
        farm.books_rest("h", id("other"), 8);
        farm.withholds("h", id("off"), Amount::default());
        assert_eq!(
            seen(farm.finish()),
            ["h 8c 9m: a 3c 5m, rest 2c ?m, kept 1c ?m withheld, b all ?m, off all ?m withheld"]
        );
    }

    #[test]
    fn what_is_not_understood_costs_its_host_and_is_said() {
        let mut farm = Inventory::of("farm");
        farm.host("a", Amount::cores(99_999));
        farm.host("b", Amount::cores(4));
        farm.books("b", booking_of("farm", "1"), Amount::cores(99_999));
        farm.misses("c", "it makes no sense");
        farm.host("GPU box 1", Amount::default());
        farm.host("d", Amount::default());
        let answer = farm.finish().expect("most of it");
        assert_eq!(answer.unclear, ["GPU box 1"]);
        assert_eq!((answer.not_understood, answer.notes.len()), (4, 4), "{:?}", answer.notes);
        assert!(
            answer.notes[3].starts_with("\"GPU box 1\" is not understood"),
            "{:?}",
            answer.notes
        );
        assert_eq!(
            seen(Ok(answer)),
            [
                "a ?c ?m: farm:not-understood all ?m withheld",
                "b 4c ?m: farm:1 all ?m",
                "c ?c ?m: farm:not-understood all ?m withheld",
                "d ?c ?m:",
            ]
        );
        let mut farm = Inventory::of("farm");
        farm.host("a b", Amount::default());
        assert!(farm.finish().expect_err("nothing is left").contains("\"a b\""));
    }
}

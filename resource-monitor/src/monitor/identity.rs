//! Which host a name means: the one place that decides.
//!
//! A host is called as its agent calls itself, for so the broker knows it. A farm and its hooks may have
//! another name for it: with a domain or without, in upper or lower case. Such a name is taken for the host
//! that it may mean, where there is one alone.
//!
//! # Invariants
//! - A host whose agent speaks is not open while another host is spoken of, by the farm or a hook, that may
//!   be the same one.
//! - A name that may mean two hosts is kept for itself, and both of them stay shut.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::{HostName, Time};

use super::host::Host;
use super::{Effect, FarmAnswer, HostAllocation, Monitor};
use crate::limits::{AGENT_SILENT_MAX, ALIASES_MAX};

/// The names of all hosts.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Of each first label, the hosts that have it.
    hosts: BTreeMap<String, BTreeSet<HostName>>,
    /// What else hosts are called.
    meant: BTreeMap<HostName, HostName>,
    aliases: BTreeMap<HostName, BTreeSet<HostName>>,
    /// Words, in lower case, of what the farm says of hosts that are not understood, and all of that text.
    unclear: BTreeMap<String, Arc<str>>,
}

impl Names {
    pub(super) fn add(&mut self, host: &HostName) {
        self.hosts.entry(host.label()).or_default().insert(host.clone());
    }

    fn remove(&mut self, host: &HostName) {
        if let Some(of_label) = self.hosts.get_mut(&host.label()) {
            of_label.remove(host);
        }
        for alias in self.aliases.remove(host).unwrap_or_default() {
            self.meant.remove(&alias);
        }
    }

    /// Other hosts whose names may be this one.
    pub(super) fn near<'a>(
        &'a self,
        name: &HostName,
    ) -> impl Iterator<Item = &'a HostName> + use<'a> {
        let of_label = self.hosts.get(&name.label()).into_iter().flatten();
        let name = name.clone();
        of_label.filter(move |host| **host != name && host.may_be(&name))
    }

    /// What else a host is called.
    pub(super) fn aliases(&self, host: &HostName) -> impl Iterator<Item = &HostName> {
        self.aliases.get(host).into_iter().flatten()
    }

    /// The host that a name of no host means; none where it may mean several, or one that is called
    /// otherwise in a way that this name cannot be.
    fn meant(&self, name: &HostName) -> Option<&HostName> {
        if let Some(host) = self.meant.get(name) {
            return Some(host);
        }
        let mut near = self.near(name);
        let (one, None) = (near.next()?, near.next()) else { return None };
        self.fits(one, name).then_some(one)
    }

    fn fits(&self, host: &HostName, name: &HostName) -> bool {
        self.aliases(host).all(|alias| alias.may_be(name))
            && self.aliases(host).count() < ALIASES_MAX
    }

    fn call(&mut self, host: &HostName, alias: &HostName) {
        self.meant.insert(alias.clone(), host.clone());
        self.aliases.entry(host.clone()).or_default().insert(alias.clone());
    }

    /// Takes note of what the farm says of hosts that are not understood.
    fn note_unclear(&mut self, texts: &[String]) {
        self.unclear.clear();
        for text in texts {
            let shown: Arc<str> = text.as_str().into();
            let is_end = |c: char| !(c.is_alphanumeric() || "-_.".contains(c));
            let words = text.split(is_end).map(|word| word.trim_matches('.').to_lowercase());
            // A name that no agent could have may be an agent's without its odd characters.
            let plain: String =
                text.chars().filter(|c| c.is_alphanumeric() || "-_.".contains(*c)).collect();
            for word in words.chain([plain.to_lowercase()]).filter(|word| !word.is_empty()) {
                let label = word.split('.').next().unwrap_or_default().to_owned();
                self.unclear.insert(label, shown.clone());
                self.unclear.insert(word, shown.clone());
            }
        }
    }

    /// What the farm says that may be of this host, and is not understood.
    fn unclear_of(&self, host: &HostName) -> Option<&Arc<str>> {
        let whole = self.unclear.get(&host.as_str().to_ascii_lowercase());
        whole.or_else(|| self.unclear.get(&host.label()))
    }
}

impl Monitor {
    /// The host that a name means: itself, where none is known that it could be.
    #[must_use]
    pub fn known_as<'a>(&'a self, name: &'a HostName) -> &'a HostName {
        match self.hosts.contains_key(name) {
            true => name,
            false => self.names.meant(name).unwrap_or(name),
        }
    }

    /// Likewise, and remembers that it is called so.
    pub(super) fn meant_by(&mut self, name: &HostName) -> HostName {
        let host = self.known_as(name).clone();
        if host != *name {
            self.names.call(&host, name);
        }
        host
    }

    /// An answer by the names of hosts. What a farm says of one host under two names adds up.
    pub(super) fn with_known_names(&mut self, answer: FarmAnswer) -> FarmAnswer {
        let mut hosts: BTreeMap<HostName, HostAllocation> = BTreeMap::new();
        for mut allocation in answer.hosts {
            allocation.host = self.meant_by(&allocation.host);
            // The next name of this answer may mean it too.
            if !self.hosts.contains_key(&allocation.host) {
                self.names.add(&allocation.host);
            }
            match hosts.remove(&allocation.host) {
                None => hosts.insert(allocation.host.clone(), allocation),
                Some(other) => hosts.insert(allocation.host.clone(), other.and(allocation)),
            };
        }
        let silent = answer.silent.iter().map(|name| self.meant_by(name)).collect();
        FarmAnswer { hosts: hosts.into_values().collect(), silent, ..answer }
    }

    /// An agent speaks under this name: what was known under another, of a host without an agent, is its own,
    /// if it is nobody else's.
    pub(super) fn take_over(&mut self, now: Time, name: &HostName, effects: &mut Vec<Effect>) {
        let has_agent = |host: &HostName| self.hosts.get(host).is_some_and(|h| h.has_agent(now));
        let others: Vec<&HostName> =
            self.names.near(name).filter(|other| !has_agent(other)).collect();
        let &[other] = &others[..] else { return };
        let is_anothers = self.names.near(other).any(|agent| agent != name && has_agent(agent));
        if is_anothers || !self.names.fits(name, other) {
            return;
        }
        let other = other.clone();
        let aliases: Vec<HostName> = self.names.aliases(&other).cloned().collect();
        let Some(mut former) = self.hosts.remove(&other) else { return };
        if let Some(time) = former.indexed_deadline.take() {
            self.deadlines.remove(&(time, other.clone()));
        }
        let reserves = former.standing.reserves.clone();
        let spare = former.spare;
        self.reserves.note(&reserves, &other, spare, super::Spare::No);
        former.take_leave(&other, effects);
        self.names.remove(&other);
        for alias in aliases.iter().chain([&other]).filter(|alias| *alias != name) {
            self.names.call(name, alias);
        }
        for kept in self.reserves.fill(&reserves) {
            self.settle(now, &kept, effects);
        }
        self.with_host(now, name, effects, |host, rules| host.take_over(now, rules, former))
            .expect("its agent has just spoken");
    }

    /// Takes note of what was not understood; the hosts that it may be of.
    pub(super) fn note_unclear(&mut self, texts: &[String]) -> Vec<HostName> {
        self.names.note_unclear(texts);
        let is_news = |(name, host): &(&HostName, &Host)| {
            let known = self.names.unclear_of(name).is_some();
            known != host.doubt.is_some()
        };
        self.hosts.iter().filter(is_news).map(|(name, _)| name.clone()).collect()
    }

    /// Why it is not clear what the farm says of a host; none where it is.
    pub(super) fn doubt_of(&self, now: Time, name: &HostName, host: &Host) -> Option<Arc<str>> {
        if let Some(text) = self.names.unclear_of(name) {
            return Some(
                format!(
                    "the farm says {text:?}, which may be of this host and is not understood: give it a name \
                     of letters, digits, dots and dashes there, the `name` of its agent"
                )
                .into(),
            );
        }
        let may_mean_it = |other: &&HostName| {
            self.hosts.get(*other).is_some_and(|other| match other.has_agent(now) {
                false => other.is_spoken_of(),
                // The farm lists that one, and this one by no name.
                true => other.is_listed() && !host.is_listed() && !host.is_told_of(),
            })
        };
        let other = self.names.near(name).find(may_mean_it)?;
        Some(
            format!(
                "the farm or a hook speaks of {other}, which may be this host: the farm's name for it, \
                 the `name` of its agent and GLEANER_HOST of its hooks must be the same"
            )
            .into(),
        )
    }

    /// Whether a host is one that its agent has another name for, as far as is known.
    pub(super) fn is_anothers(&self, now: Time, name: &HostName, host: &Host) -> bool {
        let has_agent = |host: &HostName| self.hosts.get(host).is_some_and(|h| h.has_agent(now));
        !host.has_agent(now) && self.names.near(name).any(has_agent)
    }
}

impl HostAllocation {
    /// One host, of which a farm says this under one name and that under another.
    fn and(mut self, other: Self) -> Self {
        self.cores = self.cores.into_iter().chain(other.cores).min();
        self.memory_mib = self.memory_mib.into_iter().chain(other.memory_mib).min();
        self.asked_at = self.asked_at.into_iter().chain(other.asked_at).min();
        self.core_threads = self.core_threads.max(other.core_threads);
        for booking in other.bookings {
            match self.bookings.iter_mut().find(|known| known.booking == booking.booking) {
                Some(known) => {
                    let (of, more) = (&mut known.resources, booking.resources);
                    of.cores = of.cores.zip(more.cores).map(|(a, b)| a.saturating_add(b));
                    of.memory_mib =
                        of.memory_mib.zip(more.memory_mib).map(|(a, b)| a.saturating_add(b));
                    of.gpus = of.gpus.zip(more.gpus).map(|(a, b)| a.saturating_add(b));
                }
                None => self.bookings.push(booking),
            }
        }
        self.withheld.extend(other.withheld);
        self.announced.extend(other.announced);
        self
    }
}

impl Host {
    /// Whether its agent speaks.
    pub(super) fn has_agent(&self, now: Time) -> bool {
        self.last_sample.is_some_and(|heard| now < heard + AGENT_SILENT_MAX)
    }
}

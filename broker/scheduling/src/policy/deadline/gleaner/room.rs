//! What tasks can be given, by host.

use std::collections::BTreeMap;

use gleaner_protocol::{Share, Time, WorkunitId};

use crate::Desk;
use crate::farm::HostIx;
use crate::policy::deadline::book::{Book, Entry};
use crate::policy::deadline::survival::Outlook;

/// Cores of connected hosts that tasks before others do not have, in the order in which hosts are
/// thought to stay open.
#[derive(Debug)]
pub(super) struct Room {
    hosts: Vec<(HostIx, Share)>,
    /// The place of each host, by its number.
    places: Vec<Option<usize>>,
}

impl Room {
    /// All that the lane can use: of whole cores only where all its tasks take whole ones.
    pub(super) fn of(desk: &Desk<'_>, outlook: Option<&Outlook>, is_even: bool) -> Self {
        let usable = |reach: Share| if is_even { Share::cores(reach.whole_cores()) } else { reach };
        let connected = desk.farm().hosts().filter(|(_, host)| host.connected);
        let mut hosts: Vec<(HostIx, Share)> =
            connected.map(|(host, _)| (host, usable(desk.reach(host)))).collect();
        if let Some(outlook) = outlook {
            outlook.order(&mut hosts);
        }
        let mut places = vec![None; desk.farm().host_numbers()];
        for (place, (host, _)) in hosts.iter().enumerate() {
            places[host.get()] = Some(place);
        }
        Self { hosts, places }
    }

    /// All of it together, in thousandths of a core.
    pub(super) fn all(&self) -> u64 {
        self.hosts.iter().map(|(_, free)| u64::from(free.as_permille())).sum()
    }

    /// By place: the host, and what is free there.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, HostIx, Share)> {
        self.hosts.iter().enumerate().map(|(place, (host, free))| (place, *host, *free))
    }

    /// The place of a host, and what is free there.
    pub(super) fn at(&self, host: HostIx) -> Option<(usize, Share)> {
        let place = (*self.places.get(host.get())?)?;
        Some((place, self.hosts[place].1))
    }

    /// A task has so much of a host.
    pub(super) fn take(&mut self, host: HostIx, share: Share) {
        if let Some((place, free)) = self.at(host) {
            self.hosts[place].1 = free.minus(share);
        }
    }

    /// A task has it no longer.
    pub(super) fn give(&mut self, host: HostIx, share: Share) {
        if let Some((place, free)) = self.at(host) {
            self.hosts[place].1 = free.plus(share);
        }
    }
}

/// Insurance replicas by their hosts, the one that began last at the end: they give way to tasks that
/// were promised.
#[derive(Debug, Default)]
pub(super) struct Insured(BTreeMap<HostIx, Vec<(Time, WorkunitId)>>);

impl Insured {
    pub(super) fn of(book: &Book) -> Self {
        let mut insured = Self::default();
        for (job, entry) in book.iter() {
            for (index, run) in
                entry.open().filter_map(|(index, task)| Some((index, task.insurance?)))
            {
                let on = insured.0.entry(run.host).or_default();
                on.push((run.since, WorkunitId { job, index }));
            }
        }
        insured.0.values_mut().for_each(|on| on.sort_unstable());
        insured
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hosts that have some.
    pub(super) fn hosts(&self) -> impl Iterator<Item = HostIx> {
        self.0.keys().copied()
    }

    /// The one that began last on a host, if it has any.
    pub(super) fn pop(&mut self, host: HostIx) -> Option<WorkunitId> {
        let on = self.0.get_mut(&host)?;
        let last = on.pop();
        if on.is_empty() {
            self.0.remove(&host);
        }
        last.map(|(_, id)| id)
    }

    /// All of a host.
    pub(super) fn on(&self, host: HostIx) -> impl Iterator<Item = WorkunitId> {
        self.0.get(&host).into_iter().flatten().map(|(_, id)| *id)
    }

    /// What those on a host have of it.
    pub(super) fn share_on(&self, book: &Book, host: HostIx) -> Share {
        let of = |(_, id): &(Time, WorkunitId)| book.get(id.job).map(|entry: &Entry| entry.share);
        let on = self.0.get(&host).into_iter().flatten();
        on.filter_map(of).fold(Share::NONE, Share::plus)
    }
}

//! The control links that are open, and which host each speaks for.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::{HostName, JobId};
use gleaner_scheduling::HostIx;
use rustc_hash::FxHashMap;

use super::LinkId;

/// One open link.
pub(super) struct Link<M> {
    /// Where its messages go.
    pub(super) mailbox: M,
    /// The host, once it has said hello.
    pub(super) host: Option<HostName>,
    /// Its number in the core.
    number: Option<HostIx>,
    /// Jobs whose task was sent.
    pub(super) knows: BTreeSet<JobId>,
}

/// All open links.
pub(super) struct Links<M> {
    open: BTreeMap<LinkId, Link<M>>,
    by_name: BTreeMap<HostName, LinkId>,
    by_host: FxHashMap<HostIx, LinkId>,
    knowing: BTreeMap<JobId, BTreeSet<LinkId>>,
}

impl<M> Default for Links<M> {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            by_name: BTreeMap::new(),
            by_host: FxHashMap::default(),
            knowing: BTreeMap::new(),
        }
    }
}

impl<M> Links<M> {
    pub(super) fn open(&mut self, link: LinkId, mailbox: M) {
        self.open.insert(link, Link { mailbox, host: None, number: None, knows: BTreeSet::new() });
    }

    pub(super) fn get(&self, link: LinkId) -> Option<&Link<M>> {
        self.open.get(&link)
    }

    /// The link of a host by name.
    pub(super) fn of_name(&self, host: &HostName) -> Option<LinkId> {
        self.by_name.get(host).copied()
    }

    /// The link of a host by its number in the core.
    pub(super) fn of_host(&self, host: HostIx) -> Option<LinkId> {
        self.by_host.get(&host).copied()
    }

    /// A link said hello for a host; returns the link that spoke for it before.
    pub(super) fn greet(&mut self, link: LinkId, host: &HostName) -> Option<LinkId> {
        self.open.get_mut(&link)?.host = Some(host.clone());
        let before = self.by_name.insert(host.clone(), link).filter(|before| *before != link);
        if let Some(before) = before.and_then(|before| self.open.get_mut(&before)) {
            before.host = None;
        }
        before
    }

    pub(super) fn number(&mut self, host: HostIx, link: LinkId) {
        self.by_host.insert(host, link);
        if let Some(link) = self.open.get_mut(&link) {
            link.number = Some(host);
        }
    }

    /// Notes that a link learns a job's task; `false` where it knew.
    pub(super) fn teach(&mut self, link: LinkId, job: JobId) -> bool {
        let new = self.open.get_mut(&link).is_some_and(|link| link.knows.insert(job));
        if new {
            self.knowing.entry(job).or_default().insert(link);
        }
        new
    }

    /// The links that know a job's task, which they may forget now.
    pub(super) fn unteach(&mut self, job: JobId) -> BTreeSet<LinkId> {
        let links = self.knowing.remove(&job).unwrap_or_default();
        for link in &links {
            if let Some(link) = self.open.get_mut(link) {
                link.knows.remove(&job);
            }
        }
        links
    }

    /// A link is gone; returns the host that it still spoke for.
    pub(super) fn close(&mut self, link: LinkId) -> Option<HostName> {
        let closed = self.open.remove(&link)?;
        for job in &closed.knows {
            if let Some(links) = self.knowing.get_mut(job) {
                links.remove(&link);
            }
        }
        if let Some(number) = closed.number
            && self.by_host.get(&number) == Some(&link)
        {
            self.by_host.remove(&number);
        }
        let host = closed.host?;
        self.by_name.remove(&host);
        Some(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_reached_over_the_link_that_spoke_for_it_last() {
        let host = HostName::new("h1").expect("a plain name");
        let number = HostIx::default();
        let (first, second) = (LinkId::new(1), LinkId::new(2));
        let mut links: Links<()> = Links::default();
        for link in [first, second] {
            links.open(link, ());
            links.greet(link, &host);
            links.number(number, link);
        }
        assert_eq!(links.close(first), None, "it spoke for nobody any more");
        assert_eq!(links.of_host(number), Some(second));
        assert_eq!(links.close(second), Some(host));
        assert_eq!((links.of_host(number), links.by_host.len()), (None, 0));
    }
}

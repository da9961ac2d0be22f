//! The control links that are open, and which host each speaks for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_protocol::{AgentSecret, Digest, HostName, JobId, Span, Time};
use gleaner_scheduling::HostIx;
use rustc_hash::FxHashMap;

use super::LinkId;
use crate::limits::REQUESTS_TIMED_MAX;

/// One open link.
pub(super) struct Link<M> {
    /// Where its messages go.
    pub(super) mailbox: M,
    /// The host, once it has said hello.
    pub(super) host: Option<HostName>,
    /// What its agent knows alone, as a digest.
    secret: Option<Digest>,
    /// Its number in the core.
    number: Option<HostIx>,
    /// Jobs whose task was sent.
    pub(super) knows: BTreeSet<JobId>,
    /// Replicas that it asked for and has not got, and when it did.
    asked: VecDeque<(Time, u32)>,
    /// Since when it has asked for some of those that it is about to ask for again.
    asks_since: Option<Time>,
}

/// All open links.
pub(super) struct Links<M> {
    open: BTreeMap<LinkId, Link<M>>,
    by_name: BTreeMap<HostName, LinkId>,
    by_host: FxHashMap<HostIx, LinkId>,
    by_secret: BTreeMap<Digest, LinkId>,
    knowing: BTreeMap<JobId, BTreeSet<LinkId>>,
}

/// Another agent speaks for a host.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NameTaken;

impl<M> Default for Links<M> {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            by_name: BTreeMap::new(),
            by_host: FxHashMap::default(),
            by_secret: BTreeMap::new(),
            knowing: BTreeMap::new(),
        }
    }
}

impl<M> Links<M> {
    pub(super) fn open(&mut self, link: LinkId, mailbox: M) {
        let (knows, asked) = (BTreeSet::new(), VecDeque::new());
        let opened = Link {
            mailbox,
            host: None,
            secret: None,
            number: None,
            knows,
            asked,
            asks_since: None,
        };
        self.open.insert(link, opened);
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
    ///
    /// # Errors
    /// Another link speaks for that host, and this one does not know its secret.
    pub(super) fn greet(
        &mut self,
        link: LinkId,
        host: &HostName,
        secret: &AgentSecret,
    ) -> Result<Option<LinkId>, NameTaken> {
        let secret = secret.digest();
        let before = self.by_name.get(host).copied().filter(|before| *before != link);
        if let Some(before) = before.and_then(|before| self.open.get_mut(&before)) {
            if before.secret != Some(secret) {
                return Err(NameTaken);
            }
            before.host = None;
        }
        if let Some(greeted) = self.open.get_mut(&link) {
            greeted.host = Some(host.clone());
            greeted.secret = Some(secret);
            self.by_name.insert(host.clone(), link);
            self.by_secret.insert(secret, link);
        }
        Ok(before)
    }

    /// The host of the link whose agent shows this secret.
    pub(super) fn host_of(&self, secret: &AgentSecret) -> Option<&HostName> {
        self.open.get(self.by_secret.get(&secret.digest())?)?.host.as_ref()
    }

    pub(super) fn number(&mut self, host: HostIx, link: LinkId) {
        self.by_host.insert(host, link);
        if let Some(link) = self.open.get_mut(&link) {
            link.number = Some(host);
        }
    }

    /// The number in the core of the host that a link speaks for.
    pub(super) fn number_of(&self, link: LinkId) -> Option<HostIx> {
        self.open.get(&link)?.number
    }

    /// A link asks for so many replicas. Of more than [`REQUESTS_TIMED_MAX`] requests that are
    /// open the later ones are not timed.
    pub(super) fn asks(&mut self, link: LinkId, now: Time, cores: u32) {
        if let Some(link) = self.open.get_mut(&link)
            && link.asked.len() < REQUESTS_TIMED_MAX
            && cores > 0
        {
            link.asked.push_back((link.asks_since.take().unwrap_or(now), cores));
        }
    }

    /// A link's fragment changed: it asks again for what it needs now, if it `needs_some`.
    pub(super) fn asks_anew(&mut self, link: LinkId, needs_some: bool) {
        if let Some(link) = self.open.get_mut(&link) {
            let since = link.asks_since.or_else(|| link.asked.front().map(|(since, _)| *since));
            link.asks_since = since.filter(|_| needs_some);
            link.asked.clear();
        }
    }

    /// A link gets a replica; returns how long ago it asked for it.
    pub(super) fn gets(&mut self, link: LinkId, now: Time) -> Option<Span> {
        let asked = &mut self.open.get_mut(&link)?.asked;
        let (since, cores) = asked.front_mut()?;
        let waited = now.since(*since);
        *cores -= 1;
        if *cores == 0 {
            asked.pop_front();
        }
        Some(waited)
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
        if let Some(secret) = closed.secret
            && self.by_secret.get(&secret) == Some(&link)
        {
            self.by_secret.remove(&secret);
        }
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
    fn a_replica_is_for_the_oldest_request_that_is_open() {
        let link = LinkId::new(1);
        let mut links: Links<()> = Links::default();
        links.open(link, ());
        let at = |second| Time::ZERO + Span::from_secs(second);
        links.asks(link, at(1), 2);
        links.asks(link, at(5), 0);
        links.asks(link, at(6), 1);
        let mut waited = |now| links.gets(link, at(now)).map(Span::as_millis);
        assert_eq!(
            [waited(6), waited(7), waited(7), waited(8)],
            [5, 6, 1, 0].map(|s| { (s > 0).then_some(s * 1_000) })
        );
        for _ in 0..2 * REQUESTS_TIMED_MAX {
            links.asks(link, at(9), 1);
        }
        assert_eq!(links.open[&link].asked.len(), REQUESTS_TIMED_MAX);
        links.asks_anew(link, true);
        assert_eq!(links.gets(link, at(10)), None);
        links.asks_anew(link, true);
        links.asks(link, at(11), 2);
        assert_eq!(links.gets(link, at(12)), Some(Span::from_secs(3)), "asked for again");
        links.asks_anew(link, false);
        links.asks(link, at(20), 1);
        assert_eq!(links.gets(link, at(21)), Some(Span::from_secs(1)));
    }

    #[test]
    fn a_host_is_reached_over_the_link_that_spoke_for_it_last() {
        let host = HostName::new("h1").expect("a plain name");
        let number = HostIx::default();
        let (first, second) = (LinkId::new(1), LinkId::new(2));
        let secret = AgentSecret::new([7; 16]);
        let mut links: Links<()> = Links::default();
        for link in [first, second] {
            links.open(link, ());
            links.greet(link, &host, &secret).expect("it is the same agent");
            links.number(number, link);
        }
        assert_eq!(links.close(first), None, "it spoke for nobody any more");
        assert_eq!(links.of_host(number), Some(second));
        assert_eq!(links.host_of(&secret), Some(&host));
        assert_eq!(links.close(second), Some(host));
        assert_eq!((links.of_host(number), links.by_host.len()), (None, 0));
        assert_eq!((links.host_of(&secret), links.by_secret.len()), (None, 0));
    }

    #[test]
    fn nobody_takes_the_name_of_a_link_that_stands_without_its_secret() {
        let host = HostName::new("h1").expect("a plain name");
        let (own, other) = (AgentSecret::new([7; 16]), AgentSecret::new([8; 16]));
        let (first, second) = (LinkId::new(1), LinkId::new(2));
        let mut links: Links<()> = Links::default();
        [first, second].into_iter().for_each(|link| links.open(link, ()));
        assert_eq!(links.greet(first, &host, &own), Ok(None));
        assert_eq!(links.greet(second, &host, &other), Err(NameTaken));
        assert_eq!(links.of_name(&host), Some(first));
        assert_eq!((links.host_of(&own), links.host_of(&other)), (Some(&host), None));
        assert_eq!(links.close(second), None);
        assert_eq!(links.close(first), Some(host.clone()));
        // Now the name is free.
        links.open(second, ());
        assert_eq!(links.greet(second, &host, &other), Ok(None));
        assert_eq!((links.host_of(&own), links.host_of(&other)), (None, Some(&host)));
    }
}

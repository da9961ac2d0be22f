//! Links: they break, come back, and deliver in order while they last.

use gleaner_protocol::Time;
use gleaner_scheduling::Input;

use super::{Event, World};
use crate::storm::Breach;
use crate::storm::host::LinkId;

impl World<'_> {
    pub(super) fn reconnect_later(&mut self, host: usize) {
        let most_ms = if self.chances.network.chance(150) { 400_000 } else { 5_000 };
        let again = self.chances.network.millis(100, most_ms);
        self.after(again, Event::LinkOpens(host));
    }

    pub(super) fn link_opens(&mut self, host: usize) {
        if self.hosts[host].link.is_some() {
            return;
        }
        if self.broker.core().is_none() {
            return self.reconnect_later(host);
        }
        let link = self.next_link;
        self.next_link += 1;
        let entry = &mut self.hosts[host];
        (entry.link, entry.is_welcome, entry.asked) = (Some(link), false, 0);
        let (info, fragment, held) = (entry.info.clone(), entry.fragment(), entry.held());
        self.says(host, Input::HostJoined { info, fragment, held });
    }

    pub(super) fn link_breaks(&mut self, host: usize) {
        if self.is_calm {
            return;
        }
        if let Some(link) = self.hosts[host].link.take() {
            self.report.links_broken += 1;
            let found_out = self.chances.network.millis(10, 20_000);
            self.after(found_out, Event::LinkLost(host, link));
            self.reconnect_later(host);
        }
        let breaks = self.chances.network.around_secs(600);
        self.after(breaks, Event::LinkBreaks(host));
    }

    pub(super) fn link_lost(&mut self, host: usize, link: LinkId) -> Result<(), Breach> {
        if self.links[host] != Some(link) {
            return Ok(());
        }
        self.links[host] = None;
        let name = self.hosts[host].info.name.clone();
        self.watcher.left(&name);
        self.feed(Input::HostLeft { host: name })
    }

    /// When a message sent now arrives: behind those sent before it.
    pub(super) fn arrives(&mut self, host: usize, direction: usize) -> Time {
        let most_ms = if self.chances.network.chance(20) { 5_000 } else { 20 };
        let at = self.now + self.chances.network.millis(0, most_ms);
        let last = &mut self.arrivals[host][direction];
        *last = at.max(*last);
        *last
    }

    /// The agent sends a message, if it has a link.
    pub(super) fn says(&mut self, host: usize, input: Input) {
        if let Some(link) = self.hosts[host].link {
            let at = self.arrives(host, 1);
            self.calendar.enter(at, Event::ToBroker(host, link, Box::new(input)));
        }
    }

    pub(super) fn broker_receives(
        &mut self,
        host: usize,
        link: LinkId,
        input: Input,
    ) -> Result<(), Breach> {
        if self.broker.core().is_none() || self.hosts[host].link != Some(link) {
            return Ok(());
        }
        let name = self.hosts[host].info.name.clone();
        match &input {
            Input::HostJoined { fragment, .. } => {
                self.links[host] = Some(link);
                self.watcher.joined(&name, fragment.slots);
            }
            _ if self.links[host] != Some(link) => return Ok(()),
            Input::Fragment { fragment, .. } => self.watcher.fragment(&name, fragment.slots),
            Input::Report { token, .. } | Input::Released { token, .. } => {
                self.watcher.ended(&name, *token);
            }
            _ => {}
        }
        self.feed(input)
    }
}

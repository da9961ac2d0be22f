//! What the broker does, dies of, and comes back with.

use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{HostName, JobId, KernelName, OwnerName, Span};
use gleaner_scheduling::{Effect, Input, RequestId};

use super::{Event, LEASE_S, World};
use crate::storm::Breach;
use crate::storm::host::ToHost;

impl World<'_> {
    pub(super) fn submit(&mut self) -> Result<(), Breach> {
        if self.broker.core().is_none() {
            // Its submitter tries again.
            self.after(Span::from_secs(5), Event::Submit);
            return Ok(());
        }
        self.submissions += 1;
        let dice = &mut self.chances.work;
        let replication = u8::try_from(1 + dice.below(3)).expect("at most 3");
        let count = 1 + dice.below(self.config.workunits as usize);
        let more = dice.below(1 + usize::from(replication));
        let spec = JobSpec {
            name: format!("storm-{}", self.submissions),
            owner: OwnerName::new(format!("owner{}", dice.below(3))).expect("a plain name"),
            lane: Lane::Background,
            task: Task::Kernel(KernelName::new("model").expect("a plain name")),
            workunits: Workunits::Count(u32::try_from(count).expect("few workunits")),
            replication,
            quorum: None,
            max_replicas: Some(u16::from(replication) + u16::try_from(more).expect("few")),
            lease_s: LEASE_S,
            profile: Default::default(),
            trust: Default::default(),
        };
        if dice.chance(250) {
            let job = JobId::new(u64::from(self.submissions));
            let cancel = dice.around_secs(200);
            self.after(cancel, Event::Cancel(job));
        }
        self.feed(Input::Submit { request: RequestId::new(u64::from(self.submissions)), spec })
    }

    pub(super) fn feed(&mut self, input: Input) -> Result<(), Breach> {
        let effects = self.broker.handle(self.now, input)?.to_vec();
        let Some(core) = self.broker.core() else { return Ok(()) };
        let name = |host| core.farm().host(host).info.name.clone();
        let hosts = &self.hosts;
        let is_done = |token| hosts.iter().any(|host| host.done.contains_key(&token));
        self.watcher.wanted(&effects, name, is_done)?;
        let due = core.next_deadline();
        if due != self.deadline {
            self.deadline = due;
            if let Some(due) = due {
                self.calendar.enter(due.max(self.now), Event::Deadline);
            }
        }
        if !self.broker.has_unwritten() {
            return self.perform();
        }
        if !self.broker.sync_is_due {
            self.broker.sync_is_due = true;
            let sync = self.chances.broker.millis(1, 40);
            self.after(sync, Event::Written);
        }
        Ok(())
    }

    pub(super) fn perform(&mut self) -> Result<(), Breach> {
        self.broker.sync_is_due = false;
        for effect in self.broker.performed() {
            self.watcher.performed(&effect, &mut self.report)?;
            let (host, message) = match effect {
                Effect::Welcome { host, adopted } => (host, ToHost::Welcome(adopted)),
                Effect::Lease { host, token, replica, .. } => (host, ToHost::Lease(token, replica)),
                Effect::Abort { host, token, .. } => (host, ToHost::Abort(token)),
                Effect::Verdict { host, token, .. } => (host, ToHost::Verdict(token)),
                _ => continue,
            };
            let Some(core) = self.broker.core() else { continue };
            let host = self.number_of(&core.farm().host(host).info.name);
            if let Some(link) = self.links[host] {
                let at = self.arrives(host, 0);
                self.calendar.enter(at, Event::ToHost(host, link, message));
            }
        }
        Ok(())
    }

    pub(super) fn number_of(&self, name: &HostName) -> usize {
        let mut hosts = self.hosts.iter();
        hosts.position(|host| host.info.name == *name).expect("only hosts of this world join")
    }

    pub(super) fn crash(&mut self) {
        if self.is_calm || self.broker.core().is_none() {
            return;
        }
        self.lives += 1;
        self.report.crashes += 1;
        self.report.facts_lost += self.broker.crash(&mut self.chances.broker);
        for host in 0..self.hosts.len() {
            self.links[host] = None;
            if self.hosts[host].link.take().is_some() {
                self.reconnect_later(host);
            }
        }
        let down = self.chances.broker.millis(100, 60_000);
        self.after(down, Event::Start);
    }

    pub(super) fn start(&mut self) -> Result<(), Breach> {
        self.broker.start(&mut self.chances.broker)?;
        self.deadline = None;
        let core = self.broker.core().expect("it has just started");
        self.watcher.restarted(core, &self.broker.durable)?;
        self.crash_later();
        Ok(())
    }
}

//! Commands into the core's inputs, the core's effects into messages, answers and events.

use gleaner_protocol::api::{FarmEventsAccepted, ProgressEvent, Submitted};
use gleaner_protocol::control::{AgentMessage, BrokerMessage, Lease, Opening};
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{JobId, LeaseToken, ReplicaId, boottime};
use gleaner_scheduling::{Effect, HostIx, Input, JobPhase, RequestId, SubmitRefusal};
use tokio::sync::oneshot;

use super::command::LinkMessage;
use super::turn::Turn;
use super::{Command, Driver, LinkId, PreparedReport};

impl Driver {
    pub(super) fn take(&mut self, command: Command, turn: &mut Turn) {
        match command {
            Command::Submit { spec, reply } => self.submit(*spec, reply, turn),
            Command::Cancel { job, reply } => {
                let request = self.next_request();
                self.feed(Input::Cancel { request, job }, turn);
                let known = self.core.farm().job(job).is_some();
                turn.say(move || {
                    let _ = reply.send(known);
                });
            }
            Command::LinkOpened { link, outbox } => self.links.open(link, outbox),
            Command::LinkMessages { link, messages } => {
                for message in messages {
                    self.take_from(link, message, turn);
                }
            }
            Command::LinkClosed { link } => {
                if let Some(host) = self.links.close(link) {
                    self.feed(Input::HostLeft { host }, turn);
                }
            }
            Command::Farm { events, reply } => {
                let accepted = self.farm_events(events, turn);
                turn.say(move || {
                    let _ = reply.send(accepted);
                });
            }
            Command::Query(query) => {
                let answer = query(&self.core);
                turn.say(answer);
            }
        }
    }

    fn next_request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId::new(self.next_request)
    }

    fn submit(
        &mut self,
        spec: JobSpec,
        reply: oneshot::Sender<Result<Submitted, SubmitRefusal>>,
        turn: &mut Turn,
    ) {
        let request = self.next_request();
        let workunits = spec.workunits.len();
        let mut effects = Vec::new();
        self.core.handle(boottime(), Input::Submit { request, spec }, &mut effects);
        let mut result = None;
        for effect in effects {
            match effect {
                Effect::Submitted { result: of, .. } => result = Some(of),
                other => self.translate(other, turn),
            }
        }
        let result = result.expect("the core answers each submission");
        if let Ok(job) = result {
            turn.events.push(ProgressEvent::JobAccepted { job, workunits });
        }
        turn.say(move || {
            let _ = reply.send(result.map(|job| Submitted { job, workunits }));
        });
    }

    fn take_from(&mut self, link: LinkId, message: LinkMessage, turn: &mut Turn) {
        let host = self.links.get(link).and_then(|link| link.host.clone());
        let message = match message {
            LinkMessage::Plain(AgentMessage::Hello(hello)) => {
                return self.greet(link, hello, turn);
            }
            LinkMessage::Plain(message) => message,
            LinkMessage::Report(report) => {
                if let Some(host) = host {
                    self.report(host, report, turn);
                }
                return;
            }
        };
        let Some(host) = host else {
            let reason = "say hello first, and once: another agent may speak for this host now";
            return self.refuse(link, reason.into(), turn);
        };
        let input = match message {
            AgentMessage::Fragment(fragment) => Input::Fragment { host, fragment },
            AgentMessage::Request { slots } => Input::Request { host, slots },
            AgentMessage::Released(released) => {
                Input::Released { host, token: released.token, reason: released.reason }
            }
            AgentMessage::OpeningRefused { decided_on, current } => {
                tracing::info!(%host, %decided_on, %current, "opening refused: a render came first");
                self.metrics.opening_refused();
                return;
            }
            AgentMessage::Progress { .. } | AgentMessage::Report(_) | AgentMessage::Hello(_) => {
                return;
            }
        };
        self.feed(input, turn);
    }

    fn greet(&mut self, link: LinkId, hello: gleaner_protocol::control::Hello, turn: &mut Turn) {
        if let Some(before) = self.links.greet(link, &hello.host.name) {
            let reason = format!("another agent connected for {}", hello.host.name);
            self.refuse(before, reason, turn);
        }
        let name = hello.host.name.clone();
        let (info, fragment, held) = (hello.host, hello.fragment, hello.held);
        let mut effects = Vec::new();
        self.core.handle(boottime(), Input::HostJoined { info, fragment, held }, &mut effects);
        let number = effects.iter().find_map(|effect| match effect {
            Effect::Welcome { host, .. } => Some(*host),
            _ => None,
        });
        match number {
            Some(number) => self.links.number(number, link),
            None => self.refuse(link, format!("no room for {name}: too many hosts"), turn),
        }
        for effect in effects {
            self.translate(effect, turn);
        }
    }

    fn report(
        &mut self,
        host: gleaner_protocol::HostName,
        report: PreparedReport,
        turn: &mut Turn,
    ) {
        let PreparedReport { token, replica, outcome, manifest, cpu_us } = report;
        let facts_before = turn.facts.len();
        self.feed(Input::Report { host, token, replica, outcome, cpu_us }, turn);
        let counted = turn.facts.len() > facts_before;
        if let Some((digest, encoded)) = manifest.filter(|_| counted)
            && self.stored.insert(digest)
        {
            turn.small_blobs.push((digest, encoded));
        }
    }

    fn refuse(&mut self, link: LinkId, reason: String, turn: &mut Turn) {
        self.write_link(link, BrokerMessage::Refused { reason }, turn);
    }

    fn write_link(&mut self, link: LinkId, message: BrokerMessage, turn: &mut Turn) {
        if let Some(open) = self.links.get(link) {
            turn.write(link, &open.outbox, message);
        }
    }

    fn write(&mut self, host: HostIx, message: BrokerMessage, turn: &mut Turn) {
        if let Some(link) = self.links.of_host(host) {
            self.write_link(link, message, turn);
        }
    }

    fn farm_events(&mut self, events: Vec<FarmEvent>, turn: &mut Turn) -> FarmEventsAccepted {
        let mut accepted = FarmEventsAccepted { delivered: 0, unknown_hosts: Vec::new() };
        for event in events {
            let (host, message) = match event {
                FarmEvent::FragmentOpened { host, epoch, cores, memory_mib, valid_ms, ended } => {
                    let opening = Opening { epoch, cores, memory_mib, valid_ms, ended };
                    (host, BrokerMessage::Opening(opening))
                }
                FarmEvent::FragmentClosed { host, reason } => {
                    (host, BrokerMessage::Closing { reason })
                }
            };
            match self.links.of_name(&host) {
                Some(link) => {
                    self.write_link(link, message, turn);
                    accepted.delivered += 1;
                }
                None => accepted.unknown_hosts.push(host),
            }
        }
        accepted
    }

    pub(super) fn translate(&mut self, effect: Effect, turn: &mut Turn) {
        match effect {
            Effect::Persist(fact) => turn.facts.push(fact),
            Effect::Submitted { .. } | Effect::Cancelled { .. } => {}
            Effect::Welcome { host, adopted } => {
                let incarnation = self.incarnation;
                self.write(host, BrokerMessage::Welcome { incarnation, adopted }, turn);
            }
            Effect::Lease { host, token, replica, .. } => self.lease(host, token, replica, turn),
            Effect::Abort { host, token, reason } => {
                self.write(host, BrokerMessage::Abort { token, reason }, turn);
            }
            Effect::Verdict { host, token, workunit, verdict } => {
                self.metrics.verdict(verdict);
                if verdict != gleaner_protocol::control::Verdict::Counted {
                    let host = self.core.farm().host(host).info.name.clone();
                    turn.events.push(ProgressEvent::ReportRefused { host, workunit, verdict });
                }
                self.write(host, BrokerMessage::Verdict { token, verdict }, turn);
            }
            Effect::Share { .. } | Effect::Move { .. } => {
                unreachable!("no policy that a broker can be configured with orders these");
            }
            Effect::JobChanged { job } => self.job_changed(job, turn),
            Effect::HostConnected { host, origin } => {
                turn.events.push(ProgressEvent::HostConnected { host, origin });
            }
            Effect::HostDisconnected { host } => {
                turn.events.push(ProgressEvent::HostDisconnected { host });
            }
            Effect::FragmentChanged { host, slots } => {
                turn.events.push(ProgressEvent::FragmentChanged { host, slots });
            }
        }
    }

    fn lease(&mut self, host: HostIx, token: LeaseToken, replica: ReplicaId, turn: &mut Turn) {
        let Some(link) = self.links.of_host(host) else { return };
        let id = replica.workunit;
        let Some(job) = self.core.farm().job(id.job) else { return };
        let item = job.spec.workunits.item(id.index).map(str::to_owned);
        let task = || job.spec.task.clone();
        if self.links.teach(link, id.job) {
            let message = BrokerMessage::Task { job: id.job, task: task() };
            self.write_link(link, message, turn);
        }
        self.write_link(link, BrokerMessage::Lease(Lease { token, replica, item }), turn);
    }

    fn job_changed(&mut self, job: JobId, turn: &mut Turn) {
        self.progress.changed(boottime(), job);
        let ended = self.core.farm().job(job).is_some_and(|job| job.phase != JobPhase::Active);
        if ended {
            for link in self.links.unteach(job) {
                self.write_link(link, BrokerMessage::Forget { job }, turn);
            }
        }
    }
}

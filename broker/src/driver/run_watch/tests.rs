//! What is recorded of replicas, as their agents tell it to a dispatcher.

mod accounts;

use std::collections::BTreeMap;
use std::sync::Arc;

use gleaner_history::Run;
use gleaner_protocol::control::{
    AgentMessage, BrokerMessage, Fragment, Held, HeldState, Hello, Lease, Outcome, ReleaseReason,
    Released, Report,
};
use gleaner_protocol::job::Lane;
use gleaner_protocol::{
    AgentSecret, Capabilities, Digest, Epoch, HostInfo, HostKind, HostName, JobId, KernelName,
    Manifest, Origin, Span, Time,
};
use gleaner_scheduling::{Core, CoreConfig, LanePolicy, PolicyName};

use super::super::{Decided, Dispatcher, LinkId, LinkMessage, PreparedReport};

/// Batches come before the rest.
fn core() -> Core {
    let batch = LanePolicy::default_of(Lane::Batch);
    let config = CoreConfig::background(PolicyName::FragmentAware);
    Core::new(&config.with_lane(Lane::Batch, batch))
}

/// A broker with hosts of one farm, each with one core.
struct Broker {
    dispatcher: Dispatcher<()>,
    now: Time,
    turn: Decided<()>,
    links: u64,
}

impl Broker {
    fn new() -> Self {
        let dispatcher = Dispatcher::new(core(), 1, Arc::default());
        let now = Time::ZERO + Span::from_secs(1_000);
        Self { dispatcher, now, turn: Decided::default(), links: 0 }
    }

    /// It starts anew, with what it has written down.
    fn restart(&mut self) {
        let mut core = core();
        for fact in std::mem::take(&mut self.turn).facts {
            core.restore(fact).expect("it wrote it");
        }
        core.restored(&mut Vec::new());
        core.set_incarnation(2);
        self.dispatcher = Dispatcher::new(core, 2, Arc::default());
    }

    /// A host connects with what it holds; its link.
    fn connect(&mut self, name: &str, held: &[(&Lease, HeldState)]) -> LinkId {
        self.links += 1;
        let link = LinkId::new(self.links);
        self.dispatcher.link_opened(link, ());
        let kernels = [KernelName::new("x").expect("a plain name")].into();
        let host = HostInfo {
            name: HostName::new(name).expect("a plain name"),
            origin: Origin::Farm,
            owner: None,
            cores: 1,
            memory_mib: 1_024,
            kind: (name == "fat").then(|| HostKind::new("fat").expect("a plain name")),
            chunk_cache_mib: 0,
            capabilities: Capabilities { kernels, ..Capabilities::default() },
        };
        let fragment = Fragment { epoch: Epoch::default(), cores: 1, ..Fragment::default() };
        let held = held.iter().map(|&(lease, state)| {
            let Lease { token, replica, .. } = *lease;
            Held { token, replica, state, goes_on: false, share: gleaner_protocol::Share::WHOLE }
        });
        let (secret, held) = (AgentSecret::new([1; 16]), held.collect());
        let hello = Hello { host, secret, incarnation: 1, fragment, held, peer: None };
        self.says(link, AgentMessage::Hello(hello));
        link
    }

    fn says(&mut self, link: LinkId, message: AgentMessage) {
        let message = match message {
            AgentMessage::Report(report) => {
                LinkMessage::Report(PreparedReport::of(report, true, self.now))
            }
            other => LinkMessage::Plain(other),
        };
        self.dispatcher.link_messages(self.now, link, [message], &mut self.turn);
        self.dispatcher.end_turn(self.now, &mut self.turn);
    }

    fn submit(&mut self, more: &str) -> JobId {
        let json = format!(r#"{{"task":{{"kernel":"x"}},"workunits":{{"items":["7 8"]}}{more}}}"#);
        let spec = serde_json::from_str(&json).expect("a job");
        self.dispatcher.submit(self.now, spec, &mut self.turn).expect("taken").job
    }

    /// A replica of a job, given to a link that asks.
    fn lease(&mut self, link: LinkId) -> Lease {
        self.turn.orders.clear();
        self.says(link, AgentMessage::Request { cores: 1 });
        self.given(link)
    }

    /// The replica that was just given to a link.
    fn given(&mut self, link: LinkId) -> Lease {
        let (_, heard) = self.turn.orders.remove(&link).expect("there is work");
        let leases = heard.into_iter().filter_map(|message| match message {
            BrokerMessage::Lease(lease) => Some(lease),
            _ => None,
        });
        leases.last().expect("there is work")
    }

    fn report(&mut self, link: LinkId, lease: &Lease, outcome: Outcome) {
        self.report_after(link, lease, outcome, (3_000_000, 4_000_000));
    }

    /// A report after so much CPU time, and so much that went by, in microseconds.
    fn report_after(
        &mut self,
        link: LinkId,
        lease: &Lease,
        outcome: Outcome,
        (cpu_us, wall_us): (u64, u64),
    ) {
        let Lease { token, replica, .. } = *lease;
        let (measured, peak_memory_mib) = (None, Some(50));
        let report = Report { token, replica, outcome, cpu_us, measured, wall_us, peak_memory_mib };
        self.says(link, AgentMessage::Report(report));
    }

    fn release(&mut self, link: LinkId, lease: &Lease, reason: ReleaseReason) {
        self.release_after(link, lease, reason, 3_000_000);
    }

    /// The same of one that says that it took this much CPU time.
    fn release_after(&mut self, link: LinkId, lease: &Lease, reason: ReleaseReason, cpu_us: u64) {
        self.says(link, AgentMessage::Released(Released { token: lease.token, reason, cpu_us }));
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now + Span::from_millis(ms);
        self.dispatcher.tick(self.now, &mut self.turn);
    }

    /// What was recorded since this was asked last.
    fn recorded(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.turn.runs)
    }

    /// The times of that that are lower bounds, in milliseconds.
    fn cut_off(&mut self) -> Vec<u64> {
        let runs = self.recorded();
        assert!(runs.iter().all(|run| !run.ended && run.cpu_us == 0), "{runs:?}");
        runs.iter().map(|run| run.wall_us / 1_000).collect()
    }
}

#[test]
fn a_counted_output_is_recorded_with_all_that_is_known() {
    let mut broker = Broker::new();
    let link = broker.connect("fat", &[]);
    broker.submit(r#","profile":{"features":{"faces":9}}"#);
    let lease = broker.lease(link);
    broker.wait(9_000);
    broker.report(link, &lease, Outcome::Output(Manifest::default()));
    let features = [("faces", 9.0), ("item1", 7.0), ("item2", 8.0)];
    let features = features.map(|(name, number)| (name.to_owned(), number));
    let expected = Run {
        application: "x".into(),
        kind: "fat".into(),
        features: BTreeMap::from(features),
        cpu_us: 3_000_000,
        wall_us: 4_000_000,
        peak_memory_mib: Some(50),
        ended: true,
        at_ms: 0,
    };
    assert_eq!(broker.recorded(), [expected]);
    broker.report(link, &lease, Outcome::Output(Manifest::default()));
    assert!(broker.recorded().is_empty(), "it came twice");
}

#[test]
fn what_waits_is_planned_with_the_time_for_which_it_has_its_place() {
    let mut broker = Broker::new();
    let (fat, plain) = (broker.connect("fat", &[]), broker.connect("plain", &[]));
    let profile = r#""profile":{"run_time_us":{"fat":10000000},"cpu_us":12000000}"#;
    for _ in 0..4 {
        broker.submit(&format!(r#","lane":"batch",{profile}"#));
    }
    let (first, second) = (broker.lease(fat), broker.lease(plain));
    broker.wait(10_000);
    let output = || Outcome::Output(Manifest::default());
    broker.report_after(fat, &first, output(), (1_000, 10_000_000));
    broker.lease(fat);
    broker.wait(2_000);
    broker.report_after(plain, &second, output(), (1_000, 12_000_000));
    // Where CPU time counted, the fat host would be thought to do all of it in no time.
    broker.lease(plain);
}

#[test]
fn what_is_given_back_is_a_lower_bound_of_the_time_it_ran() {
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    broker.submit("");
    for (reason, ms, bounds) in [
        (ReleaseReason::Preempted, 5_000, vec![5_000]),
        (ReleaseReason::FragmentClosed, 1_000, vec![1_000]),
        (ReleaseReason::Preempted, 999, vec![]),
        (ReleaseReason::CannotRun("no".into()), 60_000, vec![]),
    ] {
        let lease = broker.lease(link);
        broker.wait(ms);
        broker.release(link, &lease, reason.clone());
        assert_eq!(broker.cut_off(), bounds, "{reason:?}");
    }
    // It is nobody's to give back any more, nor another host's.
    broker.wait(3_600_000);
    let lease = broker.lease(link);
    let other = broker.connect("other", &[]);
    broker.wait(2_000);
    broker.release(other, &lease, ReleaseReason::Preempted);
    assert!(broker.recorded().is_empty());
    broker.release(link, &lease, ReleaseReason::Preempted);
    broker.release(link, &lease, ReleaseReason::Preempted);
    let [run] = &broker.recorded()[..] else { panic!("one run") };
    assert_eq!((run.kind.as_str(), run.wall_us), ("any", 2_000_000));
}

#[test]
fn the_time_for_which_it_was_frozen_does_not_count() {
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    broker.submit("");
    let lease = broker.lease(link);
    let frozen = |frozen| AgentMessage::Frozen { token: lease.token, frozen };
    broker.wait(2_000);
    broker.says(link, frozen(true));
    broker.wait(30_000);
    broker.says(link, frozen(false));
    broker.wait(1_000);
    broker.says(link, frozen(true));
    broker.wait(500);
    broker.release(link, &lease, ReleaseReason::Preempted);
    assert_eq!(broker.cut_off(), [3_000]);
}

/// A host whose replica is parked after 2 s for that of a batch: its link, and both.
fn parked() -> (Broker, LinkId, Lease, Lease) {
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    broker.submit("");
    let lease = broker.lease(link);
    broker.wait(2_000);
    broker.submit(r#","lane":"batch""#);
    let before = broker.given(link);
    (broker, link, lease, before)
}

/// The batch ends, and what was parked for it goes on.
fn resume(broker: &mut Broker, link: LinkId, before: &Lease) {
    broker.report(link, before, Outcome::Output(Manifest::default()));
    broker.recorded();
    broker.turn.orders.clear();
    broker.says(link, AgentMessage::Request { cores: 1 });
    let (_, heard) = broker.turn.orders.remove(&link).expect("it goes on");
    assert!(matches!(heard[..], [BrokerMessage::Resume { .. }]), "{heard:?}");
}

#[test]
fn the_time_for_which_it_was_parked_does_not_count() {
    let (mut broker, link, lease, before) = parked();
    broker.wait(10_000);
    // A render came and went.
    for frozen in [true, false] {
        broker.says(link, AgentMessage::Frozen { token: lease.token, frozen });
        broker.wait(10_000);
    }
    resume(&mut broker, link, &before);
    broker.wait(1_000);
    broker.release(link, &lease, ReleaseReason::Preempted);
    assert_eq!(broker.cut_off(), [3_000]);
}

#[test]
fn what_is_parked_when_its_host_leaves_is_so_when_it_returns_and_is_lost_with_it() {
    let (mut broker, link, lease, before) = parked();
    let held = [(&lease, HeldState::Parked), (&before, HeldState::Runs)];
    broker.wait(5_000);
    broker.dispatcher.link_closed(broker.now, link, &mut broker.turn);
    broker.wait(5_000);
    let link = broker.connect("plain", &held);
    broker.wait(5_000);
    broker.dispatcher.link_closed(broker.now, link, &mut broker.turn);
    assert!(broker.recorded().is_empty());
    broker.wait(5_000);
    // Its agent has started anew and knows nothing of them.
    broker.connect("plain", &[]);
    let mut bounds = broker.cut_off();
    bounds.sort_unstable();
    assert_eq!(bounds, [2_000, 15_000]);
}

#[test]
fn an_order_that_was_lost_with_the_link_changes_nothing() {
    // It never heard that it was to stand still: nobody knows what it did meanwhile.
    let (mut broker, link, lease, before) = parked();
    broker.wait(5_000);
    broker.dispatcher.link_closed(broker.now, link, &mut broker.turn);
    broker.dispatcher.cancel(broker.now, before.replica.workunit.job, &mut broker.turn);
    assert_eq!(broker.cut_off(), [5_000], "the batch, until its host was heard of last");
    let link = broker.connect("plain", &[(&lease, HeldState::Runs)]);
    broker.wait(4_000);
    broker.release(link, &lease, ReleaseReason::Preempted);
    assert_eq!(broker.cut_off(), [6_000]);
    // Nor that it was to go on.
    let (mut broker, link, lease, before) = parked();
    resume(&mut broker, link, &before);
    broker.dispatcher.link_closed(broker.now, link, &mut broker.turn);
    broker.wait(5_000);
    let link = broker.connect("plain", &[(&lease, HeldState::Parked)]);
    broker.wait(5_000);
    broker.release(link, &lease, ReleaseReason::Preempted);
    assert_eq!(broker.cut_off(), [2_000]);
}

#[test]
fn what_is_parked_when_the_broker_starts_anew_counts_from_when_it_goes_on() {
    let (mut broker, _, lease, before) = parked();
    broker.restart();
    let held = [(&lease, HeldState::Parked), (&before, HeldState::Runs)];
    let link = broker.connect("plain", &held);
    broker.wait(30_000);
    resume(&mut broker, link, &before);
    broker.wait(1_500);
    broker.release(link, &lease, ReleaseReason::Preempted);
    assert_eq!(broker.cut_off(), [1_500]);
    // Nobody saw its beginning: what its agent measured is a lower bound of all of it.
    let (mut broker, _, lease, before) = parked();
    broker.restart();
    let held = [(&lease, HeldState::Parked), (&before, HeldState::Runs)];
    let link = broker.connect("plain", &held);
    resume(&mut broker, link, &before);
    broker.report(link, &lease, Outcome::Output(Manifest::default()));
    let [run] = &broker.recorded()[..] else { panic!("one run") };
    assert_eq!((run.ended, run.wall_us), (false, 4_000_000));
}

#[test]
fn what_is_lost_ran_until_its_host_was_heard_of_last() {
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    broker.submit("");
    let lease = broker.lease(link);
    broker.wait(3_000);
    broker.dispatcher.link_closed(broker.now, link, &mut broker.turn);
    broker.wait(1_000);
    // Back in time, it goes on.
    let link = broker.connect("plain", &[(&lease, HeldState::Runs)]);
    broker.wait(4_000);
    broker.dispatcher.link_closed(broker.now, link, &mut broker.turn);
    assert!(broker.recorded().is_empty());
    broker.wait(3_600_000);
    assert_eq!(broker.cut_off(), [8_000]);
    // And what an agent that comes back knows nothing of.
    let link = broker.connect("plain", &[]);
    broker.lease(link);
    broker.wait(6_000);
    broker.dispatcher.link_closed(broker.now, link, &mut broker.turn);
    broker.wait(1_000);
    broker.connect("plain", &[]);
    assert_eq!(broker.cut_off(), [6_000]);
}

#[test]
fn what_the_broker_ends_is_a_lower_bound_too_and_a_failure_is_none() {
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    let job = broker.submit(r#","lease_s":10"#);
    broker.lease(link);
    broker.wait(11_000);
    assert_eq!(broker.cut_off(), [11_000], "it was not done in time");
    broker.lease(link);
    broker.wait(7_000);
    assert!(broker.dispatcher.cancel(broker.now, job, &mut broker.turn));
    assert_eq!(broker.cut_off(), [7_000]);
    broker.submit("");
    let lease = broker.lease(link);
    broker.wait(5_000);
    broker.report(link, &lease, Outcome::Failed("exit code 1".into()));
    assert!(broker.recorded().is_empty());
}

#[test]
fn who_goes_on_from_what_another_saved_has_done_a_part_only() {
    let mut broker = Broker::new();
    let (first, second) = (broker.connect("a", &[]), broker.connect("b", &[]));
    broker.submit("");
    let lease = broker.lease(first);
    broker.says(first, AgentMessage::Saved { token: lease.token, state: Digest::of(b"half") });
    broker.wait(5_000);
    broker.release(first, &lease, ReleaseReason::Preempted);
    assert_eq!(broker.cut_off(), [5_000]);
    let lease = broker.lease(second);
    assert!(lease.goes_on.is_some());
    broker.report(second, &lease, Outcome::Output(Manifest::default()));
    let [run] = &broker.recorded()[..] else { panic!("one run") };
    assert!(!run.ended, "all of it takes longer");
}

#[test]
fn no_more_is_watched_than_there_is() {
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    broker.submit("");
    for _ in 0..20 {
        let lease = broker.lease(link);
        broker.release(link, &lease, ReleaseReason::Preempted);
    }
    assert!(broker.dispatcher.watch.begun.is_empty());
}

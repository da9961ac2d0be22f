//! Each way in which a replica ends makes one record, with what it took.

use gleaner_protocol::api::ReplicaOutcome;

use super::*;
use crate::usage::{EndedReplica, OutputMark, UsageRecord};

impl Broker {
    fn records(&mut self) -> Vec<UsageRecord> {
        std::mem::take(&mut self.turn.usage)
    }

    /// The replicas that have ended since this was asked last.
    fn ended(&mut self) -> Vec<EndedReplica> {
        let ended = self.records().into_iter().filter_map(|record| match record {
            UsageRecord::Ended(ended) => Some(ended),
            UsageRecord::Decided { .. } | UsageRecord::Took(_) => None,
        });
        ended.collect()
    }

    /// How they ended, and for how many milliseconds they had a core.
    fn ends(&mut self) -> Vec<(ReplicaOutcome, u64)> {
        self.ended().iter().map(|of| (of.outcome, of.slot_us / 1_000)).collect()
    }

    fn close(&mut self, link: LinkId) {
        self.dispatcher.link_closed(self.now, link, &mut self.turn);
    }

    fn cancel(&mut self, job: JobId) {
        assert!(self.dispatcher.cancel(self.now, job, &mut self.turn));
    }

    fn knows_no_replica(&self) {
        let watch = &self.dispatcher.watch;
        assert!(watch.begun.is_empty() && watch.away.is_empty(), "{watch:?}");
    }
}

#[test]
fn a_counted_replica_is_recorded_with_all_that_is_known_and_its_decision_after_it() {
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    let job = broker.submit(r#","owner":"eve""#);
    let lease = broker.lease(link);
    let began_ms = broker.now.as_micros() / 1_000;
    broker.wait(9_000);
    broker.report(link, &lease, Outcome::Output(Manifest::default()));
    let output = OutputMark::of(Digest::of(&Manifest::default().encode()));
    let ended = EndedReplica {
        job,
        index: 0,
        owner: "eve".parse().expect("a plain name"),
        project: None,
        host: HostName::new("plain").expect("a plain name"),
        host_owner: None,
        lane: Lane::Background,
        began_ms,
        ended_ms: began_ms + 9_000,
        slot_us: 9_000_000,
        cpu_us: 3_000_000,
        peak_memory_mib: Some(50),
        outcome: ReplicaOutcome::Counted,
        output: Some(output),
    };
    let decided = UsageRecord::Decided { job, index: 0, output };
    assert_eq!(broker.records(), [UsageRecord::Ended(ended), decided]);
    broker.report(link, &lease, Outcome::Output(Manifest::default()));
    assert_eq!(broker.records(), [], "it came twice");
    broker.knows_no_replica();
}

#[test]
fn what_its_host_says_ends_a_replica() {
    use ReplicaOutcome::{Aborted, Preempted, Refused};
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    broker.submit("");
    for (reason, outcome) in [
        (ReleaseReason::Preempted, Preempted),
        (ReleaseReason::FragmentClosed, Preempted),
        (ReleaseReason::Aborted, Aborted),
        (ReleaseReason::CannotRun("no".into()), Refused),
    ] {
        let lease = broker.lease(link);
        broker.wait(500);
        broker.release(link, &lease, reason.clone());
        broker.release(link, &lease, reason);
        let [ended] = &broker.ended()[..] else { panic!("one record") };
        // It says that it took more than it had.
        assert_eq!((ended.outcome, ended.slot_us, ended.cpu_us), (outcome, 500_000, 500_000));
    }
    broker.wait(3_600_000);
    let lease = broker.lease(link);
    broker.wait(2_000);
    broker.report(link, &lease, Outcome::Failed("exit code 1".into()));
    let [failed] = &broker.ended()[..] else { panic!("one record") };
    assert_eq!((failed.outcome, failed.slot_us), (ReplicaOutcome::Failed, 2_000_000));
    assert_eq!((failed.cpu_us, failed.output), (3_000_000, None));
    broker.knows_no_replica();
}

#[test]
fn what_the_broker_decides_ends_replicas() {
    use ReplicaOutcome::{Aborted, Cancelled, Counted, Expired};
    let mut broker = Broker::new();
    let first = broker.connect("a", &[]);
    let job = broker.submit(r#","lease_s":10"#);
    broker.lease(first);
    broker.wait(11_000);
    assert_eq!(broker.ends(), [(Expired, 11_000)]);
    broker.lease(first);
    broker.wait(7_000);
    broker.cancel(job);
    broker.cancel(job);
    assert_eq!(broker.ends(), [(Cancelled, 7_000)]);
    let second = broker.connect("b", &[]);
    broker.submit(r#","replication":2,"quorum":1"#);
    let lease = broker.lease(first);
    let aborted = broker.lease(second);
    broker.wait(3_000);
    broker.report(first, &lease, Outcome::Output(Manifest::default()));
    assert_eq!(broker.ends(), [(Counted, 3_000), (Aborted, 3_000)]);
    // Its agent says what it took, once, and nobody else does.
    for (link, took) in [(first, None), (second, Some(2_000_000)), (second, None)] {
        broker.release_after(link, &aborted, ReleaseReason::Aborted, 2_000_000);
        let told = broker.records().pop().map(|record| match record {
            UsageRecord::Took(EndedReplica { cpu_us, outcome: Aborted, .. }) => cpu_us,
            other => panic!("{other:?}"),
        });
        assert_eq!(told, took);
    }
    broker.knows_no_replica();
}

#[test]
fn so_it_does_where_their_hosts_are_away() {
    use ReplicaOutcome::{Aborted, Cancelled, Counted};
    let mut broker = Broker::new();
    let (first, second) = (broker.connect("a", &[]), broker.connect("b", &[]));
    broker.submit(r#","replication":2,"quorum":1"#);
    let lease = broker.lease(first);
    broker.lease(second);
    broker.wait(2_000);
    broker.close(second);
    broker.wait(1_000);
    broker.report(first, &lease, Outcome::Output(Manifest::default()));
    assert_eq!(broker.ends(), [(Counted, 3_000), (Aborted, 2_000)]);
    let job = broker.submit("");
    broker.lease(first);
    broker.wait(4_000);
    broker.close(first);
    broker.wait(1_000);
    broker.cancel(job);
    assert_eq!(broker.ends(), [(Cancelled, 4_000)]);
    // Nor when they are back, or never come back.
    broker.connect("a", &[]);
    broker.wait(3_600_000);
    assert_eq!(broker.ends(), []);
    broker.knows_no_replica();
}

#[test]
fn what_is_lost_had_its_core_until_its_host_was_heard_of_last() {
    use ReplicaOutcome::Lost;
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    broker.submit("");
    let lease = broker.lease(link);
    broker.wait(3_000);
    broker.close(link);
    broker.wait(1_000);
    // Back in time, it had it all the while.
    let link = broker.connect("plain", &[(&lease, HeldState::Runs)]);
    broker.wait(4_000);
    broker.close(link);
    assert_eq!(broker.ends(), []);
    broker.wait(3_600_000);
    assert_eq!(broker.ends(), [(Lost, 8_000)]);
    // And what an agent that comes back knows nothing of.
    let link = broker.connect("plain", &[]);
    broker.lease(link);
    broker.wait(6_000);
    broker.close(link);
    broker.wait(1_000);
    broker.connect("plain", &[]);
    assert_eq!(broker.ends(), [(Lost, 6_000)]);
    broker.knows_no_replica();
}

#[test]
fn what_the_core_says_nothing_of_is_found_after_a_while() {
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    broker.submit("");
    let lease = broker.lease(link);
    broker.close(link);
    let (now, watch) = (broker.now, &mut broker.dispatcher.watch);
    let one_that_forgot = core();
    assert_eq!(watch.look(&one_that_forgot, now), []);
    let later = now + crate::limits::AWAY_LOOK;
    assert_eq!(watch.look(&one_that_forgot, later), [lease.token]);
    assert_eq!(watch.look(&one_that_forgot, later), [], "not as often as it is asked");
}

#[test]
fn what_stands_still_takes_no_core() {
    use ReplicaOutcome::{Counted, Preempted};
    let (mut broker, link, lease, before) = parked();
    broker.wait(10_000);
    resume(&mut broker, link, &before);
    assert_eq!(broker.ends(), [(Counted, 10_000)]);
    broker.wait(1_000);
    for frozen in [true, false] {
        broker.says(link, AgentMessage::Frozen { token: lease.token, frozen });
        broker.wait(500);
    }
    broker.release(link, &lease, ReleaseReason::Preempted);
    assert_eq!(broker.ends(), [(Preempted, 3_500)]);
}

#[test]
fn what_fails_where_another_left_off_has_failed_though_it_is_nobodys_failure() {
    let mut broker = Broker::new();
    let (first, second) = (broker.connect("a", &[]), broker.connect("b", &[]));
    broker.submit("");
    let lease = broker.lease(first);
    broker.says(first, AgentMessage::Saved { token: lease.token, state: Digest::of(b"half") });
    broker.wait(5_000);
    broker.release(first, &lease, ReleaseReason::Preempted);
    let lease = broker.lease(second);
    assert!(lease.goes_on.is_some());
    broker.wait(2_000);
    broker.report(second, &lease, Outcome::Failed("exit code 1".into()));
    let expected = [(ReplicaOutcome::Preempted, 5_000), (ReplicaOutcome::Failed, 2_000)];
    assert_eq!(broker.ends(), expected);
    broker.knows_no_replica();
}

#[test]
fn half_a_core_counts_half() {
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    broker.submit(r#","cores_permille":500"#);
    let lease = broker.lease(link);
    broker.wait(4_000);
    broker.report(link, &lease, Outcome::Output(Manifest::default()));
    assert_eq!(broker.ends(), [(ReplicaOutcome::Counted, 2_000)]);
}

#[test]
fn what_began_before_the_broker_did_had_what_its_agent_saw_at_least() {
    let mut broker = Broker::new();
    let link = broker.connect("plain", &[]);
    broker.submit("");
    let lease = broker.lease(link);
    broker.restart();
    // It ended while the broker was away.
    let link = broker.connect("plain", &[(&lease, HeldState::Aside)]);
    broker.wait(10);
    broker.report(link, &lease, Outcome::Output(Manifest::default()));
    let [ended] = &broker.ended()[..] else { panic!("one record") };
    assert_eq!((ended.outcome, ended.slot_us), (ReplicaOutcome::Counted, 4_000_000));
    assert_eq!(ended.ended_ms - ended.began_ms, 4_000);
}

//! What happens at a broker is in its metrics: its own dispatcher is driven, and `/metrics` read.

use std::sync::Arc;

use gleaner_broker::{
    CoreFigures, Decided, Dispatcher, LinkId, LinkMessage, Metrics, PreparedReport,
};
use gleaner_protocol::control::{
    AgentMessage, BrokerMessage, Fragment, Hello, Lease, Outcome, ReleaseReason, Released, Report,
    Verdict,
};
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::limits::AGENT_TIMES_MAX;
use gleaner_protocol::{
    AgentMetrics, AgentSecret, Capabilities, ChunkBytes, Content, Digest, Epoch, HookCalls,
    HostInfo, HostName, JobId, KernelName, LeaseToken, Manifest, Origin, OutputFile, ReplicaEnds,
    Span, Time,
};
use gleaner_scheduling::{Core, CoreConfig, PolicyName};

/// A broker with hosts of one farm, each with one core and a link of its own.
struct Broker {
    dispatcher: Dispatcher<()>,
    metrics: Arc<Metrics>,
    now: Time,
    turn: Decided<()>,
}

impl Broker {
    fn with_hosts(count: u64) -> Self {
        let metrics = Arc::new(Metrics::default());
        let core = Core::new(&CoreConfig::background(PolicyName::FragmentAware));
        let dispatcher = Dispatcher::new(core, 1, Arc::clone(&metrics));
        let now = Time::ZERO + Span::from_secs(1_000);
        let mut broker = Self { dispatcher, metrics, now, turn: Decided::default() };
        for host in 0..count {
            broker.dispatcher.link_opened(LinkId::new(host), ());
            let info = HostInfo {
                name: HostName::new(format!("host{host}")).expect("a plain name"),
                origin: Origin::Farm,
                owner: None,
                cores: 1,
                memory_mib: 1_024,
                kind: None,
                chunk_cache_mib: 0,
                capabilities: Capabilities {
                    kernels: [KernelName::new("x").expect("a plain name")].into(),
                    ..Capabilities::default()
                },
            };
            let fragment = Fragment { epoch: Epoch::default(), cores: 1, ..Fragment::default() };
            let hello = Hello {
                host: info,
                secret: AgentSecret::new([1; 16]),
                incarnation: 1,
                fragment,
                held: Vec::new(),
                peer: None,
            };
            broker.says(host, AgentMessage::Hello(hello));
        }
        broker
    }

    fn says(&mut self, host: u64, message: AgentMessage) {
        let message = match message {
            AgentMessage::Report(report) => {
                LinkMessage::Report(PreparedReport::of(report, true, self.now))
            }
            other => LinkMessage::Plain(other),
        };
        self.dispatcher.link_messages(self.now, LinkId::new(host), [message], &mut self.turn);
        self.dispatcher.end_turn(self.now, &mut self.turn);
    }

    fn submits(&mut self, more: &str) -> Option<JobId> {
        let json = format!(r#"{{"task":{{"kernel":"x"}}{more}}}"#);
        let spec: JobSpec = serde_json::from_str(&json).expect("a job");
        let submitted = self.dispatcher.submit(self.now, spec, &mut self.turn).ok()?;
        self.turn.waits.submissions.push(self.now);
        Some(submitted.job)
    }

    /// Asks for one replica, which there is.
    fn asks(&mut self, host: u64) -> Lease {
        self.turn = Decided::default();
        self.says(host, AgentMessage::Request { cores: 1 });
        let heard = self.turn.orders.remove(&LinkId::new(host)).expect("there is work").1;
        let leases = heard.into_iter().filter_map(|message| match message {
            BrokerMessage::Lease(lease) => Some(lease),
            _ => None,
        });
        leases.last().expect("there is work")
    }

    fn reports(&mut self, host: u64, lease: &Lease, outcome: Outcome) -> Verdict {
        let report = report(lease, outcome);
        self.says(host, AgentMessage::Report(report));
        let heard = self.turn.verdicts.get(&LinkId::new(host)).expect("a verdict").1.last();
        match heard {
            Some(BrokerMessage::Verdict { verdict, .. }) => *verdict,
            other => panic!("{other:?}"),
        }
    }

    fn releases(&mut self, host: u64, lease: &Lease, reason: ReleaseReason) {
        let token = lease.token;
        self.says(host, AgentMessage::Released(Released { token, reason, cpu_us: 0 }));
    }

    fn cancels(&mut self, job: JobId) {
        assert!(self.dispatcher.cancel(self.now, job, &mut self.turn));
    }

    fn waits(&mut self, seconds: u64) {
        self.now = self.now + Span::from_secs(seconds);
        self.dispatcher.tick(self.now, &mut self.turn);
    }

    /// A workunit that `saver` saved is spoiled by `heir`, to whom it was handed on.
    fn spoils(&mut self, saver: u64, heir: u64) {
        let job = self.submits(r#","workunits":{"count":1}"#).expect("room for a job");
        let first = self.asks(saver);
        let state = Digest::of(b"half");
        self.says(saver, AgentMessage::Saved { token: first.token, state });
        self.releases(saver, &first, ReleaseReason::Preempted);
        let second = self.asks(heir);
        assert!(second.goes_on.is_some());
        let verdict = self.reports(heir, &second, failed());
        assert_eq!(verdict, Verdict::Spoiled);
        self.cancels(job);
    }

    fn shown(&self) -> String {
        self.metrics.render(&CoreFigures::of(self.dispatcher.core()))
    }

    /// A sample's value.
    fn sample(&self, name: &str) -> f64 {
        let text = self.shown();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().expect("a number")
    }

    fn count(&self, family: &str, label: &str, word: &str) -> u64 {
        self.sample(&format!("gleaner_{family}_total{{{label}=\"{word}\"}}")) as u64
    }
}

fn report(lease: &Lease, outcome: Outcome) -> Report {
    Report {
        token: lease.token,
        replica: lease.replica,
        outcome,
        cpu_us: 1_500_000,
        measured: None,
        wall_us: 0,
        peak_memory_mib: None,
    }
}

fn output(text: &str) -> Outcome {
    let content = Content::Inline(text.as_bytes().to_vec());
    let file = OutputFile { name: "result".into(), content };
    Outcome::Output(Manifest::new(vec![file]).expect("a manifest"))
}

fn failed() -> Outcome {
    Outcome::Failed("it does not work".into())
}

#[test]
fn a_thousand_spoiled_replicas_are_counted_and_the_broker_goes_on() {
    let mut broker = Broker::with_hosts(2);
    for _ in 0..1_000 {
        broker.spoils(0, 1);
    }
    assert_eq!(broker.count("reports", "verdict", "spoiled"), 1_000);
    assert_eq!(broker.count("report_outcomes", "outcome", "failed"), 1_000);
    assert_eq!(broker.count("releases", "reason", "preempted"), 1_000);
    broker.submits(r#","workunits":{"count":1}"#).expect("it takes jobs");
    let lease = broker.asks(0);
    assert_eq!(broker.reports(0, &lease, output("right")), Verdict::Counted);
    assert_eq!(broker.count("reports", "verdict", "counted"), 1);
}

#[test]
fn each_verdict_and_outcome_is_counted() {
    let mut broker = Broker::with_hosts(3);
    broker.spoils(0, 1);
    let job = broker.submits(r#","workunits":{"count":2},"replication":3,"quorum":2"#);
    let job = job.expect("room for a job");
    let first = broker.asks(0);
    assert_eq!(broker.reports(0, &first, output("a")), Verdict::Counted);
    assert_eq!(broker.reports(0, &first, output("a")), Verdict::Duplicate);
    // Another token for what the host has voted on.
    let forged = Lease { token: LeaseToken::new(1), ..first.clone() };
    assert_eq!(broker.reports(0, &forged, output("a")), Verdict::SecondVote);
    assert_eq!(broker.reports(1, &forged, output("a")), Verdict::OldToken);
    let malformed = broker.asks(1);
    let report = report(&malformed, output("b"));
    let message = LinkMessage::Report(PreparedReport::of(report, false, broker.now));
    broker.dispatcher.link_messages(broker.now, LinkId::new(1), [message], &mut broker.turn);
    broker.cancels(job);
    assert_eq!(broker.reports(2, &first, output("a")), Verdict::Late);
    broker.dispatcher.forget(broker.now, job, &mut broker.turn);
    assert_eq!(broker.reports(2, &first, output("a")), Verdict::UnknownJob);
    for (verdict, count) in [
        (Verdict::Counted, 1),
        (Verdict::Duplicate, 1),
        (Verdict::OldToken, 1),
        (Verdict::SecondVote, 1),
        (Verdict::Late, 1),
        (Verdict::UnknownJob, 1),
        (Verdict::Malformed, 1),
        (Verdict::Spoiled, 1),
    ] {
        let word = serde_json::to_value(verdict).expect("a word");
        let word = word.as_str().expect("a word");
        assert_eq!(broker.count("reports", "verdict", word), count, "{word}");
    }
    for (word, count) in [("output", 6), ("failed", 1), ("malformed", 1)] {
        assert_eq!(broker.count("report_outcomes", "outcome", word), count, "{word}");
    }
}

#[test]
fn each_reason_to_give_a_replica_back_is_counted() {
    let mut broker = Broker::with_hosts(1);
    broker.submits(r#","workunits":{"count":9}"#).expect("room for a job");
    for (reason, word) in [
        (ReleaseReason::Preempted, "preempted"),
        (ReleaseReason::FragmentClosed, "fragment_closed"),
        (ReleaseReason::Aborted, "aborted"),
        (ReleaseReason::CannotRun("no such kernel".into()), "cannot_run"),
    ] {
        let lease = broker.asks(0);
        assert_eq!(broker.count("releases", "reason", word), 0);
        broker.releases(0, &lease, reason);
        assert_eq!(broker.count("releases", "reason", word), 1);
    }
}

#[test]
fn each_reason_to_take_a_replica_back_that_a_broker_of_background_work_has_is_counted() {
    let mut broker = Broker::with_hosts(3);
    let aborts = |broker: &Broker, word| broker.count("aborts", "reason", word);
    broker.submits(r#","workunits":{"count":1},"replication":2,"quorum":1"#).expect("room");
    let (first, _second) = (broker.asks(0), broker.asks(1));
    broker.reports(0, &first, output("a"));
    assert_eq!(aborts(&broker, "decided"), 1);

    let hopeless = r#","workunits":{"count":1},"replication":3,"quorum":2,"attempts":{"failed":2}"#;
    broker.submits(hopeless).expect("room for a job");
    let (first, second, _third) = (broker.asks(0), broker.asks(1), broker.asks(2));
    broker.reports(0, &first, failed());
    broker.reports(1, &second, failed());
    assert_eq!(aborts(&broker, "given_up"), 1);

    let job = broker.submits(r#","workunits":{"count":1}"#).expect("room for a job");
    broker.asks(0);
    broker.cancels(job);
    assert_eq!(aborts(&broker, "cancelled"), 1);

    let job = broker.submits(r#","workunits":{"count":1},"lease_s":60"#).expect("room for a job");
    broker.asks(0);
    broker.waits(61);
    assert_eq!(aborts(&broker, "expired"), 1);
    broker.asks(1);
    let fragment = Fragment { epoch: Epoch::default(), cores: 0, ..Fragment::default() };
    broker.says(1, AgentMessage::Fragment(fragment));
    assert_eq!(aborts(&broker, "fragment_closed"), 1);
    broker.cancels(job);
}

#[test]
fn each_refusal_of_a_job_is_counted() {
    let mut broker = Broker::with_hosts(0);
    for more in [
        r#","workunits":{"count":1}"#,
        r#","workunits":{"count":1},"lane":"rendering""#,
        r#","workunits":{"count":0}"#,
    ] {
        broker.submits(more);
    }
    let kernels = (0..gleaner_scheduling::limits::ABILITIES_MAX).map(|number| format!("k{number}"));
    for kernel in kernels {
        let json = format!(r#"{{"task":{{"kernel":"{kernel}"}},"workunits":{{"count":1}}}}"#);
        let spec = serde_json::from_str(&json).expect("a job");
        let _ = broker.dispatcher.submit(broker.now, spec, &mut broker.turn);
    }
    let submissions = |word| broker.count("submissions", "result", word);
    assert_eq!(submissions("accepted"), gleaner_scheduling::limits::ABILITIES_MAX as u64);
    assert_eq!(submissions("too_many_abilities"), 1);
    assert_eq!((submissions("no_policy"), submissions("invalid")), (1, 1));
    assert_eq!((submissions("declined"), submissions("too_many_jobs")), (0, 0));
}

#[test]
fn what_is_waited_for_is_measured_from_its_arrival() {
    let mut broker = Broker::with_hosts(1);
    broker.says(0, AgentMessage::Request { cores: 1 });
    broker.now = broker.now + Span::from_secs(20);
    broker.turn = Decided::default();
    broker.submits(r#","workunits":{"count":1}"#).expect("room for a job");
    broker.dispatcher.tick(broker.now, &mut broker.turn);
    let (_, heard) = &broker.turn.orders[&LinkId::new(0)];
    let Some(BrokerMessage::Lease(lease)) = heard.last() else { panic!("{heard:?}") };
    let lease = lease.clone();
    broker.reports(0, &lease, output("a"));
    let turn = std::mem::take(&mut broker.turn);
    broker.metrics.turn_committed(broker.now + Span::from_millis(7), 40, &turn.waits);
    for (histogram, seconds) in
        [("request_lease", 20.0), ("submission_durable", 0.007), ("report_verdict", 0.007)]
    {
        assert_eq!(broker.sample(&format!("gleaner_{histogram}_seconds_count")), 1.0);
        assert_eq!(broker.sample(&format!("gleaner_{histogram}_seconds_sum")), seconds);
    }
    assert_eq!(broker.sample("gleaner_request_lease_seconds_bucket{le=\"15.0\"}"), 0.0);
    assert_eq!(broker.sample("gleaner_request_lease_seconds_bucket{le=\"60.0\"}"), 1.0);
    assert_eq!(broker.sample("gleaner_turns_total"), 1.0);
    assert_eq!(broker.sample("gleaner_journal_bytes_total"), 40.0);
    assert_eq!(broker.sample("gleaner_accepted_cpu_seconds_total"), 1.5);
    assert_eq!(broker.sample("gleaner_replicas_total{event=\"reported\"}"), 1.0);
    assert_eq!(broker.sample("gleaner_cores_given{origin=\"farm\"}"), 1.0);
    assert!(broker.shown().ends_with("\n# EOF\n"), "{}", broker.shown());
}

#[test]
fn what_agents_count_is_added_up_and_no_host_has_a_series_of_its_own() {
    let mut broker = Broker::with_hosts(20);
    let lines = |broker: &Broker| broker.shown().lines().count();
    let says = AgentMetrics {
        hooks: HookCalls { preflight: 2, postflight: 1 },
        replicas: ReplicaEnds { output: 4, failed: 3, cannot_run: 2, preempted: 1 },
        links_lost: 1,
        chunk_bytes: ChunkBytes { from_agents: 5, from_broker: 6, to_agents: 7 },
        still_us: vec![1_000; AGENT_TIMES_MAX + 100],
        gone_us: vec![20_000, u32::MAX],
        answer_us: vec![1_200, 300],
    };
    broker.says(0, AgentMessage::Metrics(says.clone()));
    let before = lines(&broker);
    for host in 1..20 {
        broker.says(host, AgentMessage::Metrics(says.clone()));
    }
    assert_eq!(lines(&broker), before);
    for (sample, value) in [
        ("hooks_total{origin=\"farm\",hook=\"preflight\"}", 40),
        ("hooks_total{origin=\"farm\",hook=\"postflight\"}", 20),
        ("replicas_total{origin=\"farm\",end=\"output\"}", 80),
        ("replicas_total{origin=\"farm\",end=\"failed\"}", 60),
        ("replicas_total{origin=\"farm\",end=\"cannot_run\"}", 40),
        ("replicas_total{origin=\"farm\",end=\"preempted\"}", 20),
        ("links_lost_total{origin=\"farm\"}", 20),
        ("chunk_bytes_total{origin=\"farm\",way=\"from_agents\"}", 100),
        ("chunk_bytes_total{origin=\"farm\",way=\"from_broker\"}", 120),
        ("chunk_bytes_total{origin=\"farm\",way=\"to_agents\"}", 140),
        ("release_seconds_count{origin=\"farm\",until=\"still\"}", 20 * AGENT_TIMES_MAX as u64),
        ("release_seconds_count{origin=\"farm\",until=\"gone\"}", 40),
        ("release_seconds_bucket{le=\"0.02\",origin=\"farm\",until=\"gone\"}", 20),
        ("hook_seconds_count{origin=\"farm\"}", 40),
    ] {
        assert_eq!(broker.sample(&format!("gleaner_agents_{sample}")), value as f64, "{sample}");
    }
}

#[test]
fn the_page_names_every_metric() {
    let page = include_str!("../METRICS.md");
    let mut broker = Broker::with_hosts(1);
    broker.says(0, AgentMessage::Metrics(AgentMetrics::default()));
    let text = broker.shown();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("a name and a type");
        let suffix = if kind == "counter" { "_total" } else { "" };
        assert!(page.contains(&format!("`{name}{suffix}`")), "{name}{suffix} is not on the page");
    }
}

//! What the broker counts and measures, as `/metrics` shows it.
//!
//! Each count whose label has a fixed set of values is kept by an enum of [`labels`]: what is
//! counted is turned into it by a `match`, so that nothing that happens can lack a counter.
//!
//! # Invariants
//! - A label never has a value that a client chose: the number of series has a bound.
//! - Counting cannot fail.

mod agents;
mod core_figures;
mod labels;

use std::sync::atomic::AtomicU64;

use gleaner_protocol::api::Submitted;
use gleaner_protocol::control::{AbortReason, ReleaseReason, SourceFault, Verdict};
use gleaner_protocol::{AgentMetrics, Origin, Span, Time};
use gleaner_scheduling::{ReportedOutcome, SubmitRefusal};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use agents::AgentsMetrics;
pub use core_figures::CoreFigures;
use labels::{Abort, Comparison, Fault, Label, Outcome, Release, Reported, Submission, Way};

/// Upper ends of the buckets for what takes milliseconds, in seconds.
const SHORT_S: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Upper ends of the buckets for what takes microseconds, in seconds.
const DECIDING_S: [f64; 12] =
    [0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1];
/// Upper ends of the buckets for a wait for work, in seconds: up to a day.
const WAIT_S: [f64; 12] =
    [0.001, 0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 28_800.0, 86_400.0];

/// See the module's page. All of it may be shared between threads.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reports: Family<Reported, Counter>,
    outcomes: Family<Outcome, Counter>,
    releases: Family<Release, Counter>,
    aborts: Family<Abort, Counter>,
    submissions: Family<Submission, Counter>,
    comparisons: Family<Comparison, Counter>,
    sources_failed: Family<Fault, Counter>,
    parks: Counter,
    resumes: Counter,
    turns: Counter,
    turn_decided: Histogram,
    frame_jobs: Counter,
    rendering_policy: Counter<f64, AtomicU64>,
    journal_bytes: Counter,
    letters_dropped: Counter,
    openings_refused: Counter,
    results_damaged: Gauge,
    views_connected: Gauge,
    frames: Counter,
    frame_parts: Counter,
    frame_hits: Counter,
    frames_dropped: Counter,
    frame_drawn: Histogram,
    layer_bytes: Family<Way, Counter>,
    submission_durable: Histogram,
    request_lease: Histogram,
    report_verdict: Histogram,
    agents: AgentsMetrics,
}

/// How a layer of a frame goes to the host that joins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerWay {
    /// The broker passes it on.
    Broker,
    /// From host to host.
    Hosts,
}

/// Since when somebody waits for what a turn decided to be durable.
#[derive(Debug, Default)]
pub struct Waits {
    /// When each submission came that was accepted.
    pub submissions: Vec<Time>,
    /// When each report came.
    pub reports: Vec<Time>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut shown = Shown(Registry::with_prefix("gleaner"));
        Self {
            reports: shown.family("reports", "Reports by verdict"),
            outcomes: shown.family("report_outcomes", "Reports by what they brought"),
            releases: shown.family("releases", "Replicas that hosts gave back, by reason"),
            aborts: shown.family("aborts", "Replicas that the broker took back, by reason"),
            submissions: shown.family("submissions", "Submissions by what came of them"),
            comparisons: shown.family(
                "comparisons",
                "Pairs of output files that were compared within a tolerance",
            ),
            sources_failed: shown.family(
                "chunk_sources_failed",
                "Hosts that were to give a copy of a chunk and failed, as others say, by what they did",
            ),
            parks: shown.metric("parks", "Replicas that were parked for a lane before their own"),
            resumes: shown.metric("resumes", "Parked replicas that were told to go on"),
            turns: shown.metric("turns", "Turns of the driver that were committed"),
            turn_decided: shown.histogram(
                "turn_decided",
                "Time that a turn of the driver takes to decide, before what it decided is written",
                &DECIDING_S,
            ),
            frame_jobs: shown
                .metric("frame_jobs", "Jobs of the rendering lane that parts of frames were"),
            rendering_policy: shown.seconds(
                "rendering_policy",
                "Time that the policy of the rendering lane takes",
            ),
            journal_bytes: shown.metric("journal_bytes", "Bytes of facts written"),
            letters_dropped: shown.metric("letters_dropped", "Frames that a link could not take"),
            openings_refused: shown
                .metric("openings_refused", "Openings that came after a preflight"),
            results_damaged: shown.metric(
                "results_damaged",
                "Results whose content the disk has lost, as found after the start",
            ),
            views_connected: shown.metric("views_connected", "Views with a client"),
            frames: shown.metric("frames", "Frames of views that were sent"),
            frame_parts: shown.metric("frame_parts", "Parts of these that hosts drew"),
            frame_hits: shown
                .metric("frame_hits", "Parts of these whose host had their chunk already"),
            layer_bytes: shown.family(
                "frame_layer_bytes",
                "Bytes of layers of frames, by the way they go to the host that joins them",
            ),
            frames_dropped: shown
                .metric("frames_dropped", "Frames of views that were drawn and not sent"),
            frame_drawn: shown.histogram(
                "frame_drawn",
                "Time from the beginning of a frame until its picture is there",
                &SHORT_S,
            ),
            submission_durable: shown.histogram(
                "submission_durable",
                "Time from a submission's arrival until it is on disk",
                &SHORT_S,
            ),
            request_lease: shown.histogram(
                "request_lease",
                "Time from an agent's request for a replica until its lease; with no work for \
                 the host this is how long its slot stood empty",
                &WAIT_S,
            ),
            report_verdict: shown.histogram(
                "report_verdict",
                "Time from a report's arrival until its verdict is on disk and sent",
                &SHORT_S,
            ),
            agents: AgentsMetrics::new(&mut shown.0),
            registry: shown.0,
        }
    }
}

/// What is shown. The encoder adds each help's full stop.
struct Shown(Registry);

impl Shown {
    fn metric<M: Metric + Default + Clone>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }

    /// Counters by a label, all of which are shown from the beginning.
    fn family<L: Label>(&mut self, name: &str, help: &str) -> Family<L, Counter> {
        let family: Family<L, Counter> = self.metric(name, help);
        for label in L::ALL {
            drop(family.get_or_create(label));
        }
        family
    }

    fn seconds(&mut self, name: &str, help: &str) -> Counter<f64, AtomicU64> {
        let counter = Counter::default();
        self.0.register_with_unit(name, help, Unit::Seconds, counter.clone());
        counter
    }

    fn histogram(&mut self, name: &str, help: &str, ends_s: &[f64]) -> Histogram {
        let histogram = Histogram::new(ends_s.iter().copied());
        self.0.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        histogram
    }
}

impl Metrics {
    /// A report was received.
    pub(crate) fn reported(&self, outcome: &ReportedOutcome) {
        self.outcomes.get_or_create(&outcome.into()).inc();
    }

    /// A report was judged.
    pub(crate) fn judged(&self, verdict: Verdict) {
        self.reports.get_or_create(&(&verdict).into()).inc();
    }

    /// A host gave a replica back.
    pub(crate) fn released(&self, reason: &ReleaseReason) {
        self.releases.get_or_create(&reason.into()).inc();
    }

    /// A host is told to end a replica.
    pub(crate) fn aborted(&self, reason: AbortReason) {
        self.aborts.get_or_create(&(&reason).into()).inc();
    }

    /// A host is told to park a replica for a lane before its own.
    pub(crate) fn parked(&self) {
        self.parks.inc();
    }

    /// A host is told to let a parked replica go on.
    pub(crate) fn resumed(&self) {
        self.resumes.inc();
    }

    /// So many views have a client.
    pub(crate) fn views(&self, connected: usize) {
        self.views_connected.set(i64::try_from(connected).unwrap_or(i64::MAX));
    }

    /// A frame of so many parts is there, of which hosts had so many chunks; it is sent, or a newer
    /// one was.
    pub(crate) fn frame(&self, took: Span, (parts, hits): (u32, u32), is_sent: bool) {
        self.frame_drawn.observe(took.as_secs_f64());
        self.frame_parts.inc_by(parts.into());
        self.frame_hits.inc_by(hits.into());
        if is_sent { &self.frames } else { &self.frames_dropped }.inc();
    }

    /// A layer of a frame is ready to be joined.
    pub(crate) fn layer_bytes(&self, way: LayerWay, bytes: u64) {
        self.layer_bytes.get_or_create(&(&way).into()).inc_by(bytes);
    }

    /// A submission was accepted or refused.
    pub(crate) fn submitted(&self, result: &Result<Submitted, SubmitRefusal>) {
        self.submissions.get_or_create(&result.into()).inc();
    }

    /// A host got a replica that it had asked for so long ago.
    pub(crate) fn leased(&self, waited: Span) {
        self.request_lease.observe(waited.as_secs_f64());
    }

    /// A turn has decided all that it has to.
    pub(crate) fn turn_decided(&self, took: Span) {
        self.turn_decided.observe(took.as_secs_f64());
    }

    /// A part of a frame is a job of the rendering lane.
    pub(crate) fn frame_job(&self) {
        self.frame_jobs.inc();
    }

    /// The policy of the rendering lane has done something.
    pub(crate) fn rendering_planned(&self, took: Span) {
        self.rendering_policy.inc_by(took.as_secs_f64());
    }

    /// A turn is durable, and what it promised is said.
    pub fn turn_committed(&self, now: Time, bytes: u64, waits: &Waits) {
        self.turns.inc();
        self.journal_bytes.inc_by(bytes);
        let observe = |times: &[Time], into: &Histogram| {
            times.iter().for_each(|since| into.observe(now.since(*since).as_secs_f64()));
        };
        observe(&waits.submissions, &self.submission_durable);
        observe(&waits.reports, &self.report_verdict);
    }

    /// A link could not take what it was sent.
    pub(crate) fn letter_dropped(&self) {
        self.letters_dropped.inc();
    }

    /// An agent refused an opening.
    pub(crate) fn opening_refused(&self) {
        self.openings_refused.inc();
    }

    /// A result's content is lost.
    pub(crate) fn result_damaged(&self) {
        self.results_damaged.inc();
    }

    /// An agent of a host of this origin says what it counted.
    pub(crate) fn agent_says(&self, origin: Origin, metrics: &AgentMetrics) {
        self.agents.add(origin, metrics);
    }

    /// Two files of floating point were compared.
    pub(crate) fn compared(&self, are_alike: bool) {
        self.comparisons.get_or_create(&(&are_alike).into()).inc();
    }

    /// A host that was to give a copy of a chunk failed.
    pub(crate) fn source_failed(&self, fault: SourceFault) {
        self.sources_failed.get_or_create(&(&fault).into()).inc();
    }

    /// All of them, with the core's, in OpenMetrics' text format.
    #[must_use]
    pub fn render(&self, core: &CoreFigures) -> String {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &core.registry()))
            .and_then(|()| encode_eof(&mut text))
            .expect("a string takes every text");
        text
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::job::{JobError, Lane};
    use gleaner_protocol::{Account, Digest, JobId};
    use gleaner_scheduling::{Core, CoreConfig, PolicyName};

    use super::*;

    /// Each label of a family shows one.
    fn all_are_one<L: Label>(text: &str, family: &str) {
        let samples: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with(&format!("gleaner_{family}_total{{")))
            .collect();
        assert_eq!(samples.len(), L::ALL.len(), "{text}");
        assert!(samples.iter().all(|sample| sample.ends_with("\"} 1")), "{samples:?}");
    }

    #[test]
    fn everything_that_can_happen_has_a_counter_of_its_own() {
        let metrics = Metrics::default();
        for verdict in [
            Verdict::Counted,
            Verdict::Duplicate,
            Verdict::OldToken,
            Verdict::SecondVote,
            Verdict::Late,
            Verdict::UnknownJob,
            Verdict::Malformed,
            Verdict::Spoiled,
        ] {
            metrics.judged(verdict);
        }
        metrics.reported(&ReportedOutcome::Output(Digest::of(b"")));
        metrics.reported(&ReportedOutcome::Failed(String::new()));
        metrics.reported(&ReportedOutcome::Malformed);
        for reason in [
            ReleaseReason::Preempted,
            ReleaseReason::FragmentClosed,
            ReleaseReason::Aborted,
            ReleaseReason::CannotRun(String::new()),
            ReleaseReason::HostTrouble(String::new()),
        ] {
            metrics.released(&reason);
        }
        for reason in [
            AbortReason::Decided,
            AbortReason::GivenUp,
            AbortReason::Cancelled,
            AbortReason::Expired,
            AbortReason::Preempted,
            AbortReason::FragmentClosed,
            AbortReason::Unknown,
        ] {
            metrics.aborted(reason);
        }
        metrics.submitted(&Ok(Submitted { job: JobId::new(1), workunits: 1, promise: None }));
        let owner = gleaner_protocol::OwnerName::new("anna").expect("a plain name");
        for refusal in [
            SubmitRefusal::Invalid(JobError::EmptyCommand),
            SubmitRefusal::NoPolicy(Lane::Batch),
            SubmitRefusal::Declined { why: String::new(), earliest_due_us: None },
            SubmitRefusal::TooManyJobs,
            SubmitRefusal::TooManyOfOne { account: Account::of(None, &owner), most: 1 },
            SubmitRefusal::TooManyAbilities,
        ] {
            metrics.submitted(&Err(refusal));
        }
        use SourceFault::{DidNotCall, Stalled, Unreachable, WrongPiece};
        for fault in [WrongPiece, Stalled, Unreachable, DidNotCall] {
            metrics.source_failed(fault);
        }
        metrics.layer_bytes(LayerWay::Broker, 1);
        metrics.layer_bytes(LayerWay::Hosts, 1);
        metrics.compared(true);
        metrics.compared(false);
        let core = Core::new(&CoreConfig::background(PolicyName::Plain));
        let text = metrics.render(&CoreFigures::of(&core));
        all_are_one::<Reported>(&text, "reports");
        all_are_one::<Outcome>(&text, "report_outcomes");
        all_are_one::<Release>(&text, "releases");
        all_are_one::<Abort>(&text, "aborts");
        all_are_one::<Submission>(&text, "submissions");
        all_are_one::<Comparison>(&text, "comparisons");
        all_are_one::<Way>(&text, "frame_layer_bytes");
        all_are_one::<Fault>(&text, "chunk_sources_failed");
    }
}

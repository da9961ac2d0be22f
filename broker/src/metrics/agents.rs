//! What agents count and measure, added up by where their hosts come from.
//!
//! # Invariants
//! - No host has a series of its own: a farm of thousands has as many series as one of two.

use gleaner_protocol::limits::AGENT_TIMES_MAX;
use gleaner_protocol::{AgentMetrics, ChunkBytes, HookCalls, Origin, ReplicaEnds};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// The labels of a sample: the origin, and what else there is.
type Labels = Vec<(&'static str, &'static str)>;
type Times = Family<Labels, Histogram, fn() -> Histogram>;

/// Upper ends of the buckets, in seconds: a render waits for a hook.
const RELEASE_S: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0];

/// See the module's page.
#[derive(Debug)]
pub(super) struct AgentsMetrics {
    hooks: Family<Labels, Counter>,
    replicas: Family<Labels, Counter>,
    links_lost: Family<Labels, Counter>,
    chunk_bytes: Family<Labels, Counter>,
    releases: Times,
    answers: Times,
}

impl AgentsMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("agents");
        let mut counter = |name: &str, help: &str| {
            let family = Family::default();
            registry.register(name, help, Family::clone(&family));
            family
        };
        let hooks = counter("hooks", "Calls of hooks that agents answered");
        let replicas = counter("replicas", "Replicas by how they ended on their host");
        let links_lost = counter("links_lost", "Links to the broker that agents lost");
        let chunk_bytes = counter("chunk_bytes", "Bytes of copies of chunks, by the way they went");
        let mut times = |name: &str, help: &str| {
            let family: Times =
                Family::new_with_constructor(|| Histogram::new(RELEASE_S.iter().copied()));
            registry.register_with_unit(name, help, Unit::Seconds, family.clone());
            family
        };
        Self {
            hooks,
            replicas,
            links_lost,
            chunk_bytes,
            releases: times(
                "release",
                "Time from a preflight hook's request until all in its render's way stood still, \
                 or was gone",
            ),
            answers: times("hook", "Time from a hook's request until its answer"),
        }
    }

    /// Adds what an agent says.
    pub(super) fn add(&self, origin: Origin, metrics: &AgentMetrics) {
        let AgentMetrics { hooks, replicas, links_lost, chunk_bytes, still_us, gone_us, answer_us } =
            metrics;
        let origin = ("origin", origin.as_str());
        let count = |family: &Family<Labels, Counter>, labels: Labels, count: u32| {
            family.get_or_create(&labels).inc_by(count.into());
        };
        let HookCalls { preflight, postflight } = *hooks;
        for (hook, calls) in [("preflight", preflight), ("postflight", postflight)] {
            count(&self.hooks, vec![origin, ("hook", hook)], calls);
        }
        let ReplicaEnds { output, failed, cannot_run, preempted } = *replicas;
        for (end, ended) in [
            ("output", output),
            ("failed", failed),
            ("cannot_run", cannot_run),
            ("preempted", preempted),
        ] {
            count(&self.replicas, vec![origin, ("end", end)], ended);
        }
        count(&self.links_lost, vec![origin], *links_lost);
        let ChunkBytes { from_agents, from_broker, to_agents } = *chunk_bytes;
        for (way, bytes) in
            [("from_agents", from_agents), ("from_broker", from_broker), ("to_agents", to_agents)]
        {
            let labels = vec![origin, ("way", way)];
            self.chunk_bytes.get_or_create(&labels).inc_by(bytes);
        }
        let observe = |family: &Times, labels: Labels, times_us: &[u32]| {
            let times = family.get_or_create(&labels);
            for time_us in times_us.iter().take(AGENT_TIMES_MAX) {
                times.observe(f64::from(*time_us) / 1e6);
            }
        };
        observe(&self.releases, vec![origin, ("until", "still")], still_us);
        observe(&self.releases, vec![origin, ("until", "gone")], gone_us);
        observe(&self.answers, vec![origin], answer_us);
    }
}

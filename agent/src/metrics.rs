//! What the agent counts and measures: for the broker, which adds up that of all hosts, and for a
//! file that a node exporter of Prometheus reads. The agent itself opens no port.
//!
//! # Invariants
//! - Counting waits for nobody but who counts, and fails never.
//! - What the broker is yet to be told has a bound: what is measured beyond it is in the file only.

mod file;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gleaner_hooks::Counted;
use gleaner_protocol::control::SourceFault;
use gleaner_protocol::{AgentMetrics, Span};
use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::harvest::RunResult;
use crate::limits::UNSENT_TIMES_MAX;

pub(crate) use file::keep_file;

/// Upper ends of the buckets, in seconds: a render waits for a hook.
const RELEASE_S: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0];

/// One label.
type By = [(&'static str, &'static str); 1];
type Times<L> = Family<L, Histogram, fn() -> Histogram>;

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    hooks: Family<By, Counter>,
    replicas: Family<By, Counter>,
    links_lost: Counter,
    chunk_bytes: Family<By, Counter>,
    sources_failed: Family<By, Counter>,
    releases: Times<By>,
    answers: Histogram,
    cores_given: Gauge,
    running: Gauge,
    /// Microseconds of CPU time of what gave an output or failed.
    cpu_us: AtomicU64,
    /// What the broker is yet to be told.
    unsent: Mutex<AgentMetrics>,
}

/// Which way copies of chunks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkWay {
    FromAgents,
    FromBroker,
    ToAgents,
}

/// A hook that has called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    Preflight,
    Postflight,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("gleaner_agent");
        let (hooks, replicas) = (Family::default(), Family::default());
        let (links_lost, cores_given, running) =
            (Counter::default(), Gauge::default(), Gauge::default());
        let answers = times();
        let releases: Times<By> = Family::new_with_constructor(times);
        registry.register("hooks", "Calls of hooks that were answered", Family::clone(&hooks));
        registry.register(
            "replicas",
            "Replicas by how they ended on this host",
            Family::clone(&replicas),
        );
        registry.register("links_lost", "Links to the broker that were lost", links_lost.clone());
        let (chunk_bytes, sources_failed) = (Family::default(), Family::default());
        registry.register(
            "chunk_bytes",
            "Bytes of copies of chunks, by the way they went",
            Family::clone(&chunk_bytes),
        );
        registry.register(
            "chunk_sources_failed",
            "Hosts that were to give a copy of a chunk and failed, by what they did",
            Family::clone(&sources_failed),
        );
        registry.register("cores_given", "Cores that replicas may run on now", cores_given.clone());
        registry.register("replicas_running", "Replicas that run now", running.clone());
        registry.register_with_unit(
            "release",
            "Time from a preflight hook's request until all in its render's way stood still, or \
             was gone",
            Unit::Seconds,
            releases.clone(),
        );
        registry.register_with_unit(
            "hook",
            "Time from a hook's request until its answer",
            Unit::Seconds,
            answers.clone(),
        );
        let unsent = Mutex::default();
        Self {
            registry,
            hooks,
            replicas,
            links_lost,
            chunk_bytes,
            sources_failed,
            releases,
            answers,
            cores_given,
            running,
            cpu_us: AtomicU64::new(0),
            unsent,
        }
    }
}

fn times() -> Histogram {
    Histogram::new(RELEASE_S)
}

impl Metrics {
    /// A hook was answered so long after its request; where it was a preflight's, all in its
    /// render's way stood still after `still`.
    pub(crate) fn answered(&self, hook: Hook, answered: Span, still: Option<Span>) {
        let word = match hook {
            Hook::Preflight => "preflight",
            Hook::Postflight => "postflight",
        };
        self.hooks.get_or_create(&[("hook", word)]).inc();
        self.answers.observe(answered.as_secs_f64());
        if let Some(still) = still {
            self.releases.get_or_create(&[("until", "still")]).observe(still.as_secs_f64());
        }
        let mut unsent = self.unsent();
        let calls = match hook {
            Hook::Preflight => &mut unsent.hooks.preflight,
            Hook::Postflight => &mut unsent.hooks.postflight,
        };
        *calls = calls.saturating_add(1);
        push(&mut unsent.answer_us, answered);
        if let Some(still) = still {
            push(&mut unsent.still_us, still);
        }
    }

    /// All that a preflight hook stopped was gone so long after its request.
    pub(crate) fn gone(&self, after: Span) {
        self.releases.get_or_create(&[("until", "gone")]).observe(after.as_secs_f64());
        push(&mut self.unsent().gone_us, after);
    }

    /// A replica ended.
    pub(crate) fn ended(&self, result: &RunResult) {
        let mut unsent = self.unsent();
        let ends = &mut unsent.replicas;
        let (word, count) = match result {
            RunResult::Output { .. } => ("output", &mut ends.output),
            RunResult::Failed { .. } => ("failed", &mut ends.failed),
            RunResult::CannotRun(_) | RunResult::HostTrouble(_) => {
                ("cannot_run", &mut ends.cannot_run)
            }
            RunResult::Preempted => ("preempted", &mut ends.preempted),
        };
        *count = count.saturating_add(1);
        self.replicas.get_or_create(&[("end", word)]).inc();
        if let RunResult::Output { cpu_us, .. } | RunResult::Failed { cpu_us, .. } = result {
            self.cpu_us.fetch_add(*cpu_us, Ordering::Relaxed);
        }
    }

    /// What has ended on this host, for its owner.
    pub(crate) fn counted(&self) -> Counted {
        let ended = |word| self.replicas.get_or_create(&[("end", word)]).get();
        Counted {
            outputs: ended("output"),
            failed: ended("failed"),
            given_back: ended("preempted"),
            refused: ended("cannot_run"),
            cpu_ms: self.cpu_us.load(Ordering::Relaxed) / 1_000,
        }
    }

    /// The link to the broker is gone.
    pub(crate) fn link_lost(&self) {
        self.links_lost.inc();
        let mut unsent = self.unsent();
        unsent.links_lost = unsent.links_lost.saturating_add(1);
    }

    /// So many bytes of copies of chunks have travelled.
    pub(crate) fn chunk_bytes(&self, way: ChunkWay, bytes: usize) {
        let mut unsent = self.unsent();
        let of = &mut unsent.chunk_bytes;
        let (word, count) = match way {
            ChunkWay::FromAgents => ("from_agents", &mut of.from_agents),
            ChunkWay::FromBroker => ("from_broker", &mut of.from_broker),
            ChunkWay::ToAgents => ("to_agents", &mut of.to_agents),
        };
        *count = count.saturating_add(bytes as u64);
        self.chunk_bytes.get_or_create(&[("way", word)]).inc_by(bytes as u64);
    }

    /// A host that was to give a copy of a chunk failed.
    pub(crate) fn source_failed(&self, fault: SourceFault) {
        let word = match fault {
            SourceFault::WrongPiece => "wrong_piece",
            SourceFault::Stalled => "stalled",
            SourceFault::Unreachable => "unreachable",
            SourceFault::DidNotCall => "did_not_call",
        };
        self.sources_failed.get_or_create(&[("fault", word)]).inc();
    }

    /// What the host gives now, and how much of it is in use.
    pub(crate) fn stands(&self, cores_given: u32, running: u32) {
        self.cores_given.set(cores_given.into());
        self.running.set(running.into());
    }

    /// Whether the broker is yet to be told something.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent().is_empty()
    }

    /// What the broker is told next.
    pub(crate) fn take_unsent(&self) -> AgentMetrics {
        self.unsent().take()
    }

    /// All of them, in the text format that node exporters read.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes every text");
        text
    }

    fn unsent(&self) -> MutexGuard<'_, AgentMetrics> {
        // Numbers are good whoever panicked.
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push(times_us: &mut Vec<u32>, time: Span) {
    if times_us.len() < UNSENT_TIMES_MAX {
        times_us.push(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::limits::AGENT_TIMES_MAX;
    use gleaner_protocol::{ChunkBytes, HookCalls, ReplicaEnds};

    use super::*;

    #[test]
    fn every_end_and_every_hook_is_counted_for_the_file_and_for_the_broker() {
        let metrics = Metrics::default();
        assert!(!metrics.has_unsent());
        let ms = Span::from_millis;
        metrics.answered(Hook::Preflight, ms(3), Some(ms(2)));
        metrics.answered(Hook::Postflight, ms(1), None);
        metrics.gone(ms(40));
        for result in [
            RunResult::Output {
                files: Vec::new(),
                cpu_us: 1,
                measured: None,
                wall_us: 1,
                peak_memory_mib: None,
            },
            RunResult::Failed { reason: String::new(), cpu_us: 1 },
            RunResult::CannotRun(String::new()),
            RunResult::Preempted,
        ] {
            metrics.ended(&result);
        }
        let once = Counted { outputs: 1, failed: 1, given_back: 1, refused: 1, cpu_ms: 0 };
        assert_eq!(metrics.counted(), once);
        metrics.link_lost();
        metrics.chunk_bytes(ChunkWay::FromAgents, 5);
        metrics.chunk_bytes(ChunkWay::FromBroker, 6);
        metrics.chunk_bytes(ChunkWay::ToAgents, 7);
        metrics.source_failed(SourceFault::WrongPiece);
        metrics.stands(7, 5);
        let text = metrics.text();
        for line in [
            "# TYPE gleaner_agent_hooks_total counter",
            "gleaner_agent_hooks_total{hook=\"preflight\"} 1",
            "gleaner_agent_hooks_total{hook=\"postflight\"} 1",
            "gleaner_agent_replicas_total{end=\"output\"} 1",
            "gleaner_agent_replicas_total{end=\"failed\"} 1",
            "gleaner_agent_replicas_total{end=\"cannot_run\"} 1",
            "gleaner_agent_replicas_total{end=\"preempted\"} 1",
            "gleaner_agent_links_lost_total 1",
            "gleaner_agent_chunk_bytes_total{way=\"from_agents\"} 5",
            "gleaner_agent_chunk_bytes_total{way=\"from_broker\"} 6",
            "gleaner_agent_chunk_bytes_total{way=\"to_agents\"} 7",
            "gleaner_agent_chunk_sources_failed_total{fault=\"wrong_piece\"} 1",
            "gleaner_agent_cores_given 7",
            "gleaner_agent_replicas_running 5",
            "# TYPE gleaner_agent_release_seconds histogram",
            "gleaner_agent_release_seconds_count{until=\"still\"} 1",
            "gleaner_agent_release_seconds_sum{until=\"gone\"} 0.04",
            "gleaner_agent_hook_seconds_count 2",
        ] {
            assert!(text.lines().any(|of| of == line), "{line} is not in {text}");
        }
        let said = AgentMetrics {
            hooks: HookCalls { preflight: 1, postflight: 1 },
            replicas: ReplicaEnds { output: 1, failed: 1, cannot_run: 1, preempted: 1 },
            links_lost: 1,
            chunk_bytes: ChunkBytes { from_agents: 5, from_broker: 6, to_agents: 7 },
            still_us: vec![2_000],
            gone_us: vec![40_000],
            answer_us: vec![3_000, 1_000],
        };
        assert_eq!(metrics.take_unsent(), said);
        assert!(!metrics.has_unsent());
    }

    #[test]
    fn what_waits_for_the_broker_has_a_bound() {
        let metrics = Metrics::default();
        for _ in 0..UNSENT_TIMES_MAX + 1 {
            metrics.gone(Span::from_secs(86_400));
        }
        let mut said = 0;
        while metrics.has_unsent() {
            let part = metrics.take_unsent().gone_us;
            assert!(part.len() <= AGENT_TIMES_MAX && part.iter().all(|us| *us == u32::MAX));
            said += part.len();
        }
        assert_eq!(said, UNSENT_TIMES_MAX);
    }
}

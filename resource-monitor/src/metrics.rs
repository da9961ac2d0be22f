//! What the monitor counts and measures, as `/metrics` shows it.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::Totals;

/// What all names begin with.
const PREFIX: &str = "gleaner_monitor";
/// Upper ends of the buckets for hooks, in seconds.
const HOOK_S: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 20.0];

/// All counts since the monitor started. All of it may be shared between threads.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) preflights: Counter,
    pub(crate) postflights: Counter,
    pub(crate) samples: Counter,
    pub(crate) polls: Counter,
    pub(crate) failed_polls: Counter,
    pub(crate) openings: Counter,
    pub(crate) closings: Counter,
    pub(crate) events_sent: Counter,
    pub(crate) events_refused: Counter,
    pub(crate) broker_failures: Counter,
    pub(crate) refused_requests: Counter,
    pub(crate) recorded_lines: Counter,
    pub(crate) lost_lines: Counter,
    hook_release: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let hook_release = Histogram::new(HOOK_S);
        registry.register_with_unit(
            "hook_release",
            "Time from a preflight hook's start until nothing harvested was in the render's way, \
             as hooks say",
            Unit::Seconds,
            hook_release.clone(),
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        Self {
            preflights: counter("preflights", "Preflight events"),
            postflights: counter("postflights", "Postflight events"),
            samples: counter("samples", "Samples of agents"),
            polls: counter("polls", "Polls of the farm"),
            failed_polls: counter("polls_failed", "Polls that failed"),
            openings: counter("fragments_opened", "Openings, confirmations too"),
            closings: counter("fragments_closed", "Closings, reasons of closed hosts too"),
            events_sent: counter("broker_events_sent", "Events the broker took"),
            events_refused: counter("broker_events_refused", "Events it refused"),
            broker_failures: counter("broker_failures", "Requests to it that failed"),
            refused_requests: counter("requests_refused", "Requests refused"),
            recorded_lines: counter("recorded_lines", "Lines recorded"),
            lost_lines: counter("recorded_lines_lost", "Lines not recorded"),
            hook_release,
            registry,
        }
    }
}

impl Metrics {
    /// A preflight hook says how long it took.
    pub(crate) fn hook_released(&self, release_us: u64) {
        self.hook_release.observe(release_us as f64 / 1e6);
    }

    /// All of them, with what the monitor counts itself, in OpenMetrics' text format.
    pub(crate) fn render(&self, totals: &Totals, waiting_events: usize) -> String {
        let Totals { hosts, cores, bookings, fragments, fragment_cores, contradictions } = *totals;
        let mut now = Registry::with_prefix(PREFIX);
        for (name, help, value) in [
            ("hosts", "Hosts that are known", hosts),
            ("host_cores", "Cores of all hosts", cores),
            ("bookings", "Renders that run", bookings),
            ("fragments_open", "Hosts with free cores", fragments),
            ("fragment_cores", "Free cores", fragment_cores),
            ("broker_events_waiting", "Events the broker is yet to be told", waiting_events as u64),
        ] {
            let gauge: Gauge<u64, AtomicU64> = Gauge::default();
            gauge.set(value);
            now.register(name, help, gauge);
        }
        let disagreed: Counter = Counter::default();
        disagreed.inc_by(contradictions);
        now.register("contradictions", "Sources that disagreed", disagreed);
        let mut text = String::new();
        encode_registry(&mut text, &now)
            .and_then(|()| encode_registry(&mut text, &self.registry))
            .and_then(|()| encode_eof(&mut text))
            .expect("a string takes every text");
        text
    }
}

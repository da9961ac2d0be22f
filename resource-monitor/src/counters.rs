//! Counts of what the monitor did, and their text form for Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Totals;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All counts since the monitor started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
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
}

impl Counters {
    /// In Prometheus' text format.
    pub(crate) fn text(&self, totals: &Totals, waiting_events: usize) -> String {
        let mut text = String::new();
        let gauges = [
            ("hosts", "Hosts that are known.", totals.hosts),
            ("host_cores", "Cores of all hosts.", totals.cores),
            ("bookings", "Renders that run.", totals.bookings),
            ("fragments_open", "Hosts with free cores.", totals.fragments),
            ("fragment_cores", "Free cores.", totals.fragment_cores),
            (
                "broker_events_waiting",
                "Events the broker is yet to be told.",
                waiting_events as u64,
            ),
        ];
        let counters = [
            ("preflights_total", "Preflight events.", self.preflights.get()),
            ("postflights_total", "Postflight events.", self.postflights.get()),
            ("samples_total", "Samples of agents.", self.samples.get()),
            ("polls_total", "Polls of the farm.", self.polls.get()),
            ("polls_failed_total", "Polls that failed.", self.failed_polls.get()),
            ("fragments_opened_total", "Openings, confirmations too.", self.openings.get()),
            (
                "fragments_closed_total",
                "Closings, reasons of closed hosts too.",
                self.closings.get(),
            ),
            ("contradictions_total", "Sources that disagreed.", totals.contradictions),
            ("broker_events_sent_total", "Events the broker took.", self.events_sent.get()),
            ("broker_events_refused_total", "Events it refused.", self.events_refused.get()),
            ("broker_failures_total", "Requests to it that failed.", self.broker_failures.get()),
            ("requests_refused_total", "Requests refused.", self.refused_requests.get()),
            ("recorded_lines_total", "Lines recorded.", self.recorded_lines.get()),
            ("recorded_lines_lost_total", "Lines not recorded.", self.lost_lines.get()),
        ];
        let gauges = gauges.map(|row| ("gauge", row));
        let counters = counters.map(|row| ("counter", row));
        for (kind, (name, help, value)) in gauges.into_iter().chain(counters) {
            let name = format!("gleaner_monitor_{name}");
            writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}")
                .expect("a string takes every text");
        }
        text
    }
}

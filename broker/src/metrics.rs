//! Counters of the broker's life, in Prometheus' text format.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use gleaner_protocol::Origin;
use gleaner_protocol::control::Verdict;
use gleaner_scheduling::Core;

const VERDICTS: [(Verdict, &str); 8] = [
    (Verdict::Counted, "counted"),
    (Verdict::Duplicate, "duplicate"),
    (Verdict::OldToken, "old_token"),
    (Verdict::SecondVote, "second_vote"),
    (Verdict::Late, "late"),
    (Verdict::UnknownJob, "unknown_job"),
    (Verdict::Malformed, "malformed"),
    (Verdict::Spoiled, "spoiled"),
];

/// Counted outside the core.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    verdicts: [AtomicU64; 7],
    turns: AtomicU64,
    journal_bytes: AtomicU64,
    letters_dropped: AtomicU64,
    openings_refused: AtomicU64,
    results_damaged: AtomicU64,
    comparisons: [AtomicU64; 2],
}

impl Metrics {
    pub(crate) fn verdict(&self, verdict: Verdict) {
        let place = VERDICTS.iter().position(|(of, _)| *of == verdict);
        self.verdicts[place.expect("all verdicts are listed")].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn turn_committed(&self, bytes: u64) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.journal_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn letter_dropped(&self) {
        self.letters_dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn opening_refused(&self) {
        self.openings_refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn result_damaged(&self) {
        self.results_damaged.fetch_add(1, Ordering::Relaxed);
    }

    /// Two files of floating point were compared.
    pub(crate) fn compared(&self, are_alike: bool) {
        self.comparisons[usize::from(are_alike)].fetch_add(1, Ordering::Relaxed);
    }

    /// All of them, with the core's.
    pub(crate) fn render(&self, core: &CoreFigures) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, rows: &[(String, f64)]| {
            let _ = writeln!(text, "# HELP gleaner_{name} {help}\n# TYPE gleaner_{name} {kind}");
            for (labels, value) in rows {
                let _ = writeln!(text, "gleaner_{name}{labels} {value}");
            }
        };
        let plain = |value: f64| [(String::new(), value)];
        let verdicts: Vec<_> = VERDICTS
            .iter()
            .zip(&self.verdicts)
            .map(|((_, word), count)| {
                (format!("{{verdict=\"{word}\"}}"), count.load(Ordering::Relaxed) as f64)
            })
            .collect();
        let by_origin = |value: fn(&OriginFigures) -> u64| -> Vec<(String, f64)> {
            let rows = core.origins.iter();
            rows.map(|(origin, of)| (format!("{{origin=\"{origin}\"}}"), value(of) as f64))
                .collect()
        };
        family("reports_total", "counter", "Reports by verdict.", &verdicts);
        let replicas: Vec<_> = core
            .replicas
            .iter()
            .map(|(event, count)| (format!("{{event=\"{event}\"}}"), *count as f64))
            .collect();
        family("replicas_total", "counter", "What happened to replicas.", &replicas);
        family(
            "accepted_cpu_seconds_total",
            "counter",
            "CPU time of agreeing replicas.",
            &plain(core.accepted_cpu_us as f64 / 1e6),
        );
        family("jobs", "gauge", "Jobs known.", &plain(core.jobs as f64));
        family(
            "workunits_open",
            "gauge",
            "Workunits begun and not ended.",
            &plain(core.open as f64),
        );
        family("leases", "gauge", "Replicas leased.", &plain(core.leases as f64));
        family(
            "hosts_connected",
            "gauge",
            "Hosts whose agent is connected.",
            &by_origin(|of| of.connected),
        );
        family("slots", "gauge", "Slots that connected hosts give.", &by_origin(|of| of.slots));
        let turns = self.turns.load(Ordering::Relaxed);
        family(
            "turns_total",
            "counter",
            "Turns of the driver that were committed.",
            &plain(turns as f64),
        );
        let bytes = self.journal_bytes.load(Ordering::Relaxed);
        family("journal_bytes_total", "counter", "Bytes of facts written.", &plain(bytes as f64));
        let dropped = self.letters_dropped.load(Ordering::Relaxed);
        family(
            "letters_dropped_total",
            "counter",
            "Frames that a link could not take.",
            &plain(dropped as f64),
        );
        let refused = self.openings_refused.load(Ordering::Relaxed);
        family(
            "openings_refused_total",
            "counter",
            "Openings that came after a preflight.",
            &plain(refused as f64),
        );
        let comparisons: Vec<_> = ["unlike", "alike"]
            .iter()
            .zip(&self.comparisons)
            .map(|(result, count)| {
                (format!("{{result=\"{result}\"}}"), count.load(Ordering::Relaxed) as f64)
            })
            .collect();
        family(
            "comparisons_total",
            "counter",
            "Pairs of output files that were compared within a tolerance.",
            &comparisons,
        );
        let damaged = self.results_damaged.load(Ordering::Relaxed);
        family(
            "results_damaged",
            "gauge",
            "Results whose content the disk has lost, as found after the start.",
            &plain(damaged as f64),
        );
        text
    }
}

/// Figures read off the core.
#[derive(Debug)]
pub(crate) struct CoreFigures {
    replicas: [(&'static str, u64); 7],
    accepted_cpu_us: u64,
    jobs: u64,
    open: u64,
    leases: u64,
    origins: Vec<(Origin, OriginFigures)>,
}

#[derive(Debug, Default)]
struct OriginFigures {
    connected: u64,
    slots: u64,
}

impl CoreFigures {
    pub(crate) fn of(core: &Core) -> Self {
        let farm = core.farm();
        let totals = farm.totals();
        let origins = Origin::ALL.map(|origin| {
            let mut figures = OriginFigures::default();
            for (_, host) in farm.hosts().filter(|(_, host)| host.connected) {
                if host.origin() == origin {
                    figures.connected += 1;
                    figures.slots += u64::from(host.fragment.slots);
                }
            }
            (origin, figures)
        });
        Self {
            replicas: [
                ("leased", totals.leased),
                ("reported", totals.reported),
                ("failed", totals.failed),
                ("released", totals.released),
                ("aborted", totals.aborted),
                ("expired", totals.expired),
                ("disagreed", totals.disagreed),
            ],
            accepted_cpu_us: totals.accepted_cpu_us,
            jobs: farm.job_count() as u64,
            open: farm.open_count() as u64,
            leases: farm.lease_count() as u64,
            origins: origins.into(),
        }
    }
}

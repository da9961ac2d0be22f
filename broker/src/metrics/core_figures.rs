//! What the core counts itself, and how much there is of what it knows.

use std::sync::atomic::AtomicU64;

use gleaner_protocol::Origin;
use gleaner_protocol::api::{LaneStatus, ReplicaCounts};
use gleaner_scheduling::Core;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::api::lane_statuses;

/// One label.
type By = [(&'static str, &'static str); 1];

/// Figures read off the core.
#[derive(Debug)]
pub struct CoreFigures {
    replicas: ReplicaCounts,
    jobs: usize,
    open: usize,
    leases: usize,
    origins: [(Origin, OriginFigures); 2],
    lanes: Vec<LaneStatus>,
}

#[derive(Debug, Default)]
struct OriginFigures {
    connected: u64,
    cores: u64,
}

impl CoreFigures {
    /// Reads them.
    #[must_use]
    pub fn of(core: &Core) -> Self {
        let farm = core.farm();
        let origins = Origin::ALL.map(|origin| {
            let mut figures = OriginFigures::default();
            for (_, host) in farm.hosts().filter(|(_, host)| host.connected) {
                if host.origin() == origin {
                    figures.connected += 1;
                    figures.cores += u64::from(host.fragment.cores);
                }
            }
            (origin, figures)
        });
        Self {
            replicas: farm.totals(),
            jobs: farm.job_count(),
            open: farm.open_count(),
            leases: farm.lease_count(),
            origins,
            lanes: lane_statuses(core),
        }
    }

    /// As they are shown.
    pub(super) fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("gleaner");
        let replicas: Family<By, Counter> = Family::default();
        let ReplicaCounts {
            leased,
            reported,
            failed,
            released,
            aborted,
            expired,
            disagreed,
            accepted_cpu_us,
        } = self.replicas;
        for (event, count) in [
            ("leased", leased),
            ("reported", reported),
            ("failed", failed),
            ("released", released),
            ("aborted", aborted),
            ("expired", expired),
            ("disagreed", disagreed),
        ] {
            replicas.get_or_create(&[("event", event)]).inc_by(count);
        }
        registry.register("replicas", "What happened to replicas", replicas);
        let cpu_seconds: Counter<f64, AtomicU64> = Counter::default();
        cpu_seconds.inc_by(accepted_cpu_us as f64 / 1e6);
        registry.register_with_unit(
            "accepted_cpu",
            "CPU time of agreeing replicas",
            Unit::Seconds,
            cpu_seconds,
        );
        for (name, help, count) in [
            ("jobs", "Jobs known", self.jobs),
            ("workunits_open", "Workunits begun and not ended", self.open),
            ("leases", "Replicas leased", self.leases),
        ] {
            registry.register(name, help, gauge(count as u64));
        }
        let mut by_origin = |name: &str, help: &str, value: fn(&OriginFigures) -> u64| {
            let family: Family<By, Gauge<u64, AtomicU64>> = Family::default();
            for (origin, figures) in &self.origins {
                family.get_or_create(&[("origin", origin.as_str())]).set(value(figures));
            }
            registry.register(name, help, family);
        };
        by_origin("hosts_connected", "Hosts whose agent is connected", |of| of.connected);
        by_origin("cores_given", "Cores that connected hosts give", |of| of.cores);
        let mut by_lane = |name: &str, help: &str, value: fn(&LaneStatus) -> u64| {
            let family: Family<By, Gauge<u64, AtomicU64>> = Family::default();
            for of in &self.lanes {
                family.get_or_create(&[("lane", of.lane.as_str())]).set(value(of));
            }
            registry.register(name, help, family);
        };
        by_lane("lane_jobs", "Jobs that go on", |of| u64::from(of.jobs));
        by_lane("lane_millicores", "Thousandths of cores that replicas hold", |of| {
            of.held_permille
        });
        by_lane("lane_parked", "Replicas that stand still for lanes before their own", |of| {
            u64::from(of.parked)
        });
        registry
    }
}

fn gauge(value: u64) -> Gauge<u64, AtomicU64> {
    let gauge = Gauge::default();
    gauge.set(value);
    gauge
}

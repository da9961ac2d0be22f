//! Replicas per second of a kernel that does nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gleaner_agent::{Link, LinkTarget};
use gleaner_protocol::control::{
    AgentMessage, BrokerMessage, Fragment, Hello, Outcome, Report, Verdict,
};
use gleaner_protocol::{AgentSecret, Capabilities, HostInfo, HostName, Manifest, Origin, boottime};
use serde::Serialize;

use super::parts::{Part, noop_job, noop_kernel, status, submit};

const AGENTS: u32 = 16;
const SLOTS: u32 = 32;
const WORKUNITS: u32 = 100_000_000;
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
pub(crate) struct Noop {
    agents: u32,
    slots: u32,
    replicas_per_s: f64,
    broker_cpu_us_per_replica: f64,
    broker_resident_mib: f64,
    reports_counted: u64,
    decided_at_broker: u32,
}

pub(crate) async fn measure() -> Noop {
    let broker = Part::broker();
    let job = submit(&broker.line, &noop_job(WORKUNITS)).await;
    let counted = Arc::new(AtomicU64::new(0));
    let mut agents = tokio::task::JoinSet::new();
    for number in 0..AGENTS {
        agents.spawn(play(broker.line.clone(), number, Arc::clone(&counted)));
    }
    tokio::time::sleep(WARM_UP).await;
    let (begun, cpu, before) = (boottime(), broker.cpu_s(), counted.load(Ordering::Relaxed));
    tokio::time::sleep(MEASURED).await;
    let replicas = (counted.load(Ordering::Relaxed) - before) as f64;
    let (wall, cpu) = ((boottime() - begun).as_secs_f64(), broker.cpu_s() - cpu);
    let resident = broker.resident_mib();
    agents.shutdown().await;
    let reports_counted = counted.load(Ordering::Relaxed);
    let decided = status(&broker.line, job).await.decided;
    assert!(u64::from(decided) >= reports_counted, "a counted report was lost");
    Noop {
        agents: AGENTS,
        slots: SLOTS,
        replicas_per_s: replicas / wall,
        broker_cpu_us_per_replica: cpu * 1e6 / replicas,
        broker_resident_mib: resident,
        reports_counted,
        decided_at_broker: decided,
    }
}

/// Plays an agent whose replicas take no time. A slot asks again when its report was sent; a
/// replica counts when the broker has said that it is on disk.
async fn play(broker: String, number: u32, counted: Arc<AtomicU64>) {
    let target = LinkTarget::plain(broker);
    let mut link = Link::connect(&target).await.expect("a link");
    let fragment = Fragment { cores: SLOTS, ..Fragment::default() };
    let host = HostInfo {
        name: HostName::new(format!("agent{number}")).expect("a plain name"),
        origin: Origin::Desktop,
        owner: None,
        cores: SLOTS,
        memory_mib: 1024,
        capabilities: Capabilities {
            kernels: BTreeSet::from([noop_kernel()]),
            ..Capabilities::default()
        },
        kind: None,
        chunk_cache_mib: 0,
    };
    let secret = AgentSecret::new(u128::from(number).to_be_bytes());
    let hello = Hello { host, secret, incarnation: 1, fragment, held: Vec::new(), peer: None };
    link.send(&[AgentMessage::Hello(hello), AgentMessage::Request { cores: SLOTS }])
        .await
        .expect("sent");
    while let Ok(messages) = link.receive().await {
        let mut answers = Vec::with_capacity(messages.len() + 1);
        let mut done = 0;
        for message in messages {
            match message {
                BrokerMessage::Lease(lease) => {
                    done += 1;
                    answers.push(AgentMessage::Report(Report {
                        token: lease.token,
                        replica: lease.replica,
                        outcome: Outcome::Output(Manifest::default()),
                        cpu_us: 0,
                        measured: None,
                        wall_us: 0,
                        peak_memory_mib: None,
                    }));
                }
                BrokerMessage::Verdict { verdict, .. } => {
                    assert_eq!(verdict, Verdict::Counted);
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        if done > 0 {
            answers.push(AgentMessage::Request { cores: done });
            if link.send(&answers).await.is_err() {
                return;
            }
        }
    }
}

impl fmt::Display for Noop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "noop    {} agents x {} slots: {:.0} replicas/s, {:.1} us of broker CPU each; broker {:.0} MiB after {} of them",
            self.agents,
            self.slots,
            self.replicas_per_s,
            self.broker_cpu_us_per_replica,
            self.broker_resident_mib,
            self.reports_counted
        )
    }
}

//! How long a large job takes to be accepted, and what it costs in memory.

use std::fmt;

use gleaner_protocol::boottime;
use serde::Serialize;

use super::parts::{Part, noop_job, submit};

const WORKUNITS: u32 = 1_000_000;
const TRIES: usize = 7;

#[derive(Debug, Serialize)]
pub(crate) struct Accepted {
    workunits: u32,
    accept_ms_median: f64,
    accept_ms_max: f64,
    resident_mib: f64,
}

pub(crate) async fn measure() -> Accepted {
    let mut times = Vec::new();
    let mut resident_mib = 0.0;
    for _ in 0..TRIES {
        let broker = Part::broker();
        // A job of one first, so that the connection and the code are there for both.
        submit(&broker.line, &noop_job(1)).await;
        let begun = boottime();
        submit(&broker.line, &noop_job(WORKUNITS)).await;
        times.push((boottime() - begun).as_secs_f64() * 1e3);
        resident_mib = broker.resident_mib().max(resident_mib);
    }
    times.sort_by(f64::total_cmp);
    Accepted {
        workunits: WORKUNITS,
        accept_ms_median: times[TRIES / 2],
        accept_ms_max: times[TRIES - 1],
        resident_mib,
    }
}

impl fmt::Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "accept  {} workunits: {:.1} ms median, {:.1} ms at most; broker {:.1} MiB resident after it",
            self.workunits, self.accept_ms_median, self.accept_ms_max, self.resident_mib
        )
    }
}

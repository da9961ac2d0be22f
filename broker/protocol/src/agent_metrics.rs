//! What an agent counts and measures, as it tells the broker from time to time.

use serde::{Deserialize, Serialize};

use crate::limits::AGENT_TIMES_MAX;

/// What an agent has counted and measured since it said so last.
///
/// The broker adds up those of all agents, and drops the times of a list that are more than
/// [`AGENT_TIMES_MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentMetrics {
    /// Calls of hooks.
    pub hooks: HookCalls,
    /// Replicas that ended.
    pub replicas: ReplicaEnds,
    /// Links to the broker that broke.
    pub links_lost: u32,
    /// Bytes of chunks that travelled.
    pub chunk_bytes: ChunkBytes,
    /// From the request of each preflight hook until all that was in its render's way stood still,
    /// in microseconds.
    pub still_us: Vec<u32>,
    /// From the request of each preflight hook that stopped something until that was gone, in
    /// microseconds.
    pub gone_us: Vec<u32>,
    /// From each hook's request until its answer, in microseconds.
    pub answer_us: Vec<u32>,
}

/// Calls of hooks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookCalls {
    /// Of preflights.
    pub preflight: u32,
    /// Of postflights.
    pub postflight: u32,
}

/// Bytes of copies of chunks, by the way they went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkBytes {
    /// Fetched from other agents.
    pub from_agents: u64,
    /// Fetched from the broker.
    pub from_broker: u64,
    /// Sent to other agents.
    pub to_agents: u64,
}

/// Replicas by how they ended on their host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaEnds {
    /// With an output.
    pub output: u32,
    /// They ran and failed.
    pub failed: u32,
    /// They could not run there.
    pub cannot_run: u32,
    /// They were stopped for a render or the owner.
    pub preempted: u32,
}

impl AgentMetrics {
    /// Whether there is nothing to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The most that may be sent at once; the rest stays.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let Self { hooks, replicas, links_lost, chunk_bytes, still_us, gone_us, answer_us } = self;
        let first = |times: &mut Vec<u32>| {
            let rest = times.split_off(times.len().min(AGENT_TIMES_MAX));
            std::mem::replace(times, rest)
        };
        Self {
            hooks: std::mem::take(hooks),
            replicas: std::mem::take(replicas),
            links_lost: std::mem::take(links_lost),
            chunk_bytes: std::mem::take(chunk_bytes),
            still_us: first(still_us),
            gone_us: first(gone_us),
            answer_us: first(answer_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_said_the_next_time() {
        let mut metrics = AgentMetrics {
            links_lost: 2,
            still_us: vec![7; AGENT_TIMES_MAX + 1],
            ..AgentMetrics::default()
        };
        let said = metrics.take();
        assert_eq!((said.links_lost, said.still_us.len()), (2, AGENT_TIMES_MAX));
        let rest = AgentMetrics { still_us: vec![7], ..AgentMetrics::default() };
        assert_eq!(metrics, rest);
        assert_eq!(metrics.take(), rest);
        assert!(metrics.is_empty());
    }
}

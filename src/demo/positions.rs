//! What the demo computes: chess positions whose numbers of move paths were published.

use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{KernelName, OwnerName};

/// A position with the published number of move paths of a depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) name: &'static str,
    pub(super) fen: &'static str,
    pub(super) depth: u8,
    pub(super) paths: u64,
}

/// Source: `perftsuite.epd` of vinc/littlewing (MIT). The names are ours.
pub(super) const POSITIONS: [Position; 10] = [
    Position {
        name: "the first position",
        fen: "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
        depth: 6,
        paths: 119_060_324,
    },
    Position {
        name: "all kinds of moves",
        fen: "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
        depth: 5,
        paths: 193_690_690,
    },
    Position {
        name: "castling on both sides",
        fen: "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1",
        depth: 6,
        paths: 179_862_938,
    },
    Position {
        name: "promotions, white begins",
        fen: "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N w - - 0 1",
        depth: 6,
        paths: 71_179_139,
    },
    Position {
        name: "castling, a rook moved",
        fen: "r3k2r/8/8/8/8/8/8/1R2K2R w Kkq - 0 1",
        depth: 6,
        paths: 195_629_489,
    },
    Position {
        name: "rooks in the corners",
        fen: "R6r/8/8/2K5/5k2/8/8/r6R w - - 0 1",
        depth: 6,
        paths: 525_169_084,
    },
    Position {
        name: "castling, black lost a side",
        fen: "1r2k2r/8/8/8/8/8/8/R3K2R w KQk - 0 1",
        depth: 6,
        paths: 198_328_929,
    },
    Position {
        name: "promotions, black begins",
        fen: "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N b - - 0 1",
        depth: 6,
        paths: 71_179_139,
    },
    Position {
        name: "castling, white lost a side",
        fen: "r3k2r/8/8/8/8/8/8/R3K1R1 w Qkq - 0 1",
        depth: 6,
        paths: 189_224_276,
    },
    Position {
        name: "four rooks",
        fen: "7k/RR6/8/8/8/8/rr6/7K w - - 0 1",
        depth: 6,
        paths: 44_956_585,
    },
];

/// Plies that a position is split over: one workunit per first move.
const SPLIT_PLIES: u8 = 1;
/// Replicas of each workunit, on as many hosts.
const REPLICATION: u8 = 3;
/// Equal counts that decide one.
const QUORUM: u8 = 2;

impl Position {
    /// The job that counts its move paths: the sum over its workunits.
    pub(super) fn job(&self) -> anyhow::Result<JobSpec> {
        let items = gleaner_agent::gametree::split(self.fen, self.depth, SPLIT_PLIES)?;
        Ok(JobSpec {
            name: self.name.into(),
            owner: OwnerName::new("demo")?,
            project: None,
            lane: Lane::Background,
            task: Task::Kernel(KernelName::new("gametree")?),
            workunits: Workunits::Items(items.into()),
            replication: REPLICATION,
            quorum: Some(QUORUM),
            max_replicas: None,
            lease_s: 600,
            profile: Default::default(),
            trust: Default::default(),
            on_release: Default::default(),
            attempts: Default::default(),
            on: None,
            cores_permille: gleaner_protocol::Share::WHOLE,
            gpus: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_is_a_job_that_the_broker_accepts() {
        for position in POSITIONS {
            let job = position.job().expect(position.fen);
            assert_eq!(job.check(), Ok(()), "{}", position.name);
            assert!(job.workunits.len() >= 10, "{}", position.name);
        }
    }
}

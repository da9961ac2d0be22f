//! All players together.

use std::collections::BTreeSet;
use std::sync::Arc;

use gleaner_protocol::{HostName, Origin, OwnerName};
use tokio::task::JoinSet;

use crate::draw::Draw;
use crate::farmhand::{Farmhand, Host, Temper};
use crate::listener::listen;
use crate::plan::Mix;
use crate::stage::Stage;
use crate::submitter::Submitter;

/// What the load looks like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) seed: u64,
    pub(crate) submitters: u64,
    pub(crate) cores: u32,
    /// Milliseconds that a replica takes at most.
    pub(crate) work_ms_max: u64,
    pub(crate) mix: Mix,
}

/// The players, as tasks.
pub(crate) struct Crew {
    submitters: JoinSet<()>,
    others: JoinSet<()>,
}

impl Crew {
    /// Five hosts on either side, of which one lies, one fails at times, and two vote as one.
    pub(crate) fn hire(stage: &Arc<Stage>, load: Load) -> Self {
        let mut others = JoinSet::new();
        others.spawn(listen(Arc::clone(stage)));
        for (number, host) in hosts(load).into_iter().enumerate() {
            let draw = Draw::new(load.seed, 1_000 + number as u64);
            others.spawn(Farmhand::new(Arc::clone(stage), host, draw).run());
        }
        let mut submitters = JoinSet::new();
        for number in 0..load.submitters {
            let submitter = Submitter {
                stage: Arc::clone(stage),
                name: format!("s{number}"),
                draw: Draw::new(load.seed, 2_000 + number),
                mix: load.mix,
                mine: BTreeSet::new(),
                unwanted: BTreeSet::new(),
            };
            submitters.spawn(submitter.run());
        }
        Self { submitters, others }
    }

    /// Waits until the submitters have what they want; the act must have closed.
    pub(crate) async fn submitters_done(&mut self) {
        while let Some(done) = self.submitters.join_next().await {
            done.expect("no submitter panics");
        }
    }

    /// Sends everybody home.
    pub(crate) async fn dismiss(mut self) {
        self.submitters.abort_all();
        self.others.abort_all();
        for tasks in [&mut self.submitters, &mut self.others] {
            while let Some(ended) = tasks.join_next().await {
                if let Err(error) = ended {
                    assert!(error.is_cancelled(), "a player panicked: {error}");
                }
            }
        }
    }
}

fn hosts(load: Load) -> Vec<Host> {
    let tempers = [Temper::Honest, Temper::Honest, Temper::Liar, Temper::Frail, Temper::Honest];
    let of = |origin: Origin| {
        tempers.into_iter().enumerate().map(move |(number, temper)| Host {
            name: HostName::new(format!("{origin}{number}")).expect("a plain name"),
            origin,
            owner: (number == 0 || number == 4)
                .then(|| OwnerName::new(format!("{origin}-lab")).expect("a plain name")),
            temper,
            cores: load.cores,
            work_ms_max: load.work_ms_max,
        })
    };
    Origin::ALL.into_iter().flat_map(of).collect()
}

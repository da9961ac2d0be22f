//! Jobs that submitters send, and what must come of them.

use gleaner_protocol::api::JobState;
use gleaner_protocol::job::{Attempts, JobSpec, Lane, Task, Workunits};
use gleaner_protocol::limits::ATTEMPTS_MAX;
use gleaner_protocol::{KernelName, OwnerName};

use crate::draw::Draw;

/// What the hosts do with a job's workunits; the kernel's name says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// One replica decides; nobody lies.
    Once,
    /// Three replicas, two must agree; some hosts lie.
    Voted,
    /// Every replica fails.
    Doomed,
    /// So large that it must be cancelled.
    Endless,
}

impl Fate {
    pub(crate) const ALL: [Self; 4] = [Self::Once, Self::Voted, Self::Doomed, Self::Endless];

    pub(crate) fn kernel(self) -> KernelName {
        KernelName::new(match self {
            Self::Once => "once",
            Self::Voted => "voted",
            Self::Doomed => "doomed",
            Self::Endless => "endless",
        })
        .expect("a plain name")
    }

    pub(crate) fn of(task: &Task) -> Self {
        let Task::Kernel(kernel) = task else { panic!("only kernels were asked for: {task:?}") };
        Self::ALL.into_iter().find(|fate| fate.kernel() == *kernel).expect("a kernel of ours")
    }

    /// The final states that such a job can come to.
    pub(crate) fn allows(self, state: JobState) -> bool {
        match self {
            Self::Once | Self::Voted => matches!(state, JobState::Completed | JobState::Cancelled),
            Self::Doomed => matches!(state, JobState::Failed | JobState::Cancelled),
            Self::Endless => state == JobState::Cancelled,
        }
    }
}

/// Attempts that fail before a workunit of a doomed job does.
const DOOMED_AFTER: u16 = 2;

/// Which kinds of jobs there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix {
    /// Bytes of an item of the jobs that have large ones.
    pub(crate) item_bytes: u64,
    /// One job in so many has large items.
    pub(crate) large_one_in: u64,
}

/// A job to submit. Its name is its own.
pub(crate) fn draw_job(draw: &mut Draw, name: String, mix: Mix) -> JobSpec {
    let (fate, workunits) = match draw.from(0..20) {
        0 => (Fate::Doomed, Workunits::Count(draw.from(1..4) as u32)),
        1 => (Fate::Endless, Workunits::Count(100_000)),
        kind if draw.one_in(mix.large_one_in) => {
            let fate = if kind % 2 == 0 { Fate::Once } else { Fate::Voted };
            let items = (0..draw.from(4..24)).map(|_| draw_item(draw, mix.item_bytes)).collect();
            (fate, Workunits::Items(items))
        }
        kind if kind % 2 == 0 => (Fate::Once, Workunits::Count(draw.from(1..60) as u32)),
        _ => (Fate::Voted, Workunits::Count(draw.from(1..30) as u32)),
    };
    let owner = format!("owner{}", draw.from(0..3));
    // Hosts that fail at times do not make a job fail.
    let failed = if fate == Fate::Doomed { DOOMED_AFTER } else { ATTEMPTS_MAX };
    JobSpec {
        name,
        owner: OwnerName::new(owner).expect("a plain name"),
        project: None,
        lane: Lane::Background,
        task: Task::Kernel(fate.kernel()),
        workunits,
        replication: if fate == Fate::Voted { 3 } else { 1 },
        quorum: (fate == Fate::Voted).then_some(2),
        max_replicas: None,
        lease_s: 3_600,
        profile: Default::default(),
        trust: Default::default(),
        on_release: Default::default(),
        attempts: Attempts { failed, lost: ATTEMPTS_MAX, timed_out: ATTEMPTS_MAX },
        on: None,
        cores_permille: gleaner_protocol::Share::WHOLE,
        gpus: 0,
    }
}

fn draw_item(draw: &mut Draw, bytes: u64) -> String {
    let bytes = draw.from(bytes / 2..bytes);
    let mut item = String::new();
    while (item.len() as u64) < bytes {
        item.push_str(&format!("{:016x}\n", draw.next()));
    }
    item
}

//! Records into rows.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use gleaner_protocol::api::{HistoryBy, ReplicaOutcome, UsageBy, UsageRow};
use gleaner_protocol::{Account, HostName, JobId, OwnerName, ProjectName};
use gleaner_scheduling::limits::USAGE_HALF_LIFE_S;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thiserror::Error;

use super::record::{EndedReplica, OutputMark, UsageRecord};
use super::segments::read;
use crate::limits::USAGE_ROWS_MAX;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsageQuery {
    pub(crate) by: UsageBy,
    /// A row for each minute, hour or day as well; for all time where there is none.
    pub(crate) each: Option<HistoryBy>,
    /// When the replicas ended, in milliseconds of UTC.
    pub(crate) within_ms: Range<u64>,
    /// Which of them, where not all are asked for.
    pub(crate) of: Option<Whose>,
}

impl UsageQuery {
    fn is_of(&self, ended: &EndedReplica) -> bool {
        self.of.as_ref().is_none_or(|whose| whose.is_of(ended))
    }

    /// Whether a replica is asked for.
    fn concerns(&self, ended: &EndedReplica) -> bool {
        self.is_of(ended) && self.within_ms.contains(&ended.ended_ms)
    }
}

/// Replicas that have to do with an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Of the owner's jobs.
    Jobs(OwnerName),
    /// On the owner's hosts.
    Hosts(OwnerName),
}

impl Whose {
    fn is_of(&self, ended: &EndedReplica) -> bool {
        match self {
            Self::Jobs(owner) => *owner == ended.owner,
            Self::Hosts(owner) => ended.host_owner.as_ref() == Some(owner),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum UsageError {
    #[error("more than {USAGE_ROWS_MAX} rows: ask for less time, or by something else")]
    TooMany,
    #[error("the records cannot be read")]
    Disk(#[from] io::Error),
    #[error("the broker ends")]
    Ends,
}

/// The rows of a query, in the order of what they are of.
pub(super) fn sum(segments: &[PathBuf], query: &UsageQuery) -> Result<Vec<UsageRow>, UsageError> {
    let mut sums = Sums::default();
    for path in segments {
        read(path, |record| sums.take(query, record))?;
        if sums.rows.len() > USAGE_ROWS_MAX {
            return Err(UsageError::TooMany);
        }
    }
    Ok(sums.rows())
}

/// What each account has used by then, in core-seconds that count half after the half-life: of replicas
/// that had ended.
pub(super) fn used(
    segments: &[PathBuf],
    until_ms: u64,
) -> Result<BTreeMap<Account, f64>, UsageError> {
    let mut used = BTreeMap::new();
    for path in segments {
        read(path, |record| {
            let UsageRecord::Ended(ended) = record else { return };
            if ended.ended_ms < until_ms {
                let ago_s = (until_ms - ended.ended_ms) as f64 / 1e3;
                let counts = (-ago_s / USAGE_HALF_LIFE_S).exp2() * ended.slot_us as f64 / 1e6;
                let account = Account::of(ended.project.as_ref(), &ended.owner);
                *used.entry(account).or_default() += counts;
            }
        })?;
        if used.len() > USAGE_ROWS_MAX {
            return Err(UsageError::TooMany);
        }
    }
    Ok(used)
}

/// What a row is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Project(Option<ProjectName>),
    Owner(OwnerName),
    Job(JobId),
    Host(HostName),
    HostOwner(Option<OwnerName>),
    Outcome(ReplicaOutcome),
}

impl Key {
    fn of(by: UsageBy, ended: &EndedReplica) -> Self {
        match by {
            UsageBy::Project => Self::Project(ended.project.clone()),
            UsageBy::Owner => Self::Owner(ended.owner.clone()),
            UsageBy::Job => Self::Job(ended.job),
            UsageBy::Host => Self::Host(ended.host.clone()),
            UsageBy::HostOwner => Self::HostOwner(ended.host_owner.clone()),
            UsageBy::Outcome => Self::Outcome(ended.outcome),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    slot_us: u64,
    cpu_us: u64,
    replicas: u64,
    accepted: u64,
    charged_us: u64,
    credit_us: u64,
}

/// A counted replica whose workunit is not decided yet.
#[derive(Debug)]
struct Vote {
    output: OutputMark,
    /// None where it is not asked for.
    row: Option<usize>,
    slot_us: u64,
    /// What its agent said, at most what it had of a core.
    cpu_us: u64,
    /// Whether its host is the job's owner's.
    is_own: bool,
}

#[derive(Debug, Default)]
struct Sums {
    /// By when it begins and what it is of.
    numbers: BTreeMap<(Option<u64>, Key), usize>,
    rows: Vec<Sum>,
    undecided: FxHashMap<(JobId, u32), SmallVec<[Vote; 2]>>,
}

impl Sums {
    fn take(&mut self, query: &UsageQuery, record: UsageRecord) {
        match record {
            UsageRecord::Ended(ended) => self.ended(query, &ended),
            UsageRecord::Took(ended) => {
                if query.concerns(&ended) {
                    let row = self.row(query, &ended);
                    self.rows[row].cpu_us = self.rows[row].cpu_us.saturating_add(ended.cpu_us);
                }
            }
            UsageRecord::Decided { job, index, output } => {
                let votes = self.undecided.remove(&(job, index)).unwrap_or_default();
                let accepted = || votes.iter().filter(|vote| vote.output == output);
                // Who says more than others earns no more.
                let credit_us = accepted().map(|vote| vote.cpu_us).min().unwrap_or(0);
                for vote in accepted() {
                    let Some(row) = vote.row.and_then(|row| self.rows.get_mut(row)) else {
                        continue;
                    };
                    row.accepted += 1;
                    row.charged_us = row.charged_us.saturating_add(vote.slot_us);
                    if !vote.is_own {
                        row.credit_us = row.credit_us.saturating_add(credit_us);
                    }
                }
            }
        }
    }

    fn ended(&mut self, query: &UsageQuery, ended: &EndedReplica) {
        let is_of = query.is_of(ended);
        if !is_of && matches!(query.of, Some(Whose::Jobs(_))) {
            // All votes of a workunit are of the job's owner.
            return;
        }
        let row = query.concerns(ended).then(|| self.count(query, ended));
        if let Some(output) = ended.output {
            let votes = self.undecided.entry((ended.job, ended.index)).or_default();
            let (slot_us, cpu_us) = (ended.slot_us, ended.cpu_us.min(ended.slot_us));
            let is_own = ended.host_owner.as_ref() == Some(&ended.owner);
            votes.push(Vote { output, row, slot_us, cpu_us, is_own });
        }
    }

    /// Counts a replica in its row.
    fn count(&mut self, query: &UsageQuery, ended: &EndedReplica) -> usize {
        let row = self.row(query, ended);
        let sum = &mut self.rows[row];
        sum.slot_us = sum.slot_us.saturating_add(ended.slot_us);
        sum.cpu_us = sum.cpu_us.saturating_add(ended.cpu_us);
        sum.replicas += 1;
        row
    }

    /// Which row is a replica's.
    fn row(&mut self, query: &UsageQuery, ended: &EndedReplica) -> usize {
        let next = self.rows.len();
        let start_ms = query.each.map(|each| ended.ended_ms - ended.ended_ms % each.length_ms());
        let row = *self.numbers.entry((start_ms, Key::of(query.by, ended))).or_insert(next);
        if row == next {
            self.rows.push(Sum::default());
        }
        row
    }

    fn rows(self) -> Vec<UsageRow> {
        let Self { numbers, rows, .. } = self;
        numbers.into_iter().map(|(key, row)| row_of(key, rows[row])).collect()
    }
}

fn row_of((start_ms, key): (Option<u64>, Key), sum: Sum) -> UsageRow {
    let seconds = |us: u64| us as f64 / 1e6;
    let mut row = UsageRow {
        start_ms,
        project: None,
        owner: None,
        job: None,
        host: None,
        host_owner: None,
        outcome: None,
        slot_s: seconds(sum.slot_us),
        cpu_s: seconds(sum.cpu_us),
        gpu_s: 0.0,
        replicas: sum.replicas,
        accepted: sum.accepted,
        charged_s: seconds(sum.charged_us),
        credit_s: seconds(sum.credit_us),
    };
    match key {
        Key::Project(project) => row.project = project,
        Key::Owner(owner) => row.owner = Some(owner),
        Key::Job(job) => row.job = Some(job),
        Key::Host(host) => row.host = Some(host),
        Key::HostOwner(owner) => row.host_owner = owner,
        Key::Outcome(outcome) => row.outcome = Some(outcome),
    }
    row
}

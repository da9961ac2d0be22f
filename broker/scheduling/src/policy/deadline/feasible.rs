//! Whether tasks can be done in time on equal cores, all of which are free from now on: the one test
//! of admission and of what is said of a promise later.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use gleaner_protocol::{Share, Time};

use super::book::{Entry, Task};
use super::estimate::work_us;

/// A task that has not ended, for a plan that begins now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// What it has of the cores while it runs.
    pub(super) share: Share,
    /// How long it still runs, in microseconds.
    pub(super) left_us: u64,
    /// Whether it has its cores and keeps them.
    pub(super) is_pinned: bool,
}

/// A job with what is left of it.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    /// Until it is due, in microseconds.
    pub(super) until_us: u64,
    pub(super) tasks: Vec<Piece>,
    /// Whether its tasks can be interrupted at no cost.
    pub(super) is_movable: bool,
}

impl Rest {
    /// Of a promised job, with what is left of each of its tasks in microseconds of a whole core.
    pub(super) fn of(entry: &Entry, now: Time, left_us: impl Fn(&Task) -> u64) -> Self {
        let piece = |(_, task): (u32, &Task)| Piece {
            share: entry.share,
            left_us: entry.lasts_us(left_us(task)),
            is_pinned: task.run.is_some() && !entry.is_movable(),
        };
        Self {
            until_us: entry.due.since(now).as_micros(),
            tasks: entry.open().map(piece).collect(),
            is_movable: entry.is_movable(),
        }
    }

    /// The same job with as little time taken as there is: what is late in any case is in nobody's way
    /// for longer.
    pub(super) fn in_time(mut self) -> Self {
        self.tasks.iter_mut().for_each(|task| task.left_us = task.left_us.min(self.until_us));
        self
    }

    /// What is left of it, in microseconds of a whole core.
    pub(super) fn work_us(&self) -> u64 {
        let work = self.tasks.iter().map(|task| work_us(task.share, task.left_us));
        work.fold(0, u64::saturating_add)
    }

    /// Times of whole cores, one at a time, that do as much as its tasks do. Where tasks have parts of
    /// cores, they are thought to share cores without gaps.
    fn on_whole_cores(&self) -> impl Iterator<Item = u64> {
        // Of the core that is being filled: what of it, in thousandths, and with so many thousandths
        // of core-microseconds.
        let (mut filled, mut work) = (0, 0_u128);
        let mut tasks = self.tasks.iter();
        let mut task = tasks.next().copied();
        std::iter::from_fn(move || {
            while let Some(of) = &mut task {
                let more = of.share.min(Share::permille(1_000 - filled));
                filled += more.as_permille();
                work += u128::from(more.as_permille()) * u128::from(of.left_us);
                of.share = of.share.minus(more);
                if of.share == Share::NONE {
                    task = tasks.next().copied();
                }
                if filled == 1_000 {
                    break;
                }
            }
            filled = 0;
            let work_us = std::mem::take(&mut work).div_ceil(1_000);
            (work_us > 0).then(|| u64::try_from(work_us).unwrap_or(u64::MAX))
        })
    }
}

/// Whether so many cores can do all of it in time, the rests in the order in which they are due. Exact
/// where all tasks have whole cores and can be moved; where some cannot, what the policy does if
/// nothing changes has to do it.
///
/// # Errors
/// The place of the first job that is late.
pub(super) fn fit(cores: u32, rests: &[Rest]) -> Result<(), usize> {
    fit_moved(cores, rests)?;
    if rests.iter().all(|rest| rest.is_movable) {
        return Ok(());
    }
    late(cores, rests).first().map_or(Ok(()), |at| Err(*at))
}

/// The same if tasks are moved at will.
///
/// # Errors
/// The place of the first job that cannot be done beside those that are due before it.
///
/// Source: S. Sahni, "Preemptive Scheduling with Due Dates", 1979.
pub(super) fn fit_moved(cores: u32, rests: &[Rest]) -> Result<(), usize> {
    // How far each core is taken, the least first. A task goes on one core, or on the end of one and
    // then, earlier, on the beginning of what another has left: never on two at a time.
    let mut taken_us = vec![0_u64; cores as usize];
    for (at, rest) in rests.iter().enumerate() {
        let due_us = rest.until_us;
        for work_us in rest.on_whole_cores() {
            let latest_us = due_us.checked_sub(work_us).ok_or(at)?;
            // The last core on which it still fits, and the one behind it, on which it does not.
            let fits = taken_us.partition_point(|taken_us| *taken_us <= latest_us);
            let place = fits.checked_sub(1).ok_or(at)?;
            let behind = taken_us.get(fits).copied().filter(|behind_us| *behind_us < due_us);
            let more_us = match behind.filter(|_| taken_us[place] < latest_us) {
                Some(behind_us) => {
                    taken_us[fits..].rotate_left(1);
                    taken_us[cores as usize - 1] = due_us;
                    work_us - (due_us - behind_us)
                }
                None => work_us,
            };
            let now_us = taken_us[place] + more_us;
            let shorter = taken_us[place + 1..].partition_point(|taken_us| *taken_us < now_us);
            taken_us[place..=place + shorter].rotate_left(1);
            taken_us[place + shorter] = now_us;
        }
    }
    Ok(())
}

/// The places of the jobs that are late if so many cores do this, each task on its share of them
/// without interruption: what is pinned goes on, and where cores are free the one begins that can wait
/// least. That is what the policy does while nothing changes.
pub(super) fn late<'a>(cores: u32, rests: impl IntoIterator<Item = &'a Rest>) -> BTreeSet<usize> {
    let pieces = rests
        .into_iter()
        .enumerate()
        .flat_map(|(job, rest)| rest.tasks.iter().map(move |piece| (job, rest.until_us, *piece)));
    let mut pieces: Vec<(usize, u64, Piece)> = pieces.collect();
    pieces.sort_by_key(|(job, until_us, piece)| {
        (!piece.is_pinned, until_us.saturating_sub(piece.left_us), *job)
    });
    let mut free = Free::new(cores);
    let mut late = BTreeSet::new();
    for (job, until_us, piece) in pieces {
        let end_us = free.run(piece);
        if end_us.is_none_or(|end_us| end_us > until_us) {
            late.insert(job);
        }
    }
    late
}

/// When cores are free, the first ones first: so many thousandths of one from a time on.
struct Free {
    all: u64,
    from: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Free {
    fn new(cores: u32) -> Self {
        let all = u64::from(cores) * 1_000;
        Self { all, from: [Reverse((0, all))].into() }
    }

    /// Has a task run on the first that are enough for it; when it ends. None where there are never
    /// as many.
    fn run(&mut self, piece: Piece) -> Option<u64> {
        let wanted = u64::from(piece.share.as_permille());
        if wanted > self.all {
            return None;
        }
        let (mut taken, mut from_us) = (0, 0);
        while taken < wanted {
            let Reverse((at_us, of)) = self.from.pop().expect("no more is wanted than there is");
            (taken, from_us) = (taken + of, at_us);
        }
        let end_us = from_us.saturating_add(piece.left_us);
        // What is more than enough is free as before.
        let after = [(from_us, taken - wanted), (end_us, wanted)];
        self.from.extend(after.into_iter().filter(|(_, of)| *of > 0).map(Reverse));
        Some(end_us)
    }
}

#[cfg(test)]
mod tests;

//! Who sends which pixels to whom.

use std::ops::Range;

use thiserror::Error;

use crate::limits::{PART_MESSAGE_PIXELS_MAX, PARTS_MAX, PIXELS_MAX};

/// How pictures are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Everyone sends to everyone, once.
    DirectSend,
    /// Halves, for powers of two.
    BinarySwap,
    /// Halves and thirds, for any number of parts.
    TwoThreeSwap,
}

/// Some pixels that one part gets from another, or keeps of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// Who has them.
    pub from: usize,
    /// Who gets them.
    pub to: usize,
    /// Which, in order of rows.
    pub pixels: Range<usize>,
}

impl Transfer {
    /// How many messages it takes.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.pixels.len().div_ceil(PART_MESSAGE_PIXELS_MAX)
    }

    /// The pixels that one of its messages stands for. They follow each other, and all are as many,
    /// give or take one.
    ///
    /// # Panics
    /// It takes no messages.
    #[must_use]
    pub fn pixels_of(&self, message: usize) -> Range<usize> {
        let (count, messages) = (self.pixels.len(), self.messages());
        let cut = |message: usize| self.pixels.start + message * count / messages;
        cut(message)..cut(message + 1)
    }
}

/// Who sends which pixels to whom, round by round; the same at all parts.
///
/// # Invariants
/// The transfers of a round are in order of receivers, and for each in order of depth of senders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    parts: usize,
    size: [usize; 2],
    root: usize,
    rounds: Vec<Vec<Transfer>>,
    /// What each part holds after each round.
    held: Vec<Vec<Range<usize>>>,
}

/// Why there is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// Too few or too many parts.
    #[error("{0} parts: give 1 to {PARTS_MAX}")]
    Parts(usize),
    /// A part that is not there.
    #[error("the picture is gathered at part {root} of {parts}: number them from 0")]
    Root {
        /// Which.
        root: usize,
        /// How many there are.
        parts: usize,
    },
    /// A picture that is too large.
    #[error("{} x {} pixels: at most {PIXELS_MAX} in all are put together", .0[0], .0[1])]
    Size([usize; 2]),
    /// Parts that cannot be halved.
    #[error("binary swap of {0} parts: use a power of two, or 2-3 swap")]
    NoPowerOfTwo(usize),
}

/// A part and the pixels that it holds of its group's picture.
type Holding = (usize, Range<usize>);

impl Schedule {
    /// A schedule for pictures of `size` pixels at so many parts, gathered at `root`.
    ///
    /// # Errors
    /// There are no parts, too many, or not as many as the method takes; no such root; or too many
    /// pixels.
    pub fn new(
        method: Method,
        parts: usize,
        size: [usize; 2],
        root: usize,
    ) -> Result<Self, ScheduleError> {
        let pixels = size[0].checked_mul(size[1]).filter(|pixels| *pixels <= PIXELS_MAX);
        let pixels = pixels.ok_or(ScheduleError::Size(size))?;
        if !(1..=PARTS_MAX).contains(&parts) {
            return Err(ScheduleError::Parts(parts));
        }
        if root >= parts {
            return Err(ScheduleError::Root { root, parts });
        }
        let height = match method {
            Method::DirectSend => u32::from(parts > 1),
            Method::BinarySwap if !parts.is_power_of_two() => {
                return Err(ScheduleError::NoPowerOfTwo(parts));
            }
            Method::BinarySwap | Method::TwoThreeSwap => parts.ilog2(),
        };
        let mut schedule = Self {
            parts,
            size,
            root,
            rounds: vec![Vec::new(); height as usize],
            held: vec![vec![0..0; parts]; height as usize],
        };
        let holdings = schedule.group(method, 0..parts, height);
        let gather = holdings.into_iter().map(|(from, pixels)| Transfer { from, to: root, pixels });
        schedule.rounds.push(gather.collect());
        let all = |part| if part == root { 0..pixels } else { 0..0 };
        schedule.held.push((0..parts).map(all).collect());
        for round in &mut schedule.rounds {
            round.retain(|transfer| !transfer.pixels.is_empty());
            round.sort_by_key(|transfer| (transfer.to, transfer.from));
        }
        Ok(schedule)
    }

    /// Lets a group of parts share out the picture, after the groups in it have.
    fn group(&mut self, method: Method, parts: Range<usize>, height: u32) -> Vec<Holding> {
        if height == 0 {
            return parts.map(|part| (part, 0..self.pixels())).collect();
        }
        let mut before = Vec::with_capacity(parts.len());
        for within in divide(method, parts, height) {
            before.extend(self.group(method, within, height - 1));
        }
        // Who holds neighbouring pixels gets neighbouring pixels, and so keeps some of its own.
        before.sort_by_key(|(part, pixels)| (pixels.start + pixels.end, *part));
        let count = before.len();
        let pixels = self.pixels();
        let share = |i: usize| i * pixels / count;
        let after: Vec<Holding> = before
            .iter()
            .enumerate()
            .map(|(i, (part, _))| (*part, share(i)..share(i + 1)))
            .collect();
        let round = height as usize - 1;
        for (to, wanted) in &after {
            for (from, has) in &before {
                let pixels = wanted.start.max(has.start)..wanted.end.min(has.end);
                if !pixels.is_empty() {
                    self.rounds[round].push(Transfer { from: *from, to: *to, pixels });
                }
            }
            self.held[round][*to] = wanted.clone();
        }
        after
    }

    /// Parts.
    #[must_use]
    pub const fn parts(&self) -> usize {
        self.parts
    }

    /// Pixels in a row of the picture, and rows.
    #[must_use]
    pub const fn size(&self) -> [usize; 2] {
        self.size
    }

    /// Pixels of the picture.
    #[must_use]
    pub const fn pixels(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// Where the picture is gathered.
    #[must_use]
    pub const fn root(&self) -> usize {
        self.root
    }

    /// How many rounds there are, the one that gathers included.
    #[must_use]
    pub const fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// All transfers of a round, those from a part to itself included; none after the last.
    #[must_use]
    pub fn transfers(&self, round: usize) -> &[Transfer] {
        self.rounds.get(round).map_or(&[], Vec::as_slice)
    }

    /// What a part gets in a round, from itself too, in order of depth of the senders.
    pub(super) fn incoming(&self, round: usize, part: usize) -> &[Transfer] {
        let transfers = self.transfers(round);
        let first = transfers.partition_point(|transfer| transfer.to < part);
        let count = transfers[first..].partition_point(|transfer| transfer.to == part);
        &transfers[first..first + count]
    }

    /// What a part holds before a round: the whole picture before the first one.
    pub(super) fn held_before(&self, round: usize, part: usize) -> Range<usize> {
        round.checked_sub(1).map_or(0..self.pixels(), |before| self.held[before][part].clone())
    }
}

/// The groups that a group of so many parts is made of.
fn divide(method: Method, parts: Range<usize>, height: u32) -> Vec<Range<usize>> {
    let count = parts.len();
    let groups = match method {
        Method::DirectSend => count,
        Method::BinarySwap => 2,
        // A group of some height has from 2 to that power up to 3 to that power parts, so that
        // all parts are in as many rounds.
        Method::TwoThreeSwap if count.div_ceil(2) <= 3_usize.pow(height - 1) => 2,
        Method::TwoThreeSwap => 3,
    };
    let cut = |i: usize| parts.start + i * count / groups;
    (0..groups).map(|i| cut(i)..cut(i + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_each_round_each_pixel_of_a_group_goes_to_one_part() {
        for parts in 1..70 {
            let schedule = Schedule::new(Method::TwoThreeSwap, parts, [40, 25], 0);
            let schedule = schedule.expect("a schedule");
            assert_eq!(schedule.rounds(), parts.ilog2() as usize + 1);
            for round in 0..schedule.rounds() {
                for part in 0..parts {
                    // What a part has is shared out without gap or overlap.
                    let has = schedule.held_before(round, part);
                    let of_part = schedule.transfers(round).iter().filter(|t| t.from == part);
                    let mut given: Vec<_> = of_part.map(|t| t.pixels.clone()).collect();
                    given.sort_by_key(|pixels| pixels.start);
                    assert!(given.windows(2).all(|pair| pair[0].end == pair[1].start));
                    let ends = (given.first().map(|p| p.start), given.last().map(|p| p.end));
                    let expected = (!has.is_empty()).then_some((has.start, has.end));
                    assert_eq!(ends.0.zip(ends.1), expected, "{parts} parts, {round}, {part}");
                }
            }
        }
    }

    #[test]
    fn a_swap_takes_few_messages_at_each_part() {
        for parts in 2..300 {
            let schedule = Schedule::new(Method::TwoThreeSwap, parts, [400, 250], 0);
            let schedule = schedule.expect("a schedule");
            for round in 0..schedule.rounds() - 1 {
                for part in 0..parts {
                    let sends = |t: &&Transfer| t.from == part && t.to != part;
                    let sent = schedule.transfers(round).iter().filter(sends).count();
                    assert!(sent <= 4, "{parts} parts: {part} sends {sent} in round {round}");
                }
            }
        }
        let schedule = Schedule::new(Method::BinarySwap, 64, [64; 2], 0).expect("a schedule");
        for round in 0..6 {
            let sent = schedule.transfers(round).iter().filter(|t| t.to != t.from);
            assert_eq!(sent.count(), 64, "everyone sends one half");
        }
    }

    #[test]
    fn what_cannot_be_scheduled_is_refused() {
        let new = |method, parts, root| Schedule::new(method, parts, [5, 2], root).err();
        assert_eq!(new(Method::DirectSend, 0, 0), Some(ScheduleError::Parts(0)));
        let many = PARTS_MAX + 1;
        assert_eq!(new(Method::DirectSend, many, 0), Some(ScheduleError::Parts(many)));
        assert_eq!(new(Method::BinarySwap, 6, 0), Some(ScheduleError::NoPowerOfTwo(6)));
        let root = Some(ScheduleError::Root { root: 3, parts: 3 });
        assert_eq!(new(Method::TwoThreeSwap, 3, 3), root);
        for size in [[usize::MAX, 2], [PIXELS_MAX, 2]] {
            let error = Schedule::new(Method::DirectSend, 2, size, 0);
            assert_eq!(error, Err(ScheduleError::Size(size)));
        }
    }

    #[test]
    fn messages_share_out_the_pixels_of_a_transfer() {
        const MOST: usize = PART_MESSAGE_PIXELS_MAX;
        for count in [1, 2, MOST - 1, MOST, MOST + 1, 2 * MOST + 1, 1920 * 1080, PIXELS_MAX] {
            let transfer = Transfer { from: 0, to: 1, pixels: 7..7 + count };
            let mut end = 7;
            for message in 0..transfer.messages() {
                let pixels = transfer.pixels_of(message);
                assert!(pixels.start == end && (1..=MOST).contains(&pixels.len()), "{pixels:?}");
                end = pixels.end;
            }
            assert_eq!(end, 7 + count);
        }
    }
}

//! One picture out of those of many bricks, put together where the bricks are.
//!
//! Parts are numbered in [order of depth](crate::raycast::nearest_first), the nearest first; each
//! holds the picture of its brick. In a round, the parts of a group share out the picture: each gets
//! some pixels, as the other parts of the group have them, and puts them behind each other. Groups
//! grow from round to round until there is one, and in the last round all its pixels are gathered in
//! one place.
//!
//! - **Direct-send**: one group of all. Fewest rounds, most messages. Source: Eilemann, Pajarola:
//!   Direct Send Compositing for Parallel Sort-Last Rendering, 2007.
//! - **Binary swap**: groups of two, of twos of two, and so on; for powers of two. Source: Ma,
//!   Painter, Hansen, Krogh: Parallel Volume Rendering Using Binary-Swap Compositing, 1994.
//! - **2-3 swap**: groups of two or three of those before, for any number of parts. Source: Yu,
//!   Wang, Ma: Massively Parallel Volume Rendering Using 2-3 Swap Image Compositing, 2008.
//!
//! A message holds the smallest box of pixels around all that are not clear. Where there are more
//! than one may have, it takes several, and the schedule says which pixels each of them stands for.
//! Nothing here sends anything: a [`Participant`] is told what arrived and says what is to be sent.
//!
//! # Invariants
//! In each round the pixels of a group are shared out without gap or overlap, and so are those from
//! one part to another among messages. Colours are put behind each other in order of depth only, so
//! that all methods give the picture that one part with all bricks would have.

mod participant;
mod piece;
mod schedule;

#[cfg(test)]
mod tests;

pub use participant::{Message, Participant};
pub use piece::{Piece, PieceError};
pub use schedule::{Method, Schedule, ScheduleError, Transfer};

use thiserror::Error;

/// Why a picture is not put together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompositeError {
    /// A picture of another size.
    #[error(
        "part {part} has a picture of {} x {} pixels, and {} x {} are put together",
        .found[0], .found[1], .expected[0], .expected[1]
    )]
    Size {
        /// Which part.
        part: usize,
        /// Its pixels in a row, and rows.
        found: [usize; 2],
        /// Those of the schedule.
        expected: [usize; 2],
    },
    /// A part that is not there.
    #[error("part {part} of {parts}: number them from 0")]
    Part {
        /// Which part.
        part: usize,
        /// How many there are.
        parts: usize,
    },
    /// A message that nobody waits for.
    #[error(
        "part {to} waits for no message {index} from part {from} in round {round}: the schedules \
         differ"
    )]
    Unexpected {
        /// Who should have got it.
        to: usize,
        /// Who sent it.
        from: usize,
        /// When.
        round: usize,
        /// Which one of those from there.
        index: usize,
    },
    /// A message that does not hold what it should.
    #[error("message {index} from part {from} in round {round}: {source}")]
    Piece {
        /// Who sent it.
        from: usize,
        /// When.
        round: usize,
        /// Which one of those from there.
        index: usize,
        /// What is wrong with it.
        source: PieceError,
    },
}

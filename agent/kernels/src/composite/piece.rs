//! Pixels on their way.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::image::{Rgba, under};
use crate::limits::COLOUR_SLACK;

/// The pixels in the smallest box around all that are not clear, out of a run of pixels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    columns: Range<u32>,
    rows: Range<u32>,
    colours: Vec<Rgba>,
}

/// Why pixels are not what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PieceError {
    /// The box reaches out of the picture, or is none.
    #[error("its box is not in the picture")]
    Box,
    /// Not as many as the box has in the run.
    #[error("{found} pixels for a box of {expected}")]
    Count {
        /// Pixels of the box.
        expected: usize,
        /// Pixels that came.
        found: usize,
    },
    /// A colour that is none: what is put behind it would be anything.
    #[error("a colour is not from 0 to 1")]
    Colour,
}

const CLEAR: Rgba = [0.0; 4];

impl Piece {
    /// Packs a run of pixels that begins at pixel `first` of a picture so many pixels wide.
    pub(super) fn pack(first: usize, width: usize, colours: &[Rgba]) -> Self {
        // A picture's sides fit in 32 bits.
        let mut seen =
            colours.iter().enumerate().filter(|(_, colour)| **colour != CLEAR).map(|(at, _)| {
                ((first + at) as u32 % width as u32, (first + at) as u32 / width as u32)
            });
        let Some((x, y)) = seen.next() else {
            return Self { columns: 0..0, rows: 0..0, colours: Vec::new() };
        };
        let grow = |range: Range<u32>, at: u32| range.start.min(at)..range.end.max(at + 1);
        let (columns, rows) = seen.fold((x..x + 1, y..y + 1), |(columns, rows), (x, y)| {
            (grow(columns, x), grow(rows, y))
        });
        let run = first..first + colours.len();
        let parts = lines(&columns, &rows, width, &run);
        let colours = parts.flat_map(|part| &colours[part.start - first..part.end - first]);
        let colours = colours.copied().collect();
        Self { columns, rows, colours }
    }

    /// Pixels that are carried.
    #[must_use]
    pub fn len(&self) -> usize {
        self.colours.len()
    }

    /// Whether all was clear.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.colours.is_empty()
    }

    /// Whether it can be pixels out of a `run` of a picture so many pixels wide.
    pub(super) fn check(&self, width: usize, run: &Range<usize>) -> Result<(), PieceError> {
        let last_row = run.end.div_ceil(width.max(1));
        let is_box = self.columns.start <= self.columns.end
            && self.rows.start <= self.rows.end
            && self.columns.end as usize <= width
            && self.rows.end as usize <= last_row;
        if !is_box {
            return Err(PieceError::Box);
        }
        let expected =
            lines(&self.columns, &self.rows, width, run).map(|line| line.len()).sum::<usize>();
        if expected != self.colours.len() {
            return Err(PieceError::Count { expected, found: self.colours.len() });
        }
        let is_share = |channel: &f32| (-COLOUR_SLACK..=1.0 + COLOUR_SLACK).contains(channel);
        if !self.colours.iter().flatten().all(is_share) {
            return Err(PieceError::Colour);
        }
        Ok(())
    }

    /// Puts its pixels behind those of `front`, a run that begins at pixel `first`. The piece was
    /// [checked](Self::check) against `run`, which is within.
    pub(super) fn put_behind(
        &self,
        front: &mut [Rgba],
        first: usize,
        width: usize,
        run: &Range<usize>,
    ) {
        let mut colours = self.colours.iter();
        for line in lines(&self.columns, &self.rows, width, run) {
            let front = &mut front[line.start - first..line.end - first];
            front.iter_mut().zip(&mut colours).for_each(|(front, back)| under(front, back));
        }
    }
}

/// What a box has of a run of pixels, row by row.
fn lines(
    columns: &Range<u32>,
    rows: &Range<u32>,
    width: usize,
    run: &Range<usize>,
) -> impl Iterator<Item = Range<usize>> + use<> {
    let (columns, run) = (columns.clone(), run.clone());
    rows.clone().filter_map(move |row| {
        let row = row as usize * width;
        let start = (row + columns.start as usize).max(run.start);
        let end = (row + columns.end as usize).min(run.end);
        (start < end).then_some(start..end)
    })
}

//! One part of those that put a picture together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::CompositeError;
use super::piece::Piece;
use super::schedule::{Schedule, Transfer};
use crate::image::{Image, Rgba};

/// Pixels from one part to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// In which round, from 0.
    pub round: usize,
    /// Who sends it.
    pub from: usize,
    /// Who gets it.
    pub to: usize,
    /// What is sent.
    pub piece: Piece,
}

/// One part of those that put a picture together: it is told what arrived and says what is to be
/// sent. Messages may come in any order and more than once.
///
/// # Invariants
/// It holds what the schedule says for its round, and no message that it does not wait for.
#[derive(Debug)]
pub struct Participant {
    schedule: Arc<Schedule>,
    part: usize,
    width: usize,
    round: usize,
    pixels: Range<usize>,
    colours: Vec<Rgba>,
    /// What arrived and is not put together yet, by round and sender.
    arrived: BTreeMap<(usize, usize), Piece>,
}

impl Participant {
    /// A part with its picture, and the messages with which it begins.
    ///
    /// # Errors
    /// The picture has another size than the schedule's, or there is no such part.
    pub fn begin(
        schedule: Arc<Schedule>,
        part: usize,
        image: &Image,
    ) -> Result<(Self, Vec<Message>), CompositeError> {
        let (found, expected) = (image.pixels().len(), schedule.pixels());
        if part >= schedule.parts() {
            return Err(CompositeError::Part { part, parts: schedule.parts() });
        }
        if found != expected {
            return Err(CompositeError::Size { part, found, expected });
        }
        let mut participant = Self {
            part,
            width: image.width(),
            round: 0,
            pixels: 0..expected,
            colours: image.pixels().to_vec(),
            arrived: BTreeMap::new(),
            schedule,
        };
        let mut messages = participant.outgoing();
        participant.go_on(&mut messages);
        Ok((participant, messages))
    }

    /// Takes a message, and says what is to be sent because of it.
    ///
    /// # Errors
    /// The schedule has no such message, or it does not hold what the schedule says. What the
    /// part holds stays as it was.
    pub fn handle(&mut self, message: Message) -> Result<Vec<Message>, CompositeError> {
        let Message { round, from, to, piece } = message;
        let unexpected = CompositeError::Unexpected { to, from, round };
        let mut transfers = self.schedule.transfers(round).iter();
        let transfer = transfers
            .find(|transfer| (transfer.from, transfer.to) == (from, to))
            .filter(|_| to == self.part && from != to)
            .ok_or(unexpected)?;
        piece.check(self.width, &transfer.pixels).map_err(|source| CompositeError::Piece {
            from,
            round,
            source,
        })?;
        // What came twice counts once.
        if round >= self.round {
            self.arrived.entry((round, from)).or_insert(piece);
        }
        let mut messages = Vec::new();
        self.go_on(&mut messages);
        Ok(messages)
    }

    /// Whether all rounds are over for this part.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.round == self.schedule.rounds()
    }

    /// The picture, when it is done, at the part where it is gathered.
    #[must_use]
    pub fn picture(&self) -> Option<Image> {
        (self.is_done() && self.part == self.schedule.root()).then(|| {
            let mut image = Image::transparent(self.width, self.colours.len() / self.width.max(1));
            image.pixels_mut().copy_from_slice(&self.colours);
            image
        })
    }

    /// Ends as many rounds as it has everything for.
    fn go_on(&mut self, messages: &mut Vec<Message>) {
        while !self.is_done() && self.has_all() {
            self.end_round();
            if !self.is_done() {
                messages.extend(self.outgoing());
            }
        }
    }

    fn incoming(&self) -> impl Iterator<Item = &Transfer> {
        let transfers = self.schedule.transfers(self.round).iter();
        transfers.filter(|transfer| transfer.to == self.part)
    }

    fn has_all(&self) -> bool {
        self.incoming().all(|transfer| {
            transfer.from == self.part || self.arrived.contains_key(&(self.round, transfer.from))
        })
    }

    fn outgoing(&self) -> Vec<Message> {
        let transfers = self.schedule.transfers(self.round).iter();
        let sent = transfers.filter(|t| t.from == self.part && t.to != self.part);
        sent.map(|transfer| Message {
            round: self.round,
            from: self.part,
            to: transfer.to,
            piece: self.pack(&transfer.pixels),
        })
        .collect()
    }

    fn pack(&self, pixels: &Range<usize>) -> Piece {
        let first = self.pixels.start;
        let colours = &self.colours[pixels.start - first..pixels.end - first];
        Piece::pack(pixels.start, self.width, colours)
    }

    /// Puts what arrived behind each other, in order of depth.
    fn end_round(&mut self) {
        let pixels = self.schedule.held_before(self.round + 1, self.part);
        let mut colours = vec![[0.0; 4]; pixels.len()];
        let transfers: Vec<Transfer> = self.incoming().cloned().collect();
        for transfer in transfers {
            let piece = if transfer.from == self.part {
                self.pack(&transfer.pixels)
            } else {
                self.arrived
                    .remove(&(self.round, transfer.from))
                    .expect("a round ends when all that it waits for is there")
            };
            piece.put_behind(&mut colours, pixels.start, self.width, &transfer.pixels);
        }
        (self.pixels, self.colours) = (pixels, colours);
        self.round += 1;
    }
}

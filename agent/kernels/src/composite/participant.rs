//! One part of those that put a picture together.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::CompositeError;
use super::piece::Piece;
use super::schedule::{Schedule, Transfer};
use crate::image::{Image, Rgba};
use crate::limits::PART_MESSAGE_BYTES_MAX;

/// Pixels from one part to another: all that go there in a round, or some of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// In which round, from 0.
    pub round: usize,
    /// Who sends it.
    pub from: usize,
    /// Who gets it.
    pub to: usize,
    /// Which one of those that [the transfer](Transfer::messages) takes, from 0.
    pub index: usize,
    /// What is sent.
    pub piece: Piece,
}

impl Message {
    /// Bytes that one has at most, encoded as all that agents send each other.
    pub const BYTES_MAX: usize = PART_MESSAGE_BYTES_MAX;
}

/// One part of those that put a picture together: it is told what arrived and says what is to be
/// sent. Messages may come in any order and more than once.
///
/// # Invariants
/// It holds what the schedule says for its round, and no message that it does not wait for: each is
/// checked as it comes, and of one that comes again the first counts. A round ends when each message
/// of it was there.
#[derive(Debug)]
pub struct Participant {
    schedule: Arc<Schedule>,
    part: usize,
    round: usize,
    pixels: Range<usize>,
    colours: Vec<Rgba>,
    /// What arrived and is not put together yet, by round, sender and index.
    arrived: BTreeMap<(usize, usize, usize), Piece>,
    /// Messages of the round that did not arrive.
    missing: usize,
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
        let (found, expected) = ([image.width(), image.height()], schedule.size());
        if part >= schedule.parts() {
            return Err(CompositeError::Part { part, parts: schedule.parts() });
        }
        if found != expected {
            return Err(CompositeError::Size { part, found, expected });
        }
        let mut participant = Self {
            part,
            round: 0,
            pixels: 0..schedule.pixels(),
            colours: image.pixels().to_vec(),
            arrived: BTreeMap::new(),
            missing: 0,
            schedule,
        };
        participant.missing = participant.missing();
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
        let Message { round, from, to, index, piece } = message;
        let incoming = self.schedule.incoming(round, self.part);
        let transfer = incoming
            .binary_search_by_key(&from, |transfer| transfer.from)
            .map(|at| &incoming[at])
            .ok()
            .filter(|transfer| to == self.part && from != to && index < transfer.messages())
            .ok_or(CompositeError::Unexpected { to, from, round, index })?;
        piece
            .check(self.schedule.size()[0], &transfer.pixels_of(index))
            .map_err(|source| CompositeError::Piece { from, round, index, source })?;
        // What came twice counts once.
        if round >= self.round
            && let Entry::Vacant(place) = self.arrived.entry((round, from, index))
        {
            place.insert(piece);
            self.missing -= usize::from(round == self.round);
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
            let [width, height] = self.schedule.size();
            let mut image = Image::transparent(width, height);
            image.pixels_mut().copy_from_slice(&self.colours);
            image
        })
    }

    /// Ends as many rounds as it has everything for.
    fn go_on(&mut self, messages: &mut Vec<Message>) {
        while !self.is_done() && self.missing == 0 {
            self.end_round();
            messages.extend(self.outgoing());
        }
    }

    fn incoming(&self) -> &[Transfer] {
        self.schedule.incoming(self.round, self.part)
    }

    /// Messages of the round that did not arrive, counted anew.
    fn missing(&self) -> usize {
        let others = self.incoming().iter().filter(|transfer| transfer.from != self.part);
        let expected: usize = others.map(Transfer::messages).sum();
        expected - self.arrived.range((self.round, 0, 0)..(self.round + 1, 0, 0)).count()
    }

    fn outgoing(&self) -> Vec<Message> {
        let transfers = self.schedule.transfers(self.round).iter();
        let sent = transfers.filter(|t| t.from == self.part && t.to != self.part);
        let messages = sent.flat_map(|transfer| {
            (0..transfer.messages()).map(move |index| Message {
                round: self.round,
                from: self.part,
                to: transfer.to,
                index,
                piece: self.pack(&transfer.pixels_of(index)),
            })
        });
        messages.collect()
    }

    fn pack(&self, pixels: &Range<usize>) -> Piece {
        let first = self.pixels.start;
        let colours = &self.colours[pixels.start - first..pixels.end - first];
        Piece::pack(pixels.start, self.schedule.size()[0], colours)
    }

    /// Puts what arrived behind each other, in order of depth.
    fn end_round(&mut self) {
        let width = self.schedule.size()[0];
        let pixels = self.schedule.held_before(self.round + 1, self.part);
        let mut colours = vec![[0.0; 4]; pixels.len()];
        let schedule = self.schedule.clone();
        for transfer in schedule.incoming(self.round, self.part) {
            for index in 0..transfer.messages() {
                let run = transfer.pixels_of(index);
                let piece = if transfer.from == self.part {
                    self.pack(&run)
                } else {
                    self.arrived
                        .remove(&(self.round, transfer.from, index))
                        .expect("a round ends when all that it waits for is there")
                };
                piece.put_behind(&mut colours, pixels.start, width, &run);
            }
        }
        (self.pixels, self.colours) = (pixels, colours);
        self.round += 1;
        self.missing = self.missing();
    }
}

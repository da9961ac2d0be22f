//! Chess move paths: how many positions a position leads to in so many plies.
//!
//! An item is `FEN;depth=N`, with `;move=e2e4` (several separated by spaces) where only the
//! paths that begin with these moves are wanted; `depth` counts them. [`split`] makes the items
//! whose counts add up to the count of a whole position.
//!
//! # Invariants
//! - Moves are written as UCI does; the generator's own form of castling (king takes rook) is
//!   read as well.
//! - The counts of the items of [`split`] add up to the count of what was split.

use std::fmt;
use std::str::FromStr;

use cozy_chess::util::display_uci_move;
use cozy_chess::{Board, File, Move};

use super::KernelError;
use crate::limits::{GAMETREE_DEPTH_MAX, GAMETREE_SPLIT_PLIES_MAX};

/// A game tree to count: a checked item.
#[derive(Debug, Clone)]
pub struct GameTreeItem {
    fen: String,
    depth: u8,
    moves: Vec<String>,
    /// The position after `moves`.
    board: Board,
}

impl GameTreeItem {
    /// The whole tree below a position.
    ///
    /// # Errors
    /// `fen` is no position, or `depth` is too large.
    pub fn new(fen: &str, depth: u8) -> Result<Self, KernelError> {
        if depth > GAMETREE_DEPTH_MAX {
            let problem = format!("depth is {depth}, must be from 0 to {GAMETREE_DEPTH_MAX}");
            return Err(KernelError::item(fen, problem));
        }
        let board = read_fen(fen)?;
        Ok(Self { fen: fen.trim().to_owned(), depth, moves: Vec::new(), board })
    }

    /// How many move paths there are. Tells `progress` after each move at the root.
    #[must_use]
    pub fn count(&self, progress: &mut dyn FnMut(u16)) -> u64 {
        let plies = self.plies_left();
        if plies < 3 {
            return leaves(&self.board, plies);
        }
        let moves = legal_moves(&self.board);
        let mut count = 0;
        for (done, &root) in (1_u64..).zip(&moves) {
            let mut next = self.board.clone();
            next.play_unchecked(root);
            count += leaves(&next, plies - 1);
            let permille = done * 1000 / moves.len() as u64;
            progress(u16::try_from(permille).unwrap_or(1000));
        }
        count
    }

    fn plies_left(&self) -> u8 {
        self.depth - u8::try_from(self.moves.len()).expect("moves are at most depth")
    }

    /// The item after one more move.
    fn after(&self, text: &str) -> Result<Self, KernelError> {
        if self.plies_left() == 0 {
            let problem = format!("more moves than its depth of {}", self.depth);
            return Err(KernelError::item(&self.to_string(), problem));
        }
        let found = legal_moves(&self.board)
            .into_iter()
            .find(|&legal| uci(&self.board, legal) == text || legal.to_string() == text);
        let Some(legal) = found else {
            let problem = format!("{text:?} is no legal move there, in UCI form such as e2e4");
            return Err(KernelError::item(&self.to_string(), problem));
        };
        Ok(self.played(legal))
    }

    fn played(&self, legal: Move) -> Self {
        let mut next = self.clone();
        next.moves.push(uci(&self.board, legal));
        next.board.play_unchecked(legal);
        next
    }
}

impl fmt::Display for GameTreeItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{};depth={}", self.fen, self.depth)?;
        if self.moves.is_empty() { Ok(()) } else { write!(f, ";move={}", self.moves.join(" ")) }
    }
}

impl FromStr for GameTreeItem {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<Self, KernelError> {
        let mut fields = text.split(';').map(str::trim);
        let fen = fields.next().unwrap_or_default();
        let mut depth = None;
        let mut moves = None;
        for field in fields {
            let (key, value) = field.split_once('=').unwrap_or((field, ""));
            let twice = match key {
                "depth" => depth.replace(value).is_some(),
                "move" => moves.replace(value).is_some(),
                _ => {
                    let problem = format!("unknown field {key:?}; depth and move are known");
                    return Err(KernelError::item(text, problem));
                }
            };
            if twice {
                return Err(KernelError::item(text, format!("field {key:?} comes twice")));
            }
        }
        read_fen(fen)?;
        let Some(depth) = depth else {
            return Err(KernelError::item(text, "no depth; write FEN;depth=N"));
        };
        let depth = depth.parse().map_err(|_| {
            let problem = format!("depth is {depth:?}, must be from 0 to {GAMETREE_DEPTH_MAX}");
            KernelError::item(text, problem)
        })?;
        let root = Self::new(fen, depth)?;
        let mut moves = moves.unwrap_or_default().split_whitespace();
        moves.try_fold(root, |item, text| item.after(text))
    }
}

/// Checks an item without counting.
///
/// # Errors
/// What is wrong with it.
pub fn check(item: &str) -> Result<(), KernelError> {
    item.parse::<GameTreeItem>().map(|_| ())
}

/// Splits the tree of a position into items: one per path of its first `plies` moves.
///
/// A depth below `plies` gives a single item. Where a path ends before (mate, stalemate), it
/// has no item, for nothing at full depth lies beyond it.
///
/// # Errors
/// `fen` is no position, or `depth` or `plies` is too large.
pub fn split(fen: &str, depth: u8, plies: u8) -> Result<Vec<String>, KernelError> {
    if plies > GAMETREE_SPLIT_PLIES_MAX {
        let problem =
            format!("split over {plies} plies, must be at most {GAMETREE_SPLIT_PLIES_MAX}");
        return Err(KernelError::item(fen, problem));
    }
    let root = GameTreeItem::new(fen, depth)?;
    if depth < plies {
        return Ok(vec![root.to_string()]);
    }
    let mut items = vec![root];
    for _ in 0..plies {
        items = items
            .iter()
            .flat_map(|item| legal_moves(&item.board).into_iter().map(|legal| item.played(legal)))
            .collect();
    }
    Ok(items.iter().map(ToString::to_string).collect())
}

fn read_fen(fen: &str) -> Result<Board, KernelError> {
    let refuse = |problem: String| KernelError::item(fen, problem);
    let fields: Vec<&str> = fen.split_whitespace().collect();
    let [ranks, _, castling, ..] = fields[..] else {
        return Err(refuse(format!("no FEN: {} of its 6 fields are there", fields.len())));
    };
    let count = ranks.split('/').count();
    if count != 8 {
        return Err(refuse(format!("no FEN: its board has {count} ranks, not 8")));
    }
    let mut complete = fields.join(" ");
    if fields.len() == 4 {
        complete.push_str(" 0 1");
    }
    let shredder = castling.chars().any(|c| matches!(c.to_ascii_lowercase(), 'a'..='h'));
    Board::from_fen(&complete, shredder).map_err(|error| {
        let detail = error.to_string();
        refuse(format!("no chess position: {}", detail.trim_end_matches('.').to_lowercase()))
    })
}

fn legal_moves(board: &Board) -> Vec<Move> {
    let mut moves = Vec::with_capacity(64);
    board.generate_moves(|of_piece| {
        moves.extend(of_piece);
        false
    });
    moves
}

/// UCI's form of a move. A king that does not castle from the e-file is no standard chess; its
/// castling is written as king takes rook, which is never ambiguous.
fn uci(board: &Board, legal: Move) -> String {
    if legal.from.file() == File::E {
        display_uci_move(board, legal).to_string()
    } else {
        legal.to_string()
    }
}

fn leaves(board: &Board, plies: u8) -> u64 {
    let mut count = 0;
    match plies {
        0 => count = 1,
        1 => {
            board.generate_moves(|moves| {
                count += moves.len() as u64;
                false
            });
        }
        _ => {
            board.generate_moves(|moves| {
                for legal in moves {
                    let mut next = board.clone();
                    next.play_unchecked(legal);
                    count += leaves(&next, plies - 1);
                }
                false
            });
        }
    }
    count
}

#[cfg(test)]
#[path = "gametree_tests.rs"]
mod tests;

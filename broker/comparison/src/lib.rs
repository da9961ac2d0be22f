//! Whether two files say the same, where what is in them is floating point.
//!
//! Files come from hosts that nobody vouches for, and decoders take what memory and time a file
//! asks for. So a [`Comparer`] decodes nothing: it starts its own executable once more for each
//! comparison, which limits itself before it reads anything ([`run_as_comparer_if_asked`]), reads
//! both files from a pipe, and says by its exit code what came of it.
//!
//! ```text
//! Comparer::place ── one of a few ──► Place::are_alike ──files──► the same executable, limited
//!                                          ▲                               │
//!                                          └──────── exit code ────────────┘
//! ```
//!
//! # Invariants
//! - No decoder runs in the process that asks.
//! - Files are alike only where a comparer has said so: one that is killed, panics, takes too much
//!   or too long, or cannot be started, has not.
//! - An executable that is no comparer says nothing by its exit code, whatever it makes of the
//!   argument.

mod asked;
mod comparer;
mod exr_file;
mod kind;
mod limits;
mod png_file;
mod table;
mod volume;

pub use asked::run_as_comparer_if_asked;
pub use comparer::{Comparer, ComparerError, Place};
pub use kind::Kind;
pub use limits::{COMPARED_BYTES_MAX, COMPARISON_TIME_MAX, COMPARISONS_AT_ONCE_MAX};

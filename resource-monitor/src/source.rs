//! Farms that can be asked what they have booked.

use std::future::Future;

use thiserror::Error;

use crate::FarmAnswer;

/// A farm manager's own record of its bookings, polled.
///
/// A source names every host that it knows, booked or not: a host that it leaves out counts as
/// not confirmed, and where it should have told of it, it says so. A host that the manager itself
/// would not book is wholly booked. It says of which bookings it speaks, see [`crate::BookingNames`]: of
/// others its silence says nothing.
pub trait FarmSource: Send + Sync + 'static {
    /// Its name, for logs and to tell sources apart.
    fn name(&self) -> &str;

    /// Asks it, in bounded time.
    fn poll(&self) -> impl Future<Output = Result<FarmAnswer, SourceError>> + Send;
}

/// Why a farm could not be asked.
#[derive(Debug, Error)]
pub enum SourceError {
    /// No answer.
    #[error("cannot poll {asked}: {reason}")]
    Unreachable {
        /// Who was asked.
        asked: String,
        /// Why not.
        reason: String,
    },
    /// No answer in time.
    #[error("{asked} did not answer within {seconds} s")]
    TooSlow {
        /// Who was asked.
        asked: String,
        /// The bound.
        seconds: f64,
    },
    /// An answer with an error.
    #[error("{asked} answered {status}")]
    Status {
        /// Who was asked.
        asked: String,
        /// Its status, and what a program said beside it.
        status: String,
    },
    /// More than is read.
    #[error("the answer of {asked} is longer than {max} bytes")]
    TooLong {
        /// Who was asked.
        asked: String,
        /// The bound.
        max: usize,
    },
    /// Not what the manager is known to answer.
    #[error("the answer of {asked} makes no sense: {reason}")]
    Malformed {
        /// Who was asked.
        asked: String,
        /// Why not.
        reason: String,
    },
}

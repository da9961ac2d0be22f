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

impl SourceError {
    /// What to do about it.
    #[must_use]
    pub fn cure(&self) -> String {
        match self {
            Self::Unreachable { asked, .. } if asked.starts_with('`') => format!(
                "have that program on the monitor's host, in the PATH of the monitor's service, and run {asked} \
                 there as the monitor's user"
            ),
            Self::Unreachable { asked, .. } => {
                format!(
                    "see that the farm manager runs, and that {asked} is reached from the monitor's host"
                )
            }
            Self::TooSlow { asked, .. } => format!(
                "see on the monitor's host how long {asked} takes; what overloads the farm manager has to go, \
                 or poll it less often (poll_interval_s)"
            ),
            Self::Status { asked, .. } if asked.starts_with('`') => {
                format!(
                    "run {asked} on the monitor's host as the monitor's user, and see why it fails"
                )
            }
            Self::Status { asked, .. } => {
                format!(
                    "see why {asked} refuses: address, rights of the monitor, and the manager's own log"
                )
            }
            Self::TooLong { asked, .. } => {
                format!("run {asked} on the monitor's host, and see what makes its answer so long")
            }
            Self::Malformed { asked, .. } => format!(
                "ask {asked} on the monitor's host as the monitor's user, and see what stands at the quoted \
                 place; the whole farm is closed to harvest until the answer can be read"
            ),
        }
    }
}

//! Farms that can be asked what they have booked.

use std::future::Future;

use thiserror::Error;

use crate::HostAllocation;

/// A farm manager's own record of its bookings, polled.
///
/// A source names every host that it knows, booked or not: a host that it leaves out counts as
/// not confirmed.
pub trait FarmSource: Send + Sync + 'static {
    /// Its name, for logs and to tell sources apart.
    fn name(&self) -> &str;

    /// Asks it, in bounded time.
    fn poll(&self) -> impl Future<Output = Result<Vec<HostAllocation>, SourceError>> + Send;
}

/// Why a farm could not be asked.
#[derive(Debug, Error)]
pub enum SourceError {
    /// No answer.
    #[error("cannot poll {url}: {reason}")]
    Unreachable {
        /// Where it was asked.
        url: String,
        /// Why not.
        reason: String,
    },
    /// An answer with an error.
    #[error("{url} answered {status}")]
    Status {
        /// Where it was asked.
        url: String,
        /// Its status.
        status: u16,
    },
    /// More than is read.
    #[error("the answer of {url} is longer than {max} bytes")]
    TooLong {
        /// Where it was asked.
        url: String,
        /// The bound.
        max: usize,
    },
    /// Not a list of allocations.
    #[error("the answer of {url} is no list of allocations: {reason}")]
    Malformed {
        /// Where it was asked.
        url: String,
        /// Why not.
        reason: String,
    },
}

//! What a user sees when something fails, and the exit code that programs see.

use std::process::ExitCode;

use gleaner_protocol::error_chain;
use thiserror::Error;

use crate::client::ClientError;
use crate::configuration::ConfigurationError;
use crate::given_file::GivenFileError;
use crate::show;

/// The exit code of what went well as far as it went, and is not finished.
pub(crate) const UNFINISHED: u8 = 7;

/// The exit code of a job that the broker declined for its due time.
pub(crate) const DECLINED: u8 = 8;

/// Failures that have an exit code of their own.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The command line, or a file that it names, is wrong.
    #[error("{0}")]
    Usage(String),
    /// What the broker would refuse, before anything goes there.
    #[error("{0}")]
    Refused(String),
    /// A time-out of the user's own ran out.
    #[error("{0}")]
    TimedOut(String),
}

/// Prints an error with its causes, and gives its exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    show::note(format_args!("error: {}", error_chain(error.as_ref())));
    ExitCode::from(code(error))
}

/// Whether a part did not start because of what it was told.
fn is_configuration(cause: &(dyn std::error::Error + 'static)) -> bool {
    use gleaner_broker::BrokerError;
    use gleaner_serve::ServeError;
    matches!(cause.downcast_ref::<BrokerError>(), Some(BrokerError::Config(_)))
        || matches!(
            cause.downcast_ref::<ServeError>(),
            Some(ServeError::HalfTls | ServeError::Exposed { .. } | ServeError::NoKeys)
        )
        || matches!(
            cause.downcast_ref::<gleaner_monitor::RunError>(),
            Some(gleaner_monitor::RunError::Config(_))
        )
        || matches!(
            cause.downcast_ref::<gleaner_agent::RunError>(),
            Some(gleaner_agent::RunError::Config(_))
        )
}

fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return match failure {
                Failure::Usage(_) => 2,
                Failure::Refused(_) => 5,
                Failure::TimedOut(_) => 6,
            };
        }
        if cause.is::<ConfigurationError>()
            || cause.is::<GivenFileError>()
            || is_configuration(cause)
        {
            return 2;
        }
        if let Some(error) = cause.downcast_ref::<ClientError>() {
            return error.exit_code();
        }
    }
    1
}

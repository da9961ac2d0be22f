//! What a user sees when something fails, and the exit code that programs see.

use std::process::ExitCode;

use thiserror::Error;

use crate::client::ClientError;
use crate::configuration::ConfigurationError;

/// Failures that have an exit code of their own.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The command line, or a file that it names, is wrong.
    #[error("{0}")]
    Usage(String),
    /// A time-out of the user's own ran out.
    #[error("{0}")]
    TimedOut(String),
}

/// Prints an error with its causes, and gives its exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", chain(error));
    ExitCode::from(code(error))
}

/// What failed, and each cause that has not been said yet: some errors say theirs themselves.
fn chain(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |said, cause| {
        let cause = cause.to_string();
        let cause = cause.trim_end();
        match said.is_empty() {
            true => cause.to_owned(),
            false if said.contains(cause) => said,
            false => format!("{said}: {cause}"),
        }
    })
}

/// Whether a part did not start because of what it was told.
fn is_configuration(cause: &(dyn std::error::Error + 'static)) -> bool {
    use gleaner_broker::BrokerError;
    use gleaner_serve::ServeError;
    matches!(cause.downcast_ref::<BrokerError>(), Some(BrokerError::Config(_)))
        || matches!(
            cause.downcast_ref::<ServeError>(),
            Some(ServeError::HalfTls | ServeError::Exposed { .. })
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
                Failure::TimedOut(_) => 6,
            };
        }
        if cause.is::<ConfigurationError>() || is_configuration(cause) {
            return 2;
        }
        if let Some(error) = cause.downcast_ref::<ClientError>() {
            return error.exit_code();
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = || anyhow!("permission denied\n");
        let error = Err::<(), _>(cause()).context("cannot read x").context("no token");
        assert_eq!(
            chain(&error.expect_err("failed")),
            "no token: cannot read x: permission denied"
        );
        let error = Err::<(), _>(cause()).context("cannot read x (permission denied), as root");
        let said = chain(&error.expect_err("failed"));
        assert_eq!(said, "cannot read x (permission denied), as root");
    }
}

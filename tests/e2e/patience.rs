//! Waiting: for events, and never for ever.

use std::time::Duration;

use gleaner_protocol::{Span, boottime};

/// Far more than anything here takes on a slow and busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Between two looks at something that tells nobody of its changes.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Waits for a future, but not for ever.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// Looks at something that tells nobody of its changes (`/proc`, an interface without an event
/// stream) until it gives a value.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(value) = look().await {
                return value;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    within(what, looking).await
}

/// Lets time pass in which nothing must happen.
pub(crate) async fn let_pass(span: Span) {
    tokio::time::sleep(span.into()).await;
}

/// How long something took.
pub(crate) fn timed<T>(act: impl FnOnce() -> T) -> (Span, T) {
    let begun = boottime();
    let value = act();
    (boottime() - begun, value)
}

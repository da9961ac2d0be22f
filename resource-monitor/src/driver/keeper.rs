//! Writes something down, where it has changed since the last time.

use std::error::Error;
use std::sync::Arc;

use tracing::warn;

/// What was written last, and how that went.
#[derive(Debug)]
pub(super) struct Keeper<T> {
    /// What it is, for people.
    what: &'static str,
    written: Option<Arc<T>>,
    failing: bool,
}

impl<T: PartialEq + Send + Sync + 'static> Keeper<T> {
    pub(super) const fn new(what: &'static str) -> Self {
        Self { what, written: None, failing: false }
    }

    /// Has `write` do so on a thread that may wait for the disk, and returns when it has. Trouble is
    /// said once, until it is over, and again where there is no next time.
    pub(super) async fn keep<E: Error + Send + 'static>(
        &mut self,
        present: T,
        is_last: bool,
        write: impl FnOnce(&T) -> Result<(), E> + Send + 'static,
    ) {
        if self.written.as_deref() == Some(&present) {
            return;
        }
        let present = Arc::new(present);
        let same = Arc::clone(&present);
        let trouble = match tokio::task::spawn_blocking(move || write(&same)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        self.written = Some(present).filter(|_| trouble.is_none());
        let was_failing = std::mem::replace(&mut self.failing, trouble.is_some());
        if let Some(trouble) = trouble.filter(|_| is_last || !was_failing) {
            warn!("{} cannot be written down: {trouble}", self.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn what_was_written_is_not_written_again_and_what_failed_is() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut keeper = Keeper::new("a number");
        for (number, fails) in [(1, false), (1, false), (2, true), (2, false), (2, false)] {
            let to = Arc::clone(&written);
            let write = move |number: &i32| {
                to.lock().expect("no panic").push(*number);
                if fails { Err(io::Error::other("full")) } else { Ok(()) }
            };
            keeper.keep(number, false, write).await;
        }
        assert_eq!(*written.lock().expect("no panic"), [1, 2, 2]);
    }
}

//! Has files compared, a few at once, each pair by a process of its own.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::asked::{ALIKE, COMPARER_ARGUMENT, UNLIKE, head};
use crate::kind::Kind;
use crate::limits::{COMPARED_BYTES_MAX, COMPARISON_TIME_MAX, COMPARISONS_AT_ONCE_MAX};

/// Has files compared. Clones share its places.
#[derive(Debug, Clone)]
pub struct Comparer {
    program: PathBuf,
    places: Arc<Semaphore>,
}

/// One of the [`COMPARISONS_AT_ONCE_MAX`] places in which files are compared.
#[derive(Debug)]
pub struct Place {
    program: PathBuf,
    _permit: OwnedSemaphorePermit,
}

/// Why it is not known whether files are alike.
#[derive(Debug, Error)]
pub enum ComparerError {
    /// There is no process to be had.
    #[error("cannot start a comparer")]
    Start(#[source] io::Error),
    /// Its end cannot be seen.
    #[error("cannot wait for a comparer")]
    Wait(#[source] io::Error),
    /// Whoever gives the files cannot.
    #[error("a file cannot be read: {0}")]
    Read(String),
    /// It does not take them.
    #[error("a file cannot be passed to a comparer")]
    Pass(#[source] io::Error),
    /// It ended in a way of its own: by its limits, or of what it read.
    #[error("the comparer ended with {0}")]
    Died(ExitStatus),
    /// It was held up.
    #[error("it took too long")]
    TooLong,
}

impl Default for Comparer {
    fn default() -> Self {
        // Also where the file was replaced by that of another release meanwhile.
        let program = "/proc/self/exe".into();
        Self { program, places: Arc::new(Semaphore::new(COMPARISONS_AT_ONCE_MAX)) }
    }
}

impl Comparer {
    /// Waits for a place; whoever came first gets it first.
    pub async fn place(&self) -> Place {
        let permit = Arc::clone(&self.places).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        Place { program: self.program.clone(), _permit: permit }
    }
}

impl Place {
    /// Whether two files of one kind are alike, each given by its length and its content in pieces.
    /// Not where the comparison dies of it, or one of them cannot be read.
    ///
    /// # Errors
    /// It could not be made, for want of something on this machine.
    pub async fn are_alike<E: Display>(
        self,
        kind: Kind,
        one: (u64, impl Stream<Item = Result<Bytes, E>> + Unpin),
        other: (u64, impl Stream<Item = Result<Bytes, E>> + Unpin),
    ) -> Result<bool, ComparerError> {
        if one.0.max(other.0) > COMPARED_BYTES_MAX {
            return Ok(false);
        }
        let compared = timeout(COMPARISON_TIME_MAX, self.compare(kind, one, other)).await;
        match compared.unwrap_or(Err(ComparerError::TooLong)) {
            Err(error @ (ComparerError::Died(_) | ComparerError::Read(_))) => {
                tracing::warn!("outputs count as different: {error}");
                Ok(false)
            }
            found => found,
        }
    }

    async fn compare<E: Display>(
        &self,
        kind: Kind,
        one: (u64, impl Stream<Item = Result<Bytes, E>> + Unpin),
        other: (u64, impl Stream<Item = Result<Bytes, E>> + Unpin),
    ) -> Result<bool, ComparerError> {
        let mut child = Command::new(&self.program)
            .arg(COMPARER_ARGUMENT)
            .arg(kind.end())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(ComparerError::Start)?;
        let mut stdin = child.stdin.take().expect("it is piped");
        let fed = async {
            stdin.write_all(&head(one.0, other.0)).await.map_err(ComparerError::Pass)?;
            feed(&mut stdin, one.1).await?;
            feed(&mut stdin, other.1).await
        };
        match fed.await {
            // One that ends early says why by its end.
            Err(ComparerError::Pass(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
            fed => fed?,
        }
        drop(stdin);
        let status = child.wait().await.map_err(ComparerError::Wait)?;
        match status.code() {
            Some(ALIKE) => Ok(true),
            Some(UNLIKE) => Ok(false),
            _ => Err(ComparerError::Died(status)),
        }
    }
}

async fn feed<E: Display>(
    stdin: &mut ChildStdin,
    mut pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<(), ComparerError> {
    while let Some(piece) =
        pieces.try_next().await.map_err(|error| ComparerError::Read(error.to_string()))?
    {
        stdin.write_all(&piece).await.map_err(ComparerError::Pass)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn a_program_that_is_no_comparer_finds_nothing_alike() {
        // That of these tests, which ends well whatever it is asked for.
        let file = || (1, stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"1"))]));
        let comparer = Comparer::default();
        let found = comparer.place().await.are_alike(Kind::Table, file(), file()).await;
        assert!(matches!(found, Ok(false)), "{found:?}");
    }

    #[tokio::test]
    async fn a_program_that_does_not_start_finds_nothing_at_all() {
        let file = || (1, stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"1"))]));
        let comparer = Comparer { program: "/nowhere".into(), ..Comparer::default() };
        let found = comparer.place().await.are_alike(Kind::Table, file(), file()).await;
        assert!(matches!(found, Err(ComparerError::Start(_))), "{found:?}");
    }
}

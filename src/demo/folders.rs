//! Where the demo writes, and that nothing of it stays.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

/// The demo's folders.
pub(super) struct Folders {
    pub(super) logs: PathBuf,
    /// Frames that were rendered without harvest.
    pub(super) without: PathBuf,
    /// The same frames, rendered with harvest.
    pub(super) with: PathBuf,
    scratch: Temporary,
    run: Temporary,
}

impl Folders {
    /// Makes them; logs and frames go into `keep` where it is given, and stay.
    pub(super) fn make(keep: Option<&Path>) -> anyhow::Result<Self> {
        let scratch = Temporary::make(&[env::temp_dir()])?;
        // Run folders belong into memory, as on a real host: a disk that is busy with writing a
        // journal would hold up a release.
        let mut in_memory = vec![PathBuf::from("/run")];
        in_memory.extend(env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
        in_memory.extend([PathBuf::from("/dev/shm"), env::temp_dir()]);
        let run = Temporary::make(&in_memory)?;
        let base = keep.unwrap_or(scratch.path());
        let base =
            std::path::absolute(base).with_context(|| format!("bad --keep {}", base.display()))?;
        let folder = |name: &str| {
            let path = base.join(name);
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot make the folder {}", path.display()))?;
            anyhow::Ok(path)
        };
        let (logs, without, with) =
            (folder("logs")?, folder("frames-without")?, folder("frames-with")?);
        Ok(Self { logs, without, with, scratch, run })
    }

    /// For everything that is no log, no frame and no run folder.
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// For the hosts' run folders.
    pub(super) fn run(&self) -> &Path {
        self.run.path()
    }
}

/// A folder that goes away with all that is in it.
struct Temporary(Option<TempDir>);

impl Temporary {
    /// In the first of these folders that lets us.
    fn make(places: &[PathBuf]) -> anyhow::Result<Self> {
        let mut problem = io::Error::from(io::ErrorKind::NotFound);
        for place in places {
            match tempfile::Builder::new().prefix("gleaner-demo-").tempdir_in(place) {
                Ok(folder) => return Ok(Self(Some(folder))),
                Err(error) => problem = error,
            }
        }
        Err(problem).context("cannot make a temporary folder; TMPDIR names another place")
    }

    fn path(&self) -> &Path {
        self.0.as_ref().expect("it is taken on drop alone").path()
    }
}

impl Drop for Temporary {
    /// Runners of an agent that was killed notice it by themselves a moment later, and may write
    /// a last file until then; nothing tells us when they are gone.
    fn drop(&mut self) {
        const TRIES: u32 = 40;
        const PAUSE: Duration = Duration::from_millis(25);
        let Some(folder) = self.0.take() else { return };
        let path = folder.keep();
        for _ in 0..TRIES {
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => thread::sleep(PAUSE),
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stays_but_what_is_to_be_kept() {
        let kept = tempfile::tempdir().expect("a folder");
        let keep = kept.path().join("new").join("folder");
        let folders = Folders::make(Some(&keep)).expect("folders");
        let gone = [folders.scratch().to_owned(), folders.run().to_owned()];
        for folder in [&gone[0], &gone[1], &folders.logs, &folders.without, &folders.with] {
            fs::write(folder.join("file"), "x").expect("written");
        }
        drop(folders);
        assert!(gone.iter().all(|folder| !folder.exists()));
        assert!(keep.join("logs").join("file").exists());
    }

    #[test]
    fn the_next_place_is_taken_where_the_first_does_not_let_us() {
        let place = tempfile::tempdir().expect("a folder");
        let places = [PathBuf::from("/proc"), place.path().to_owned()];
        let folder = Temporary::make(&places).expect("in the second");
        assert!(folder.path().starts_with(place.path()));
        assert!(Temporary::make(&places[..1]).is_err());
    }
}

//! The file that `--plot` names.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{Access, access};

/// Who may read and write a file, before the process's mask.
const MODE: u32 = 0o666;

/// A place for a plot that was looked at before the run began, which may take long. Nothing
/// stands there under its name until all of it is written.
#[derive(Debug)]
pub(super) struct PlotFile(PathBuf);

impl PlotFile {
    pub(super) fn prepare(path: &Path) -> anyhow::Result<Self> {
        let file = Self(path.to_owned());
        if path.is_dir() {
            anyhow::bail!("{}: it is a folder", file.cannot());
        }
        let rights = Access::WRITE_OK | Access::EXEC_OK;
        access(file.folder(), rights).with_context(|| file.cannot())?;
        Ok(file)
    }

    pub(super) fn write(&self, svg: &str) -> anyhow::Result<()> {
        let Self(path) = self;
        if path.exists() && !path.is_file() {
            // A pipe or a terminal is written to, and not replaced.
            return fs::write(path, svg).with_context(|| self.cannot());
        }
        let mut file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(MODE))
            .tempfile_in(self.folder())
            .with_context(|| self.cannot())?;
        file.write_all(svg.as_bytes()).with_context(|| self.cannot())?;
        file.persist(path).map(drop).with_context(|| self.cannot())
    }

    fn folder(&self) -> &Path {
        let folder = self.0.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new("."))
    }

    fn cannot(&self) -> String {
        format!("cannot write the plot to {}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_there_until_all_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("plot.svg");
        let file = PlotFile::prepare(&path).expect("a place");
        assert!(!path.exists());
        file.write("<svg/>").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("there"), "<svg/>");
        PlotFile::prepare(&path).expect("again").write("<svg></svg>").expect("replaced");
        drop(PlotFile::prepare(&path).expect("a run that fails"));
        assert_eq!(fs::read_to_string(&path).expect("there"), "<svg></svg>");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused_before_the_run() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [folder.path().to_owned(), folder.path().join("none/plot.svg")] {
            let error = PlotFile::prepare(&path).expect_err("no place");
            assert!(format!("{error:#}").contains("cannot write the plot to"), "{error:#}");
        }
    }
}

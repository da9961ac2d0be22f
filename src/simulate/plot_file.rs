//! The file that `--plot` names.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::NamedTempFile;

/// Who may read and write a file, before the process's mask.
const MODE: u32 = 0o666;

/// A place for a plot that was writable before the run began, which may have been long. Nothing
/// stands there under its name until all of it is written.
pub(super) struct PlotFile {
    path: PathBuf,
    written: Option<NamedTempFile>,
}

impl PlotFile {
    pub(super) fn prepare(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot write the plot to {}", path.display());
        let there = fs::metadata(path).ok();
        let written = match there {
            Some(there) if there.is_dir() => anyhow::bail!("{}: it is a folder", cannot()),
            // A pipe or a terminal is written to, and not replaced.
            Some(there) if !there.is_file() => None,
            _ => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let file = tempfile::Builder::new()
                    .permissions(Permissions::from_mode(MODE))
                    .tempfile_in(folder.unwrap_or(Path::new(".")));
                Some(file.with_context(cannot)?)
            }
        };
        Ok(Self { path: path.to_owned(), written })
    }

    pub(super) fn write(self, svg: &str) -> anyhow::Result<()> {
        let Self { path, written } = self;
        let cannot = || format!("cannot write the plot to {}", path.display());
        match written {
            None => fs::write(&path, svg).with_context(cannot),
            Some(mut file) => {
                file.write_all(svg.as_bytes()).with_context(cannot)?;
                file.persist(&path).map(drop).with_context(cannot)
            }
        }
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
            let error = PlotFile::prepare(&path).err().expect("no place");
            assert!(format!("{error:#}").contains("cannot write the plot to"), "{error:#}");
        }
    }
}

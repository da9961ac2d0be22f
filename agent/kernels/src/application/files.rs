//! Files that a specification names.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use gleaner_protocol::limits::SPEC_BYTES_MAX;
use thiserror::Error;

use super::ApplicationError;
use crate::plain_file;
use crate::volume::{Series, SeriesError};

/// A file's content, to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// A plain name.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Why a name is not one for a file that is written.
#[derive(Debug, Error)]
#[error("{key} = {name:?}: give a plain name that ends in {ends}")]
pub struct NameError {
    key: &'static str,
    name: String,
    ends: String,
}

/// Refuses what is no plain name, or ends in none of `ends`.
pub(super) fn check_name(
    key: &'static str,
    name: &str,
    ends: &[&str],
) -> Result<(), ApplicationError> {
    let is_plain = Path::new(name).file_name().is_some_and(|plain| plain == name);
    if is_plain && ends.iter().any(|end| has_end(name, end)) {
        return Ok(());
    }
    let ends = ends.join(" or ");
    Err(ApplicationError::Name(NameError { key, name: name.to_owned(), ends }))
}

/// Refuses files that would be written over each other.
pub(super) fn check_distinct(names: &[String]) -> Result<(), ApplicationError> {
    let mut known = BTreeSet::new();
    match names.iter().find(|name| !known.insert(*name)) {
        Some(twice) => Err(ApplicationError::Value(format!(
            "{twice:?} is the name of two files that are written: give each one of its own"
        ))),
        None => Ok(()),
    }
}

/// Reads a specification.
///
/// # Errors
/// It cannot be read, is no plain file, is larger than 1 MiB, or is not UTF-8.
pub fn read_spec(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    plain_file::open(path)?.take(SPEC_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > SPEC_BYTES_MAX {
        let problem = format!("it is larger than {SPEC_BYTES_MAX} bytes: is it a specification?");
        return Err(io::Error::other(problem));
    }
    Ok(text)
}

/// Whether a file's name ends like this, in small letters or large ones.
pub(super) fn has_end(name: &str, end: &str) -> bool {
    name.to_ascii_lowercase().ends_with(end)
}

/// A series as file, packed where its name says so.
pub(super) fn series_file(name: &str, series: &Series) -> Result<Product, SeriesError> {
    let bytes = if has_end(name, ".gz") {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        series.write_nifti(&mut packed)?;
        packed.finish()?
    } else {
        let mut bytes = Vec::new();
        series.write_nifti(&mut bytes)?;
        bytes
    };
    Ok(Product { name: name.to_owned(), bytes })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_is_no_specification_and_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pca.toml");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
        let told = read_spec(&pipe).expect_err("refused").to_string();
        assert!(told.contains("not a plain file"), "{told}");
        assert!(read_spec(folder.path()).is_err());
        let spec = folder.path().join("spec.toml");
        std::fs::write(&spec, "a = 1").expect("written");
        assert_eq!(read_spec(&spec).expect("a specification"), "a = 1");
    }
}

//! The runs of a history on disk.
//!
//! ```text
//!  a1b2c3d4 {"application":"gametree","kind":"any",…}
//! ```
//! A line for each run: the first half of a word of its BLAKE3, and the run as JSON. Lines are only
//! added; a file that has grown twice as long as the history is written anew.
//!
//! # Invariants
//! - What is read was written: a line with another hash is damage. A file with damage is moved
//!   aside whole, and what can be read of it is kept.
//! - A last line without its end was cut off by a kill, which is no damage.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gleaner_protocol::Digest;

use crate::history::History;
use crate::limits::{FILE_BYTES_MAX, LINE_BYTES_MAX, LINES_MIN};
use crate::run::Run;

const NAME: &str = "runs.jsonl";

/// The file, open to be added to.
#[derive(Debug)]
pub struct HistoryFile {
    path: PathBuf,
    file: Option<File>,
    lines: usize,
}

/// What was there.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The runs.
    pub history: History,
    /// Where a damaged file is now, and how many lines of it could not be read.
    pub damaged: Option<(PathBuf, usize)>,
}

impl HistoryFile {
    /// Where it is in a folder.
    #[must_use]
    pub fn path_in(folder: &Path) -> PathBuf {
        folder.join(NAME)
    }

    /// Reads the history of a folder, where there is one. `at_ms` is now, for the name of a file
    /// that is moved aside.
    ///
    /// # Errors
    /// The disk.
    pub fn open(folder: &Path, at_ms: u64) -> io::Result<(Self, Loaded)> {
        let path = Self::path_in(folder);
        let mut own = Self { path, file: None, lines: 0 };
        let mut loaded = Loaded::default();
        let content = match File::open(&own.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((own, loaded)),
            file => read(file?, &mut loaded.history)?,
        };
        if content.damaged > 0 {
            let aside = folder.join(format!("runs.damaged-{at_ms}.jsonl"));
            fs::rename(&own.path, &aside)?;
            loaded.damaged = Some((aside, content.damaged));
            own.write_anew(loaded.history.runs().cloned().collect())?;
            return Ok((own, loaded));
        }
        let file = OpenOptions::new().append(true).open(&own.path)?;
        file.set_len(content.whole_bytes)?;
        own.file = Some(file);
        own.lines = content.lines;
        Ok((own, loaded))
    }

    /// Adds runs to a history of which `kept` runs are kept with them: `all` of them are written anew
    /// where somebody took the file away, or where it is twice as long as it need be.
    ///
    /// # Errors
    /// The disk. The next call writes all of it anew.
    pub fn append(
        &mut self,
        runs: &[Run],
        kept: usize,
        all: impl FnOnce() -> Vec<Run>,
    ) -> io::Result<()> {
        let needed = kept.max(LINES_MIN / 2);
        let is_there = self.file.as_ref().is_some_and(|file| is_at(file, &self.path));
        if !is_there || self.lines + runs.len() > 2 * needed {
            return self.write_anew(all());
        }
        let lines: Vec<u8> = runs.iter().flat_map(line_of).collect();
        // What it has of a line that could not be written is no whole line.
        let mut file = self.file.take().ok_or(io::ErrorKind::NotFound)?;
        file.write_all(&lines)?;
        self.lines += runs.len();
        self.file = Some(file);
        Ok(())
    }

    /// Some runs are not written now: the next call writes all of it anew.
    pub fn leave_out(&mut self) {
        self.file = None;
    }

    /// Writes all runs, the oldest first.
    fn write_anew(&mut self, mut runs: Vec<Run>) -> io::Result<()> {
        self.file = None;
        let draft = self.path.with_extension("jsonl.new");
        let (mut options, mode) = (OpenOptions::new(), 0o600);
        let options = options.write(true).create(true).truncate(true).mode(mode);
        let mut out = BufWriter::new(options.open(&draft)?);
        runs.sort_by_key(|run| run.at_ms);
        for run in &runs {
            out.write_all(&line_of(run))?;
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::rename(&draft, &self.path)?;
        self.lines = runs.len();
        self.file = Some(file);
        Ok(())
    }
}

/// Whether a file is the one that has this name.
fn is_at(file: &File, path: &Path) -> bool {
    let named = fs::metadata(path).map(|about| (about.dev(), about.ino())).ok();
    named.is_some() && named == file.metadata().map(|about| (about.dev(), about.ino())).ok()
}

/// What a file was found to be.
struct Content {
    lines: usize,
    damaged: usize,
    whole_bytes: u64,
}

fn read(file: File, history: &mut History) -> io::Result<Content> {
    let mut input = BufReader::new(file.take(FILE_BYTES_MAX));
    let mut content = Content { lines: 0, damaged: 0, whole_bytes: 0 };
    loop {
        let mut line = Vec::new();
        let bytes = (&mut input).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        if bytes == 0 {
            break;
        }
        let is_whole = line.pop_if(|last| *last == b'\n').is_some();
        let was_cut_off = !is_whole && bytes < LINE_BYTES_MAX;
        match run_of(&line).filter(|_| is_whole) {
            Some(run) => history.add(run),
            None if was_cut_off => break,
            None => content.damaged += 1,
        }
        content.lines += 1;
        content.whole_bytes += bytes as u64;
    }
    Ok(content)
}

fn line_of(run: &Run) -> Vec<u8> {
    let json = serde_json::to_string(run).expect("our own types serialise");
    format!("{} {json}\n", check_of(json.as_bytes())).into_bytes()
}

fn run_of(line: &[u8]) -> Option<Run> {
    let (check, json) = line.split_at_checked(8)?;
    let json = json.strip_prefix(b" ")?;
    (check == check_of(json).as_bytes()).then(|| serde_json::from_slice(json).ok())?
}

fn check_of(json: &[u8]) -> String {
    Digest::of(json).to_string().chars().take(8).collect()
}

#[cfg(test)]
mod tests;

//! The rows of a farm's history on disk.
//!
//! ```text
//!  a1b2c3d4 {"by":"minute","start_ms":…}
//! ```
//! A line for each row that was written: the first half of a word of its BLAKE3, and the row as JSON.
//! Lines are added; a file twice as long as it need be is written anew.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gleaner_protocol::Digest;

use super::Line;
use crate::limits::{FARM_HISTORY_BYTES_MAX, FARM_LINE_BYTES_MAX};
use crate::store::FreeSpace;
use crate::wall_clock::utc_ms;

/// Lines that a file may have beyond those that count.
const SPARE_LINES: usize = 1_024;

/// The file, open to be added to.
pub(super) struct RowsFile {
    path: PathBuf,
    space: FreeSpace,
    /// Nothing where the next lines have to be written with all that came before.
    file: Option<File>,
    lines: usize,
    has_failed: bool,
}

impl RowsFile {
    /// Opens the file of a folder; what it says.
    pub(super) fn open(folder: &Path, min_free_bytes: u64) -> (Self, Vec<Line>) {
        let path = folder.join("farm.jsonl");
        let space = FreeSpace::new(folder, min_free_bytes);
        let mut own = Self { path, space, file: None, lines: 0, has_failed: false };
        match own.read() {
            Ok(lines) => (own, lines),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::error!("cannot read {}: {error}", own.path.display());
                }
                (own, Vec::new())
            }
        }
    }

    fn read(&mut self) -> io::Result<Vec<Line>> {
        let mut input = BufReader::new(File::open(&self.path)?.take(FARM_HISTORY_BYTES_MAX));
        let (mut lines, mut damaged) = (Vec::new(), 0_usize);
        loop {
            let mut line = Vec::new();
            let most = FARM_LINE_BYTES_MAX as u64;
            if (&mut input).take(most).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let is_whole = line.pop_if(|last| *last == b'\n').is_some();
            match line_of(&line).filter(|_| is_whole) {
                Some(line) => lines.push(line),
                // A kill may have cut the last one off.
                None if !is_whole && line.len() < FARM_LINE_BYTES_MAX => {}
                None => damaged += 1,
            }
        }
        self.lines = lines.len();
        if damaged > 0 {
            let aside = self.path.with_file_name(format!("farm.damaged-{}.jsonl", utc_ms()));
            fs::rename(&self.path, &aside)?;
            tracing::error!(
                "{damaged} lines of {} are damaged; it is {} now, and what could be read of it is kept",
                self.path.display(),
                aside.display()
            );
        }
        // All of it is written anew with the next rows: the file may end in half a line.
        Ok(lines)
    }

    /// Adds rows to a history that has `kept`; `all` of them are written where the file is longer than
    /// it need be, or could not be written before.
    pub(super) fn append(&mut self, rows: &[Line], kept: usize, all: impl FnOnce() -> Vec<Line>) {
        if rows.is_empty() {
            return;
        }
        let done = match self.space.admit() {
            Err(_) => {
                self.file = None;
                return;
            }
            Ok(()) => self.write(rows, kept, all),
        };
        match done {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                self.file = None;
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!("cannot write {}: {error}", self.path.display());
                }
            }
        }
    }

    fn write(
        &mut self,
        rows: &[Line],
        kept: usize,
        all: impl FnOnce() -> Vec<Line>,
    ) -> io::Result<()> {
        if let Some(file) = &mut self.file
            && self.lines + rows.len() <= 2 * kept + SPARE_LINES
        {
            file.write_all(&bytes_of(rows))?;
            self.lines += rows.len();
            return Ok(());
        }
        let rows = all();
        let draft = self.path.with_extension("jsonl.new");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&draft)?;
        file.write_all(&bytes_of(&rows))?;
        fs::rename(&draft, &self.path)?;
        (self.file, self.lines) = (Some(file), rows.len());
        Ok(())
    }
}

fn bytes_of(rows: &[Line]) -> Vec<u8> {
    let line = |row: &Line| {
        let json = serde_json::to_string(row).expect("our own types serialise");
        format!("{} {json}\n", check_of(json.as_bytes())).into_bytes()
    };
    rows.iter().flat_map(line).collect()
}

fn line_of(line: &[u8]) -> Option<Line> {
    let (check, json) = line.split_at_checked(8)?;
    let json = json.strip_prefix(b" ")?;
    (check == check_of(json).as_bytes()).then(|| serde_json::from_slice(json).ok())?
}

fn check_of(json: &[u8]) -> String {
    Digest::of(json).to_string().chars().take(8).collect()
}

//! The records on disk.
//!
//! ```text
//!  usage
//!  ├── 0000000001.jsonl   lines, in the order in which replicas ended
//!  └── 0000000002.jsonl   the last one is added to
//! ```
//!
//! # Invariants
//! - What is read was written: a line with another hash is damage. A segment with damage is moved
//!   aside whole, and what can be read of it is kept in its place.
//! - A last line without its end was cut off by a kill, which is no damage: it is none.
//! - There are never more segments than [`Bounds::segments_max`]: the oldest go.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::record::{UsageRecord, json_of, write_line};
use crate::limits::{USAGE_LINE_BYTES_MAX, USAGE_SEGMENT_BYTES, USAGE_SEGMENTS_MAX};

const FOLDER: &str = "usage";
const SUFFIX: &str = ".jsonl";
const MODE: u32 = 0o600;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// A segment takes no further record once it has this many bytes.
    pub(super) segment_bytes: u64,
    pub(super) segments_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { segment_bytes: USAGE_SEGMENT_BYTES, segments_max: USAGE_SEGMENTS_MAX }
    }
}

/// The segments of a data folder, the last one open to be added to.
#[derive(Debug)]
pub(super) struct Segments {
    folder: PathBuf,
    bounds: Bounds,
    /// Their numbers, the oldest first.
    numbers: VecDeque<u64>,
    open: Option<Open>,
}

/// The last segment.
#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
}

/// A segment that could not be read whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damaged {
    /// Where it is now.
    pub(super) aside: PathBuf,
    /// How many lines of it are lost.
    pub(super) lines: usize,
}

impl Segments {
    /// Looks through the segments of a data folder, and cuts off what a kill left of a last line.
    /// `at_ms` is now, for the names of those that are moved aside.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn open(
        data_folder: &Path,
        bounds: Bounds,
        at_ms: u64,
    ) -> io::Result<(Self, Vec<Damaged>)> {
        let folder = data_folder.join(FOLDER);
        let numbers = list(&folder)?;
        let mut own = Self { folder, bounds, numbers: numbers.into(), open: None };
        let mut damaged = Vec::new();
        let mut whole_bytes = 0;
        for number in own.numbers.clone() {
            let path = own.path(number);
            let mut lines = 0;
            whole_bytes = each_line(&path, |line| lines += usize::from(json_of(line).is_none()))?;
            if lines > 0 {
                let aside = own.folder.join(format!("{number:010}.damaged-{at_ms}{SUFFIX}"));
                whole_bytes = keep_readable(&path, &aside)?;
                damaged.push(Damaged { aside, lines });
            }
        }
        if let Some(last) = own.numbers.back() {
            let file = OpenOptions::new().append(true).open(own.path(*last))?;
            file.set_len(whole_bytes)?;
            own.open = Some(Open { file, bytes: whole_bytes });
        }
        Ok((own, damaged))
    }

    /// Adds records, and takes those away from the queue that are written.
    ///
    /// # Errors
    /// The disk. What is left in the queue is not on it.
    pub(super) fn append(&mut self, records: &mut VecDeque<UsageRecord>) -> io::Result<()> {
        let mut lines = Vec::new();
        while !records.is_empty() {
            if self.open.as_ref().is_none_or(|open| open.bytes >= self.bounds.segment_bytes) {
                self.begin_segment()?;
            }
            let open = self.open.as_mut().expect("one was begun");
            let room = self.bounds.segment_bytes - open.bytes;
            let mut count = 0;
            lines.clear();
            for record in &*records {
                write_line(record, &mut lines);
                count += 1;
                if lines.len() as u64 >= room {
                    break;
                }
            }
            if let Err(error) = open.file.write_all(&lines) {
                // What is there of the lines is written anew, here or in another segment.
                if open.file.set_len(open.bytes).is_err() {
                    self.open = None;
                }
                return Err(error);
            }
            open.bytes += lines.len() as u64;
            records.drain(..count);
        }
        Ok(())
    }

    /// The files, the oldest first.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.numbers.iter().map(|number| self.path(*number)).collect()
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        self.open = None;
        fs::create_dir_all(&self.folder)?;
        let number = self.numbers.back().map_or(1, |last| last + 1);
        let mut options = OpenOptions::new();
        let options = options.append(true).create_new(true).mode(MODE);
        let file = options.open(self.path(number))?;
        self.numbers.push_back(number);
        self.open = Some(Open { file, bytes: 0 });
        while self.numbers.len() > self.bounds.segments_max {
            let oldest = self.numbers.front().expect("there are several");
            match fs::remove_file(self.path(*oldest)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.numbers.pop_front(),
            };
        }
        Ok(())
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:010}{SUFFIX}"))
    }
}

/// Reads the records of a segment, those aside that a newer release has written. One that is gone by
/// now has none.
///
/// # Errors
/// The disk.
pub(super) fn read(path: &Path, mut take: impl FnMut(UsageRecord)) -> io::Result<()> {
    let read = each_line(path, |line| {
        let record = json_of(line).and_then(|json| serde_json::from_slice(json).ok());
        record.into_iter().for_each(&mut take);
    });
    match read {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Passes each whole line on without its end; the length of all of them.
fn each_line(path: &Path, mut take: impl FnMut(&[u8])) -> io::Result<u64> {
    let mut input = BufReader::new(File::open(path)?);
    let (mut line, mut whole_bytes) = (Vec::new(), 0);
    loop {
        line.clear();
        let most = USAGE_LINE_BYTES_MAX;
        let bytes = (&mut input).take(most as u64).read_until(b'\n', &mut line)?;
        let is_whole = line.pop_if(|last| *last == b'\n').is_some();
        if bytes == 0 || (!is_whole && bytes < most) {
            return Ok(whole_bytes);
        }
        take(&line);
        whole_bytes += bytes as u64;
    }
}

/// Moves a segment aside, and writes what can be read of it in its place; its length.
fn keep_readable(path: &Path, aside: &Path) -> io::Result<u64> {
    let draft = path.with_extension("new");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(MODE).open(&draft)?;
    let mut out = BufWriter::new(file);
    let (mut bytes, mut failed) = (0, None);
    each_line(path, |line| {
        if json_of(line).is_some() && failed.is_none() {
            bytes += line.len() as u64 + 1;
            failed = out.write_all(line).and_then(|()| out.write_all(b"\n")).err();
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?;
    fs::rename(path, aside)?;
    fs::rename(&draft, path)?;
    Ok(bytes)
}

/// Whether a file of a data folder, by its path in it, is a segment.
pub(crate) fn is_segment(name: &str) -> bool {
    let digits = name.strip_prefix(FOLDER).and_then(|name| name.strip_prefix('/'));
    let digits = digits.and_then(|name| name.strip_suffix(SUFFIX));
    digits.is_some_and(|digits| digits.len() == 10 && digits.bytes().all(|of| of.is_ascii_digit()))
}

/// The segments of a data folder, by their paths in it, the oldest first.
///
/// # Errors
/// The disk.
pub(crate) fn segment_names(data_folder: &Path) -> io::Result<Vec<String>> {
    let numbers = list(&data_folder.join(FOLDER))?;
    Ok(numbers.into_iter().map(|number| format!("{FOLDER}/{number:010}{SUFFIX}")).collect())
}

/// The numbers of the segments in a folder, in their order.
fn list(folder: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)?.parse::<u64>().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests;

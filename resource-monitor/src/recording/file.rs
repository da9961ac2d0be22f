//! The file of a recording, and the older ones beside it.
//!
//! # Invariants
//! - `FILE` and `FILE.1` (the one before it) to `FILE.7` have at most [`RECORD_FILE_BYTES_MAX`]
//!   bytes each, and one batch more.
//! - Each of them can be read alone: it begins with a head, the state of all hosts and what is given
//!   of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use gleaner_protocol::HostName;
use gleaner_protocol::recording::{Head, HostLine, Line, OpenedLine};

use crate::limits::{RECORD_FILE_BYTES_MAX, RECORD_FILES_MAX};

/// Where lines are appended.
#[derive(Debug)]
pub(super) struct RecordFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    head: Head,
    /// What every host was like last: what a new file begins with.
    hosts: BTreeMap<HostName, HostLine>,
    /// What is given of them, likewise.
    open: BTreeMap<HostName, OpenedLine>,
    /// A write has failed: the file may end in the middle of a line, and lines are missing.
    has_gap: bool,
}

impl RecordFile {
    /// Opens a file, which goes on where it ends, and writes a head.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn open(path: &Path, head: Head) -> io::Result<Self> {
        let (file, bytes) = append_to(path)?;
        let mut file = Self {
            path: path.to_owned(),
            file,
            bytes,
            bytes_max: RECORD_FILE_BYTES_MAX,
            head,
            hosts: BTreeMap::new(),
            open: BTreeMap::new(),
            has_gap: false,
        };
        let begin = file.beginning(file.head.t_us, false);
        file.append(begin)?;
        Ok(file)
    }

    /// Writes lines.
    ///
    /// # Errors
    /// They are lost. The next write begins anew behind a gap.
    pub(super) fn write(&mut self, batch: Vec<Line>) -> io::Result<()> {
        let Some(first) = batch.first().map(Line::t_us) else { return Ok(()) };
        let written = self.try_write(first, &batch);
        self.has_gap |= written.is_err();
        for line in batch {
            match line {
                Line::Host(line) => drop(self.hosts.insert(line.host.clone(), line)),
                Line::Opened(line) => drop(self.open.insert(line.host.clone(), line)),
                Line::Closed(line) => drop(self.open.remove(&line.host)),
                _ => {}
            }
        }
        written
    }

    fn try_write(&mut self, first: u64, batch: &[Line]) -> io::Result<()> {
        let mut text = Vec::new();
        if self.has_gap {
            (self.file, self.bytes) = append_to(&self.path)?;
            text = self.beginning(first, false);
        }
        if self.bytes >= self.bytes_max {
            self.begin_new_file()?;
            text = self.beginning(first, !self.has_gap);
        }
        for line in batch {
            put(&mut text, line);
        }
        self.append(text)?;
        self.has_gap = false;
        Ok(())
    }

    /// A head, what all hosts are like, and what is given of them.
    fn beginning(&self, t_us: u64, continued: bool) -> Vec<u8> {
        let mut text = Vec::new();
        put(&mut text, &Line::Recording(Head { t_us, continued, ..self.head.clone() }));
        for host in self.hosts.values() {
            let host = HostLine { t_us, disturbed: false, shut: false, ..host.clone() };
            put(&mut text, &Line::Host(host));
        }
        for opened in self.open.values() {
            put(&mut text, &Line::Opened(OpenedLine { t_us, ..opened.clone() }));
        }
        text
    }

    fn append(&mut self, text: Vec<u8>) -> io::Result<()> {
        self.file.write_all(&text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Each file becomes one older; the oldest goes.
    fn begin_new_file(&mut self) -> io::Result<()> {
        for age in (1..RECORD_FILES_MAX).rev() {
            let newer = if age == 1 { self.path.clone() } else { aged(&self.path, age - 1) };
            match fs::rename(newer, aged(&self.path, age)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        (self.file, self.bytes) = append_to(&self.path)?;
        Ok(())
    }
}

/// The name of a file that was replaced so many times.
fn aged(path: &Path, age: usize) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{age}"));
    name.into()
}

/// Opens a file to append whole lines, and says how long it is.
fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let mut bytes = file.seek(SeekFrom::End(0))?;
    if bytes > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            // A line that a kill tore.
            file.write_all(b"\n")?;
            bytes += 1;
        }
    }
    Ok((file, bytes))
}

fn put(text: &mut Vec<u8>, line: &Line) {
    serde_json::to_writer(&mut *text, line).expect("lines are plain data");
    text.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_protocol::recording::{AliveLine, ClosedLine};

    fn head() -> Head {
        Head {
            version: 1,
            t_us: 5,
            boot: "x".into(),
            booted_s: 9,
            continued: false,
            quiet_us: 60_000_000,
            reserve_cores: 0,
        }
    }

    fn host(t_us: u64, busy: u32) -> Line {
        let host = HostName::new("a").expect("a name");
        Line::Host(HostLine { t_us, host, cores: 8, busy, seen: true, disturbed: true, shut: true })
    }

    fn lines(path: &Path) -> Vec<Line> {
        let text = fs::read_to_string(path).expect("a file");
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    #[test]
    fn a_full_file_gives_way_to_one_that_begins_with_all_hosts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("farm.jsonl");
        let mut file = RecordFile::open(&path, head()).expect("opens");
        file.bytes_max = 1;
        file.write(vec![host(6, 3)]).expect("writes");
        file.write(vec![Line::Alive(AliveLine { t_us: 7 })]).expect("writes");
        let calm = |line| match line {
            Line::Host(host) => Line::Host(HostLine { disturbed: false, shut: false, ..host }),
            other => other,
        };
        let continued = |t_us| Line::Recording(Head { t_us, continued: true, ..head() });
        assert_eq!(lines(&aged(&path, 2)), [Line::Recording(head())]);
        assert_eq!(lines(&aged(&path, 1)), [continued(6), host(6, 3)]);
        let last = [continued(7), calm(host(7, 3)), Line::Alive(AliveLine { t_us: 7 })];
        assert_eq!(lines(&path), last);
        for t_us in 8..30 {
            file.write(vec![Line::Alive(AliveLine { t_us })]).expect("writes");
        }
        let kept = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(kept, RECORD_FILES_MAX);
    }

    #[test]
    fn a_new_file_says_what_is_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("farm.jsonl");
        let mut file = RecordFile::open(&path, head()).expect("opens");
        file.bytes_max = 1;
        let [a, b] = ["a", "b"].map(|name| HostName::new(name).expect("a name"));
        let opened =
            |t_us, host: &HostName| Line::Opened(OpenedLine { t_us, host: host.clone(), cores: 8 });
        let closed = Line::Closed(ClosedLine { t_us: 8, host: a.clone(), reason: "why".into() });
        file.write(vec![opened(6, &a), opened(7, &b), closed]).expect("writes");
        file.write(vec![Line::Alive(AliveLine { t_us: 9 })]).expect("writes");
        let continued = Line::Recording(Head { t_us: 9, continued: true, ..head() });
        let alive = Line::Alive(AliveLine { t_us: 9 });
        assert_eq!(lines(&path), [continued, opened(9, &b), alive]);
    }

    #[test]
    fn a_torn_line_ends_before_the_next_head() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("farm.jsonl");
        fs::write(&path, "{\"aliv").expect("written");
        RecordFile::open(&path, head()).expect("opens");
        let text = fs::read_to_string(&path).expect("a file");
        assert!(text.starts_with("{\"aliv\n{\"recording\":{\"version\":1,"), "{text}");
    }

    #[test]
    fn after_a_write_that_failed_the_file_begins_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("farm.jsonl");
        let mut file = RecordFile::open(&path, head()).expect("opens");
        // Every write to this file fails for want of space.
        file.file = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        file.write(vec![host(6, 3)]).expect_err("the disk is full");
        file.write(vec![host(8, 4)]).expect("there is space again");
        let begin = |t_us| Line::Recording(Head { t_us, ..head() });
        let Line::Host(known) = host(8, 3) else { unreachable!("it is one") };
        let known = Line::Host(HostLine { disturbed: false, shut: false, ..known });
        assert_eq!(lines(&path), [begin(5), begin(8), known, host(8, 4)]);
    }
}

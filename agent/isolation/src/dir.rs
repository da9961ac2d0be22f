//! One group's folder: its files, its members, and its end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use crate::limits::{DEPTH_MAX, FILE_BYTES_MAX, KILL_ROUNDS_MAX};

/// A group's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupDir {
    path: PathBuf,
}

impl GroupDir {
    pub(crate) const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Makes the group, if it is not there.
    pub(crate) fn make(path: PathBuf) -> io::Result<Self> {
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(Self { path }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.path.join(file).exists()
    }

    pub(crate) fn open(&self, file: &str) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.path.join(file))
    }

    /// One write, as the kernel wants it.
    pub(crate) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        self.open(file)?.write_all(text.as_bytes())
    }

    pub(crate) fn read(&self, file: &str) -> io::Result<String> {
        let mut text = String::new();
        let file = File::open(self.path.join(file))?;
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// The number after a word in a file of words and numbers.
    pub(crate) fn entry(&self, file: &str, word: &str) -> Option<u64> {
        let text = self.read(file).ok()?;
        text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
    }

    /// Whether it is the root of the unified hierarchy, in which other rules hold.
    pub(crate) fn is_root(&self) -> bool {
        !self.has("cgroup.type")
    }

    /// Whether any process is in it, be it the first one of a container or one that cannot be seen.
    pub(crate) fn has_any(&self) -> bool {
        self.read("cgroup.procs").is_ok_and(|text| !text.trim().is_empty())
    }

    /// Its members, without those of groups below it.
    pub(crate) fn members(&self) -> Vec<i32> {
        let text = self.read("cgroup.procs").unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid > 1).collect()
    }

    /// Groups directly below it.
    pub(crate) fn children(&self) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| Self { path: entry.path() })
            .collect()
    }

    /// Kills its members and theirs, as often as new ones appear. Says whether any are left.
    pub(crate) fn kill_members(&self) -> bool {
        for _ in 0..KILL_ROUNDS_MAX {
            let members = self.members();
            if members.is_empty() {
                return false;
            }
            kill_all(&members);
            std::thread::yield_now();
        }
        !self.members().is_empty()
    }

    /// Kills those that are its members now, or those of groups below it.
    pub(crate) fn kill_members_once(&self) {
        kill_all(&self.all_members());
    }

    /// Lets it and the groups below it run on, in a hierarchy of version 1.
    pub(crate) fn thaw_all(&self) {
        let mut open = vec![(self.clone(), DEPTH_MAX)];
        while let Some((dir, depth)) = open.pop() {
            let _ = dir.write("freezer.state", "THAWED");
            if depth > 0 {
                open.extend(dir.children().into_iter().map(|child| (child, depth - 1)));
            }
        }
    }

    /// Lets it and the groups below it have all of a core.
    pub(crate) fn lift_shares(&self) {
        let mut open = vec![(self.clone(), DEPTH_MAX)];
        while let Some((dir, depth)) = open.pop() {
            for (file, none) in [("cpu.max", "max"), ("cpu.cfs_quota_us", "-1")] {
                let is_limited = dir.read(file).is_ok_and(|text| !text.starts_with(none));
                if is_limited {
                    let _ = dir.write(file, none);
                }
            }
            if depth > 0 {
                open.extend(dir.children().into_iter().map(|child| (child, depth - 1)));
            }
        }
    }

    /// Kills its members and those of groups below it, as often as new ones appear. Says whether
    /// any are left.
    pub(crate) fn kill_all_members(&self) -> bool {
        for _ in 0..KILL_ROUNDS_MAX {
            let members = self.all_members();
            if members.is_empty() {
                return false;
            }
            kill_all(&members);
            std::thread::yield_now();
        }
        !self.all_members().is_empty()
    }

    /// Its members, and those of groups below it.
    pub(crate) fn all_members(&self) -> Vec<i32> {
        let mut open = vec![(self.clone(), DEPTH_MAX)];
        let mut members = Vec::new();
        while let Some((dir, depth)) = open.pop() {
            members.extend(dir.members());
            if depth > 0 {
                open.extend(dir.children().into_iter().map(|child| (child, depth - 1)));
            }
        }
        members
    }

    /// Kills all that is in it and below it, and removes what is below it.
    pub(crate) fn empty(&self) -> io::Result<()> {
        let _ = self.write("freezer.state", "THAWED");
        let _ = self.write("cgroup.kill", "1");
        // Whoever froze it may have died before it could let it run again.
        let _ = self.write("cgroup.freeze", "0");
        self.children().iter().try_for_each(Self::clear_away)?;
        if self.kill_members() { Err(io::ErrorKind::ResourceBusy.into()) } else { Ok(()) }
    }

    /// Kills all that is in it and below it, and removes it.
    pub(crate) fn clear_away(&self) -> io::Result<()> {
        self.clear_away_to(DEPTH_MAX)
    }

    fn clear_away_to(&self, depth: u32) -> io::Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        if depth == 0 {
            return Err(io::Error::other("groups are nested too deep"));
        }
        // What is frozen does not die in a hierarchy of version 1.
        let _ = self.write("freezer.state", "THAWED");
        let _ = self.write("cgroup.kill", "1");
        // Whoever froze it may have died before it could let it run again.
        let _ = self.write("cgroup.freeze", "0");
        for child in self.children() {
            child.clear_away_to(depth - 1)?;
        }
        self.remove_when_empty()
    }

    /// A group can be removed once its last member has ended, which takes a moment after a kill.
    fn remove_when_empty(&self) -> io::Result<()> {
        let mut pause = PAUSE_FIRST;
        loop {
            self.kill_members();
            match fs::remove_dir(&self.path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if pause > PAUSE_LAST => return Err(error),
                // Groups have no event for "may be removed" in both versions.
                Err(_) => std::thread::sleep(pause),
            }
            pause *= 2;
        }
    }
}

fn kill_all(members: &[i32]) {
    for pid in members.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

const PAUSE_FIRST: std::time::Duration = std::time::Duration::from_micros(200);
/// The pauses sum up to twice this: a process that cannot be killed is not waited for longer.
const PAUSE_LAST: std::time::Duration = std::time::Duration::from_millis(500);

//! What is to be done to a site, apart from doing it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use super::record::{self, Record};
use super::{InstallError, Manager, Options, Site, block};

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Puts a file of ours in its place.
    Put {
        /// Where.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its text.
        text: String,
    },
    /// Changes a file of the site's, and keeps what was there.
    Edit {
        /// Which.
        path: PathBuf,
        /// As it is.
        before: String,
        /// As it is to be.
        after: String,
    },
    /// Tells the manager something by a program of its own.
    Tell {
        /// Program and arguments.
        command: Vec<String>,
        /// What takes it back.
        undo: Option<Vec<String>>,
        /// Whether nothing is right without it; else an administrator may do it later.
        is_needed: bool,
    },
    /// Removes a file of ours.
    Remove {
        /// Which.
        path: PathBuf,
    },
    /// Removes a folder of ours if nothing else is in it.
    RemoveFolder {
        /// Which.
        path: PathBuf,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { path, mode, .. } => write!(f, "write {} (mode {mode:04o})", path.display()),
            Self::Edit { path, before, after } => {
                write!(f, "edit {}", path.display())?;
                if matches!(block::has_block(before), Ok(false)) {
                    write!(f, ", keep it as {}", backup(path).display())?;
                }
                difference(f, before, after)
            }
            Self::Tell { command, .. } => write!(f, "run `{}`", shell_line(command)),
            Self::Remove { path } => write!(f, "remove {}", path.display()),
            Self::RemoveFolder { path } => write!(f, "remove the folder {}", path.display()),
        }
    }
}

/// A command as it can be pasted into a shell.
fn shell_line(command: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:,@+".contains(c);
    let quote = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    command.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Lines that come and go. One stretch changes: what is the same at both ends is left out.
fn difference(f: &mut fmt::Formatter<'_>, before: &str, after: &str) -> fmt::Result {
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let lines = |sign, lines: &[&str]| -> Vec<String> {
        lines.iter().map(|line| format!("\n  {:>4} {sign} {line}", head + 1)).collect()
    };
    for line in lines('-', &old[..old.len() - tail]) {
        f.write_str(&line)?;
    }
    for line in lines('+', &new[..new.len() - tail]) {
        f.write_str(&line)?;
    }
    Ok(())
}

/// Where a file of the site's is kept as it was.
pub(super) fn backup(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".before-gleaner");
    path.with_file_name(name)
}

/// Steps in the order in which they are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    manager: Manager,
    /// The steps.
    pub changes: Vec<Change>,
    /// What the administrator has to know.
    pub notes: Vec<String>,
    /// What is left to be done by hand, or at another time: without it the hooks are not as they were
    /// asked for.
    pub undone: Vec<String>,
    /// Files that the configuration will name.
    runs: Vec<PathBuf>,
    /// Files of ours that are in place already.
    present: BTreeMap<PathBuf, String>,
    /// Files of the site's that have our block already.
    edited: Vec<PathBuf>,
    /// What takes back what the manager was told already.
    undo: Vec<Vec<String>>,
    /// Texts of ours that files have which get others.
    replaced: BTreeMap<PathBuf, String>,
    /// What installations before this one did.
    before: Option<Record>,
}

impl Plan {
    /// With nothing to do yet, after what was done before.
    pub(super) fn after(manager: Manager, before: Option<&Record>) -> Self {
        Self { before: before.cloned(), ..Self::new(manager) }
    }

    pub(super) fn new(manager: Manager) -> Self {
        Self {
            manager,
            changes: Vec::new(),
            notes: Vec::new(),
            undone: Vec::new(),
            runs: Vec::new(),
            present: BTreeMap::new(),
            edited: Vec::new(),
            undo: Vec::new(),
            replaced: BTreeMap::new(),
            before: None,
        }
    }

    /// The manager it is for.
    #[must_use]
    pub const fn manager(&self) -> Manager {
        self.manager
    }

    /// Whether a file has what an installation of ours wrote.
    pub(super) fn wrote(&self, path: &Path, text: &str) -> bool {
        self.before.as_ref().is_some_and(|before| before.wrote(path, text))
    }

    /// Where the scripts are that it puts.
    pub(super) fn folders_of_scripts(&self) -> BTreeSet<PathBuf> {
        self.runs.iter().filter_map(|path| path.parent()).map(Path::to_owned).collect()
    }

    /// Puts a file of ours. One that is there already stays if it is as it is to be, or if somebody
    /// else wrote it or has changed it since.
    pub(super) fn put(
        &mut self,
        site: &Site,
        path: &Path,
        mode: u32,
        text: &str,
    ) -> Result<(), InstallError> {
        if mode & 0o100 != 0 {
            self.runs.push(path.to_owned());
        }
        let now = site.read(path)?;
        if now.as_deref() == Some(text) && site.mode(path) == Some(mode) {
            self.present.insert(path.to_owned(), text.to_owned());
            return Ok(());
        }
        if let Some(now) = now.filter(|now| now != text) {
            if !self.wrote(path, &now) {
                self.notes.push(format!(
                    "{} is there, not as this release has it, and stays as it is; remove it and \
                     install again to have ours",
                    path.display()
                ));
                return Ok(());
            }
            self.replaced.insert(path.to_owned(), now);
        }
        self.changes.push(Change::Put { path: path.to_owned(), mode, text: text.to_owned() });
        Ok(())
    }

    /// Puts our block into a file of the site's: in place of the one there, else before a line. Without
    /// lines there is to be none.
    pub(super) fn edit(
        &mut self,
        path: &Path,
        text: &str,
        lines: &[String],
        before: Option<usize>,
    ) -> Result<(), InstallError> {
        let refused = |source| InstallError::Block { path: path.to_owned(), source };
        let after = match lines {
            [] => block::without_block(text),
            lines => block::with_block(text, lines, before),
        }
        .map_err(refused)?;
        if after == text {
            self.edited.push(path.to_owned());
        } else {
            let (path, before) = (path.to_owned(), text.to_owned());
            self.changes.push(Change::Edit { path, before, after });
        }
        Ok(())
    }

    /// Whether an installation of ours told the manager what this takes back.
    pub(super) fn was_told(&self, undo: &Vec<String>) -> bool {
        self.before.as_ref().is_some_and(|before| before.undo.contains(undo))
    }

    /// What the manager was told before.
    pub(super) fn told(&mut self, undo: Vec<String>) {
        self.undo.push(undo);
    }

    /// Whether it writes this file.
    pub(super) fn writes(&self, file: &Path) -> bool {
        self.changes.iter().any(|change| match change {
            Change::Put { path, .. } | Change::Edit { path, .. } => path == file,
            Change::Tell { .. } | Change::Remove { .. } | Change::RemoveFolder { .. } => false,
        })
    }

    /// Whether there is nothing left to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.changes.is_empty()
    }

    /// With a record of it all and of what was done before, which is written first: then it can be
    /// undone whatever happens.
    pub(super) fn with_record(mut self, options: &Options, before: Option<&Record>) -> Self {
        let mut record = before.cloned().unwrap_or_else(|| Record::new(options));
        record.say(options, before.is_some());
        record.untold = None;
        record.files.append(&mut self.present.clone());
        record.replaced.append(&mut self.replaced.clone());
        self.edited.iter().for_each(|path| record.edit(path));
        self.undo.iter().for_each(|undo| record.undo_by(undo));
        for change in &self.changes {
            match change {
                Change::Put { path, text, .. } => {
                    record.files.insert(path.clone(), text.clone());
                }
                Change::Edit { path, .. } => record.edit(path),
                Change::Tell { undo: Some(undo), .. } => record.undo_by(undo),
                Change::Tell { .. } | Change::Remove { .. } | Change::RemoveFolder { .. } => {}
            }
        }
        if before != Some(&record) {
            let (path, mode) = (record::path(self.manager), 0o644);
            self.changes.insert(0, Change::Put { path, mode, text: record.to_text() });
        }
        self
    }

    /// Does it; what was done, a line each, and what has to be done by hand.
    ///
    /// # Errors
    /// A step fails: those before it stay done, those after it are not tried.
    pub fn apply(self, site: &Site) -> Result<(Vec<String>, Vec<String>), InstallError> {
        let (mut done, mut undone) = (Vec::new(), Vec::new());
        for change in &self.changes {
            if matches!(change, Change::Edit { .. } | Change::Tell { .. }) {
                self.check_what_runs(site)?;
            }
            match (change.apply(site), change) {
                (Ok(true), _) => done.push(change.to_string()),
                (Ok(false), _) => {}
                (Err(error), Change::Tell { is_needed: false, .. }) => {
                    undone.push(format!("{error}; {change} yourself"));
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok((done, undone))
    }

    /// What a manager is told to run must be there to be run.
    fn check_what_runs(&self, site: &Site) -> Result<(), InstallError> {
        match self.runs.iter().find(|path| !site.is_executable(path)) {
            None => Ok(()),
            Some(path) => Err(InstallError::missing(
                format!("{} cannot be run, so nothing was configured to run it", path.display()),
                "see why it is not there, or not executable, and install again",
            )),
        }
    }
}

impl Change {
    /// Takes the step. False where there was nothing to do: a folder that has something else in it.
    fn apply(&self, site: &Site) -> Result<bool, InstallError> {
        match self {
            Self::RemoveFolder { path } => return Ok(site.remove_empty(path)),
            Self::Put { path, mode, text } => site.write(path, text, Some(*mode)),
            Self::Edit { path, before, after } => {
                let now = site.read(path)?.unwrap_or_default();
                if now != *before {
                    return Err(InstallError::missing(
                        format!("{} was changed by somebody else just now", path.display()),
                        "try again",
                    ));
                }
                // What is kept is what was there before the first of our lines.
                if matches!(block::has_block(before), Ok(false)) {
                    site.write(&backup(path), before, site.mode(path))?;
                }
                site.write(path, after, None)
            }
            Self::Tell { command, .. } => {
                let words: Vec<&str> = command.iter().map(String::as_str).collect();
                site.run(&words).map(drop)
            }
            Self::Remove { path } => site.remove(path),
        }
        .map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_file_is_shown_by_the_lines_that_change() {
        let edit = Change::Edit {
            path: "/etc/x.conf".into(),
            before: "a\nb\nc\n".into(),
            after: "a\nx\ny\nc\n".into(),
        };
        let shown = edit.to_string();
        assert_eq!(
            shown,
            "edit /etc/x.conf, keep it as /etc/x.conf.before-gleaner\n     2 - b\n     2 + x\n     2 + y"
        );
    }

    #[test]
    fn a_command_is_shown_as_a_shell_takes_it() {
        let command = ["qconf", "-mattr", "root@/x $host", "it's", ""].map(String::from).to_vec();
        let tell = Change::Tell { command, undo: None, is_needed: true };
        assert_eq!(tell.to_string(), r"run `qconf -mattr 'root@/x $host' 'it'\''s' ''`");
    }
}

//! The machine that hooks are installed on: its files below a root, and the manager's programs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use gleaner_protocol::{Span, boottime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::InstallError;
use crate::command_line::{ALONE, WHOLE};
use crate::limits::{ANSWER_BYTES_MAX, CONFIG_BYTES_MAX, MANAGER_WAIT, VERSION_WAIT};

/// Files below a root, and where the manager's programs are looked for.
#[derive(Debug, Clone)]
pub struct Site {
    root: PathBuf,
    programs: Option<OsString>,
    manager_is_gone: bool,
}

/// Who may do what with a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) owner: u32,
    pub(super) group: u32,
    pub(super) mode: u32,
}

impl Site {
    /// This machine as it runs.
    #[must_use]
    pub fn here() -> Self {
        Self { root: "/".into(), programs: std::env::var_os("PATH"), manager_is_gone: false }
    }

    /// A tree that nothing runs in, such as a host's image: no manager is asked or told anything.
    #[must_use]
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), programs: None, manager_is_gone: false }
    }

    /// With the manager's programs in these folders, as in `PATH`.
    #[must_use]
    pub fn with_programs(mut self, path: impl Into<OsString>) -> Self {
        self.programs = Some(path.into());
        self
    }

    /// Where the administrator says that no manager runs any more that could run what is here.
    #[must_use]
    pub fn whose_manager_is_gone(mut self, is_gone: bool) -> Self {
        self.manager_is_gone = is_gone;
        self
    }

    /// Whether the administrator says so.
    pub(super) fn is_without_manager(&self) -> bool {
        self.manager_is_gone
    }

    /// Whether a manager may run what is here, be its programs in `PATH` or not: never in a tree
    /// that nothing runs in.
    pub(super) fn may_have_manager(&self) -> bool {
        !self.manager_is_gone && (self.is_here() || self.programs.is_some())
    }

    /// Whether it is this machine as it runs, and no tree of another.
    pub(super) fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where a path of this site really is.
    pub(super) fn real(&self, path: &Path) -> PathBuf {
        let inside = path.components().filter(|part| matches!(part, Component::Normal(_)));
        inside.fold(self.root.clone(), |whole, part| whole.join(part))
    }

    /// A file's text; none where there is none.
    ///
    /// # Errors
    /// It cannot be read, is no text, or is longer than a configuration file is.
    pub(super) fn read(&self, path: &Path) -> Result<Option<String>, InstallError> {
        let real = self.real(path);
        let cannot = |source| InstallError::io("read", path, source);
        // Who opens a fifo without that waits for somebody to write to it.
        let open = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&real);
        let file = match open {
            Ok(file) => file,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(cannot(error)),
        };
        if !file.metadata().map_err(cannot)?.is_file() {
            return Err(cannot(io::Error::other("it is no plain file")));
        }
        let mut text = String::new();
        file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text).map_err(cannot)?;
        if text.len() as u64 > CONFIG_BYTES_MAX {
            let most = format!("it is longer than {CONFIG_BYTES_MAX} bytes");
            return Err(cannot(io::Error::other(most)));
        }
        Ok(Some(text))
    }

    /// The file's permission bits; none where there is none.
    pub(super) fn mode(&self, path: &Path) -> Option<u32> {
        fs::metadata(self.real(path)).ok().map(|metadata| metadata.permissions().mode() & 0o7777)
    }

    /// Owner, group and permission bits of what is there; none where nothing is.
    pub(super) fn rights(&self, path: &Path) -> Option<Rights> {
        let found = fs::metadata(self.real(path)).ok()?;
        let mode = found.permissions().mode() & 0o7777;
        Some(Rights { owner: found.uid(), group: found.gid(), mode })
    }

    /// Names of a folder's entries, in order; none where there is no such folder.
    pub(super) fn names(&self, folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(self.real(folder)).into_iter().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Whether a file that a manager is told to run can be run.
    pub(super) fn is_executable(&self, path: &Path) -> bool {
        let metadata = fs::metadata(self.real(path));
        metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o100 != 0)
    }

    /// The program that hooks of an installation run which has this program: the one that is a hook
    /// and nothing else, where it lies beside it and can be run.
    #[must_use]
    pub fn hook_program(&self, program: &Path) -> PathBuf {
        let alone = program.with_file_name(ALONE);
        let has_it = program.ends_with(WHOLE) && self.is_executable(&alone);
        if has_it { alone } else { program.to_owned() }
    }

    /// Puts a file in place as a whole: nobody ever sees half of it. An old one's owner stays, and
    /// its mode where none is given.
    pub(super) fn write(
        &self,
        path: &Path,
        text: &str,
        mode: Option<u32>,
    ) -> Result<(), InstallError> {
        let cannot = |source| InstallError::io("write", path, source);
        let mut real = self.real(path);
        let old = match fs::canonicalize(&real) {
            // A link's target is what is meant, if it is in the same tree.
            Ok(target) => {
                let root = fs::canonicalize(&self.root).map_err(cannot)?;
                if !target.starts_with(root) {
                    return Err(cannot(io::Error::other(
                        "it is a link that leads out of the tree",
                    )));
                }
                real = target;
                Some(fs::metadata(&real).map_err(cannot)?)
            }
            Err(error) if is_missing(&error) => None,
            Err(error) => return Err(cannot(error)),
        };
        let folder = real.parent().ok_or_else(|| cannot(io::ErrorKind::InvalidInput.into()))?;
        fs::create_dir_all(folder).map_err(cannot)?;
        let new = Self::draft_of(&real);
        let put = || {
            let _ = fs::remove_file(&new);
            let mut open = File::options();
            let mut file = open.write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            let kept = old.as_ref().map(|old| old.permissions().mode() & 0o7777);
            file.set_permissions(fs::Permissions::from_mode(mode.or(kept).unwrap_or(0o644)))?;
            if let Some(old) = &old {
                let me = rustix::process::geteuid();
                if me.is_root() && (old.uid(), old.gid()) != (0, 0) {
                    std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
                }
            }
            file.sync_all()?;
            fs::rename(&new, &real)
        };
        put().map_err(|source| {
            let _ = fs::remove_file(&new);
            cannot(source)
        })
    }

    /// Where a file is written before it is put in its place. Its name ends so that Qube, which runs
    /// whatever is in a folder of its, leaves it alone.
    pub(super) fn draft_of(path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!(".{name}.gleaner-new.txt"))
    }

    /// Whether there is a file, or what leads to one.
    pub(super) fn has_file(&self, path: &Path) -> bool {
        fs::symlink_metadata(self.real(path)).is_ok_and(|metadata| !metadata.is_dir())
    }

    /// Whether there is a folder.
    pub(super) fn is_folder(&self, path: &Path) -> bool {
        fs::symlink_metadata(self.real(path)).is_ok_and(|metadata| metadata.is_dir())
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, path: &Path) -> Result<(), InstallError> {
        match fs::remove_file(self.real(path)) {
            Err(error) if !is_missing(&error) => Err(InstallError::io("remove", path, error)),
            _ => Ok(()),
        }
    }

    /// Removes a folder if nothing is in it; whether it is gone.
    pub(super) fn remove_empty(&self, path: &Path) -> bool {
        let real = self.real(path);
        fs::remove_dir(&real).is_ok() || !real.exists()
    }

    /// Whether nothing but what is `gone` by then is in a folder, or there is no such folder.
    pub(super) fn would_be_empty(&self, path: &Path, gone: &BTreeSet<PathBuf>) -> bool {
        self.names(path).iter().all(|name| gone.contains(&path.join(name)))
    }

    /// Whether a program of the manager's is here; never in a tree that nothing runs in.
    pub(super) fn has_program(&self, name: &str) -> bool {
        self.program(name).is_some()
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        // What runs the host's services is no manager of a farm.
        if self.manager_is_gone && name != "systemctl" {
            return None;
        }
        let folders = std::env::split_paths(self.programs.as_deref()?).collect::<Vec<_>>();
        folders.into_iter().map(|folder| folder.join(name)).find(|path| {
            fs::metadata(path).is_ok_and(|f| f.is_file() && f.permissions().mode() & 0o111 != 0)
        })
    }

    /// Runs a program of the manager's and gives what it prints.
    ///
    /// # Errors
    /// There is none, it fails, or it does not end within `wait`.
    pub(super) fn run_within(&self, command: &[&str], wait: Span) -> Result<String, InstallError> {
        let cannot = |why: &str| InstallError::Command { line: command.join(" "), why: why.into() };
        let (name, arguments) = command.split_first().ok_or_else(|| cannot("no program"))?;
        let program = self.program(name).ok_or_else(|| cannot("there is no such program"))?;
        self.run_program(&program, command, arguments, wait)
    }

    /// What a program of ours at this path says that it is; none where nothing runs in this tree.
    pub(super) fn version_of(&self, program: &Path) -> Option<Result<String, InstallError>> {
        if !self.is_here() && self.programs.is_none() {
            return None;
        }
        let shown = program.to_string_lossy();
        let (command, arguments) = ([&*shown, "--version"], ["--version"]);
        Some(self.run_program(&self.real(program), &command, &arguments, VERSION_WAIT))
    }

    fn run_program(
        &self,
        program: &Path,
        command: &[&str],
        arguments: &[&str],
        wait: Span,
    ) -> Result<String, InstallError> {
        let line = || command.join(" ");
        let cannot = |why: String| InstallError::Command { line: line(), why };
        let mut child = Command::new(program)
            .args(arguments)
            .env("PATH", self.programs.clone().unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| cannot(error.to_string()))?;
        let pipes = (child.stdout.take().map(reader), child.stderr.take().map(reader));
        let in_time = has_ended_within(child.id().cast_signed(), wait);
        if !in_time {
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| cannot(error.to_string()))?;
        if !in_time {
            return Err(cannot(format!("it did not end within {wait} and was ended")));
        }
        let text = |pipe: Option<thread::JoinHandle<Vec<u8>>>| {
            let bytes = pipe.and_then(|pipe| pipe.join().ok()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (out, err) = (text(pipes.0), text(pipes.1));
        if status.success() {
            return Ok(out);
        }
        let said = [out.trim(), err.trim()].join(" ");
        Err(cannot(format!("{status}: {:.500}", said.trim())))
    }

    /// The same, with the usual patience.
    pub(super) fn run(&self, command: &[&str]) -> Result<String, InstallError> {
        self.run_within(command, MANAGER_WAIT)
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn reader(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.by_ref().take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
        // What is too much is read all the same, or its writer would wait.
        let _ = io::copy(&mut pipe, &mut io::sink());
        bytes
    })
}

fn has_ended_within(pid: i32, wait: Span) -> bool {
    let process = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let Some(Ok(process)) = process else { return true };
    let end = boottime() + wait;
    loop {
        let left = std::time::Duration::from(end.since(boottime()));
        let Ok(left) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            ended => return ended == Ok(1),
        }
    }
}

//! Lives of the run folder: one per boot of the machine.
//!
//! # Invariants
//! - A life has its name (the file `life-<boot id>`) only after all its folders are there.
//! - Of two that begin a life at once, the one whose link succeeds wins, and both use it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

use super::{EPOCH, RunDirError, bookings, create_new, groups, names, read_small, write_new};

/// Folder below a life for files that have no name yet.
pub(super) const NEW: &str = "new";
const PREFIX: &str = "life-";

/// Where a life keeps its files.
pub(super) fn folder(run_dir: &Path, incarnation: u64) -> PathBuf {
    run_dir.join(format!("{incarnation:016x}"))
}

/// The present life, begun if there is none.
pub(super) fn current_or_new(run_dir: &Path, mode: u32) -> Result<u64, RunDirError> {
    if let Some(incarnation) = current(run_dir)? {
        return Ok(incarnation);
    }
    let mine = draw()?;
    let life = build(run_dir, mine, mode)?;
    let named = write_new(&life, format!("{mine:016x}\n").as_bytes())?;
    if named.link(&name_of_present(run_dir))? {
        forget_earlier(run_dir);
        return Ok(mine);
    }
    drop(named);
    let _ = fs::remove_dir_all(&life);
    current(run_dir)?.ok_or_else(|| RunDirError::Damaged(name_of_present(run_dir)))
}

/// The present life, if one has begun since the machine booted.
pub(super) fn current(run_dir: &Path) -> Result<Option<u64>, RunDirError> {
    let path = name_of_present(run_dir);
    let bytes = match read_small(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(RunDirError::io("read", &path, source)),
    };
    match parse(&bytes) {
        Some(incarnation) => Ok(Some(incarnation)),
        None => Err(RunDirError::Damaged(path)),
    }
}

fn parse(bytes: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(bytes).ok()?.trim_end();
    let incarnation = u64::from_str_radix(digits, 16).ok()?;
    (digits.len() == 16 && incarnation != 0).then_some(incarnation)
}

fn name_of_present(run_dir: &Path) -> PathBuf {
    let boot = read_small(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
    let boot: String = String::from_utf8_lossy(&boot)
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(64)
        .collect();
    run_dir.join(format!("{PREFIX}{boot}"))
}

/// Not zero, which stands for an unknown epoch.
fn draw() -> Result<u64, RunDirError> {
    let mut bytes = [0; 8];
    loop {
        getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|error| {
            RunDirError::io("draw random bytes for", Path::new("an incarnation"), error.into())
        })?;
        let incarnation = u64::from_ne_bytes(bytes);
        if incarnation != 0 {
            return Ok(incarnation);
        }
    }
}

fn build(run_dir: &Path, incarnation: u64, mode: u32) -> Result<PathBuf, RunDirError> {
    let life = folder(run_dir, incarnation);
    let folders =
        [life.clone(), life.join(NEW), life.join(bookings::FOLDER), life.join(groups::FOLDER)];
    for path in &folders {
        fs::create_dir(path)
            .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode & 0o7775)))
            .map_err(|source| RunDirError::io("make", path, source))?;
    }
    let epoch = life.join(EPOCH);
    create_new(&epoch, mode & 0o664).map_err(|source| RunDirError::io("make", &epoch, source))?;
    Ok(life)
}

/// Removes the lives of earlier boots. What cannot be removed does no harm.
fn forget_earlier(run_dir: &Path) {
    let present = name_of_present(run_dir);
    for name in names(run_dir).unwrap_or_default() {
        let path = run_dir.join(&name);
        if !name.starts_with(PREFIX) || path == present {
            continue;
        }
        if let Some(incarnation) = read_small(&path).ok().as_deref().and_then(parse) {
            let _ = fs::remove_dir_all(folder(run_dir, incarnation));
        }
        let _ = fs::remove_file(path);
    }
}

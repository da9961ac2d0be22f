//! Whose the run folder is: who may have put it there, and acting in it as they may.
//!
//! Whoever owns the folder can have process groups stopped and files written by those who use it,
//! so it must have been put there by somebody with a right to that: by its user itself, by root,
//! or by whoever may alone change what it lies in.
//!
//! # Invariants
//! - Root acts in another's folder with that owner's file rights, never with its own: a link that
//!   was planted there leads nowhere that its owner could not have written anyway.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::RunDirError;

const ROOT: u32 = 0;

/// The owner with whose file rights its user acts, where that is not the user's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    uid: u32,
    gid: u32,
}

/// Checks a folder; returns its mode and as whom to act in it.
pub(super) fn check(path: &Path) -> Result<(u32, Option<Owner>), RunDirError> {
    let look = |path: &Path| {
        fs::symlink_metadata(path)
            .map_err(|source| RunDirError::io("look at the run folder", path, source))
    };
    let folder = look(path)?;
    if !folder.is_dir() {
        return Err(RunDirError::NoFolder(path.to_owned()));
    }
    let (mode, uid) = (folder.mode(), folder.uid());
    if mode & 0o002 != 0 {
        return Err(RunDirError::WorldWritable(path.to_owned()));
    }
    let user = rustix::process::geteuid().as_raw();
    if user == ROOT && uid != ROOT {
        return Ok((mode, Some(Owner { uid, gid: folder.gid() })));
    }
    let around = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = fs::metadata(around).map_err(|source| {
        RunDirError::io("look at the parent of the run folder", around, source)
    })?;
    if !may_have_put_it(user, uid, (parent.uid(), parent.mode())) {
        return Err(RunDirError::ForeignOwner { path: path.to_owned(), owner: uid, user });
    }
    Ok((mode, None))
}

/// Whether `user` may use a folder of `owner`, by who can make folders beside it.
fn may_have_put_it(user: u32, owner: u32, (parent_owner, parent_mode): (u32, u32)) -> bool {
    let is_trusted = |uid| uid == user || uid == ROOT;
    is_trusted(owner) || (is_trusted(parent_owner) && parent_mode & 0o022 == 0)
}

/// The rights of a folder's owner, until it is dropped. They are the thread's own.
pub(super) struct AsOwner {
    before: Owner,
}

impl Owner {
    pub(super) const fn uid(self) -> u32 {
        self.uid
    }

    pub(super) fn act(self, path: &Path) -> Result<AsOwner, RunDirError> {
        let before = Self { gid: set_gid(self.gid), uid: set_uid(self.uid) };
        let guard = AsOwner { before };
        // The calls say nothing of a failure but where they stand.
        if (set_uid(NOBODYS), set_gid(NOBODYS)) == (self.uid, self.gid) {
            Ok(guard)
        } else {
            Err(RunDirError::ForeignOwner { path: path.to_owned(), owner: self.uid, user: ROOT })
        }
    }
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        set_uid(self.before.uid);
        set_gid(self.before.gid);
    }
}

/// Asks where one stands: nobody has this number.
const NOBODYS: u32 = u32::MAX;

#[expect(unsafe_code, reason = "rustix has it not; the call takes a number and touches no memory")]
fn set_uid(uid: u32) -> u32 {
    // SAFETY: a system call without pointers, for the calling thread alone.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

#[expect(unsafe_code, reason = "rustix has it not; the call takes a number and touches no memory")]
fn set_gid(gid: u32) -> u32 {
    // SAFETY: a system call without pointers, for the calling thread alone.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_with_a_right_to_it_may_have_put_a_folder_there() {
        let (me, stranger) = (1000, 1001);
        let (slash_tmp, slash_run, home) = ((ROOT, 0o1777), (ROOT, 0o755), (me, 0o700));
        for (owner, parent, may) in [
            (me, slash_tmp, true),
            (ROOT, slash_tmp, true),
            (stranger, slash_tmp, false),
            // Root has made it for them, or has given it to them.
            (stranger, slash_run, true),
            (stranger, home, true),
            (stranger, (me, 0o775), false),
            (stranger, (stranger, 0o755), false),
        ] {
            assert_eq!(may_have_put_it(me, owner, parent), may, "{owner} in {parent:?}");
        }
    }
}

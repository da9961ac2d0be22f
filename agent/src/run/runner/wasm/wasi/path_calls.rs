//! Calls on paths.

use super::descriptor_calls::put_stat;
use crate::run::runner::wasm::descriptors::Descriptor;
use crate::run::runner::wasm::errno::Errno;
use crate::run::runner::wasm::files::{NodeIx, Place, Trouble};
use crate::run::runner::wasm::guest::Guest;
use crate::run::runner::wasm::state::State;

type Done = Result<(), Trouble>;

/// The folder that a path begins in, its address and its length.
type Path = (u32, u32, u32);

fn resolve(guest: &Guest<'_>, state: &State, (fd, at, length): Path) -> Result<Place, Trouble> {
    let base = state.descriptors.folder(fd)?;
    state.files.resolve(base, guest.text(at, length)?)
}

fn look(guest: &Guest<'_>, state: &State, path: Path) -> Result<NodeIx, Trouble> {
    state.files.look(&resolve(guest, state, path)?)
}

pub(super) fn check(guest: &mut Guest<'_>, state: &mut State, path: Path) -> Done {
    look(guest, state, path).map(drop)
}

pub(super) fn create_directory(guest: &mut Guest<'_>, state: &mut State, path: Path) -> Done {
    let place = resolve(guest, state, path)?;
    state.files.create_folder(&place)
}

pub(super) fn remove_directory(guest: &mut Guest<'_>, state: &mut State, path: Path) -> Done {
    let place = resolve(guest, state, path)?;
    state.files.remove_folder(&place)
}

pub(super) fn unlink_file(guest: &mut Guest<'_>, state: &mut State, path: Path) -> Done {
    let place = resolve(guest, state, path)?;
    state.files.unlink(&place)
}

pub(super) fn rename(guest: &mut Guest<'_>, state: &mut State, from: Path, to: Path) -> Done {
    let (from, to) = (resolve(guest, state, from)?, resolve(guest, state, to)?);
    state.files.rename(&from, &to)
}

pub(super) fn filestat_get(guest: &mut Guest<'_>, state: &mut State, path: Path, out: u32) -> Done {
    let stat = state.files.stat(look(guest, state, path)?)?;
    put_stat(guest, Some(stat), out)
}

/// There are no links of either kind.
pub(super) fn link(guest: &mut Guest<'_>, state: &mut State, from: Path, to: Path) -> Done {
    look(guest, state, from)?;
    resolve(guest, state, to)?;
    Err(Errno::NotSup.into())
}

pub(super) fn symlink(guest: &mut Guest<'_>, state: &mut State, path: Path) -> Done {
    resolve(guest, state, path)?;
    Err(Errno::NotSup.into())
}

pub(super) fn readlink(guest: &mut Guest<'_>, state: &mut State, path: Path) -> Done {
    look(guest, state, path)?;
    Err(Errno::Inval.into())
}

/// How a path is opened.
#[derive(Clone, Copy)]
pub(super) struct OpenFlags {
    /// Whether to make it, and what it must be.
    pub(super) how: u32,
    /// What is to be done with it.
    pub(super) rights: u64,
    /// How it is written.
    pub(super) flags: u32,
}

impl OpenFlags {
    const CREATE: u32 = 1;
    const FOLDER: u32 = 2;
    const NEW: u32 = 4;
    const TRUNCATE: u32 = 8;
    const READ: u64 = 1 << 1;
    const WRITE: u64 = 1 << 6;
    const APPEND: u32 = 1;

    fn has(self, bit: u32) -> bool {
        self.how & bit != 0
    }

    fn writes(self) -> bool {
        self.rights & Self::WRITE != 0
    }
}

pub(super) fn open(
    guest: &mut Guest<'_>,
    state: &mut State,
    path: Path,
    how: OpenFlags,
    out: u32,
) -> Done {
    // Before anything is made for nothing.
    guest.bytes(out, 4)?;
    let place = resolve(guest, state, path)?;
    let node = match state.files.look(&place) {
        Ok(_) if how.has(OpenFlags::CREATE) && how.has(OpenFlags::NEW) => {
            return Err(Errno::Exist.into());
        }
        Err(Trouble::Errno(Errno::NoEnt))
            if how.has(OpenFlags::CREATE) && !how.has(OpenFlags::FOLDER) =>
        {
            state.files.create(&place)?
        }
        found => found?,
    };
    let opened = if state.files.is_folder(node)? {
        if how.writes() || how.has(OpenFlags::TRUNCATE) {
            return Err(Errno::IsDir.into());
        }
        Descriptor::Folder(node, Vec::new())
    } else {
        if how.has(OpenFlags::FOLDER) {
            return Err(Errno::NotDir.into());
        }
        if how.writes() {
            state.files.check_writable(node)?;
        }
        if how.has(OpenFlags::TRUNCATE) {
            state.files.set_len(node, 0)?;
        }
        Descriptor::File {
            node,
            offset: 0,
            append: how.flags & OpenFlags::APPEND != 0,
            readable: how.rights & OpenFlags::READ != 0,
            writable: how.writes(),
        }
    };
    let fd = state.descriptors.enter(&mut state.files, opened)?;
    Ok(guest.put_u32(out, fd)?)
}

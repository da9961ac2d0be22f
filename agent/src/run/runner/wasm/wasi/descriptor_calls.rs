//! Calls on what is open.

use crate::run::runner::wasm::descriptors::{Descriptor, Descriptors};
use crate::run::runner::wasm::errno::Errno;
use crate::run::runner::wasm::files::{NodeIx, Stat, Trouble};
use crate::run::runner::wasm::guest::Guest;
use crate::run::runner::wasm::state::{Clock, State};

type Done = Result<(), Trouble>;

/// Address and number of a list of buffers.
type Buffers = (u32, u32);

const UNKNOWN: u8 = 0;
const FOLDER: u8 = 3;
const FILE: u8 = 4;
const APPEND: u32 = 1;
/// All rights there are: what is not offered is refused when it is asked for.
const ALL_RIGHTS: u64 = (1 << 30) - 1;

const FROM_START: u32 = 0;
pub(super) const FROM_HERE: u32 = 1;
const FROM_END: u32 = 2;

/// The name of the module's folder.
const ROOT_NAME: &[u8] = b"/";

pub(super) fn check(state: &mut State, fd: u32) -> Done {
    state.descriptors.get(fd)?;
    Ok(())
}

pub(super) fn not_offered(state: &mut State, fd: u32) -> Done {
    check(state, fd)?;
    Err(Errno::NotSup.into())
}

pub(super) fn no_socket(state: &mut State, fd: u32) -> Done {
    check(state, fd)?;
    Err(Errno::NotSock.into())
}

pub(super) fn close(state: &mut State, fd: u32) -> Done {
    Ok(state.descriptors.close(&mut state.files, fd)?)
}

pub(super) fn renumber(state: &mut State, from: u32, to: u32) -> Done {
    Ok(state.descriptors.renumber(&mut state.files, from, to)?)
}

pub(super) fn fdstat_get(guest: &mut Guest<'_>, state: &mut State, fd: u32, out: u32) -> Done {
    let (kind, flags) = match state.descriptors.get(fd)? {
        Descriptor::Nothing | Descriptor::Errors => (UNKNOWN, 0),
        Descriptor::Output(_) => (FILE, APPEND),
        Descriptor::File { append, .. } => (FILE, if *append { APPEND } else { 0 }),
        Descriptor::Folder(..) => (FOLDER, 0),
    };
    let mut stat = [0; 24];
    stat[0] = kind;
    stat[2..4].copy_from_slice(&flags.to_le_bytes()[..2]);
    stat[8..16].copy_from_slice(&ALL_RIGHTS.to_le_bytes());
    stat[16..24].copy_from_slice(&ALL_RIGHTS.to_le_bytes());
    Ok(guest.put(out, &stat)?)
}

pub(super) fn fdstat_set_flags(state: &mut State, fd: u32, flags: u32) -> Done {
    if let Descriptor::File { append, .. } = state.descriptors.get_mut(fd)? {
        *append = flags & APPEND != 0;
    }
    Ok(())
}

pub(super) fn filestat_get(guest: &mut Guest<'_>, state: &mut State, fd: u32, out: u32) -> Done {
    let stat = match state.descriptors.node(fd)? {
        Some(node) => Some(state.files.stat(node)?),
        None => None,
    };
    put_stat(guest, stat, out)
}

/// Writes what is known of a file or folder; its times are all the same.
pub(super) fn put_stat(guest: &mut Guest<'_>, stat: Option<Stat>, out: u32) -> Done {
    let (kind, serial, bytes) = match stat {
        None => (UNKNOWN, 0, 0),
        Some(stat) => (if stat.is_folder { FOLDER } else { FILE }, stat.serial, stat.bytes),
    };
    let time = Clock::CALENDAR_START_NANOS;
    let numbers = [0, serial, kind.into(), 1, bytes, time, time, time];
    let mut record = [0; 64];
    for (part, number) in record.chunks_exact_mut(8).zip(numbers) {
        part.copy_from_slice(&number.to_le_bytes());
    }
    Ok(guest.put(out, &record)?)
}

pub(super) fn filestat_set_size(state: &mut State, fd: u32, length: u64) -> Done {
    match state.descriptors.get(fd)? {
        Descriptor::File { node, writable: true, .. } => state.files.set_len(*node, length),
        _ => Err(Errno::Inval.into()),
    }
}

pub(super) fn prestat_get(guest: &mut Guest<'_>, fd: u32, out: u32) -> Done {
    if fd != Descriptors::ROOT {
        return Err(Errno::BadF.into());
    }
    guest.put_u32(out, 0)?;
    let length_at = out.checked_add(4).ok_or(Errno::Fault)?;
    Ok(guest.put_u32(length_at, u32::try_from(ROOT_NAME.len()).expect("short"))?)
}

pub(super) fn prestat_dir_name(guest: &mut Guest<'_>, fd: u32, at: u32, length: u32) -> Done {
    if fd != Descriptors::ROOT {
        return Err(Errno::BadF.into());
    }
    if (length as usize) < ROOT_NAME.len() {
        return Err(Errno::NameTooLong.into());
    }
    Ok(guest.put(at, ROOT_NAME)?)
}

pub(super) fn read(
    guest: &mut Guest<'_>,
    state: &mut State,
    fd: u32,
    buffers: Buffers,
    out: u32,
) -> Done {
    let count = match state.descriptors.get_mut(fd)? {
        Descriptor::Nothing => 0,
        Descriptor::File { node, offset, readable: true, .. } => {
            let count = read_all(guest, &state.files, *node, buffers, *offset)?;
            *offset += u64::from(count);
            count
        }
        Descriptor::Folder(..) => return Err(Errno::IsDir.into()),
        _ => return Err(Errno::BadF.into()),
    };
    Ok(guest.put_u32(out, count)?)
}

pub(super) fn pread(
    guest: &mut Guest<'_>,
    state: &mut State,
    fd: u32,
    buffers: Buffers,
    offset: u64,
    out: u32,
) -> Done {
    let count = match state.descriptors.get(fd)? {
        Descriptor::File { node, readable: true, .. } => {
            read_all(guest, &state.files, *node, buffers, offset)?
        }
        Descriptor::Nothing | Descriptor::Output(_) | Descriptor::Errors => {
            return Err(Errno::SPipe.into());
        }
        Descriptor::Folder(..) => return Err(Errno::IsDir.into()),
        Descriptor::File { .. } => return Err(Errno::BadF.into()),
    };
    Ok(guest.put_u32(out, count)?)
}

fn read_all(
    guest: &mut Guest<'_>,
    files: &crate::run::runner::wasm::files::Files,
    node: NodeIx,
    (list, count): Buffers,
    mut offset: u64,
) -> Result<u32, Trouble> {
    let mut sum = 0_u32;
    for (address, length) in guest.buffers(list, count)? {
        let buffer = guest.bytes_mut(address, length)?;
        let read = files.read(node, offset, buffer)?;
        offset += read as u64;
        sum =
            u32::try_from(read).ok().and_then(|read| sum.checked_add(read)).ok_or(Errno::Inval)?;
        if read < length as usize {
            break;
        }
    }
    Ok(sum)
}

pub(super) fn write(
    guest: &mut Guest<'_>,
    state: &mut State,
    fd: u32,
    (list, count): Buffers,
    out: u32,
) -> Done {
    let mut sum = 0_u32;
    for (address, length) in guest.buffers(list, count)? {
        let bytes = guest.bytes(address, length)?;
        let written = sum.checked_add(length).ok_or(Errno::Inval)?;
        if let Err(trouble) = write_one(state, fd, bytes) {
            match trouble {
                // What is written already is written.
                Trouble::Errno(_) if sum > 0 => break,
                trouble => return Err(trouble),
            }
        }
        sum = written;
    }
    Ok(guest.put_u32(out, sum)?)
}

fn write_one(state: &mut State, fd: u32, bytes: &[u8]) -> Done {
    match state.descriptors.get_mut(fd)? {
        Descriptor::Errors => {
            state.stderr.take(bytes);
            let Some(node) = state.stderr_node else { return Ok(()) };
            let end = state.files.stat(node)?.bytes;
            state.files.write(node, end, bytes)
        }
        Descriptor::Output(node) => {
            let end = state.files.stat(*node)?.bytes;
            state.files.write(*node, end, bytes)
        }
        Descriptor::File { node, offset, append, writable: true, .. } => {
            let at = if *append { state.files.stat(*node)?.bytes } else { *offset };
            state.files.write(*node, at, bytes)?;
            *offset = at + bytes.len() as u64;
            Ok(())
        }
        _ => Err(Errno::BadF.into()),
    }
}

pub(super) fn pwrite(
    guest: &mut Guest<'_>,
    state: &mut State,
    fd: u32,
    (list, count): Buffers,
    mut offset: u64,
    out: u32,
) -> Done {
    let node = match state.descriptors.get(fd)? {
        Descriptor::File { node, writable: true, .. } => *node,
        Descriptor::Output(_) | Descriptor::Errors => return Err(Errno::SPipe.into()),
        _ => return Err(Errno::BadF.into()),
    };
    let mut sum = 0_u32;
    for (address, length) in guest.buffers(list, count)? {
        let written = sum.checked_add(length).ok_or(Errno::Inval)?;
        match state.files.write(node, offset, guest.bytes(address, length)?) {
            Err(Trouble::Errno(_)) if sum > 0 => break,
            result => result?,
        }
        offset += u64::from(length);
        sum = written;
    }
    Ok(guest.put_u32(out, sum)?)
}

pub(super) fn seek(
    guest: &mut Guest<'_>,
    state: &mut State,
    fd: u32,
    by: i64,
    whence: u32,
    out: u32,
) -> Done {
    let Descriptor::File { node, offset, .. } = state.descriptors.get_mut(fd)? else {
        return Err(Errno::SPipe.into());
    };
    let from = match whence {
        FROM_START => 0,
        FROM_HERE => *offset,
        FROM_END => state.files.stat(*node)?.bytes,
        _ => return Err(Errno::Inval.into()),
    };
    *offset = from.checked_add_signed(by).ok_or(Errno::Inval)?;
    Ok(guest.put_u64(out, *offset)?)
}

/// A record before each name.
const ENTRY_BYTES: usize = 24;

/// Names in their order. Those that were there when it began are told to the end, whatever
/// happens to the folder meanwhile.
pub(super) fn readdir(
    guest: &mut Guest<'_>,
    state: &mut State,
    fd: u32,
    (at, length): (u32, u32),
    cookie: u64,
    out: u32,
) -> Done {
    let Descriptor::Folder(node, listing) = state.descriptors.get_mut(fd)? else {
        return Err(Errno::NotDir.into());
    };
    if cookie == 0 {
        *listing = state.files.list(*node)?;
    }
    let buffer = guest.bytes_mut(at, length)?;
    let first = usize::try_from(cookie).unwrap_or(usize::MAX).min(listing.len());
    let mut used = 0;
    for (index, entry) in listing.iter().enumerate().skip(first) {
        let mut record = Vec::with_capacity(ENTRY_BYTES + entry.name.len());
        record.extend_from_slice(&(index as u64 + 1).to_le_bytes());
        record.extend_from_slice(&entry.serial.to_le_bytes());
        let name_bytes = u32::try_from(entry.name.len()).expect("names are short");
        record.extend_from_slice(&name_bytes.to_le_bytes());
        record.extend_from_slice(&[if entry.is_folder { FOLDER } else { FILE }, 0, 0, 0]);
        record.extend_from_slice(entry.name.as_bytes());
        // The last one may be cut: a full buffer says that there is more.
        let fits = record.len().min(buffer.len() - used);
        buffer[used..used + fits].copy_from_slice(&record[..fits]);
        used += fits;
        if used == buffer.len() {
            break;
        }
    }
    Ok(guest.put_u32(out, u32::try_from(used).expect("at most the buffer"))?)
}

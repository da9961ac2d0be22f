//! The few facts about the store itself: the file `meta`, one line that every release can read, then
//! sealed values.
//!
//! # Invariants
//! - The file is replaced as a whole: a kill leaves the old one or the new one.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use gleaner_scheduling::TokenKey;
use rustix::rand::{GetRandomFlags, getrandom};

use super::error::StoreError;
use super::folder::sync_folder;
use super::sealed;

/// Format of the folder: of the journal, its entries, snapshots and outputs.
pub(crate) const FORMAT: u32 = 6;
/// The release that this is.
const RELEASE: &str = env!("CARGO_PKG_VERSION");
const FILE: &str = "meta";
const KEY: &[u8] = b"meta";
const LINE_BEGINS: &str = "gleaner store, format ";
/// Longest first line that is believed.
const LINE_BYTES_MAX: usize = 256;

/// What makes a folder the one that agents know, wherever it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Drawn at random when the folder was made.
    pub(crate) folder_id: [u8; 16],
    /// The secret that lease tokens are made with.
    pub(crate) token_key: [u8; 16],
    /// Which start of a broker on this folder the last one was.
    pub(crate) incarnation: u32,
}

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) identity: Identity,
    /// Sequence of the live snapshot.
    pub(crate) snapshot: Option<u64>,
}

impl Meta {
    /// That of a folder that is made now.
    pub(crate) fn draw() -> Result<Self, StoreError> {
        let (folder_id, token_key) = (random_bytes()?, random_bytes()?);
        let identity = Identity { folder_id, token_key, incarnation: 0 };
        Ok(Self { identity, snapshot: None })
    }

    /// Reads it; nothing where there is none.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, StoreError> {
        let path = folder.join(FILE);
        let content = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(StoreError::file("read", &path))?,
        };
        let damaged = |what: String| StoreError::damaged(folder, format!("{FILE}: {what}"));
        let line_bytes = content.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n');
        let line = line_bytes.and_then(|bytes| std::str::from_utf8(&content[..bytes]).ok());
        let (format, release) = line
            .and_then(|line| line.strip_prefix(LINE_BEGINS)?.split_once(", release "))
            .and_then(|(format, release)| Some((format.parse::<u32>().ok()?, release.to_owned())))
            .ok_or_else(|| damaged("its first line names no format".into()))?;
        if format != FORMAT {
            let (folder, release) = (folder.to_owned(), Some(release));
            return Err(StoreError::Format { folder, found: format, known: FORMAT, release });
        }
        let rest = &content[line_bytes.expect("the line was read") + 1..];
        let values = sealed::open(KEY, rest).map_err(damaged)?;
        Self::of(&values).map(Some).ok_or_else(|| damaged("its values have other lengths".into()))
    }

    fn of(values: &[&[u8]]) -> Option<Self> {
        let [folder_id, token_key, incarnation, snapshot] = values else { return None };
        let snapshot = match snapshot {
            [] => None,
            sequence => Some(u64::from_le_bytes((*sequence).try_into().ok()?)),
        };
        let identity = Identity {
            folder_id: (*folder_id).try_into().ok()?,
            token_key: (*token_key).try_into().ok()?,
            incarnation: u32::from_le_bytes((*incarnation).try_into().ok()?),
        };
        Some(Self { identity, snapshot })
    }

    /// Replaces the file; durable when this returns.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let snapshot = self.snapshot.map(u64::to_le_bytes);
        let values: [&[u8]; 4] = [
            &self.identity.folder_id,
            &self.identity.token_key,
            &self.identity.incarnation.to_le_bytes(),
            snapshot.as_ref().map_or(&[], |sequence| &sequence[..]),
        ];
        let mut content = format!("{LINE_BEGINS}{FORMAT}, release {RELEASE}\n").into_bytes();
        content.extend(sealed::seal(KEY, &values));
        let (path, draft) = (folder.join(FILE), folder.join("meta.new"));
        File::create(&draft)
            .and_then(|mut file| {
                file.write_all(&content)?;
                file.sync_all()
            })
            .map_err(StoreError::file("write", &draft))?;
        fs::rename(&draft, &path).map_err(StoreError::file("rename", &draft))?;
        sync_folder(folder)
    }

    /// The folder's id as hexadecimal digits.
    pub(crate) fn folder_id(&self) -> String {
        self.identity.folder_id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn token_key(&self) -> TokenKey {
        TokenKey::from_bytes(self.identity.token_key)
    }
}

/// Bytes that nobody can foretell.
fn random_bytes() -> Result<[u8; 16], StoreError> {
    let mut bytes = [0; 16];
    // So few bytes come at once, or not at all.
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| StoreError::Random(error.into()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_every_flipped_bit_behind_the_first_line_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Meta::read(folder.path()).expect("nothing there"), None);
        let mut meta = Meta::draw().expect("random bytes");
        for snapshot in [None, Some(7)] {
            meta.snapshot = snapshot;
            meta.identity.incarnation += 1;
            meta.write(folder.path()).expect("written");
            assert_eq!(Meta::read(folder.path()).expect("sound"), Some(meta.clone()));
        }
        let path = folder.path().join(FILE);
        let sound = fs::read(&path).expect("read");
        let line = sound.iter().position(|byte| *byte == b'\n').expect("a line");
        for bit in line * 8..sound.len() * 8 {
            let mut flipped = sound.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, flipped).expect("written");
            assert!(Meta::read(folder.path()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_format_names_the_release_and_the_commands_that_help() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = format!("{LINE_BEGINS}{}, release 9.8.7\nwhatever follows", FORMAT + 1);
        fs::write(folder.path().join(FILE), line).expect("written");
        let says = Meta::read(folder.path()).expect_err("another format").to_string();
        for words in ["release 9.8.7", "gleaner broker export", "gleaner broker import"] {
            assert!(says.contains(words), "{words}: {says}");
        }
    }
}

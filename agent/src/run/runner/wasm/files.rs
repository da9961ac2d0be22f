//! The files that a module sees: a tree of their names in memory, in which no path can lead
//! anywhere else, for no path of a module ever reaches the host.
//!
//! # Invariants
//! - Names, numbers, order and times are the same on every host.
//! - The number of files and folders and the bytes that they hold together stay below their
//!   limits; a file that was removed counts until it is closed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use gleaner_protocol::limits::BLOB_BYTES_MAX;

use super::content::Content;
use super::errno::Errno;
use super::halt::Halt;
use super::limits::{FILE_NAME_BYTES_MAX, FILES_MAX};

/// The number of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeIx(usize);

/// Why something was not done.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The module is told.
    Errno(Errno),
    /// The module ends.
    Halt(Halt),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Halt> for Trouble {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

/// A failure of the host's disk must not become an answer that other hosts do not give.
fn host(error: io::Error) -> Trouble {
    Trouble::Halt(Halt::Host(format!("a file of the task: {error}")))
}

/// A file or folder.
#[derive(Debug)]
struct Node {
    kind: Kind,
    /// Never used again, unlike its place.
    serial: u64,
    /// Whether a folder names it.
    linked: bool,
    /// Descriptors that are open on it.
    opened: u32,
}

#[derive(Debug)]
enum Kind {
    Folder { parent: NodeIx, entries: BTreeMap<String, NodeIx> },
    File(Content),
}

/// An entry of a folder.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) serial: u64,
    pub(super) is_folder: bool,
}

/// What is known of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) serial: u64,
    pub(super) is_folder: bool,
    pub(super) bytes: u64,
}

/// Where a path leads.
pub(super) struct Place {
    /// The folder.
    folder: NodeIx,
    /// The name in it; none for the folder itself.
    name: Option<String>,
    /// The path says that it is a folder.
    must_be_folder: bool,
}

/// The tree.
#[derive(Debug)]
pub(super) struct Files {
    nodes: Vec<Option<Node>>,
    next_serial: u64,
    bytes: u64,
    bytes_max: u64,
    /// Folder of the host for large files.
    scratch: PathBuf,
    next_scratch: u64,
}

impl Files {
    /// An empty tree; its files hold at most `bytes_max` bytes together, the large ones in
    /// the folder `scratch` of the host.
    pub(super) fn new(scratch: PathBuf, bytes_max: u64) -> Self {
        let mut files = Self {
            nodes: Vec::new(),
            next_serial: 1,
            bytes: 0,
            bytes_max,
            scratch,
            next_scratch: 0,
        };
        let root = Kind::Folder { parent: Self::ROOT, entries: BTreeMap::new() };
        files.insert(root, true).expect("the first");
        files
    }

    /// The module's folder.
    pub(super) const ROOT: NodeIx = NodeIx(0);

    /// Puts an input into the module's folder.
    pub(super) fn add_input(&mut self, name: &str, file: File, bytes: u64) -> Result<(), Trouble> {
        let node = self.insert(Kind::File(Content::Input(file, bytes)), true)?;
        self.entries_mut(Self::ROOT)?.insert(name.to_owned(), node);
        Ok(())
    }

    /// A file that no folder names, to be opened.
    pub(super) fn add_nameless(&mut self) -> Result<NodeIx, Trouble> {
        self.insert(Kind::File(Content::Memory(Vec::new())), false)
    }

    /// Follows a path from a folder, never out of it.
    pub(super) fn resolve(&self, base: NodeIx, path: &str) -> Result<Place, Trouble> {
        if path.starts_with('/') {
            return Err(Errno::NotCapable.into());
        }
        if path.is_empty() {
            return Err(Errno::NoEnt.into());
        }
        let mut way = vec![base];
        let mut parts = path.split('/').filter(|part| !part.is_empty() && *part != ".").peekable();
        let must_be_folder = path.ends_with('/') || path.ends_with("/.") || path == ".";
        while let Some(part) = parts.next() {
            let here = *way.last().expect("begins with the base");
            if part == ".." {
                way.pop();
                if way.is_empty() {
                    return Err(Errno::NotCapable.into());
                }
                continue;
            }
            if part.len() > FILE_NAME_BYTES_MAX {
                return Err(Errno::NameTooLong.into());
            }
            if parts.peek().is_none() {
                let name = Some(part.to_owned());
                return Ok(Place { folder: here, name, must_be_folder });
            }
            let next = *self.entries(here)?.get(part).ok_or(Errno::NoEnt)?;
            self.entries(next)?;
            way.push(next);
        }
        let folder = way.pop().expect("begins with the base");
        Ok(Place { folder, name: None, must_be_folder: true })
    }

    /// What is at a place.
    pub(super) fn look(&self, place: &Place) -> Result<NodeIx, Trouble> {
        let node = match &place.name {
            None => place.folder,
            Some(name) => *self.entries(place.folder)?.get(name).ok_or(Errno::NoEnt)?,
        };
        if place.must_be_folder {
            self.entries(node)?;
        }
        Ok(node)
    }

    /// Makes an empty file where nothing is.
    pub(super) fn create(&mut self, place: &Place) -> Result<NodeIx, Trouble> {
        if place.must_be_folder {
            return Err(Errno::IsDir.into());
        }
        self.put(place, Kind::File(Content::Memory(Vec::new())))
    }

    /// Makes a folder where nothing is.
    pub(super) fn create_folder(&mut self, place: &Place) -> Result<(), Trouble> {
        let kind = Kind::Folder { parent: place.folder, entries: BTreeMap::new() };
        self.put(place, kind).map(drop)
    }

    fn put(&mut self, place: &Place, kind: Kind) -> Result<NodeIx, Trouble> {
        let name = place.name.as_ref().ok_or(Errno::Exist)?;
        if self.entries(place.folder)?.contains_key(name) {
            return Err(Errno::Exist.into());
        }
        if !self.node(place.folder)?.linked {
            return Err(Errno::NoEnt.into());
        }
        let node = self.insert(kind, true)?;
        self.entries_mut(place.folder)?.insert(name.clone(), node);
        Ok(node)
    }

    /// Removes a file.
    pub(super) fn unlink(&mut self, place: &Place) -> Result<(), Trouble> {
        let node = self.look(place)?;
        if self.is_folder(node)? {
            return Err(Errno::IsDir.into());
        }
        self.take_out(place, node)
    }

    /// Removes an empty folder.
    pub(super) fn remove_folder(&mut self, place: &Place) -> Result<(), Trouble> {
        let node = self.look(place)?;
        if !self.entries(node)?.is_empty() {
            return Err(Errno::NotEmpty.into());
        }
        self.take_out(place, node)
    }

    fn take_out(&mut self, place: &Place, node: NodeIx) -> Result<(), Trouble> {
        let name = place.name.as_ref().ok_or(Errno::Inval)?;
        self.entries_mut(place.folder)?.remove(name);
        self.node_mut(node)?.linked = false;
        self.drop_if_unused(node);
        Ok(())
    }

    /// Gives what is at `from` the name `to`; what has that name goes.
    pub(super) fn rename(&mut self, from: &Place, to: &Place) -> Result<(), Trouble> {
        let node = self.look(from)?;
        let (Some(old), Some(new)) = (&from.name, &to.name) else {
            return Err(Errno::Inval.into());
        };
        let is_folder = self.is_folder(node)?;
        if is_folder && self.is_within(to.folder, node)? {
            return Err(Errno::Inval.into());
        }
        if to.must_be_folder && !is_folder {
            return Err(Errno::NotDir.into());
        }
        if !self.node(to.folder)?.linked {
            return Err(Errno::NoEnt.into());
        }
        match self.entries(to.folder)?.get(new).copied() {
            Some(there) if there == node => return Ok(()),
            Some(there) => match (is_folder, self.is_folder(there)?) {
                (true, false) => return Err(Errno::NotDir.into()),
                (false, true) => return Err(Errno::IsDir.into()),
                (true, true) => self.remove_folder(to)?,
                (false, false) => self.unlink(to)?,
            },
            None => {}
        }
        self.entries_mut(from.folder)?.remove(old);
        self.entries_mut(to.folder)?.insert(new.clone(), node);
        if let Kind::Folder { parent, .. } = &mut self.node_mut(node)?.kind {
            *parent = to.folder;
        }
        Ok(())
    }

    /// Whether `inner` is `outer` or somewhere in it.
    fn is_within(&self, inner: NodeIx, outer: NodeIx) -> Result<bool, Trouble> {
        let mut here = inner;
        while here != outer {
            match &self.node(here)?.kind {
                Kind::Folder { parent, .. } if *parent != here => here = *parent,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// A descriptor is open on it from now on.
    pub(super) fn open(&mut self, node: NodeIx) {
        if let Ok(node) = self.node_mut(node) {
            node.opened += 1;
        }
    }

    /// One is closed.
    pub(super) fn close(&mut self, node: NodeIx) {
        if let Ok(node) = self.node_mut(node) {
            node.opened -= 1;
        }
        self.drop_if_unused(node);
    }

    fn drop_if_unused(&mut self, ix: NodeIx) {
        if self.node(ix).is_ok_and(|node| !node.linked && node.opened == 0) {
            self.bytes -= self.written_bytes(ix);
            self.nodes[ix.0] = None;
        }
    }

    /// Reads from a file; how many bytes there were.
    pub(super) fn read(
        &self,
        node: NodeIx,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Trouble> {
        self.content(node)?.read(offset, buffer).map_err(host)
    }

    /// Writes to a file, all of it or nothing.
    pub(super) fn write(&mut self, node: NodeIx, offset: u64, bytes: &[u8]) -> Result<(), Trouble> {
        if bytes.is_empty() {
            return self.check_writable(node);
        }
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::FBig)?;
        let length = self.content(node)?.len();
        self.account(node, length.max(end))?;
        let scratch = self.next_scratch_path();
        self.content_mut(node)?.write(offset, bytes, || scratch).map_err(host)
    }

    /// Cuts a file, or adds zeroes to it.
    pub(super) fn set_len(&mut self, node: NodeIx, length: u64) -> Result<(), Trouble> {
        self.account(node, length)?;
        let scratch = self.next_scratch_path();
        self.content_mut(node)?.set_len(length, || scratch).map_err(host)
    }

    /// Fails where a file may not be written.
    pub(super) fn check_writable(&self, node: NodeIx) -> Result<(), Trouble> {
        match self.content(node)? {
            Content::Input(..) => Err(Errno::Perm.into()),
            _ => Ok(()),
        }
    }

    /// Takes in that a file is about to have this length.
    fn account(&mut self, node: NodeIx, length: u64) -> Result<(), Trouble> {
        self.check_writable(node)?;
        let content = self.content(node)?;
        if length > BLOB_BYTES_MAX {
            return Err(Errno::FBig.into());
        }
        let bytes = self.bytes - content.len() + length;
        if length > content.len() && bytes > self.bytes_max {
            return Err(Errno::NoSpc.into());
        }
        self.bytes = bytes;
        Ok(())
    }

    fn next_scratch_path(&mut self) -> PathBuf {
        self.next_scratch += 1;
        self.scratch.join(self.next_scratch.to_string())
    }

    /// What is known of it.
    pub(super) fn stat(&self, ix: NodeIx) -> Result<Stat, Trouble> {
        let node = self.node(ix)?;
        let (is_folder, bytes) = match &node.kind {
            Kind::Folder { .. } => (true, 0),
            Kind::File(content) => (false, content.len()),
        };
        Ok(Stat { serial: node.serial, is_folder, bytes })
    }

    /// A folder's entries in the order of their names, itself and its parent first.
    pub(super) fn list(&self, ix: NodeIx) -> Result<Vec<Entry>, Trouble> {
        let Kind::Folder { parent, entries } = &self.node(ix)?.kind else {
            return Err(Errno::NotDir.into());
        };
        let both = [(".", ix), ("..", *parent)];
        both.into_iter()
            .chain(entries.iter().map(|(name, node)| (name.as_str(), *node)))
            .map(|(name, node)| {
                let Stat { serial, is_folder, .. } = self.stat(node)?;
                Ok(Entry { name: name.to_owned(), serial, is_folder })
            })
            .collect()
    }

    /// The content of a file.
    pub(super) fn content(&self, node: NodeIx) -> Result<&Content, Trouble> {
        match &self.node(node)?.kind {
            Kind::File(content) => Ok(content),
            Kind::Folder { .. } => Err(Errno::IsDir.into()),
        }
    }

    fn content_mut(&mut self, node: NodeIx) -> Result<&mut Content, Trouble> {
        match &mut self.node_mut(node)?.kind {
            Kind::File(content) => Ok(content),
            Kind::Folder { .. } => Err(Errno::IsDir.into()),
        }
    }

    /// What a file holds that counts.
    fn written_bytes(&self, node: NodeIx) -> u64 {
        match self.content(node) {
            Ok(Content::Input(..)) | Err(_) => 0,
            Ok(content) => content.len(),
        }
    }

    /// Whether it is a folder.
    pub(super) fn is_folder(&self, node: NodeIx) -> Result<bool, Trouble> {
        Ok(matches!(self.node(node)?.kind, Kind::Folder { .. }))
    }

    fn entries(&self, node: NodeIx) -> Result<&BTreeMap<String, NodeIx>, Trouble> {
        match &self.node(node)?.kind {
            Kind::Folder { entries, .. } => Ok(entries),
            Kind::File(_) => Err(Errno::NotDir.into()),
        }
    }

    fn entries_mut(&mut self, node: NodeIx) -> Result<&mut BTreeMap<String, NodeIx>, Trouble> {
        match &mut self.node_mut(node)?.kind {
            Kind::Folder { entries, .. } => Ok(entries),
            Kind::File(_) => Err(Errno::NotDir.into()),
        }
    }

    fn insert(&mut self, kind: Kind, linked: bool) -> Result<NodeIx, Trouble> {
        let free = self.nodes.iter().position(Option::is_none);
        if free.is_none() && self.nodes.len() >= FILES_MAX {
            return Err(Errno::NoSpc.into());
        }
        let node = Some(Node { kind, serial: self.next_serial, linked, opened: 0 });
        self.next_serial += 1;
        let place = free.unwrap_or(self.nodes.len());
        match self.nodes.get_mut(place) {
            Some(empty) => *empty = node,
            None => self.nodes.push(node),
        }
        Ok(NodeIx(place))
    }

    fn node(&self, ix: NodeIx) -> Result<&Node, Trouble> {
        self.nodes.get(ix.0).and_then(Option::as_ref).ok_or(Trouble::Errno(Errno::BadF))
    }

    fn node_mut(&mut self, ix: NodeIx) -> Result<&mut Node, Trouble> {
        self.nodes.get_mut(ix.0).and_then(Option::as_mut).ok_or(Trouble::Errno(Errno::BadF))
    }
}

#[cfg(test)]
mod tests;

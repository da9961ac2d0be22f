//! What a module has open.

use super::errno::Errno;
use super::files::{Entry, Files, NodeIx, Trouble};
use super::limits::DESCRIPTORS_MAX;

/// Something open.
#[derive(Debug)]
pub(super) enum Descriptor {
    /// Standard input: empty.
    Nothing,
    /// Standard output, kept in a file that no folder names.
    Output(NodeIx),
    /// Standard error.
    Errors,
    /// A file.
    File {
        /// Which.
        node: NodeIx,
        /// Where the next byte is read or written.
        offset: u64,
        /// Whether it is always written at its end.
        append: bool,
        /// Whether it may be read.
        readable: bool,
        /// Whether it may be written.
        writable: bool,
    },
    /// A folder, and its entries as they were when they began to be read.
    Folder(NodeIx, Vec<Entry>),
}

impl Descriptor {
    fn node(&self) -> Option<NodeIx> {
        match self {
            Self::Output(node) | Self::File { node, .. } | Self::Folder(node, _) => Some(*node),
            Self::Nothing | Self::Errors => None,
        }
    }
}

/// All of them, by their numbers.
#[derive(Debug)]
pub(super) struct Descriptors(Vec<Option<Descriptor>>);

impl Descriptors {
    /// The number of the module's folder.
    pub(super) const ROOT: u32 = 3;

    /// The three standard ones, and the module's folder.
    pub(super) fn new(files: &mut Files, stdout: NodeIx) -> Self {
        files.open(Files::ROOT);
        files.open(stdout);
        let output = Descriptor::Output(stdout);
        let root = Descriptor::Folder(Files::ROOT, Vec::new());
        Self([Descriptor::Nothing, output, Descriptor::Errors, root].map(Some).into())
    }

    /// One of them.
    pub(super) fn get(&self, fd: u32) -> Result<&Descriptor, Errno> {
        self.0.get(fd as usize).and_then(Option::as_ref).ok_or(Errno::BadF)
    }

    /// One of them.
    pub(super) fn get_mut(&mut self, fd: u32) -> Result<&mut Descriptor, Errno> {
        self.0.get_mut(fd as usize).and_then(Option::as_mut).ok_or(Errno::BadF)
    }

    /// The folder that is open as `fd`.
    pub(super) fn folder(&self, fd: u32) -> Result<NodeIx, Errno> {
        match self.get(fd)? {
            Descriptor::Folder(node, _) => Ok(*node),
            _ => Err(Errno::NotDir),
        }
    }

    /// The file or folder that is open as `fd`.
    pub(super) fn node(&self, fd: u32) -> Result<Option<NodeIx>, Errno> {
        Ok(self.get(fd)?.node())
    }

    /// Enters one under the lowest free number.
    pub(super) fn enter(&mut self, files: &mut Files, new: Descriptor) -> Result<u32, Trouble> {
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if free >= DESCRIPTORS_MAX {
            return Err(Errno::MFile.into());
        }
        if let Some(node) = new.node() {
            files.open(node);
        }
        match self.0.get_mut(free) {
            Some(empty) => *empty = Some(new),
            None => self.0.push(Some(new)),
        }
        Ok(u32::try_from(free).expect("below the limit"))
    }

    /// Closes one.
    pub(super) fn close(&mut self, files: &mut Files, fd: u32) -> Result<(), Errno> {
        let closed = self.0.get_mut(fd as usize).and_then(Option::take).ok_or(Errno::BadF)?;
        if let Some(node) = closed.node() {
            files.close(node);
        }
        Ok(())
    }

    /// Gives `from` the number `to`, and closes what had it.
    pub(super) fn renumber(&mut self, files: &mut Files, from: u32, to: u32) -> Result<(), Errno> {
        self.get(from)?;
        self.get(to)?;
        if from != to {
            let moved = self.0[from as usize].take();
            self.close(files, to)?;
            self.0[to as usize] = moved;
        }
        Ok(())
    }
}

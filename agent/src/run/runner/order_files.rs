//! The files of an order that runs inside a runner's worker: opened by the runner, which sees the
//! agent's cache, and handed over open, since the worker sees nothing of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::{ApplicationOrder, FrameInput, Order, StagedInput, WasmOrder};

/// Open files in one message; a kernel passes 253 at most.
const FILES_IN_MESSAGE: usize = 128;

/// The open files of one order, in the order in which [`sources`] names them.
#[derive(Debug, Default)]
pub(super) struct OrderFiles(VecDeque<File>);

impl OrderFiles {
    /// Opens the files that an order names.
    ///
    /// # Errors
    /// One cannot be opened, in words.
    pub(super) fn open(order: &Order) -> Result<Self, String> {
        let open = |(name, path): (String, &std::path::Path)| {
            File::open(path).map_err(|error| format!("input {name:?}: {error}"))
        };
        Ok(Self(sources(order).into_iter().map(open).collect::<Result<_, _>>()?))
    }

    /// The next one.
    ///
    /// # Errors
    /// There are fewer than the order names.
    pub(super) fn next(&mut self) -> io::Result<File> {
        self.0.pop_front().ok_or_else(|| io::Error::other("a file of the order is missing"))
    }

    /// Hands them to whoever [receives](Self::receive) them at the other end of `socket`.
    pub(super) fn send(&self, socket: impl AsFd) -> io::Result<()> {
        let files: Vec<BorrowedFd<'_>> = self.0.iter().map(AsFd::as_fd).collect();
        for part in files.chunks(FILES_IN_MESSAGE) {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_IN_MESSAGE))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !control.push(SendAncillaryMessage::ScmRights(part)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            sendmsg(socket.as_fd(), &[IoSlice::new(b"f")], &mut control, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    /// Receives the files that an order names.
    pub(super) fn receive(order: &Order, socket: impl AsFd) -> io::Result<Self> {
        let count = sources(order).len();
        let mut files = VecDeque::with_capacity(count);
        while files.len() < count {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_IN_MESSAGE))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let into = &mut [IoSliceMut::new(&mut byte)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let message = recvmsg(socket.as_fd(), into, &mut control, flags)?;
            let before = files.len();
            let rights = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(rights) => Some(rights),
                _ => None,
            });
            files.extend(rights.flatten().map(|file: OwnedFd| File::from(file)));
            if files.len() == before || message.flags.contains(ReturnFlags::CTRUNC) {
                return Err(io::Error::other("no more files can be open in a runner's worker"));
            }
        }
        Ok(Self(files))
    }
}

/// The names and places of an order's files: the module, what was compiled of it, or the
/// specification, then the inputs; what a frame is drawn of. A command's files are copied into its folder instead.
fn sources(order: &Order) -> Vec<(String, &std::path::Path)> {
    let of = |input: &'_ StagedInput| input.name.clone();
    let mut sources = Vec::new();
    let inputs = match order {
        Order::Wasm(WasmOrder { module, compiled, inputs, .. }) => {
            sources.push((of(module), &*module.source));
            if let Some(compiled) = compiled {
                sources.push(("the compiled module".to_owned(), &*compiled.path));
            }
            inputs
        }
        Order::Application(ApplicationOrder { spec, inputs, .. }) => {
            sources.push((of(spec), &*spec.source));
            inputs
        }
        Order::Frame(order) => {
            match &order.input {
                FrameInput::Nothing => {}
                FrameInput::Chunk(chunk, _) => sources.push((of(chunk), &*chunk.source)),
                FrameInput::Layers(path) => sources.push(("the frame's layers".to_owned(), path)),
            }
            return sources;
        }
        Order::Kernel(_)
        | Order::Command(_)
        | Order::Look(_)
        | Order::Save { .. }
        | Order::Stop { .. } => return sources,
    };
    sources.extend(inputs.iter().map(|input| (of(input), &*input.source)));
    sources
}

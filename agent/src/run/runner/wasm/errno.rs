//! Numbers by which WASI preview 1 tells a module what went wrong.

/// One of them. Those that nothing here answers are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Errno {
    /// A bad descriptor.
    BadF = 8,
    /// It is there already.
    Exist = 20,
    /// An address outside the module's memory.
    Fault = 21,
    /// A file would become too large.
    FBig = 22,
    /// No UTF-8.
    IlSeq = 25,
    /// A bad argument.
    Inval = 28,
    /// It is a folder.
    IsDir = 31,
    /// Too many open descriptors.
    MFile = 33,
    /// A name is too long.
    NameTooLong = 37,
    /// It is not there.
    NoEnt = 44,
    /// No space left.
    NoSpc = 51,
    /// It is no folder.
    NotDir = 54,
    /// A folder is not empty.
    NotEmpty = 55,
    /// Not a socket.
    NotSock = 57,
    /// Not offered here.
    NotSup = 58,
    /// Not allowed.
    Perm = 63,
    /// It cannot be sought in.
    SPipe = 70,
    /// It leads out of the module's folder.
    NotCapable = 76,
}

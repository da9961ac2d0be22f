//! The comparer: a process that compares two files, says what came of it, and ends.
//!
//! From its standard input it reads the lengths of both files, then the files. Before that it bounds
//! what it may take of the machine, and gives up what it needs for nothing else: whatever a file
//! makes a decoder do, it can neither open nor write a file, nor start anything. That is by limits
//! of the kernel's, which bind its own account; its calls are not filtered.

use std::ffi::OsString;
use std::io::{self, Read};
use std::panic;
use std::process::exit;

use rustix::process::{Resource, Rlimit, nice, setrlimit};

use crate::kind::Kind;
use crate::limits::{ADDRESS_SPACE_BYTES_MAX, COMPARED_BYTES_MAX, CPU_S_MAX, NICE};

/// The argument that makes an executable a comparer; the end of the files' names follows.
pub(crate) const COMPARER_ARGUMENT: &str = "__comparer";

/// Exit code for files that are alike: one that nothing else ends with.
pub(crate) const ALIKE: i32 = 71;
/// Exit code for files that are not.
pub(crate) const UNLIKE: i32 = 72;

/// Bytes of the two lengths.
pub(crate) const HEAD_BYTES: usize = 16;

/// Name of the process, as `ps` shows it.
const NAME: &std::ffi::CStr = c"gleaner-compare";

/// Descriptors that it has, which are all it can have.
const DESCRIPTORS_MAX: u64 = 3;

/// Becomes a comparer if this process was started as one; returns otherwise. To be called first in
/// the `main` of every executable that runs a broker.
pub fn run_as_comparer_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|argument| argument == COMPARER_ARGUMENT) {
        comparer_main(arguments.next())
    }
}

/// What the files are preceded by.
pub(crate) fn head(one_bytes: u64, other_bytes: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&one_bytes.to_le_bytes());
    head[8..].copy_from_slice(&other_bytes.to_le_bytes());
    head
}

fn comparer_main(end: Option<OsString>) -> ! {
    let are_alike = confine().is_ok() && compare(end).unwrap_or(false);
    exit(if are_alike { ALIKE } else { UNLIKE })
}

/// Bounds this process. Nothing is read without.
fn confine() -> io::Result<()> {
    // Neither is essential. Where memory ends, this goes before the broker.
    let _ = nice(NICE);
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let limits = [
        (Resource::Core, 0),
        (Resource::As, ADDRESS_SPACE_BYTES_MAX),
        (Resource::Cpu, CPU_S_MAX),
        (Resource::Nofile, DESCRIPTORS_MAX),
        (Resource::Nproc, 0),
        (Resource::Fsize, 0),
    ];
    for (resource, most) in limits {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    rustix::thread::set_no_new_privs(true)?;
    panic::set_hook(Box::new(|_| {}));
    // Last: whoever sees its name sees it bounded.
    Ok(rustix::thread::set_name(NAME)?)
}

/// Reads both files and compares them; nothing where they are not both there, or too large.
fn compare(end: Option<OsString>) -> Option<bool> {
    let kind = Kind::of(end?.to_str()?)?;
    let mut stdin = io::stdin().lock();
    let mut head = [0; HEAD_BYTES];
    stdin.read_exact(&mut head).ok()?;
    let (words, _) = head.as_chunks::<8>();
    let [one_bytes, other_bytes] = [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])];
    let mut file = |bytes: u64| {
        if bytes > COMPARED_BYTES_MAX {
            return None;
        }
        let mut file = vec![0; usize::try_from(bytes).ok()?];
        stdin.read_exact(&mut file).ok().map(|()| file)
    };
    let (one, other) = (file(one_bytes)?, file(other_bytes)?);
    Some(kind.are_alike(&one, &other))
}

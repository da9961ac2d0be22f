//! What a process finds of its own confinement, from inside: for trials, which say how work is
//! confined on a host by having some of it look.

use std::fs;

use rustix::process::{Resource, getegid, geteuid, getrlimit};
use serde::{Deserialize, Serialize};

use super::data_limit::DataLimit;

/// What a process is to look for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LookOrder {
    /// A file of the host, by its path there, that everybody may read and that is no business of work.
    pub(crate) file: String,
    /// Memory that the process limits itself to first, in MiB, as for an application.
    pub(crate) memory_mib: Option<u32>,
}

/// What a process found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Number of the user that it runs as, as it is known outside of any namespace.
    pub uid: u32,
    /// Number of the group.
    pub gid: u32,
    /// Whether it has any right of root's.
    pub has_capabilities: bool,
    /// Whether the kernel gives no new rights to it or to what it starts.
    pub no_new_privs: bool,
    /// Whether a filter of system calls holds.
    pub filter: bool,
    /// Whether it can make a socket for the network.
    pub network_sockets: bool,
    /// Whether it reads a file of the host that everybody may read and that was not given to it.
    pub reads_host_files: bool,
    /// Whether it sees processes of others.
    pub sees_processes: bool,
    /// Processes and threads that its user may have.
    pub process_limit: Option<u64>,
    /// Memory that it may take for data, in MiB.
    pub memory_limit_mib: Option<u64>,
}

/// Looks.
pub(super) fn look(order: &LookOrder) -> Seen {
    let _limit = order.memory_mib.map(|mib| DataLimit::set(u64::from(mib)));
    let limit = |what| getrlimit(what).current;
    let capabilities = rustix::thread::capabilities(None);
    Seen {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        has_capabilities: capabilities.is_ok_and(|sets| !sets.effective.is_empty()),
        no_new_privs: rustix::thread::no_new_privs().unwrap_or(false),
        filter: has_filter(),
        network_sockets: std::net::UdpSocket::bind(("127.0.0.1", 0)).is_ok(),
        reads_host_files: fs::read(&order.file).is_ok(),
        sees_processes: sees_processes(),
        process_limit: limit(Resource::Nproc),
        memory_limit_mib: limit(Resource::Data).map(|bytes| bytes >> 20),
    }
}

/// Whether a filter of system calls holds for this thread.
#[expect(unsafe_code, reason = "no safe wrapper in our dependencies")]
fn has_filter() -> bool {
    const FILTERED: libc::c_int = 2;
    // SAFETY: the call takes plain numbers.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) == FILTERED }
}

/// Whether `/proc` shows more than the first process of a namespace and this one.
fn sees_processes() -> bool {
    let own = i64::from(rustix::process::getpid().as_raw_nonzero().get());
    let others = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid: i64 = entry.file_name().to_str()?.parse().ok()?;
        (pid != own && pid != 1).then_some(pid)
    });
    others.count() > 0
}

//! What confines work: foreign code on somebody's machine.
//!
//! The owner's allow-list says which programs may run; this says what they reach once they do. Kernels
//! and modules are behind the same walls, in a worker of their runner ([`super::worker`]). A host is
//! asked for [`Promise`]s, and gives them through whichever [`Layer`]s its kernel and its
//! owner's rights grant:
//!
//! | promise | is kept by | without namespaces |
//! |---|---|---|
//! | files: it reads system folders and what its owner names, and writes its own folder | a root of its own, read only | Landlock (Linux 6.2) |
//! | signals: it stops and ends nobody else's processes | a process namespace | Landlock (Linux 6.12) |
//! | sight: it does not see them either | the same, with a fresh `/proc` | nothing |
//! | network: none, unless its owner allows it | a network namespace, and the filter | the filter |
//! | kernel: no new rights, tracing, keys, mounts, BPF, io_uring, userfaultfd, perf | the filter | the filter |
//! | user: not root's rights where the agent is root | a user of its own per slot | nothing |
//!
//! A worker needs less than a command: without namespaces its filter lets it signal itself alone, and
//! it is another user all the same, since it finds its folder without a path. It never has the network.
//!
//! An agent that is not root makes the namespaces inside a user namespace of its own; where that
//! is forbidden Landlock and the filter remain. What is missing is said by `gleaner doctor` and
//! `gleaner agent status`, with what mends it; whether commands run without it is the owner's
//! word ([`Confine`]), and the default is that they do not.
//!
//! ```text
//! agent ── runner: own user, mount, network, host-name namespace; builds the root once
//!            └─ init: own process, mount, IPC namespace for one command; its folder, /tmp, /proc
//!                 └─ the command, or the worker: no rights, Landlock, filter
//! ```
//!
//! The runner stays what it was, the leader of its group: a release stops and kills the
//! group from outside, and when the init is killed the kernel kills all of its namespace, however
//! it has forked and whatever session it has begun.
//!
//! # Invariants
//! - Between fork and exec only system calls are made, on memory that was prepared before. A worker,
//!   which executes nothing, is forked by the C library out of a process with one thread.
//! - No step that fails is passed over: the command does not start, and the replica goes to
//!   another host.
//! - Nothing of one command is there for the next: no process, no file, no shared memory.

mod bounds;
mod cell;
mod filter;
mod gpu_view;
mod identity;
mod landing;
mod landlock_rules;
mod layer;
mod mount_table;
mod promise;
mod root;
mod rules;
mod trial;
mod visible;

use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

pub(crate) use bounds::Bounds;
pub(super) use cell::{Cell, CellContent, CellError, CellOrder, CellWork};
pub(super) use identity::Identity;
use identity::is_user_of_slot;
pub(crate) use identity::{CommandUser, user_of_slot};
pub(crate) use layer::Layers;
pub use layer::{Finding, Layer};
pub use promise::Promise;
pub use rules::{CommandRules, Confine, RuleError};
pub use trial::{Confinement, RunnerConfinement, WorkKind};
pub(crate) use trial::{look_at_each, run_as_trial_if_asked, try_out};

use filter::Doors;
use landing::bound_rights;
use root::NewRoot;

/// What a runner is told about the commands that it will run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confines {
    /// What is used of what this host grants.
    pub(crate) layers: Layers,
    /// Whether they may use the network.
    pub(crate) network: bool,
    /// Programs that may run, as their owner lists them.
    pub(crate) programs: Vec<PathBuf>,
    /// What they may read besides the system's folders.
    pub(crate) read: Vec<PathBuf>,
    /// What they may not see even where it lies in those: the agent's own.
    pub(crate) hidden: Vec<PathBuf>,
    /// As whom they run where the agent is root.
    pub(crate) user: Option<CommandUser>,
}

/// A runner that is ready to confine.
#[derive(Debug)]
pub(super) struct Sandbox {
    confines: Confines,
    identity: Identity,
    root: Option<NewRoot>,
    filter: Vec<libc::sock_filter>,
    doors: Doors,
    /// Whether processes of its user are its commands' alone, so that they can be counted.
    counts_processes: bool,
}

/// What could not be done, in words.
pub(super) type Refusal = String;

impl Sandbox {
    /// Puts this process, which must have one thread only, where its commands will be started
    /// from. `base` is the runner's folder.
    pub(super) fn raise(confines: Confines, base: &Path) -> Result<Self, Refusal> {
        let identity = Identity::of_commands(&confines);
        let root = match confines.layers.namespaces {
            true => Some(NewRoot::raise(&confines, &identity, base)?),
            false => None,
        };
        bound_rights();
        let Layers { namespaces, landlock_scope, filter, .. } = confines.layers;
        let doors = Doors {
            // Sockets with a name in the file system are out of sight, those without one in another
            // network or behind Landlock's fence.
            unix: namespaces && (!confines.network || landlock_scope),
            network: confines.network,
            shared_memory: namespaces,
            resuming: namespaces || landlock_scope,
            signals_only: None,
        };
        let filter = if filter { filter::program(doors) } else { Vec::new() };
        // A user whom the owner names is that of all slots.
        let counts_processes = match identity.is_other {
            true => is_user_of_slot(identity.uid),
            false => namespaces && counts_by_namespace(),
        };
        Ok(Self { confines, identity, root, filter, doors, counts_processes })
    }

    /// As whom work runs that executes no program. It needs no file by its path, so that it can be
    /// another user without namespaces too.
    pub(super) fn identity_of_work(&self) -> Identity {
        match self.confines.user {
            Some(CommandUser { uid, gid }) if geteuid().is_root() => {
                Identity { uid, gid, is_other: true }
            }
            _ => self.identity.clone(),
        }
    }

    /// What a filter leaves open to it: never the network.
    fn doors_of_work(&self) -> Doors {
        // Its own number is put there when it has one.
        Doors { network: false, unix: false, signals_only: Some(0), ..self.doors }
    }

    /// Whether the kernel counts a command's processes and threads by itself.
    pub(super) fn counts_processes(&self) -> bool {
        self.counts_processes
    }

    /// As whom commands run.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Whether processes of a user are counted for each user namespace: since Linux 5.14.
fn counts_by_namespace() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (major, minor) = (numbers.next(), numbers.next());
    matches!((major, minor), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (5, 14))
}

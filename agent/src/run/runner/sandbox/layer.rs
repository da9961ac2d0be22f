//! What a kernel, and the rights that an agent has on it, grant for confining a command.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// A root, processes, shared memory and (unless allowed) a network of its own.
    Namespaces,
    /// A `/proc` that shows its own processes.
    FreshProc,
    /// Landlock's rules on files.
    Landlock,
    /// Landlock's fence around signals and abstract sockets.
    LandlockScope,
    /// A filter of system calls (seccomp).
    Filter,
}

impl Layer {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::Namespaces, Self::FreshProc, Self::Landlock, Self::LandlockScope, Self::Filter];

    /// What brings it where it is missing.
    pub(super) const fn mend(self) -> &'static str {
        match self {
            Self::Namespaces => {
                "allow user namespaces: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
                 kernel.apparmor_restrict_unprivileged_userns; or run the agent as root"
            }
            Self::FreshProc => {
                "nothing may be mounted over parts of the agent's /proc (systemd: ProtectKernelLogs, \
                 ProtectKernelTunables, ProtectHostname)"
            }
            Self::Landlock => "Linux 6.2 or newer, with landlock among the kernel's lsm=",
            Self::LandlockScope => "Linux 6.12 or newer, with landlock among the kernel's lsm=",
            Self::Filter => "a kernel with CONFIG_SECCOMP_FILTER",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespaces => "namespaces",
            Self::FreshProc => "fresh-proc",
            Self::Landlock => "landlock",
            Self::LandlockScope => "landlock-scope",
            Self::Filter => "seccomp",
        })
    }
}

/// The layers that are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layers {
    pub(crate) namespaces: bool,
    pub(crate) fresh_proc: bool,
    pub(crate) landlock: bool,
    pub(crate) landlock_scope: bool,
    pub(crate) filter: bool,
}

impl Layers {
    /// Whether it is among them.
    pub(crate) const fn has(self, layer: Layer) -> bool {
        match layer {
            Layer::Namespaces => self.namespaces,
            Layer::FreshProc => self.fresh_proc,
            Layer::Landlock => self.landlock,
            Layer::LandlockScope => self.landlock_scope,
            Layer::Filter => self.filter,
        }
    }
}

/// What was found out about one layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which.
    pub layer: Layer,
    /// Whether this host grants it.
    pub granted: bool,
    /// Why not.
    pub why: Option<String>,
    /// What mends it.
    pub mend: Option<String>,
}

//! What an owner may rely on while a command runs.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Layers;

/// One thing that a command cannot do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// It reads system folders and what the owner names, and writes its own folder.
    Files,
    /// It signals no process but its own.
    Signals,
    /// It sees no process but its own.
    Sight,
    /// It has no network, unless the owner allows it.
    Network,
    /// It gets no new rights, and does not come near the kernel's rarer doors.
    Kernel,
    /// It has not the rights of root.
    User,
}

impl Promise {
    /// All of them, the most important first.
    pub const ALL: [Self; 6] =
        [Self::Files, Self::User, Self::Network, Self::Kernel, Self::Signals, Self::Sight];

    /// Whether commands are refused without it unless the owner says otherwise.
    #[must_use]
    pub const fn is_required(self) -> bool {
        // Names and arguments of other processes are what any user of the machine sees.
        !matches!(self, Self::Sight)
    }

    /// Whether these layers keep it for what runs inside a runner's worker: it needs less than a
    /// command, so that its filter lets it signal itself alone, and it is another user than root in any
    /// case.
    pub(crate) const fn is_kept_for_work(self, layers: Layers) -> bool {
        match self {
            Self::Files => layers.namespaces || layers.landlock,
            Self::Signals => layers.namespaces || layers.landlock_scope || layers.filter,
            Self::Sight => layers.namespaces,
            Self::Network | Self::Kernel => layers.filter,
            Self::User => true,
        }
    }

    /// Whether these layers keep it for commands of an agent that is root, or is not.
    pub(crate) const fn is_kept(self, layers: Layers, is_root: bool) -> bool {
        match self {
            Self::Files => layers.namespaces || layers.landlock,
            Self::Signals => layers.namespaces || layers.landlock_scope,
            Self::Sight => layers.namespaces,
            // Where it is allowed nothing is promised; what is not the network is shut all the same.
            Self::Network | Self::Kernel => layers.filter,
            Self::User => !is_root || layers.namespaces,
        }
    }

    /// What it means where it is not kept.
    #[must_use]
    pub const fn without(self) -> &'static str {
        match self {
            Self::Files => "a command reads and writes every file that the agent may",
            Self::Signals => "a command can end every process of the agent's user",
            Self::Sight => "a command sees the names and arguments of other processes",
            Self::Network => "a command can connect to any address",
            Self::Kernel => "a command may use every system call",
            Self::User => "a command runs as root",
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "files",
            Self::Signals => "signals",
            Self::Sight => "sight",
            Self::Network => "network",
            Self::Kernel => "kernel",
            Self::User => "user",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_promise_falls_with_its_layers() {
        let all = Layers {
            namespaces: true,
            fresh_proc: true,
            landlock: true,
            landlock_scope: true,
            filter: true,
        };
        for promise in Promise::ALL {
            assert!(promise.is_kept(all, true) && promise.is_kept(all, false), "{promise}");
            assert!(promise.is_kept_for_work(all), "{promise}");
            assert_eq!(
                promise.is_kept_for_work(Layers::default()),
                promise == Promise::User,
                "{promise}"
            );
            assert_eq!(
                promise.is_kept(Layers::default(), false),
                promise == Promise::User,
                "{promise}"
            );
            assert!(!promise.is_kept(Layers::default(), true), "{promise}");
        }
        let shut_out = Layers { namespaces: false, fresh_proc: false, ..all };
        let missing = |layers, is_root| {
            Promise::ALL
                .into_iter()
                .filter(move |p| !p.is_kept(layers, is_root))
                .collect::<Vec<_>>()
        };
        assert_eq!(missing(shut_out, false), [Promise::Sight]);
        assert_eq!(missing(shut_out, true), [Promise::User, Promise::Sight]);
        let older = Layers { landlock_scope: false, ..shut_out };
        assert_eq!(missing(older, false), [Promise::Signals, Promise::Sight]);
        assert!(Promise::Signals.is_kept_for_work(older), "its filter sees to it");
    }
}

//! A host's epoch: how stale news is told from fresh.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many preflights a host has seen, and in which life of its run folder.
///
/// Each preflight raises `count` in the host's run folder before it does anything else. An
/// opening of a fragment carries the epoch that it was decided on and is obeyed only while the
/// host still stands at exactly that epoch: however late, doubled or reordered it arrives, it
/// cannot open what a render has closed since. `incarnation` is drawn at random when the folder
/// is made, so that a host that lost its folder (a reboot) shares no epoch with its past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
pub struct Epoch {
    /// Which life of the run folder.
    pub incarnation: u64,
    /// Preflights in that life.
    pub count: u64,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{}", self.incarnation, self.count)
    }
}

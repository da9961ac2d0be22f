//! How sure a submitter wants to be of a result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether every workunit is replicated alike, or as far as its hosts are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Trust {
    /// Replicated as often as the job says, decided by its quorum.
    #[default]
    Fixed,
    /// As few replicas as the error allows, where the lane's policy replicates adaptively;
    /// [`Trust::Fixed`] elsewhere.
    Adaptive {
        /// Share of the accepted results that may be wrong, in parts per billion.
        error_ppb: u32,
    },
}

//! When two outputs are one vote.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the outputs of a workunit's replicas are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Comparison {
    /// Pictures, tables and volumes agree where what is in them is the same within a tolerance that
    /// the broker states; all other files where their bytes are equal.
    #[default]
    Tolerance,
    /// Outputs agree where their bytes are equal.
    Exact,
}

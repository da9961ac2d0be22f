//! Who answers for what jobs take.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{OwnerName, ProjectName};

/// Who answers for what a job takes: its project; where it is of none, its owner.
///
/// A project and an owner of the same name are two.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Account {
    /// All owners of a project together.
    Project(ProjectName),
    /// An owner whose jobs are of no project.
    Owner(OwnerName),
}

impl Account {
    /// Of whoever has this project, if any, and is this owner.
    #[must_use]
    pub fn of(project: Option<&ProjectName>, owner: &OwnerName) -> Self {
        project.cloned().map_or_else(|| Self::Owner(owner.clone()), Self::Project)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project(project) => write!(f, "project {project}"),
            Self::Owner(owner) => write!(f, "{owner}"),
        }
    }
}

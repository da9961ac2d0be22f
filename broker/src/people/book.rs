//! The file of principals and invitations: replaced as a whole with each change.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gleaner_protocol::people::{Identity, PrincipalId, PrincipalStatus, Role};
use gleaner_protocol::{Digest, HostName, OwnerName};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Refusal;

/// What cannot be done with the file.
#[derive(Debug, Error)]
pub enum BookError {
    /// It cannot be read or written.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It holds something else than it should.
    #[error(
        "{path} cannot be read ({source}): the broker does not start without knowing whom it let in. \
         Restore the file from a backup; or move it away, and enrol everybody anew",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: serde_json::Error,
    },
}

/// Who is known, and who is invited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Book {
    #[serde(skip)]
    path: PathBuf,
    pub(super) principals: BTreeMap<PrincipalId, Principal>,
    pub(super) invitations: BTreeMap<String, Invited>,
}

/// Somebody who has enrolled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Principal {
    pub(super) role: Role,
    pub(super) owner: OwnerName,
    pub(super) host: Option<HostName>,
    pub(super) public_key: String,
    pub(super) made_ms: u64,
    pub(super) revoked_ms: Option<u64>,
}

/// An invitation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Invited {
    /// The hash of its secret.
    pub(super) secret: Digest,
    pub(super) role: Role,
    pub(super) owner: OwnerName,
    pub(super) uses_left: u32,
    pub(super) ends_ms: u64,
    /// Who invited, for those who are.
    pub(super) by: String,
}

impl Principal {
    pub(super) fn status(&self, id: &PrincipalId) -> PrincipalStatus {
        PrincipalStatus {
            id: id.clone(),
            role: self.role,
            owner: self.owner.clone(),
            host: self.host.clone(),
            made_ms: self.made_ms,
            revoked_ms: self.revoked_ms,
        }
    }

    pub(super) fn identity(&self, id: &PrincipalId) -> Identity {
        Identity {
            id: id.clone(),
            role: self.role,
            owner: self.owner.clone(),
            host: self.host.clone(),
        }
    }
}

impl Book {
    /// Reads it; an empty one where there is no file.
    pub(super) fn open(path: &Path) -> Result<Self, BookError> {
        match fs::read(path) {
            Ok(bytes) => {
                let book: Self = serde_json::from_slice(&bytes)
                    .map_err(|source| BookError::Damaged { path: path.into(), source })?;
                Ok(Self { path: path.into(), ..book })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self {
                path: path.into(),
                principals: BTreeMap::new(),
                invitations: BTreeMap::new(),
            }),
            Err(source) => Err(BookError::File { what: "read", path: path.into(), source }),
        }
    }

    /// Replaces the file, for its owner's eyes alone. It is on the disk when this returns.
    pub(super) fn save(&self) -> Result<(), BookError> {
        let bytes = serde_json::to_vec_pretty(self).expect("our own types serialise");
        let new = self.path.with_extension("json.new");
        let replaced = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            let folder = self.path.parent().unwrap_or(Path::new("."));
            File::open(folder)?.sync_all()
        };
        replaced().map_err(|source| BookError::File {
            what: "write",
            path: self.path.clone(),
            source,
        })
    }

    /// Somebody who is known and not revoked.
    pub(super) fn active(&self, id: &PrincipalId) -> Result<&Principal, Refusal> {
        let principal = self.principals.get(id).ok_or_else(|| Refusal::Unknown(id.clone()))?;
        match principal.revoked_ms {
            None => Ok(principal),
            Some(_) => Err(Refusal::Revoked(id.clone())),
        }
    }

    /// All who are known and not revoked.
    pub(super) fn active_ones(&self) -> impl Iterator<Item = (&PrincipalId, &Principal)> {
        self.principals.iter().filter(|(_, of)| of.revoked_ms.is_none())
    }

    /// How many administrators have a key.
    pub(super) fn admins(&self) -> usize {
        self.active_ones().filter(|(_, of)| of.role == Role::Admin).count()
    }

    /// The agent that a host's name belongs to.
    pub(super) fn agent_of(&self, host: &HostName) -> Option<&PrincipalId> {
        self.active_ones().find(|(_, of)| of.host.as_ref() == Some(host)).map(|(id, _)| id)
    }
}

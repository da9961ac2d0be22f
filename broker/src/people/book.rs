//! The file of principals and invitations: replaced as a whole with each change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gleaner_identity::{AuditEnd, PublicKey};
use gleaner_protocol::people::{
    FarmPrincipal, Identity, Invitation, PrincipalId, PrincipalStatus, Role,
};
use gleaner_protocol::{Digest, HostName, OwnerName, ProjectName};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Refusal;
use crate::limits::REMEMBERED_S;
use crate::sealed_file::{self, SealedFileError};
use crate::wall_clock::utc_ms;

/// Name of the list of what was done, beside the file of principals.
pub(super) const AUDIT: &str = "audit.jsonl";

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
        "{path} is damaged ({why}): the broker does not start without knowing whom it let in. Restore \
         the file from a backup; or move it and broker.key away, and enrol everybody anew",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
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
    /// Where the list of what was done ends.
    #[serde(default = "AuditEnd::nothing")]
    pub(super) audit: AuditEnd,
}

/// Somebody who has enrolled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Principal {
    pub(super) role: Role,
    pub(super) owner: OwnerName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) project: Option<ProjectName>,
    pub(super) host: Option<HostName>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) trusted: bool,
    pub(super) public_key: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) as_token: bool,
    /// The invitation that it enrolled with.
    pub(super) invitation: String,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) project: Option<ProjectName>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) trusted: bool,
    pub(super) uses_left: u32,
    pub(super) ends_ms: u64,
    pub(super) by: Inviter,
}

/// A host whose key was revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RevokedHost {
    pub(crate) host: HostName,
    /// Its owner, where no host of its has a key.
    pub(crate) last_of: Option<OwnerName>,
    /// When, in milliseconds of UTC.
    pub(crate) revoked_ms: u64,
}

/// Who invites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Inviter {
    /// For those who are invited.
    pub(crate) name: String,
    /// Which principal it is, if any.
    pub(crate) id: Option<PrincipalId>,
}

impl Principal {
    pub(super) fn status(&self, id: &PrincipalId) -> PrincipalStatus {
        PrincipalStatus {
            id: id.clone(),
            role: self.role,
            owner: self.owner.clone(),
            project: self.project.clone(),
            host: self.host.clone(),
            trusted: self.trusted,
            public_key: self.public_key.clone(),
            as_token: self.as_token,
            made_ms: self.made_ms,
            revoked_ms: self.revoked_ms,
        }
    }

    pub(super) fn of_farm(&self) -> FarmPrincipal {
        FarmPrincipal {
            role: self.role,
            owner: self.owner.clone(),
            host: self.host.clone(),
            public_key: self.public_key.clone(),
            as_token: self.as_token,
        }
    }

    pub(super) fn identity(&self, id: &PrincipalId) -> Identity {
        Identity {
            id: id.clone(),
            role: self.role,
            owner: self.owner.clone(),
            project: self.project.clone(),
            host: self.host.clone(),
        }
    }
}

impl From<SealedFileError> for BookError {
    fn from(error: SealedFileError) -> Self {
        match error {
            SealedFileError::File { what, path, source } => Self::File { what, path, source },
            SealedFileError::Damaged { path, why } => Self::Damaged { path, why },
        }
    }
}

impl Book {
    /// Reads it; makes an empty one where there is no file, and never was.
    pub(super) fn open(path: &Path, is_first: bool) -> Result<Self, BookError> {
        if let Some(book) = sealed_file::read::<Self>(path)? {
            return Ok(Self { path: path.into(), ..book });
        }
        if !is_first {
            let why = "it is gone, and the broker's key is there".into();
            return Err(BookError::Damaged { path: path.into(), why });
        }
        let book = Self {
            path: path.into(),
            principals: BTreeMap::new(),
            invitations: BTreeMap::new(),
            audit: AuditEnd::nothing(),
        };
        book.save()?;
        Ok(book)
    }

    /// Where the list of what was done is.
    fn audit_path(&self) -> PathBuf {
        self.path.with_file_name(AUDIT)
    }

    /// Adds what was done to its list. What somebody was killed over who had not saved the book is
    /// cut off first: it was not done.
    pub(super) fn note(&mut self, who: &str, what: &str, on: &str) -> Result<(), BookError> {
        let path = self.audit_path();
        let (line, end) = self.audit.next(utc_ms(), who, what, on);
        let written = || {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let mut file = options.open(&path)?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            file.set_len(self.done_in(&text) as u64)?;
            file.seek(SeekFrom::End(0))?;
            writeln!(file, "{line}")?;
            file.sync_all()
        };
        written().map_err(|source| BookError::File {
            what: "write",
            path: path.clone(),
            source,
        })?;
        self.audit = end;
        Ok(())
    }

    /// How many bytes of the list's file are of what was done; what comes after them was not.
    fn done_in(&self, text: &[u8]) -> usize {
        let count = usize::try_from(self.audit.count).unwrap_or(usize::MAX);
        text.split_inclusive(|byte| *byte == b'\n').take(count).map(<[u8]>::len).sum()
    }

    /// The list of what was done, as it is on the disk.
    pub(super) fn audit_text(&self) -> Result<String, BookError> {
        let path = self.audit_path();
        match fs::read(&path) {
            Ok(text) => Ok(String::from_utf8_lossy(&text[..self.done_in(&text)]).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(source) => Err(BookError::File { what: "read", path, source }),
        }
    }

    /// Replaces the file, for its owner's eyes alone. It is on the disk when this returns.
    pub(super) fn save(&self) -> Result<(), BookError> {
        Ok(sealed_file::replace(&self.path, self)?)
    }

    /// The invitation that somebody shows, where it is good.
    pub(super) fn invited(&self, shown: &Invitation, now_ms: u64) -> Result<&Invited, Refusal> {
        let invited = self.invitations.get(&shown.id);
        let invited = invited.filter(|of| of.secret == Digest::of(shown.secret.as_bytes()));
        let invited = invited.ok_or(Refusal::NoInvitation)?;
        let by = || invited.by.name.clone();
        if invited.ends_ms <= now_ms {
            return Err(Refusal::Expired { by: by(), ago_s: (now_ms - invited.ends_ms) / 1_000 });
        }
        if invited.uses_left == 0 { Err(Refusal::UsedUp { by: by() }) } else { Ok(invited) }
    }

    /// Forgets what has been over for long: nobody asks about it any more.
    pub(super) fn forget_old(&mut self, now_ms: u64) {
        let is_old = |over_ms: u64| over_ms + REMEMBERED_S * 1_000 <= now_ms;
        self.invitations.retain(|_, invited| !is_old(invited.ends_ms));
        self.principals.retain(|_, of| of.revoked_ms.is_none_or(|at_ms| !is_old(at_ms)));
    }

    /// Somebody who is known and not revoked.
    pub(super) fn active(&self, id: &PrincipalId) -> Result<&Principal, Refusal> {
        let principal = self.principals.get(id).ok_or_else(|| Refusal::Unknown(id.clone()))?;
        match principal.revoked_ms {
            None => Ok(principal),
            Some(_) => Err(Refusal::Revoked(id.clone())),
        }
    }

    /// Whether somebody who is known shows their key as a token.
    pub(super) fn shows_its_key(&self, key: &PublicKey) -> bool {
        let found = self.active(&key.id());
        found.is_ok_and(|of| of.as_token && of.public_key == key.to_string())
    }

    /// All who are known and not revoked.
    pub(super) fn active_ones(&self) -> impl Iterator<Item = (&PrincipalId, &Principal)> {
        self.principals.iter().filter(|(_, of)| of.revoked_ms.is_none())
    }

    /// How many hosts of an owner have a key.
    pub(super) fn hosts_of(&self, owner: &OwnerName) -> usize {
        self.active_ones().filter(|(_, of)| of.role == Role::Agent && of.owner == *owner).count()
    }

    /// The public keys of monitors.
    pub(super) fn monitor_keys(&self) -> Vec<String> {
        let monitors = self.active_ones().filter(|(_, of)| of.role == Role::Monitor);
        monitors.map(|(_, of)| of.public_key.clone()).collect()
    }

    /// Owners of hosts for whom whoever runs the broker vouches.
    pub(super) fn vouched(&self) -> BTreeSet<OwnerName> {
        let agents = self.active_ones().filter(|(_, of)| of.role == Role::Agent && of.trusted);
        agents.map(|(_, of)| of.owner.clone()).collect()
    }

    /// Hosts whose keys were revoked and that have no other; and the owner of each, where none of its
    /// hosts has a key any more.
    pub(super) fn revoked_hosts(&self) -> Vec<RevokedHost> {
        let agents: Vec<_> = self.principals.values().filter(|of| of.role == Role::Agent).collect();
        let active: Vec<_> = agents.iter().filter(|of| of.revoked_ms.is_none()).collect();
        let hosts: BTreeSet<_> = active.iter().filter_map(|of| of.host.as_ref()).collect();
        let owners: BTreeSet<_> = active.iter().map(|of| &of.owner).collect();
        let revoked = agents.iter().filter_map(|of| Some((of, of.host.as_ref()?, of.revoked_ms?)));
        revoked
            .filter(|(_, host, _)| !hosts.contains(host))
            .map(|(of, host, revoked_ms)| RevokedHost {
                host: host.clone(),
                last_of: (!owners.contains(&of.owner)).then(|| of.owner.clone()),
                revoked_ms,
            })
            .collect()
    }

    /// How many administrators have a key.
    pub(super) fn admins(&self) -> usize {
        self.active_ones().filter(|(_, of)| of.role == Role::Admin).count()
    }

    /// Another owner's agent whose host a name may be taken for: with a domain or without, in other letters.
    pub(super) fn near(&self, owner: &OwnerName, host: &HostName) -> Option<&PrincipalId> {
        let is_near = |of: &Principal| {
            let is_others = of.role == Role::Agent && of.owner != *owner;
            is_others && of.host.as_ref().is_some_and(|known| known.may_be(host))
        };
        self.active_ones().find(|(_, of)| is_near(of)).map(|(id, _)| id)
    }

    /// The agent, or the hook, that a host's name belongs to.
    pub(super) fn of_host(&self, role: Role, host: &HostName) -> Option<&PrincipalId> {
        let is_it = |of: &Principal| of.role == role && of.host.as_ref() == Some(host);
        self.active_ones().find(|(_, of)| is_it(of)).map(|(id, _)| id)
    }
}

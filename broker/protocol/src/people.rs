//! People and machines that a broker knows by their keys, and what they say to be known.
//!
//! An [`Invitation`] is made by an administrator and passed on by other means. Whoever has it enrols
//! a public key with it, once for each use: from then on that key is a principal with the invitation's
//! role and owner. By proving that it has the key, a principal gets a session: a token for some
//! minutes, which it shows with each request.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Digest, HostName, OwnerName, ProjectName};

/// What a principal may.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Looks.
    Viewer,
    /// Submits, and has all of its own jobs; looks at the farm.
    Submitter,
    /// The agent of one host.
    Agent,
    /// The hooks of one host: they tell the farm's monitor of its renders, and may nothing else.
    Hook,
    /// The monitor of a farm.
    Monitor,
    /// Looks at all, and stops and resumes harvest.
    Operator,
    /// May do all, and invites others.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Viewer,
        Self::Submitter,
        Self::Agent,
        Self::Hook,
        Self::Monitor,
        Self::Operator,
        Self::Admin,
    ];

    /// Whether it is of one host.
    #[must_use]
    pub const fn is_of_host(self) -> bool {
        matches!(self, Self::Agent | Self::Hook)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Submitter => "submitter",
            Self::Agent => "agent",
            Self::Hook => "hook",
            Self::Monitor => "monitor",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no role {0:?}: viewer, submitter, agent, hook, monitor, operator or admin")]
pub struct RoleError(String);

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| RoleError(text.into()))
    }
}

/// Names a principal: the first 8 bytes of its public key's hash, in hexadecimal digits.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct PrincipalId(String);

/// What is no principal's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names nobody: it is 16 lower-case hexadecimal digits (`gleaner people` lists them)")]
pub struct PrincipalIdError(String);

impl PrincipalId {
    /// Of the public key with this hash.
    #[must_use]
    pub fn of_key(public_key: &[u8; 32]) -> Self {
        let hash = blake3::hash(public_key);
        Self(hash.as_bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl fmt::Display for PrincipalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<PrincipalId> for String {
    fn from(id: PrincipalId) -> Self {
        id.0
    }
}

impl TryFrom<String> for PrincipalId {
    type Error = PrincipalIdError;

    fn try_from(text: String) -> Result<Self, PrincipalIdError> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match text.len() == 16 && text.bytes().all(is_digit) {
            true => Ok(Self(text)),
            false => Err(PrincipalIdError(text)),
        }
    }
}

impl FromStr for PrincipalId {
    type Err = PrincipalIdError;

    fn from_str(text: &str) -> Result<Self, PrincipalIdError> {
        Self::try_from(text.to_owned())
    }
}

/// Who asks, as the broker found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Which principal.
    pub id: PrincipalId,
    /// What it may.
    pub role: Role,
    /// Whose it is: a submitter's jobs, an agent's host.
    pub owner: OwnerName,
    /// Of a submitter or viewer: the project that it works on.
    pub project: Option<ProjectName>,
    /// Of an agent or a hook: the host that it is on.
    pub host: Option<HostName>,
}

/// `POST /v1/invitations`: what an administrator wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InvitationRequest {
    /// Role of those who use it.
    pub role: Role,
    /// Their owner.
    pub owner: OwnerName,
    /// Of submitters: the project that answers for all of their jobs. Of viewers: the one whose jobs they
    /// see.
    #[serde(default)]
    pub project: Option<ProjectName>,
    /// Of agents: whether whoever invites trusts what their hosts compute, as that of the farm's own.
    #[serde(default)]
    pub trusted: bool,
    /// How many may use it.
    pub uses: u32,
    /// For how long, in seconds.
    pub valid_s: u64,
    /// The broker's address as they reach it, http(s)://HOST:PORT: then the answer has the link as well.
    #[serde(default)]
    pub address: Option<String>,
}

/// The answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Invited {
    /// What is passed on.
    #[serde(flatten)]
    pub invitation: Invitation,
    /// The same as a link, where the address was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<InvitationLink>,
}

/// A link that a camera reads, too.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InvitationLink {
    /// Where to enrol, and with what.
    pub url: String,
    /// Units of a side of its QR code, the light border included.
    pub qr_side: u32,
    /// The dark units of its QR code, as the path of an SVG picture.
    pub qr_path: String,
}

impl fmt::Debug for InvitationLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InvitationLink(secret)")
    }
}

/// What is passed on to those who are invited: the last part of a line that `gleaner invite` prints.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Invitation {
    /// Which one.
    pub id: String,
    /// Whoever has it may enrol; the broker keeps its hash only.
    pub secret: String,
    /// The hash of the public key in the broker's certificate, where it has one: whoever joins speaks to
    /// nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Digest>,
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invitation({}, secret)", self.id)
    }
}

/// `POST /v1/enrol`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Enrolment {
    /// What it was invited with.
    pub invitation: Invitation,
    /// The name of the host that it is on: an agent and a hook are known by it, and it belongs to the
    /// agent's key, and to the hook's, that enrolled it first.
    pub host: Option<HostName>,
    /// Its public key, 64 hexadecimal digits.
    pub public_key: String,
    /// That it has the key, for the invitation's id.
    pub proof: String,
    /// Whether it shows its key as a token with each request, since it signs nothing. Hooks always do.
    #[serde(default)]
    pub as_token: bool,
}

/// Whom a broker knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrincipalStatus {
    /// Its name.
    pub id: PrincipalId,
    /// What it may.
    pub role: Role,
    /// Whose it is.
    pub owner: OwnerName,
    /// The project that it works on, if any.
    #[serde(default)]
    pub project: Option<ProjectName>,
    /// Of an agent or a hook: its host.
    pub host: Option<HostName>,
    /// Of an agent: whether what its owner's hosts compute is trusted as that of the farm's own.
    #[serde(default)]
    pub trusted: bool,
    /// Its public key, 64 hexadecimal digits.
    pub public_key: String,
    /// Whether it shows its key as a token.
    #[serde(default)]
    pub as_token: bool,
    /// When it enrolled, in milliseconds of UTC.
    pub made_ms: u64,
    /// Since when it may nothing any more, likewise.
    pub revoked_ms: Option<u64>,
}

/// What somebody is told who has enrolled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Enrolled {
    /// Who that is.
    pub principal: PrincipalStatus,
    /// Of an agent: the public keys of the farm's monitors, whose openings its host is to obey.
    pub monitor_keys: Vec<String>,
}

/// Answer to `GET /v1/farm/people`: those whom a farm's monitor is to know by their keys.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FarmPeople {
    /// Another one where the list is another one.
    pub version: String,
    /// All who are not revoked, and whom a monitor has something to do with.
    pub people: Vec<FarmPrincipal>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmPrincipal {
    /// What it may.
    pub role: Role,
    /// Whose it is.
    pub owner: OwnerName,
    /// Of an agent or a hook: its host.
    pub host: Option<HostName>,
    /// Its public key, 64 hexadecimal digits.
    pub public_key: String,
    /// Whether it shows its key as a token.
    #[serde(default)]
    pub as_token: bool,
}

/// `POST /v1/challenge`: somebody wants a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChallengeRequest {
    /// Who.
    pub id: PrincipalId,
}

/// What is to be proven for that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Challenge {
    /// To be signed as it is, within a minute.
    pub challenge: String,
}

/// `POST /v1/session`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    /// The challenge.
    pub challenge: String,
    /// Signed.
    pub proof: String,
}

/// A session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// To be shown with each request, as a bearer's token.
    pub token: String,
    /// For how long it is good, in seconds.
    pub valid_s: u64,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session(for {} s)", self.valid_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).expect("a word"), format!("\"{role}\""));
        }
        assert!("root".parse::<Role>().is_err());
        let id = PrincipalId::of_key(&[7; 32]);
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "0123", "0123456789ABCDEF", "0123456789abcdef0", "../../etc/passwd"] {
            let error = bad.parse::<PrincipalId>().expect_err("it names nobody");
            assert!(error.to_string().contains("gleaner people"), "{error}");
        }
    }
}

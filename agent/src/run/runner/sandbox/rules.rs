//! The owner's rules for commands.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::CommandUser;
use super::visible::{OWN, leads_into};
use crate::limits::{COMMAND_DISK_MIB, COMMAND_FILES};

/// What an owner says of commands, besides which programs they may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandRules {
    /// What must confine them.
    pub confine: Confine,
    /// Whether they may use the network.
    pub network: bool,
    /// Files and folders that they may read besides the system's.
    pub read: Vec<PathBuf>,
    /// As whom they run where the agent is root: a name or a number.
    pub user: Option<String>,
    /// Most that the files of one may hold together, in MiB.
    pub disk_mib: u64,
    /// Most files and folders that one may have.
    pub files: u64,
}

impl Default for CommandRules {
    fn default() -> Self {
        Self {
            confine: Confine::Required,
            network: false,
            read: Vec::new(),
            user: None,
            disk_mib: COMMAND_DISK_MIB,
            files: COMMAND_FILES,
        }
    }
}

/// What is done where a host cannot confine a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confine {
    /// No command runs.
    #[default]
    Required,
    /// It runs with what there is.
    Available,
    /// Nothing confines commands anywhere: the allow-list alone holds.
    Off,
}

impl fmt::Display for Confine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Required => "required",
            Self::Available => "available",
            Self::Off => "off",
        })
    }
}

/// It is neither of the three.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not one of required, available, off")]
pub struct ConfineParseError(String);

impl FromStr for Confine {
    type Err = ConfineParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "required" => Ok(Self::Required),
            "available" => Ok(Self::Available),
            "off" => Ok(Self::Off),
            _ => Err(ConfineParseError(text.into())),
        }
    }
}

/// Why rules are not accepted.
#[derive(Debug, Error)]
pub enum RuleError {
    /// Nobody of that name, or root.
    #[error("commands.user is {0:?}: {1}")]
    User(String, &'static str),
    /// Nothing to read there.
    #[error("commands.read lists {path}: {1}", path = .0.display())]
    Read(PathBuf, String),
    /// Nothing could run so.
    #[error("commands.{0} is 0: to run no commands, leave allow_commands empty")]
    Zero(&'static str),
}

impl CommandRules {
    /// `own` are the agent's folders and files.
    pub(crate) fn check(&self, own: &[PathBuf]) -> Result<(), RuleError> {
        for (key, value) in [("disk_mib", self.disk_mib), ("files", self.files)] {
            if value == 0 {
                return Err(RuleError::Zero(key));
            }
        }
        for path in &self.read {
            let refuse = |reason: String| RuleError::Read(path.clone(), reason);
            if !path.is_absolute() {
                return Err(refuse("not an absolute path".into()));
            }
            if let Some(own) = leads_into(path, own) {
                let own = own.display();
                return Err(refuse(format!("it leads into {own}, which is the agent's own")));
            }
            if OWN.iter().any(|own| path.starts_with(own) || Path::new(own).starts_with(path)) {
                return Err(refuse("commands have one of their own there".into()));
            }
            fs::symlink_metadata(path).map_err(|error| refuse(error.to_string()))?;
        }
        self.user().map(drop)
    }

    /// The user that is named.
    pub(crate) fn user(&self) -> Result<Option<CommandUser>, RuleError> {
        let Some(name) = &self.user else { return Ok(None) };
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        user_in(name, &read("/etc/passwd"), &read("/etc/group")).map(Some)
    }
}

fn user_in(name: &str, users: &str, groups: &str) -> Result<CommandUser, RuleError> {
    let refuse = |reason| RuleError::User(name.to_owned(), reason);
    let user = match name.parse() {
        Ok(uid) => CommandUser::of_number(uid, users, groups)
            .ok_or_else(|| refuse("/etc/passwd does not list it, and no group is free"))?,
        Err(_) => CommandUser::of_name(name, users).ok_or_else(|| {
            refuse("/etc/passwd has nobody of that name; a number is taken as it is")
        })?,
    };
    match user {
        CommandUser { uid: 0, .. } => Err(refuse("commands do not run as root")),
        CommandUser { gid: 0, .. } => Err(refuse("commands do not run in root's group")),
        user => Ok(user),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_name_or_a_number_and_never_root() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\nfarm:x:77:78::/:/bin/false\noperator:x:11:0:::\n";
        let of = |user: &str| user_in(user, users, "");
        let farm = CommandUser { uid: 77, gid: 78 };
        assert_eq!(of("farm").expect("listed"), farm);
        assert_eq!(of("77").expect("listed"), farm);
        assert_eq!(of("1234").expect("a number").uid, 1234);
        for (user, says) in [
            ("0", "as root"),
            ("root", "as root"),
            ("no one", "nobody of that"),
            ("operator", "root's group"),
            ("11", "root's group"),
        ] {
            let error = of(user).expect_err(user).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn what_may_be_read_is_there_and_has_a_whole_path() {
        for path in ["etc", "/no/such/folder"] {
            let rules = CommandRules { read: vec![path.into()], ..CommandRules::default() };
            let error = rules.check(&[]).expect_err(path).to_string();
            assert!(error.contains("commands.read"), "{error}");
        }
    }
}

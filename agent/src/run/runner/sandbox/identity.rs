//! As whom commands run.

use rustix::process::{getegid, geteuid};
use serde::{Deserialize, Serialize};

use super::Confines;
use crate::limits::{COMMAND_USERS, COMMAND_USERS_FIRST};

/// User and group of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The user's number, outside of any namespace.
    pub(crate) uid: u32,
    /// The group's.
    pub(crate) gid: u32,
    /// Whether the runner is somebody else, and its commands have to become this.
    pub(crate) is_other: bool,
}

impl Identity {
    /// Of the commands of a runner that is this process: its own, but where that is root's.
    pub(super) fn of_commands(confines: &Confines) -> Self {
        let (uid, gid) = (geteuid(), getegid());
        match confines.user {
            Some(CommandUser { uid: user, gid }) if uid.is_root() && confines.layers.namespaces => {
                Self { uid: user, gid, is_other: true }
            }
            _ => Self { uid: uid.as_raw(), gid: gid.as_raw(), is_other: false },
        }
    }
}

/// As whom commands run where the agent is root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandUser {
    /// The user's number.
    pub(crate) uid: u32,
    /// Their group's.
    pub(crate) gid: u32,
}

impl CommandUser {
    /// The user of this number, and the group that these texts, in the form of `/etc/passwd` and
    /// `/etc/group`, give them. The group of the same number may be somebody else's; so one who is
    /// not listed, whose group is not known here, gets a group that is nobody's.
    pub(super) fn of_number(uid: u32, users: &str, groups: &str) -> Option<Self> {
        let listed = listed(users).map(|(_, user)| user).find(|user| user.uid == uid);
        let free = || {
            let taken = |gid: u32| {
                let number = gid.to_string();
                groups.lines().any(|line| line.split(':').nth(2) == Some(&number))
            };
            (COMMAND_USERS_FIRST..COMMAND_USERS_FIRST + COMMAND_USERS).find(|gid| !taken(*gid))
        };
        listed.or_else(|| Some(Self { uid, gid: free()? }))
    }

    /// The user of this name.
    pub(super) fn of_name(name: &str, users: &str) -> Option<Self> {
        listed(users).find(|(listed, _)| *listed == name).map(|(_, user)| user)
    }
}

fn listed(users: &str) -> impl Iterator<Item = (&str, CommandUser)> {
    users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some((name, CommandUser { uid, gid }))
    })
}

/// The user of a slot's commands where the owner names none: numbers that no system hands out, to
/// users or groups, so that not even two slots of a host share one.
pub(crate) const fn user_of_slot(slot: u32) -> CommandUser {
    let number = COMMAND_USERS_FIRST + slot % COMMAND_USERS;
    CommandUser { uid: number, gid: number }
}

/// Whether a number is that of such a user.
pub(super) const fn is_user_of_slot(uid: u32) -> bool {
    uid >= COMMAND_USERS_FIRST && uid < COMMAND_USERS_FIRST + COMMAND_USERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_group_that_the_system_gives_them_or_one_that_is_nobodys() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbad line\nfarm:x:77:78::/:/bin/false\n";
        let farm = Some(CommandUser { uid: 77, gid: 78 });
        assert_eq!(CommandUser::of_name("farm", users), farm);
        assert_eq!(CommandUser::of_number(77, users, ""), farm);
        assert_eq!(CommandUser::of_name("far", users), None);
        // Whatever group 78 is, it is not that of user 78.
        let groups = "farm:x:78:\nodd:x:60800:\n";
        let user = CommandUser { uid: 78, gid: COMMAND_USERS_FIRST + 1 };
        assert_eq!(CommandUser::of_number(78, users, groups), Some(user));
    }
}

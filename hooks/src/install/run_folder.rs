//! The run folder and the token where hooks run as the users of jobs: whether these can use both.

use std::path::{Path, PathBuf};

use super::site::Rights;
use super::{Finding, HookSettings, Options, Site};

/// What an administrator has to do who installs such hooks.
pub(super) const NOTE: &str = "the hooks run as other users than root: give the agent's run folder and the hooks' token a group \
     that those are in (hooks/README.md, Where hooks run as the users of jobs)";

/// What an administrator of such hooks has made, and takes away.
pub(super) const TO_PUT_BACK: &str = "take away what you made for hooks of other users than root, where no \
     other manager's need it: group.conf in /etc/systemd/system/gleaner-agent.service.d and \
     /etc/gleaner/hook.token";

const TO_DO: &str = "Group= and SupplementaryGroups=gleaner in a file of gleaner-agent.service.d, as hooks/README.md \
     says (Where hooks run as the users of jobs); a start of the service gives the folder to its Group=";

/// Looks at both. Where there is no folder yet, that is said already.
pub(super) fn check(
    settings: &HookSettings,
    site: &Site,
    options: &Options,
    findings: &mut Vec<Finding>,
) {
    let of = |name| settings.value(name).map(PathBuf::from);
    let folder = of("GLEANER_RUN_DIR").unwrap_or_else(|| options.run_dir.clone());
    let Some(rights) = site.rights(&folder) else { return };
    let names = Names::of(site);
    findings.push(of_folder(&folder, rights, &names));
    let token = of("GLEANER_TOKEN_FILE");
    findings.extend(token.and_then(|token| {
        let of_token = site.rights(&token)?;
        unreadable(&token, of_token, rights.group, &names)
    }));
}

fn of_folder(folder: &Path, rights: Rights, names: &Names) -> Finding {
    let Rights { owner, group, mode } = rights;
    let (owners, groups) = (names.user(owner), names.group(group));
    let shown =
        format!("the run folder {} of {owners}:{groups} (mode {mode:04o})", folder.display());
    // What is made inside has to get the group too.
    if mode & 0o2070 != 0o2070 {
        return Finding::wrong(
            format!("{shown} cannot be used by a group, and the hooks run as other users"),
            format!("RuntimeDirectoryMode=2775, {TO_DO}"),
        );
    }
    if names.is_own_group(owner, group) {
        return Finding::trap(
            format!("{shown} is of its owner's own group, in which the hooks' users hardly are"),
            TO_DO,
        );
    }
    Finding::good(format!("{shown} can be used by hooks whose users are in {groups}"))
}

/// A token that the folder's group cannot read.
fn unreadable(token: &Path, rights: Rights, group: u32, names: &Names) -> Option<Finding> {
    let Rights { owner, group: has, mode } = rights;
    let is_read = mode & 0o004 != 0 || (mode & 0o040 != 0 && has == group);
    (!is_read).then(|| {
        let (owner, has, group) = (names.user(owner), names.group(has), names.group(group));
        let token = token.display();
        Finding::wrong(
            format!(
                "the token file {token} of {owner}:{has} (mode {mode:04o}) cannot be read by {group}, \
                 the group of the run folder: hooks of its users do not tell the monitor"
            ),
            format!(
                "if it is a hook's own, chgrp {group} {token} && chmod 640 {token} (hooks/README.md)"
            ),
        )
    })
}

/// Names of users and groups, as far as the site's own files have them.
struct Names {
    users: String,
    groups: String,
}

impl Names {
    fn of(site: &Site) -> Self {
        let read = |path| site.read(Path::new(path)).ok().flatten().unwrap_or_default();
        Self { users: read("/etc/passwd"), groups: read("/etc/group") }
    }

    fn user(&self, uid: u32) -> String {
        line(&self.users, uid).map_or(uid.to_string(), |(name, _)| name.into())
    }

    fn group(&self, gid: u32) -> String {
        line(&self.groups, gid).map_or(gid.to_string(), |(name, _)| name.into())
    }

    /// Whether a group is a user's first, or root's, and nobody else is in it.
    fn is_own_group(&self, uid: u32, gid: u32) -> bool {
        let first = line(&self.users, uid).and_then(|(_, rest)| rest.split(':').next());
        let members = line(&self.groups, gid).and_then(|(_, rest)| rest.split(':').next());
        let is_first = gid == 0 || first.is_some_and(|first| first.parse() == Ok(gid));
        is_first && members.is_none_or(|members| members.trim().is_empty())
    }
}

/// Of `name:x:number:rest`, for a number: the name and the rest.
fn line(text: &str, number: u32) -> Option<(&str, &str)> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(4, ':');
        let (name, _, is) = (fields.next()?, fields.next()?, fields.next()?);
        (is.parse() == Ok(number)).then(|| (name, fields.next().unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::Level;

    fn names() -> Names {
        Names {
            users: "root:x:0:0::/root:/bin/sh\ngleaner:x:900:901::/nonexistent:/bin/false\n".into(),
            groups: "root:x:0:\ngleaner:x:901:\nrender:x:44:anna,ben\n".into(),
        }
    }

    #[test]
    fn a_folder_is_for_users_of_its_group_where_it_has_one_of_theirs() {
        let of = |owner, group, mode| {
            of_folder(Path::new("/run/gleaner"), Rights { owner, group, mode }, &names())
        };
        for (owner, group, mode, level, word) in [
            (900, 44, 0o2775, Level::Good, "gleaner:render (mode 2775)"),
            (900, 77, 0o2775, Level::Good, "users are in 77"),
            (900, 901, 0o2775, Level::Trap, "its owner's own group"),
            (0, 0, 0o2775, Level::Trap, "root:root"),
            (900, 44, 0o775, Level::Wrong, "mode 0775"),
            (900, 44, 0o2755, Level::Wrong, "cannot be used by a group"),
        ] {
            let finding = of(owner, group, mode);
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.what.contains(word), "{finding:?}");
        }
        let mut shared = names();
        shared.groups = shared.groups.replace("gleaner:x:901:", "gleaner:x:901:anna");
        let rights = Rights { owner: 900, group: 901, mode: 0o2775 };
        let finding = of_folder(Path::new("/run/gleaner"), rights, &shared);
        assert_eq!(finding.level, Level::Good, "somebody was put into it: {finding:?}");
    }

    #[test]
    fn a_token_is_readable_by_the_folders_group_or_called_wrong() {
        let token = |group, mode| {
            unreadable(Path::new("/t"), Rights { owner: 0, group, mode }, 44, &names())
        };
        assert_eq!((token(44, 0o640), token(0, 0o644)), (None, None));
        for (group, mode) in [(901, 0o640), (44, 0o600)] {
            let finding = token(group, mode).expect("they cannot");
            assert_eq!(finding.level, Level::Wrong);
            assert!(finding.to_do.contains("chgrp render /t"), "{finding:?}");
        }
    }
}

//! Every agent's enclosure on this machine that something is in, whosever agent it is.
//!
//! Agents name their enclosures after their incarnation, by [`agents_name`], so that no other
//! group is taken for one: a service of the system may well be called `gleaner-agent`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::hierarchy::parse;
use crate::leaf::{Marks, PREFIX};
use crate::mounts::{Mount, mounts};

/// What an agent of this incarnation calls its enclosure.
#[must_use]
pub fn agents_name(incarnation: u64) -> String {
    format!("{incarnation:016x}")
}

/// The enclosures of all agents, alive or dead, that processes are in; those that this user has
/// no say over are left out.
#[must_use]
pub fn enclosures_at_work() -> Vec<Marks> {
    let mounts = mounts().unwrap_or_default();
    let mut found: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        // One that has ended meanwhile is in none.
        let groups = fs::read(process.path().join("cgroup")).unwrap_or_default();
        let groups = String::from_utf8_lossy(&groups);
        if groups.contains(PREFIX) {
            for (name, path) in enclosures_of(&mounts, &groups) {
                found.entry(name).or_default().insert(path);
            }
        }
    }
    let marks = found.into_values().map(|paths| Marks::from_paths(paths.into_iter().filter(ours)));
    // Those of which only the dead are in it, whom nobody has taken note of, are empty too.
    marks.filter(|marks| !marks.members().is_empty()).collect()
}

/// The enclosures that a process with these groups is in, one per hierarchy, by their names.
fn enclosures_of(mounts: &[Mount], groups: &str) -> Vec<(String, PathBuf)> {
    let of_one = |own: &Path| {
        own.ancestors().find_map(|path| {
            let name = path.file_name()?.to_str()?;
            is_agents(name).then(|| (name.to_owned(), path.to_owned()))
        })
    };
    parse(mounts, groups).iter().filter_map(|hierarchy| of_one(&hierarchy.own)).collect()
}

fn is_agents(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|incarnation| {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        incarnation.len() == 16 && incarnation.bytes().all(is_digit)
    })
}

fn ours(path: &PathBuf) -> bool {
    let user = rustix::process::geteuid();
    user.is_root() || fs::metadata(path).is_ok_and(|group| group.uid() == user.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::parse_mounts;

    const MOUNTS: &str = "\
32 31 0:28 / /cg/freezer rw - cgroup cgroup rw,freezer
33 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu
34 31 0:30 / /cg/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn the_enclosure_of_a_process_is_found_above_its_leaf() {
        let name = format!("{PREFIX}{}", agents_name(0xab));
        let groups = format!("2:freezer:/{name}/7\n1:cpu:/x/{name}\n0::/system.slice\n");
        assert_eq!(
            enclosures_of(&parse_mounts(MOUNTS.as_bytes()), &groups),
            [
                (name.clone(), format!("/cg/freezer/{name}").into()),
                (name.clone(), format!("/cg/cpu/x/{name}").into())
            ]
        );
    }

    #[test]
    fn other_groups_are_no_enclosures() {
        let name = agents_name(u64::MAX);
        for group in [
            "gleaner-agent.service".to_owned(),
            "gleaner-test-1".to_owned(),
            format!("gleaner-{name}-agent"),
            format!("gleaner-{}", name.to_uppercase()),
            name,
        ] {
            let groups = format!("0::/{group}/0\n");
            assert_eq!(enclosures_of(&parse_mounts(MOUNTS.as_bytes()), &groups), [], "{group}");
        }
    }
}

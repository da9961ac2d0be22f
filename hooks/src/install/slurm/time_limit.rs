//! `PrologEpilogTimeout`: whether it would hold for ours alone.
//!
//! It ends all that Slurm runs before and after jobs, and drains the node on which it does: what the
//! site runs without a limit may take longer for good reasons.
//! Source: slurm.conf(5), `PrologEpilogTimeout`.

use std::path::{Path, PathBuf};

use super::super::{Manager, Site, scripts};
use super::conf::Settings;
use super::running::Running;
use super::{KEYS, TIMEOUT_S};
use crate::limits::INCLUDES_MAX;

/// What Slurm runs under it.
const UNDER_IT: [&str; 4] = ["Prolog", "Epilog", "PrologSlurmctld", "EpilogSlurmctld"];
/// Names SPANK's plugins, whose prologs and epilogs are under it too; its usual name, beside slurm.conf.
const PLUGINS: (&str, &str) = ("PlugStackConfig", "plugstack.conf");

/// What of the site's own is under it, by what is written and what runs; none where only ours is.
pub(super) fn holds_for(
    site: &Site,
    conf: &Path,
    settings: Option<&Settings>,
    running: Option<&Running>,
) -> Option<String> {
    let written = |key| settings.into_iter().flat_map(move |settings| settings.all(key));
    let runs = |key| running.into_iter().flat_map(move |running| running.values(key));
    let ours = KEYS.map(|(_, script)| scripts::path(Manager::Slurm, script));
    for key in UNDER_IT {
        let values = written(key).map(|entry| entry.value.as_str()).chain(runs(key));
        let mut theirs = values.filter(|value| !ours.iter().any(|ours| Path::new(value) == ours));
        if let Some(value) = theirs.next() {
            return Some(format!("{key}={value}"));
        }
    }
    let named = written(PLUGINS.0).map(|entry| entry.value.as_str()).chain(runs(PLUGINS.0)).last();
    let beside = conf.with_file_name(PLUGINS.1);
    let plugins = named.map_or(beside, PathBuf::from);
    has_plugins(site, &plugins, 0).then(|| format!("SPANK's plugins of {}", plugins.display()))
}

/// Whether a file names any plugin, or one that it includes. Debian's names none, and includes a folder that
/// is empty. A file that cannot be read may name some.
/// Source: spank(7), "Configuration".
fn has_plugins(site: &Site, file: &Path, depth: usize) -> bool {
    let text = match site.read(file) {
        Ok(Some(text)) => text,
        Ok(None) => return false,
        Err(_) => return true,
    };
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).any(|line| {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if word != "include" {
            return true;
        }
        let included = file.parent().unwrap_or(Path::new("/")).join(rest.trim());
        depth >= INCLUDES_MAX
            || matching(site, &included).iter().any(|file| has_plugins(site, file, depth + 1))
    })
}

/// The files that a pattern of one folder stands for.
fn matching(site: &Site, pattern: &Path) -> Vec<PathBuf> {
    let is_pattern = |text: &str| text.contains(['*', '?', '[']);
    let (Some(folder), Some(name)) = (pattern.parent(), pattern.file_name()) else {
        return Vec::new();
    };
    let name = name.to_string_lossy();
    if !is_pattern(&name) && !is_pattern(&folder.to_string_lossy()) {
        return vec![pattern.to_owned()];
    }
    // What a pattern leaves out is taken too, hidden files but for: at worst a limit is left unset.
    let names = site.names(folder).into_iter().filter(|name| !name.starts_with('.'));
    let ends = name.rsplit('*').next().unwrap_or_default().to_owned();
    names
        .filter(|name| is_pattern(&ends) || name.ends_with(&ends))
        .map(|name| folder.join(name))
        .collect()
}

/// Why it is left unset, and what to weigh.
pub(super) fn left_unset(theirs: &str) -> String {
    format!(
        "PrologEpilogTimeout is left unset: it would hold for {theirs} as well, and drain a node on \
         which that takes longer. Without it whatever hangs hangs for ever (ours end by themselves): {}",
        how_to_set(theirs)
    )
}

/// What to set it to.
pub(super) fn how_to_set(theirs: &str) -> String {
    format!(
        "if you set it, to more than the longest run of {theirs}, and to {TIMEOUT_S} s at least"
    )
}

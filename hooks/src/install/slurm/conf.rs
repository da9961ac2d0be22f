//! What `slurm.conf` and the files that it includes say.

use std::path::{Path, PathBuf};

use super::super::{InstallError, Site, block};
use crate::limits::INCLUDES_MAX;

/// A line `key=value` that the site has, and where.
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) place: String,
}

/// What they say, without our block.
pub(super) struct Settings {
    entries: Vec<Entry>,
    nodes: usize,
    /// A file that they include and that could not be read here.
    unread: Option<PathBuf>,
    /// The first line of nodes, before which general settings stand.
    pub(super) before: Option<usize>,
    /// Lines of our block, if there is one.
    ours: Vec<(String, String)>,
}

impl Settings {
    pub(super) fn read(site: &Site, conf: &Path, text: &str) -> Result<Self, InstallError> {
        let refused = |source| InstallError::Block { path: conf.to_owned(), source };
        let without = block::without_block(text).map_err(refused)?;
        let ours = block::block_of(text).map_err(refused)?.lines().filter_map(pair).collect();
        let mut all = Self { entries: Vec::new(), nodes: 0, unread: None, before: None, ours };
        all.add(site, conf, &without, 0)?;
        all.before = without.lines().position(|line| {
            let line = line.trim_start().to_ascii_lowercase();
            line.starts_with("nodename=") || line.starts_with("partitionname=")
        });
        Ok(all)
    }

    fn add(
        &mut self,
        site: &Site,
        file: &Path,
        text: &str,
        depth: usize,
    ) -> Result<(), InstallError> {
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let lower = line.to_ascii_lowercase();
            if let Some(rest) = lower.strip_prefix("include").filter(|r| r.starts_with([' ', '\t']))
            {
                let name = line[line.len() - rest.len()..].trim();
                let path = file.parent().unwrap_or(Path::new("/")).join(name);
                match site.read(&path)?.filter(|_| depth < INCLUDES_MAX) {
                    Some(text) => self.add(site, &path, &text, depth + 1)?,
                    None => self.unread = Some(path),
                }
                continue;
            }
            let Some((key, value)) = pair(line) else { continue };
            if key.eq_ignore_ascii_case("NodeName") {
                let names = value.split_whitespace().next().unwrap_or_default();
                if !names.eq_ignore_ascii_case("DEFAULT") {
                    // A list or a range is more than one, however many.
                    self.nodes += if names.contains([',', '[']) { 2 } else { 1 };
                }
                continue;
            }
            if !value.is_empty() && !value.eq_ignore_ascii_case("(null)") {
                let place = format!("{}:{}", file.display(), number + 1);
                self.entries.push(Entry { key, value, place });
            }
        }
        Ok(())
    }

    /// Why there may be more nodes than one; none where there are not.
    pub(super) fn more_nodes(&self) -> Option<String> {
        if let Some(path) = &self.unread {
            return Some(format!("it includes {}, which cannot be followed here", path.display()));
        }
        if let Some(entry) = self.get("MaxNodeCount") {
            return Some(format!("nodes may join by themselves (MaxNodeCount, {})", entry.place));
        }
        match self.nodes {
            0 => Some("it names no node, so how many there are is not known".into()),
            1 => None,
            _ => Some("it speaks of more nodes than one".into()),
        }
    }

    /// The site's last word on a key, whose case does not count.
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.all(key).last()
    }

    /// All that the site says of a key, in order.
    pub(super) fn all(&self, key: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.key.eq_ignore_ascii_case(key))
    }

    /// Whether there is a block of ours that says anything.
    pub(super) fn has_ours(&self) -> bool {
        !self.ours.is_empty()
    }

    /// What our block says of a key.
    pub(super) fn of_ours(&self, key: &str) -> Option<&str> {
        let mut of_key = self.ours.iter().filter(|(is, _)| is.eq_ignore_ascii_case(key));
        of_key.next().map(|(_, value)| value.as_str())
    }

    /// What holds, be it ours or the site's.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.get(key).map(|entry| entry.value.as_str()).or_else(|| self.of_ours(key))
    }

    /// All that is said of a key, be it ours or the site's.
    pub(super) fn values(&self, key: &str) -> Vec<&str> {
        let sites = self.all(key).map(|entry| entry.value.as_str());
        sites.chain(self.of_ours(key)).collect()
    }
}

/// A line's key and value; none where it is another kind of line, or a remark.
pub(super) fn pair(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split('#').next()?.split_once('=')?;
    Some((key.trim().to_owned(), value.trim().trim_matches('"').to_owned()))
}

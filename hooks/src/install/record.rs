//! What an installation put where, for taking it away again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::adapter::{self, Told};
use super::change::backup;
use super::moment::Moment;
use super::{
    Change, ETC, InstallError, Manager, Options, Plan, Site, WouldBe, block, folder, settings,
    watched,
};

/// What was done for one manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    version: u32,
    /// Files of ours with what was in them.
    pub(super) files: BTreeMap<PathBuf, String>,
    /// What files had of ours before, and still have where an installation was cut short.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) replaced: BTreeMap<PathBuf, String>,
    /// Files of the site's that have our lines.
    pub(super) edited: Vec<PathBuf>,
    /// Commands that take back what the manager was told.
    pub(super) undo: Vec<Vec<String>>,
    /// When the manager's configuration named us no more, where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) untold: Option<Moment>,
    /// As it was asked for.
    pub(super) options: Options,
}

const VERSION: u32 = 1;
/// How Python's sources are called, and where it keeps what it makes of them.
const PYTHON: &str = "py";
const PYTHON_CACHE: &str = "__pycache__";

/// Where it is.
pub(super) fn path(manager: Manager) -> PathBuf {
    folder(manager).join("installed.json")
}

impl Record {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            version: VERSION,
            files: BTreeMap::new(),
            replaced: BTreeMap::new(),
            edited: Vec::new(),
            undo: Vec::new(),
            untold: None,
            options: options.clone(),
        }
    }

    /// Whether a file's text is as an installation of ours wrote it.
    pub(super) fn wrote(&self, path: &Path, text: &str) -> bool {
        let texts = [self.files.get(path), self.replaced.get(path)];
        texts.into_iter().flatten().any(|ours| ours == text)
    }

    /// Adds what is asked for to what was asked for before; without `has_before` there is nothing.
    pub(super) fn say(&mut self, options: &Options, has_before: bool) {
        let was = std::mem::replace(&mut self.options, options.clone());
        if !has_before {
            return;
        }
        let now = &mut self.options;
        now.conf = now.conf.take().or(was.conf);
        now.folder = now.folder.take().or(was.folder);
        now.node = now.node.take().or(was.node);
        now.nodes_are_ready |= was.nodes_are_ready;
        // Without names it is all queues; with files alone it is none.
        now.queues = match (now.files_only, was.files_only) {
            (true, false) => was.queues,
            (false, true) => now.queues.clone(),
            _ if now.queues.is_empty() || was.queues.is_empty() => Vec::new(),
            _ => {
                let mut all = was.queues;
                let new = now.queues.iter().filter(|name| !all.contains(name)).cloned();
                let new = new.collect::<Vec<_>>();
                all.extend(new);
                all
            }
        };
        now.files_only &= was.files_only;
    }

    /// Adds a file of the site's that has, or gets, our lines.
    pub(super) fn edit(&mut self, path: &Path) {
        if !self.edited.iter().any(|known| known == path) {
            self.edited.push(path.to_owned());
        }
    }

    /// Adds what takes back something that the manager is told.
    pub(super) fn undo_by(&mut self, command: &[String]) {
        if !self.undo.iter().any(|known| known == command) {
            self.undo.push(command.to_owned());
        }
    }

    pub(super) fn read(manager: Manager, site: &Site) -> Result<Option<Self>, InstallError> {
        let path = path(manager);
        let Some(text) = site.read(&path)? else { return Ok(None) };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|source| InstallError::Record { path, source })
    }

    /// Notes that the manager's configuration names us no more.
    pub(super) fn note_untold(
        &mut self,
        manager: Manager,
        site: &Site,
    ) -> Result<(), InstallError> {
        self.untold = Some(Moment::now());
        site.write(&path(manager), &self.to_text(), Some(0o644))
    }

    /// Whether a file of the manager's has lines of ours.
    pub(super) fn edits(&self, path: &Path) -> bool {
        self.edited.iter().any(|edited| edited == path)
    }

    pub(super) fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).expect("our own types serialise") + "\n"
    }

    /// First the manager forgets us.
    pub(super) fn plan_to_untell(
        &self,
        manager: Manager,
        site: &Site,
    ) -> Result<Plan, InstallError> {
        let mut plan = Plan::new(manager);
        for path in &self.edited {
            let Some(before) = site.read(path)? else { continue };
            let refused = |source| InstallError::Block { path: path.clone(), source };
            let mut after = block::without_block(&before).map_err(refused)?;
            let kept = site.read(&backup(path))?;
            // All that a block leaves is the end of a last line that had none.
            if let Some(kept) = kept.filter(|kept| format!("{kept}\n") == after) {
                after = kept;
            }
            if after != before {
                plan.changes.push(Change::Edit { path: path.clone(), before, after });
            }
        }
        // Files of ours in the manager's own folders are part of its configuration.
        self.remove_files(manager, site, |path| !path.starts_with(ETC), &mut plan)?;
        for command in self.undo.iter().filter(|_| !site.is_without_manager()) {
            match adapter::of(manager).told(site, command) {
                // One that fails may never have been needed: an installation that ended half-way.
                // Whether the manager still runs our files is asked before they go.
                Told::Stands => plan.changes.push(Change::Tell {
                    command: command.clone(),
                    undo: None,
                    is_needed: false,
                }),
                Told::Gone => {}
                Told::Replaced(by) => plan.notes.push(by),
            }
        }
        Ok(plan)
    }

    /// Removes those of our files for which `is_meant`; what somebody has changed since stays.
    fn remove_files(
        &self,
        manager: Manager,
        site: &Site,
        is_meant: impl Fn(&Path) -> bool,
        plan: &mut Plan,
    ) -> Result<(), InstallError> {
        let is_shared =
            |path: &Path| path == settings::path() && settings::others_use(manager, site);
        let mut caches = BTreeSet::new();
        for path in self.files.keys().filter(|path| is_meant(path)) {
            for left in left_beside(site, path) {
                plan.changes.push(Change::Remove { path: left });
            }
            if path.extension() == Some(PYTHON.as_ref()) {
                caches.insert(path.with_file_name(PYTHON_CACHE));
            }
            match site.read(path)? {
                None => {}
                Some(_) if is_shared(path) => {}
                Some(now) if self.wrote(path, &now) => {
                    plan.changes.push(Change::Remove { path: path.clone() });
                }
                Some(_) => plan
                    .notes
                    .push(format!("{} is kept: somebody has changed it since", path.display())),
            }
        }
        let caches = caches.into_iter().filter(|cache| site.is_folder(cache));
        plan.changes.extend(caches.map(|path| Change::RemoveFolder { path }));
        Ok(())
    }

    /// Then the files go that it was told to run.
    pub(super) fn plan_to_remove(
        &self,
        manager: Manager,
        site: &Site,
        would_be: &WouldBe,
    ) -> Result<Plan, InstallError> {
        let mut plan = Plan::new(manager);
        for path in &self.edited {
            let kept = backup(path);
            let now = match would_be.edited.get(path) {
                Some(text) => Some(text.clone()),
                None => site.read(path)?,
            };
            match (site.read(&kept)?, now) {
                (Some(old), Some(now)) if old == now => {
                    plan.changes.push(Change::Remove { path: kept });
                }
                (Some(_), _) => plan.notes.push(format!(
                    "{} is kept: {} was changed since by somebody else",
                    kept.display(),
                    path.display()
                )),
                (None, _) => {}
            }
        }
        let ours = folder(manager);
        self.remove_files(manager, site, |path| path.starts_with(ETC), &mut plan)?;
        plan.changes.push(Change::Remove { path: path(manager) });
        let hooks = Path::new(ETC).join("hooks");
        let parents = self.files.keys().filter_map(|path| path.parent());
        let mut folders: Vec<&Path> = parents.filter(|folder| is_ours(folder)).collect();
        folders.extend([&*ours, &*hooks, Path::new(ETC)]);
        // What is inside goes first.
        folders.sort_by_key(|folder| (std::cmp::Reverse(folder.components().count()), *folder));
        folders.dedup();
        plan.changes
            .extend(folders.into_iter().map(|path| Change::RemoveFolder { path: path.to_owned() }));
        Ok(plan)
    }
}

/// What there is of a file of ours under other names: a draft that was never put in its place, and what
/// Python keeps of a module.
fn left_beside(site: &Site, path: &Path) -> Vec<PathBuf> {
    let mut all = vec![Site::draft_of(path)];
    if path.extension() == Some(PYTHON.as_ref())
        && let Some(module) = path.file_stem().and_then(|stem| stem.to_str())
    {
        all.push(path.with_extension("pyc"));
        let cache = path.with_file_name(PYTHON_CACHE);
        let names = site.names(&cache).into_iter();
        let of_module = names.filter(|name| name.starts_with(&format!("{module}.")));
        all.extend(of_module.map(|name| cache.join(name)));
    }
    all.retain(|path| site.has_file(path));
    all
}

/// Folders that only an installation of ours makes.
fn is_ours(folder: &Path) -> bool {
    folder.starts_with(ETC)
        || folder.ends_with("custom/events/Gleaner")
        || folder == Path::new(watched::BESIDE)
}

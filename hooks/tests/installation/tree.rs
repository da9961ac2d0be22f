//! A scratch tree that hooks are installed in.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use gleaner_hooks::install::{Options, Site};

/// A host's files, with `gleaner` in its place and the managers' programs in `bin`.
pub(crate) struct Tree {
    root: tempfile::TempDir,
    options: Options,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let options = Options {
            program: "/usr/local/bin/gleaner".into(),
            run_dir: "/run/gleaner".into(),
            ..Options::default()
        };
        let tree = Self { root: tempfile::tempdir().expect("a folder"), options };
        tree.put("usr/local/bin/gleaner", "#!/bin/sh\n");
        tree.chmod("usr/local/bin/gleaner", 0o755);
        tree.put("etc/hostname", "node1\n");
        tree
    }

    pub(crate) fn with(self, path: &str, text: &str) -> Self {
        self.put(path, text);
        self
    }

    pub(crate) fn with_program(self, name: &str, text: &str) -> Self {
        let (path, draft) = (format!("bin/{name}"), format!("bin/{name}.draft"));
        self.put(&draft, text);
        // Written by this process, it would be busy while a child of another test has it open still.
        let copied = Command::new("cp").args([self.at(&draft), self.at(&path)]).status();
        assert!(copied.expect("cp runs").success());
        self.remove(&draft);
        self.chmod(&path, 0o755);
        self
    }

    pub(crate) fn with_link(self, path: &str, to: &str) -> Self {
        self.remove(path);
        symlink(to, self.at(path)).expect("a link");
        self
    }

    pub(crate) fn without_program(self) -> Self {
        self.remove("usr/local/bin/gleaner");
        self
    }

    pub(crate) fn folder(mut self, folder: &str) -> Self {
        self.options.folder = Some(folder.into());
        self
    }

    pub(crate) fn nodes_are_ready(mut self) -> Self {
        self.options.nodes_are_ready = true;
        self
    }

    pub(crate) fn site(&self) -> Site {
        let bin = self.at("bin");
        let site = Site::below(self.root.path());
        // Programs of the system's for the stand-ins, which no manager of a test machine is among.
        if bin.is_dir() {
            site.with_programs(format!("{}:/usr/bin:/bin", bin.display()))
        } else {
            site
        }
    }

    pub(crate) fn options(&self) -> Options {
        self.options.clone()
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        fs::write(path, text).expect("written");
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.at(path)).expect("it was there");
    }

    pub(crate) fn chmod(&self, path: &str, mode: u32) {
        fs::set_permissions(self.at(path), Permissions::from_mode(mode)).expect("set");
    }

    pub(crate) fn is_executable(&self, path: &str) -> bool {
        fs::metadata(self.at(path)).is_ok_and(|file| file.permissions().mode() & 0o100 != 0)
    }

    /// Our paths that any file of a manager names to be run.
    pub(crate) fn named(&self) -> Vec<String> {
        let files = ["etc/slurm/slurm.conf", "etc/condor/config.d/60-gleaner.conf", "queue"];
        let texts = files.iter().filter_map(|path| fs::read_to_string(self.at(path)).ok());
        let words = texts.flat_map(|text| {
            let words = text.split(['=', '@', ' ', '\n']).map(String::from).collect::<Vec<_>>();
            words.into_iter().filter(|word| word.starts_with("/etc/gleaner/hooks/"))
        });
        words.collect()
    }

    /// All that is there: folders, and files with their modes and texts; not what was told.
    pub(crate) fn look(&self) -> BTreeMap<PathBuf, (u32, String)> {
        let mut all = BTreeMap::new();
        let mut folders = vec![self.root.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("lists") {
                let path = entry.expect("an entry").path();
                if path.ends_with("told") {
                    continue;
                }
                let mode = fs::metadata(&path).map(|file| file.permissions().mode()).unwrap_or(0);
                let text = fs::read_to_string(&path).unwrap_or_default();
                if path.is_dir() {
                    folders.push(path.clone());
                }
                all.insert(path, (mode, text));
            }
        }
        all
    }

    pub(crate) fn remove_all(&self, folder: &str) {
        fs::remove_dir_all(self.at(folder)).expect("it was there");
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.at(path)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(Path::new(path).strip_prefix("/").unwrap_or(Path::new(path)))
    }
}

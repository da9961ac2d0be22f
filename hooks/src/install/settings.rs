//! `/etc/gleaner/hook.env`, or `gleaner-hook.txt` beside the scripts: where these find the program, the
//! run folder and the monitor.

use std::path::{Path, PathBuf};

use super::record::{self, Record};
use super::{ETC, InstallError, Manager, Options, Plan, Site};

/// The file beside scripts that they read in the place of that of all hooks.
const BESIDE: &str = "gleaner-hook.txt";

/// Where the settings of all hooks of a host are.
pub(super) fn path() -> PathBuf {
    Path::new(ETC).join("hook.env")
}

/// The settings of a manager's hooks on a host, as its scripts read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSettings {
    /// The file.
    pub path: PathBuf,
    /// Its text; none where there is no file.
    text: Option<String>,
}

impl HookSettings {
    /// From the file beside the scripts where there is one, else from that of all hooks.
    ///
    /// # Errors
    /// They cannot be read, or the manager's record is none.
    pub fn of(manager: Manager, site: &Site) -> Result<Self, InstallError> {
        let record = Record::read(manager, site)?;
        let scripts = record.iter().flat_map(|record| &record.files);
        let scripts = scripts.filter(|(_, text)| text.starts_with("#!"));
        for folder in scripts.filter_map(|(path, _)| path.parent()) {
            let path = folder.join(BESIDE);
            if let Some(text) = site.read(&path)? {
                return Ok(Self { path, text: Some(text) });
            }
        }
        Ok(Self { path: path(), text: site.read(&path())? })
    }

    /// Whether there is such a file.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.text.is_some()
    }

    /// The program that it names, where that can be run.
    #[must_use]
    pub fn program(&self, site: &Site) -> Option<PathBuf> {
        self.value("GLEANER").map(PathBuf::from).filter(|program| site.is_executable(program))
    }

    /// What it says of a name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<String> {
        value(self.text.as_deref()?, name)
    }
}

/// What is there as we wrote it gets what is said now; what an administrator wrote, or has changed, is
/// left alone.
pub(super) fn plan(
    manager: Manager,
    site: &Site,
    options: &Options,
    plan: &mut Plan,
) -> Result<(), InstallError> {
    if !site.is_executable(&options.program) {
        return Err(InstallError::missing(
            format!("there is no program that can be run at {}", options.program.display()),
            "copy gleaner to a local disk of this host, or say --program where it is",
        ));
    }
    let path = path();
    let text = text(options)?;
    match site.read(&path)? {
        None => plan.put(site, &path, 0o644, &text),
        Some(present) if present == text => plan.put(site, &path, 0o644, &text),
        // Another manager's record would not know it again, and leave it behind.
        Some(present) if plan.wrote(&path, &present) && !others_use(manager, site) => {
            plan.put(site, &path, 0o644, &self::text(&with_what_stands(options, &present))?)
        }
        Some(present) => {
            let say = |name| value(&present, name).unwrap_or_else(|| "not set".into());
            let (program, run_dir) = (say("GLEANER"), say("GLEANER_RUN_DIR"));
            plan.notes.push(format!(
                "{} is there and stays as it is (GLEANER: {program}, GLEANER_RUN_DIR: {run_dir})",
                path.display()
            ));
            plan.undone.extend(unsaid(options, &present, &path));
            Ok(())
        }
    }
}

/// Says where the scripts have settings of their own, which they read in the place of these.
pub(super) fn plan_beside(
    site: &Site,
    options: &Options,
    plan: &mut Plan,
) -> Result<(), InstallError> {
    for path in plan.folders_of_scripts().into_iter().map(|folder| folder.join(BESIDE)) {
        let Some(present) = site.read(&path)? else { continue };
        plan.notes.push(format!(
            "{} is there, which the scripts beside it read in the place of {}",
            path.display(),
            self::path().display()
        ));
        plan.undone.extend(unsaid(options, &present, &path));
    }
    Ok(())
}

/// What is to be set and is not in a file that is left alone.
fn unsaid(options: &Options, present: &str, path: &Path) -> Vec<String> {
    let is_other =
        |(name, wanted): &&(String, String)| value(present, name).as_ref() != Some(wanted);
    let others = options.settings.iter().filter(is_other);
    let say = |(name, wanted): &(String, String)| {
        format!("{name}={wanted} is not in {}: put that line there yourself", path.display())
    };
    others.map(say).collect()
}

/// What is not said now stays as it is.
fn with_what_stands(options: &Options, present: &str) -> Options {
    let mut all = options.clone();
    let is_set_otherwise = |name: &str| name == "GLEANER" || name == "GLEANER_RUN_DIR";
    for (name, value) in present.lines().filter_map(|line| line.split_once('=')) {
        let is_said = all.settings.iter().any(|(said, _)| said == name);
        if !is_said && !is_set_otherwise(name) && !name.starts_with('#') {
            all.settings.push((name.to_owned(), value.to_owned()));
        }
    }
    all
}

/// Whether another manager's hooks have the same settings.
pub(super) fn others_use(manager: Manager, site: &Site) -> bool {
    let is_other = |other: &Manager| *other != manager && other.calls_hooks();
    let mut others = Manager::ALL.into_iter().filter(is_other);
    others.any(|other| site.mode(&record::path(other)).is_some())
}

fn text(options: &Options) -> Result<String, InstallError> {
    let mut text = String::from(
        "# Settings of Gleaner's hooks on this host, as NAME=value lines.\n\
         # Program, token and certificates belong on a local disk.\n",
    );
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let known = [
        ("GLEANER".to_owned(), path(&options.program)),
        ("GLEANER_RUN_DIR".to_owned(), path(&options.run_dir)),
    ];
    for (name, value) in known.iter().chain(&options.settings) {
        // The scripts have a shell read them.
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@+[]%".contains(c);
        if value.is_empty() || !value.chars().all(plain) {
            return Err(InstallError::missing(
                format!("{name} cannot be {value:?}: a shell would not read it back as it is"),
                "take a path or address without spaces and special characters",
            ));
        }
        text.push_str(&format!("{name}={value}\n"));
    }
    Ok(text)
}

/// What the settings say of a name.
pub(super) fn value(text: &str, name: &str) -> Option<String> {
    let last = text.lines().rev().find_map(|line| {
        let (is, value) = line.trim().trim_start_matches("export ").split_once('=')?;
        (is.trim() == name).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
    });
    last.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts() {
        let text = "# GLEANER=/no\nGLEANER=/a\nexport GLEANER='/b'\nGLEANER_HOST=\n";
        assert_eq!(value(text, "GLEANER").as_deref(), Some("/b"));
        assert_eq!(value(text, "GLEANER_HOST"), None);
    }

    #[test]
    fn what_a_shell_would_read_otherwise_is_refused() {
        for bad in ["", "/a b", "$(reboot)", "`x`", "/a;b", "/a'b", "/a\nb", "/ü"] {
            let options = Options { program: bad.into(), ..Options::default() };
            assert!(text(&options).is_err(), "{bad:?}");
        }
    }
}

//! `/etc/gleaner/hook.env`: where the scripts find the program, the run folder and the monitor.

use std::path::{Path, PathBuf};

use super::{ETC, InstallError, Options, Plan, Site};

/// Where the settings of all hooks of a host are.
pub(super) fn path() -> PathBuf {
    Path::new(ETC).join("hook.env")
}

/// What the settings of a host's hooks say of a name; none where they say nothing, or are not there.
///
/// # Errors
/// They cannot be read.
pub fn setting(site: &Site, name: &str) -> Result<Option<String>, InstallError> {
    Ok(site.read(&path())?.and_then(|text| value(&text, name)))
}

/// Settings that are there are an administrator's, and are left alone.
pub(super) fn plan(site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
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
        Some(present) => {
            let say = |name| value(&present, name).unwrap_or_else(|| "not set".into());
            let (program, run_dir) = (say("GLEANER"), say("GLEANER_RUN_DIR"));
            plan.notes.push(format!(
                "{} is there and stays as it is (GLEANER: {program}, GLEANER_RUN_DIR: {run_dir})",
                path.display()
            ));
            let is_other =
                |(name, wanted): &&(String, String)| value(&present, name).as_ref() != Some(wanted);
            plan.notes.extend(options.settings.iter().filter(is_other).map(|(name, wanted)| {
                format!("{name}={wanted} is not in it: put that line there yourself")
            }));
            Ok(())
        }
    }
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

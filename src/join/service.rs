//! An agent as a service of whoever has joined: a unit of systemd's user manager.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The unit as it is installed by hand.
const UNIT: &str = include_str!("../../agent/systemd/gleaner-agent-desktop.service");
/// What it starts there.
const COMMAND: &str = "%h/.local/bin/gleaner agent --config %h/.config/gleaner/agent.toml";
const NAME: &str = "gleaner-agent.service";

/// Writes the unit that starts this program with a configuration, and has the user's systemd start it now
/// and at each login. `folder` is that of the user's configurations.
pub(super) fn start(folder: &Path, config: &Path) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell which program this is")?;
    let unit = folder.join("systemd/user").join(NAME);
    let text = unit_of(&program, config)?;
    let units = unit.parent().unwrap_or(folder);
    fs::create_dir_all(units).with_context(|| format!("cannot make {}", units.display()))?;
    fs::write(&unit, text).with_context(|| format!("cannot write {}", unit.display()))?;
    for words in [&["daemon-reload"][..], &["enable", "--now", NAME]] {
        systemctl(words)?;
    }
    Ok(unit)
}

fn unit_of(program: &Path, config: &Path) -> anyhow::Result<String> {
    let (program, config) = (word(program)?, word(config)?);
    Ok(UNIT.replace(COMMAND, &format!("{program} agent --config {config}")))
}

/// A path as a unit has it: in quotes, and nothing in it is a specifier or a variable.
fn word(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().filter(|text| !text.contains(|of: char| of.is_control()));
    let text = text.with_context(|| format!("{} is no path for a unit", path.display()))?;
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    Ok(format!("\"{}\"", text.replace('$', "$$")))
}

fn systemctl(words: &[&str]) -> anyhow::Result<()> {
    let said = Command::new("systemctl").arg("--user").args(words).output();
    let said = said.context("cannot run systemctl: start the agent by hand")?;
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr);
        bail!("systemctl --user {} says: {}", words.join(" "), why.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_starts_this_program_with_that_configuration() {
        let config = Path::new("/home/a b/50%/agent.toml");
        let text = unit_of(Path::new("/opt/gleaner"), config).expect("plain paths");
        let line = r#"ExecStart="/opt/gleaner" agent --config "/home/a b/50%%/agent.toml""#;
        assert!(text.lines().any(|of| of == line), "{text}");
        assert_eq!(text.lines().count(), UNIT.lines().count());
        assert!(unit_of(Path::new("/a\nb"), config).is_err());
    }
}

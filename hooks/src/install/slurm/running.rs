//! What a running Slurm says of itself.

use super::super::{InstallError, Site};
use super::conf::pair;

/// From this release on Slurm takes several lines `Prolog=` and `Epilog=`, and runs all of them; one
/// before it takes the last alone. Source: `slurm_conf_options` in `src/common/read_config.c` of 23.11
/// and 24.05.
const SEVERAL_SCRIPTS: (u32, u32) = (24, 5);

/// What its controller runs with.
pub(super) struct Running {
    entries: Vec<(String, String)>,
}

/// Whether several lines `Prolog=` are all run.
pub(super) enum Several {
    /// Controller and nodes are new enough.
    Taken,
    /// Somebody is not, and who.
    NotTaken(String),
    /// It could not be asked, and why.
    Unknown(String),
}

impl Running {
    /// Asks it.
    ///
    /// # Errors
    /// There is no `scontrol`, or it does not say.
    pub(super) fn ask(site: &Site) -> Result<Self, InstallError> {
        let said = site.run(&["scontrol", "show", "config"])?;
        Ok(Self { entries: said.lines().filter_map(pair).collect() })
    }

    /// All that it says of a key, in order: where there may be several they are numbered.
    pub(super) fn values(&self, key: &str) -> Vec<&str> {
        let is_key = |is: &str| {
            let numbered = is.get(..key.len()).zip(is.get(key.len()..));
            numbered.is_some_and(|(name, rest)| {
                name.eq_ignore_ascii_case(key) && (rest.is_empty() || rest.starts_with('['))
            })
        };
        let of_key = self.entries.iter().filter(|(is, _)| is_key(is));
        of_key.map(|(_, value)| value.as_str()).filter(|value| *value != "(null)").collect()
    }

    /// Whether it says anything of a key, if only that there is nothing.
    pub(super) fn knows(&self, key: &str) -> bool {
        self.entries.iter().any(|(is, _)| is.eq_ignore_ascii_case(key))
    }
}

/// Asks the controller and all nodes for their releases.
pub(super) fn takes_several(site: &Site) -> Several {
    let controller = match Running::ask(site) {
        Ok(running) => running.values("SLURM_VERSION").last().map(|version| (*version).to_owned()),
        Err(error) => return Several::Unknown(error.to_string()),
    };
    let said = match site.run(&["sinfo", "--all", "--noheader", "--format=%v"]) {
        Ok(said) => said,
        Err(error) => return Several::Unknown(error.to_string()),
    };
    let controller = controller.unwrap_or_default();
    let nodes = said.lines().map(str::trim).filter(|version| !version.is_empty());
    let all = [("slurmctld", controller.as_str())].into_iter();
    for (who, version) in all.chain(nodes.map(|version| ("a slurmd", version))) {
        match release(version) {
            Some(release) if release >= SEVERAL_SCRIPTS => {}
            Some(_) => return Several::NotTaken(format!("{who} is of release {version:.40}")),
            None => return Several::Unknown(format!("{who} does not say of which release it is")),
        }
    }
    Several::Taken
}

/// The first two numbers of a release's name.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

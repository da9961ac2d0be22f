//! What a check finds of Slurm: whether it runs our scripts, and the traps of its settings.

use std::path::{Path, PathBuf};

use super::super::{Finding, Manager, Site, scripts};
use super::conf::Settings;
use super::running::{Running, Several, takes_several};
use super::{KEYS, TIMEOUT_S, time_limit};

/// Flags of `PrologFlags` that are, or imply, `Alloc`.
const AT_ALLOCATION: [&str; 4] = ["Alloc", "Contain", "X11", "RunInJob"];
/// Less than this may end the scripts before they have ended themselves.
const TIMEOUT_S_MIN: u32 = 5;
/// As Slurm writes that there is none.
const NO_TIMEOUT: u32 = 65_534;

/// Whether a configuration has our scripts run, and nothing that is missing.
pub(super) fn of_conf(site: &Site, settings: &Settings, findings: &mut Vec<Finding>) {
    for (key, script) in KEYS {
        let ours = scripts::path(Manager::Slurm, script);
        let install = "`gleaner farm install --farm slurm` sets it";
        let values = settings.values(key);
        let is_ours = |path: &PathBuf| *path == ours || path.ends_with("gleaner");
        let found = values.iter().map(|value| (value, named_by(value)));
        let Some((value, path)) = found.into_iter().find(|(_, path)| is_ours(path)) else {
            let what = match values.last() {
                None => format!("slurm.conf has no {key}"),
                Some(value) => format!("{key}={value} of slurm.conf is not Gleaner's"),
            };
            findings.push(Finding::wrong(what, install));
            continue;
        };
        findings.push(if site.is_executable(&path) {
            Finding::good(format!("slurm.conf has {key}={value}"))
        } else {
            Finding::wrong(
                format!("{key}={value}: {} cannot be run, which drains the node", path.display()),
                "install again, or take the line away, and run `scontrol reconfigure`",
            )
        });
        if values.len() > 1 {
            findings.push(beside_others(site, key, values.len()));
        }
    }
}

/// Where more lines than one speak of a key.
fn beside_others(site: &Site, key: &str, lines: usize) -> Finding {
    let what = format!("slurm.conf has {lines} lines {key}=, which Slurm takes from 24.05 on");
    match takes_several(site) {
        Several::Taken => Finding::good(format!("{what}, and this one is")),
        Several::NotTaken(who) => Finding::wrong(
            format!("{what}, and {who}, which runs the last of them alone"),
            format!("move the scripts into a folder, say {key}=/etc/slurm/scripts.d/*"),
        ),
        Several::Unknown(why) => Finding::note(
            format!("{what}; whether this one is cannot be asked: {why}"),
            "see that slurmctld and every slurmd are of that release or a newer one",
        ),
    }
}

/// The file of ours that a value would have run.
fn named_by(value: &str) -> PathBuf {
    let folder = value.strip_suffix("/*").map(|folder| Path::new(folder).join("gleaner"));
    folder.unwrap_or_else(|| value.into())
}

/// Whether it has read that, and has ours where it runs a folder here.
pub(super) fn of_running(site: &Site, running: &Running, findings: &mut Vec<Finding>) {
    for (key, _) in KEYS {
        let values = running.values(key);
        let is_folder = |value: &&&str| value.ends_with("/*");
        let is_there = |value: &&&str| site.is_executable(&named_by(value));
        let mut files = values.iter().filter(|value| !is_folder(value));
        let mut folders = values.iter().filter(is_folder);
        let last = folders.clone().next_back();
        let found = files.find(|value| value.contains("gleaner"));
        let found = found.or_else(|| folders.find(is_there));
        findings.push(match (found, last) {
            (Some(value), _) => Finding::good(format!("Slurm runs with {key} = {value}")),
            (None, Some(value)) => Finding::wrong(
                format!(
                    "Slurm runs with {key} = {value}, and {} cannot be run on this host",
                    named_by(value).display()
                ),
                "`gleaner farm install --farm slurm --files-only` on each node puts ours there",
            ),
            (None, None) => Finding::wrong(
                format!("Slurm runs with {key} = {}", values.last().unwrap_or(&"nothing")),
                "run `scontrol reconfigure`",
            ),
        });
    }
}

/// Which of its settings may hurt. What the running one says counts, and the file where it does not.
/// `theirs` is what of the site's own a time limit holds for.
pub(super) fn traps(
    running: Option<&Running>,
    settings: Option<&Settings>,
    theirs: Option<&str>,
    findings: &mut Vec<Finding>,
) {
    let said = Said { running, settings };
    if let Some((flags, who)) = said.value("PrologFlags") {
        findings.extend(at_allocation(flags).map(|flag| {
            Finding::trap(
                format!(
                    "PrologFlags has {flag} ({who}), with which Slurm runs the Prolog at the \
                     allocation and starts every job some 0.1 s later"
                ),
                "take it out of slurm.conf unless something else needs it, as pam_slurm_adopt and X11 \
                 need Contain: our hook does not",
            )
        }));
    }
    time_limits(&said, theirs, findings);
    if let Some((program, who)) = said.value("HealthCheckProgram") {
        findings.push(Finding::trap(
            format!(
                "HealthCheckProgram={program} ({who}) may take the load of harvested work for a fault"
            ),
            "have it read loadavg in the agent's run folder instead of /proc/loadavg",
        ));
    }
}

/// Whether what hangs is ended, and nothing else is.
fn time_limits(said: &Said<'_>, theirs: Option<&str>, findings: &mut Vec<Finding>) {
    let ours = said.settings.and_then(|settings| settings.of_ours("PrologEpilogTimeout"));
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        findings.push(Finding::trap(
            format!(
                "PrologEpilogTimeout={ours} of slurm.conf is Gleaner's and holds for {theirs} as well: a \
                 node on which that takes longer is drained"
            ),
            "install again, which takes it out",
        ));
    }
    // From 26.05 on each of the two may have one of its own.
    for (own, what) in [("PrologTimeout", "a Prolog"), ("EpilogTimeout", "an Epilog")] {
        let found = said.value(own).map(|found| (own, found));
        let both = || said.value("PrologEpilogTimeout").map(|found| ("PrologEpilogTimeout", found));
        let found = found.or_else(both);
        let seconds = found.and_then(|(_, (value, _))| value.parse::<u32>().ok());
        let finding = match (found, seconds) {
            (_, Some(TIMEOUT_S_MIN..NO_TIMEOUT)) => continue,
            (Some((key, (value, who))), Some(..TIMEOUT_S_MIN)) => Finding::trap(
                format!(
                    "{key} is shorter ({value} s, {who}) than what the hooks may take on a bad day"
                ),
                format!(
                    "set {key}={TIMEOUT_S}: a node whose Prolog or Epilog times out is drained"
                ),
            ),
            _ => Finding::trap(
                format!(
                    "PrologEpilogTimeout is not set ({}): {what} that hangs hangs for ever",
                    said.who()
                ),
                theirs.map_or_else(
                    || format!("set PrologEpilogTimeout={TIMEOUT_S} in slurm.conf"),
                    time_limit::how_to_set,
                ),
            ),
        };
        findings.push(finding);
        if found.is_none_or(|(key, _)| key == "PrologEpilogTimeout") {
            // The other one has the same.
            break;
        }
    }
}

/// Who says what a setting is.
struct Said<'a> {
    running: Option<&'a Running>,
    settings: Option<&'a Settings>,
}

impl<'a> Said<'a> {
    fn value(&self, key: &str) -> Option<(&'a str, &'static str)> {
        match self.running {
            Some(running) if running.knows(key) => {
                running.values(key).last().map(|value| (*value, RUNS))
            }
            _ => self.settings?.value(key).map(|value| (value, WRITTEN)),
        }
    }

    fn who(&self) -> &'static str {
        if self.running.is_some() { RUNS } else { WRITTEN }
    }
}

/// The two sources of a setting.
const RUNS: &str = "as Slurm runs";
const WRITTEN: &str = "by slurm.conf alone";

/// The flag with which jobs wait for the Prolog at their allocation, by which Slurm delays each of them.
/// Without one the Prolog runs before a job's first step, which is soon enough: nothing of it runs
/// earlier. Source: `PrologFlags` of slurm.conf(5).
fn at_allocation(flags: &str) -> Option<&str> {
    let means_it = |flag: &&str| AT_ALLOCATION.iter().any(|one| one.eq_ignore_ascii_case(flag));
    flags.split(',').map(str::trim).find(means_it)
}

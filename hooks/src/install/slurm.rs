//! Slurm: `Prolog` and `Epilog` in `slurm.conf`.
//!
//! One `slurm.conf` speaks of all nodes, and a node whose Prolog is missing is drained: so the
//! configuration is changed only where there is one node, or where the administrator says that
//! every node has the files. A site that has scripts of its own runs them from a folder
//! (`Prolog=/etc/slurm/prolog.d/*`): ours goes into that.

use std::path::{Path, PathBuf};

use super::adapter::{Adapter, ProbeJob, When, own_scripts};
use super::record::Record;
use super::{Finding, InstallError, Manager, Options, Plan, Site, block, own_name, scripts};
use crate::limits::{INCLUDES_MAX, PROBE_JOB_S};

const CONF: &str = "/etc/slurm/slurm.conf";
/// What the names of our scripts have in them.
const OURS: &str = "/gleaner/hooks/slurm/";
/// Flags of `PrologFlags` that are, or imply, `Alloc`.
const AT_ALLOCATION: [&str; 4] = ["Alloc", "Contain", "X11", "RunInJob"];
/// Longest time that Slurm should give the hooks, in seconds; ours end within two.
const TIMEOUT_S: &str = "20";
/// Less than this may end the scripts before they have ended themselves.
const TIMEOUT_S_MIN: u32 = 5;

/// Why Slurm cannot be asked or told.
const NO_SCONTROL: &str = "scontrol is not in PATH (sudo takes that of its secure_path; /opt/slurm/bin is where many have it)";

pub(super) struct Slurm;

impl Adapter for Slurm {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        scripts::put(Manager::Slurm, site, plan)?;
        if options.files_only {
            return Ok(());
        }
        let conf = conf(options);
        let Some(text) = site.read(&conf)? else {
            return Err(InstallError::missing(
                format!("there is no {}", conf.display()),
                "say --conf where slurm.conf is; on a node without one say --files-only",
            ));
        };
        let settings = Settings::read(site, &conf, &text)?;
        if let Some(why) = settings.more_nodes()
            && !options.nodes_are_ready
        {
            plan.undone.push(format!(
                "{} is left as it is, for {why}: run `gleaner farm install --farm slurm \
                 --files-only` on each node, then this again with --nodes-are-ready",
                conf.display()
            ));
            return Ok(());
        }
        let mut lines = Vec::new();
        for (key, script) in [("Prolog", "prolog"), ("Epilog", "epilog")] {
            let ours = scripts::path(Manager::Slurm, script);
            match settings.get(key) {
                None => lines.push(format!("{key}={}", ours.display())),
                Some(entry) => into_folder(entry, &ours, script, site, plan)?,
            }
        }
        if settings.get("PrologEpilogTimeout").is_none() {
            lines.push(format!("PrologEpilogTimeout={TIMEOUT_S}"));
        }
        if !lines.is_empty() {
            plan.edit(&conf, &text, &lines, settings.before)?;
        }
        // One that was interrupted has written it, and Slurm has not read it.
        if !plan.is_done() || !settings.is_read(site) {
            self.reload(site, options, plan);
        }
        Ok(())
    }

    fn reload(&self, site: &Site, options: &Options, plan: &mut Plan) {
        if options.files_only {
            return;
        }
        if site.has_program("scontrol") {
            let command = ["scontrol", "reconfigure"].map(String::from).to_vec();
            plan.changes.push(super::Change::Tell { command, undo: None, is_needed: false });
        } else if site.may_have_manager() {
            plan.undone.push(format!(
                "Slurm was not told to read its configuration, for {NO_SCONTROL}: run `scontrol \
                 reconfigure` yourself"
            ));
        }
    }

    fn is_asked_by(&self) -> Option<&'static str> {
        Some("scontrol")
    }

    fn may_still_run(&self, site: &Site, record: &Record, when: When) -> Option<String> {
        let conf = conf(&record.options);
        // Where a node has one of its own, its slurmd reads that, whatever the controller's says.
        let is_edited = when == When::WouldBeTold && record.edits(&conf);
        if !is_edited && site.read(&conf).ok().flatten().is_some_and(|text| names_ours(&text)) {
            let conf = conf.display();
            return Some(format!("{conf} names them here: bring the one of the controller"));
        }
        match site.run(&["scontrol", "show", "config"]) {
            Ok(config) if when != When::WouldBeTold && config.contains(OURS) => {
                Some("Slurm still runs them, and drains a node on which they are missing".into())
            }
            // Each node reads it for itself, and none says when.
            Ok(_) if when != When::Now => Some("its nodes read the configuration only now".into()),
            Ok(_) => None,
            Err(error) => Some(format!("whether Slurm still runs them cannot be asked: {error}")),
        }
    }

    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        let conf = conf(options);
        match site.read(&conf) {
            Ok(Some(text)) => match Settings::read(site, &conf, &text) {
                Ok(settings) => check_settings(site, &settings, findings),
                Err(error) => findings.push(Finding::wrong(error.to_string(), "")),
            },
            Ok(None) => findings.push(Finding::note(
                format!("there is no {} here, so it was not looked at", conf.display()),
                "say --conf where it is, or run the check where it is",
            )),
            Err(error) => findings.push(Finding::wrong(error.to_string(), "")),
        }
        if site.has_program("scontrol") {
            check_running(site, findings);
        } else if site.may_have_manager() {
            findings.push(Finding::note(
                format!("whether Slurm runs with this was not asked, for {NO_SCONTROL}"),
                "have it in PATH and check again",
            ));
        }
        findings.push(Finding::trap(
            "Slurm tells a hook nothing of memory, so harvested work keeps all that no render uses",
            "set reserve_memory_mib of the monitor to what the next job needs at once",
        ));
    }

    fn scripts(&self, _options: &Options) -> Option<[PathBuf; 2]> {
        Some(own_scripts(Manager::Slurm, ["prolog", "epilog"]))
    }

    fn probe_job(&self, options: &Options) -> Option<ProbeJob> {
        let wait = format!("--immediate={PROBE_JOB_S}");
        let mut command = ["srun", &wait, "-N1", "-n1"].map(String::from).to_vec();
        let host = own_name();
        let short = || host.split('.').next().unwrap_or(&host).to_owned();
        command.push(format!("--nodelist={}", options.node.clone().unwrap_or_else(short)));
        command.extend(options.probe_queue.iter().map(|name| format!("--partition={name}")));
        command.extend(["/bin/sh", "-c"].map(String::from));
        Some(ProbeJob {
            program: "srun",
            command,
            booking: "slurm:$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}",
            is_beginning: false,
        })
    }
}

/// Whether a configuration has our files run.
fn names_ours(conf: &str) -> bool {
    conf.lines().any(|line| !line.trim_start().starts_with('#') && line.contains(OURS))
}

fn conf(options: &Options) -> PathBuf {
    let variable = || std::env::var_os("SLURM_CONF").map(PathBuf::from);
    options.conf.clone().or_else(variable).unwrap_or_else(|| CONF.into())
}

/// The flag with which jobs wait for the Prolog at their allocation, by which Slurm delays each of them.
/// Without one the Prolog runs before a job's first step, which is soon enough: nothing of it runs
/// earlier. Source: `PrologFlags` of slurm.conf(5).
fn at_allocation(flags: &str) -> Option<&str> {
    let means_it = |flag: &&str| AT_ALLOCATION.iter().any(|one| one.eq_ignore_ascii_case(flag));
    flags.split(',').map(str::trim).find(means_it)
}

/// Puts our script beside the site's own, where Slurm runs a whole folder.
fn into_folder(
    entry: &Entry,
    ours: &Path,
    script: &str,
    site: &Site,
    plan: &mut Plan,
) -> Result<(), InstallError> {
    let file = scripts::of(Manager::Slurm).iter().find(|file| file.name == script);
    match (entry.value.strip_suffix("/*"), file) {
        (Some(folder), Some(file))
            if folder.starts_with('/') && !folder.contains(['*', '?', '[']) =>
        {
            plan.put(site, &Path::new(folder).join("gleaner"), 0o755, file.text)
        }
        _ => Err(InstallError::Occupied {
            place: entry.place.clone(),
            what: format!("{}={}", entry.key, entry.value),
            to_do: format!(
                "move that script into a folder, say {key}=/etc/slurm/{script}.d/*, and install \
                 again: ours ({ours}) then goes into the folder too",
                key = entry.key,
                ours = ours.display()
            ),
        }),
    }
}

/// A line `key=value` that the site has, and where.
struct Entry {
    key: String,
    value: String,
    place: String,
}

/// What `slurm.conf` and the files that it includes say, without our block.
struct Settings {
    entries: Vec<Entry>,
    nodes: usize,
    /// A file that they include and that could not be read here.
    unread: Option<PathBuf>,
    /// The first line of nodes, before which general settings stand.
    before: Option<usize>,
    ours: Option<String>,
}

impl Settings {
    fn read(site: &Site, conf: &Path, text: &str) -> Result<Self, InstallError> {
        let refused = |source| InstallError::Block { path: conf.to_owned(), source };
        let without = block::without_block(text).map_err(refused)?;
        let mut all =
            Self { entries: Vec::new(), nodes: 0, unread: None, before: None, ours: None };
        if without.len() != text.len() {
            all.ours = Some(text.to_owned());
        }
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
            let place = || format!("{}:{}", file.display(), number + 1);
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
            let Some((key, value)) = line.split_once('=') else { continue };
            let (key, value) = (key.trim(), value.trim());
            if key.eq_ignore_ascii_case("NodeName") {
                let names = value.split_whitespace().next().unwrap_or_default();
                if !names.eq_ignore_ascii_case("DEFAULT") {
                    // A list or a range is more than one, however many.
                    self.nodes += if names.contains([',', '[']) { 2 } else { 1 };
                }
                continue;
            }
            let (key, value) = (key.to_owned(), value.trim_matches('"').to_owned());
            if !value.is_empty() {
                self.entries.push(Entry { key, value, place: place() });
            }
        }
        Ok(())
    }

    /// Why there may be more nodes than one; none where there are not.
    fn more_nodes(&self) -> Option<String> {
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

    /// The last word on a key, whose case does not count.
    fn get(&self, key: &str) -> Option<&Entry> {
        self.entries
            .iter()
            .rev()
            .find(|entry| entry.key.eq_ignore_ascii_case(key))
            .filter(|entry| !entry.value.eq_ignore_ascii_case("(null)"))
    }

    /// Whether Slurm says that it runs the scripts of these settings and ours.
    fn is_read(&self, site: &Site) -> bool {
        let Ok(config) = site.run(&["scontrol", "show", "config"]) else { return false };
        [("Prolog", "prolog"), ("Epilog", "epilog")].into_iter().all(|(key, script)| {
            let ours = || scripts::path(Manager::Slurm, script).display().to_string();
            config.contains(&self.get(key).map_or_else(ours, |entry| entry.value.clone()))
        })
    }

    /// What holds, be it ours or the site's.
    fn value(&self, key: &str) -> Option<String> {
        if let Some(entry) = self.get(key) {
            return Some(entry.value.clone());
        }
        let text = self.ours.as_deref()?;
        text.lines().find_map(|line| {
            let (is, value) = line.trim().split_once('=')?;
            is.trim().eq_ignore_ascii_case(key).then(|| value.trim().to_owned())
        })
    }
}

fn check_settings(site: &Site, settings: &Settings, findings: &mut Vec<Finding>) {
    for (key, script) in [("Prolog", "prolog"), ("Epilog", "epilog")] {
        let ours = scripts::path(Manager::Slurm, script);
        let install = "`gleaner farm install --farm slurm` sets it";
        match settings.value(key) {
            None => findings.push(Finding::wrong(format!("slurm.conf has no {key}"), install)),
            Some(value) => {
                let folder =
                    value.strip_suffix("/*").map(|folder| Path::new(folder).join("gleaner"));
                let path = folder.unwrap_or_else(|| PathBuf::from(&value));
                if path != ours && !path.ends_with("gleaner") {
                    let what = format!("{key}={value} of slurm.conf is not Gleaner's");
                    findings.push(Finding::wrong(what, install));
                } else if !site.is_executable(&path) {
                    findings.push(Finding::wrong(
                        format!(
                            "{key}={value}: {} cannot be run, which drains the node",
                            path.display()
                        ),
                        "install again, or take the line away, and run `scontrol reconfigure`",
                    ));
                } else {
                    findings.push(Finding::good(format!("slurm.conf has {key}={value}")));
                }
            }
        }
    }
    if let Some(flags) = settings.value("PrologFlags") {
        findings.extend(at_allocation(&flags).map(|flag| {
            Finding::trap(
                format!(
                    "PrologFlags has {flag}, with which Slurm runs the Prolog at the allocation and \
                     starts every job some 0.1 s later"
                ),
                "take it out of slurm.conf unless something else needs it, as pam_slurm_adopt and X11 \
                 need Contain: our hook does not",
            )
        }));
    }
    let timeout = settings.value("PrologEpilogTimeout").and_then(|value| value.parse::<u32>().ok());
    match timeout {
        Some(TIMEOUT_S_MIN..=65_533) => {}
        Some(_) => findings.push(Finding::trap(
            "PrologEpilogTimeout is shorter than what the hooks may take on a bad day",
            format!(
                "set PrologEpilogTimeout={TIMEOUT_S}: a node whose Prolog times out is drained"
            ),
        )),
        None => findings.push(Finding::trap(
            "PrologEpilogTimeout is not set: a Prolog that hangs hangs for ever",
            format!("set PrologEpilogTimeout={TIMEOUT_S} in slurm.conf"),
        )),
    }
    if let Some(program) = settings.value("HealthCheckProgram") {
        findings.push(Finding::trap(
            format!("HealthCheckProgram={program} may take the load of harvested work for a fault"),
            "have it read loadavg in the agent's run folder instead of /proc/loadavg",
        ));
    }
}

fn check_running(site: &Site, findings: &mut Vec<Finding>) {
    match site.run(&["scontrol", "show", "config"]) {
        Ok(config) => {
            for key in ["Prolog", "Epilog"] {
                let value = config.lines().find_map(|line| {
                    let (is, value) = line.split_once('=')?;
                    let is = is.trim();
                    // From 23.11 on there may be several, which are numbered.
                    (is == key || is.strip_prefix(key).is_some_and(|rest| rest.starts_with('[')))
                        .then(|| value.trim().to_owned())
                });
                match value {
                    Some(value) if value.contains("gleaner") || value.ends_with("/*") => {
                        findings.push(Finding::good(format!("Slurm runs with {key} = {value}")));
                    }
                    other => findings.push(Finding::wrong(
                        format!(
                            "Slurm runs with {key} = {}",
                            other.as_deref().unwrap_or("nothing")
                        ),
                        "run `scontrol reconfigure`",
                    )),
                }
            }
        }
        Err(error) => findings.push(Finding::wrong(
            format!("slurmctld does not say how it runs: {error}"),
            "see whether it is up, and check again",
        )),
    }
}

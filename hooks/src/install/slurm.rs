//! Slurm: `Prolog` and `Epilog` in `slurm.conf`.
//!
//! One `slurm.conf` speaks of all nodes, and a node whose Prolog is missing is drained: so the
//! configuration is changed only where there is one node, or where the administrator says that
//! every node has the files. A site that has scripts of its own runs them from a folder
//! (`Prolog=/etc/slurm/prolog.d/*`): ours goes into that. Or, with a Slurm that runs as many as there
//! are lines, ours gets one of its own beside theirs.

mod conf;
mod findings;
mod running;
mod time_limit;

use std::path::{Path, PathBuf};

use super::adapter::{Adapter, ProbeJob, When, own_scripts};
use super::record::Record;
use super::{Finding, InstallError, Manager, Options, Plan, Site, own_name, scripts};
use crate::limits::PROBE_JOB_S;

use conf::{Entry, Settings};
use running::{Running, Several};

const CONF: &str = "/etc/slurm/slurm.conf";
/// What the names of our scripts have in them.
const OURS: &str = "/gleaner/hooks/slurm/";
/// Longest time that Slurm should give the hooks, in seconds; ours end within two.
const TIMEOUT_S: &str = "20";
/// What Slurm calls our scripts, and what we do.
const KEYS: [(&str, &str); 2] = [("Prolog", "prolog"), ("Epilog", "epilog")];

/// Why Slurm cannot be asked or told.
const NO_SCONTROL: &str = "scontrol is not in PATH (sudo takes that of its secure_path; /opt/slurm/bin is where many have it)";

pub(super) struct Slurm;

impl Adapter for Slurm {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        scripts::put(Manager::Slurm, site, plan)?;
        if options.files_only {
            return put_into_folders(site, plan);
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
        for (key, script) in KEYS {
            let ours = scripts::path(Manager::Slurm, script);
            match place(&settings, key, &ours, site)? {
                Place::Line => lines.push(format!("{key}={}", ours.display())),
                Place::Folder(folder) => put_into(&folder, script, site, plan)?,
                Place::Named => {}
            }
        }
        let is_asked = site.has_program("scontrol");
        if settings.get("PrologEpilogTimeout").is_none() {
            let running = is_asked.then(|| Running::ask(site).ok()).flatten();
            match time_limit::holds_for(site, &conf, Some(&settings), running.as_ref()) {
                None => lines.push(format!("PrologEpilogTimeout={TIMEOUT_S}")),
                Some(theirs) => plan.notes.push(time_limit::left_unset(&theirs)),
            }
        }
        if !lines.is_empty() || settings.has_ours() {
            plan.edit(&conf, &text, &lines, settings.before)?;
        }
        // One that was interrupted has written it, and Slurm has not read it.
        let is_behind = is_asked && (!plan.is_done() || !is_read(&settings, &lines, site));
        if plan.writes(&conf) || is_behind {
            self.reload(site, options, plan);
        } else if !is_asked && site.may_have_manager() {
            // Said once that it is left to be done, when it was written.
            plan.notes.push(format!(
                "whether Slurm has read its configuration since then was not asked, for \
                 {NO_SCONTROL}: if nobody has run `scontrol reconfigure` yet, do"
            ));
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
            return Some(format!(
                "{conf} names them here: take the line out, or bring the one of the controller"
            ));
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

    fn to_put_back(&self) -> Option<&'static str> {
        Some(
            "put back what you set for it: a HealthCheckProgram that reads loadavg of the \
             agent's run folder reads /proc/loadavg again, and gleaner-server is no operator \
             any more (`sacctmgr delete user gleaner-server`)",
        )
    }

    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        let conf = conf(options);
        let read = site
            .read(&conf)
            .and_then(|text| text.map(|text| Settings::read(site, &conf, &text)).transpose());
        let settings = read.unwrap_or_else(|error| {
            findings.push(Finding::wrong(error.to_string(), ""));
            None
        });
        if let Some(settings) = &settings {
            findings::of_conf(site, settings, findings);
        } else if !site.has_file(&conf) {
            findings.push(Finding::note(
                format!("there is no {} here, so it was not looked at", conf.display()),
                "say --conf where it is, or run the check where it is",
            ));
        }
        let running = asked(site, findings);
        if let Some(running) = &running {
            findings::of_running(site, running, findings);
        }
        if running.is_some() || settings.is_some() {
            let (running, settings) = (running.as_ref(), settings.as_ref());
            let theirs = time_limit::holds_for(site, &conf, settings, running);
            findings::traps(running, settings, theirs.as_deref(), findings);
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
            booking: "slurm:$SLURM_JOB_ID",
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

/// What the running Slurm says, where it can be asked; else why not is found.
fn asked(site: &Site, findings: &mut Vec<Finding>) -> Option<Running> {
    if !site.has_program("scontrol") {
        if site.may_have_manager() {
            findings.push(Finding::note(
                format!("whether Slurm runs with this was not asked, for {NO_SCONTROL}"),
                "have it in PATH and check again",
            ));
        }
        return None;
    }
    match Running::ask(site) {
        Ok(running) => Some(running),
        Err(error) => {
            findings.push(Finding::wrong(
                format!("slurmctld does not say how it runs: {error}"),
                "see whether it is up, and check again",
            ));
            None
        }
    }
}

/// Whether Slurm says that it runs the scripts of these settings, and of these lines of ours.
fn is_read(settings: &Settings, lines: &[String], site: &Site) -> bool {
    let Ok(running) = Running::ask(site) else { return false };
    KEYS.into_iter().all(|(key, script)| {
        let ours = scripts::path(Manager::Slurm, script).display().to_string();
        let line = format!("{key}={ours}");
        let ours = lines.contains(&line).then_some(ours.as_str());
        let sites = settings.get(key).map(|entry| entry.value.as_str());
        let values = running.values(key);
        sites.into_iter().chain(ours).all(|value| values.contains(&value))
    })
}

/// Where our script goes.
enum Place {
    /// Into a line of our own.
    Line,
    /// Into a folder of the site's that Slurm runs as a whole.
    Folder(PathBuf),
    /// Nowhere: the site names it itself.
    Named,
}

/// Where it goes beside what the site has.
fn place(settings: &Settings, key: &str, ours: &Path, site: &Site) -> Result<Place, InstallError> {
    let Some(last) = settings.get(key) else { return Ok(Place::Line) };
    if settings.all(key).any(|entry| Path::new(&entry.value) == ours) {
        return Ok(Place::Named);
    }
    if let Some(folder) = folder_of(&last.value) {
        return Ok(Place::Folder(folder.into()));
    }
    match running::takes_several(site) {
        Several::Taken => Ok(Place::Line),
        // An earlier installation knew.
        Several::Unknown(_) if settings.of_ours(key).is_some() => Ok(Place::Line),
        Several::NotTaken(why) | Several::Unknown(why) => Err(occupied(last, ours, &why)),
    }
}

/// The folder, where a value stands for all that is in one.
fn folder_of(value: &str) -> Option<&str> {
    let folder = value.strip_suffix("/*")?;
    (folder.starts_with('/') && !folder.contains(['*', '?', '['])).then_some(folder)
}

/// On a node: what its Slurm runs a folder for has ours in it on each of them.
fn put_into_folders(site: &Site, plan: &mut Plan) -> Result<(), InstallError> {
    if !site.may_have_manager() {
        return Ok(());
    }
    let running = match site.has_program("scontrol") {
        true => Running::ask(site).map_err(|error| error.to_string()),
        false => Err(NO_SCONTROL.into()),
    };
    let running = match running {
        Ok(running) => running,
        Err(why) => {
            plan.notes.push(format!(
                "whether Slurm runs a folder of scripts (Prolog=/folder/*) was not asked: {why}. Where it \
                 does, run this again when it answers, or copy each of ours into its folder as `gleaner`"
            ));
            return Ok(());
        }
    };
    for (key, script) in KEYS {
        let values = running.values(key);
        let ours = scripts::path(Manager::Slurm, script);
        let is_named = values.iter().any(|value| Path::new(value) == ours);
        if let Some(folder) = values.last().and_then(|last| folder_of(last)).filter(|_| !is_named) {
            put_into(Path::new(folder), script, site, plan)?;
        }
    }
    Ok(())
}

/// What to do where the site has a script and a second line may not be run.
fn occupied(entry: &Entry, ours: &Path, why: &str) -> InstallError {
    let (key, ours) = (&entry.key, ours.display());
    InstallError::Occupied {
        place: entry.place.clone(),
        what: format!("{key}={}", entry.value),
        to_do: format!(
            "either move that script into a folder, say {key}=/etc/slurm/{}.d/*, and install again: \
             ours ({ours}) then goes into the folder too. Or, where slurmctld and every slurmd are of \
             24.05 or newer, which run as many as there are lines (here {why}), \
             install with --files-only on each node, add `{key}={ours}` on a line below yours, and \
             install again",
            key.to_ascii_lowercase(),
        ),
    }
}

/// Puts our script beside the site's own, where Slurm runs a whole folder.
fn put_into(folder: &Path, script: &str, site: &Site, plan: &mut Plan) -> Result<(), InstallError> {
    match scripts::of(Manager::Slurm).iter().find(|file| file.name == script) {
        Some(file) => plan.put(site, &folder.join("gleaner"), 0o755, file.text),
        None => Ok(()),
    }
}

//! HTCondor: a file of its own in the execute node's configuration folder.
//!
//! Releases from 25.4 on have no exit hook of ours. Their starter leaves when its exit hook has ended,
//! while the job's files are still on their way: the job is taken for lost and runs again, time after
//! time. There a booking ends with the starter, whose end the prepare hook has awaited in any release.
//! Source: `HookJobExitClient::hookExited` of HTCondor's starter.

use std::path::{Path, PathBuf};

use super::adapter::{Adapter, ProbeJob, When, own_scripts};
use super::moment::Moment;
use super::record::Record;
use super::{
    Change, Finding, HookSettings, InstallError, Manager, Options, Plan, Site, own_name, scripts,
};

const FOLDER: &str = "/etc/condor/config.d";
const FILE: &str = "60-gleaner.conf";
const MAIN: [&str; 2] = ["/etc/condor/condor_config", "/etc/condor/condor_config.local"];
const STARTER: &str = "condor_starter";
/// The first release whose exit hooks cost jobs their files.
const WITHOUT_EXIT_HOOK: &str = "25.4";
/// By which a host starts, suspends and evicts jobs.
const POLICIES: [&str; 5] = ["START", "SUSPEND", "PREEMPT", "WANT_SUSPEND", "KILL"];
/// Whose hooks jobs have, whatever they say themselves.
const FOR_ALL: &str = "STARTER_JOB_HOOK_KEYWORD";
/// Whose hooks those have that say nothing.
const BY_DEFAULT: &str = "STARTER_DEFAULT_JOB_HOOK_KEYWORD";
const KEYWORDS: [&str; 2] = [FOR_ALL, BY_DEFAULT];
/// By which slots have users of their own, whose every process ends with a job.
const USERS_OF_SLOTS: [&str; 3] =
    ["SLOT1_USER", "SLOT1_1_USER", "DEDICATED_EXECUTE_ACCOUNT_REGEXP"];
/// Where the kernel says how `/proc` is mounted.
const MOUNTS: &str = "/proc/self/mounts";

pub(super) struct HtCondor;

impl Adapter for HtCondor {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        scripts::put(Manager::HtCondor, site, plan)?;
        if options.files_only {
            return Ok(());
        }
        let file = file(options);
        if let Some(folder) = file.parent().filter(|folder| site.mode(folder).is_none()) {
            return Err(InstallError::missing(
                format!("there is no folder {}", folder.display()),
                "say --folder what `condor_config_val LOCAL_CONFIG_DIR` says",
            ));
        }
        if let Some((place, line)) = keyword_of_the_site(site, &file)? {
            return Err(InstallError::Occupied {
                place,
                what: line,
                to_do: format!(
                    "jobs have one set of hooks: have that one's HOOK_PREPARE_JOB and HOOK_JOB_EXIT \
                     run {} with the same arguments and standard input",
                    own_scripts(Manager::HtCondor, ["prepare", "exit"])
                        .map(|p| p.display().to_string())
                        .join(" and ")
                ),
            });
        }
        plan.put(site, &file, 0o644, &text(keyword_of_ours(site, &file)))?;
        let is_told = site.has_program("condor_reconfig");
        // One that was interrupted has written it, and HTCondor has not read it.
        let is_behind = is_told && (!plan.is_done() || !is_read(site));
        if plan.writes(&file) || is_behind {
            self.reload(site, options, plan);
        } else if !is_told && site.may_have_manager() {
            // Said once that it is left to be done, when it was written.
            plan.notes.push(
                "whether HTCondor has read its configuration since then was not asked, for \
                 condor_reconfig is not in PATH: if nobody has run it yet, do"
                    .into(),
            );
        }
        Ok(())
    }

    fn reload(&self, site: &Site, options: &Options, plan: &mut Plan) {
        if options.files_only {
            return;
        }
        if site.has_program("condor_reconfig") {
            let command = vec!["condor_reconfig".to_owned()];
            plan.changes.push(Change::Tell { command, undo: None, is_needed: false });
        } else if site.may_have_manager() {
            plan.undone.push(
                "HTCondor was not told to read its configuration, for condor_reconfig is not in PATH \
                 (sudo takes that of its secure_path): run it yourself"
                    .into(),
            );
        }
    }

    /// A starter reads the configuration when its job begins.
    fn may_still_run(&self, site: &Site, record: &Record, when: When) -> Option<String> {
        let file = file(&record.options);
        let goes = |(path, text): &(PathBuf, String)| {
            when == When::WouldBeTold && *path == file && record.wrote(path, text)
        };
        match configuration(site, file.parent().unwrap_or(Path::new("/"))) {
            Ok(all) => {
                let mut all = all.into_iter().filter(|one| !goes(one));
                let names_them = |line: &str| {
                    !line.trim_start().starts_with('#') && line.contains("/gleaner/hooks/htcondor/")
                };
                match all.find(|(_, text)| text.lines().any(names_them)) {
                    Some((path, _)) => Some(format!("{} names them", path.display())),
                    None => running_starter(site, record.untold.as_ref()),
                }
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// A starter reads it when its job begins.
    fn is_told_again(&self) -> bool {
        false
    }

    fn to_put_back(&self) -> Option<&'static str> {
        Some(
            "put back what you changed for it: NonCondorLoadAvg and LoadAvg in START, SUSPEND \
             and PREEMPT, and ENABLE_BACKFILL",
        )
    }

    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        let file = file(options);
        match site.read(&file) {
            Ok(Some(now)) if KEYWORDS.map(text).contains(&now) => {
                findings.push(Finding::good(format!("{} names the hooks", file.display())));
            }
            Ok(_) => findings.push(Finding::wrong(
                format!("{} does not name the hooks", file.display()),
                "`gleaner farm install --farm htcondor` writes it",
            )),
            Err(error) => findings.push(Finding::wrong(error.to_string(), "")),
        }
        match keyword_of_the_site(site, &file) {
            Ok(None) => {}
            Ok(Some((place, line))) => findings.push(Finding::wrong(
                format!("{place} has {line}, which may take the place of ours"),
                "take one of the two away",
            )),
            Err(error) => findings.push(Finding::wrong(error.to_string(), "")),
        }
        if site.has_program("condor_config_val") {
            check_running(site, keyword_of_ours(site, &file), findings);
        } else if site.may_have_manager() {
            findings.push(Finding::note(
                "how HTCondor runs was not asked, for condor_config_val is not in PATH (sudo takes that \
                 of its secure_path)",
                "have it in PATH and check again",
            ));
        }
        findings.extend(hidden_processes(site));
        findings.push(Finding::own_memory(
            "CGROUP_MEMORY_LIMIT_POLICY and what PREEMPT and SYSTEM_PERIODIC_HOLD say of MemoryUsage",
        ));
        findings.push(if keyword_of_ours(site, &file) == FOR_ALL {
            Finding::trap(
                "a job that brings hooks of its own (HookKeyword) runs without them beside ours",
                format!(
                    "where your jobs do that have {BY_DEFAULT} in the place of {FOR_ALL} in {} (10.1.1 and \
                     later), install again, and have their hooks run ours with the same input and \
                     arguments",
                    file.display()
                ),
            )
        } else {
            Finding::trap(
                "a job that brings hooks of its own (HookKeyword) runs without ours, unless they run these",
                "have them run ours with the same input and arguments",
            )
        });
    }

    fn scripts(&self, _options: &Options) -> Option<[PathBuf; 2]> {
        Some(own_scripts(Manager::HtCondor, ["prepare", "exit"]))
    }

    fn probe_job(&self, options: &Options) -> Option<ProbeJob> {
        let arguments = [options.node_or_own()];
        let job = ProbeJob::by_script("condor_submit", SUBMIT, arguments, BOOKING);
        Some(ProbeJob { is_beginning: true, ..job })
    }
}

/// A job is named by what the whole pool calls it, of which characters that a name may not have become
/// `+`, and a fingerprint follows.
const BOOKING: &str = r#"htcondor:$(sed -n 's/^GlobalJobId = "\(.*\)"$/\1/p' "$_CONDOR_JOB_AD" | tr -c 'A-Za-z0-9._@:\n-' +)"#;

/// Submits the last of its arguments as a job, and waits for it by its log.
const SUBMIT: &str = r##"dir=$(mktemp -d) || exit; trap 'rm -rf "$dir"' EXIT
printf '#!/bin/sh\n%s\n' "$3" > "$dir/probe" && chmod 755 "$dir" "$dir/probe"
cat > "$dir/submit" <<END
universe = vanilla
executable = $dir/probe
output = $dir/out
error = $dir/err
log = $dir/log
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
request_cpus = 1
requirements = (Machine == "$1") || regexp("^$1[.]", Machine)
queue
END
job=$(timeout 8 condor_submit -terse "$dir/submit") || exit
condor_wait -wait "$2" "$dir/log" >&2 || { condor_rm "${job%% *}" >&2; exit 124; }
cat "$dir/out"; cat "$dir/err" >&2"##;

fn file(options: &Options) -> PathBuf {
    options.folder.as_deref().unwrap_or(Path::new(FOLDER)).join(FILE)
}

/// By which keyword our file names the hooks: an administrator may change that to the other.
fn keyword_of_ours(site: &Site, file: &Path) -> &'static str {
    let text = site.read(file).ok().flatten().unwrap_or_default();
    let is_default = |line: &str| key_of(line).eq_ignore_ascii_case(BY_DEFAULT);
    if text.lines().any(is_default) { BY_DEFAULT } else { FOR_ALL }
}

/// What a line of HTCondor's configuration sets.
fn key_of(line: &str) -> &str {
    line.trim().split(['=', ' ', '\t']).next().unwrap_or_default()
}

fn text(keyword: &str) -> String {
    let [prepare, exit] = own_scripts(Manager::HtCondor, ["prepare", "exit"]);
    format!(
        "# Gleaner's hooks: `gleaner farm uninstall --farm htcondor` takes this file away.\n\
         {keyword} = GLEANER\n\
         GLEANER_HOOK_PREPARE_JOB = {}\n\
         # From 25.4 on a job with an exit hook loses its starter before its files are back, and runs again.\n\
         if version < {WITHOUT_EXIT_HOOK}\n\
         GLEANER_HOOK_JOB_EXIT = {}\n\
         endif\n",
        prepare.display(),
        exit.display()
    )
}

/// A job ends with the exit hook that it began with: a starter that finds it missing waits for ever.
/// One that began after our configuration was gone never knew of it, and one that says what it can do
/// (`-classad`), as a startd has it do when it reads its configuration again, runs no job.
/// Source: `JobInfoCommunicator::allJobsDone` of HTCondor's starter.
fn running_starter(site: &Site, untold: Option<&Moment>) -> Option<String> {
    let processes = Path::new("/proc");
    // What has ended meanwhile has no name any more.
    let read = |pid: &String, name| site.read(&processes.join(pid).join(name)).ok().flatten();
    let is_starter = |pid: &String| read(pid, "comm").is_some_and(|name| name.trim() == STARTER);
    let began_later = |pid: &String| {
        untold.zip(read(pid, "stat")).is_some_and(|(untold, stat)| untold.is_before(&stat))
    };
    let runs_a_job = |pid: &String| {
        !read(pid, "cmdline").is_some_and(|line| line.split('\0').any(|word| word == "-classad"))
    };
    let pids = site.names(processes);
    let is_ours = |pid: &&String| is_starter(pid) && runs_a_job(pid) && !began_later(pid);
    let starter = pids.iter().find(is_ours)?;
    Some(format!(
        "a job ends with the exit hook that it began with, and one runs now ({STARTER}, process \
         {starter})"
    ))
}

/// Whether the daemons of this host say that they have our file.
fn is_read(site: &Site) -> bool {
    let asked = site.run(&["condor_config_val", "-master", "GLEANER_HOOK_PREPARE_JOB"]);
    let [prepare, _] = own_scripts(Manager::HtCondor, ["prepare", "exit"]);
    asked.is_ok_and(|path| Path::new(path.trim()) == prepare)
}

/// Texts of the files that an execute node's configuration is in, as far as they are plain ones.
fn configuration(site: &Site, folder: &Path) -> Result<Vec<(PathBuf, String)>, InstallError> {
    let mut all = Vec::new();
    let in_folder = site.names(folder).into_iter().filter(|name| is_taken_up(name));
    let in_folder = in_folder.map(|name| folder.join(name));
    for path in MAIN.map(PathBuf::from).into_iter().chain(in_folder) {
        let is_plain = site.mode(&path).is_some() && site.names(&path).is_empty();
        if let Some(text) = is_plain.then(|| site.read(&path)).transpose()?.flatten() {
            all.push((path, text));
        }
    }
    Ok(all)
}

/// Whether HTCondor reads a file of this name, as far as its `LOCAL_CONFIG_DIR_EXCLUDE_REGEXP` is
/// the one that it comes with.
fn is_taken_up(name: &str) -> bool {
    let is_hidden = name.starts_with(['.', '#']);
    !is_hidden && !["~", ".rpmsave", ".rpmnew"].iter().any(|end| name.ends_with(end))
}

/// Where the site has said already whose hooks jobs have.
fn keyword_of_the_site(site: &Site, ours: &Path) -> Result<Option<(String, String)>, InstallError> {
    let folder = ours.parent().unwrap_or(Path::new("/"));
    for (path, text) in configuration(site, folder)?.iter().filter(|(path, _)| path != ours) {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(key_of(line))) {
                return Ok(Some((format!("{}:{}", path.display(), number + 1), line.to_owned())));
            }
        }
    }
    Ok(None)
}

/// Polls call a host what HTCondor calls it, which is with its domain as a rule.
fn other_name(site: &Site) -> Option<Finding> {
    let machine = site.run(&["condor_config_val", "FULL_HOSTNAME"]).ok()?;
    let machine = machine.trim();
    let said = HookSettings::of(Manager::HtCondor, site).ok()?.value("GLEANER_HOST");
    let name = said.unwrap_or_else(own_name);
    (machine != name).then(|| {
        Finding::trap(
            format!(
                "HTCondor calls this host {machine}, and the hooks call it {name}: a monitor that polls \
                 takes them for two hosts, and does not see this one drained"
            ),
            format!(
                "`gleaner farm install --farm htcondor --host {machine}`, and name = \"{machine}\" in \
                 agent.toml"
            ),
        )
    })
}

/// What it does not have where HTCondor reads our file and finds no exit hook in it.
fn without_exit_hook(site: &Site) -> Option<Finding> {
    let asked = site.run(&["condor_config_val", "GLEANER_HOOK_JOB_EXIT"]);
    asked.is_err().then(|| {
        Finding::note(
            format!(
                "releases of HTCondor from {WITHOUT_EXIT_HOOK} on have no exit hook of ours, which would \
                 cost jobs their files: a booking ends with the job's starter"
            ),
            "have the monitor poll HTCondor too; `gleaner farm compare` does not learn which jobs failed",
        )
    })
}

/// A hook awaits the end of its job's starter, which it finds in `/proc` as the job's user.
fn hidden_processes(site: &Site) -> Option<Finding> {
    let mounts = site.read(Path::new(MOUNTS)).ok().flatten()?;
    let proc = mounts.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    let proc = proc.into_iter().find(|fields| fields.get(1) == Some(&"/proc"))?;
    let mut options = proc.get(3)?.split(',');
    let how = options.find_map(|option| option.strip_prefix("hidepid="))?;
    (!["0", "off"].contains(&how)).then(|| {
        Finding::trap(
            format!(
                "/proc is mounted with hidepid={how}: a hook that runs as its job's user does not see the \
                 starter, so a booking does not end with it where the exit hook is lost, or there is none"
            ),
            "mount it without hidepid, or with gid= a group that the users of jobs are in; else have the \
             monitor poll (poll = \"htcondor\")",
        )
    })
}

fn check_running(site: &Site, keyword: &str, findings: &mut Vec<Finding>) {
    match site.run(&["condor_config_val", keyword]) {
        Ok(value) if value.trim() == "GLEANER" => {
            findings.push(Finding::good("HTCondor reads its starter's hooks from us"));
            findings.extend(without_exit_hook(site));
        }
        Ok(value) => findings.push(Finding::wrong(
            format!("HTCondor has {keyword} = {}", value.trim()),
            "see which file comes after ours, and run condor_reconfig",
        )),
        Err(error) => findings.push(Finding::wrong(error.to_string(), "run condor_reconfig")),
    }
    findings.extend(other_name(site));
    let value = |name| site.run(&["condor_config_val", name]).ok();
    if let Some(backfill) = value("ENABLE_BACKFILL")
        && ["true", "t", "1"].contains(&backfill.trim().to_ascii_lowercase().as_str())
    {
        findings.push(Finding::trap(
            format!("ENABLE_BACKFILL is {}: two harvesters want the same cores", backfill.trim()),
            "set ENABLE_BACKFILL = False on harvested hosts",
        ));
    }
    if let Some((name, user)) = USERS_OF_SLOTS
        .iter()
        .find_map(|name| Some((name, value(name)?)))
        .filter(|(_, user)| !user.trim().is_empty())
    {
        findings.push(Finding::trap(
            format!(
                "{name} is {}: HTCondor may kill all that a slot's user still runs when a job has ended, and \
                 so what awaits the end of the starter",
                user.trim()
            ),
            "have the monitor poll (poll = \"htcondor\"), which ends such a booking two polls later",
        ));
    }
    for name in POLICIES {
        let Ok(value) = site.run(&["condor_config_val", name]) else { continue };
        if value.contains("LoadAvg") {
            findings.push(Finding::trap(
                format!("{name} judges by load, in which harvested work counts: {}", value.trim()),
                "take NonCondorLoadAvg and LoadAvg out of it on harvested hosts",
            ));
        }
        // What a job itself takes (MemoryUsage, ResidentSetSize) has nothing of others in it.
        if value.contains("VirtualMemory") {
            findings.push(Finding::memory(&format!("VirtualMemory of {name}: {}", value.trim())));
        }
    }
}

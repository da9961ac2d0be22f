//! OpenPBS: a hook that the server hands to all MoMs, by `qmgr` where the server is.

use std::path::PathBuf;

use super::adapter::{Adapter, ProbeJob, When};
use super::record::Record;
use super::{Change, Finding, InstallError, Manager, Options, Plan, Site, scripts};

const HOOK: &str = "gleaner";
const SCRIPT: &str = "gleaner_openpbs.py";
const EVENTS: [&str; 2] = ["execjob_begin", "execjob_end"];
/// What `qmgr` says to who may not see hooks.
const UNAUTHORIZED: &str = "unauthorized";
const CONFIG: &str = "/var/spool/pbs/mom_priv/config";

pub(super) struct OpenPbs;

impl Adapter for OpenPbs {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        scripts::put_called_by_python(Manager::OpenPbs, site, plan)?;
        scripts::put(Manager::OpenPbs, site, plan)?;
        if options.files_only {
            return Ok(());
        }
        if !site.has_program("qmgr") {
            plan.notes.push(
                "there is no qmgr here: install on the server's host too, which hands the hook to \
                 all MoMs; a MoM without these files does nothing"
                    .into(),
            );
            return Ok(());
        }
        let delete = qmgr(&format!("delete hook {HOOK}"));
        let has = hook(site)?;
        match &has {
            None => {
                let command = qmgr(&format!("create hook {HOOK}"));
                plan.changes.push(Change::Tell { command, undo: Some(delete), is_needed: true });
            }
            Some(_) if plan.was_told(&delete) => plan.told(delete),
            Some(hook) if hook.is_ours() => plan.notes.push(format!(
                "the server has the hook {HOOK} already, and no installation on this host made it: \
                 uninstall where it was made, or `qmgr -c '{}'` takes it away",
                delete.last().map(String::as_str).unwrap_or_default()
            )),
            Some(_) => {
                return Err(InstallError::Occupied {
                    place: "the server".into(),
                    what: format!("a hook {HOOK} of another text"),
                    to_do: format!(
                        "see it by `qmgr -c 'export hook {HOOK} application/x-python default'`; give \
                         it another name, or delete it, and install again"
                    ),
                });
            }
        }
        let has = has.unwrap_or_default();
        let mut tell = |directive: String| {
            let command = qmgr(&directive);
            plan.changes.push(Change::Tell { command, undo: None, is_needed: true });
        };
        if !has.has_events() {
            tell(format!("set hook {HOOK} event = \"{}\"", EVENTS.join(",")));
        }
        if !has.is_ours() {
            let file = scripts::path(Manager::OpenPbs, SCRIPT);
            tell(format!("import hook {HOOK} application/x-python default {}", file.display()));
        }
        if !has.is_enabled() {
            tell(format!("set hook {HOOK} enabled = true"));
        }
        Ok(())
    }

    fn may_still_run(&self, site: &Site, record: &Record, when: When) -> Option<String> {
        let would_be_deleted = when == When::WouldBeTold && !record.undo.is_empty();
        if would_be_deleted || !site.has_program("qmgr") {
            return None;
        }
        match hook(site) {
            Ok(None) => None,
            Ok(Some(_)) => Some(format!("the server still has the hook {HOOK}")),
            Err(error) => Some(format!("whether the server still has the hook: {error}")),
        }
    }

    fn to_put_back(&self) -> Option<&'static str> {
        Some(
            "put back what you set for it: $ideal_load and $max_load in mom_priv/config, and \
             the operator's rights of gleaner-server (`qmgr -c 'set server operators -= \
             gleaner-server@HOST'`)",
        )
    }

    fn check(&self, site: &Site, _options: &Options, findings: &mut Vec<Finding>) {
        if site.has_program("qmgr") {
            match hook(site) {
                Ok(Some(hook)) => check_hook(&hook, findings),
                Ok(None) => findings.push(Finding::wrong(
                    format!("the server has no hook {HOOK}"),
                    "`gleaner farm install --farm openpbs` makes it",
                )),
                Err(error) if error.to_string().contains(UNAUTHORIZED) => {
                    findings.push(Finding::note(
                        "the server does not show its hooks to this user",
                        "run the check as root too, or as a manager of the server",
                    ));
                }
                Err(error) => {
                    findings
                        .push(Finding::wrong(error.to_string(), "see whether pbs_server is up"));
                }
            }
        } else {
            findings.push(Finding::note(
                "there is no qmgr here, so the server's hook was not looked at",
                "run the check on the server's host as well",
            ));
        }
        let text = site.read(std::path::Path::new(CONFIG)).ok().flatten().unwrap_or_default();
        for line in text.lines().map(str::trim) {
            if line.starts_with("$ideal_load") || line.starts_with("$max_load") {
                findings.push(Finding::trap(
                    format!("{CONFIG} has {line}: harvested work counts in that load"),
                    "take the line away, or the MoM calls a harvested host busy",
                ));
            }
            if line.starts_with("$enforce") && line.contains("mem") {
                findings.push(Finding::own_memory(&format!("{line} in {CONFIG}")));
            }
        }
        findings.push(Finding::memory(
            "the memory of its vnode, all of which the scheduler books, and in what the hook \
             pbs_cgroups keeps (reserve_amount, reserve_percent)",
        ));
    }

    fn scripts(&self, _options: &Options) -> Option<[PathBuf; 2]> {
        Some(["preflight", "postflight"].map(|name| scripts::path(Manager::OpenPbs, name)))
    }

    fn probe_job(&self, options: &Options) -> Option<ProbeJob> {
        let host = options.node_or_own();
        // As a MoM is called, which is not the whole of a domain name.
        let short = host.split('.').next().unwrap_or(&host).to_owned();
        let host = options.node.clone().unwrap_or(short);
        let queue = options.probe_queue.clone().unwrap_or_default();
        Some(ProbeJob::by_script("qsub", SUBMIT, [host, queue], "pbs:$PBS_JOBID"))
    }
}

/// Submits the last of its arguments as a batch job that writes what it prints on this host: what a MoM
/// carries back goes other ways than these programs know. The server knows one by its name that has not
/// said its number yet.
const SUBMIT: &str = r#"out=$(mktemp) || exit; trap 'rm -f "$out"' EXIT
printf 'exec > "%s" 2>&1\n%s\n' "$out" "$4" |
    timeout "$3" qsub -W block=true -N "gleaner$$" -S /bin/sh -j oe -o /dev/null \
        ${2:+-q "$2"} -l "select=1:ncpus=1:host=$1" >&2
ended=$?; [ "$ended" != 124 ] || qdel $(qselect -N "gleaner$$") >&2
cat "$out"; exit "$ended""#;

fn qmgr(directive: &str) -> Vec<String> {
    ["qmgr", "-c", directive].map(String::from).to_vec()
}

/// A hook as the server has it.
#[derive(Default)]
struct Hook {
    /// Its attributes, as they are listed.
    listed: String,
    /// Its script; empty where it has none.
    text: String,
}

/// What the server says of our hook; none where there is none.
fn hook(site: &Site) -> Result<Option<Hook>, InstallError> {
    let all = site.run(&["qmgr", "-c", "list hook"])?;
    let has =
        |line: &str| line.trim().strip_prefix("Hook ").is_some_and(|name| name.trim() == HOOK);
    let listed = site.run(&["qmgr", "-c", &format!("list hook {HOOK}")]);
    if !all.lines().any(has) {
        // Who may see none is shown none; only who asks for one by its name is told why.
        return match listed {
            Err(error) if error.to_string().contains(UNAUTHORIZED) => Err(error),
            _ => Ok(None),
        };
    }
    let listed = listed?;
    let export = format!("export hook {HOOK} application/x-python default");
    // One into which nothing was imported yet has nothing to export.
    let text = site.run(&["qmgr", "-c", &export]).unwrap_or_default();
    Ok(Some(Hook { listed, text }))
}

impl Hook {
    fn value(&self, name: &str) -> Option<&str> {
        self.listed.lines().find_map(|line| {
            let (is, value) = line.split_once('=')?;
            (is.trim() == name).then(|| value.trim().trim_matches(['"', '\'']))
        })
    }

    fn is_enabled(&self) -> bool {
        self.value("enabled").is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    fn has_events(&self) -> bool {
        let mut events: Vec<_> =
            self.value("event").unwrap_or_default().split(',').map(str::trim).collect();
        events.sort_unstable();
        events == EVENTS
    }

    /// Whether its script is that of this release.
    fn is_ours(&self) -> bool {
        let ours = scripts::of(Manager::OpenPbs).iter().find(|file| file.name == SCRIPT);
        ours.is_some_and(|file| file.text.trim() == self.text.trim())
    }
}

fn check_hook(hook: &Hook, findings: &mut Vec<Finding>) {
    let install = "`gleaner farm install --farm openpbs` puts it right";
    let events = hook.value("event").unwrap_or_default();
    if !hook.is_enabled() || !hook.has_events() {
        let is_enabled = hook.is_enabled();
        findings.push(Finding::wrong(
            format!("the hook {HOOK} is enabled: {is_enabled}, its events: {events}"),
            install,
        ));
    } else if !hook.is_ours() {
        findings.push(Finding::wrong(
            format!("the hook {HOOK} of the server has another text than this release's"),
            install,
        ));
    } else {
        findings.push(Finding::good(format!("the server has the hook {HOOK}")));
    }
    let alarm = hook.value("alarm").and_then(|alarm| alarm.parse::<u32>().ok());
    if alarm.is_some_and(|alarm| alarm < 10) {
        findings.push(Finding::trap(
            "the hook's alarm is shorter than what it may take on a bad day",
            format!("`qmgr -c 'set hook {HOOK} alarm = 30'`: one that times out ends the job"),
        ));
    }
}

//! Grid Engine: `prolog` and `epilog` of its queues, by `qconf`.

mod attributes;
mod configurations;

use std::path::{Path, PathBuf};

use super::adapter::{Adapter, ProbeJob, Told, When, own_scripts};
use super::record::Record;
use super::{Change, Finding, InstallError, Manager, Options, Plan, Site, scripts};

use attributes::Attributes;
use configurations::{Configurations, Script};

/// What the scripts are told, by the names that Grid Engine replaces.
const ARGUMENTS: &str = "$host $job_id $ja_task_id $job_owner $queue";
const ATTRIBUTES: [&str; 2] = ["prolog", "epilog"];

/// What the names of our scripts have in them.
const OURS: &str = "/gleaner/hooks/grid-engine/";

/// How load values of memory begin, swap space included.
const MEMORY: [&str; 3] = ["mem_", "swap_", "virtual_"];

pub(super) struct GridEngine;

impl Adapter for GridEngine {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        scripts::put(Manager::GridEngine, site, plan)?;
        if options.files_only {
            return Ok(());
        }
        if !site.has_program("qconf") {
            plan.undone.push(format!(
                "there is no qconf in PATH, so whether the queues have our scripts is not known: have \
                 it in PATH (SGE_ROOT/bin/ARCH) and run this again, or, where there is one, run {} for \
                 each queue, once every execution host has the files. On a host that has none say \
                 --files-only, with which that is not asked for",
                ATTRIBUTES
                    .map(|name| format!("`{}`", set(name, &ours(name), "QUEUE").join(" ")))
                    .join(" and ")
            ));
            return Ok(());
        }
        let hosts = site.run(&["qconf", "-sel"])?;
        if hosts.split_whitespace().count() > 1 && !options.nodes_are_ready {
            plan.undone.push(
                "the queues are left as they are, for there are more execution hosts than this, and \
                 a queue whose prolog is missing on a host goes into error state there: run `gleaner \
                 farm install --farm grid-engine --files-only` on each of them, then this again with \
                 --nodes-are-ready"
                    .into(),
            );
            return Ok(());
        }
        let configurations = Configurations::ask(site)?;
        plan.notes.extend(configurations.unread.iter().map(|why| {
            format!("whether a host has a prolog or epilog of its own was not seen: {why}")
        }));
        for queue in queues(site, options)? {
            let has = read(site, &queue)?;
            for name in ATTRIBUTES {
                let undo = set(name, "NONE", &queue);
                match has.get(name) {
                    None => match configurations.of(name).next() {
                        Some(script) => return Err(hidden(script)),
                        None => plan.changes.push(Change::Tell {
                            command: set(name, &ours(name), &queue),
                            undo: Some(undo),
                            is_needed: true,
                        }),
                    },
                    Some(value) if value == ours(name) => plan.told(undo),
                    Some(value) => {
                        return Err(InstallError::Occupied {
                            place: format!("queue {queue}"),
                            what: format!("{name} {value}"),
                            to_do: format!(
                                "have that script run `{}` first, or say --queue for others",
                                ours(name)
                            ),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn is_asked_by(&self) -> Option<&'static str> {
        Some("qconf")
    }

    fn may_still_run(&self, site: &Site, record: &Record, when: When) -> Option<String> {
        let named = |queue: &String| {
            let has = read(site, queue)?;
            let still = |name: &&str| {
                let told = || record.undo.contains(&set(name, "NONE", queue));
                has.get(name).is_some_and(|value| {
                    let is_let_go = when == When::WouldBeTold && told() && is_ours(name, value);
                    value.contains(OURS) && !is_let_go
                })
            };
            Ok::<_, InstallError>(ATTRIBUTES.iter().any(still))
        };
        // One that was not asked for by name may name them too.
        let all = all_queues(site)
            .and_then(|queues| queues.iter().map(named).collect::<Result<Vec<_>, _>>());
        match all {
            Ok(all) if all.contains(&true) => Some("a queue still names them".into()),
            Ok(_) => running_jobs(site),
            Err(error) => {
                Some(format!("whether a queue still names them cannot be asked: {error}"))
            }
        }
    }

    fn told(&self, site: &Site, undo: &[String]) -> Told {
        let [.., name, _, queue] = undo else { return Told::Stands };
        // Why a queue cannot be asked is said where it cannot be changed.
        let Ok(has) = read(site, queue) else { return Told::Stands };
        match has.get(name) {
            None => Told::Gone,
            Some(value) if is_ours(name, value) => Told::Stands,
            Some(value) => Told::Replaced(format!(
                "queue {queue} keeps {name} {value}: that is not ours, and if it runs ours, it is to \
                 do so no more"
            )),
        }
    }

    fn to_put_back(&self) -> Option<&'static str> {
        Some(
            "put back what you set for it: load_thresholds of the queues (`qconf -mattr queue \
             load_thresholds np_load_avg=1.75 QUEUE` is Grid Engine's own), load_formula of \
             the scheduler (np_load_avg, by `qconf -msconf`), and a load sensor that reads \
             loadavg of the agent's run folder",
        )
    }

    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        if site.has_program("qconf") {
            let queues = queues(site, options);
            let each = |queue: &String| read(site, queue).map(|has| (queue.clone(), has));
            let queues = queues.and_then(|all| all.iter().map(each).collect::<Result<Vec<_>, _>>());
            match queues.and_then(|all| Ok((all, Configurations::ask(site)?))) {
                Ok((queues, configurations)) => {
                    for (name, has) in &queues {
                        check_queue(name, has, &configurations, findings);
                    }
                    check_configurations(&queues, &configurations, findings);
                }
                Err(error) => findings
                    .push(Finding::wrong(error.to_string(), "see whether sge_qmaster is up")),
            }
            findings.extend(check_scheduler(site));
        } else {
            findings.push(Finding::note(
                "there is no qconf here, so no queue was looked at",
                "run the check on an administration host as well",
            ));
        }
        findings.push(Finding::own_memory("h_vmem and h_rss of its queue or its own"));
        findings.push(Finding::trap(
            "a prolog runs on the first host of a parallel job only",
            "poll `qstat` with the monitor, or keep parallel environments that span hosts out of \
             harvested queues",
        ));
    }

    fn scripts(&self, _options: &Options) -> Option<[PathBuf; 2]> {
        Some(own_scripts(Manager::GridEngine, ATTRIBUTES))
    }

    fn probe_job(&self, options: &Options) -> Option<ProbeJob> {
        // `*` is any queue.
        let queue = options.probe_queue.as_ref().or(options.queues.first());
        let queue = queue.cloned().unwrap_or_else(|| "*".into());
        let arguments = [options.node_or_own(), queue];
        Some(ProbeJob::by_script("qsub", SUBMIT, arguments, "grid-engine:$JOB_ID.0"))
    }
}

/// Submits the last of its arguments as a batch job, whose output is in a file: an interactive one takes
/// other ways than renders.
const SUBMIT: &str = r#"out=$(mktemp) || exit; trap 'rm -f "$out"' EXIT
printf '%s\n' "$4" |
    timeout "$3" qsub -sync y -N "gleaner$$" -S /bin/sh -wd / -j y -o "$out" \
        -l "hostname=$1" -q "$2" >&2
ended=$?; [ "$ended" != 124 ] || qdel "gleaner$$" >&2
cat "$out"; exit "$ended""#;

/// A job ends with the epilog that it began with; one that is missing has it run again.
fn running_jobs(site: &Site) -> Option<String> {
    let why =
        |what: &str| Some(format!("a job ends with the epilog that it began with, and {what}"));
    match site.run(&["qstat", "-s", "rs", "-u", "*"]) {
        Ok(jobs) if jobs.trim().is_empty() => None,
        Ok(_) => why("jobs run now"),
        Err(error) => why(&error.to_string()),
    }
}

/// Whether a value is what an installation of ours set, whatever arguments it has.
fn is_ours(name: &str, value: &str) -> bool {
    let program = value.split_whitespace().next().unwrap_or_default();
    let program = program.split_once('@').map_or(program, |(_, program)| program);
    // Others may hold for some hosts, behind it, on a line of their own too.
    let has_others = value.contains(",[") || value.contains(", [");
    Path::new(program) == scripts::path(Manager::GridEngine, name) && !has_others
}

fn ours(name: &str) -> String {
    format!("root@{}", call(name))
}

fn call(name: &str) -> String {
    format!("{} {ARGUMENTS}", scripts::path(Manager::GridEngine, name).display())
}

fn set(name: &str, value: &str, queue: &str) -> Vec<String> {
    ["qconf", "-mattr", "queue", name, value, queue].map(String::from).to_vec()
}

fn queues(site: &Site, options: &Options) -> Result<Vec<String>, InstallError> {
    if !options.queues.is_empty() {
        return Ok(options.queues.clone());
    }
    all_queues(site)
}

fn all_queues(site: &Site) -> Result<Vec<String>, InstallError> {
    let all = site.run(&["qconf", "-sql"])?;
    Ok(all.split_whitespace().map(String::from).collect())
}

fn read(site: &Site, queue: &str) -> Result<Attributes, InstallError> {
    Ok(Attributes::parse(&site.run(&["qconf", "-sq", queue])?))
}

/// What to do where the site has a script in a configuration, which a queue with ours would not run.
fn hidden(script: &Script) -> InstallError {
    InstallError::Occupied {
        place: script.place.clone(),
        what: format!("{} {}", script.attribute, script.value),
        to_do: format!(
            "in a queue that has ours it would run no more: have that script run `{}` as root \
             first, and install with --files-only on each execution host",
            call(script.attribute)
        ),
    }
}

/// By which hosts are put into order; a host that is harvested well comes last by its load.
fn check_scheduler(site: &Site) -> Option<Finding> {
    let asked = match site.run(&["qconf", "-ssconf"]) {
        Ok(asked) => asked,
        Err(error) => {
            return Some(Finding::note(
                format!("the scheduler's load_formula was not looked at: {error}"),
                "see `qconf -ssconf` on an administration host",
            ));
        }
    };
    let mut lines = asked.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    let (_, formula) = lines.find(|(name, _)| *name == "load_formula")?;
    let formula = formula.trim();
    formula.contains("load").then(|| {
        Finding::trap(
            format!(
                "load_formula {formula} of the scheduler: harvested work counts in that load, so \
                 harvested hosts are booked last"
            ),
            "`qconf -msconf`: have load_formula go by slots, or by what a load sensor of yours reads from \
             loadavg in the agent's run folder",
        )
    })
}

/// What the site has beside ours that is to run and does not.
fn check_configurations(
    queues: &[(String, Attributes)],
    configurations: &Configurations,
    findings: &mut Vec<Finding>,
) {
    for script in &configurations.scripts {
        let Script { place, attribute, value } = script;
        let has_ours = |(_, has): &&(String, Attributes)| {
            has.get(attribute).is_some_and(|value| value == ours(attribute))
        };
        if let Some((queue, _)) = queues.iter().find(has_ours) {
            findings.push(Finding::wrong(
                format!("{place} has {attribute} {value}, which our own of queue {queue} keeps from running"),
                format!(
                    "have that script run `{}` as root first, then take ours out of each queue: `{}`",
                    call(attribute),
                    set(attribute, "NONE", queue).join(" ")
                ),
            ));
        }
    }
    findings.extend(configurations.unread.iter().map(|why| {
        Finding::note(
            format!("whether a host has a prolog or epilog of its own was not seen: {why}"),
            "`qconf -dconf HOST` takes the configuration of a host away that is gone",
        )
    }));
}

fn check_queue(
    name: &str,
    queue: &Attributes,
    configurations: &Configurations,
    findings: &mut Vec<Finding>,
) {
    for attribute in ATTRIBUTES {
        match (queue.get(attribute), configurations.of(attribute).next()) {
            (Some(value), _) if value == ours(attribute) => {
                findings.push(Finding::good(format!("queue {name} has our {attribute}")));
            }
            (None, Some(Script { place, value, .. })) => findings.push(Finding::note(
                format!(
                    "queue {name} has no {attribute} of its own, so {value} of {place} runs, and \
                     whether that runs ours cannot be seen from here"
                ),
                "start a render and look for its booking in `gleaner agent status`",
            )),
            (other, _) => findings.push(Finding::wrong(
                format!("queue {name} has {attribute} {}", other.unwrap_or("NONE")),
                "`gleaner farm install --farm grid-engine` sets it",
            )),
        }
    }
    for threshold in ["load_thresholds", "suspend_thresholds"] {
        let Some(value) = queue.get(threshold) else { continue };
        if value.contains("load") {
            findings.push(Finding::trap(
                format!("{threshold} {value} of queue {name}: harvested work counts in that load"),
                format!(
                    "`qconf -mattr queue {threshold} NONE {name}`, or a load sensor that reads \
                         loadavg in the agent's run folder"
                ),
            ));
        }
        if MEMORY.iter().any(|word| value.contains(word)) {
            findings.push(Finding::memory(&format!("{threshold} {value} of queue {name}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_ours_where_it_holds_for_all_hosts() {
        let value = |behind: &str| {
            let text = format!("qname all.q\nprolog {}{behind}\nepilog NONE\n", ours("prolog"));
            Attributes::parse(&text).get("prolog").expect("it has one").to_owned()
        };
        assert!(is_ours("prolog", &value("")));
        // As `qconf` prints what is too long for a line.
        for behind in
            [",[node1=/site/prolog]", ", \\\n    [node1=/site/prolog]", ",\\\n[node1=NONE]"]
        {
            assert!(!is_ours("prolog", &value(behind)), "{behind:?}");
        }
        assert!(!is_ours("epilog", &value("")));
    }
}

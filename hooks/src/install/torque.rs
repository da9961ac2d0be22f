//! Torque: `prologue` and `epilogue` of a MoM, on the first node of a job and, as `.parallel`, on
//! its others. A MoM runs a file of that name or none, so where one is there ours is not put.

use std::path::{Path, PathBuf};

use super::adapter::Adapter;
use super::{Finding, InstallError, Manager, Options, Plan, Site, scripts};

const USUAL: &str = "/var/spool/torque/mom_priv";

/// Less than this may end the scripts before they have ended themselves.
const ALARM_S_MIN: u32 = 5;
/// A MoM keeps so many seconds of a longer alarm for itself. Source: `get_child_exit_status` in
/// `src/resmom/prolog.c` of Torque.
const OF_THE_MOM_S: u32 = 10;

pub(super) struct Torque;

impl Adapter for Torque {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        let folder = folder(options);
        if site.mode(&folder).is_none() {
            return Err(InstallError::missing(
                format!("there is no folder {}", folder.display()),
                "say --folder where the MoM's mom_priv folder is",
            ));
        }
        for (text, path) in files(&folder) {
            if let Some(present) = site.read(&path)?.filter(|present| !is_ours(present)) {
                return Err(InstallError::Occupied {
                    place: path.display().to_string(),
                    what: format!("a script of {} lines", present.lines().count()),
                    to_do: format!(
                        "have it run `gleaner hook {} --farm pbs -- \"$@\"` first, as \
                         hooks/torque/README.md shows",
                        if text.contains("hook preflight") { "preflight" } else { "postflight" }
                    ),
                });
            }
            // A MoM runs no script that others than root may read or write.
            plan.put(site, &path, 0o500, text)?;
        }
        Ok(())
    }

    fn to_put_back(&self) -> Option<&'static str> {
        Some("put back what you took away for it: $ideal_load and $max_load in mom_priv/config")
    }

    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        let conf = folder(options).join("config");
        let text = site.read(&conf).ok().flatten().unwrap_or_default();
        for line in text.lines().map(str::trim) {
            if line.starts_with("$ideal_load") || line.starts_with("$max_load") {
                findings.push(Finding::trap(
                    format!("{} has {line}: harvested work counts in that load", conf.display()),
                    "take the line away, or the MoM calls a harvested host busy",
                ));
            }
            let alarm = line.strip_prefix("$prologalarm").and_then(|text| text.trim().parse().ok());
            if let Some(left_s) = alarm.map(left_of).filter(|left_s| *left_s < ALARM_S_MIN) {
                findings.push(Finding::trap(
                    format!(
                        "{} has {line}, of which a MoM leaves its scripts {left_s} s: on a bad day \
                         they take two",
                        conf.display()
                    ),
                    "set it to 15 or more: a prologue that times out has its job put back into the queue, again and again",
                ));
            }
        }
        findings.push(Finding::memory(
            "availmem, which a MoM tells the scheduler and by which it may book",
        ));
    }

    fn scripts(&self, options: &Options) -> Option<[PathBuf; 2]> {
        Some(["prologue", "epilogue"].map(|name| folder(options).join(name)))
    }

    fn probe_arguments(&self, booking: &str) -> [Vec<String>; 2] {
        let (asked, used) = ("nodes=1:ppn=1", "cput=00:00:00");
        let of = |rest: &[&str]| {
            let whose = [booking, "root", "root", "gleaner-probe"];
            whose.iter().chain(rest).map(|word| (*word).to_owned()).collect()
        };
        [of(&[asked, "", "", ""]), of(&["1", asked, used, "", "", "0", ""])]
    }
}

fn folder(options: &Options) -> PathBuf {
    options.folder.clone().unwrap_or_else(|| USUAL.into())
}

/// What is left of an alarm for the scripts.
fn left_of(alarm_s: u32) -> u32 {
    if alarm_s > OF_THE_MOM_S { alarm_s - OF_THE_MOM_S } else { alarm_s }
}

fn is_ours(text: &str) -> bool {
    text.contains("--farm pbs") && text.contains("GLEANER_HOOK_PARENT")
}

fn files(folder: &Path) -> impl Iterator<Item = (&'static str, PathBuf)> {
    let both = |file: &'static scripts::Ready| {
        ["", ".parallel"].map(|end| (file.text, format!("{}{end}", file.name)))
    };
    let folder = folder.to_owned();
    scripts::of(Manager::Torque)
        .iter()
        .flat_map(both)
        .map(move |(text, name)| (text, folder.join(name)))
}

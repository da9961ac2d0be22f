//! Qube!: files in the worker's flight check folders. Every file there runs unless its name ends
//! in `.txt`, so nothing else is put beside them.

use std::path::{Path, PathBuf};

use super::adapter::Adapter;
use super::{Finding, InstallError, Manager, Options, Plan, Site, scripts};

const USUAL: &str = "/usr/local/pfx/qube/flightCheck";
const CONFS: [&str; 2] = ["/etc/qb.conf", "/etc/qbwrk.conf"];
const KEY: &str = "worker_flight_check_path";

pub(super) struct Qube;

impl Adapter for Qube {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        let folder = folder(site, options)?;
        if site.mode(&folder).is_none() {
            return Err(InstallError::missing(
                format!("there is no folder {}", folder.display()),
                "say --folder where the worker's flightCheck folder is (below QBDIR)",
            ));
        }
        for (file, path) in files(&folder) {
            plan.put(site, &path, 0o755, file)?;
        }
        Ok(())
    }

    fn to_put_back(&self) -> Option<&'static str> {
        Some("put back what you changed for it: the load by which supervisor and workers book")
    }

    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        match folder(site, options) {
            Ok(folder) => {
                for kind in ["pre", "post"] {
                    let agenda = folder.join("agenda").join(kind);
                    if site.names(&agenda).iter().any(|name| name.contains("gleaner")) {
                        findings.push(Finding::wrong(
                            format!(
                                "{} has our check as well: each render is booked twice",
                                agenda.display()
                            ),
                            "keep it in instance or in agenda, not in both",
                        ));
                    }
                }
            }
            Err(error) => findings.push(Finding::wrong(error.to_string(), "")),
        }
        findings.push(Finding::trap(
            "a flight check is not told the cores where a job reserves no host.processors",
            "have jobs reserve them, or such a job books the whole host",
        ));
        findings.push(Finding::memory("what is left of it for a job that reserves host.memory"));
        findings.push(Finding::load_average("the load that a supervisor or worker books by"));
    }

    fn scripts(&self, _options: &Options) -> Option<[PathBuf; 2]> {
        None
    }
}

fn folder(site: &Site, options: &Options) -> Result<PathBuf, InstallError> {
    if let Some(folder) = &options.folder {
        return Ok(folder.clone());
    }
    // The worker's own file has the last word; of several folders the first is a worker's own.
    let mut folder = PathBuf::from(USUAL);
    for conf in CONFS {
        let text = site.read(Path::new(conf))?.unwrap_or_default();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let value =
            lines.filter_map(|line| line.split_once('=')).find(|(key, _)| key.trim() == KEY);
        if let Some(first) = value.and_then(|(_, paths)| paths.split(',').next()) {
            folder = first.trim().into();
        }
    }
    Ok(folder)
}

fn files(folder: &Path) -> impl Iterator<Item = (&'static str, PathBuf)> {
    let instance = folder.join("instance");
    scripts::of(Manager::Qube).iter().map(move |file| {
        let kind = if file.name == "preflight" { "pre" } else { "post" };
        (file.text, instance.join(kind).join(format!("gleaner-{}", file.name)))
    })
}

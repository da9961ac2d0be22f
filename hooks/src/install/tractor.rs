//! Tractor: the blade's site status filter, in the folder that `SiteModulesPath` names.

use std::path::PathBuf;

use super::adapter::Adapter;
use super::{Finding, InstallError, Manager, Options, Plan, Site, scripts};

const FILTER: &str = "TractorSiteStatusFilter.py";

pub(super) struct Tractor;

impl Adapter for Tractor {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        scripts::put_called_by_python(Manager::Tractor, site, plan)?;
        let Some(folder) = options.folder.as_ref().filter(|_| !options.files_only) else {
            plan.notes.push(
                "once every blade has the files, install with --folder, the folder that \
                 SiteModulesPath in blade.config names, on a host that can write it"
                    .into(),
            );
            return Ok(());
        };
        if site.mode(folder).is_none() {
            return Err(InstallError::missing(
                format!("there is no folder {}", folder.display()),
                "make it and name it as SiteModulesPath in blade.config, or say --folder",
            ));
        }
        let filter = folder.join(FILTER);
        if let Some(text) = site.read(&filter)?.filter(|text| !text.contains("gleaner_tractor")) {
            return Err(InstallError::Occupied {
                place: filter.display().to_string(),
                what: format!("a status filter of {} lines", text.lines().count()),
                to_do:
                    "in it say `from gleaner_tractor import Gleaner`, put Gleaner before its base \
                        class, and install again (hooks/tractor/README.md)"
                        .into(),
            });
        }
        let is_the_sites = site.read(&filter)?.is_some_and(|text| !is_ours(&text));
        for file in scripts::of(Manager::Tractor) {
            // One of the site's own that has us already stays.
            if file.name != FILTER || !is_the_sites {
                plan.put(site, &folder.join(file.name), 0o644, file.text)?;
            }
        }
        plan.notes.push("have the blades reload their profile to read the filter".into());
        Ok(())
    }

    fn to_put_back(&self) -> Option<&'static str> {
        Some("put back what you changed for it: MaxLoad and MinRAM of the blade profiles")
    }

    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        if let Some(folder) = &options.folder {
            let filter = folder.join(FILTER);
            match site.read(&filter) {
                Ok(Some(text)) if text.contains("gleaner_tractor") => {
                    findings.push(Finding::good(format!("{} has Gleaner in it", filter.display())));
                }
                Ok(_) => findings.push(Finding::wrong(
                    format!("{} has no Gleaner in it", filter.display()),
                    "`gleaner farm install --farm tractor --folder FOLDER` puts it there",
                )),
                Err(error) => findings.push(Finding::wrong(error.to_string(), "")),
            }
        }
        findings.push(Finding::trap(
            "a blade tells its filter when a command has been started, not before",
            "that cannot be changed: cores are freed some milliseconds after the start",
        ));
        findings.push(Finding::load_average("MaxLoad of the blade profiles (1.5 unless set)"));
        findings.push(Finding::memory("MinRAM of the blade profiles (1 GB unless set)"));
    }

    fn scripts(&self, _options: &Options) -> Option<[PathBuf; 2]> {
        Some(["preflight", "postflight"].map(|name| scripts::path(Manager::Tractor, name)))
    }
}

fn is_ours(text: &str) -> bool {
    text.starts_with("\"\"\"The blade's status filter with Gleaner before it.")
}

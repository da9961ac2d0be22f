//! Deadline: an event plugin in the repository, and what it calls on each Worker's own disk.

use std::path::PathBuf;

use super::adapter::Adapter;
use super::{Finding, InstallError, Manager, Options, Plan, Site, scripts};

pub(super) struct Deadline;

impl Adapter for Deadline {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        scripts::put_called_by_python(Manager::Deadline, site, plan)?;
        match events(options) {
            Some(events) if !options.files_only => {
                let custom = events.parent().map(PathBuf::from).unwrap_or_default();
                if site.mode(&custom).is_none() {
                    return Err(InstallError::missing(
                        format!("there is no folder {}", custom.display()),
                        "say --folder where the repository's root is",
                    ));
                }
                scripts::put_into(&events, scripts::of(Manager::Deadline), site, plan)?;
                plan.notes.push(
                    "see in the Monitor under Tools, Configure Events that Gleaner is enabled"
                        .into(),
                );
            }
            _ => plan.notes.push(
                "on one host that can write the repository, install with --folder REPOSITORY once \
                 every Worker has the files: that puts the event plugin into custom/events"
                    .into(),
            ),
        }
        Ok(())
    }

    fn to_put_back(&self) -> Option<&'static str> {
        Some(
            "put back what you changed for it: thresholds of Idle Detection and Worker \
             Scheduling",
        )
    }

    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        if let Some(events) = events(options) {
            for file in scripts::of(Manager::Deadline) {
                let path = events.join(file.name);
                match site.mode(&path) {
                    Some(_) => findings.push(Finding::good(format!("{} is there", path.display()))),
                    None => findings.push(Finding::wrong(
                        format!("there is no {}", path.display()),
                        "`gleaner farm install --farm deadline --folder REPOSITORY` puts it there",
                    )),
                }
            }
        }
        findings.push(Finding::trap(
            "whether Deadline waits for an event plugin before it renders is not documented",
            "see with a test job that the Worker's log has Gleaner's event before the render",
        ));
        findings.push(Finding::trap(
            "Idle Detection and Slave Scheduling may judge by CPU use or memory, in which harvested \
             work counts",
            "take those thresholds away for harvested Workers",
        ));
    }

    fn scripts(&self, _options: &Options) -> Option<[PathBuf; 2]> {
        Some(["preflight", "postflight"].map(|name| scripts::path(Manager::Deadline, name)))
    }
}

/// Where the plugin belongs, if the repository is named.
fn events(options: &Options) -> Option<PathBuf> {
    options.folder.as_ref().map(|repository| repository.join("custom/events/Gleaner"))
}

//! Afanasy: a few lines in `services/__init__.py` of its Python, which every service comes through.

use std::path::{Path, PathBuf};

use super::adapter::Adapter;
use super::{Finding, InstallError, Manager, Options, Plan, Site, block, folder, scripts};

const USUAL: &str = "/opt/cgru/afanasy/python/services";

pub(super) struct Afanasy;

impl Adapter for Afanasy {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        scripts::put_called_by_python(Manager::Afanasy, site, plan)?;
        scripts::put(Manager::Afanasy, site, plan)?;
        if options.files_only {
            return Ok(());
        }
        let file = init(options);
        let Some(text) = site.read(&file)? else {
            return Err(InstallError::missing(
                format!("there is no {}", file.display()),
                "say --folder where the folder afanasy/python/services of CGRU is",
            ));
        };
        plan.edit(&file, &text, &lines(), None)?;
        plan.notes.push("renders read it when they start: restart afrender".into());
        Ok(())
    }

    fn to_put_back(&self) -> Option<&'static str> {
        Some(
            "put back what you changed for it: busy_cpu, busy_mem and busy_swap of the \
             renders' configuration",
        )
    }

    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        let file = init(options);
        let text = site.read(&file).ok().flatten().unwrap_or_default();
        match block::has_block(&text) {
            Ok(true) => findings.push(Finding::good(format!("{} has our lines", file.display()))),
            Ok(false) => findings.push(Finding::wrong(
                format!("{} does not have our lines", file.display()),
                "`gleaner farm install --farm afanasy` puts them there",
            )),
            Err(error) => findings.push(Finding::wrong(
                format!("{}: {error}", file.display()),
                "put the two lines right, or remove what is between them",
            )),
        }
        findings.push(Finding::trap(
            "nothing tells of a task that the server closes in its first moments",
            "booking_limit_s of the monitor ends what is left of such a task, or poll afserver",
        ));
        findings.push(Finding::load_average("busy_cpu of the renders' configuration"));
        findings.push(Finding::memory("busy_mem and busy_swap of the renders' configuration"));
    }

    fn scripts(&self, _options: &Options) -> Option<[PathBuf; 2]> {
        Some(["preflight", "postflight"].map(|name| scripts::path(Manager::Afanasy, name)))
    }
}

fn init(options: &Options) -> PathBuf {
    options.folder.as_deref().unwrap_or(Path::new(USUAL)).join("__init__.py")
}

/// They do nothing on a host that has no Gleaner, and raise nowhere.
fn lines() -> Vec<String> {
    let folder = folder(Manager::Afanasy);
    [
        "try:",
        "    import sys",
        &format!("    sys.path.append(\"{}\")", folder.display()),
        "    import gleaner_afanasy",
        "    from services import service",
        "    gleaner_afanasy.attach(service.service)",
        "except Exception:",
        "    pass",
    ]
    .map(String::from)
    .to_vec()
}

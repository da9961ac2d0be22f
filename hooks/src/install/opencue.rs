//! OpenCue: a wrapper around each frame's command, called by PyOutline's own wrapper scripts; and the
//! agent's watch of RQD where an administrator names it.

use std::path::{Path, PathBuf};

use super::adapter::{Adapter, When};
use super::record::Record;
use super::{Finding, InstallError, Manager, Options, Plan, Site, block, scripts, watched};

/// PyOutline's wrappers, of which a site has some.
const WRAPPERS: [&str; 2] = ["opencue_wrap_frame", "opencue_wrap_frame_no_ss"];

pub(super) struct OpenCue;

impl Adapter for OpenCue {
    fn plan(&self, site: &Site, options: &Options, plan: &mut Plan) -> Result<(), InstallError> {
        scripts::put(Manager::OpenCue, site, plan)?;
        if is_watched(options) {
            watched::OPENCUE.plan_watch(site, options, plan)?;
        }
        let frame = frame();
        let Some(folder) = options.folder.as_ref().filter(|_| !options.files_only) else {
            plan.notes.push(format!(
                "frames have to be started through {}: with --folder, PyOutline's wrapper_dir, that \
                 is done for all frames of PyOutline once every host has the files; else put `{}` \
                 before the commands that you submit, which renders on a host without that file too",
                frame.display(),
                guarded(&frame)
            ));
            return Ok(());
        };
        let mut found = false;
        for name in WRAPPERS {
            let path = folder.join(name);
            let Some(text) = site.read(&path)? else { continue };
            found = true;
            let Some(before) = line_of_the_command(&text) else {
                return Err(InstallError::missing(
                    format!("{} has no line `eval $argv`", path.display()),
                    format!("put {} before the command that it runs yourself", frame.display()),
                ));
            };
            plan.edit(&path, &text, &lines(&frame), Some(before))?;
        }
        if !found {
            return Err(InstallError::missing(
                format!("{} has none of {}", folder.display(), WRAPPERS.join(", ")),
                "say --folder where wrapper_dir of outline.cfg is",
            ));
        }
        Ok(())
    }

    fn reload(&self, site: &Site, options: &Options, plan: &mut Plan) {
        if is_watched(options) {
            watched::OPENCUE.reload(site, options, plan);
        }
    }

    fn may_still_run(&self, site: &Site, record: &Record, when: When) -> Option<String> {
        let is_watched = is_watched(&record.options);
        is_watched.then(|| watched::OPENCUE.may_still_run(site, record, when)).flatten()
    }

    /// Nobody can say which commands wait in a queue, nor who has them in a configuration.
    fn outlives_it(&self) -> Option<String> {
        let frame = frame();
        Some(format!(
            "commands that were submitted as `{} …`, or that a job type of Flamenco's or a render \
             application of Royal Render's has so, end with 127 on a host without that file and fail \
             their frames: change them first. As `{} …` they render without it, and so do frames of \
             PyOutline",
            frame.display(),
            guarded(&frame)
        ))
    }

    /// The Rust RQD ends its watch of the machine where it cannot read that file.
    fn to_put_back(&self) -> Option<&'static str> {
        Some(
            "put back what you set for it: where you set proc_loadavg_path of an RQD to loadavg of the agent's run folder, set it to \
             /proc/loadavg and restart that RQD before you remove Gleaner, or after the next boot it \
             finds no such file; take LOAD_MODIFIER out of rqd.conf where you set that",
        )
    }

    fn check(&self, site: &Site, options: &Options, findings: &mut Vec<Finding>) {
        if is_watched(options) {
            watched::OPENCUE.check_watch(site, options, findings);
        }
        match &options.folder {
            Some(folder) => {
                for path in WRAPPERS.map(|name| folder.join(name)) {
                    let Ok(Some(text)) = site.read(&path) else { continue };
                    findings.push(match block::has_block(&text) {
                        Ok(true) => {
                            Finding::good(format!("{} starts frames through us", path.display()))
                        }
                        _ => Finding::wrong(
                            format!("{} does not start frames through us", path.display()),
                            "`gleaner farm install --farm opencue --folder FOLDER` has it do so",
                        ),
                    });
                }
            }
            None => findings.push(Finding::note(
                "whether frames are started through gleaner-frame cannot be seen from here",
                "say --folder where PyOutline's wrapper_dir is",
            )),
        }
        findings.push(Finding::trap(
            "Cuebot takes idle cores as cores × 1.05 less the load average, in which harvested work \
             counts",
            "point proc_loadavg_path of the Rust RQD at loadavg in the agent's run folder (there from boot \
             on with the package or the tarball), and back before you remove Gleaner; for the Python RQD set LOAD_MODIFIER below [Override] in rqd.conf to -100 times the cores that it \
             has, and restart it: that much load of anything else is not seen by Cuebot either",
        ));
        findings.push(Finding::trap(
            "with run_as_user, frames of the Rust RQD are in the group default_gid of rqd.yaml (20 unless \
             said) and in none of their users', so that their hooks may not reach the agent",
            "where you set run_as_user, set default_gid to the number of the run folder's group",
        ));
        findings.push(Finding::trap(
            "Cuebot kills frames above 90 % of memory (the Rust RQD at 96 %) and books no host with \
             less than 512 MB free",
            "set reserve_memory_mib of the monitor to a tenth of the host's memory and 512 MiB",
        ));
    }

    fn scripts(&self, _options: &Options) -> Option<[PathBuf; 2]> {
        None
    }
}

/// Whether an administrator has named RQD, for the agent to watch.
fn is_watched(options: &Options) -> bool {
    !options.workers.is_empty()
}

/// The wrapper.
fn frame() -> PathBuf {
    scripts::path(Manager::OpenCue, "gleaner-frame")
}

/// What stands before a command that is started through the wrapper where that is, and without it where
/// it is not.
fn guarded(frame: &Path) -> String {
    let frame = frame.display();
    format!(r#"sh -c '[ -x {frame} ] && exec {frame} "$@"; exec "$@"' gleaner-frame"#)
}

/// The line, counted from 0, from which on the wrapper speaks of its command as it is to run.
fn line_of_the_command(text: &str) -> Option<usize> {
    let without = block::without_block(text).ok()?;
    let is_command = |line: &str| line.trim() == "eval $argv";
    let command = without.lines().position(is_command)?;
    let says = |line: &str| line.trim_start().starts_with("echo About to run");
    Some(without.lines().position(says).filter(|line| *line < command).unwrap_or(command))
}

/// In the C shell, in which the wrappers are written. A host without the files renders as before.
fn lines(frame: &Path) -> Vec<String> {
    let frame = frame.display();
    vec![format!("if (-x {frame}) set argv = ({frame} $argv:q)")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_commands_started_as_a_host_without_the_wrapper_can_too() {
        let guarded = guarded(&frame());
        for page in [
            include_str!("../../opencue/README.md"),
            include_str!("../../flamenco/README.md"),
            include_str!("../../royal-render/README.md"),
        ] {
            assert!(page.contains(&guarded), "no {guarded} in {page}");
        }
    }
}

//! Has the hooks fire once, and looks whether they did what they are for.
//!
//! Where the manager runs a job when asked (Slurm, Grid Engine, OpenPBS, HTCondor), the job itself looks: its booking
//! must stand in the run folder before its first instruction, and must be gone soon after its
//! end. Else, and where it refuses the job, the scripts are called as the manager would call them, by who
//! may do what they do; where it calls none, a stand-in for its worker starts a process, which the agent
//! has to see.

mod job;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gleaner_protocol::farm::SampledBooking;
use gleaner_protocol::{BookingId, Span, boottime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::geteuid;

use super::check::as_installed;
use super::record::Record;
use super::{Finding, HookSettings, InstallError, Manager, Options, Site, adapter};
use crate::RunDir;
use crate::farm::FALLBACK;
use crate::limits::PROBE_END_WAIT;
use job::Patience;

/// Has the hooks fire. Harvested work on this host is stopped, as by any render.
///
/// # Errors
/// Nothing of ours is recorded here, or the run folder cannot be used.
pub fn probe(
    manager: Manager,
    site: &Site,
    options: &Options,
) -> Result<Vec<Finding>, InstallError> {
    if !site.is_here() {
        return Err(InstallError::missing(
            "hooks fire on a host that runs, and this is another's tree",
            "probe there, without --root",
        ));
    }
    let record = Record::read(manager, site)?.ok_or_else(|| InstallError::NotInstalled {
        manager,
        path: super::record::path(manager),
    })?;
    let options = as_installed(&record, options);
    let run_dir = HookSettings::of(manager, site)?.value("GLEANER_RUN_DIR");
    let run_dir = run_dir.map_or(options.run_dir.clone(), PathBuf::from);
    let real = site.real(&run_dir);
    let folder = RunDir::open(&real).map_err(|error| {
        InstallError::missing(
            error.to_string(),
            "start the agent, or see GLEANER_RUN_DIR of the settings",
        )
    })?;
    let adapter = adapter::of(manager);
    let workers = adapter.probe_workers(&options);
    if !workers.is_empty() {
        return Ok(workers.iter().flat_map(|name| worker::by_worker(name, &folder)).collect());
    }
    let job = adapter.probe_job(&options).filter(|job| site.has_program(job.program));
    let refused = match job.map(|job| job.run(site, &real, &folder, Patience::USUAL)) {
        Some(Ok(findings)) => return Ok(findings),
        // Its scripts are root's, and could book nothing for anybody else.
        Some(Err(refused)) if !geteuid().is_root() && !manager.runs_hooks_as_users() => {
            return Ok(vec![refused]);
        }
        Some(Err(refused)) => Some(refused),
        None => None,
    };
    let scripts = adapter.scripts(&options).unwrap_or_else(|| own_in_record(&record));
    let booking = format!("gleaner-probe.{}", std::process::id());
    let ([before, after], [begins, ends]) = (scripts, adapter.probe_arguments(&booking));
    let calls =
        [(before, begins), (after, ends)].map(|(script, arguments)| Call { script, arguments });
    let mut findings = by_scripts(&calls, &booking, &record, site, &folder);
    if geteuid().is_root() && manager.runs_hooks_as_users() {
        findings.push(Finding::note(
            format!("this called the scripts as root, and {manager} runs them as other users"),
            format!(
                "once more as one of those: `runuser -u NAME -- gleaner farm check --farm {manager} \
                 --probe`"
            ),
        ));
    }
    Ok(refused.into_iter().chain(findings).collect())
}

/// Scripts that are where the options said, as the record has them.
fn own_in_record(record: &Record) -> [PathBuf; 2] {
    let find = |word: &str| {
        let is = |path: &&PathBuf| path.to_string_lossy().ends_with(word);
        record.files.keys().find(is).cloned().unwrap_or_default()
    };
    [find("preflight"), find("postflight")]
}

/// Whether the bookings become so within the time.
fn until(folder: &RunDir, limit: Span, is_so: impl Fn(&[SampledBooking]) -> bool) -> bool {
    let end = boottime() + limit;
    let watch = watch_bookings(folder.path());
    loop {
        if folder.bookings().is_ok_and(|all| is_so(&all)) {
            return true;
        }
        let left = end.since(boottime());
        if left == Span::ZERO || !wait(watch.as_ref(), left) {
            return false;
        }
    }
}

/// Tells of each change among the bookings.
fn watch_bookings(run_dir: &Path) -> Option<std::os::fd::OwnedFd> {
    let watch =
        inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok()?;
    let lives =
        fs::read_dir(run_dir).ok()?.filter_map(|entry| Some(entry.ok()?.path().join("bookings")));
    let all =
        inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::DELETE | inotify::WatchFlags::CREATE;
    for bookings in lives.filter(|bookings| bookings.is_dir()) {
        inotify::add_watch(&watch, bookings, all).ok()?;
    }
    Some(watch)
}

/// Whether something has changed within the time.
fn wait(watch: Option<&std::os::fd::OwnedFd>, limit: Span) -> bool {
    let Some(watch) = watch else { return false };
    let Ok(limit) = Timespec::try_from(std::time::Duration::from(limit)) else { return false };
    let changed = poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&limit));
    // What has changed is looked up, so the news themselves are not read.
    let mut news = [0; 4096];
    let _ = rustix::io::read(watch, &mut news);
    matches!(changed, Ok(1) | Err(rustix::io::Errno::INTR))
}

/// A script, and what it is given.
struct Call {
    script: PathBuf,
    arguments: Vec<String>,
}

fn by_scripts(
    calls: &[Call; 2],
    booking: &str,
    record: &Record,
    site: &Site,
    folder: &RunDir,
) -> Vec<Finding> {
    let [preflight, postflight] = calls;
    let [Call { script: before, .. }, Call { script: after, .. }] = calls;
    let count = || folder.epoch().map(|epoch| epoch.count).unwrap_or_default();
    let all = || folder.bookings().unwrap_or_default();
    let (epochs, known) = (count(), all());
    // Renders come and go meanwhile. A script that knows its manager's jobs alone falls back on its caller.
    let is_own = |id: &BookingId| {
        let is_named = id.as_str().contains(booking) || id.as_str().starts_with(FALLBACK);
        is_named && known.iter().all(|before| before.booking != *id)
    };
    let own = || all().into_iter().map(|one| one.booking).find(is_own);
    let mut findings = Vec::new();
    // Where nothing is called after a render, its process ends the booking: this one's.
    let render = (!record.files.contains_key(after)).then(stand_in).flatten();
    let mut begun = None;
    match call(site, preflight, booking, render.as_ref()) {
        Ok(took) => {
            begun = own().filter(|_| count() > epochs);
            let (script, run_dir) = (before.display(), folder.path().display());
            findings.push(match begun {
                Some(_) => Finding::good(format!("{script} booked the host in {took}")),
                None => Finding::wrong(
                    format!("{script} ran and booked nothing in {run_dir}"),
                    "run it in a terminal, which shows what it says; see GLEANER and GLEANER_RUN_DIR",
                ),
            });
        }
        Err(why) => findings.push(unfit(before, &why)),
    }
    let ended = match render {
        Some(mut render) => {
            // Its input ends, and so does it.
            drop(render.stdin.take());
            let _ = render.wait();
            Ok(None)
        }
        None => call(site, postflight, booking, None).map(Some),
    };
    let is_over = |booking| until(folder, PROBE_END_WAIT, |all| !has(all, booking));
    match (ended, begun) {
        (Ok(took), Some(booking)) if is_over(&booking) => {
            let by = took.map_or("its process's end".into(), |took| {
                format!("{} in {took}", after.display())
            });
            findings.push(Finding::good(format!("the booking was ended by {by}")));
        }
        (Ok(_), Some(_)) => findings.push(Finding::wrong(
            "the booking stands after the render's end",
            "run the script after it in a terminal, which shows what it says",
        )),
        // What has not begun has no end to be seen.
        (Ok(_), None) => {}
        (Err(why), _) => findings.push(unfit(after, &why)),
    }
    findings.push(Finding::note(
        "this called the scripts; whether the manager calls them only a job of its shows",
        "start a render and look for its booking in `gleaner agent status`",
    ));
    findings
}

fn has(all: &[SampledBooking], booking: &BookingId) -> bool {
    all.iter().any(|one| one.booking == *booking)
}

fn unfit(script: &Path, why: &str) -> Finding {
    Finding::wrong(format!("{}: {why}", script.display()), "install again")
}

/// A process that lasts until its input ends.
fn stand_in() -> Option<Child> {
    Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().ok()
}

/// Calls a script as its manager does, be it one that names no job; how long it took.
fn call(site: &Site, call: &Call, booking: &str, render: Option<&Child>) -> Result<Span, String> {
    let begun = boottime();
    let status = Command::new(site.real(&call.script))
        .args(render.map(|render| render.id().to_string()))
        .args(&call.arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("GLEANER_BOOKING", booking)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| error.to_string())?;
    match status.code() {
        Some(0) => Ok(boottime().since(begun)),
        _ => Err(format!("it ended with {status}, which may fail a render")),
    }
}

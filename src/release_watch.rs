//! How long a host's harvested work takes to stop when a render starts, seen from outside.
//!
//! While a hook runs, a thread looks many times per millisecond at the processes that the
//! host's agent has noted in its run folder. Neither the hook nor the agent is asked.
//!
//! # Invariants
//! - A process counts as working until it is seen stopped, frozen, killed or gone, or waiting
//!   for work.
//! - The time counts from before the hook's process is made.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use gleaner_hooks::{ProcessStat, RunDir, TaskGroup};
use gleaner_protocol::{Span, Time, boottime};
use tokio::sync::oneshot;

/// Pause between two looks.
const CADENCE: Duration = Duration::from_micros(200);
/// How long it must have stayed calm after the hook has ended.
const SETTLED: Span = Span::from_millis(3);
/// After how long the watch ends whatever runs.
const WATCH_MAX: Span = Span::from_secs(2);

/// What a watch saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    /// From the hook's start until no more processes worked than may; none where there never
    /// were more.
    pub(crate) took: Option<Span>,
    /// Whether too many still worked when the watch gave up.
    pub(crate) unfinished: bool,
}

/// A thread that watches one hook's host.
pub(crate) struct ReleaseWatch {
    hook_ended: Arc<AtomicBool>,
    thread: JoinHandle<Release>,
}

impl ReleaseWatch {
    /// Begins to watch; returns when the first look is done, so that the hook may start.
    /// `allowed` processes may go on working.
    pub(crate) async fn start(run_dir: RunDir, allowed: usize) -> anyhow::Result<Self> {
        let hook_ended = Arc::new(AtomicBool::new(false));
        let (looked, first_look) = oneshot::channel();
        let ended = Arc::clone(&hook_ended);
        let thread = thread::Builder::new()
            .name("release-watch".into())
            .spawn(move || watch(&run_dir, allowed, looked, &ended))
            .context("cannot start the thread that watches a release")?;
        // A thread that dropped its end has ended, and is joined below.
        let _ = first_look.await;
        Ok(Self { hook_ended, thread })
    }

    /// To be called when the hook has ended.
    pub(crate) fn hook_ended(&self) {
        self.hook_ended.store(true, Ordering::Release);
    }

    /// What it saw. Returns at once if the hook ended more than a moment ago.
    pub(crate) fn finish(self) -> Release {
        self.hook_ended();
        self.thread.join().expect("the watch does not panic")
    }
}

/// How many harvested processes of a host work now.
pub(crate) fn working_now(run_dir: &RunDir) -> usize {
    Looker::new(run_dir).working()
}

fn watch(
    run_dir: &RunDir,
    allowed: usize,
    looked: oneshot::Sender<()>,
    hook_ended: &AtomicBool,
) -> Release {
    let mut looker = Looker::new(run_dir);
    let mut record = Record::default();
    record.note(boottime(), looker.working() > allowed);
    // Nobody waits for it only where the command is being stopped.
    let _ = looked.send(());
    let started = boottime();
    loop {
        thread::sleep(CADENCE);
        let ended = hook_ended.load(Ordering::Acquire);
        let too_many = looker.working() > allowed;
        let now = boottime();
        record.note(now, too_many);
        if (ended && record.calm_for(now) >= SETTLED) || now.since(started) >= WATCH_MAX {
            return record.release(started);
        }
    }
}

/// When there were too many, and since when there are no more.
#[derive(Debug, Default)]
struct Record {
    ever_too_many: bool,
    calm_since: Option<Time>,
}

impl Record {
    fn note(&mut self, now: Time, too_many: bool) {
        self.ever_too_many |= too_many;
        self.calm_since = if too_many { None } else { self.calm_since.or(Some(now)) };
    }

    fn calm_for(&self, now: Time) -> Span {
        self.calm_since.map_or(Span::ZERO, |since| now.since(since))
    }

    fn release(&self, started: Time) -> Release {
        let calm_since = self.calm_since.filter(|_| self.ever_too_many);
        Release {
            took: calm_since.map(|calm| calm.since(started)),
            unfinished: self.calm_since.is_none(),
        }
    }
}

struct Looker<'a> {
    run_dir: &'a RunDir,
    /// CPU time of each process when it was looked at last, in nanoseconds.
    cpu_ns: BTreeMap<TaskGroup, u64>,
}

impl<'a> Looker<'a> {
    const fn new(run_dir: &'a RunDir) -> Self {
        Self { run_dir, cpu_ns: BTreeMap::new() }
    }

    fn working(&mut self) -> usize {
        // A folder that cannot be read has no work: the agent could not start any either.
        let groups = self.run_dir.groups().unwrap_or_default();
        groups.into_iter().filter(|group| self.is_working(*group)).count()
    }

    fn is_working(&mut self, group: TaskGroup) -> bool {
        let Ok(stat) = ProcessStat::of(group.pgid) else { return false };
        if stat.start_ticks != group.leader_start_ticks {
            return false;
        }
        let ran = self.has_run(group);
        match stat.state {
            'R' => !is_dying(group.pgid),
            // So it also stands in the freezer of a control group of the first version, where it
            // uses no time.
            'D' => ran && !is_dying(group.pgid),
            _ => false,
        }
    }

    /// Whether it has had CPU time since the last look.
    fn has_run(&mut self, group: TaskGroup) -> bool {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", group.pgid));
        let now = text.ok().and_then(|text| text.split(' ').next()?.parse().ok());
        let Some(now) = now else { return true };
        self.cpu_ns.insert(group, now).is_none_or(|before| now > before)
    }
}

/// Whether it has been killed: what it still does is to give back what it has, and none of it is
/// an instruction of its own.
fn is_dying(pid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kill = 1_u64 << (SIGKILL - 1);
    let pending = |line: &str| {
        let set = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(set.trim(), 16).ok()
    };
    // One that is past its signals has given back its memory, or is about to.
    !text.contains("VmRSS:") || text.lines().filter_map(pending).any(|set| set & kill != 0)
}

const SIGKILL: u32 = 9;

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Busy(Child);

    impl Busy {
        /// A process that computes for ever, noted as harvested work.
        fn start(run_dir: &RunDir) -> (Self, TaskGroup) {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "while :; do :; done"]).process_group(0).stdin(Stdio::null());
            let child = command.spawn().expect("a shell");
            let pid = i32::try_from(child.id()).expect("a pid");
            let group = TaskGroup::of_leader(pid).expect("a group");
            run_dir.register_group(&group).expect("noted");
            (Self(child), group)
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[tokio::test]
    async fn the_time_until_the_last_one_stops_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path().join("run")).expect("a run folder");
        let (_one, first) = Busy::start(&run_dir);
        let (_other, second) = Busy::start(&run_dir);
        assert_eq!(working_now(&run_dir), 2);
        let before = boottime();
        let watch = ReleaseWatch::start(run_dir.clone(), 0).await.expect("a watch");
        gleaner_hooks::freeze(first.pgid).expect("frozen");
        gleaner_hooks::freeze(second.pgid).expect("frozen");
        let release = watch.finish();
        assert!(release.took.expect("it was released") <= boottime().since(before));
        assert!(!release.unfinished);
        assert_eq!(working_now(&run_dir), 0);
    }

    #[tokio::test]
    async fn what_may_go_on_is_no_release() {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path().join("run")).expect("a run folder");
        let (_one, _) = Busy::start(&run_dir);
        let watch = ReleaseWatch::start(run_dir.clone(), 1).await.expect("a watch");
        assert_eq!(watch.finish(), Release { took: None, unfinished: false });
    }

    #[test]
    fn work_that_comes_back_moves_the_moment() {
        let at = Time::from_micros;
        let mut record = Record::default();
        for (now, too_many) in [(0, true), (10, false), (20, true), (30, false), (40, false)] {
            record.note(at(now), too_many);
        }
        let release = record.release(at(5));
        assert_eq!(release.took, Some(Span::from_micros(25)));
        assert_eq!(record.calm_for(at(45)), Span::from_micros(15));
    }
}

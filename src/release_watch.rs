//! How long a host's harvested work takes to stop when a render starts, seen from outside.
//!
//! While a hook runs, a thread looks many times per millisecond at the processes of the groups that
//! the host's agent has noted in its run folder. A group is led by a runner, and the last process
//! below the runner does the work: a kernel computes there in a single thread. So who watches these
//! has watched all ([`work_alone`] says whether that is so). Neither the hook nor the agent is asked.
//!
//! # Invariants
//! - A process counts as working until it is seen stopped, killed or gone, or waiting for work, or
//!   until the end of a look since which it has had no time of a core (it is frozen).
//! - One that is noted no more has worked until that is seen, if it was not seen to have stopped.
//! - The time counts from before the hook's process is made.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
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
/// CPU time after which a runner computes: it has used a few milliseconds when it is ready.
const STARTED: Span = Span::from_millis(20);
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

/// How many of them compute: they are at work, and have had more of a core than it takes to start
/// one.
pub(crate) fn computing_now(run_dir: &RunDir) -> usize {
    let mut looker = Looker::new(run_dir);
    looker.working();
    looker
        .known
        .values()
        .filter(|watched| watched.doing != Doing::Stands && watched.has_started())
        .count()
}

/// Whether those that a watch looks at are all that work: each has one thread, and those above it,
/// which wait for it, have no other child. To look takes too long while time is measured.
pub(crate) fn work_alone(run_dir: &RunDir) -> bool {
    let is_alone = |group: TaskGroup| {
        let mut pid = group.pgid;
        loop {
            match children(pid)[..] {
                [] => break,
                [child] => pid = child,
                _ => return false,
            }
        }
        // One that has ended has no thread.
        fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count) <= 1
    };
    run_dir.groups().unwrap_or_default().into_iter().all(is_alone)
}

/// Most processes from a group's leader down to the one that does its work.
const DEPTH_MAX: usize = 8;

/// The process that does a group's work: the last one below its leader.
fn worker_of(leader: i32) -> i32 {
    let mut pid = leader;
    for _ in 0..DEPTH_MAX {
        let Some(child) = children(pid).last().copied() else { break };
        pid = child;
    }
    pid
}

/// What a process's first thread has started.
fn children(pid: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn watch(
    run_dir: &RunDir,
    allowed: usize,
    looked: oneshot::Sender<()>,
    hook_ended: &AtomicBool,
) -> Release {
    let mut looker = Looker::new(run_dir);
    let mut record = Record::default();
    record.note(looker.calm_since(allowed));
    let started = boottime();
    // Nobody waits for it only where the command is being stopped.
    let _ = looked.send(());
    loop {
        thread::sleep(CADENCE);
        let ended = hook_ended.load(Ordering::Acquire);
        record.note(looker.calm_since(allowed));
        let now = boottime();
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
    /// None where there are too many now.
    fn note(&mut self, calm_since: Option<Time>) {
        self.ever_too_many |= calm_since.is_none();
        self.calm_since = calm_since.map(|since| self.calm_since.unwrap_or(since));
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
    known: BTreeMap<TaskGroup, Watched>,
    /// When the last of those that are noted no more stopped, or was found to be gone.
    gone: Time,
}

impl<'a> Looker<'a> {
    const fn new(run_dir: &'a RunDir) -> Self {
        Self { run_dir, known: BTreeMap::new(), gone: Time::ZERO }
    }

    /// When the last of those that work no more was seen to have stopped; none where more than
    /// `allowed` work.
    ///
    /// Those that computed are looked at first, and no more of them than it takes: a look at
    /// everybody takes a millisecond, and time of the processors that are to be released.
    fn calm_since(&mut self, allowed: usize) -> Option<Time> {
        let computed = self.known.values_mut().filter(|watched| watched.doing == Doing::Computes);
        let compute = computed.map(Watched::look).filter(|doing| *doing == Doing::Computes);
        if compute.take(allowed + 1).count() > allowed || self.working() > allowed {
            return None;
        }
        let stopped = self
            .known
            .values()
            .filter_map(|watched| (watched.doing == Doing::Stands).then_some(watched.since));
        Some(stopped.fold(self.gone, Time::max))
    }

    /// How many processes work.
    fn working(&mut self) -> usize {
        // A folder that cannot be read has no work: the agent could not start any either.
        let groups = self.run_dir.groups().unwrap_or_default();
        let gone = self.known.extract_if(.., |group, _| !groups.contains(group));
        let now = boottime();
        let stopped = gone.map(|(_, watched)| match watched.doing {
            Doing::Stands => watched.since,
            Doing::Computes | Doing::Halts => now,
        });
        self.gone = stopped.fold(self.gone, Time::max);
        for group in groups {
            // A runner may have started its worker since.
            let known = self.known.get(&group);
            let is_new = known.is_none();
            if known.is_none_or(|watched| !watched.is_at_work())
                && let Some(watched) = Watched::open(group)
                && (is_new || !watched.leads)
            {
                self.known.insert(group, watched);
            }
        }
        self.known.values_mut().map(Watched::look).filter(|doing| *doing != Doing::Stands).count()
    }
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It has a core, or waits for one.
    Computes,
    /// It waits for what cannot be interrupted. So it also stands in the freezer of a control group
    /// of the first version: it has stopped if it uses no time until the next look.
    Halts,
    /// It has stopped, is being killed, has ended or waits for work.
    Stands,
}

/// The process that does a group's work. What is read of it stays open: to look is to read, and of
/// nobody who got its number since.
struct Watched {
    /// Whether it is the group's leader, which had no child.
    leads: bool,
    stat: File,
    schedstat: File,
    /// What it did when it was looked at last.
    doing: Doing,
    /// Its CPU time then, in nanoseconds, where it halted.
    cpu_ns: Option<u64>,
    /// The end of the first look that saw what has not changed since.
    since: Time,
}

impl Watched {
    /// None where it has ended.
    fn open(group: TaskGroup) -> Option<Self> {
        let pid = worker_of(group.pgid);
        let file = |name| File::open(format!("/proc/{pid}/{name}"));
        let (stat, schedstat) = (file("stat").ok()?, file("schedstat").ok()?);
        // What is below a leader that is the group's is the group's, too.
        let is_it = ProcessStat::of(group.pgid)
            .is_ok_and(|stat| stat.start_ticks == group.leader_start_ticks);
        let (leads, doing) = (pid == group.pgid, Doing::Computes);
        is_it.then(|| Self { leads, stat, schedstat, doing, cpu_ns: None, since: boottime() })
    }

    /// Whether it is a worker, and has not ended.
    fn is_at_work(&self) -> bool {
        !self.leads && text_of(&self.stat).is_some()
    }

    /// Looks at it, and says what it does.
    fn look(&mut self) -> Doing {
        let text = text_of(&self.stat).unwrap_or_default();
        let state = ProcessStat::parse(&text).map(|stat| stat.state);
        let halts = state == Some('D') && !is_dying(&text);
        let cpu_ns = if halts { self.cpu_time_ns() } else { None };
        let has_rested = cpu_ns.is_some() && cpu_ns == self.cpu_ns;
        let doing = match state {
            Some('R') if !is_dying(&text) => Doing::Computes,
            Some('D') if halts && !has_rested => Doing::Halts,
            _ => Doing::Stands,
        };
        let is_as_before = doing == Doing::Stands
            && (self.doing == Doing::Stands || (self.doing == Doing::Halts && has_rested));
        if !is_as_before {
            self.since = boottime();
        }
        self.cpu_ns = cpu_ns;
        self.doing = doing;
        doing
    }

    fn has_started(&self) -> bool {
        self.cpu_time_ns().is_some_and(|ns| Span::from_micros(ns / 1_000) >= STARTED)
    }

    fn cpu_time_ns(&self) -> Option<u64> {
        text_of(&self.schedstat)?.split(' ').next()?.parse().ok()
    }
}

/// A small file of `/proc`, read again; none where its process has ended.
fn text_of(file: &File) -> Option<String> {
    let mut bytes = [0; 1024];
    let read = file.read_at(&mut bytes, 0).ok()?;
    Some(String::from_utf8_lossy(&bytes[..read]).into_owned())
}

/// Whether a process has been killed, by its line in `/proc`: what it still does is to give back
/// what it has, and none of it is an instruction of its own.
fn is_dying(line: &str) -> bool {
    let behind_name = line.rsplit_once(')').map_or("", |(_, tail)| tail);
    let mut fields = behind_name.split_ascii_whitespace();
    let mapped_bytes = fields.nth(20).and_then(|field| field.parse::<u64>().ok());
    let pending = fields.nth(7).and_then(|field| field.parse::<u64>().ok());
    // One that is past its signals has given back its memory, or is about to.
    mapped_bytes == Some(0) || pending.is_some_and(|set| set >> (SIGKILL - 1) & 1 == 1)
}

const SIGKILL: u32 = 9;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Busy(Child);

    impl Busy {
        /// A process that computes for ever, noted as harvested work.
        fn start(run_dir: &RunDir) -> (Self, TaskGroup) {
            Self::start_after(run_dir, "")
        }

        /// The same, once it has done this.
        fn start_after(run_dir: &RunDir, first: &str) -> (Self, TaskGroup) {
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(format!("{first} echo; while :; do :; done"));
            command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
            let mut child = command.spawn().expect("a shell");
            let said = child.stdout.as_mut().expect("piped").read_exact(&mut [0]);
            said.expect("it computes");
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
    async fn a_worker_is_watched_in_its_leaders_stead() {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path().join("run")).expect("a run folder");
        let mut command = Command::new("/bin/sh");
        // The leader waits; what it started computes.
        command.args(["-c", "sh -c 'echo; while :; do :; done' & wait"]).process_group(0);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a shell");
        child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("it computes");
        let group = TaskGroup::of_leader(i32::try_from(child.id()).expect("a pid")).expect("leads");
        run_dir.register_group(&group).expect("noted");
        assert_eq!(working_now(&run_dir), 1);
        assert!(work_alone(&run_dir));
        // A process stops when it takes its signal, which is a moment after it was sent.
        let watch = ReleaseWatch::start(run_dir.clone(), 0).await.expect("a watch");
        gleaner_hooks::freeze(group.pgid).expect("frozen");
        assert!(!watch.finish().unfinished);
        assert_eq!(working_now(&run_dir), 0);
        gleaner_hooks::kill(group.pgid).expect("both of them");
        child.wait().expect("ours");
    }

    #[test]
    fn who_has_others_work_beside_it_does_not_work_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path().join("run")).expect("a run folder");
        let (_one, _) = Busy::start(&run_dir);
        assert!(work_alone(&run_dir));
        let (_other, group) =
            Busy::start_after(&run_dir, "cat </dev/zero >/dev/null & sleep 1000 &");
        assert!(!work_alone(&run_dir));
        gleaner_hooks::kill(group.pgid).expect("both of them");
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
    fn who_is_noted_no_more_has_worked_until_that_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path().join("run")).expect("a run folder");
        let (one, group) = Busy::start(&run_dir);
        let mut looker = Looker::new(&run_dir);
        assert_eq!(looker.calm_since(0), None);
        run_dir.forget_group(group.pgid).expect("forgotten");
        drop(one);
        let before = boottime();
        assert!(looker.calm_since(0).expect("nobody is left") >= before);
    }

    #[test]
    fn who_is_killed_or_has_no_memory_is_dying() {
        let line = |mapped: u64, pending: u64| {
            let before = "7 (a) b) R 1 7 7 0 -1 0 0 0 0 0 5 6 7 8 20 0 3 0 99";
            format!("{before} {mapped} 0 1 2 3 4 5 6 {pending} 0 0 0")
        };
        assert!(!is_dying(&line(4096, 0)));
        assert!(!is_dying(&line(4096, 1 << 18)), "it is stopped");
        assert!(is_dying(&line(4096, 1 << 8 | 1 << 18)));
        assert!(is_dying(&line(0, 0)));
    }

    #[test]
    fn work_that_comes_back_moves_the_moment() {
        let at = Time::from_micros;
        let mut record = Record::default();
        for calm_since in [None, Some(10), None, Some(30), Some(40)] {
            record.note(calm_since.map(at));
        }
        let release = record.release(at(5));
        assert_eq!(release.took, Some(Span::from_micros(25)));
        assert_eq!(record.calm_for(at(45)), Span::from_micros(15));
    }
}

//! Which cores others are bound to.
//!
//! A hook tells how many cores a render booked, and nobody tells which: a manager may bind a render to
//! some of its own choosing (Slurm's task plugins, `taskset` of OpenCue's RQD, Grid Engine's binding,
//! control groups), and harvested work on just those would be all that is in its way. So while renders
//! have booked a part of the machine it is looked for who may run on a part of it only, and computes
//! there: harvested work leaves these cores first.
//!
//! # Invariants
//! - Who is bound and does not compute claims nothing: there are services on every host that are.
//! - Nothing harvested claims anything: all of it is below the agent, as runners adopt orphans.
//! - Of whoever is not bound, one call is made and nothing is read; of the kernel's own threads, of which
//!   a machine has thousands that are, next to none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use gleaner_hooks::ProcessStat;
use gleaner_protocol::{Span, Time};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::limits::{
    ANCESTORS_MAX, BOUND_FORGET_LOOKS, BOUND_LOOK_MS, BOUND_NEWS_MS, BOUND_THREADS_MAX,
};

/// Share of a core, in thousandths, that who is bound computes with before it claims its cores, …
const BUSY_PERMILLE: u64 = 100;
/// … and below which it does so no more. What it once used is forgotten by half in
/// [`HALF_LIFE`].
const IDLE_PERMILLE: u64 = 20;
const HALF_LIFE: Span = Span::from_secs(10);
/// Ticks of `/proc` in a second, on all our platforms.
const TICKS_PER_S: u64 = 100;

/// Who is bound to what.
#[derive(Debug)]
pub(super) struct Bound {
    /// All that the agent may use.
    all: Vec<u32>,
    /// What it may run on itself, as most others may.
    whole: Option<CpuSet>,
    /// By process.
    known: BTreeMap<i32, Process>,
    /// Threads of the kernel, which are forgotten now and then, as another may get such a number.
    kernels: BTreeSet<i32>,
    looks: u32,
    looked: Option<Time>,
    booked: u32,
    claims: BTreeSet<u32>,
}

/// A process that is bound.
#[derive(Debug)]
struct Process {
    started: u64,
    ticks: u64,
    /// Thousandths of a core.
    used: u64,
    computes: bool,
    cpus: BTreeSet<u32>,
}

impl Bound {
    /// On a machine with these CPUs.
    pub(super) fn new(all: impl IntoIterator<Item = u32>) -> Self {
        Self {
            all: all.into_iter().collect(),
            whole: sched_getaffinity(None).ok(),
            known: BTreeMap::new(),
            kernels: BTreeSet::new(),
            looks: 0,
            looked: None,
            booked: 0,
            claims: BTreeSet::new(),
        }
    }

    /// The CPUs that others claim; none where it is not looked, or where all or nothing is booked and it
    /// is as before. `own` are processes whose children are harvested work.
    pub(super) fn look(&mut self, now: Time, booked: u32, own: &[i32]) -> Option<&BTreeSet<u32>> {
        let is_news = self.booked != booked;
        let is_part = booked > 0 && (booked as usize) < self.all.len();
        let passed = self.looked.map(|at| now.since(at));
        // Of less time than that a single tick would be much, whatever the news.
        let least_ms = if is_news { BOUND_NEWS_MS } else { BOUND_LOOK_MS };
        if is_part && passed.is_some_and(|it| it < Span::from_millis(least_ms)) {
            return None;
        }
        self.booked = booked;
        if is_part {
            self.looked = Some(now);
            self.look_at_all(now, passed.unwrap_or(Span::ZERO), own);
        } else {
            self.known.clear();
            self.kernels.clear();
        }
        let computing = self.known.values().filter(|process| process.computes);
        let claims: BTreeSet<u32> = computing.flat_map(|process| &process.cpus).copied().collect();
        let before = std::mem::replace(&mut self.claims, claims);
        (is_part || self.claims != before).then_some(&self.claims)
    }

    /// For people; nothing where nobody claims anything.
    pub(super) fn describe(&self) -> Option<String> {
        let cpus: Vec<String> = self.claims.iter().map(ToString::to_string).collect();
        (!cpus.is_empty()).then(|| format!("CPU {}", cpus.join(", ")))
    }

    fn look_at_all(&mut self, now: Time, passed: Span, own: &[i32]) {
        let before = std::mem::take(&mut self.known);
        self.looks = (self.looks + 1) % BOUND_FORGET_LOOKS;
        if self.looks == 0 {
            self.kernels.clear();
        }
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let is_others = |pid: &i32| !own.contains(pid) && !self.kernels.contains(pid);
            let Some(pid) = pid.filter(is_others) else { continue };
            if let Some(process) = self.process(pid, now, passed, before.get(&pid), own) {
                self.known.insert(pid, process);
            }
        }
    }

    /// A process, if it is bound, and neither the kernel's nor harvested.
    fn process(
        &mut self,
        pid: i32,
        now: Time,
        passed: Span,
        before: Option<&Process>,
        own: &[i32],
    ) -> Option<Process> {
        let cpus = self.part_for(pid)?;
        let stat = ProcessStat::of(pid).ok()?;
        if stat.is_kernels() {
            self.kernels.insert(pid);
            return None;
        }
        if is_below(stat.parent, own) {
            return None;
        }
        let cpus = self.part_for_threads(pid, cpus)?;
        Some(Process::judged(&stat, cpus, now, passed, before))
    }

    /// The part of the machine that a process is bound to; none where that is all of it, or nothing.
    fn part_for(&self, process: i32) -> Option<BTreeSet<u32>> {
        match self.reach(process) {
            Reach::Part(part) => Some(part),
            Reach::Everywhere | Reach::Nowhere => None,
        }
    }

    /// The part that all its threads together are bound to. One that has just ended goes nowhere.
    fn part_for_threads(&self, pid: i32, mut part: BTreeSet<u32>) -> Option<BTreeSet<u32>> {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads.take(BOUND_THREADS_MAX) {
            let thread = thread.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            match thread.filter(|thread| *thread != pid).map(|thread| self.reach(thread)) {
                Some(Reach::Everywhere) => return None,
                Some(Reach::Part(more)) => part.extend(more),
                Some(Reach::Nowhere) | None => {}
            }
        }
        (part.len() < self.all.len()).then_some(part)
    }

    fn reach(&self, thread: i32) -> Reach {
        let mask = Pid::from_raw(thread).and_then(|thread| sched_getaffinity(Some(thread)).ok());
        let Some(mask) = mask else { return Reach::Nowhere };
        if self.whole == Some(mask) {
            return Reach::Everywhere;
        }
        let is_in = |cpu: &&u32| (**cpu as usize) < CpuSet::MAX_CPU && mask.is_set(**cpu as usize);
        let part: BTreeSet<u32> = self.all.iter().filter(is_in).copied().collect();
        match part.len() {
            0 => Reach::Nowhere,
            count if count == self.all.len() => Reach::Everywhere,
            _ => Reach::Part(part),
        }
    }
}

/// Where in the part of the machine that the agent may use a thread may run.
#[derive(Debug, PartialEq, Eq)]
enum Reach {
    Everywhere,
    Part(BTreeSet<u32>),
    /// Outside of it, or it has ended.
    Nowhere,
}

impl Process {
    /// One that was this a while ago, or had not been seen.
    fn judged(
        stat: &ProcessStat,
        cpus: BTreeSet<u32>,
        now: Time,
        passed: Span,
        before: Option<&Self>,
    ) -> Self {
        const TICK_MS: u64 = 1_000 / TICKS_PER_S;
        let before = before.filter(|before| before.started == stat.start_ticks);
        let (ticks, time) = match before {
            Some(before) => (stat.cpu_ticks.saturating_sub(before.ticks), passed),
            // Of one that has just begun that is all.
            None => {
                let begun = Time::ZERO + Span::from_millis(stat.start_ticks * TICK_MS);
                (stat.cpu_ticks, now.since(begun))
            }
        };
        let used_now = ticks * TICK_MS * 1_000 / time.as_millis().max(TICK_MS);
        let halves = time.as_secs_f64() / HALF_LIFE.as_secs_f64();
        let left = before.map_or(0.0, |before| before.used as f64 * 0.5_f64.powf(halves));
        let used = used_now.max(left as u64);
        let least = if before.is_some_and(|before| before.computes) {
            IDLE_PERMILLE
        } else {
            BUSY_PERMILLE
        };
        let (started, ticks) = (stat.start_ticks, stat.cpu_ticks);
        Self { started, ticks, used, computes: used >= least, cpus }
    }
}

/// Whether a process is one of these, the agent, or below one of them.
fn is_below(mut pid: i32, own: &[i32]) -> bool {
    let agent = std::process::id().cast_signed();
    for _ in 0..ANCESTORS_MAX {
        if pid == agent || own.contains(&pid) {
            return true;
        }
        match ProcessStat::of(pid) {
            Ok(stat) if pid > 1 => pid = stat.parent,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use rustix::thread::sched_setaffinity;

    use super::*;

    /// A process that is bound to a CPU.
    struct Other(Child);

    impl Other {
        fn start(cpu: u32) -> Self {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "read line"]).stdin(Stdio::piped());
            let child = command.spawn().expect("a shell");
            let mut set = CpuSet::new();
            set.set(cpu as usize);
            let pid = Pid::from_raw(child.id().cast_signed());
            sched_setaffinity(pid, &set).expect("one of ours");
            Self(child)
        }

        fn pid(&self) -> i32 {
            self.0.id().cast_signed()
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn who_computes_claims_cores_and_keeps_them_for_a_while() {
        let second = Span::from_secs(1);
        let started = Time::ZERO + Span::from_secs(100);
        let cpus = || BTreeSet::from([1]);
        let own = ProcessStat::of(std::process::id().cast_signed()).expect("it runs");
        let stat = |cpu_ticks| ProcessStat { cpu_ticks, start_ticks: 10_000, ..own };
        // Half of a core since it began; and one that has lived long and does little.
        assert!(Process::judged(&stat(50), cpus(), started + second, second, None).computes);
        let day = Span::from_secs(86_400);
        let mut service = Process::judged(&stat(50), cpus(), started + day, second, None);
        assert!(!service.computes);
        let look = |process: &mut Process, more: u64, passed: Span| {
            let next = stat(process.ticks + more);
            *process = Process::judged(&next, cpus(), started + day, passed, Some(process));
            process.computes
        };
        assert!(!look(&mut service, 9, second));
        assert!(look(&mut service, 100, second));
        // It waits for a file: half of it is forgotten every ten seconds.
        assert!(look(&mut service, 0, Span::from_secs(50)));
        assert!(!look(&mut service, 0, Span::from_secs(10)));
        assert!(!look(&mut service, 5, second), "it begins anew");
        // Another one of its number.
        let other = ProcessStat { start_ticks: 20_000, ..stat(0) };
        let other = Process::judged(&other, cpus(), started + day, second, Some(&service));
        assert_eq!((other.used, other.computes), (0, false));
    }

    #[test]
    fn who_is_bound_to_a_part_is_seen_and_whose_it_is() {
        let cpus = gleaner_isolation::Topology::of_this_machine().all();
        let bound = Bound::new(cpus.iter().copied());
        let own = std::process::id().cast_signed();
        assert_eq!(bound.part_for(own), None, "it may go everywhere");
        let (Some(last), true) = (cpus.last().copied(), cpus.len() > 1) else { return };
        let other = Other::start(last);
        assert_eq!(bound.part_for(other.pid()), Some(BTreeSet::from([last])));
        let part = bound.part_for_threads(other.pid(), BTreeSet::from([last]));
        assert_eq!(part, Some(BTreeSet::from([last])));
        assert_eq!(bound.reach(own), Reach::Everywhere);
        // There is no such number.
        assert_eq!(bound.reach(i32::MAX), Reach::Nowhere);
        assert!(is_below(other.pid(), &[]), "this is the agent of a test");
        assert!(!is_below(1, &[]) && is_below(1, &[1]));
    }

    #[test]
    fn nobody_claims_anything_where_nothing_is_booked_or_all_is() {
        let mut bound = Bound::new([0, 1, 2, 3]);
        bound.claims.insert(2);
        let claims = bound.look(Time::ZERO, 4, &[]).cloned();
        assert_eq!(claims, Some(BTreeSet::new()));
        assert_eq!(bound.look(Time::ZERO, 0, &[]), None, "no news");
        assert_eq!(bound.describe(), None);
        bound.claims.extend([1, 3]);
        assert_eq!(bound.describe().as_deref(), Some("CPU 1, 3"));
    }
}

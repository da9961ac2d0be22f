//! Whose CPU time it was: that of harvested work and the agent itself, and that of all others; and what
//! else each group of harvested work takes of the host.
//!
//! # Invariants
//! - Time once counted as ours never turns into that of others, not when a process dies nor when
//!   its parent takes note of that.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_hooks::ProcessIo;
use gleaner_protocol::{Span, Time};

use super::disk_use::DiskUse;
use super::text_of;
use crate::limits::{FROZEN_CPU_MS_MAX, TREE_THREADS_MAX};
use crate::release::slot_table::{GroupUse, Upkeep};

/// Microseconds in a clock tick of `/proc`, which is the same on all kernels of our platforms.
const TICK_US: u64 = 10_000;
/// How far the machine's counter may lag behind ours.
const LAG_TICKS_MAX: i64 = 20;
/// Bytes of a page, for resident sizes.
const PAGE_KIB: u64 = 4;

/// Counters of CPU time.
#[derive(Debug, Default)]
pub(super) struct CpuTime {
    /// What each group had used when it was looked at last.
    groups: BTreeMap<i32, Group>,
    /// What of ours was counted before the machine's counter had it, in ticks: not above 0.
    debt: i64,
    before: Option<Look>,
    used: Span,
    blocked: u64,
}

/// What a group of harvested work was seen to use.
#[derive(Debug, Default)]
struct Group {
    /// Whether it was looked at.
    is_seen: bool,
    begun: u64,
    busy: bool,
    sum: Sum,
    /// What its replica reads from disks and writes to them.
    disk: DiskUse,
    /// How it was when it was first seen frozen, if it is.
    frozen: Option<FirstFrozen>,
}

/// A group that was seen to be frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FirstFrozen {
    /// Since when its replica had not been: another time where it went on in between.
    ran_since: Time,
    /// CPU time that it had used by then, in ticks.
    ticks: u64,
}

/// One look.
#[derive(Debug, Clone, Copy)]
struct Look {
    machine_ticks: u64,
    own_ticks: u64,
}

/// What a tree of processes adds up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    /// CPU time, of dead children too.
    ticks: u64,
    /// Threads that run or wait for a disk.
    active: u64,
    /// Those of them that wait for a disk.
    blocked: u64,
    /// Resident memory.
    kib: u64,
    /// What they have read from and written to disks, dead children too.
    disk_kib: u64,
}

impl Group {
    fn look(&mut self, now: Time, group: &GroupUse) {
        // Seldom enough: whoever looks often has something else to look for.
        let looks_at_disk = !self.is_seen || self.begun != group.begun || self.disk.is_due(now);
        let (mut sum, is_all) = tree(group.pgid, TREE_THREADS_MAX, looks_at_disk);
        if self.is_seen && !is_all {
            // What was counted once stays so; what is not counted makes us give way.
            sum.ticks = sum.ticks.max(self.sum.ticks);
        }
        if group.frozen {
            // Some kernels show it as waiting for a disk; none counts it as active.
            (sum.active, sum.blocked) = (0, 0);
        }
        if !looks_at_disk {
            sum.disk_kib = self.sum.disk_kib;
        } else if self.is_seen && self.begun == group.begun {
            self.disk.add(now, sum.disk_kib.saturating_sub(self.sum.disk_kib));
        } else {
            // Of what was done before it is not known how much was this replica's.
            self.disk = DiskUse::begin(now);
        }
        // What a look has missed of a tree that changes is no time that was used since.
        let known = if self.begun == group.begun { self.sum.ticks } else { 0 };
        let first = FirstFrozen { ran_since: group.ran_since, ticks: sum.ticks.max(known) };
        let is_same =
            |known: &FirstFrozen| known.ran_since == group.ran_since && self.begun == group.begun;
        let frozen = group.frozen.then(|| self.frozen.filter(is_same).unwrap_or(first));
        self.frozen = frozen;
        (self.begun, self.busy, self.sum, self.is_seen) = (group.begun, group.busy, sum, true);
    }

    /// Since when its replica had not been frozen, where it is and has used more of a core since than what
    /// comes to rest.
    fn self_resumed_since(&self) -> Option<Time> {
        let used_ms =
            |first: &FirstFrozen| self.sum.ticks.saturating_sub(first.ticks) * TICK_US / 1_000;
        let goes_on = self.frozen.filter(|first| used_ms(first) > FROZEN_CPU_MS_MAX);
        goes_on.map(|first| first.ran_since)
    }
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.ticks += other.ticks;
        self.active += other.active;
        self.blocked += other.blocked;
        self.kib += other.kib;
        self.disk_kib += other.disk_kib;
    }
}

impl CpuTime {
    /// Looks at the machine and at these groups.
    pub(super) fn look(&mut self, now: Time, groups: &[GroupUse]) {
        let (machine_ticks, blocked) = machine();
        let there: BTreeSet<i32> = groups.iter().map(|group| group.pgid).collect();
        let known = self.groups.len();
        self.groups.retain(|pgid, _| there.contains(pgid));
        let gone = self.groups.len() < known;
        for group in groups {
            let known = self.groups.entry(group.pgid).or_default();
            // One that has done nothing since has used nothing.
            let same = known.begun == group.begun && !known.busy && !group.busy;
            if !same || !known.is_seen {
                known.look(now, group);
            }
        }
        // Its children are runners, which are counted by groups.
        let agent = text_of("/proc/self/stat");
        let agent_ticks = Stat::parse(&agent).map_or(0, |stat| stat.ticks);
        let own = self.own();
        let look = Look { machine_ticks, own_ticks: own.ticks + agent_ticks };
        self.blocked = blocked.saturating_sub(own.blocked);
        self.used = self.others_since(look, gone);
        self.before = Some(look);
    }

    /// What others used between the last two looks. Where a group has died its children's time may
    /// be lost, and what nobody is known to have used may have been theirs: of that no more is
    /// believed to be others' than they used before.
    fn others_since(&mut self, look: Look, torn: bool) -> Span {
        let Some(before) = self.before else { return Span::ZERO };
        let machine = look.machine_ticks.saturating_sub(before.machine_ticks);
        if torn || look.own_ticks < before.own_ticks {
            // Begin anew; what came before is settled.
            self.debt = 0;
            let unknown = machine.saturating_sub(look.own_ticks.saturating_sub(before.own_ticks));
            return Span::from_micros(unknown * TICK_US).min(self.used);
        }
        let own = look.own_ticks - before.own_ticks;
        // Each counter lags behind by its own part of a tick: what was too much at one look is
        // too little at the next.
        let balance = machine.cast_signed() - own.cast_signed() + self.debt;
        self.debt = balance.clamp(-LAG_TICKS_MAX, 0);
        Span::from_micros(u64::try_from(balance.max(0)).unwrap_or(0) * TICK_US)
    }

    /// What others used between the last two looks.
    pub(super) fn others_used(&self) -> Span {
        self.used
    }

    /// Threads of others that waited for a disk at the last look.
    pub(super) fn others_blocked(&self) -> u64 {
        self.blocked
    }

    /// Threads of harvested work that ran, or waited for a disk, at the last look.
    pub(super) fn own_active(&self) -> u64 {
        self.own().active
    }

    /// Memory of harvested work at the last look.
    pub(super) fn own_memory_mib(&self) -> u64 {
        self.own().kib / 1_024
    }

    /// What each group of harvested work took at the last look.
    pub(super) fn upkeep(&self) -> Vec<Upkeep> {
        let groups = self.groups.iter().map(|(pgid, group)| Upkeep {
            pgid: *pgid,
            begun: group.begun,
            cpu: Span::from_micros(group.sum.ticks * TICK_US),
            memory_mib: group.sum.kib / 1_024,
            keeps_disk_busy: group.disk.is_full(),
            self_resumed_since: group.self_resumed_since(),
        });
        groups.collect()
    }

    fn own(&self) -> Sum {
        let mut own = Sum::default();
        self.groups.values().for_each(|group| own.add(group.sum));
        own
    }
}

/// Ticks that all cores together were busy since boot, and threads that wait for a disk.
fn machine() -> (u64, u64) {
    let text = text_of("/proc/stat");
    let mut lines = text.lines();
    let cpu = lines.next().unwrap_or_default();
    // user, nice, system; guests are part of user.
    let ticks = cpu.split_ascii_whitespace().skip(1).take(3);
    let busy = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    let blocked = lines.find_map(|line| line.strip_prefix("procs_blocked "));
    (busy, blocked.and_then(|count| count.trim().parse().ok()).unwrap_or(0))
}

/// A process and all that it started, and whether all of that was looked at. Runners adopt orphans, so
/// all of a group is below its leader.
fn tree(leader: i32, threads_max: usize, looks_at_disk: bool) -> (Sum, bool) {
    let mut sum = Sum::default();
    let mut threads_left = threads_max;
    let mut open = vec![leader];
    while let Some(pid) = open.pop() {
        if let Some(one) = process(pid, looks_at_disk, &mut threads_left, &mut open) {
            sum.add(one);
        }
        if threads_left == 0 {
            return (sum, false);
        }
    }
    (sum, true)
}

/// What a process adds; what it started, whichever of its threads it was, is added to `children`.
/// Each thread is looked at once, as far as some are left.
fn process(
    pid: i32,
    looks_at_disk: bool,
    threads_left: &mut usize,
    children: &mut Vec<i32>,
) -> Option<Sum> {
    let text = text_of(format!("/proc/{pid}/stat"));
    let stat = Stat::parse(&text)?;
    let (mut active, mut blocked) = if stat.threads > 1 { (0, 0) } else { stat.activity() };
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let Some(left) = threads_left.checked_sub(1) else { break };
        *threads_left = left;
        let thread = entry.path();
        if stat.threads > 1 {
            let text = text_of(thread.join("stat"));
            let (one_active, one_blocked) = Stat::parse(&text).map_or((0, 0), |s| s.activity());
            active += one_active;
            blocked += one_blocked;
        }
        let list = text_of(thread.join("children"));
        children.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    let io = if looks_at_disk { ProcessIo::of(pid) } else { ProcessIo::default() };
    let disk_kib = io.bytes() / 1_024;
    Some(Sum { ticks: stat.ticks, active, blocked, kib: stat.pages * PAGE_KIB, disk_kib })
}

/// What we read of a `stat` file.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    ticks: u64,
    threads: u64,
    pages: u64,
}

impl Stat {
    /// The name stands in parentheses and may hold some itself.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            // Its own and that of the children that it took note of.
            ticks: number(11)? + number(12)? + number(13)? + number(14)?,
            threads: number(17)?,
            pages: number(21)?,
        })
    }

    fn activity(&self) -> (u64, u64) {
        let blocked = u64::from(self.state == 'D');
        (u64::from(self.state == 'R') + blocked, blocked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    use gleaner_protocol::boottime;

    use crate::release::slot_table::tests::Sleeper;

    #[test]
    fn a_stat_line_is_read_from_behind_the_name() {
        let line = "7 (a) b) R 1 7 7 0 -1 0 0 0 0 0 5 6 7 8 20 0 3 0 99 4096 12 0";
        let stat = Stat::parse(line).expect("a stat line");
        assert_eq!(stat, Stat { state: 'R', ticks: 26, threads: 3, pages: 12 });
        assert_eq!(Stat::parse("7 (a"), None);
        assert_eq!(Stat::parse("7 (a) R 1 2"), None);
    }

    #[test]
    fn counters_that_lag_do_not_add_up_to_a_load() {
        let mut cpu = CpuTime::default();
        let mut used = 0;
        // Two cores of ours: the machine's counter runs ahead and behind by turns.
        for look in 0..100_u64 {
            let wobble = look % 2 * 3;
            let look = Look { machine_ticks: look * 20 + wobble, own_ticks: look * 20 };
            used += cpu.others_since(look, false).as_micros() / TICK_US;
            cpu.before = Some(look);
        }
        assert!(used <= 3, "{used} ticks");
    }

    #[test]
    fn a_group_that_died_makes_no_load_of_others() {
        let mut cpu = CpuTime::default();
        let look = |own_ticks, machine_ticks| Look { machine_ticks, own_ticks };
        cpu.before = Some(look(1_000, 5_000));
        assert_eq!(cpu.others_since(look(200, 5_100), false), Span::ZERO);
        cpu.before = Some(look(200, 5_100));
        assert_eq!(cpu.others_since(look(300, 5_300), true), Span::ZERO);
        cpu.before = Some(look(300, 5_300));
        assert_eq!(cpu.others_since(look(350, 5_400), false), Span::from_millis(500));
    }

    #[test]
    fn others_that_go_on_are_not_lost_where_a_group_dies() {
        let mut cpu = CpuTime::default();
        let look = |own_ticks, machine_ticks| Look { machine_ticks, own_ticks };
        cpu.before = Some(look(1_000, 5_000));
        cpu.used = Span::from_millis(800);
        // Ours used 20 ticks, and some that died unseen.
        assert_eq!(cpu.others_since(look(1_020, 5_150), true), Span::from_millis(800));
        // They ended at the same time.
        assert_eq!(cpu.others_since(look(1_020, 5_050), true), Span::from_millis(300));
        assert_eq!(cpu.others_since(look(900, 5_010), false), Span::from_millis(100));
    }

    #[test]
    fn what_a_group_started_is_part_of_it() {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "while :; do :; done & wait"]).stdout(Stdio::null());
        let group = Sleeper::start_this(shell);
        let mut cpu = CpuTime::default();
        let uses = [uses(&group)];
        while cpu.own().ticks < 5 {
            cpu.look(Time::ZERO, &uses);
        }
        assert!(cpu.own_active() >= 1 && cpu.own_memory_mib() > 0);
        cpu.look(Time::ZERO, &uses.map(|group| GroupUse { frozen: true, ..group }));
        assert_eq!(cpu.own_active(), 0);
    }

    fn uses(group: &Sleeper) -> GroupUse {
        let (pgid, ran_since) = (group.pgid(), Time::ZERO);
        GroupUse { pgid, begun: 1, busy: true, frozen: false, ran_since }
    }

    #[test]
    fn a_frozen_group_that_goes_on_is_seen_and_one_that_was_let_go_on_is_not() {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "while :; do :; done"]).stdout(Stdio::null());
        let group = Sleeper::start_this(shell);
        let frozen = GroupUse { frozen: true, ..uses(&group) };
        let mut cpu = CpuTime::default();
        let self_resumed = |cpu: &CpuTime| cpu.upkeep()[0].self_resumed_since;
        // It goes on for as long as nobody has stopped it in truth.
        let first = cpu_after_a_look(&mut cpu, &frozen);
        assert_eq!(self_resumed(&cpu), None, "it may be coming to rest");
        while cpu_after_a_look(&mut cpu, &frozen) <= first + Span::from_millis(FROZEN_CPU_MS_MAX) {
            assert_eq!(self_resumed(&cpu), None);
        }
        assert_eq!(self_resumed(&cpu), Some(Time::ZERO));
        let again = GroupUse { ran_since: Time::from_micros(1), ..frozen };
        cpu.look(Time::ZERO, &[again]);
        assert_eq!(self_resumed(&cpu), None, "it went on in between, as it was told to");
        cpu.look(Time::ZERO, &[GroupUse { frozen: false, ..again }]);
        assert_eq!(self_resumed(&cpu), None);
    }

    fn cpu_after_a_look(cpu: &mut CpuTime, group: &GroupUse) -> Span {
        cpu.look(Time::ZERO, &[*group]);
        cpu.upkeep()[0].cpu
    }

    /// Where things are built is on a disk, as a rule.
    fn beside_this_program() -> std::path::PathBuf {
        let program = std::env::current_exe().expect("it runs");
        program.parent().expect("a folder").to_owned()
    }

    #[test]
    fn what_a_group_brings_to_a_disk_is_seen() {
        let folder = tempfile::tempdir_in(beside_this_program()).expect("a folder");
        let mut shell = Command::new("/bin/sh");
        // It writes itself: what its child did would be gone with that.
        let script = "read go; exec dd if=/dev/zero of=file bs=1M count=200 oflag=dsync";
        shell.args(["-c", script]).stdin(Stdio::piped()).current_dir(folder.path());
        let mut group = Sleeper::start_this(shell);
        let mut cpu = CpuTime::default();
        let uses = [uses(&group)];
        cpu.look(boottime(), &uses);
        assert!(!cpu.upkeep()[0].keeps_disk_busy);
        group.tell("go\n");
        // Where files are in memory nothing comes to a disk.
        let end = boottime() + Span::from_secs(60);
        while !cpu.upkeep()[0].keeps_disk_busy {
            assert!(boottime() < end, "200 MiB were written, to {}", folder.path().display());
            cpu.look(boottime(), &uses);
            std::thread::yield_now();
        }
        let next = uses.map(|group| GroupUse { begun: 2, ..group });
        cpu.look(boottime(), &next);
        assert!(!cpu.upkeep()[0].keeps_disk_busy, "the next replica has done nothing yet");
    }

    #[test]
    fn of_a_group_with_more_threads_than_are_looked_at_nothing_is_taken_back() {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "while :; do :; done & wait"]).stdout(Stdio::null());
        let group = Sleeper::start_this(shell);
        while tree(group.pgid(), 2, false).0.ticks < 5 {}
        let (whole, is_all) = tree(group.pgid(), 3, false);
        assert!(is_all && whole.ticks >= 5);
        let (part, is_all) = tree(group.pgid(), 1, false);
        assert!(!is_all && part.kib < whole.kib, "the leader alone");
    }

    #[test]
    fn what_another_thread_started_is_part_of_its_process_too() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        // Its children are another thread's once it has ended.
        let thread = std::thread::spawn(move || {
            let mut child = Command::new("/bin/sleep").arg("1000").spawn().expect("starts");
            tell.send(child.id().cast_signed()).expect("the test waits");
            let _ = ended.recv();
            child.kill().and_then(|()| child.wait()).expect("ours");
        });
        let child = told.recv().expect("it starts one");
        let (mut found, mut left) = (Vec::new(), usize::MAX);
        process(std::process::id().cast_signed(), false, &mut left, &mut found);
        drop(end);
        thread.join().expect("no panic");
        assert!(found.contains(&child), "{child} of {found:?}");
    }
}

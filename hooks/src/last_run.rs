//! Lets idle-class work run once more, to stop.
//!
//! A signal is obeyed by the process itself, and harvested work runs only where nothing else
//! wants the core: on a host whose renders want all of them it would neither stop nor give its
//! memory back for as long as they render. So whoever signals it also puts it into the ordinary
//! class; it has the signal by then and runs no instruction of its own any more.
//!
//! Stopping takes microseconds, so it goes before everything else where we may say so; giving
//! memory back may take long, and waits its turn.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, setpriority_process};

use crate::family::{Relative, Walk, family};
use crate::scheduling_class::is_in_idle_class;
use crate::{ProcessStat, SchedulingClass, set_scheduling_class};

/// Niceness of what is to stop.
const AT_ONCE: i32 = -20;
/// Niceness of what is to end.
const IN_TURN: i32 = 0;
/// Niceness of what is to run on.
const LAST: i32 = 19;

/// Lets what a group's leader has started stop before anything else runs.
pub(crate) fn let_family_stop(family: &[Relative]) {
    family.iter().for_each(|one| let_one_stop(one.pid));
}

/// Lets a group's leader and what it started end: its memory is back when its last thread is gone.
pub(crate) fn let_end(leader: i32, walk: &mut Walk) {
    let all = family(leader, walk);
    for pid in [leader].into_iter().chain(all.iter().map(|one| one.pid)) {
        if walk.is_over() {
            break;
        }
        for thread in walk.threads(pid) {
            // Where that is refused it takes longer.
            let _ = set_ordinary_class(thread);
        }
        weigh(pid, IN_TURN);
    }
}

/// Puts a stopped group's leader and what it started back where harvested work runs, last of all.
pub(crate) fn let_idle(leader: i32) {
    let all = family(leader, &mut Walk::patient());
    for pid in [leader].into_iter().chain(all.iter().map(|one| one.pid)).filter(|pid| *pid > 1) {
        // Where that is refused it runs with what little is left to it: at the lowest priority.
        let _ = set_scheduling_class(pid, SchedulingClass::Idle);
        weigh(pid, LAST);
    }
}

/// Lets a process stop before anything else of its session runs, and looks at no other.
pub(crate) fn let_one_stop(pid: i32) {
    if pid > 1 {
        // Where that is refused it stops as soon as a core is free, as it would without us.
        let _ = set_ordinary_class(pid);
        weigh(pid, AT_ONCE);
    }
}

/// Lets the sessions of groups that are to end have cores like any other, where the kernel weighs
/// sessions: their agent had put them last. Refused without harm to those who ask too often.
pub(crate) fn let_sessions_end(leaders: &[i32]) {
    let mut weighed = BTreeSet::new();
    for leader in leaders.iter().filter(|leader| **leader > 1) {
        // Not by `getsid`, which rustix takes to name one: in a container it may be outside.
        if ProcessStat::of(*leader).is_ok_and(|stat| weighed.insert(stat.session)) {
            let _ = fs::write(format!("/proc/{leader}/autogroup"), IN_TURN.to_string());
        }
    }
}

/// Gives a process's first thread a niceness.
fn weigh(pid: i32, nice: i32) {
    if pid > 1 {
        let _ = setpriority_process(Pid::from_raw(pid), nice);
    }
}

/// Only out of the idle class; any other is somebody's choice.
fn set_ordinary_class(pid: i32) -> bool {
    is_in_idle_class(pid) && set_scheduling_class(pid, SchedulingClass::Ordinary)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct IdleWork(Child);

    impl IdleWork {
        /// A process of the idle class with one child; the child's number.
        fn start() -> (Self, i32) {
            let mut command = Command::new("chrt");
            command.args(["--idle", "0", "/bin/sh", "-c", "sleep 1000 & echo $!; wait"]);
            command.process_group(0).stdout(Stdio::piped());
            let mut process = command.spawn().expect("chrt is there");
            let mut line = String::new();
            let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
            stdout.read_line(&mut line).expect("a line");
            (Self(process), line.trim().parse().expect("a number"))
        }

        fn pid(&self) -> i32 {
            i32::try_from(self.0.id()).expect("a process number")
        }
    }

    impl Drop for IdleWork {
        fn drop(&mut self) {
            let _ = crate::kill(self.pid());
            let _ = self.0.wait();
        }
    }

    /// Whether this user may take anything out of the idle class.
    fn may_leave() -> bool {
        let tried = std::thread::spawn(|| {
            set_scheduling_class(0, SchedulingClass::Idle)
                && set_scheduling_class(0, SchedulingClass::Ordinary)
        });
        let may = tried.join().expect("no panic");
        if !may {
            println!("not looked at: only the administrator takes work out of the idle class");
        }
        may
    }

    /// The scheduling class is the 39th field after the name.
    fn is_idle_class(pid: i32) -> bool {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
        let fields = text.rsplit_once(')').expect("a name").1;
        fields.split_ascii_whitespace().nth(38) == Some("5")
    }

    #[test]
    fn what_is_to_end_does_so_with_all_its_threads() {
        if !may_leave() {
            return;
        }
        let script = "import threading, time
threads = [threading.Thread(target=time.sleep, args=(1000,), daemon=True) for _ in range(3)]
[thread.start() for thread in threads]
print(\"started\", flush=True)
time.sleep(1000)";
        let mut command = Command::new("chrt");
        command.args(["--idle", "0", "python3", "-c", script]);
        command.process_group(0).stdout(Stdio::piped());
        let mut process = command.spawn().expect("chrt is there");
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("a line");
        let work = IdleWork(process);
        let idle = || Walk::patient().threads(work.pid()).filter(|one| is_idle_class(*one)).count();
        assert_eq!((line.trim(), idle()), ("started", 4));
        crate::freeze(work.pid()).expect("frozen");
        let_end(work.pid(), &mut Walk::patient());
        assert_eq!(idle(), 0);
    }

    #[test]
    fn what_is_frozen_leaves_the_idle_class_with_all_it_started() {
        let (work, child) = IdleWork::start();
        assert!(is_idle_class(work.pid()) && is_idle_class(child));
        crate::freeze(work.pid()).expect("frozen");
        if may_leave() {
            assert!(!is_idle_class(work.pid()) && !is_idle_class(child));
        }
        crate::thaw(work.pid()).expect("thawed");
        assert!(is_idle_class(work.pid()) && is_idle_class(child), "they run last again");
    }
}

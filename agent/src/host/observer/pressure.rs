//! Pressure stall information: for how much of the time somebody else waited for memory or a disk.
//!
//! What waits for memory at its own limit, or at that of all harvested work, takes none from anybody:
//! the time in which something harvested waited does not count. Where the others wait with it, memory
//! is short for all, which is seen in what is free.
//!
//! A kernel that tells nothing of it still counts who waits for a disk at this moment. Where others
//! waited at one look and wait at the next, they are taken to have waited in between.
//!
//! Source: `Documentation/accounting/psi.rst` of the Linux kernel.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use gleaner_protocol::{Span, Time};

use super::text_of;
use crate::owner::wishes::LoadWindow;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    /// Memory.
    Memory,
    /// A disk.
    Io,
}

/// The kernel's counters, and its calls when they rise.
#[derive(Debug)]
pub(super) struct Pressure {
    folder: PathBuf,
    triggers: Vec<File>,
    is_prompt: bool,
    is_there: bool,
    memory: Waits,
    io: Waits,
    /// When others were seen to wait for a disk, if they were at the last look.
    others_wait_at: Option<Time>,
}

/// How long was waited for one resource.
#[derive(Debug, Default)]
struct Waits {
    total_us: Option<u64>,
    own_us: Option<u64>,
    window: LoadWindow,
}

/// Calls that are asked for, the most eager that the kernel grants: microseconds of waiting in
/// how many microseconds. Without privileges it grants windows of two seconds only.
const TRIGGERS: [&str; 2] = ["some 100000 1000000\0", "some 100000 2000000\0"];

impl Pressure {
    /// Reads from this folder; asks for calls if `wanted`.
    pub(super) fn open(folder: &Path, wanted: bool) -> Self {
        let resources = ["cpu", "memory", "io"];
        let granted = resources.iter().filter(|_| wanted);
        let granted: Vec<_> = granted.filter_map(|name| trigger(&folder.join(name))).collect();
        Self {
            is_prompt: !granted.is_empty() && granted.iter().all(|(_, is_prompt)| *is_prompt),
            triggers: granted.into_iter().map(|(file, _)| file).collect(),
            is_there: fs::read(folder.join("memory")).is_ok(),
            folder: folder.into(),
            memory: Waits::default(),
            io: Waits::default(),
            others_wait_at: None,
        }
    }

    /// What becomes ready when pressure rises.
    pub(super) fn triggers(&self) -> impl Iterator<Item = &File> {
        self.triggers.iter()
    }

    /// Reads the counters. Waiting for a disk is that of others only where they wait for one now;
    /// `own_memory` is what the kernel says of harvested work alone.
    pub(super) fn look(&mut self, now: Time, others_wait: bool, own_memory: Option<&str>) {
        let waited_at = std::mem::replace(&mut self.others_wait_at, others_wait.then_some(now));
        if !self.is_there {
            let in_between =
                waited_at.filter(|_| others_wait).map_or(Span::ZERO, |at| now.since(at));
            return self.io.window.add(now, in_between);
        }
        let memory = total_us(&text_of(self.folder.join("memory")));
        self.memory.look(now, memory, own_memory.and_then(total_us), true);
        self.io.look(now, total_us(&text_of(self.folder.join("io"))), None, others_wait);
    }

    /// For how much of the last second somebody waited, in thousandths.
    pub(super) fn permille(&self, resource: Resource) -> u32 {
        match resource {
            Resource::Memory => self.memory.window.millicores().min(1_000),
            Resource::Io => self.io.window.millicores().min(1_000),
        }
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        let percent = |resource| {
            let permille = self.permille(resource);
            format!("{}.{} %", permille / 10, permille % 10)
        };
        if !self.is_there {
            return format!(
                "this kernel tells nothing of it; free memory, the load of others and who waits \
                 for a disk are watched: disk of others {}",
                percent(Resource::Io)
            );
        }
        let calls = match (self.triggers.is_empty(), self.is_prompt) {
            (true, _) => "read regularly",
            (false, true) => "the kernel tells at once",
            (false, false) => "the kernel tells within two seconds",
        };
        let (memory, io) = (percent(Resource::Memory), percent(Resource::Io));
        format!("memory {memory}, disk of others {io} ({calls})")
    }
}

impl Waits {
    fn look(&mut self, now: Time, total_us: Option<u64>, own_us: Option<u64>, counts: bool) {
        let since = |before: Option<u64>, after: Option<u64>| {
            before.zip(after).map_or(0, |(before, after)| after.saturating_sub(before))
        };
        let own = since(self.own_us, own_us);
        let waited = since(self.total_us, total_us).saturating_sub(own);
        (self.total_us, self.own_us) = (total_us, own_us);
        self.window.add(now, Span::from_micros(if counts { waited } else { 0 }));
    }
}

/// A call of the kernel's and whether it is the most eager one; none where it grants neither.
fn trigger(path: &Path) -> Option<(File, bool)> {
    TRIGGERS.iter().enumerate().find_map(|(place, text)| {
        let mut file = File::options().read(true).write(true).open(path).ok()?;
        file.write_all(text.as_bytes()).ok().map(|()| (file, place == 0))
    })
}

/// Microseconds that some task waited since boot.
fn total_us(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, total_us: u64) {
        let text = format!(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total={total_us}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
        );
        fs::write(folder.join(name), text).expect("written");
    }

    #[test]
    fn waiting_shows_as_its_share_of_the_last_second() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pressure =
            Pressure { triggers: Vec::new(), ..Pressure::open(folder.path(), false) };
        pressure.is_there = true;
        for second in 0..3 {
            write(folder.path(), "memory", 1_000 + second * 250_000);
            write(folder.path(), "io", 7 + second * 400_000);
            pressure.look(Time::from_micros(second * 1_000_000), second != 1, None);
        }
        assert_eq!(pressure.permille(Resource::Memory), 250);
        assert_eq!(pressure.permille(Resource::Io), 400);
        write(folder.path(), "io", 5_000_000);
        pressure.look(Time::from_micros(3_000_000), false, None);
        assert_eq!(pressure.permille(Resource::Io), 0, "nobody else waits");
    }

    #[test]
    fn what_waits_at_its_own_limit_takes_no_memory_from_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pressure = Pressure::open(folder.path(), false);
        pressure.is_there = true;
        let own = |total: u64| format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
        for (second, (all_us, own_us)) in
            (0..).zip([(5_000, 4_000), (805_000, 804_000), (1_305_000, 1_104_000)])
        {
            write(folder.path(), "memory", all_us);
            pressure.look(Time::from_micros(second * 1_000_000), false, Some(&own(own_us)));
            let others = [0, 0, 200][usize::try_from(second).expect("one of three")];
            assert_eq!(pressure.permille(Resource::Memory), others, "second {second}");
        }
        write(folder.path(), "memory", 1_705_000);
        pressure.look(Time::from_micros(3_000_000), false, None);
        assert_eq!(pressure.permille(Resource::Memory), 400, "it has no group any more");
    }

    #[test]
    fn without_it_who_waits_for_a_disk_at_two_looks_waited_in_between() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pressure = Pressure::open(folder.path(), true);
        let mut now = Time::from_micros(5_000_000);
        let mut looks = |waits: &[bool]| {
            for others_wait in waits {
                now = now + Span::from_millis(250);
                pressure.look(now, *others_wait, None);
            }
            pressure.permille(Resource::Io)
        };
        assert_eq!(looks(&[false; 8]), 0);
        assert_eq!(looks(&[true, false, true, false]), 0, "each was over by the next look");
        assert_eq!(looks(&[true, true]), 250);
        assert_eq!(looks(&[true; 4]), 1_000);
        assert_eq!(looks(&[false, true, true, false]), 250);
        assert_eq!(looks(&[false; 4]), 0);
        assert_eq!(pressure.permille(Resource::Memory), 0);
        assert!(pressure.describe().ends_with("disk of others 0.0 %"), "{}", pressure.describe());
    }

    #[test]
    fn a_kernel_without_it_is_no_pressure() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pressure = Pressure::open(folder.path(), true);
        pressure.look(Time::from_micros(1), true, None);
        assert_eq!(pressure.permille(Resource::Memory), 0);
        assert!(pressure.describe().contains("tells nothing"));
    }
}

//! Real groups with real processes in them, for each way of isolation that this host grants.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gleaner_isolation::{Ability, Choice, Enclosure, Leaf, LeafLimits, Marks};
use gleaner_protocol::{Span, boottime};

/// Longest wait for something that has to happen.
const PATIENCE: Span = Span::from_secs(10);

/// An enclosure that is removed at the end of its test.
struct Enclosed(Enclosure);

impl Enclosed {
    fn open(choice: Choice, name: &str) -> Self {
        let name = format!("test-{}-{name}-{choice:?}", std::process::id());
        Self(Enclosure::open(choice, &name))
    }

    fn grants(&self, ability: Ability) -> bool {
        let report = self.0.report();
        report.abilities.iter().any(|one| one.ability == ability && one.provider.is_some())
    }
}

impl Drop for Enclosed {
    fn drop(&mut self) {
        let removed = self.0.remove();
        if !std::thread::panicking() {
            removed.expect("nothing is left behind");
        }
    }
}

/// Each way in which this host can freeze, with a name for messages.
fn freezing(test: &str) -> Vec<(Choice, Enclosed)> {
    let open = |(_, choice)| (choice, Enclosed::open(choice, test));
    let all = Choice::NAMES.into_iter().map(open);
    let all: Vec<_> = all.filter(|(_, enclosed)| enclosed.grants(Ability::Freeze)).collect();
    println!("{test}: {:?}", all.iter().map(|(choice, _)| choice).collect::<Vec<_>>());
    all
}

/// A shell in a leaf; it and what it starts.
struct Inmate(Child);

impl Inmate {
    fn start(leaf: &Leaf, script: &str) -> Self {
        let doors = leaf.doors().expect("doors");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::null());
        let enter = move || doors.iter().try_for_each(enter);
        // SAFETY: `write` is async-signal-safe, and nothing is allocated around it.
        #[expect(unsafe_code, reason = "to enter a group before exec")]
        let command = unsafe { command.pre_exec(enter) };
        Self(command.spawn().expect("a shell"))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.0.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }
}

impl Drop for Inmate {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn enter(door: &OwnedFd) -> std::io::Result<()> {
    assert!(door.as_raw_fd() > 2);
    rustix::io::write(door, b"0").map(drop).map_err(Into::into)
}

/// CPU time in clock ticks, or none where it has ended.
fn cpu_ticks(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    (fields[0] != "Z")
        .then(|| fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = boottime() + PATIENCE;
    while !holds() {
        assert!(boottime() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A busy process that has left its group and its session, and whose parent has ended.
const RUNAWAY: &str = "setsid sh -c 'echo $$; while :; do :; done' & sleep 1000";

#[test]
fn what_has_left_its_session_is_frozen_and_thawed_and_killed_all_the_same() {
    for (choice, enclosed) in freezing("runaway") {
        let leaf = enclosed.0.leaf("0").expect("made").expect("a leaf");
        let mut inmate = Inmate::start(&leaf, RUNAWAY);
        let runaway: i32 = inmate.line().parse().expect("a number");
        until("it works", || cpu_ticks(runaway).is_some_and(|ticks| ticks > 2));
        leaf.freeze().expect("frozen");
        until("it comes to rest", || leaf.is_frozen());
        let at_rest = cpu_ticks(runaway).expect("alive");
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(cpu_ticks(runaway), Some(at_rest), "{choice:?}: frozen and yet at work");
        leaf.thaw().expect("thawed");
        until("it works on", || cpu_ticks(runaway).is_some_and(|ticks| ticks > at_rest));
        leaf.freeze().expect("frozen");
        leaf.kill().expect("killed");
        until("it has ended", || cpu_ticks(runaway).is_none());
        leaf.remove().expect("removed");
    }
}

#[test]
fn marks_alone_are_enough_to_stop_it() {
    for (choice, enclosed) in freezing("marks") {
        let leaf = enclosed.0.leaf("0").expect("made").expect("a leaf");
        let mut inmate = Inmate::start(&leaf, RUNAWAY);
        let runaway: i32 = inmate.line().parse().expect("a number");
        let noted: Vec<_> = leaf.marks().paths().to_vec();
        let marks = Marks::from_paths(noted.clone());
        assert_eq!(marks.paths(), noted, "{choice:?}");
        assert!(marks.members().contains(&runaway));
        marks.freeze().expect("frozen");
        until("it comes to rest", || leaf.is_frozen());
        marks.kill().expect("killed");
        until("it has ended", || cpu_ticks(runaway).is_none());
    }
}

#[test]
fn marks_that_are_no_groups_of_ours_are_left_alone() {
    let paths = ["/tmp", "/etc", "/sys/fs/cgroup", "gleaner-x", "/sys/fs/cgroup/../gleaner-x"];
    assert!(Marks::from_paths(paths.map(Into::into)).is_empty());
    let nothing = Marks::default();
    assert!(nothing.freeze().is_err() && nothing.kill().is_err());
}

#[test]
fn an_enclosure_opened_again_is_empty() {
    for (choice, enclosed) in freezing("again") {
        let leaf = enclosed.0.leaf("0").expect("made").expect("a leaf");
        let mut inmate = Inmate::start(&leaf, RUNAWAY);
        let runaway: i32 = inmate.line().parse().expect("a number");
        leaf.freeze().expect("frozen");
        let again = Enclosed::open(choice, "again");
        until("what was left has ended", || cpu_ticks(runaway).is_none());
        assert!(again.0.leaf("0").expect("made").is_some());
    }
}

#[test]
fn limits_hold_and_may_change_while_it_works() {
    for (choice, enclosed) in freezing("limits") {
        let leaf = enclosed.0.leaf("0").expect("made").expect("a leaf");
        let limits = LeafLimits {
            share_permille: None,
            weight_permille: 500,
            memory_mib: Some(32),
            processes: Some(8),
        };
        leaf.set_limits(&limits).expect("set");
        let has = |ability| enclosed.grants(ability);
        if has(Ability::Memory) {
            // Its buffer is twice the limit.
            let hog = "dd if=/dev/zero of=/dev/null bs=64M count=1 && echo done";
            assert_eq!(Inmate::start(&leaf, hog).line(), "", "{choice:?}: memory without limit");
        }
        if has(Ability::Processes) {
            let bomb =
                "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 >/dev/null & done; echo all";
            let mut inmate = Inmate::start(&leaf, bomb);
            assert_eq!(inmate.line(), "", "{choice:?}: twelve processes where eight may be");
            leaf.kill().expect("killed");
        }
        if has(Ability::Share) {
            let mut busy = Inmate::start(&leaf, "echo $$; while :; do :; done");
            let pid: i32 = busy.line().parse().expect("a number");
            let share = LeafLimits { share_permille: Some(250), ..limits };
            leaf.set_limits(&share).expect("set");
            let rate = |wall_ms: u64| {
                let before = cpu_ticks(pid).expect("alive");
                std::thread::sleep(Duration::from_millis(wall_ms));
                // In thousandths of a core: a tick is ten milliseconds.
                (cpu_ticks(pid).expect("alive") - before) * 10_000 / wall_ms
            };
            assert!(rate(1_000) < 400, "{choice:?}: a quarter of a core is a quarter");
            leaf.set_limits(&LeafLimits::default()).expect("set");
        }
    }
}

#[test]
fn without_control_groups_there_is_no_leaf_and_each_ability_is_missing_with_a_reason() {
    let enclosed = Enclosed::open(Choice::ProcessGroups, "none");
    assert!(enclosed.0.leaf("0").expect("nothing to fail").is_none());
    let report = enclosed.0.report();
    assert_eq!(report.backend, "process-groups");
    assert_eq!(report.abilities.len(), Ability::ALL.len());
    assert!(report.abilities.iter().all(|one| one.why.is_some() && one.cost.is_some()));
    enclosed.0.set_cpus(&[0]).expect("nothing to refuse it");
    enclosed.0.set_idle(false).expect("nothing to refuse it");
}

#[test]
fn the_whole_is_kept_to_some_cores() {
    for (_, enclosed) in freezing("cores") {
        if !enclosed.grants(Ability::Cpus) {
            continue;
        }
        let leaf = enclosed.0.leaf("0").expect("made").expect("a leaf");
        enclosed.0.set_cpus(&[0]).expect("there is a first one");
        let mut inmate =
            Inmate::start(&leaf, "grep Cpus_allowed_list /proc/self/status; sleep 100");
        assert_eq!(inmate.line().split_whitespace().last(), Some("0"));
        enclosed.0.set_cpus(&[]).expect("left where it is");
        assert!(enclosed.0.set_cpus(&[60_000]).is_err());
    }
}

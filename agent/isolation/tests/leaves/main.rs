//! Real groups with real processes in them, for each way of isolation that this host grants.

mod delegated;
mod enclosed;
mod inmate;

use std::fs;
use std::process::Command;
use std::time::Duration;

use gleaner_isolation::{
    Ability, Choice, Enclosure, LeafLimits, Marks, agents_name, enclosures_at_work,
};
use gleaner_protocol::{Span, boottime};

use enclosed::{Enclosed, freezing};
use inmate::{Inmate, cpu_ticks, files_of, throttled, until};

/// A busy process that has left its group and its session, and whose parent has ended.
const RUNAWAY: &str = "setsid sh -c 'echo $$; while :; do :; done' & sleep 1000";

#[test]
fn what_has_left_its_session_is_frozen_and_thawed_and_killed_all_the_same() {
    for (choice, enclosed) in freezing("runaway") {
        let leaf = enclosed.0.leaf("0").expect("made").expect("a leaf");
        let mut inmate = Inmate::start(&leaf, RUNAWAY);
        let runaway = inmate.pid();
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
        let runaway = inmate.pid();
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
        let runaway = inmate.pid();
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
        if has(Ability::Weight) {
            let mut inmate = Inmate::start(&leaf, "echo $$; sleep 1000");
            let pid = inmate.pid();
            let weights = ["cpu.weight", "cpu.shares"].map(|name| files_of(pid, name)).concat();
            let is_half = |text: &String| ["50", "512"].contains(&text.trim());
            assert!(weights.iter().any(is_half), "{choice:?}: {weights:?}");
            leaf.kill().expect("killed");
        }
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
            let pid = busy.pid();
            let share = LeafLimits { share_permille: Some(250), ..limits };
            leaf.set_limits(&share).expect("set");
            let (begun, before) = (boottime(), cpu_ticks(pid).expect("alive"));
            std::thread::sleep(Duration::from_secs(1));
            let (after, took) = (cpu_ticks(pid).expect("alive"), boottime() - begun);
            // In thousandths of a core: a tick is ten milliseconds.
            let rate = (after - before) * 10_000 / took.as_millis();
            gleaner_calm::assert_within("thousandths of a core, of a quarter", rate, 400);
            // Not because the machine is busy.
            until("it is held back", || throttled(pid) > 0);
            leaf.set_limits(&LeafLimits::default()).expect("set");
        }
    }
}

#[test]
fn what_is_held_to_a_share_dies_as_fast_as_anything_else() {
    // An emulated machine has none, and times there say nothing.
    if !Command::new("python3").arg("-V").status().is_ok_and(|status| status.success()) {
        println!("no python3 here to take memory: nothing was tested");
        return;
    }
    for (choice, enclosed) in freezing("share-dies") {
        if !enclosed.grants(Ability::Share) || !enclosed.grants(Ability::Memory) {
            continue;
        }
        let leaf = enclosed.0.leaf("0").expect("made").expect("a leaf");
        let share = LeafLimits { share_permille: Some(10), ..LeafLimits::default() };
        for by_marks in [false, true, false, false] {
            // It takes its memory first.
            leaf.set_limits(&LeafLimits::default()).expect("set");
            let hog = "exec python3 -c 'import time; a = bytearray(b\"1\") * (1 << 29); \
                       print(1, flush=True); time.sleep(1000)'";
            let mut inmate = Inmate::start(&leaf, hog);
            assert_eq!(inmate.line().trim(), "1");
            leaf.set_limits(&share).expect("set");
            assert_eq!(leaf.share_permille(), Some(10));
            let begun = boottime();
            if by_marks { leaf.marks().kill() } else { leaf.kill() }.expect("killed");
            until("it has ended", || leaf.members().is_empty());
            // A hundredth of a core takes seconds to give half a GiB back; nobody waits for long.
            let took = boottime() - begun;
            gleaner_calm::assert_within("the end", took, Span::from_secs(3));
            leaf.set_limits(&share).expect("set");
            let mut next = Inmate::start(&leaf, "echo $$; sleep 1000");
            let pid = next.pid();
            let said = ["cpu.max", "cpu.cfs_quota_us"].map(|name| files_of(pid, name)).concat();
            let is_share = |text: &String| text.starts_with("1000 ") || text.trim() == "1000";
            assert!(said.iter().any(is_share), "{choice:?}: the next has its share: {said:?}");
            leaf.kill().expect("killed");
        }
    }
}

#[test]
fn what_limits_the_memory_of_the_whole_keeps_it_from_swap_too() {
    for (choice, enclosed) in freezing("swap") {
        enclosed.0.set_memory_mib(64).expect("nothing is in it");
        enclosed.0.set_memory_mib(96).expect("nothing is in it");
        let read = |file: &str| -> Vec<String> {
            let files = enclosed.0.paths().map(|path| path.join(file));
            let texts = files.filter_map(|file| fs::read_to_string(file).ok());
            texts.map(|text| text.trim().to_owned()).collect()
        };
        let bytes = (96_u64 << 20).to_string();
        // Files that this kernel does not have say nothing.
        for (file, wanted) in [
            ("memory.max", &*bytes),
            ("memory.swap.max", "0"),
            ("memory.limit_in_bytes", &*bytes),
            ("memory.memsw.limit_in_bytes", &*bytes),
            ("memory.swappiness", "0"),
        ] {
            let said = read(file);
            assert!(said.iter().all(|text| text == wanted), "{choice:?}: {file} is {said:?}");
        }
        let limits = [read("memory.max"), read("memory.limit_in_bytes")].concat();
        assert_eq!(limits.is_empty(), !enclosed.grants(Ability::Memory), "{choice:?}");
    }
}

#[test]
fn what_waits_at_its_own_limit_is_told_of_the_whole() {
    for (choice, enclosed) in freezing("waits") {
        let waited_us = || {
            let text = enclosed.0.memory_pressure()?;
            text.split_whitespace()
                .find_map(|word| word.strip_prefix("total=")?.parse::<u64>().ok())
        };
        let (Some(before), true) = (waited_us(), enclosed.grants(Ability::Memory)) else {
            println!("{choice:?}: no limit of memory here, or none whose waits are told of");
            continue;
        };
        let leaf = enclosed.0.leaf("0").expect("made").expect("a leaf");
        let limits = LeafLimits { memory_mib: Some(24), ..LeafLimits::default() };
        leaf.set_limits(&limits).expect("set");
        // A file that fits in no page cache of such a size, again and again.
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("large");
        let write = format!("dd if=/dev/zero of={} bs=1M count=96", file.display());
        let once = Inmate::start(&leaf, &format!("{write} && echo done")).line();
        if once != "done" {
            println!("{choice:?}: the files of {} are in memory", folder.path().display());
            continue;
        }
        let mut writer = Inmate::start(&leaf, &format!("echo $$; while :; do {write}; done"));
        writer.pid();
        until("it waits for memory", || waited_us().is_some_and(|now| now > before));
        leaf.kill().expect("killed");
    }
}

#[test]
fn all_work_waits_for_a_disk_behind_everything_else() {
    for (choice, enclosed) in freezing("disk") {
        let read = |file: &str| -> Vec<String> {
            let files = enclosed.0.paths().map(|path| path.join(file));
            let texts = files.filter_map(|file| fs::read_to_string(file).ok());
            texts.map(|text| text.lines().next().unwrap_or_default().to_owned()).collect()
        };
        let weights = ["io.weight", "io.bfq.weight", "blkio.bfq.weight"].map(read).concat();
        let is_least = |text: &String| text == "1" || text == "default 1";
        assert!(weights.iter().all(is_least), "{choice:?}: {weights:?}");
        assert!(!weights.is_empty() || !enclosed.grants(Ability::Disk), "{choice:?}");
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
fn the_whole_is_idle_from_the_beginning_until_it_is_to_stop() {
    for (choice, enclosed) in freezing("idle") {
        drop(enclosed);
        let name = format!("test-{}-idle-{choice:?}", std::process::id());
        let enclosure = Enclosure::open(choice, &name);
        let says = || -> Vec<String> {
            let files = enclosure.paths().map(|path| path.join("cpu.idle"));
            files.filter_map(|file| fs::read_to_string(file).ok()).collect()
        };
        let is_granted = !says().is_empty();
        assert!(says().iter().all(|text| text == "1\n"), "{choice:?}: {:?}", says());
        for idle in [false, true, false] {
            enclosure.set_idle(idle).expect("ours");
            let expected = if idle { "1\n" } else { "0\n" };
            assert!(says().iter().all(|text| text == expected), "{choice:?}: {:?}", says());
        }
        enclosure.remove().expect("empty");
        assert!(enclosure.set_idle(true).is_err() || !is_granted, "{choice:?}: it is gone");
    }
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

#[test]
fn the_enclosures_of_all_agents_are_found_and_can_be_killed() {
    for (choice, _) in freezing("found") {
        // Of the form in which agents name theirs.
        let name = agents_name(u64::from(std::process::id()) << 32 | choice as u64);
        let agents = Enclosed::named(choice, &name);
        let path = agents.0.paths().next().expect("it has one").to_owned();
        let mine = || enclosures_at_work().into_iter().find(|one| one.paths().contains(&path));
        assert_eq!(mine(), None, "nothing is in it");
        let leaf = agents.0.leaf("0").expect("made").expect("a leaf");
        let mut inmate = Inmate::start(&leaf, RUNAWAY);
        let runaway = inmate.pid();
        let found = mine().expect("something is in it");
        assert!(found.members().contains(&runaway), "{choice:?}: {found:?}");
        found.kill().expect("killed");
        until("it has ended", || cpu_ticks(runaway).is_none());
        until("it is empty", || mine().is_none());
    }
}

#[test]
fn a_leaf_whose_groups_are_gone_says_so_and_the_next_one_is_whole() {
    for (choice, enclosed) in freezing("broken") {
        let leaf = enclosed.0.leaf("0").expect("made").expect("a leaf");
        let mut inmate = Inmate::start(&leaf, RUNAWAY);
        let runaway = inmate.pid();
        // Somebody tidies up: all of it is killed and removed under our hands.
        enclosed.0.remove().expect("removed");
        until("it has ended", || cpu_ticks(runaway).is_none());
        assert!(leaf.doors().is_err(), "{choice:?}: nobody can enter");
        assert!(leaf.freeze().is_err() || leaf.members().is_empty());
        let _ = leaf.kill();
        assert!(enclosed.0.leaf("0").is_err(), "{choice:?}: it has nowhere to be");
        let again = Enclosed::open(choice, "broken");
        let leaf = again.0.leaf("0").expect("made").expect("a leaf");
        let mut inmate = Inmate::start(&leaf, "echo alive; sleep 1000");
        assert_eq!(inmate.line(), "alive");
        leaf.kill().expect("killed");
    }
}

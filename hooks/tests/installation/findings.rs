//! What a check finds: known traps, and what is broken.

use gleaner_hooks::install::{Finding, Level, Manager, Options, check, install, uninstall};

use crate::tree::Tree;
use crate::{QCONF, QUEUE, SCONTROL, tree_of};

/// What a startd judges by.
const CONDOR_POLICIES: &str = "#!/bin/sh\ncase \"$1\" in\n\
    START) echo 'NonCondorLoadAvg < 0.3' ;;\n\
    PREEMPT) echo 'TotalVirtualMemory < 1000' ;;\n\
    FULL_HOSTNAME) echo render042.farm ;;\n\
    *) echo GLEANER ;;\nesac\n";

#[test]
fn known_traps_are_named() {
    let traps = |manager, tree: &Tree| {
        let plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        let findings = check(manager, &tree.site(), &tree.options()).expect("it is there");
        let traps = findings.into_iter().filter(|one| one.level == Level::Trap);
        traps.map(|one| format!("{} -> {}\n", one.what, one.to_do)).collect::<String>()
    };
    let slurm =
        "PrologFlags=NoHold,aLLoc\nPrologEpilogTimeout=1\nHealthCheckProgram=/x\nNodeName=n1\n";
    for (manager, tree, words) in [
        (
            Manager::Slurm,
            Tree::new().with("etc/slurm/slurm.conf", slurm),
            &["has aLLoc", "PrologEpilogTimeout is shorter", "HealthCheckProgram=/x", "memory"][..],
        ),
        (
            Manager::GridEngine,
            tree_of(Manager::GridEngine),
            &[
                "np_load_avg=1.75",
                "first host",
                "h_vmem",
                "load_formula np_load_avg of the scheduler",
            ],
        ),
        (
            Manager::GridEngine,
            Tree::new()
                .with_program("qconf", QCONF)
                .with("queue", &QUEUE.replace("np_load_avg=1.75", "mem_free=2G,swap_used=1G")),
            &["in load_thresholds mem_free=2G,swap_used=1G of queue all.q", "reserve_memory_mib"],
        ),
        (
            Manager::Torque,
            tree_of(Manager::Torque)
                .with("var/spool/torque/mom_priv/config", "$max_load 4.0\n$prologalarm 1\n"),
            &["$max_load 4.0", "$prologalarm 1, of", "availmem"],
        ),
        (
            Manager::Torque,
            tree_of(Manager::Torque).with("var/spool/torque/mom_priv/config", "$prologalarm 12\n"),
            &["$prologalarm 12, of which a MoM leaves its scripts 2 s"],
        ),
        (
            Manager::OpenCue,
            tree_of(Manager::OpenCue),
            &["load average", "LOAD_MODIFIER", "default_gid", "90 % of memory"],
        ),
        (
            Manager::Generic,
            tree_of(Manager::Generic),
            &["threshold of load", "margin of free memory"],
        ),
        (Manager::Tractor, tree_of(Manager::Tractor), &["MaxLoad", "not before", "MinRAM"]),
        (
            Manager::Afanasy,
            tree_of(Manager::Afanasy),
            &["busy_cpu", "the server closes", "busy_mem"],
        ),
        (Manager::Deadline, tree_of(Manager::Deadline), &["Idle Detection", "CPU use or memory"]),
        (
            Manager::HtCondor,
            tree_of(Manager::HtCondor)
                .with_program("condor_config_val", CONDOR_POLICIES)
                .with_program("condor_reconfig", "#!/bin/sh\n"),
            &[
                "START judges by load",
                "HookKeyword",
                "VirtualMemory of PREEMPT",
                "CGROUP_MEMORY_LIMIT",
                "HTCondor calls this host render042.farm",
            ],
        ),
        (
            Manager::OpenPbs,
            tree_of(Manager::OpenPbs)
                .with("var/spool/pbs/mom_priv/config", "$ideal_load 3\n$enforce mem\n"),
            &["$ideal_load 3", "$enforce mem in", "pbs_cgroups"],
        ),
        (Manager::Qube, tree_of(Manager::Qube), &["host.processors", "load", "host.memory"]),
    ] {
        let said = traps(manager, &tree);
        for word in words {
            assert!(said.contains(word), "{manager}: no {word:?} in\n{said}");
        }
    }
}

#[test]
fn a_program_of_another_release_is_a_trap() {
    let own = env!("CARGO_PKG_VERSION");
    let answers = |text: &str| format!("echo '{text}'\n");
    for (name, says, level, word) in [
        ("gleaner", answers(&format!("gleaner {own}")), Level::Good, "is of this release"),
        ("gleaner-hook", answers(&format!("gleaner-hook {own}")), Level::Good, "of this release"),
        ("gleaner-hook", answers("gleaner-hook 0.0.9"), Level::Trap, "is of release 0.0.9, and"),
        // One that has no such word says nothing, as a hook does.
        ("gleaner-hook", String::new(), Level::Trap, "does not say its release"),
        ("gleaner-hook", "exit 3\n".to_owned(), Level::Trap, "does not say its release"),
    ] {
        let tree = tree_of(Manager::Generic).with_program(name, &format!("#!/bin/sh\n{says}"));
        let options = Options { program: format!("/bin/{name}").into(), ..tree.options() };
        let plan = install(Manager::Generic, &tree.site(), &options).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        let found = check(Manager::Generic, &tree.site(), &options).expect("it is there");
        let is_it = |one: &&Finding| one.what.contains(word);
        let found = found.iter().find(is_it).unwrap_or_else(|| panic!("{says}: {found:#?}"));
        assert_eq!(found.level, level, "{says}: {found:?}");
    }
    // A program of the site's own is not asked, and where nothing runs nobody is.
    let tree = tree_of(Manager::Generic).with_program("mine", "#!/bin/sh\n: > \"$0.asked\"\n");
    let options = Options { program: "/bin/mine".into(), ..tree.options() };
    let plan = install(Manager::Generic, &tree.site(), &options).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    check(Manager::Generic, &tree.site(), &options).expect("it is there");
    assert!(!tree.has("bin/mine.asked"));
}

#[test]
fn what_htcondor_has_of_ours_and_calls_the_host_is_said() {
    let answers = |text: &str| {
        let program = format!("#!/bin/sh\ncase \"$1\" in\n{text}*) exit 1 ;;\nesac\n");
        let tree = tree_of(Manager::HtCondor).with_program("condor_config_val", &program);
        let plan = install(Manager::HtCondor, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        tree.put("etc/gleaner/hook.env", "GLEANER_HOST=render042.farm\n");
        let findings =
            check(Manager::HtCondor, &tree.site(), &tree.options()).expect("it is there");
        findings.into_iter().map(|one| one.what).collect::<Vec<_>>().join("\n")
    };
    let keyword = "STARTER_JOB_HOOK_KEYWORD) echo GLEANER ;;\n";
    let exit = "GLEANER_HOOK_JOB_EXIT) echo /etc/gleaner/hooks/htcondor/exit ;;\n";
    let host = "FULL_HOSTNAME) echo render042.farm ;;\n";
    let (none, calls) = ("have no exit hook of ours", "HTCondor calls this host");
    let whole = answers(&format!("{keyword}{exit}{host}"));
    assert!(!whole.contains(none) && !whole.contains(calls), "{whole}");
    let new = answers(&format!("{keyword}{host}"));
    assert!(new.contains(none) && !new.contains(calls), "{new}");
    let other = answers(&format!("{keyword}{exit}{}", host.replace("042", "43")));
    assert!(
        other.contains("this host render43.farm, and the hooks call it render042.farm"),
        "{other}"
    );
}

#[test]
fn flags_by_which_slurm_runs_the_prolog_at_the_allocation_are_named() {
    for (flags, named) in [
        ("Alloc", Some("has Alloc (by slurm.conf")),
        ("Contain", Some("has Contain (by slurm.conf")),
        ("NoHold, x11", Some("has x11 (by slurm.conf")),
        ("RunInJob", Some("has RunInJob (by slurm.conf")),
        ("Serial,NoHold,DeferBatch", None),
    ] {
        let conf = format!("PrologFlags={flags}\nNodeName=n1\n");
        let tree = Tree::new().with("etc/slurm/slurm.conf", &conf);
        let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        let found = check(Manager::Slurm, &tree.site(), &tree.options()).expect("it is there");
        let said = found.iter().find(|one| one.what.starts_with("PrologFlags"));
        let said = said.map(|one| &one.what);
        assert_eq!(said.is_some(), named.is_some(), "{flags}: {said:?}");
        assert!(said.zip(named).is_none_or(|(said, named)| said.contains(named)), "{said:?}");
    }
}

#[test]
fn what_the_running_slurm_says_counts_more_than_the_file() {
    let conf = "PrologFlags=Contain\nPrologEpilogTimeout=60\nNodeName=n1\n";
    let tree = Tree::new().with("etc/slurm/slurm.conf", conf).with("running", "");
    let tree = tree.with_program("scontrol", SCONTROL);
    let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    let ours =
        "Prolog = /etc/gleaner/hooks/slurm/prolog\nEpilog = /etc/gleaner/hooks/slurm/epilog\n";
    let traps = |site| {
        let found = check(Manager::Slurm, &site, &tree.options()).expect("it is there");
        let traps = found.into_iter().filter(|one| one.level == Level::Trap);
        traps.map(|one| one.what + "\n").collect::<String>()
    };
    for (running, named, other) in [
        ("PrologFlags = (null)\nPrologEpilogTimeout = 65534\n", "is not set (as Slurm", "Contain"),
        ("PrologFlags = X11\nPrologEpilogTimeout = 60\n", "has X11 (as Slurm runs)", "Timeout"),
        // As one of 26.05 says it where the two differ.
        ("EpilogTimeout = 2\nPrologTimeout = 60\n", "EpilogTimeout is shorter (2 s", "not set"),
        ("EpilogTimeout = 60\nPrologTimeout = 65534\n", "a Prolog that hangs", "an Epilog"),
        // What it does not say is looked up.
        ("", "has Contain (by slurm.conf alone)", "Timeout"),
    ] {
        tree.put("running", &format!("{ours}{running}"));
        let said = traps(tree.site());
        assert!(said.contains(named) && !said.contains(other), "{running}: {said}");
    }
    // Where it cannot be asked, the file is what there is.
    let said = traps(tree.site().with_programs("/nowhere"));
    assert!(said.contains("has Contain (by slurm.conf alone)"), "{said}");
}

#[test]
fn what_a_trap_of_htcondors_says_to_do_makes_the_check_no_worse() {
    const FILE: &str = "etc/condor/config.d/60-gleaner.conf";
    let tree = tree_of(Manager::HtCondor);
    let before = tree.look();
    let put = || {
        let plan = install(Manager::HtCondor, &tree.site(), &tree.options()).expect("it fits");
        assert_eq!(plan.notes.iter().filter(|note| note.contains(FILE)).count(), 0);
        plan.apply(&tree.site()).expect("done");
    };
    let found = |level: Level| {
        let found = check(Manager::HtCondor, &tree.site(), &tree.options()).expect("it is there");
        let found = found.into_iter().filter(|one| one.level == level);
        found.map(|one| format!("{} -> {}\n", one.what, one.to_do)).collect::<String>()
    };
    put();
    let advice = "STARTER_DEFAULT_JOB_HOOK_KEYWORD in the place of STARTER_JOB_HOOK_KEYWORD in \
                  /etc/condor/config.d/60-gleaner.conf";
    assert!(found(Level::Trap).contains(advice), "{}", found(Level::Trap));
    let text = tree.read(FILE);
    tree.put(FILE, &text.replace("STARTER_JOB_HOOK", "STARTER_DEFAULT_JOB_HOOK"));
    assert_eq!(found(Level::Wrong), "");
    put();
    assert!(tree.read(FILE).contains("STARTER_DEFAULT_JOB_HOOK_KEYWORD = GLEANER"), "it stays");
    assert_eq!(found(Level::Wrong), "");
    assert!(!found(Level::Note).contains("not as it was installed"));
    assert!(found(Level::Trap).contains("runs without ours"), "{}", found(Level::Trap));
    let gone = uninstall(Manager::HtCondor, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert_eq!(tree.look(), before);
}

#[test]
fn what_keeps_htcondors_bookings_from_ending_and_its_own_harvest_are_traps() {
    let traps = |answers: &str, mounts: &str| {
        let program = format!("#!/bin/sh\ncase \"$1\" in\n{answers}*) exit 1 ;;\nesac\n");
        let tree = tree_of(Manager::HtCondor)
            .with_program("condor_config_val", &program)
            .with_program("condor_reconfig", "#!/bin/sh\n")
            .with("proc/self/mounts", mounts);
        let plan = install(Manager::HtCondor, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        let found = check(Manager::HtCondor, &tree.site(), &tree.options()).expect("it is there");
        let found = found.into_iter().filter(|one| one.level == Level::Trap);
        found.map(|one| format!("{}\n", one.what)).collect::<String>()
    };
    let mount =
        |how: &str| format!("sysfs /sys sysfs rw 0 0\nproc /proc proc rw,nosuid{how} 0 0\n");
    let none = traps("ENABLE_BACKFILL) echo false ;;\n", &mount(""));
    for word in ["ENABLE_BACKFILL", "SLOT1_USER", "DEDICATED", "hidepid"] {
        assert!(!none.contains(word), "{word} in {none}");
    }
    for (answers, how, word) in [
        ("ENABLE_BACKFILL) echo True ;;\n", "", "ENABLE_BACKFILL is True"),
        ("SLOT1_USER) echo slot1 ;;\n", "", "SLOT1_USER is slot1"),
        ("DEDICATED_EXECUTE_ACCOUNT_REGEXP) echo 'slot.+' ;;\n", "", "ACCOUNT_REGEXP is slot.+"),
        ("", ",hidepid=2,gid=7", "hidepid=2: a hook"),
        ("", ",hidepid=invisible", "hidepid=invisible: a hook"),
    ] {
        let said = traps(answers, &mount(how));
        assert!(said.contains(word), "no {word} in {said}");
    }
    assert!(!traps("", &mount(",hidepid=0")).contains("hidepid"));
}

#[test]
fn what_is_broken_is_called_wrong() {
    let broken = |manager, tree: &Tree, act: &dyn Fn(&Tree)| {
        let plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        act(tree);
        let findings = check(manager, &tree.site(), &tree.options()).expect("it is there");
        let wrong = findings.into_iter().filter(|one| one.level == Level::Wrong);
        wrong.map(|one| one.what).collect::<Vec<_>>().join("\n")
    };
    let slurm = || tree_of(Manager::Slurm);
    for (act, word) in [
        (&|tree: &Tree| tree.remove("etc/gleaner/hooks/slurm/prolog") as _, "prolog is gone"),
        (&|tree: &Tree| tree.chmod("etc/gleaner/hooks/slurm/prolog", 0o644), "cannot be run"),
        (&|tree: &Tree| tree.chmod("etc/gleaner/hooks/slurm/prolog", 0o777), "mode 0777"),
        (
            &|tree: &Tree| tree.put("etc/slurm/slurm.conf", "NodeName=n1\n"),
            "slurm.conf has no Prolog",
        ),
        (&|tree: &Tree| tree.remove("etc/gleaner/hook.env"), "there is no /etc/gleaner/hook.env"),
        (&|tree: &Tree| tree.remove("usr/local/bin/gleaner"), "the hooks do nothing"),
        (
            &|tree: &Tree| tree.put("etc/gleaner/hook.env", "GLEANER_TOKEN_FILE=/no/token\n"),
            "names the token file /no/token",
        ),
    ] as [(&dyn Fn(&Tree), &str); 7]
    {
        let wrong = broken(Manager::Slurm, &slurm(), act);
        assert!(wrong.contains(word), "no {word:?} in {wrong}");
    }
    let wrong = broken(Manager::GridEngine, &tree_of(Manager::GridEngine), &|tree| {
        tree.put("queue", QUEUE);
    });
    assert!(wrong.contains("queue all.q has prolog NONE"), "{wrong}");
    let wrong =
        broken(Manager::OpenPbs, &tree_of(Manager::OpenPbs), &|tree| tree.remove("hook-gleaner"));
    assert!(wrong.contains("the server has no hook gleaner"), "{wrong}");
    // Whoever may not see hooks cannot say that there is none.
    let tree = tree_of(Manager::OpenPbs);
    let hidden = broken(Manager::OpenPbs, &tree, &|tree| tree.put("unauthorized", ""));
    assert_eq!(hidden, "");
    let findings = check(Manager::OpenPbs, &tree.site(), &tree.options()).expect("it is there");
    let says = |one: &Finding| one.what.contains("does not show its hooks to this user");
    assert!(findings.iter().any(says), "{findings:#?}");
    let wrong = broken(Manager::Qube, &tree_of(Manager::Qube), &|tree| {
        tree.put("usr/local/pfx/qube/flightCheck/agenda/pre/gleaner-preflight", "");
    });
    assert!(wrong.contains("booked twice"), "{wrong}");
}

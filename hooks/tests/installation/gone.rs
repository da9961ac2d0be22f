//! What is left where a manager cannot be asked, or a job of its still ends by our files.

use gleaner_hooks::install::{Manager, Options, install, uninstall};

use crate::{QCONF, SCONTROL, tree_of};

#[test]
fn files_stay_where_the_manager_cannot_be_asked_until_it_is_said_to_be_gone() {
    for (manager, program, text) in
        [(Manager::Slurm, "scontrol", SCONTROL), (Manager::GridEngine, "qconf", QCONF)]
    {
        let tree = tree_of(manager).with_program(program, text).with("running", "");
        let plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        // `sudo` may have a PATH of its own.
        let site = tree.site().with_programs("/nowhere");
        let record = format!("etc/gleaner/hooks/{manager}/installed.json");
        let script = format!("etc/gleaner/hooks/{manager}/prolog");
        for _ in 0..2 {
            let gone = uninstall(manager, &site, false).expect("it is there");
            let why = format!("{program} is not here, so it cannot be asked");
            assert!(gone.left.iter().any(|left| left.contains(&why)), "{:?}", gone.left);
            assert!(tree.has(&record) && tree.has(&script), "{manager}");
        }
        let site = site.whose_manager_is_gone(true);
        let gone = uninstall(manager, &site, false).expect("it is there");
        assert_eq!(gone.left, [""; 0], "{manager}");
        assert!(!tree.has("etc/gleaner"), "{manager}");
    }
}

#[test]
fn what_an_administrator_set_by_hand_is_said_when_the_hooks_go() {
    for (manager, words) in [
        (Manager::Afanasy, &["busy_cpu", "busy_mem", "group.conf", "hook.token"][..]),
        (Manager::Deadline, &["Idle Detection", "group.conf", "hook.token"]),
        (Manager::Generic, &["thresholds"]),
        (Manager::GridEngine, &["load_thresholds", "load_formula", "load sensor"]),
        (Manager::HtCondor, &["NonCondorLoadAvg", "ENABLE_BACKFILL", "group.conf", "hook.token"]),
        (Manager::OpenCue, &["proc_loadavg_path", "LOAD_MODIFIER", "group.conf", "hook.token"]),
        (Manager::OpenPbs, &["$max_load", "operators -= gleaner-server"]),
        (Manager::Qube, &["the load by which"]),
        (Manager::Slurm, &["HealthCheckProgram", "sacctmgr delete user gleaner-server"]),
        (Manager::Torque, &["$ideal_load", "$max_load"]),
        (Manager::Tractor, &["MaxLoad", "group.conf", "hook.token"]),
    ] {
        let tree = tree_of(manager);
        let plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        for is_dry in [true, false] {
            let site = tree.site().whose_manager_is_gone(true);
            let gone = uninstall(manager, &site, is_dry).expect("it is there");
            let said = gone.notes.join("\n");
            for word in words {
                assert!(said.contains(word), "{manager}: no {word:?} in {said}");
            }
            let is_named = words.contains(&"hook.token");
            assert_eq!(said.contains("hook.token"), is_named, "{manager}: {said}");
        }
    }
}

#[test]
fn files_stay_while_a_starter_of_htcondor_may_end_its_job_with_our_exit_hook() {
    let tree = tree_of(Manager::HtCondor)
        .with_program("condor_reconfig", "#!/bin/sh\necho reconfig >> \"${0%/*}/../told\"\n")
        .with("proc/12/comm", "condor_startd\n")
        .with("proc/13/comm", "condor_starter\n")
        .with("proc/13/cmdline", "condor_starter\0-classad\0")
        .with("proc/4711/comm", "condor_starter\n")
        .with("proc/uptime", "1.0 1.0\n");
    let plan = install(Manager::HtCondor, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    let told = || tree.read("told").lines().count();
    let told_before = told();
    let began_at = |ticks: u64| {
        format!("4711 (condor_starter) S 1 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 {ticks} 1 2 3\n")
    };
    tree.put("proc/4711/stat", &began_at(1));
    for _ in 0..2 {
        let dry = uninstall(Manager::HtCondor, &tree.site(), true).expect("it is there");
        let gone = uninstall(Manager::HtCondor, &tree.site(), false).expect("it is there");
        assert_eq!(dry.done, gone.done, "what was promised is what was done");
        let why = "one runs now (condor_starter, process 4711)";
        assert!(dry.left.iter().any(|left| left.contains("would stay") && left.contains(why)));
        assert!(gone.left.iter().any(|left| left.contains(why)), "{:?}", gone.left);
        assert!(!tree.has("etc/condor/config.d/60-gleaner.conf"), "no job begins with it now");
        assert!(tree.has("etc/gleaner/hooks/htcondor/exit"));
    }
    assert_eq!(told(), told_before + 1, "it has read its configuration once");
    // The next job's, which began after our configuration was gone: there may always be one.
    tree.put("proc/4711/stat", &began_at(u64::MAX / 2));
    let gone = uninstall(Manager::HtCondor, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert!(!tree.has("etc/gleaner"));
}

#[test]
fn a_dry_run_promises_what_a_running_manager_lets_be_done() {
    let slurm = tree_of(Manager::Slurm).with_program("scontrol", SCONTROL).with("running", "");
    for (manager, tree) in [
        (Manager::Slurm, slurm),
        (Manager::GridEngine, tree_of(Manager::GridEngine)),
        (Manager::OpenPbs, tree_of(Manager::OpenPbs)),
    ] {
        let plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        let mut rounds = 0;
        while tree.has(&format!("etc/gleaner/hooks/{manager}")) {
            let dry = uninstall(manager, &tree.site(), true).expect("it is there");
            let gone = uninstall(manager, &tree.site(), false).expect("it is there");
            assert_eq!(dry.done, gone.done, "{manager}");
            let left: Vec<String> =
                dry.left.iter().map(|left| left.replace(" would stay: ", " stay: ")).collect();
            assert_eq!(left, gone.left, "{manager}");
            rounds += 1;
            assert!(rounds <= 2, "{manager}: {gone:?}");
        }
    }
}

#[test]
fn a_node_whose_own_configuration_has_the_prolog_keeps_it() {
    // Its controller, elsewhere, has been told already.
    let tree = tree_of(Manager::Slurm).with_program("scontrol", SCONTROL).with("running", "");
    let options = Options { files_only: true, ..tree.options() };
    let plan = install(Manager::Slurm, &tree.site(), &options).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    let conf = tree.read("etc/slurm/slurm.conf");
    let line = "Prolog=/etc/gleaner/hooks/slurm/prolog\n";
    tree.put("etc/slurm/slurm.conf", &format!("{conf}\n{line}"));
    for is_dry in [true, false] {
        let gone = uninstall(Manager::Slurm, &tree.site(), is_dry).expect("it is there");
        let why = "/etc/slurm/slurm.conf names them here: take the line out, or bring the one of";
        assert!(gone.left.iter().any(|left| left.contains(why)), "{:?}", gone.left);
        assert!(tree.has("etc/gleaner/hooks/slurm/prolog"));
    }
    tree.put("etc/slurm/slurm.conf", &format!("{conf}\n# {line}"));
    let gone = uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert!(!tree.has("etc/gleaner"));
}

#[test]
fn what_python_and_a_death_have_left_beside_our_files_goes_too() {
    for (manager, ours) in [
        (Manager::OpenPbs, "etc/gleaner/hooks/openpbs"),
        (Manager::Tractor, "etc/gleaner/hooks/tractor"),
    ] {
        let tree = tree_of(manager);
        let before = tree.look();
        let plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        for name in [
            "__pycache__/gleaner_hook.cpython-311.pyc",
            "__pycache__/gleaner_hook.cpython-312.opt-1.pyc",
            "gleaner_hook.pyc",
            ".gleaner_hook.py.gleaner-new.txt",
        ] {
            tree.put(&format!("{ours}/{name}"), "of no use to anybody");
        }
        let dry = uninstall(manager, &tree.site(), true).expect("it is there");
        let gone = uninstall(manager, &tree.site(), false).expect("it is there");
        assert_eq!(gone.left, [""; 0], "{manager}");
        assert_eq!(gone, dry, "{manager}");
        assert_eq!(tree.look(), before, "{manager}");
    }
}

#[test]
fn what_somebody_has_put_into_our_folder_stays_and_is_told() {
    let tree = tree_of(Manager::Generic);
    let plan = install(Manager::Generic, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    tree.put("etc/gleaner/hooks/generic/notes", "mine");
    let dry = uninstall(Manager::Generic, &tree.site(), true).expect("it is there");
    let gone = uninstall(Manager::Generic, &tree.site(), false).expect("it is there");
    assert_eq!(gone, dry);
    assert_eq!(gone.left, ["/etc/gleaner/hooks/generic is kept: not all in it is Gleaner's"]);
    assert_eq!(tree.read("etc/gleaner/hooks/generic/notes"), "mine");
}

//! What is left where a manager cannot be asked, or a job of its still ends by our files.

use gleaner_hooks::install::{Manager, install, uninstall};

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
fn files_stay_while_a_starter_of_htcondor_may_end_its_job_with_our_exit_hook() {
    let tree = tree_of(Manager::HtCondor)
        .with_program("condor_reconfig", "#!/bin/sh\n")
        .with("proc/12/comm", "condor_startd\n")
        .with("proc/4711/comm", "condor_starter\n")
        .with("proc/uptime", "1.0 1.0\n");
    let plan = install(Manager::HtCondor, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    for _ in 0..2 {
        let gone = uninstall(Manager::HtCondor, &tree.site(), false).expect("it is there");
        let why = "one runs now (condor_starter, process 4711)";
        assert!(gone.left.iter().any(|left| left.contains(why)), "{:?}", gone.left);
        assert!(!tree.has("etc/condor/config.d/60-gleaner.conf"), "no job begins with it now");
        assert!(tree.has("etc/gleaner/hooks/htcondor/exit"));
    }
    tree.remove("proc/4711/comm");
    let gone = uninstall(Manager::HtCondor, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert!(!tree.has("etc/gleaner"));
}

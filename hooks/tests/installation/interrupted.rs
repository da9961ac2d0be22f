//! What an installation that was cut short leaves for the next one, and what is somebody else's.

use gleaner_hooks::install::{InstallError, Level, Manager, Options, check, install, uninstall};

use crate::tree::Tree;
use crate::{SCONTROL, tree_of};

/// Tells what `condor_reconfig` read.
const CONDOR_CONFIG_VAL: &str = r#"#!/bin/sh
[ "$1" = -master ] || exit 1
sed -n "s/^$2 = //p" "${0%/*}/../running" | grep .
"#;
const CONDOR_RECONFIG: &str = "#!/bin/sh\ncp \"${0%/*}/../etc/condor/config.d/60-gleaner.conf\" \
                               \"${0%/*}/../running\"\n";

fn with_programs(manager: Manager) -> Tree {
    let tree = tree_of(manager);
    match manager {
        Manager::Slurm => tree.with_program("scontrol", SCONTROL).with("running", ""),
        Manager::HtCondor => tree
            .with_program("condor_reconfig", CONDOR_RECONFIG)
            .with_program("condor_config_val", CONDOR_CONFIG_VAL)
            .with("running", ""),
        _ => tree,
    }
}

fn put(manager: Manager, tree: &Tree, options: &Options) {
    let plan = install(manager, &tree.site(), options).expect("it fits");
    plan.apply(&tree.site()).expect("done");
}

#[test]
fn whatever_step_comes_last_the_next_run_does_the_rest() {
    for manager in Manager::ALL {
        let whole = with_programs(manager);
        let steps = install(manager, &whole.site(), &whole.options()).expect("it fits").changes;
        put(manager, &whole, &whole.options());
        let texts = |tree: &Tree| tree.look().into_values().collect::<Vec<_>>();
        for done in 0..=steps.len() {
            let tree = with_programs(manager);
            let before = tree.look();
            let mut plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
            plan.changes.truncate(done);
            plan.apply(&tree.site()).expect("these steps can be done");
            put(manager, &tree, &tree.options());
            assert_eq!(texts(&tree), texts(&whole), "{manager}, {done} steps");
            let again = install(manager, &tree.site(), &tree.options()).expect("it fits");
            assert!(again.is_done(), "{manager}, {done} steps: {:#?}", again.changes);
            if manager != Manager::HtCondor && manager != Manager::Slurm {
                uninstall(manager, &tree.site(), false).expect("it is there");
                assert_eq!(tree.look(), before, "{manager}, {done} steps");
            }
        }
    }
}

/// A site that an earlier release, whose scripts had another comment, was installed on.
fn of_an_earlier_release() -> Tree {
    let tree = tree_of(Manager::Slurm);
    put(Manager::Slurm, &tree, &tree.options());
    for file in SCRIPTS.into_iter().chain(["etc/gleaner/hooks/slurm/installed.json"]) {
        let text = tree.read(file);
        let earlier = text.replace("Exits 0 whatever happens", "Ends with 0 whatever happens");
        assert_ne!(earlier, text, "{file}");
        tree.put(file, &earlier);
    }
    tree
}

const SCRIPTS: [&str; 2] = ["etc/gleaner/hooks/slurm/prolog", "etc/gleaner/hooks/slurm/epilog"];

#[test]
fn a_newer_release_that_was_cut_short_is_finished_or_taken_away() {
    let fresh = tree_of(Manager::Slurm);
    let before = fresh.look().into_values().collect::<Vec<_>>();
    put(Manager::Slurm, &fresh, &fresh.options());
    let earlier = of_an_earlier_release();
    let steps = install(Manager::Slurm, &earlier.site(), &earlier.options()).expect("it fits");
    assert!(steps.changes.len() > 2, "{:#?}", steps.changes);
    for done in 0..=steps.changes.len() {
        for is_finished in [false, true] {
            let tree = of_an_earlier_release();
            let mut plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
            plan.changes.truncate(done);
            plan.apply(&tree.site()).expect("these steps can be done");
            if is_finished {
                put(Manager::Slurm, &tree, &tree.options());
                for file in SCRIPTS {
                    assert_eq!(tree.read(file), fresh.read(file), "{done} steps");
                }
                let again =
                    install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
                assert!(again.is_done(), "{done} steps: {:#?}", again.changes);
            }
            let gone = uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
            assert_eq!(gone.left, [""; 0], "{done} steps");
            assert_eq!(tree.look().into_values().collect::<Vec<_>>(), before, "{done} steps");
        }
    }
}

#[test]
fn what_somebody_has_changed_is_never_written_over() {
    let changed = "#!/bin/sh\n# mine\n";
    let tree = of_an_earlier_release();
    tree.put(SCRIPTS[0], changed);
    let conf = Tree::new()
        .with("etc/condor/config.d/60-gleaner.conf", changed)
        .with("etc/condor/condor_config", "");
    for (manager, tree, file) in [
        (Manager::Slurm, &tree, SCRIPTS[0]),
        (Manager::HtCondor, &conf, "etc/condor/config.d/60-gleaner.conf"),
    ] {
        for _ in 0..2 {
            let plan = install(manager, &tree.site(), &tree.options()).expect("it fits");
            let said = plan.notes.join("\n");
            assert!(said.contains(&format!("/{file} is there, not as this release")), "{said}");
            plan.apply(&tree.site()).expect("done");
            assert_eq!(tree.read(file), changed);
        }
        uninstall(manager, &tree.site(), false).expect("it is there");
        assert_eq!(tree.read(file), changed);
    }
    assert!(!tree.has(SCRIPTS[1]), "nobody had changed that one");
}

#[test]
fn files_stay_while_a_file_of_the_sites_names_them_to_htcondor() {
    let tree = with_programs(Manager::HtCondor);
    put(Manager::HtCondor, &tree, &tree.options());
    let conf = "etc/condor/config.d/60-gleaner.conf";
    tree.put(conf, &tree.read(conf).replace("STARTER_JOB_", "STARTER_DEFAULT_JOB_"));
    let gone = uninstall(Manager::HtCondor, &tree.site(), false).expect("it is there");
    let why = format!("/{conf} names them");
    assert!(gone.left.iter().any(|left| left.contains(&why)), "{gone:?}");
    assert!(tree.has("etc/gleaner/hooks/htcondor/prepare") && tree.has(conf));
    tree.remove(conf);
    let gone = uninstall(Manager::HtCondor, &tree.site(), false).expect("it is there");
    assert!(gone.left.is_empty() && !tree.has("etc/gleaner"), "{gone:?}");
}

#[test]
fn a_server_gets_the_text_that_files_alone_brought() {
    let tree = tree_of(Manager::OpenPbs);
    put(Manager::OpenPbs, &tree, &tree.options());
    let text = tree.read("hook-gleaner");
    tree.put("hook-gleaner", "# another release's\n");
    tree.put("hook-gleaner.enabled", "false\n");
    put(Manager::OpenPbs, &tree, &Options { files_only: true, ..tree.options() });
    let findings = check(Manager::OpenPbs, &tree.site(), &tree.options()).expect("it is there");
    assert!(findings.iter().any(|one| one.level == Level::Wrong), "{findings:#?}");
    put(Manager::OpenPbs, &tree, &tree.options());
    assert_eq!(tree.read("hook-gleaner"), text);
    assert_eq!(tree.read("hook-gleaner.enabled"), "true\n");
    let gone = uninstall(Manager::OpenPbs, &tree.site(), false).expect("it is there");
    assert!(gone.left.is_empty() && !tree.has("hook-gleaner"), "{gone:?}");
}

#[test]
fn a_hook_of_the_servers_that_we_did_not_make_is_never_deleted() {
    let hooked = |text: &str| {
        tree_of(Manager::OpenPbs)
            .with("hook-gleaner", text)
            .with("hook-gleaner.event", "execjob_end\n")
            .with("hook-gleaner.enabled", "true\n")
    };
    for text in ["import pbs\n# mine\n", ""] {
        let tree = hooked(text);
        let before = tree.look();
        let error = install(Manager::OpenPbs, &tree.site(), &tree.options()).expect_err("taken");
        assert!(matches!(error, InstallError::Occupied { .. }), "{error}");
        assert_eq!(tree.look(), before);
    }
    // That of another host's installation is put right, and stays.
    let other = tree_of(Manager::OpenPbs);
    put(Manager::OpenPbs, &other, &other.options());
    let tree = hooked(&other.read("hook-gleaner"));
    for _ in 0..2 {
        put(Manager::OpenPbs, &tree, &tree.options());
    }
    assert_eq!(tree.read("hook-gleaner.event"), "execjob_begin,execjob_end\n");
    let gone = uninstall(Manager::OpenPbs, &tree.site(), false).expect("it is there");
    assert!(gone.left.iter().any(|left| left.contains("still has the hook")), "{gone:?}");
    assert!(tree.has("hook-gleaner"));
}

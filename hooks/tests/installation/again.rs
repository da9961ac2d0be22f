//! What is installed again, otherwise than before.

use gleaner_hooks::install::{Manager, Options, install, uninstall};

use crate::tree::Tree;
use crate::{QUEUE, SCONTROL, tree_of};

/// Answers as `qconf` does, of queues in a folder; one that is named in `stuck` cannot be changed.
const QCONF: &str = r#"#!/bin/sh
root=${0%/*}/..
case "$1" in
-sel) echo node1 ;;
-sql) ls "$root/queues" ;;
-sq) cat "$root/queues/$2" ;;
-sconf) echo "prolog NONE" ;;
-sconfl) echo "no config defined" >&2; exit 1 ;;
-mattr)
    [ "$(cat "$root/stuck" 2>/dev/null)" != "$5" ] || exit 1
    sed -i "s|^$3 .*|$3 $4|" "$root/queues/$5" ;;
*) exit 1 ;;
esac
"#;

fn put(manager: Manager, tree: &Tree, options: &Options) {
    let plan = install(manager, &tree.site(), options).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    let again = install(manager, &tree.site(), options).expect("it fits");
    assert!(again.is_done(), "{manager}: {:#?}", again.changes);
}

fn queues() -> Tree {
    Tree::new()
        .with_program("qconf", QCONF)
        .with_program("qstat", "#!/bin/sh\n")
        .with("queues/a.q", QUEUE)
        .with("queues/b.q", QUEUE)
}

fn queue(tree: &Tree, name: &str) -> Options {
    Options { queues: vec![name.into()], ..tree.options() }
}

#[test]
fn queues_that_were_named_one_after_the_other_are_all_let_go() {
    let tree = queues();
    let before = tree.look();
    for name in ["a.q", "b.q", "a.q"] {
        put(Manager::GridEngine, &tree, &queue(&tree, name));
    }
    put(Manager::GridEngine, &tree, &Options { files_only: true, ..tree.options() });
    for name in ["a.q", "b.q"] {
        assert!(tree.read(&format!("queues/{name}")).contains("/grid-engine/prolog"), "{name}");
    }
    let gone = uninstall(Manager::GridEngine, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert_eq!(tree.look(), before, "nothing is left");
}

#[test]
fn files_stay_while_a_queue_that_nobody_named_runs_them() {
    let tree = queues();
    put(Manager::GridEngine, &tree, &queue(&tree, "a.q"));
    // An administrator's doing, such as a copy of that queue.
    tree.put("queues/c.q", &tree.read("queues/a.q"));
    let gone = uninstall(Manager::GridEngine, &tree.site(), false).expect("it is there");
    assert!(gone.left.iter().any(|left| left.contains("a queue still names them")), "{gone:?}");
    assert!(tree.has("etc/gleaner/hooks/grid-engine/prolog"), "it would be in error state");
    tree.put("queues/c.q", QUEUE);
    let gone = uninstall(Manager::GridEngine, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert!(!tree.has("etc/gleaner"));
}

#[test]
fn files_stay_while_a_queue_of_the_first_installation_cannot_be_changed() {
    let tree = queues();
    for name in ["a.q", "b.q"] {
        put(Manager::GridEngine, &tree, &queue(&tree, name));
    }
    tree.put("stuck", "a.q");
    let gone = uninstall(Manager::GridEngine, &tree.site(), false).expect("it is there");
    assert!(gone.left.iter().any(|left| left.contains("a queue still names them")), "{gone:?}");
    assert!(tree.has("etc/gleaner/hooks/grid-engine/prolog"));
    tree.remove("stuck");
    let gone = uninstall(Manager::GridEngine, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert!(!tree.has("etc/gleaner") && tree.read("queues/a.q") == QUEUE);
}

#[test]
fn whatever_was_left_out_the_second_time_is_taken_away_too() {
    for manager in Manager::ALL {
        let whole = |tree: &Tree| tree.options();
        let files_only = |tree: &Tree| Options { files_only: true, ..tree.options() };
        let elsewhere = |tree: &Tree| Options { folder: None, ..tree.options() };
        let other = |tree: &Tree| Options { run_dir: "/run/other".into(), ..tree.options() };
        let ways: [&dyn Fn(&Tree) -> Options; 4] = [&whole, &files_only, &elsewhere, &other];
        for (first, second) in (0..4).flat_map(|first| (0..4).map(move |second| (first, second))) {
            let tree = tree_of(manager);
            let before = tree.look();
            for way in [first, second] {
                put(manager, &tree, &ways[way](&tree));
            }
            let gone = uninstall(manager, &tree.site(), false).expect("it is there");
            assert_eq!(gone.left, [""; 0], "{manager}: {first}, {second}");
            assert_eq!(tree.look(), before, "{manager}: {first}, {second}");
        }
    }
}

#[test]
fn slurm_reads_its_configuration_again_though_files_alone_came_last() {
    let tree = tree_of(Manager::Slurm).with_program("scontrol", SCONTROL).with("running", "");
    put(Manager::Slurm, &tree, &tree.options());
    put(Manager::Slurm, &tree, &Options { files_only: true, ..tree.options() });
    let gone = uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
    assert!(gone.left.iter().any(|left| left.contains("only now")), "{gone:?}");
    assert!(!tree.read("running").contains("gleaner"), "it was told");
    assert!(tree.has("etc/gleaner/hooks/slurm/prolog"), "a node may not have read it yet");
    let gone = uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert!(!tree.has("etc/gleaner"));
}

#[test]
fn settings_beside_the_scripts_count_in_the_place_of_those_of_all_hooks() {
    let beside = "var/spool/torque/mom_priv/gleaner-hook.txt";
    let tree = tree_of(Manager::Torque).with(beside, "GLEANER_MONITOR=http://head:1\n");
    let said = [("GLEANER_MONITOR", "http://head:1"), ("GLEANER_HOST", "n2")];
    let settings = said.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let options = Options { settings, ..tree.options() };
    let plan = install(Manager::Torque, &tree.site(), &options).expect("it fits");
    assert!(plan.notes.iter().any(|note| note.contains(beside)), "{:?}", plan.notes);
    assert_eq!(plan.undone.len(), 1, "{:?}", plan.undone);
    assert!(plan.undone[0].contains(&format!("GLEANER_HOST=n2 is not in /{beside}")));
}

#[test]
fn what_is_not_said_again_stays_as_it_was() {
    let tree = tree_of(Manager::Slurm);
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let monitor = setting("GLEANER_MONITOR", "https://monitor:8000");
    let all = Options {
        settings: vec![monitor.clone(), setting("GLEANER_HOST", "n1")],
        node: Some("n1".into()),
        conf: Some("/etc/slurm/slurm.conf".into()),
        nodes_are_ready: true,
        ..tree.options()
    };
    put(Manager::Slurm, &tree, &all);
    for fewer in [
        Options { settings: vec![setting("GLEANER_HOST", "n1")], ..tree.options() },
        Options { settings: vec![monitor], ..tree.options() },
        tree.options(),
    ] {
        let plan = install(Manager::Slurm, &tree.site(), &fewer).expect("it fits");
        assert!(plan.is_done(), "{:#?}", plan.changes);
    }
    // One that is said otherwise replaces its own alone.
    let other = Options { settings: vec![setting("GLEANER_HOST", "n2")], ..tree.options() };
    put(Manager::Slurm, &tree, &other);
    let settings = tree.read("etc/gleaner/hook.env");
    assert!(settings.contains("GLEANER_HOST=n2\n"), "{settings}");
    assert!(settings.contains("GLEANER_MONITOR=https://monitor:8000\n"), "{settings}");
    let queues = queues();
    put(Manager::GridEngine, &queues, &queue(&queues, "a.q"));
    let plan = install(Manager::GridEngine, &queues.site(), &queues.options()).expect("it fits");
    assert!(plan.is_done(), "{:#?}", plan.changes);
}

//! A site with a Prolog and an Epilog of its own, and a Slurm that runs several, or one alone.

use gleaner_hooks::install::{Level, Manager, Options, check, install, uninstall};

use crate::SCONTROL;
use crate::tree::Tree;

/// A `sinfo` that says the releases of the nodes.
const SINFO: &str = "#!/bin/sh\ncat \"${0%/*}/../nodes\"\n";

/// A Slurm with scripts of its own, whose controller is of this release and whose nodes of these.
fn of_release(controller: &str, nodes: &str) -> Tree {
    let show = SCONTROL.replace("show) ", &format!("show) echo SLURM_VERSION = {controller}; "));
    Tree::new()
        .with("etc/slurm/slurm.conf", "Prolog=/site/p.sh\nEpilog=/site/e.sh\nNodeName=n1\n")
        .with_program("scontrol", &show)
        .with_program("sinfo", SINFO)
        .with("running", "")
        .with("nodes", nodes)
}

#[test]
fn a_slurm_that_runs_several_scripts_runs_ours_beside_the_sites() {
    let tree = of_release("24.05.1", "24.05.0\n25.11.2\n");
    let (site, options) = (tree.site(), tree.options());
    let conf = tree.read("etc/slurm/slurm.conf");
    install(Manager::Slurm, &site, &options).expect("it fits").apply(&site).expect("done");
    let now = tree.read("running");
    for line in ["Prolog=/site/p.sh\n", "Prolog=/etc/gleaner/hooks/slurm/prolog\n"] {
        assert!(now.contains(line), "no {line} in {now}");
    }
    let again = install(Manager::Slurm, &site, &options).expect("it fits");
    assert!(again.is_done() && again.undone.is_empty(), "{again:#?}");
    let found = check(Manager::Slurm, &site, &options).expect("it is there");
    assert!(found.iter().all(|one| one.level != Level::Wrong), "{found:#?}");
    let has = |level, word: &str| {
        let found = check(Manager::Slurm, &site, &options).expect("it is there");
        assert!(
            found.iter().any(|one| one.level == level && one.what.contains(word)),
            "{found:#?}"
        );
    };
    has(Level::Good, "slurm.conf has 2 lines Prolog=, which Slurm takes from 24.05 on");

    // A node of an older release joins, which would run one of them.
    tree.put("nodes", "24.05.0\n23.11.10\n");
    has(Level::Wrong, "a slurmd is of release 23.11.10, which runs the last of them alone");
    // Where nobody can be asked what was installed stays so.
    let silent = site.clone().with_programs("/nowhere");
    let again = install(Manager::Slurm, &silent, &options).expect("it fits");
    assert!(again.is_done() && again.undone.is_empty(), "{again:#?}");

    tree.put("nodes", "24.05.0\n");
    uninstall(Manager::Slurm, &site, false).expect("it is there");
    assert_eq!(tree.read("etc/slurm/slurm.conf"), conf);
    assert_eq!(tree.read("running"), conf);
    let gone = uninstall(Manager::Slurm, &site, false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert!(!tree.has("etc/gleaner"));
}

#[test]
fn a_slurm_of_which_a_part_may_run_one_script_alone_is_left_with_the_sites() {
    for (controller, nodes, why) in [
        ("22.05.8", "22.05.8\n", "slurmctld is of release 22.05.8"),
        ("24.05.1", "24.05.1\n23.11.4\n", "a slurmd is of release 23.11.4"),
        ("24.05.1", "24.05.1\nN/A\n", "a slurmd does not say of which release it is"),
        ("", "24.05.1\n", "slurmctld does not say of which release it is"),
    ] {
        let tree = of_release(controller, nodes);
        let before = tree.look();
        let refused = install(Manager::Slurm, &tree.site(), &tree.options());
        let said = refused.expect_err("it is taken").to_string();
        let line = "add `Prolog=/etc/gleaner/hooks/slurm/prolog` on a line below yours";
        assert!(said.contains(why) && said.contains(line), "{why}: {said}");
        assert_eq!(tree.look(), before, "{why}");

        // Who knows better does what it says.
        let files = Options { files_only: true, ..tree.options() };
        let plan = install(Manager::Slurm, &tree.site(), &files).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        let conf = "Prolog=/site/p.sh\nProlog=/etc/gleaner/hooks/slurm/prolog\n\
                    Epilog=/site/e.sh\nEpilog=/etc/gleaner/hooks/slurm/epilog\n\
                    PrologEpilogTimeout=20\nNodeName=n1\n";
        tree.put("etc/slurm/slurm.conf", conf);
        let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        assert_eq!(tree.read("etc/slurm/slurm.conf"), conf, "{why}");
        let gone = uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
        let left = gone.left.join("\n");
        assert!(left.contains("names them here: take the line out"), "{why}: {left}");
        assert!(tree.has("etc/gleaner/hooks/slurm/prolog"), "a missing Prolog drains the node");
    }
}

#[test]
fn slurms_own_folder_of_scripts_takes_ours_too() {
    let conf = "Prolog=/etc/slurm/prolog.d/*\nPrologFlags=Contain,NoHold\nPrologEpilogTimeout=60\n\
                NodeName=n1\n";
    let tree = Tree::new()
        .with("etc/slurm/slurm.conf", conf)
        .with("etc/slurm/prolog.d/50-site", "#!/bin/sh\n");
    let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    assert!(tree.is_executable("/etc/slurm/prolog.d/gleaner"));
    let now = tree.read("etc/slurm/slurm.conf");
    assert!(!now.contains("Prolog=/etc/gleaner") && now.contains("\nEpilog=/etc/gleaner"), "{now}");
    assert!(!now.contains("Alloc"), "which delays every job: {now}");
    let findings = check(Manager::Slurm, &tree.site(), &tree.options()).expect("it is there");
    assert!(findings.iter().all(|one| one.level != Level::Wrong), "{findings:#?}");
    uninstall(Manager::Slurm, &tree.site(), false).expect("it is there");
    assert_eq!(tree.read("etc/slurm/slurm.conf"), conf);
    assert!(!tree.has("etc/slurm/prolog.d/gleaner") && tree.has("etc/slurm/prolog.d/50-site"));
}

#[test]
fn a_node_gets_ours_into_the_folder_that_its_slurm_runs() {
    let running = "Prolog = /etc/slurm/prolog.d/*\nEpilog = /etc/gleaner/hooks/slurm/epilog\n";
    let node = Tree::new()
        .with_program("scontrol", SCONTROL)
        .with("running", running)
        .with("etc/slurm/prolog.d/50-site", "#!/bin/sh\n");
    let before = node.look();
    let files = Options { files_only: true, ..node.options() };
    let found = |level| {
        let found = check(Manager::Slurm, &node.site(), &files).expect("it is there");
        let found = found.into_iter().filter(|one| one.level == level);
        found.map(|one| one.what + "\n").collect::<String>()
    };
    // By one that could not be asked nothing is put there, and that is said.
    let silent = node.site().with_programs("/nowhere");
    let plan = install(Manager::Slurm, &silent, &files).expect("it fits");
    let said = plan.notes.join("\n");
    assert!(said.contains("copy each of ours into its folder as `gleaner`"), "{said}");
    plan.apply(&silent).expect("done");
    let why = "and /etc/slurm/prolog.d/gleaner cannot be run on this host";
    assert!(found(Level::Wrong).contains(why), "{}", found(Level::Wrong));

    let plan = install(Manager::Slurm, &node.site(), &files).expect("it fits");
    assert_eq!(plan.undone, [""; 0]);
    plan.apply(&node.site()).expect("done");
    assert!(node.is_executable("/etc/slurm/prolog.d/gleaner"));
    assert_eq!(
        node.read("etc/slurm/prolog.d/gleaner"),
        node.read("etc/gleaner/hooks/slurm/prolog")
    );
    assert!(found(Level::Good).contains("with Prolog = /etc/slurm/prolog.d/*"));
    assert_eq!(found(Level::Wrong), "");
    assert!(install(Manager::Slurm, &node.site(), &files).expect("it fits").is_done());
    // The folder is let go on the node, when the controller runs none of ours any more.
    node.put("running", "Prolog = /etc/slurm/prolog.d/*\nEpilog = (null)\n");
    for _ in 0..2 {
        uninstall(Manager::Slurm, &node.site(), false).expect("it is there");
        assert!(!node.has("etc/slurm/prolog.d/gleaner"));
        if !node.has("etc/gleaner") {
            break;
        }
    }
    node.put("running", running);
    assert_eq!(node.look(), before);
}

#[test]
fn a_time_limit_is_set_where_it_holds_for_ours_alone() {
    const LINE: &str = "PrologEpilogTimeout=20\n";
    let new = || of_release("24.05.1", "24.05.1\n").with("etc/slurm/slurm.conf", "NodeName=n1\n");
    let put = |tree: &Tree| {
        let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
        let notes = plan.notes.join("\n");
        plan.apply(&tree.site()).expect("done");
        let again = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
        assert!(again.is_done(), "{again:#?}");
        notes
    };
    let traps = |tree: &Tree| {
        let found = check(Manager::Slurm, &tree.site(), &tree.options()).expect("it is there");
        let found = found.into_iter().filter(|one| one.level == Level::Trap);
        found.map(|one| format!("{} -> {}\n", one.what, one.to_do)).collect::<String>()
    };
    let alone = new();
    assert!(!put(&alone).contains("PrologEpilogTimeout"));
    assert!(alone.read("etc/slurm/slurm.conf").contains(LINE));
    assert!(!traps(&alone).contains("Timeout"), "{}", traps(&alone));
    for (path, text, theirs) in [
        ("etc/slurm/slurm.conf", "epilogslurmctld=/site/e\nNodeName=n1\n", "Slurmctld=/site/e"),
        ("etc/slurm/slurm.conf", "Epilog=/site/e\nNodeName=n1\n", "Epilog=/site/e"),
        ("etc/slurm/slurm.conf", "PlugStackConfig=/site/x\nNodeName=n1\n", "plugins of /site/x"),
        (
            "etc/slurm/plugstack.conf",
            "required /lib/x.so\n",
            "plugins of /etc/slurm/plugstack.conf",
        ),
        // Of a file that is not read here.
        ("running", "PrologSlurmctld = /site/p\n", "PrologSlurmctld=/site/p"),
    ] {
        let tree = new().with("site/x", "optional /site/y.so\n");
        // What an earlier release has set goes.
        put(&tree);
        tree.put(path, text);
        if path.ends_with("slurm.conf") {
            tree.put("running", "");
        } else {
            assert!(traps(&tree).contains("is Gleaner's and holds for"), "{}", traps(&tree));
        }
        // What runs says so as long as it has not read it anew.
        let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
        let notes = plan.notes.join("\n");
        for word in ["PrologEpilogTimeout is left unset", theirs] {
            assert!(notes.contains(word), "no {word} in {notes}");
        }
        plan.apply(&tree.site()).expect("done");
        let now = tree.read("etc/slurm/slurm.conf");
        assert!(now.contains("Prolog=/etc/gleaner/") && !now.contains(LINE), "{now}");
        if path != "running" {
            let said = traps(&tree);
            let advice = "if you set it, to more than the longest run of";
            assert!(said.contains(theirs) && said.contains(advice), "{said}");
        }
    }
}

#[test]
fn a_file_of_plugins_that_names_none_is_no_reason_to_leave_the_time_limit_unset() {
    let one_node = |plugins: &str| {
        Tree::new()
            .with("etc/slurm/slurm.conf", "NodeName=n1\n")
            .with("etc/slurm/plugstack.conf", plugins)
            .with("etc/slurm/plugstack.conf.d/README", "")
    };
    let stock = "# As Debian has it.\ninclude /etc/slurm/plugstack.conf.d/*.conf\n";
    let plugin = ("etc/slurm/plugstack.conf.d/x.conf", "# mine\noptional /site/x.so # why\n");
    for (tree, is_set) in [
        (one_node(""), true),
        (one_node("# required /lib/x.so\n"), true),
        (one_node(stock), true),
        (one_node("include plugstack.conf.d/*\n"), true),
        (one_node("include /etc/slurm/none.conf\n"), true),
        (one_node(stock).with(plugin.0, "# none yet\n"), true),
        (one_node(stock).with(plugin.0, plugin.1), false),
        (one_node("include plugstack.conf.d/*\n").with(plugin.0, plugin.1), false),
        (one_node("include plugstack.conf.d/x.conf\n").with(plugin.0, plugin.1), false),
        (one_node("include plugstack.conf\n"), false),
        (one_node("required x.so\n"), false),
    ] {
        let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        let conf = tree.read("etc/slurm/slurm.conf");
        let plugins = tree.read("etc/slurm/plugstack.conf");
        assert_eq!(conf.contains("PrologEpilogTimeout=20"), is_set, "{plugins}: {conf}");
    }
}

//! When Slurm's configuration may be changed without a word that every node has the files.

use gleaner_hooks::install::{Manager, install};

use crate::SCONTROL;
use crate::tree::Tree;

/// Files that include each other, one deeper than they are followed, the last of which has a node.
fn deep() -> Tree {
    let tree = Tree::new().with("etc/slurm/slurm.conf", "NodeName=n1\nInclude 1\n");
    (1..=8).for_each(|at| tree.put(&format!("etc/slurm/{at}"), &format!("Include {}\n", at + 1)));
    tree.with("etc/slurm/9", "NodeName=n2\n")
}

#[test]
fn a_cluster_that_may_have_more_nodes_than_one_waits_for_them() {
    let conf = |text: &str| Tree::new().with("etc/slurm/slurm.conf", text);
    for (tree, why) in [
        (conf("NodeName=n1\nInclude nodes.conf\n"), "it includes /etc/slurm/nodes.conf, which"),
        (conf("Include /shared/%c.conf\nNodeName=n1\n"), "it includes /shared/%c.conf, which"),
        (deep(), "it includes /etc/slurm/9, which"),
        (conf("ClusterName=x\n"), "it names no node"),
        (conf("NodeName=DEFAULT CPUs=4\n"), "it names no node"),
        (conf("MaxNodeCount=100\nNodeSet=ns Feature=f\n"), "MaxNodeCount, /etc/slurm/slurm.conf:1"),
        (conf("NodeName=n1\nmaxnodecount = 100\n"), "MaxNodeCount, /etc/slurm/slurm.conf:2"),
        (conf("NodeName=n1\nNodeName=n2\n"), "more nodes than one"),
        (conf("NodeName=n[1-2]\n"), "more nodes than one"),
    ] {
        let tree = tree.with_program("scontrol", SCONTROL).with("running", "");
        let before = tree.read("etc/slurm/slurm.conf");
        let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
        let said = plan.undone.join("\n");
        assert!(said.contains(why) && said.contains("--nodes-are-ready"), "{why}: {said}");
        plan.apply(&tree.site()).expect("done");
        assert_eq!(tree.read("etc/slurm/slurm.conf"), before, "{why}");
        assert!(!tree.has("told") && tree.has("etc/gleaner/hooks/slurm/prolog"), "{why}");

        let tree = tree.nodes_are_ready();
        let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        assert!(tree.read("running").contains("Prolog=/etc/gleaner/hooks/slurm/prolog"), "{why}");
    }
}

#[test]
fn a_cluster_of_one_node_needs_no_word() {
    for (conf, more) in [("NodeName=n1 CPUs=4\n", ""), ("Include more\n", "NodeName=n1\n")] {
        let tree = Tree::new().with("etc/slurm/slurm.conf", conf).with("etc/slurm/more", more);
        let plan = install(Manager::Slurm, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        assert!(tree.read("etc/slurm/slurm.conf").contains("Prolog=/etc/gleaner"), "{conf}");
    }
}

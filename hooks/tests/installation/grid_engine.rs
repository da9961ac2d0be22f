//! Grid Engine: what a site has in its queues and configurations beside ours.

use gleaner_hooks::install::{Finding, Level, Manager, check, install, uninstall};

use crate::{QCONF, QUEUE, tree_of};

#[test]
fn files_stay_while_a_job_may_still_end_with_our_epilog() {
    let tree = tree_of(Manager::GridEngine)
        .with_program("qstat", "#!/bin/sh\ncat \"${0%/*}/../jobs\"\n")
        .with("jobs", "7 0.55 shot artist r\n");
    let plan = install(Manager::GridEngine, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    let gone = uninstall(Manager::GridEngine, &tree.site(), false).expect("it is there");
    assert!(gone.left.iter().any(|left| left.contains("jobs run now")), "{:?}", gone.left);
    assert_eq!(tree.read("queue"), QUEUE);
    assert!(tree.has("etc/gleaner/hooks/grid-engine/epilog"));
    tree.put("jobs", "");
    let gone = uninstall(Manager::GridEngine, &tree.site(), false).expect("it is there");
    assert_eq!(gone.left, [""; 0]);
    assert!(!tree.has("etc/gleaner"));
}

#[test]
fn a_script_of_grid_engines_configurations_that_ours_keeps_from_running_is_wrong() {
    let tree = tree_of(Manager::GridEngine);
    let plan = install(Manager::GridEngine, &tree.site(), &tree.options()).expect("it fits");
    plan.apply(&tree.site()).expect("done");
    let found = || {
        let found = check(Manager::GridEngine, &tree.site(), &tree.options());
        let found = found.expect("it is there").into_iter();
        found
            .map(|one| format!("{}: {} -> {}\n", one.level, one.what, one.to_do))
            .collect::<String>()
    };
    assert!(!found().contains("wrong: "), "{}", found());
    tree.put("conf-global", "prolog /site/p\nepilog none\n");
    for word in [
        "wrong: the configuration of all hosts (`qconf -sconf global`) has prolog /site/p, which our \
         own of queue all.q keeps from running",
        "qconf -mattr queue prolog NONE all.q",
    ] {
        assert!(found().contains(word), "no {word} in {}", found());
    }
    assert!(!found().contains("has epilog"), "{}", found());
    // Who follows that has ours run by that script, which nobody sees from here.
    let both = tree.read("queue");
    let without = both.lines().filter(|line| !line.starts_with("prolog"));
    tree.put("queue", &without.collect::<Vec<_>>().join("\n"));
    assert!(!found().contains("wrong: "), "{}", found());
    assert!(found().contains("note: queue all.q has no prolog of its own"), "{}", found());
    // What ours is hides nothing.
    let line = "prolog root@/etc/gleaner/hooks/grid-engine/prolog $host $job_id $ja_task_id \
                $job_owner $queue\n";
    tree.put("conf-global", line);
    assert!(!found().contains("configuration of all hosts"), "{}", found());
    // A host of which nothing can be learnt any more.
    tree.put("configured", "gone\n");
    tree.put("queue", &QUEUE.replace("NONE", "x"));
    let silent = QCONF.replace("-sconf) ", "-sconf) [ \"$2\" != gone ] || exit 1; ");
    let tree = tree.with_program("qconf", &silent);
    let found = check(Manager::GridEngine, &tree.site(), &tree.options()).expect("it is there");
    let says = |one: &Finding| one.level == Level::Note && one.what.contains("qconf -sconf gone");
    assert!(found.iter().any(says), "{found:#?}");
}

#[test]
fn what_somebody_has_put_in_the_place_of_ours_stays_and_is_named() {
    let calls_ours = "root@/site/p /etc/gleaner/hooks/grid-engine/prolog $host";
    for (theirs, is_over) in [("root@/site/p $host", true), (calls_ours, false)] {
        let tree = tree_of(Manager::GridEngine);
        let plan = install(Manager::GridEngine, &tree.site(), &tree.options()).expect("it fits");
        plan.apply(&tree.site()).expect("done");
        let queue = tree.read("queue");
        let queue = queue.lines().map(|line| match line.starts_with("prolog") {
            true => format!("prolog {theirs}\n"),
            false => format!("{line}\n"),
        });
        tree.put("queue", &queue.collect::<String>());
        let now = QUEUE.replace("prolog NONE", &format!("prolog {theirs}"));
        let dry = uninstall(Manager::GridEngine, &tree.site(), true).expect("it is there");
        let gone = uninstall(Manager::GridEngine, &tree.site(), false).expect("it is there");
        assert_eq!(dry.done, gone.done, "{theirs}");
        let says = |left: &String| left.contains(&format!("queue all.q keeps prolog {theirs}: "));
        assert!(gone.left.iter().any(says), "{:?}", gone.left);
        assert_eq!(tree.read("queue"), now, "our epilog is gone from it");
        assert_eq!((tree.has("etc/gleaner"), gone.is_unfinished), (!is_over, !is_over), "{gone:?}");
    }
}

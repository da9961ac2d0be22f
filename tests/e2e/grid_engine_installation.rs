//! `gleaner farm` with a real Grid Engine: its queue is changed in the master that runs, calls our
//! hooks, and is given back.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;

use gleaner_calm::Turn;

use crate::grid_engine_farm::{GridEngineFarm, NOBODY};
use crate::own_etc;
use crate::program::{Said, gleaner, run};

#[test]
fn hooks_come_into_a_running_grid_engine_fire_and_go() {
    let _turn = Turn::shared();
    own_etc::run_in("grid_engine_installation::in_an_etc_of_its_own");
}

/// `gleaner farm ACTION` on the execution host, as an administrator, or as who may submit.
fn gleaner_farm(farm: &GridEngineFarm, action: &str, more: &[&str], is_admin: bool) -> Said {
    let mut command = gleaner(["farm", action, "--farm", "grid-engine"]);
    command.args(more).envs(farm.environment());
    if !is_admin {
        command.uid(NOBODY).gid(NOBODY);
    }
    run(&mut command)
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_etc_of_its_own() {
    let Some(folder) = own_etc::folder() else { return };
    let run_dir = folder.join("run");
    fs::create_dir(&run_dir).expect("made");
    let run_dir = run_dir.to_str().expect("plain");
    let farm = GridEngineFarm::start(false).await;
    let queue = || farm.says("qconf", &["-sq", "farm.q"]).ok();
    let before = queue();
    let admin = |action: &str, more: &[&str]| gleaner_farm(&farm, action, more, true);
    let installs = ["--run-dir", run_dir, "--node", "localhost"];

    // One of a host's own would run no more behind a queue's.
    let own = folder.join("localhost");
    fs::write(&own, "prolog /bin/true\n").expect("written");
    farm.says("qconf", &["-Aconf", own.to_str().expect("plain")]).ok();
    let taken = admin("install", &installs);
    let why = "the configuration of host localhost (`qconf -sconf localhost`) has prolog /bin/true";
    assert!(taken.code != Some(0) && taken.stderr.contains(why), "{taken}");
    assert_eq!(queue(), before);
    farm.says("qconf", &["-dconf", "localhost"]).ok();

    let would = admin("install", &[&installs[..], &["--dry-run"]].concat()).ok();
    assert!(would.contains("qconf -mattr queue prolog"), "{would}");
    assert_eq!(queue(), before, "it was only said");
    admin("install", &installs).ok();
    for hook in ["prolog", "epilog"] {
        let line = format!("root@/etc/gleaner/hooks/grid-engine/{hook} $host $job_id");
        assert!(queue().contains(&line), "{}", queue());
    }
    // It takes no jobs of root's, whose check calls the scripts.
    let probe = admin("check", &["--probe"]);
    for word in ["no probe job could be run with `qsub`", "grid-engine/prolog booked the host in"] {
        assert!(probe.stdout.contains(word), "{word}: {probe}");
    }
    // A job of the manager's finds its booking, which ends after it.
    let probe = gleaner_farm(&farm, "check", &["--probe"], false);
    for word in [
        "queue farm.q has our prolog",
        "queue farm.q has our epilog",
        "the hook before it fired",
        "the hook after it fired",
    ] {
        assert!(probe.stdout.contains(word), "{word}: {probe}");
    }
    assert_eq!(probe.code, Some(0), "{probe}");
    // What runs ends with the epilog that it began with, so that stays until then.
    let render = farm.render(1);
    render.has_begun();
    let first = admin("uninstall", &[]);
    assert!(first.code == Some(7) && first.stdout.contains("jobs run now"), "{first}");
    assert!(Path::new("/etc/gleaner/hooks/grid-engine/epilog").exists());
    assert_eq!(queue(), before, "jobs that come are told of no more");
    assert!(render.ends(), "with an epilog that is there");
    let last = admin("uninstall", &[]).ok();
    assert!(!Path::new("/etc/gleaner").exists());
    assert!(last.contains("nothing is left of the hooks for grid-engine"), "{last}");
    let render = farm.render(1);
    render.has_begun();
    assert!(render.ends(), "it runs jobs as before");
    let states = farm.states();
    let line = states.lines().find(|line| line.starts_with("farm.q")).expect("a queue");
    assert_eq!(line.split_whitespace().count(), 5, "no state but that it is well: {line}");
}

//! `gleaner farm` with a real Slurm: its configuration is changed, it reads it, and runs our hooks.

use std::fs;

use gleaner_calm::Turn;

use crate::own_etc;
use crate::patience::eventually;
use crate::program::{Said, gleaner, run};
use crate::slurm_farm::SlurmFarm;

#[test]
fn hooks_come_into_a_running_slurm_fire_and_go() {
    let _turn = Turn::shared();
    own_etc::run_in("slurm_installation::in_an_etc_of_its_own");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_etc_of_its_own() {
    let Some(folder) = own_etc::folder() else { return };
    let run_dir = folder.join("run");
    fs::create_dir(&run_dir).expect("made");
    let farm = SlurmFarm::start(false).await;
    let conf = farm.conf();
    let before = fs::read_to_string(&conf).expect("there");
    let gleaner_farm = |action: &str, more: &[&str]| -> Said {
        let mut command = gleaner(["farm", action, "--farm", "slurm"]);
        run(command.args(more).env("SLURM_CONF", &conf))
    };
    // Beside a Prolog of the site's, where this Slurm runs both; an older one is asked for its release.
    let taken = folder.join("taken.conf");
    fs::write(&taken, format!("Prolog=/bin/true\n{before}")).expect("written");
    let place = ["--nodes-are-ready", "--dry-run", "--conf", taken.to_str().expect("plain")];
    let said = gleaner_farm("install", &place).to_string();
    let is_either = said.contains("slurmctld is of release ")
        || said.contains("+ Prolog=/etc/gleaner/hooks/slurm/prolog");
    assert!(is_either, "{said}");

    let place = ["--conf", conf.to_str().expect("plain"), "--node", "farm2"];
    let waits = gleaner_farm("install", &[&place[..], &["--dry-run"]].concat()).ok();
    assert!(waits.contains("--nodes-are-ready"), "it has three nodes: {waits}");
    let waits = gleaner_farm("install", &place);
    assert!(waits.code == Some(7) && waits.stdout.contains("--nodes-are-ready"), "{waits}");
    let ready = ["--nodes-are-ready", "--run-dir", run_dir.to_str().expect("plain")];
    let done = gleaner_farm("install", &[&place[..], &ready].concat()).ok();
    assert!(done.contains("run `scontrol reconfigure`"), "{done}");

    // Each node reads its configuration for itself, and none says when.
    let fires = async || {
        let said = gleaner_farm("check", &["--probe"]);
        let fired =
            ["the hook before it fired", "the hook after it fired", "Slurm runs with Prolog"];
        fired.iter().all(|word| said.stdout.contains(word)).then_some(said)
    };
    let said = eventually("the hooks to fire", fires).await;
    assert_eq!(said.code, Some(0), "{said}");

    // Where jobs go by default none can now, and another partition takes them.
    farm.says("scontrol", &["create", "partitionname=probes", "nodes=farm2"]).ok();
    let default = |state: &str| {
        farm.says("scontrol", &["update", "partitionname=farm", &format!("state={state}")]).ok()
    };
    default("inactive");
    let said = gleaner_farm("check", &["--probe"]);
    assert!(said.stdout.contains("no probe job could be run with `srun`"), "{said}");
    let said = gleaner_farm("check", &["--probe", "--probe-queue", "probes"]);
    assert!(said.stdout.contains("the hook before it fired"), "{said}");
    default("up");

    // A host that takes no jobs now has its hooks called as Slurm would.
    let set = |state: &str| {
        let state = format!("state={state}");
        let said =
            farm.says("scontrol", &["update", "nodename=farm2", &state, "reason=maintenance"]);
        assert_eq!(said.code, Some(0), "{said}");
    };
    set("drain");
    let said = gleaner_farm("check", &["--probe"]);
    for word in ["no probe job could be run with `srun`", "hooks/slurm/prolog booked the host in"] {
        assert!(said.stdout.contains(word), "{word}: {said}");
    }
    set("resume");

    let first = gleaner_farm("uninstall", &[]);
    assert_eq!(first.code, Some(7), "not finished: {first}");
    assert!(first.stdout.contains("read the configuration only now"), "{first}");
    assert_eq!(fs::read_to_string(&conf).expect("there"), before);
    let second = gleaner_farm("uninstall", &[]).ok();
    assert!(second.contains("nothing is left of the hooks for slurm"), "{second}");
    assert!(!std::path::Path::new("/etc/gleaner").exists());
    let ended = farm.says("srun", &["--nodelist=farm2", "true"]);
    assert_eq!(ended.code, Some(0), "it runs jobs as before: {ended}");
    farm.all_are("idle").await;
}

//! The scripts in `hooks/` as a farm has them installed: they call the real hook with the
//! manager's own environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cluster::{Cluster, Plan};
use crate::hook::Hooked;
use crate::host::Host;
use crate::marks::Marks;
use crate::patience::{eventually, timed};
use crate::processes;
use crate::program::{self, run};

/// A farm manager: the names of its two scripts, and what it puts into their environment.
pub(crate) struct Manager {
    pub(crate) name: &'static str,
    pub(crate) scripts: [&'static str; 2],
    environment: &'static [(&'static str, &'static str)],
    /// The arguments that it gives them, and what it writes to their input.
    arguments: &'static [&'static str],
    input: &'static str,
    /// The booking that comes of it.
    booking: &'static str,
    /// Cores that it leaves of three.
    leaves: u32,
}

pub(crate) const MANAGERS: [Manager; 6] = [
    Manager {
        name: "generic",
        scripts: ["preflight", "postflight"],
        environment: &[("GLEANER_BOOKING", "shot12:f7"), ("GLEANER_CORES", "2")],
        arguments: &[],
        input: "",
        booking: "shot12:f7",
        leaves: 1,
    },
    Manager {
        name: "qube",
        scripts: ["preflight", "postflight"],
        environment: &[
            ("QBJOBID", "812"),
            ("QBSUBID", "3"),
            ("QB_FRAME_NUMBER", "17"),
            ("QB_ALLOCATIONS", "host.processors=3"),
        ],
        arguments: &[],
        input: "",
        booking: "qube:812.3:f17",
        leaves: 0,
    },
    Manager {
        name: "slurm",
        scripts: ["prolog", "epilog"],
        environment: &[
            ("SLURM_JOB_ID", "99"),
            ("SLURMD_NODENAME", "farm1"),
            ("SLURM_NODELIST", "farm[1-3]"),
            ("SLURM_JOB_CPUS_PER_NODE", "1,3(x2)"),
        ],
        arguments: &[],
        input: "",
        booking: "slurm:99",
        leaves: 2,
    },
    Manager {
        name: "grid-engine",
        scripts: ["prolog", "epilog"],
        environment: &[
            ("JOB_ID", "7"),
            ("SGE_TASK_ID", "undefined"),
            ("NSLOTS", "2"),
            ("NHOSTS", "1"),
        ],
        arguments: &["farm1", "7", "0", "artist", "all.q"],
        input: "",
        booking: "grid-engine:7.0",
        leaves: 1,
    },
    Manager {
        name: "htcondor",
        scripts: ["prepare", "exit"],
        environment: &[],
        arguments: &[],
        input: "ClusterId = 12\nProcId = 3\nCpusProvisioned = 1\nMemoryProvisioned = 128\n",
        booking: "htcondor:12.3",
        leaves: 2,
    },
    Manager {
        name: "torque",
        scripts: ["prologue", "epilogue"],
        environment: &[],
        arguments: &["812.head", "artist", "artists", "shot", "nodes=1:ppn=2,walltime=60"],
        input: "",
        booking: "pbs:812.head",
        leaves: 1,
    },
];

/// Copies a manager's scripts to where a farm would have them, with their settings.
pub(crate) fn install(manager: &Manager, cluster: &Cluster, host: &Host) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks").join(manager.name);
    let folder = cluster.folder().join(format!("hooks-{}", manager.name));
    fs::create_dir(&folder).expect("a folder");
    for script in manager.scripts {
        program::install(&source.join(script), &folder.join(script));
        let mode = fs::metadata(source.join(script)).expect("there").permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{script} of {} can be executed", manager.name);
    }
    let settings = format!("# where Gleaner is\n{}", host.hook_settings());
    fs::write(folder.join("gleaner-hook.txt"), settings).expect("written");
    folder
}

/// Has a script run by this command, or itself.
pub(crate) fn called_by(
    mut command: Command,
    folder: &Path,
    script: Option<&str>,
    manager: &Manager,
) -> Hooked {
    command.env_clear().env("PATH", "/nowhere").envs(manager.environment.iter().copied());
    let input = folder.join("input");
    fs::write(&input, manager.input).expect("written");
    command.args(script.map(|script| folder.join(script)));
    command.args(manager.arguments).stdin(fs::File::open(&input).expect("there"));
    let (took, said) = timed(|| run(&mut command));
    assert_eq!(said.stdout, "", "managers read what hooks print");
    Hooked::of(took, said)
}

fn call(folder: &Path, script: &str, manager: &Manager) -> Hooked {
    called_by(Command::new(folder.join(script)), folder, None, manager)
}

/// `pids` are all that have begun to compute so far.
async fn a_render_of(manager: &Manager, cluster: &Cluster, marks: &mut Marks, pids: &mut Vec<i32>) {
    let host = &cluster["farm1"];
    let folder = install(manager, cluster, host);
    let what = format!("{} to find the host busy", manager.name);
    eventually(&what, async || (processes::computing(pids).len() == 3).then_some(())).await;

    let hooked = call(&folder, manager.scripts[0], manager);
    let still = processes::computing(pids);
    assert_eq!(still.len(), manager.leaves as usize, "after {}: {still:?}", manager.name);
    eprintln!("{}: the script took {}", manager.name, hooked.took);
    assert_eq!(hooked.said, "");
    cluster.api.until_cores("farm1", manager.leaves).await;
    let view = cluster
        .monitor_api()
        .until_view("farm1", "the monitor to know the booking", |view| {
            view["bookings"][0]["seen_by"].to_string().contains("hook")
        })
        .await;
    assert_eq!(view["bookings"][0]["booking"], manager.booking, "{view}");

    assert_eq!(call(&folder, manager.scripts[1], manager).said, "");
    cluster.api.until_cores("farm1", 3).await;
    let resumed = marks.take(3 - manager.leaves as usize);
    pids.extend(resumed.iter().map(|mark| mark.pid));
}

#[tokio::test]
async fn each_ready_script_stops_the_work_before_it_returns_and_gives_the_host_back() {
    let cluster = Plan::new().farm(1).cores(3).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let mut pids: Vec<i32> = marks.take(3).iter().map(|mark| mark.pid).collect();
    for manager in &MANAGERS {
        a_render_of(manager, &cluster, &mut marks, &mut pids).await;
    }
}

#[tokio::test]
async fn a_job_of_htcondor_ends_with_its_starter_where_no_exit_hook_comes() {
    let cluster = Plan::new().farm(1).cores(3).start().await;
    cluster.are_open().await;
    let manager = MANAGERS.iter().find(|one| one.name == "htcondor").expect("it is there");
    let folder = install(manager, &cluster, &cluster["farm1"]);
    let ad = folder.join("ad");
    fs::write(&ad, manager.input).expect("written");
    // It runs the job that its prepare hook has announced, and no hook after it.
    let program = folder.join("condor_starter");
    program::write_program(&program, "#!/bin/sh\n\"$1\" < \"$2\"\nread -r end\nexit 0\n");
    let mut starter = Command::new(program)
        .args([folder.join("prepare"), ad])
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh runs");
    cluster.api.until_cores("farm1", manager.leaves).await;
    drop(starter.stdin.take());
    assert!(starter.wait().expect("ours").success());
    cluster.api.until_cores("farm1", 3).await;
}

/// Settings with the program under less memory, and fewer files, than it can do with.
fn starved(folder: &Path) -> String {
    let program = folder.join("starved");
    let text = format!(
        "#!/bin/sh\nulimit -v 12000 -n 6; exec \"{}\" \"$@\"\n",
        env!("CARGO_BIN_EXE_gleaner")
    );
    program::write_program(&program, &text);
    format!("GLEANER={}\n", program.display())
}

#[tokio::test]
async fn scripts_that_were_half_installed_fail_no_render() {
    let cluster = Plan::new().farm(1).start().await;
    for manager in &MANAGERS {
        let folder = install(manager, &cluster, &cluster["farm1"]);
        let starved = starved(&folder);
        for settings in [
            &starved,
            "",
            "GLEANER=/nowhere/gleaner\n",
            "GLEANER=/bin/false\n",
            "GLEANER=/etc\n",
            "this is ( no shell\n",
            "GLEANER_RUN_DIR=/proc/nowhere\nGLEANER_MONITOR=nonsense\n",
        ] {
            fs::write(folder.join("gleaner-hook.txt"), settings).expect("written");
            for script in manager.scripts {
                call(&folder, script, manager);
            }
        }
        fs::remove_file(folder.join("gleaner-hook.txt")).expect("removed");
        call(&folder, manager.scripts[0], manager);
    }
}

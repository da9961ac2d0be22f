//! The scripts in `hooks/` as a farm has them installed: they call the real hook with the
//! manager's own environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{Cluster, Plan};
use crate::hook::Hooked;
use crate::host::Host;
use crate::marks::Marks;
use crate::patience::timed;
use crate::processes;
use crate::program::run;

/// A farm manager: the names of its two scripts, and what it puts into their environment.
struct Manager {
    name: &'static str,
    scripts: [&'static str; 2],
    environment: &'static [(&'static str, &'static str)],
    /// The booking that comes of it.
    booking: &'static str,
    /// Cores that it leaves of three.
    leaves: u32,
}

const MANAGERS: [Manager; 3] = [
    Manager {
        name: "generic",
        scripts: ["preflight", "postflight"],
        environment: &[("GLEANER_BOOKING", "shot12:f7"), ("GLEANER_CORES", "2")],
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
        booking: "slurm:99.0",
        leaves: 2,
    },
];

/// Copies a manager's scripts to where a farm would have them, with their settings.
fn install(manager: &Manager, cluster: &Cluster, host: &Host) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks").join(manager.name);
    let folder = cluster.folder().join(format!("hooks-{}", manager.name));
    fs::create_dir(&folder).expect("a folder");
    for script in manager.scripts {
        fs::copy(source.join(script), folder.join(script)).expect("the script is there");
        let mode = fs::metadata(folder.join(script)).expect("there").permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{script} of {} can be executed", manager.name);
    }
    let settings = format!(
        "# where Gleaner is, and time for a machine that is busy with other tests
GLEANER={}\nGLEANER_RUN_DIR={}\nGLEANER_MONITOR={}\nGLEANER_HOST={}
GLEANER_HOOK_AGENT_TIMEOUT_MS=1500\nGLEANER_HOOK_DEADLINE_MS=1900\n",
        env!("CARGO_BIN_EXE_gleaner"),
        host.run_dir().display(),
        host.monitor.as_ref().expect("a farm host"),
        host.name,
    );
    fs::write(folder.join("gleaner-hook.txt"), settings).expect("written");
    folder
}

fn call(folder: &Path, script: &str, manager: &Manager) -> Hooked {
    let mut command = Command::new(folder.join(script));
    command.env_clear().env("PATH", "/nowhere").envs(manager.environment.iter().copied());
    let (took, said) = timed(|| run(&mut command));
    assert_eq!(said.stdout, "", "managers read what hooks print");
    Hooked::of(took, said)
}

/// `pids` are all that have begun to compute so far.
async fn a_render_of(manager: &Manager, cluster: &Cluster, marks: &mut Marks, pids: &mut Vec<i32>) {
    let host = &cluster["farm1"];
    let folder = install(manager, cluster, host);
    assert_eq!(processes::computing(pids).len(), 3, "{} finds the host busy", manager.name);

    let hooked = call(&folder, manager.scripts[0], manager);
    let still = processes::computing(pids);
    assert_eq!(still.len(), manager.leaves as usize, "after {}: {still:?}", manager.name);
    eprintln!("{}: the script took {}", manager.name, hooked.took);
    assert_eq!(hooked.said, "");
    cluster.api.until_slots("farm1", manager.leaves).await;
    let view = cluster
        .monitor_api()
        .until_view("farm1", "the monitor to know the booking", |view| {
            view["bookings"][0]["seen_by"].to_string().contains("hook")
        })
        .await;
    assert_eq!(view["bookings"][0]["booking"], manager.booking, "{view}");

    assert_eq!(call(&folder, manager.scripts[1], manager).said, "");
    cluster.api.until_slots("farm1", 3).await;
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
async fn scripts_that_were_half_installed_fail_no_render() {
    let cluster = Plan::new().farm(1).start().await;
    for manager in &MANAGERS {
        let folder = install(manager, &cluster, &cluster["farm1"]);
        for settings in [
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

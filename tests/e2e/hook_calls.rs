//! What a hook reaches for: its agent and the monitor, and nothing of the farm manager's.
//!
//! All that the ready scripts, and what they leave behind, start and connect to is recorded by `strace`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cluster::{Cluster, Plan};
use crate::program::{self, run};
use crate::ready_scripts::{self, MANAGERS};

/// What starts a program, and what speaks to somebody.
const CALLS: &str = "trace=execve,execveat,connect,sendto,sendmsg,sendmmsg";

/// Programs that the scripts are made of.
const OWN: [&str; 4] = ["env", "head", "sh", "timeout"];
/// Programs that are the hook.
const HOOKS: [&str; 2] = ["gleaner", "gleaner-hook"];

/// The beginning of `strace`, with what it says in a file. It ends when all that it follows have ended,
/// those too that the hook leaves behind to tell the monitor.
fn strace(trace: &Path) -> Command {
    let mut command = Command::new("/usr/bin/strace");
    command.args(["-f", "-qq", "-s", "200", "-e", CALLS, "-e", "signal=none", "-o"]).arg(trace);
    command
}

/// Programs that were to be started, and whom was spoken to, of a record.
fn reached(trace: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut programs, mut peers) = (BTreeSet::new(), BTreeSet::new());
    let quoted = |text: &str| text.split('"').nth(1).unwrap_or(text).to_owned();
    for line in trace.lines().filter(|line| !line.contains("resumed>")) {
        if let Some((_, call)) = line.split_once("execve") {
            programs.insert(quoted(call));
        } else if let Some((_, address)) = line.split_once("sun_path=") {
            peers.insert(quoted(address));
        } else if let Some((_, address)) = line.split_once("sin_port=htons(") {
            let (port, address) = address.split_once(')').unwrap_or((address, ""));
            peers.insert(format!("{}:{port}", quoted(address)));
        } else if line.contains("sa_family=") {
            peers.insert(line.to_owned());
        }
    }
    (programs, peers)
}

/// Has every script run once; each may start what it is made of, and speak to these two alone.
fn look_at_each(cluster: &Cluster, gleaner: &str) {
    let host = &cluster["farm1"];
    let monitor = host.monitor.as_ref().expect("a farm host");
    let (_, monitor) = monitor.split_once("://").expect("an address");
    let mut heard = BTreeSet::new();
    for manager in &MANAGERS {
        let folder = ready_scripts::install(manager, cluster, host);
        let settings = folder.join("gleaner-hook.txt");
        let more = format!("{}GLEANER={gleaner}\n", host.hook_settings());
        fs::write(&settings, more).expect("written");
        for script in manager.scripts {
            let trace = folder.join(format!("{script}.trace"));
            ready_scripts::called_by(strace(&trace), &folder, Some(script), manager);
            let record = fs::read_to_string(&trace).expect("text");
            let (programs, peers) = reached(&record);
            let itself = folder.join(script).display().to_string();
            for program in &programs {
                let name = Path::new(program).file_name().and_then(|name| name.to_str());
                let is_known = *program == itself
                    || name.is_some_and(|name| OWN.contains(&name) || HOOKS.contains(&name));
                assert!(is_known, "{}: {script} starts {program}:\n{record}", manager.name);
            }
            let is_hook = |path: &String| HOOKS.iter().any(|name| Path::new(path).ends_with(name));
            assert!(
                programs.iter().any(is_hook),
                "{}: {script} has a hook:\n{record}",
                manager.name
            );
            for peer in &peers {
                let is_known = peer.ends_with("/agent.sock") || peer == monitor;
                assert!(is_known, "{}: {script} speaks to {peer}:\n{record}", manager.name);
            }
            heard.extend(peers);
        }
        fs::remove_dir_all(&folder).expect("removed");
    }
    // One that is in a hurry, as this machine may be, tells nobody; not all of them are.
    assert!(heard.contains(monitor), "{heard:?}");
    assert!(heard.iter().any(|peer| peer.ends_with("/agent.sock")), "{heard:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_start_nothing_of_the_managers_and_speak_to_agent_and_monitor_alone() {
    let mut cluster = Plan::new().farm(1).cores(3).start().await;
    cluster.are_open().await;
    for gleaner in [env!("CARGO_BIN_EXE_gleaner"), env!("CARGO_BIN_EXE_gleaner-hook")] {
        look_at_each(&cluster, gleaner);
    }
    // Nor do they ask anybody else where the agent does not answer.
    cluster["farm1"].agent.kill();
    look_at_each(&cluster, env!("CARGO_BIN_EXE_gleaner-hook"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_does_the_wrapper_around_a_frame() {
    let cluster = Plan::new().farm(1).start().await;
    cluster.are_open().await;
    let folder = cluster.folder().join("hooks-opencue");
    fs::create_dir(&folder).expect("a folder");
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks/opencue");
    for script in ["preflight", "gleaner-frame"] {
        program::install(&hooks.join(script), &folder.join(script));
    }
    let host = &cluster["farm1"];
    fs::write(folder.join("gleaner-hook.txt"), host.hook_settings()).expect("written");
    let trace = folder.join("trace");
    let mut frame = strace(&trace);
    frame.env_clear().env("CUE_FRAME_ID", "f").arg(folder.join("gleaner-frame")).arg("/bin/true");
    run(&mut frame).ok();
    let record = fs::read_to_string(&trace).expect("text");
    let (programs, peers) = reached(&record);
    let known = ["gleaner-frame", "preflight", "true"].iter().chain(&OWN).chain(&HOOKS);
    let is_known = |path: &String| known.clone().any(|name| Path::new(path).ends_with(name));
    assert!(programs.iter().all(is_known), "{programs:?}\n{record}");
    let monitor = host.monitor.as_ref().expect("a farm host").replace("http://", "");
    let is_known = |peer: &String| peer.ends_with("/agent.sock") || *peer == monitor;
    assert!(!peers.is_empty() && peers.iter().all(is_known), "{peers:?}\n{record}");
}

/// The record is one of all that is done: what a script would start or ask is in it.
#[test]
fn a_hook_that_asks_the_manager_would_be_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let (script, trace) = (folder.path().join("prolog"), folder.path().join("trace"));
    let text = "#!/bin/sh\n(setsid /bin/sh -c 'scontrol show job 7' &) >/dev/null 2>&1\n\
                python3 -c 'import socket; socket.socket().connect_ex((\"127.0.0.1\", 6817))'\n\
                python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect_ex(\"/munge.2\")'\n";
    program::write_program(&script, text);
    run(strace(&trace).arg(&script)).ok();
    let (programs, peers) = reached(&fs::read_to_string(&trace).expect("text"));
    assert!(programs.iter().any(|program| program.ends_with("/scontrol")), "{programs:?}");
    assert!(peers.contains("127.0.0.1:6817") && peers.contains("/munge.2"), "{peers:?}");
}

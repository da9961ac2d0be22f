//! What confines modules and kernels, as the kernel tells it of the very process that runs them.

use std::fs;
use std::path::Path;

use gleaner_protocol::job::Task;

use super::{Host, Kind, as_they_come, is_root, kinds};
use crate::agent::{Handicap, block_on};
use crate::broker::{kernel, output};
use crate::modules;
use crate::wat::{TIGHT_LOOP, program};
use crate::watch::{members, name_of, wait_until};

/// Of the users of slots, from the limits of an agent.
const FIRST_USER_OF_SLOTS: u32 = 60_800;

pub(super) fn a_module_runs_as_another_user_behind_walls() {
    // Where root may make no namespaces, commands do not run, and modules are another user all the same.
    let bound = is_root().then_some(Kind { user: None, handicap: Handicap::NoNamespaces });
    for kind in kinds().into_iter().chain(bound) {
        block_on(async {
            let mut host = Host::start(kind, as_they_come).await;
            if host.hello.host.capabilities.wasm_memory_mib == 0 {
                println!("{kind:?}: no modules run");
                return;
            }
            let module = program("", TIGHT_LOOP);
            let task = Task::Wasm(modules::task(&host.broker, &module));
            host.session.give(task, &[None]).await;
            wait_until("a worker", || !workers(&host).is_empty());
            let worker = workers(&host)[0];
            let runner = host.folders.groups()[0];
            assert_ne!(worker, runner, "{kind:?}: the runner runs no module itself");
            judge(kind, &host, worker);
        });
    }
}

/// Judges a worker from outside.
fn judge(kind: Kind, host: &Host, worker: i32) {
    let status = |key: &str| {
        let text = fs::read_to_string(format!("/proc/{worker}/status")).expect("it lives");
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(":\t"));
        value.unwrap_or_default().to_owned()
    };
    assert_eq!(status("Seccomp"), "2", "{kind:?}: a filter holds");
    assert_eq!(status("NoNewPrivs"), "1", "{kind:?}");
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(status(set), "0000000000000000", "{kind:?}: {set}");
    }
    let users: Vec<u32> =
        status("Uid").split('\t').map(|uid| uid.parse().expect("a number")).collect();
    match kind.user {
        Some(user) => assert_eq!(users, [user; 4], "{kind:?}: the agent's own, and no root"),
        None if is_root() => {
            assert!(users.iter().all(|user| *user >= FIRST_USER_OF_SLOTS), "{kind:?}: {users:?}");
            assert_eq!(status("Groups").trim(), "", "{kind:?}");
        }
        None => {}
    }
    if host.has_namespaces() {
        let of = |pid: &str, what: &str| {
            fs::read_link(Path::new("/proc").join(pid).join("ns").join(what)).expect("it lives")
        };
        for what in ["net", "mnt", "pid", "ipc", "uts"] {
            assert_ne!(of(&worker.to_string(), what), of("self", what), "{kind:?}: {what}");
        }
    }
}

/// Workers of a host's runners.
fn workers(host: &Host) -> Vec<i32> {
    let groups = host.folders.groups();
    let all = groups.iter().flat_map(|group| members(*group)).map(|stat| stat.pid);
    all.filter(|pid| name_of(*pid).as_deref() == Some("gleaner-worker")).collect()
}

pub(super) fn one_worker_serves_many_orders_and_a_command_ends_it() {
    let Some(kind) = kinds().into_iter().next() else { return };
    block_on(async {
        let mut host = Host::start(kind, |_, config| config.cores = 1).await;
        if !host.runs_commands() {
            return;
        }
        output(&host.session.perform(kernel("noop"), None).await);
        let first = workers(&host);
        assert_eq!(first.len(), 1);
        output(&host.session.perform(kernel("noop"), None).await);
        assert_eq!(workers(&host), first, "it is warm");
        output(&host.session.perform(crate::broker::script("true"), None).await);
        assert!(workers(&host).is_empty(), "no command runs beside a worker");
        output(&host.session.perform(kernel("noop"), None).await);
        assert_eq!(workers(&host).len(), 1);
    });
}

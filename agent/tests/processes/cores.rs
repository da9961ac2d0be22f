//! Which cores harvested work is on beside renders.

use std::collections::BTreeSet;
use std::process::Command;

use gleaner_agent::Isolation;
use gleaner_isolation::Topology;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Story;
use crate::agent::{AgentProcess, AgentThread, Folders, block_on};
use crate::broker::{Broker, script};
use crate::isolation::keeps_work_off;
use crate::releases::wait_until_busy;
use crate::watch::{members, wait_until};

pub(crate) const STORIES: &[Story] = &[
    ("what_goes_on_beside_a_render_is_kept_off_its_cores", what_goes_on_is_kept_off),
    ("a_render_that_is_bound_to_cores_has_just_these", a_bound_render_has_its_cores),
];

fn what_goes_on_is_kept_off() {
    let machine = Topology::of_this_machine();
    let beside = |booked| {
        let mut cpus = machine.beside(booked, &BTreeSet::new());
        cpus.sort_unstable();
        cpus
    };
    let left = beside(1);
    if !keeps_work_off() {
        return;
    }
    // Also where there are no groups of cores: by the affinity of each thread.
    for isolation in [Isolation::Auto, Isolation::ProcessGroups] {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, machine.cpus());
            let _agent = AgentThread::start(gleaner_agent::Config { isolation, ..config });
            let (mut session, _) = broker.welcome().await;
            session.give(script("sh -c 'while :; do :; done' & wait"), &[None]).await;
            let runner = wait_until_busy(&folders, 1)[0];
            let all = || -> Vec<_> {
                members(runner).into_iter().map(|stat| cpus_of(stat.pid)).collect()
            };
            assert!(all().iter().all(|cpus| *cpus == beside(0)), "{:?}", all());
            folders.preflight("render", Some(1));
            wait_until("it to be kept off", || all().iter().all(|cpus| *cpus == left));
            if left.len() > 1 {
                // What begins now is kept off as well.
                session.give(script("while :; do :; done"), &[None]).await;
                let second = wait_until_busy(&folders, 2).into_iter().find(|one| *one != runner);
                wait_until("the next one too", || second.is_some_and(|it| cpus_of(it) == left));
            }
            folders.postflight("render");
            wait_until("it to have all again", || all().iter().all(|cpus| *cpus == beside(0)));
        });
    }
}

/// A render that its manager bound to a core, and that computes there.
struct BoundRender(std::process::Child);

impl BoundRender {
    fn start(cpu: u32) -> Self {
        let mut shell = Command::new("/bin/sh");
        let child = shell.args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let mut set = CpuSet::new();
        set.set(cpu as usize);
        let pid = Pid::from_raw(child.id().cast_signed());
        sched_setaffinity(pid, &set).expect("it is ours");
        Self(child)
    }
}

impl Drop for BoundRender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_bound_render_has_its_cores() {
    let machine = Topology::of_this_machine();
    let Some(last) = machine.beside(1, &BTreeSet::new()).last().copied() else { return };
    let beside = |claims: &[u32]| {
        let mut cpus = machine.beside(1, &claims.iter().copied().collect());
        cpus.sort_unstable();
        cpus
    };
    if !keeps_work_off() {
        return;
    }
    for isolation in [Isolation::Auto, Isolation::ProcessGroups] {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, machine.cpus());
            // Of its own: what this process starts is a stranger's.
            let config = gleaner_agent::Config { isolation, ..config };
            let _agent = AgentProcess::start(&config, &folders);
            let (mut session, _) = broker.welcome().await;
            session.give(script("sh -c 'while :; do :; done' & wait"), &[None]).await;
            let runner = wait_until_busy(&folders, 1)[0];
            let are_kept_to =
                |left: Vec<u32>| members(runner).into_iter().all(|stat| cpus_of(stat.pid) == left);
            folders.preflight("render", Some(1));
            wait_until("it to be kept off the first core", || are_kept_to(beside(&[])));
            let render = BoundRender::start(last);
            wait_until("it to leave the render's core", || are_kept_to(beside(&[last])));
            drop(render);
            wait_until("it to be where it was", || are_kept_to(beside(&[])));
            // A hook that is bound itself shows it before anything computes there.
            folders.postflight("render");
            bind_this_process(&[last]);
            folders.preflight("bound", Some(1));
            bind_this_process(&machine.all());
            wait_until("it to leave the hook's core", || are_kept_to(beside(&[last])));
            folders.postflight("bound");
            folders.preflight("render", Some(1));
            wait_until("it to be where it was", || are_kept_to(beside(&[])));
        });
    }
}

/// The others see its first thread.
fn bind_this_process(cpus: &[u32]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu as usize));
    sched_setaffinity(Some(rustix::process::getpid()), &set).expect("it is ours");
}

fn cpus_of(pid: i32) -> Vec<u32> {
    let mask = sched_getaffinity(Pid::from_raw(pid)).expect("alive");
    let most = u32::try_from(CpuSet::MAX_CPU).expect("small");
    (0..most).filter(|cpu| mask.is_set(*cpu as usize)).collect()
}

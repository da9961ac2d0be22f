//! Each check can fail: a sound core is broken in one place, and the check of that name says so.

use std::collections::BTreeSet;
use std::sync::Arc;

use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::{Cause, JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{
    Capabilities, Digest, HostInfo, HostName, JobId, KernelName, LeaseToken, Origin, OwnerName,
    Time, WorkunitId,
};

use super::*;
use crate::farm::{Begins, FailedAttempt, Rule, Step, Vote, VoterIx};
use crate::policy::{Change, PolicyName};
use crate::{CoreConfig, Effect, Input, ReportedOutcome, RequestId};

const BUSY: WorkunitId = WorkunitId { job: JobId::new(1), index: 0 };

fn feed(core: &mut Core, input: Input) -> Vec<Effect> {
    let mut effects = Vec::new();
    core.handle(Time::ZERO, input, &mut effects);
    check_invariants(core).expect("sound so far");
    effects
}

fn joins(core: &mut Core, name: &str, slots: u32, asks: u32) {
    let kernels = BTreeSet::from([KernelName::new("sum").expect("plain")]);
    let name = HostName::new(name).expect("plain");
    let info = HostInfo {
        name: name.clone(),
        origin: Origin::Farm,
        owner: None,
        cores: 8,
        memory_mib: 0,
        capabilities: Capabilities { kernels, ..Capabilities::default() },
        kind: None,
        chunk_cache_mib: 0,
    };
    let fragment = Fragment { cores: slots, ..Fragment::default() };
    feed(core, Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
    feed(core, Input::Request { host: name, cores: asks });
}

/// Workunit 0 of job 1 has a vote and a pending replica, workunit 1 one pending and one waiting;
/// job 2 has ended, the host `idle` asks in vain, and `gone` holds a lease without a link.
fn sound(policy: PolicyName) -> Core {
    let mut core = Core::new(&CoreConfig::background(policy));
    let spec = |workunits, replication| JobSpec {
        name: String::new(),
        owner: OwnerName::new("ann").expect("plain"),
        project: None,
        lane: Lane::Background,
        task: Task::Kernel(KernelName::new("sum").expect("plain")),
        workunits: Workunits::Count(workunits),
        replication,
        quorum: Some(replication),
        max_replicas: None,
        lease_s: 60,
        profile: Default::default(),
        trust: Default::default(),
        on_release: Default::default(),
        attempts: Default::default(),
        on: None,
        cores_permille: gleaner_protocol::Share::WHOLE,
        gpus: 0,
    };
    let request = RequestId::new(1);
    joins(&mut core, "one", 3, 1);
    feed(&mut core, Input::Submit { request, spec: Box::new(spec(3, 2)) });
    joins(&mut core, "gone", 1, 1);
    report(&mut core, "one", 0);
    joins(&mut core, "two", 3, 1);
    feed(&mut core, Input::HostLeft { host: HostName::new("gone").expect("plain") });
    core
}

fn report(core: &mut Core, host: &str, index: u32) {
    let host = HostName::new(host).expect("plain");
    let workunit = core.farm.find(WorkunitId { index, ..BUSY }).expect("open");
    let of = core.farm.hosts.find(&host).expect("known");
    let pending = core.farm.workunit(workunit).pending.iter().find(|p| p.host == of);
    let token = pending.expect("a lease").token;
    let attempt = core.farm.leased(of, token).expect("a lease").attempt;
    let replica = gleaner_protocol::ReplicaId { workunit: WorkunitId { index, ..BUSY }, attempt };
    let outcome = ReportedOutcome::Output(Digest::of(b"x"));
    feed(core, Input::Report { host, token, replica, outcome, cpu_us: 1, took_us: 1 });
}

fn breaks(name: &str, corrupt: impl Fn(&mut Core)) {
    for policy in PolicyName::ALL {
        let mut core = sound(policy);
        corrupt(&mut core);
        let violation = check_invariants(&core).expect_err(name);
        assert_eq!(violation.name, name, "{policy}: {violation}");
    }
}

fn busy(core: &Core) -> WorkunitIx {
    core.farm.find(BUSY).expect("open")
}

/// The workunit that has a replica waiting.
fn waiting(core: &Core) -> WorkunitIx {
    let mut open = core.farm.workunits();
    open.find(|(_, unit)| unit.waiting > 0).expect("one waits").0
}

fn job(core: &mut Core) -> &mut Job {
    core.farm.jobs.get_mut(&BUSY.job).expect("known")
}

fn host(core: &Core, name: &str) -> HostIx {
    core.farm.hosts.find(&HostName::new(name).expect("plain")).expect("known")
}

#[test]
fn a_workunit_that_is_neither_untouched_nor_open_nor_ended() {
    breaks("no-workunit-lost", |core| job(core).next += 1);
    breaks("no-workunit-lost", |core| {
        job(core).open.remove(&0);
    });
    breaks("no-workunit-lost", |core| job(core).next = 0);
}

#[test]
fn a_workunit_that_is_open_and_ended() {
    breaks("no-workunit-lost", |core| {
        job(core).ended.decide(0, Digest::of(b"x"));
    });
}

#[test]
fn a_workunit_in_the_slab_that_no_job_lists() {
    breaks("no-workunit-lost", |core| {
        let (id, ability) = (WorkunitId { index: 2, ..BUSY }, job(core).ability);
        let begins = Begins { replicas: 1, rule: Rule::Quorum(1), attempts: 0 };
        core.farm.workunits.insert(Workunit::new(id, Lane::Background, begins, ability));
    });
}

#[test]
fn a_job_whose_phase_is_not_that_of_its_workunits() {
    breaks("job-end", |core| job(core).phase = JobPhase::Ended);
    breaks("job-end", |core| job(core).phase = JobPhase::Cancelled);
}

#[test]
fn a_quorum_that_cannot_be_reached_or_was_overlooked() {
    breaks("quorum", |core| {
        let unit = waiting(core);
        core.farm.workunits.get_mut(unit).waiting = 0;
    });
    breaks("quorum", |core| {
        let unit = busy(core);
        let unit = core.farm.workunits.get_mut(unit);
        let vote = unit.votes[0];
        unit.votes.push(Vote { token: LeaseToken::new(99), ..vote });
    });
    breaks("quorum", |core| {
        let unit = waiting(core);
        core.farm.workunits.get_mut(unit).waiting = 200;
    });
}

#[test]
fn a_host_or_an_owner_with_two_votes() {
    breaks("one-vote", |core| {
        let (unit, gone) = (busy(core), host(core, "one"));
        let voter = core.farm.host(gone).voter;
        let pending = &mut core.farm.workunits.get_mut(unit).pending[0];
        (pending.host, pending.voter) = (gone, voter);
    });
    breaks("one-vote", |core| {
        let (unit, one) = (busy(core), host(core, "one"));
        core.farm.workunits.get_mut(unit).pending[0].voter = core.farm.host(one).voter;
    });
    breaks("one-vote", |core| {
        let unit = busy(core);
        let two = core.farm.host(host(core, "two")).voter;
        core.farm.workunits.get_mut(unit).pending[0].voter = two;
    });
}

#[test]
fn a_lease_that_is_not_in_all_its_tables() {
    breaks("lease-tables", |core| {
        let unit = busy(core);
        core.farm.workunits.get_mut(unit).pending[0].token = LeaseToken::new(99);
    });
    breaks("lease-tables", |core| {
        let unit = busy(core);
        core.farm.workunits.get_mut(unit).pending[0].serial = 99;
    });
    breaks("lease-tables", |core| {
        let two = host(core, "two");
        core.farm.hosts.change(two, |host| host.leases[0].token = LeaseToken::new(99));
    });
    breaks("lease-tables", |core| {
        let two = host(core, "two");
        core.farm.hosts.change(two, |host| host.finished.push(host.leases[0]));
    });
    breaks("lease-tables", |core| {
        let end = core.farm.ends.first().expect("leases end");
        core.farm.ends.remove(60, end.serial, |_| true);
    });
}

#[test]
fn a_host_that_holds_more_than_its_fragment() {
    breaks("fragment", |core| {
        let two = host(core, "two");
        core.farm.hosts.change(two, |host| host.fragment.cores = 0);
    });
}

#[test]
fn a_standing_request_that_is_not_listed_or_listed_without_cause() {
    breaks("asking", |core| {
        let two = host(core, "two");
        core.farm.hosts.change(two, |host| host.asked = 1);
    });
    breaks("asking", |core| {
        let two = host(core, "two");
        core.farm.hosts.change(two, |host| host.asked = 1);
        core.farm.hosts.list(two);
        core.farm.hosts.asking_mut().clear();
    });
}

#[test]
fn a_standing_request_beside_work_that_waits() {
    breaks("nobody-idles", |core| {
        let one = host(core, "one");
        core.farm.hosts.change(one, |host| host.asked = 1);
        core.farm.hosts.list(one);
    });
}

#[test]
fn a_host_without_a_link_and_without_a_time() {
    breaks("grace", |core| {
        let gone = host(core, "gone");
        core.farm.hosts.change(gone, |host| host.grace_until = None);
    });
    breaks("grace", |core| {
        let two = host(core, "two");
        core.farm.hosts.change(two, |host| host.grace_until = Some(Time::ZERO));
    });
}

#[test]
fn a_workunit_that_goes_on_after_its_attempts() {
    let attempt = |host| FailedAttempt {
        token: LeaseToken::new(1),
        host,
        voter: VoterIx::of_host(host),
        cause: Cause::Failed,
        why: "it failed".into(),
    };
    for times in [1, 5] {
        breaks("attempts", |core| {
            let (unit, one) = (busy(core), host(core, "one"));
            let attempts = vec![attempt(one); times];
            core.farm.workunits.get_mut(unit).failed_attempts.extend(attempts);
        });
    }
    breaks("attempts", |core| {
        core.farm.troubled.insert(busy(core));
    });
}

#[test]
fn a_host_that_backs_off_and_works() {
    let backs_off = |core: &mut Core| {
        let (one, ability) = (host(core, "one"), job(core).ability);
        let why = "it failed".into();
        core.farm.hosts.back_off(Time::ZERO, one, ability, BUSY.job, &why, Step::First);
        (one, ability)
    };
    breaks("back-off", |core| {
        let (one, ability) = backs_off(core);
        core.farm.hosts.change(one, |host| host.abilities.insert(ability));
    });
    breaks("back-off", |core| {
        let one = host(core, "one");
        core.farm.hosts.halve_quota(one, Time::ZERO);
        core.farm.hosts.tamper(one, |host| host.quota = None);
    });
    breaks("back-off", |core| {
        let (one, _) = backs_off(core);
        core.farm.hosts.change(one, |host| host.backoffs.clear());
    });
}

#[test]
fn a_host_that_counts_wrongly_how_often_it_is_spoken_of() {
    breaks("mentions", |core| {
        let one = host(core, "one");
        core.farm.hosts.mention(one);
    });
    breaks("mentions", |core| {
        let one = host(core, "one");
        core.farm.hosts.drop_mention(one);
    });
    breaks("mentions", |core| job(core).unfit.push(HostIx::from_index(99)));
}

#[test]
fn sums_that_do_not_add_up() {
    breaks("counts", |core| job(core).pending += 1);
    breaks("counts", |core| core.farm.totals.leased += 1);
}

#[test]
fn queues_that_differ_from_what_waits() {
    breaks("queue-keys", |core| {
        let unit = waiting(core);
        let unit = core.farm.workunits.get_mut(unit);
        // Another workunit of the same job by its key, or another place by its index.
        unit.replication = 3;
        unit.id.index = if unit.id.index == 1 { 2 } else { 1 };
        let (id, job) = (unit.id, core.farm.jobs.get_mut(&BUSY.job).expect("known"));
        let workunit = job.open.remove(&(3 - id.index)).expect("open");
        job.open.insert(id.index, workunit);
        job.next = 1;
    });
    breaks("queue-members", |core| {
        let lane = core.lanes.get_mut(&Lane::Background).expect("one lane");
        lane.observe(Time::ZERO, &core.farm, Change::JobEnded(BUSY.job));
    });
}

#[test]
fn a_queue_that_forgot_a_workunit() {
    breaks("queue-keys", |core| {
        let unit = waiting(core);
        let lane = core.lanes.get_mut(&Lane::Background).expect("one lane");
        lane.observe(Time::ZERO, &core.farm, Change::WorkunitEnded(unit));
    });
}

#[test]
fn a_lane_that_is_said_to_hold_more_than_it_does() {
    breaks("lanes", |core| core.farm.lanes.take(Lane::Rendering, gleaner_protocol::Share::WHOLE));
}

#[test]
fn more_open_workunits_than_the_limit() {
    breaks("bounds", |core| core.farm.workunits.max = 1);
}

#[test]
fn at_the_limit_of_open_workunits_nothing_spins_and_room_is_used_at_once() {
    for policy in PolicyName::ALL {
        let mut core = sound(policy);
        core.farm.workunits.max = 2;
        joins(&mut core, "three", 3, 3);
        let held = |core: &Core| core.farm.host(host(core, "three")).leases.len();
        assert_eq!((core.farm.open_count(), held(&core)), (2, 1), "{policy}: no room for a third");
        let spec = Arc::clone(&job(&mut core).spec);
        feed(
            &mut core,
            Input::Submit { request: RequestId::new(2), spec: Box::new((*spec).clone()) },
        );
        assert_eq!((core.farm.open_count(), held(&core)), (2, 1));
        let open = core.farm.workunits().map(|(_, unit)| unit.id.index);
        let index = open.max().expect("two are open");
        let holders = ["two", "three"];
        for holder in holders {
            report(&mut core, holder, index);
        }
        assert_eq!(core.farm.open_count(), 2, "{policy}: one ended, one was opened");
        assert_eq!(held(&core), 1, "{policy}: by the standing request");
    }
}

#[test]
fn every_check_is_documented_by_its_name() {
    let source = include_str!("../invariants.rs");
    let documented: Vec<&str> = source
        .lines()
        .filter_map(|line| line.strip_prefix("/// - "))
        .flat_map(|line| line.split(": ").next().expect("a first part").split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    assert_eq!(documented, INVARIANTS);
    let tested = include_str!("tests.rs");
    for name in INVARIANTS {
        let breaks = format!("breaks(\"{name}\"");
        assert!(tested.contains(&breaks), "no test breaks {name}");
    }
}

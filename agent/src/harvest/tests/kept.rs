//! Replicas that have memory, or a GPU, until they end.

use gleaner_protocol::control::{AgentMessage, BrokerMessage, Fragment, HeldState, ReleaseReason};
use gleaner_protocol::job::OnRelease;
use gleaner_protocol::{JobId, LeaseToken};

use super::super::{Effect, Input, RunFolderState};
use super::host::{self, Host, epoch, lease, noop, output, token};

const LARGE: JobId = JobId::new(2);

/// What is left of a host's memory and GPUs by bookings, with all its cores.
fn left(count: u64, memory_mib: u64, gpus: u32) -> RunFolderState {
    let memory_mib = Some(memory_mib);
    RunFolderState { epoch: epoch(count), memory_mib, gpus, ..RunFolderState::default() }
}

/// A desktop of four cores that gives 1000 MiB and a GPU, and knows of a job whose workunits take 400 MiB
/// and so many GPUs, and of one whose take nothing.
fn desktop(gpus: u8) -> Host {
    let mut host = Host::desktop(4);
    looks(&mut host, left(0, 1_000, 1), &[]);
    host.takes();
    host.learn(noop());
    let on_release = OnRelease::Keep { for_s: 5 };
    host.broker(BrokerMessage::Task { job: LARGE, task: host::large(400), on_release, gpus });
    host.quiet();
    host
}

fn looks(host: &mut Host, run_folder: RunFolderState, parked: &[LeaseToken]) {
    let (run_folder, parked) = (Some(run_folder), parked.to_vec());
    host.input(Input::RunFolder { run_folder, stopped: Vec::new(), parked, cores_left: None });
}

fn large(host: &mut Host, raw: u64) {
    let mut lease = lease(raw);
    lease.replica.workunit.job = LARGE;
    host.broker(BrokerMessage::Lease(lease));
}

fn begins(host: &mut Host, raw: u64) {
    large(host, raw);
    let effects = host.takes();
    assert!(matches!(effects[..], [Effect::Start { .. }]), "{effects:?}");
}

/// What is given back of these effects.
fn gone(effects: &[Effect]) -> Vec<(LeaseToken, ReleaseReason)> {
    let back = effects.iter().filter_map(|effect| match effect {
        Effect::Send(AgentMessage::Released(back)) => Some((back.token, back.reason.clone())),
        _ => None,
    });
    back.collect()
}

#[test]
fn what_is_given_beside_cores_is_announced_whenever_it_changes() {
    let mut host = desktop(0);
    let told = |memory_mib, gpus, count| {
        let fragment = Fragment { epoch: epoch(count), cores: 4, memory_mib, gpus };
        [Effect::Fragment(fragment), Effect::Send(AgentMessage::Fragment(fragment))]
    };
    looks(&mut host, left(1, 600, 1), &[]);
    let effects = host.takes();
    assert_eq!(effects[..2], told(Some(600), 1, 1));
    looks(&mut host, left(1, 600, 0), &[]);
    assert_eq!(host.takes()[..2], told(Some(600), 0, 1));
    looks(&mut host, left(1, 600, 0), &[]);
    host.quiet();
    host.input(Input::LinkDown);
    let hello = host.link(&[]);
    assert_eq!((hello.fragment.memory_mib, hello.fragment.gpus), (Some(600), 0));
}

#[test]
fn a_lease_beyond_the_memory_is_given_back_and_others_are_not() {
    let mut host = desktop(0);
    begins(&mut host, 1);
    begins(&mut host, 2);
    large(&mut host, 3);
    assert_eq!(gone(&host.takes()), [(token(3), ReleaseReason::FragmentClosed)]);
    host.lease(4);
    assert!(matches!(host.takes()[..], [Effect::Start { .. }]), "that takes none");
    host.ends(1, output("x"));
    host.takes();
    begins(&mut host, 5);
}

#[test]
fn a_lease_beyond_the_gpus_is_given_back() {
    let mut host = desktop(1);
    begins(&mut host, 1);
    large(&mut host, 2);
    assert_eq!(gone(&host.takes()), [(token(2), ReleaseReason::FragmentClosed)]);
    // Somebody else uses it.
    looks(&mut host, left(0, 1_000, 0), &[]);
    assert_eq!(gone(&host.takes()), [(token(1), ReleaseReason::Preempted)]);
    assert_eq!(host.harvest.running(), 0);
}

#[test]
fn a_booking_that_takes_memory_ends_what_began_last_until_the_rest_fits() {
    let mut host = desktop(0);
    host.lease(1);
    host.takes();
    begins(&mut host, 2);
    host.advance_ms(1_000);
    begins(&mut host, 3);
    host.advance_ms(1_000);
    host.lease(4);
    host.takes();
    looks(&mut host, left(1, 500, 1), &[]);
    assert_eq!(gone(&host.takes()), [(token(3), ReleaseReason::Preempted)]);
    looks(&mut host, left(2, 100, 1), &[]);
    assert_eq!(gone(&host.takes()), [(token(2), ReleaseReason::Preempted)]);
    assert_eq!(host.harvest.running(), 2, "what has none goes on");
}

#[test]
fn what_stands_still_has_its_memory_and_ends_before_what_runs() {
    let mut host = desktop(0);
    begins(&mut host, 1);
    host.broker(BrokerMessage::Park { token: token(1) });
    host.takes();
    begins(&mut host, 2);
    large(&mut host, 3);
    assert_eq!(gone(&host.takes()), [(token(3), ReleaseReason::FragmentClosed)], "1 is in memory");
    host.input(Input::LinkDown);
    let hello = host.link(&[token(1), token(2)]);
    let states: Vec<HeldState> = hello.held.iter().map(|held| held.state).collect();
    assert_eq!(states, [HeldState::Parked, HeldState::Runs]);
    host.takes();
    looks(&mut host, left(1, 500, 1), &[]);
    assert_eq!(gone(&host.takes()), [(token(1), ReleaseReason::Preempted)]);
    // A render freezes the other one.
    looks(&mut host, RunFolderState { booked: 4, ..left(2, 500, 1) }, &[token(2)]);
    assert_eq!(gone(&host.takes()), [], "it is kept, and its memory is there");
    looks(&mut host, RunFolderState { booked: 4, ..left(3, 300, 1) }, &[]);
    assert_eq!(gone(&host.takes()), [(token(2), ReleaseReason::Preempted)]);
}

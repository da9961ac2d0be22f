//! Any sequence of events keeps the invariants, and nothing is promised that does not hold.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::{AbortReason, AgentMessage, BrokerMessage, Lease, Verdict};
use gleaner_protocol::job::OnRelease;
use gleaner_protocol::{Content, Digest, JobId, LeaseToken, LimitsChange, Origin, Share, Span};
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::super::{Effect, Input, Product, RunFolderState, RunResult};
use super::host::{Host, epoch, large, lease, noop, output, token};

const LARGE: JobId = JobId::new(2);

#[derive(Debug, Clone)]
enum Step {
    LinkUp,
    LinkDown,
    Welcome { adopt: u8 },
    Lease,
    Repeat(u64),
    Ends(u64, u8),
    Stored(u64, bool),
    Abort(u64, bool),
    Park(u64),
    Resume(u64),
    Verdict(u64),
    Opening { back: u64, cores: u32, valid_ms: u64 },
    Closing,
    Preflight { booked: u32, seen: Seen },
    Postflight { booked: u32 },
    Blind,
    Allowance { slots: u32, ended: bool },
    Advance(u64),
    Task,
    LargeTask,
}

/// What the releaser did of a preflight.
#[derive(Debug, Clone, Copy)]
enum Seen {
    Nothing,
    StoppedAll,
    ParkedAll,
}

fn step() -> impl Strategy<Value = Step> {
    let raw = || 1..40_u64;
    prop_oneof![
        2 => Just(Step::LinkUp),
        1 => Just(Step::LinkDown),
        4 => any::<u8>().prop_map(|adopt| Step::Welcome { adopt }),
        12 => Just(Step::Lease),
        1 => raw().prop_map(Step::Repeat),
        8 => (raw(), 0..5_u8).prop_map(|(raw, how)| Step::Ends(raw, how)),
        2 => (raw(), any::<bool>()).prop_map(|(raw, good)| Step::Stored(raw, good)),
        3 => (raw(), any::<bool>()).prop_map(|(raw, preempted)| Step::Abort(raw, preempted)),
        3 => raw().prop_map(Step::Park),
        3 => raw().prop_map(Step::Resume),
        6 => raw().prop_map(Step::Verdict),
        4 => (0..2_u64, 0..9_u32, 0..5_000_u64)
            .prop_map(|(back, cores, valid_ms)| Step::Opening { back, cores, valid_ms }),
        1 => Just(Step::Closing),
        3 => (0..9_u32, (0..3_usize))
            .prop_map(|(booked, seen)| (booked, [Seen::Nothing, Seen::StoppedAll, Seen::ParkedAll][seen]))
            .prop_map(|(booked, seen)| Step::Preflight { booked, seen }),
        2 => (0..9_u32).prop_map(|booked| Step::Postflight { booked }),
        1 => Just(Step::Blind),
        3 => (0..9_u32, any::<bool>())
            .prop_map(|(slots, ended)| Step::Allowance { slots, ended }),
        2 => (0..4_000_u64).prop_map(Step::Advance),
        2 => Just(Step::Task),
        2 => Just(Step::LargeTask),
    ]
}

/// Follows the effects as a driver and a broker would, and holds them to what they promise.
struct Witness {
    host: Host,
    count: u64,
    next: u64,
    slots: BTreeMap<u32, LeaseToken>,
    /// Of these, frozen.
    parked: BTreeSet<LeaseToken>,
    gate: u32,
    told: u32,
    greeted: bool,
}

impl Witness {
    fn take(&mut self, input: Input) {
        self.host.input(input);
        for effect in self.host.takes() {
            match effect {
                Effect::Park { slot, token } => self.parks(slot, token),
                Effect::Thaw { slot, token, .. } => self.thaws(slot, token),
                Effect::Save { .. } => panic!("nothing here saves"),
                Effect::Limit { .. } => {}
                Effect::Start { slot, lease, epoch: at, .. } => {
                    assert!(self.slots.insert(slot, lease.token).is_none(), "slot {slot} is busy");
                    assert!(self.taken() <= Share::cores(self.gate), "more than the gate lets in");
                    assert_eq!(at, self.host.harvest.fragment().epoch);
                }
                Effect::Stop { slot, token } => self.stops(slot, token),
                Effect::Fragment(fragment) => self.gate = fragment.cores,
                Effect::Send(message) => self.hears(&message),
                Effect::Store { .. } | Effect::Discard { .. } => {}
                Effect::EndLink { .. } => self.greeted = false,
            }
        }
        assert!(self.taken() <= Share::cores(self.gate), "all beyond the gate is stopped");
        if self.greeted && self.host.harvest.link.is_up() {
            assert_eq!(self.told, self.gate, "the broker knows the fragment");
        }
    }

    fn hears(&mut self, message: &AgentMessage) {
        match message {
            AgentMessage::Hello(hello) => {
                self.greeted = true;
                self.told = hello.fragment.cores;
                let running = hello.held.iter().filter(|held| held.state.takes_slot());
                let taken = running.fold(Share::NONE, |sum, held| sum.plus(held.share));
                assert_eq!(taken, self.taken(), "the hello names all that runs");
            }
            AgentMessage::Fragment(fragment) => self.told = fragment.cores,
            other => {
                assert!(self.host.harvest.link.is_up(), "{other:?} without a welcome");
            }
        }
    }

    fn step(&mut self, step: Step) {
        let input = match step {
            Step::LinkUp => Input::LinkUp,
            Step::LinkDown => Input::LinkDown,
            Step::Welcome { adopt } => {
                let adopted = (1..self.next)
                    .filter(|raw| (raw * 7 + u64::from(adopt)) % 3 > 0)
                    .map(token)
                    .collect();
                Input::Broker(BrokerMessage::Welcome { incarnation: 1, adopted })
            }
            Step::Lease => {
                self.next += 1;
                return self.lease(self.next - 1);
            }
            Step::Repeat(raw) => return self.lease(raw),
            Step::Ends(raw, how) => {
                let raw = token(raw);
                self.slots.retain(|_, running| *running != raw);
                self.parked.remove(&raw);
                Input::Ended { token: raw, result: result(how) }
            }
            Step::Stored(raw, good) => {
                let result = if good { Ok(()) } else { Err("refused".into()) };
                Input::Stored { token: token(raw), result }
            }
            Step::Park(raw) => Input::Broker(BrokerMessage::Park { token: token(raw) }),
            Step::Resume(raw) => Input::Broker(BrokerMessage::Resume { token: token(raw) }),
            Step::Abort(raw, preempted) => {
                let reason = if preempted { AbortReason::Preempted } else { AbortReason::Decided };
                Input::Broker(BrokerMessage::Abort { token: token(raw), reason })
            }
            Step::Verdict(raw) => {
                let verdict = Verdict::Counted;
                Input::Broker(BrokerMessage::Verdict { token: token(raw), verdict })
            }
            Step::Opening { back, cores, valid_ms } => {
                let decided_on = epoch(self.count.saturating_sub(back));
                let before = self.gate;
                self.host.opening(decided_on, cores, valid_ms);
                let grown = self.host.harvest.fragment().cores > before;
                assert!(!grown || back == 0 || self.count == 0, "a stale opening opened");
                return self.after();
            }
            Step::Closing => Input::Broker(BrokerMessage::Closing { reason: String::new() }),
            Step::Preflight { booked, seen } => {
                self.count += 1;
                let all: Vec<LeaseToken> = self.slots.values().copied().collect();
                let (stopped, parked) = match seen {
                    Seen::Nothing => (Vec::new(), Vec::new()),
                    Seen::StoppedAll => (all, Vec::new()),
                    Seen::ParkedAll => (Vec::new(), all),
                };
                return self.run_folder(booked, stopped, parked);
            }
            Step::Postflight { booked } => return self.run_folder(booked, Vec::new(), Vec::new()),
            Step::Blind => Input::RunFolder {
                run_folder: None,
                stopped: Vec::new(),
                parked: Vec::new(),
                cores_left: None,
            },
            Step::Allowance { slots, ended } => {
                let beyond = self.slots.values().copied().skip(slots as usize);
                let stopped = if ended { beyond.collect() } else { Vec::new() };
                Input::Allowance { slots, stopped }
            }
            Step::Advance(ms) => {
                self.host.now = self.host.now + Span::from_millis(ms);
                Input::Tick
            }
            Step::Task => {
                let job = JobId::new(1);
                let on_release = OnRelease::Keep { for_s: 5 };
                Input::Broker(BrokerMessage::Task { job, task: noop(), on_release, gpus: 0 })
            }
            Step::LargeTask => {
                let (job, on_release) = (LARGE, OnRelease::Keep { for_s: 5 });
                Input::Broker(BrokerMessage::Task { job, task: large(400), on_release, gpus: 1 })
            }
        };
        self.take(input);
    }

    fn lease(&mut self, raw: u64) {
        let limits = match share(raw) {
            Share::WHOLE => LimitsChange::NONE,
            share => LimitsChange::to_share(share),
        };
        let mut lease = Lease { limits, ..lease(raw) };
        if raw.is_multiple_of(3) {
            lease.replica.workunit.job = LARGE;
        }
        self.host.broker(BrokerMessage::Lease(lease));
        self.after();
    }

    fn taken(&self) -> Share {
        let running = self.slots.values().filter(|token| !self.parked.contains(token));
        running.fold(Share::NONE, |sum, token| sum.plus(share(token.get())))
    }

    fn thaws(&mut self, slot: u32, token: LeaseToken) {
        assert_eq!(self.slots.get(&slot), Some(&token), "thaws what is there");
        assert!(self.parked.remove(&token), "thaws what is frozen");
        assert!(self.taken() <= Share::cores(self.gate), "more than the gate lets in");
    }

    fn parks(&mut self, slot: u32, token: LeaseToken) {
        assert_eq!(self.slots.get(&slot), Some(&token), "parks what is there");
        assert!(self.parked.insert(token), "parks what runs");
    }

    fn stops(&mut self, slot: u32, token: LeaseToken) {
        assert_eq!(self.slots.remove(&slot), Some(token), "stops what runs there");
        self.parked.remove(&token);
    }

    fn run_folder(&mut self, booked: u32, stopped: Vec<LeaseToken>, parked: Vec<LeaseToken>) {
        let before = self.gate;
        let memory_mib = [None, Some(1_000), Some(500), Some(0)][booked as usize % 4];
        let (epoch, gpus) = (epoch(self.count), booked % 3);
        let run_folder = Some(RunFolderState { epoch, booked, has_fence: false, memory_mib, gpus });
        self.parked.extend(&parked);
        self.take(Input::RunFolder { run_folder, stopped, parked, cores_left: None });
        let farm = self.host.harvest.host.origin == Origin::Farm;
        assert!(!farm || self.gate <= before, "a hook opened a farm host");
    }

    /// Performs what a step of [`Host`] left.
    fn after(&mut self) {
        for effect in self.host.takes() {
            match effect {
                Effect::Park { slot, token } => self.parks(slot, token),
                Effect::Thaw { slot, token, .. } => self.thaws(slot, token),
                Effect::Save { .. } => panic!("nothing here saves"),
                Effect::Limit { .. } => {}
                Effect::Start { slot, lease, .. } => {
                    assert!(self.slots.insert(slot, lease.token).is_none(), "slot {slot} is busy");
                }
                Effect::Stop { slot, token } => self.stops(slot, token),
                Effect::Fragment(fragment) => self.gate = fragment.cores,
                Effect::Send(message) => self.hears(&message),
                Effect::Store { .. } | Effect::Discard { .. } | Effect::EndLink { .. } => {}
            }
        }
        assert!(self.taken() <= Share::cores(self.gate), "all beyond the gate is stopped");
    }
}

/// What a replica takes: some a part of a core, some several.
fn share(raw: u64) -> Share {
    [Share::WHOLE, Share::permille(500), Share::cores(3), Share::permille(500)][(raw % 4) as usize]
}

fn result(how: u8) -> RunResult {
    match how {
        0 => output("x"),
        1 => RunResult::Failed { reason: "no".into(), cpu_us: 1 },
        2 => RunResult::CannotRun("no".into()),
        3 => RunResult::Preempted,
        _ => {
            let content = Content::Stored { digest: Digest::of(b"x"), bytes: 1 << 20 };
            RunResult::Output {
                files: vec![Product { name: "f".into(), content }],
                cpu_us: 1,
                measured: None,
                wall_us: 7,
                peak_memory_mib: None,
            }
        }
    }
}

fn play(origin: Origin, steps: Vec<Step>) {
    let host = Host::new(origin, 6);
    let gate = host.harvest.fragment().cores;
    let mut witness = Witness {
        host,
        count: 0,
        next: 1,
        slots: BTreeMap::new(),
        parked: BTreeSet::new(),
        gate,
        told: 0,
        greeted: false,
    };
    for step in steps {
        witness.step(step);
    }
}

proptest! {
    #[test]
    fn a_farm_host_keeps_its_promises(steps in proptest::collection::vec(step(), 0..200)) {
        play(Origin::Farm, steps);
    }

    #[test]
    fn a_desktop_keeps_its_promises(steps in proptest::collection::vec(step(), 0..200)) {
        play(Origin::Desktop, steps);
    }
}

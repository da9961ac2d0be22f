//! A host whose agent decides, and the words to tell its stories with.

use gleaner_protocol::control::{
    AbortReason, AgentMessage, BrokerMessage, GoesOn, Hello, Lease, Opening, Outcome,
    ReleaseReason, Released, Report, Verdict,
};
use gleaner_protocol::job::{CommandTask, OnRelease, Task};
use gleaner_protocol::{
    AgentSecret, Capabilities, Computer, Content, DataSize, Digest, Epoch, FRAME_KERNEL, HostInfo,
    HostName, JobId, KernelName, LeaseToken, LimitsChange, Measured, Origin, ReplicaId, Span, Time,
    WorkunitId,
};

use super::super::{Effect, Harvest, Input, Product, RunFolderState, RunResult};

/// A host under test. Each step leaves its effects in `effects`, which must be looked at before
/// the next.
pub(super) struct Host {
    pub(super) harvest: Harvest,
    pub(super) now: Time,
    /// Of the jobs that it learns of.
    pub(super) on_release: OnRelease,
    effects: Vec<Effect>,
}

pub(super) fn epoch(count: u64) -> Epoch {
    Epoch { incarnation: 77, count }
}

pub(super) fn token(raw: u64) -> LeaseToken {
    LeaseToken::new(raw)
}

pub(super) fn replica(raw: u64) -> ReplicaId {
    let index = u32::try_from(raw).expect("small");
    ReplicaId { workunit: WorkunitId { job: JobId::new(1), index }, attempt: 1 }
}

/// A lease that goes on from nothing.
pub(super) fn lease(raw: u64) -> Lease {
    let (token, replica) = (token(raw), replica(raw));
    Lease {
        token,
        replica,
        item: None,
        chunk: None,
        limits: LimitsChange::NONE,
        goes_on: None,
        hands_on: true,
    }
}

pub(super) fn output(text: &str) -> RunResult {
    let content = Content::Inline(text.as_bytes().to_vec());
    RunResult::Output {
        files: vec![Product { name: "result".into(), content }],
        cpu_us: 5,
        measured: Some(Measured {
            size: DataSize::new("64x64x64").expect("a size"),
            by: Computer::Core,
            run_us: 5,
        }),
        wall_us: 7,
        peak_memory_mib: None,
    }
}

/// For how long hosts under test keep a replica frozen, in seconds.
pub(super) const KEEP_MAX_S: u64 = 30;

impl Host {
    pub(super) fn new(origin: Origin, cores: u32) -> Self {
        let info = HostInfo {
            name: HostName::new("render042").expect("plain"),
            origin,
            owner: None,
            cores,
            memory_mib: 1000,
            capabilities: Capabilities {
                kernels: ["noop", FRAME_KERNEL]
                    .map(|name| KernelName::new(name).expect("plain"))
                    .into(),
                commands: ["/bin/true".to_owned()].into(),
                wasm_memory_mib: 0,
                kernel_memory_mib: 0,
                gpu: None,
            },
            kind: None,
            chunk_cache_mib: 0,
        };
        let run_folder = Some(RunFolderState {
            epoch: epoch(0),
            booked: 0,
            has_fence: false,
            ..RunFolderState::default()
        });
        let harvest = Harvest::new(info, AgentSecret::new([9; 16]), 99, run_folder)
            .keeping(Span::from_secs(KEEP_MAX_S));
        let (now, on_release) = (Time::from_micros(1_000_000), OnRelease::Kill);
        Self { harvest, now, on_release, effects: Vec::new() }
    }

    /// A desktop host that is linked and has asked for work.
    pub(super) fn desktop(cores: u32) -> Self {
        let mut host = Self::new(Origin::Desktop, cores);
        host.link(&[]);
        host.says(&[AgentMessage::Request { cores }]);
        host
    }

    /// A farm host that is linked; nothing is open.
    pub(super) fn farm(cores: u32) -> Self {
        let mut host = Self::new(Origin::Farm, cores);
        host.link(&[]);
        host.quiet();
        host
    }

    /// A farm host that is linked and open.
    pub(super) fn open_farm(cores: u32) -> Self {
        let mut host = Self::farm(cores);
        host.opening(epoch(0), cores, 60_000);
        host.takes();
        host
    }

    pub(super) fn input(&mut self, input: Input) {
        assert!(self.effects.is_empty(), "not looked at: {:?}", self.effects);
        self.harvest.handle(self.now, input, &mut self.effects);
        self.harvest.check_invariants().expect("invariants");
    }

    pub(super) fn broker(&mut self, message: BrokerMessage) {
        self.input(Input::Broker(message));
    }

    /// Lets time go by, and the alarm go off where it is due.
    pub(super) fn advance_ms(&mut self, ms: u64) {
        self.now = self.now + Span::from_millis(ms);
        if self.harvest.next_deadline().is_some_and(|due| due <= self.now) {
            self.input(Input::Tick);
        }
    }

    /// What the last step asked for.
    pub(super) fn takes(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Asserts that the last step asked for nothing.
    pub(super) fn quiet(&mut self) {
        assert_eq!(self.takes(), []);
    }

    /// Asserts what the last step told the broker, and that it did nothing else.
    pub(super) fn says(&mut self, messages: &[AgentMessage]) {
        let expected: Vec<Effect> = messages.iter().cloned().map(Effect::Send).collect();
        assert_eq!(self.takes(), expected);
    }

    /// A link comes up and is welcomed; returns what was said in the hello. Effects after the
    /// welcome are left to be looked at.
    pub(super) fn link(&mut self, adopted: &[LeaseToken]) -> Hello {
        self.input(Input::LinkUp);
        let effects = self.takes();
        let [Effect::Send(AgentMessage::Hello(hello))] = &effects[..] else {
            panic!("{effects:?}")
        };
        self.broker(BrokerMessage::Welcome { incarnation: 1, adopted: adopted.to_vec() });
        hello.clone()
    }

    pub(super) fn opening(&mut self, decided_on: Epoch, cores: u32, valid_ms: u64) {
        let opening = Opening {
            epoch: decided_on,
            cores,
            memory_mib: 0,
            booked_cores: 0,
            gpus: Some(0),
            valid_ms,
            ended: Vec::new(),
            seal: None,
        };
        self.broker(BrokerMessage::Opening(opening));
    }

    /// A preflight hook has spoken, or a postflight.
    pub(super) fn booked(&mut self, count: u64, booked: u32, stopped: &[u64]) {
        let run_folder = Some(RunFolderState {
            epoch: epoch(count),
            booked,
            has_fence: false,
            ..RunFolderState::default()
        });
        let stopped = stopped.iter().map(|raw| token(*raw)).collect();
        self.input(Input::RunFolder { run_folder, stopped, parked: Vec::new(), cores_left: None });
    }

    /// A preflight hook has spoken, and these are frozen.
    pub(super) fn render(&mut self, count: u64, booked: u32, parked: &[u64]) {
        self.park(
            RunFolderState {
                epoch: epoch(count),
                booked,
                has_fence: false,
                ..RunFolderState::default()
            },
            parked,
        );
    }

    /// The same, where harvested work cannot get onto booked cores.
    pub(super) fn fenced(&mut self, count: u64, booked: u32, parked: &[u64]) {
        self.park(
            RunFolderState {
                epoch: epoch(count),
                booked,
                has_fence: true,
                ..RunFolderState::default()
            },
            parked,
        );
    }

    fn park(&mut self, run_folder: RunFolderState, parked: &[u64]) {
        let parked = parked.iter().map(|raw| token(*raw)).collect();
        self.input(Input::RunFolder {
            run_folder: Some(run_folder),
            stopped: Vec::new(),
            parked,
            cores_left: None,
        });
    }

    /// Its owner wants nothing to be kept for others.
    pub(super) fn keep_nothing(&mut self) {
        self.harvest.keep_max = Span::ZERO;
    }

    pub(super) fn learn(&mut self, task: Task) {
        let on_release = self.on_release;
        self.broker(BrokerMessage::Task { job: JobId::new(1), task, on_release, gpus: 0 });
        self.quiet();
    }

    pub(super) fn lease(&mut self, raw: u64) {
        self.broker(BrokerMessage::Lease(lease(raw)));
    }

    /// Gets a lease that goes on from what others saved, and starts it.
    pub(super) fn inherits(&mut self, raw: u64) {
        self.learn(noop());
        let goes_on = Some(GoesOn { state: Digest::of(b"saved"), is_own: false });
        self.broker(BrokerMessage::Lease(Lease { goes_on, ..lease(raw) }));
        let effects = self.takes();
        assert!(matches!(&effects[..], [Effect::Start { .. }]), "{effects:?}");
    }

    /// Gets leases and starts them, in the order of slots from `first_slot`, one microsecond
    /// apart.
    pub(super) fn run(&mut self, tokens: impl IntoIterator<Item = u64>) {
        self.learn(noop());
        for raw in tokens {
            self.now = self.now + Span::from_micros(1);
            self.lease(raw);
            let effects = self.takes();
            assert!(matches!(&effects[..], [Effect::Start { .. }]), "{effects:?}");
        }
    }

    pub(super) fn ends(&mut self, raw: u64, result: RunResult) {
        self.input(Input::Ended { token: token(raw), result });
    }

    /// As [`Host::lease`], for stories of thousands.
    pub(super) fn lease_unchecked(&mut self, raw: u64) {
        let input = Input::Broker(BrokerMessage::Lease(lease(raw)));
        self.harvest.handle(self.now, input, &mut self.effects);
        self.effects.clear();
    }

    /// As [`Host::ends`], for stories of thousands.
    pub(super) fn ends_unchecked(&mut self, raw: u64, result: RunResult) -> Vec<Effect> {
        let input = Input::Ended { token: token(raw), result };
        self.harvest.handle(self.now, input, &mut self.effects);
        self.takes()
    }

    pub(super) fn abort(&mut self, raw: u64) {
        self.broker(BrokerMessage::Abort { token: token(raw), reason: AbortReason::Decided });
    }

    pub(super) fn verdict(&mut self, raw: u64, verdict: Verdict) {
        self.broker(BrokerMessage::Verdict { token: token(raw), verdict });
    }
}

pub(super) fn noop() -> Task {
    Task::Kernel(KernelName::new("noop").expect("plain"))
}

pub(super) fn command(program: &str) -> Task {
    command_in(program, None)
}

/// A command that may take so much memory.
pub(super) fn large(memory_mib: u32) -> Task {
    command_in("/bin/true", Some(memory_mib))
}

fn command_in(program: &str, memory_mib: Option<u32>) -> Task {
    let (inputs, outputs) = (Vec::new(), Vec::new());
    Task::Command(CommandTask { argv: vec![program.into()], inputs, outputs, memory_mib })
}

pub(super) fn report(raw: u64, result: RunResult) -> AgentMessage {
    let (outcome, cpu_us, measured, wall_us) = match result {
        RunResult::Failed { reason, cpu_us } => (Outcome::Failed(reason), cpu_us, None, 0),
        RunResult::Output { files, cpu_us, measured, wall_us, .. } => {
            let files = files
                .into_iter()
                .map(|file| gleaner_protocol::OutputFile { name: file.name, content: file.content })
                .collect();
            let manifest = gleaner_protocol::Manifest::new(files).expect("plain");
            (Outcome::Output(manifest), cpu_us, measured, wall_us)
        }
        other => panic!("{other:?} is no report"),
    };
    AgentMessage::Report(Report {
        token: token(raw),
        replica: replica(raw),
        outcome,
        cpu_us,
        measured,
        wall_us,
        peak_memory_mib: None,
    })
}

pub(super) fn released(raw: u64, reason: ReleaseReason) -> AgentMessage {
    AgentMessage::Released(Released { token: token(raw), reason, cpu_us: 0 })
}

pub(super) fn stop(slot: u32, raw: u64) -> Effect {
    Effect::Stop { slot, token: token(raw) }
}

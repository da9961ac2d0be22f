//! Hosts and jobs of a story, described word by word.

use std::collections::BTreeSet;

use gleaner_protocol::job::{
    ApplicationTask, Attempts, CommandTask, Comparison, JobSpec, Lane, RunsOn, Task, WasmTask,
    Workunits,
};
use gleaner_protocol::{
    Capabilities, DatasetId, Digest, GpuInfo, GpuKind, HostInfo, HostKind, KernelName, Origin,
    OwnerName, Promised, Reads, Share, Trust,
};
use gleaner_scheduling::{Input, RequestId};

use super::story::{Seen, Story, StoryHost, fragment, host_name};

pub(crate) struct HostBuilder<'a> {
    story: &'a mut Story,
    host: StoryHost,
}

impl<'a> HostBuilder<'a> {
    pub(super) fn new(story: &'a mut Story, name: &str, origin: Origin) -> Self {
        let kernels = BTreeSet::from([KernelName::new("sum").expect("a plain name")]);
        let info = HostInfo {
            name: host_name(name),
            origin,
            owner: None,
            cores: 4,
            memory_mib: 1024,
            capabilities: Capabilities { kernels, ..Capabilities::default() },
            kind: None,
            chunk_cache_mib: 0,
        };
        Self { story, host: StoryHost { info, fragment: fragment(1), incarnation: 1 } }
    }

    pub(crate) fn slots(mut self, slots: u32) -> Self {
        self.host.fragment.cores = slots;
        self
    }

    pub(crate) fn owner(mut self, owner: &str) -> Self {
        self.host.info.owner = Some(OwnerName::new(owner).expect("a plain name"));
        self
    }

    /// Offers this kernel and no other.
    pub(crate) fn kernel(self, kernel: &str) -> Self {
        self.kernels([kernel])
    }

    /// Offers these kernels and no other.
    pub(crate) fn kernels<const N: usize>(mut self, kernels: [&str; N]) -> Self {
        let kernels = kernels.map(|kernel| KernelName::new(kernel).expect("a plain name"));
        self.host.info.capabilities.kernels = BTreeSet::from(kernels);
        self
    }

    pub(crate) fn kind(mut self, kind: &str) -> Self {
        self.host.info.kind = Some(HostKind::new(kind).expect("a plain name"));
        self
    }

    /// Allows this program, and has so much memory.
    pub(crate) fn program_in(mut self, program: &str, memory_mib: u64) -> Self {
        self.host.info.capabilities.commands.insert(program.into());
        self.host.info.memory_mib = memory_mib;
        self
    }

    /// Gives so much memory, in MiB, and allows the program `/big`.
    pub(crate) fn memory(self, mib: u64) -> Self {
        let mut host = self.program_in("/big", mib);
        host.host.fragment.memory_mib = Some(mib);
        host
    }

    /// Has a GPU and gives it.
    pub(crate) fn gpu(mut self) -> Self {
        let (name, driver) = ("a GPU".to_owned(), "one".to_owned());
        let (texture_side_max, buffer_mib_max) = (16_384, 1_024);
        let (kind, pci) = (GpuKind::Discrete, None);
        let memory_mib = 8_192;
        self.host.info.capabilities.gpu =
            Some(GpuInfo { name, driver, kind, memory_mib, texture_side_max, buffer_mib_max, pci });
        self.host.fragment.gpus = 1;
        self
    }

    /// Gives this much memory to chunks of datasets.
    pub(crate) fn chunk_cache_mib(mut self, mib: u64) -> Self {
        self.host.info.chunk_cache_mib = mib;
        self
    }

    /// Runs modules, with this much memory each.
    pub(crate) fn wasm_memory_mib(mut self, memory_mib: u32) -> Self {
        self.host.info.capabilities.wasm_memory_mib = memory_mib;
        self
    }

    /// Runs kernels with a specification, with this much memory each.
    pub(crate) fn kernel_memory_mib(mut self, memory_mib: u32) -> Self {
        self.host.info.capabilities.kernel_memory_mib = memory_mib;
        self
    }

    pub(crate) fn joins(self) -> Seen {
        let Self { story, host } = self;
        let input = Input::HostJoined {
            info: host.info.clone(),
            fragment: host.fragment,
            held: Vec::new(),
            incarnation: host.incarnation,
        };
        story.enter(host);
        story.feed(input)
    }
}

pub(crate) struct JobBuilder<'a> {
    story: &'a mut Story,
    spec: JobSpec,
}

impl<'a> JobBuilder<'a> {
    pub(super) fn new(story: &'a mut Story) -> Self {
        Self { story, spec: job_spec() }
    }

    pub(crate) fn project(mut self, name: &str) -> Self {
        self.spec.project = Some(name.parse().expect("a plain name"));
        self
    }

    pub(crate) fn workunits(mut self, count: u32) -> Self {
        self.spec.workunits = Workunits::Count(count);
        self
    }

    /// What each takes of its host's cores, in thousandths of one.
    pub(crate) fn cores_permille(mut self, permille: u32) -> Self {
        self.spec.cores_permille = Share::permille(permille);
        self
    }

    pub(crate) fn replication(mut self, replication: u8) -> Self {
        self.spec.replication = replication;
        self
    }

    /// One workunit for each part of a specification.
    pub(crate) fn parts(mut self, parts: &[&str]) -> Self {
        self.spec.workunits = Workunits::Items(parts.iter().copied().collect());
        self
    }

    pub(crate) fn quorum(mut self, quorum: u8) -> Self {
        self.spec.quorum = Some(quorum);
        self
    }

    pub(crate) fn max_replicas(mut self, max: u16) -> Self {
        self.spec.max_replicas = Some(max);
        self
    }

    pub(crate) fn attempts(mut self, attempts: Attempts) -> Self {
        self.spec.attempts = attempts;
        self
    }

    pub(crate) fn on(mut self, on: RunsOn) -> Self {
        self.spec.on = Some(on);
        self
    }

    pub(crate) fn owner(mut self, owner: &str) -> Self {
        self.spec.owner = OwnerName::new(owner).expect("a plain name");
        self
    }

    pub(crate) fn kernel(mut self, kernel: &str) -> Self {
        self.spec.task = Task::Kernel(KernelName::new(kernel).expect("a plain name"));
        self
    }

    pub(crate) fn program(self, program: &str) -> Self {
        self.program_in(program, None)
    }

    /// A program that may take this much memory.
    pub(crate) fn program_in(mut self, program: &str, memory_mib: Option<u32>) -> Self {
        let argv = vec![program.to_owned()];
        self.spec.task =
            Task::Command(CommandTask { argv, inputs: vec![], outputs: vec![], memory_mib });
        self
    }

    /// The program `/big`, which takes so much memory.
    pub(crate) fn memory(self, mib: u32) -> Self {
        self.program_in("/big", Some(mib))
    }

    /// A kernel with a specification, outputs of which may differ a little, and so many GPUs of its own.
    pub(crate) fn gpus(self, gpus: u8) -> Self {
        let mut job = self.application("sum", None);
        if let Task::Application(task) = &mut job.spec.task {
            task.comparison = Comparison::Tolerance;
        }
        job.spec.gpus = gpus;
        job
    }

    /// A module with this much memory.
    pub(crate) fn module(mut self, memory_mib: u32) -> Self {
        let task = WasmTask::new(Digest::of(b"a module"));
        self.spec.task = Task::Wasm(WasmTask { memory_mib, ..task });
        self
    }

    /// A kernel with a specification and this much memory, or what it gets.
    pub(crate) fn application(mut self, kernel: &str, memory_mib: Option<u32>) -> Self {
        let kernel = KernelName::new(kernel).expect("a plain name");
        let spec = Digest::of(b"a specification");
        let comparison = Default::default();
        let task = ApplicationTask { kernel, spec, inputs: vec![], memory_mib, comparison };
        self.spec.task = Task::Application(task);
        self
    }

    pub(crate) fn lane(mut self, lane: Lane) -> Self {
        self.spec.lane = lane;
        self
    }

    /// In the dataset lane, each workunit reads its chunk of this dataset, of a MiB.
    pub(crate) fn reads(mut self, dataset: u64) -> Self {
        let dataset = DatasetId::new(dataset);
        self.spec.lane = Lane::Dataset;
        self.spec.profile.reads = Some(Reads { dataset, chunk_bytes: 1 << 20, first: 0 });
        self
    }

    /// Results come in order, at most so far from the first that has not ended.
    pub(crate) fn window(mut self, workunits: u32) -> Self {
        self.spec.profile.window = Some(workunits);
        self
    }

    /// A frame of this user action, whose workunits read the chunks of this dataset.
    pub(crate) fn frame_of(self, dataset: u64, action: u64) -> Self {
        let mut frame = self.reads(dataset).lane(Lane::Rendering);
        frame.spec.profile.session = Some(action);
        frame
    }

    /// A frame of this user action that reads nothing.
    pub(crate) fn bare_frame_of(mut self, action: u64) -> Self {
        self.spec.lane = Lane::Rendering;
        self.spec.profile.session = Some(action);
        self
    }

    /// Due so many seconds after its submission, each workunit thought to take so many.
    pub(crate) fn due(mut self, due_s: u64, takes_s: u64) -> Self {
        self.spec.lane = Lane::Deadline;
        self.spec.profile.due_ms = Some(due_s * 1_000);
        self.spec.profile.cpu_us = Some(takes_s * 1_000_000);
        self
    }

    /// Promised on a forecast of cores.
    pub(crate) fn promised(mut self) -> Self {
        let promised = Promised { chance_permille: 900, expected_end_ms: None };
        self.spec.profile.promised = Some(promised);
        self
    }

    /// Its replicas take so many seconds on hosts of these kinds.
    pub(crate) fn takes<const N: usize>(mut self, kinds: [(&str, u64); N]) -> Self {
        let kinds = kinds.map(|(kind, seconds)| {
            (HostKind::new(kind).expect("a plain name"), seconds * 1_000_000)
        });
        self.spec.profile.run_time_us = kinds.into();
        self
    }

    /// Its replicas keep what they did.
    pub(crate) fn keeps(mut self) -> Self {
        self.spec.profile.checkpoint_ms = Some(1);
        self
    }

    pub(crate) fn error_ppb(mut self, error_ppb: u32) -> Self {
        self.spec.trust = Trust::Adaptive { error_ppb };
        self
    }

    pub(crate) fn lease_s(mut self, lease_s: u64) -> Self {
        self.spec.lease_s = lease_s;
        self
    }

    /// What it is, to be submitted elsewhere.
    pub(crate) fn spec(self) -> JobSpec {
        self.spec
    }

    pub(crate) fn submits(self) -> Seen {
        self.story.feed(Input::Submit { request: RequestId::new(1), spec: Box::new(self.spec) })
    }
}

/// One workunit of one replica, for the kernel that the hosts of a story offer.
fn job_spec() -> JobSpec {
    JobSpec {
        name: String::new(),
        owner: OwnerName::new("ann").expect("a plain name"),
        project: None,
        lane: Lane::Background,
        task: Task::Kernel(KernelName::new("sum").expect("a plain name")),
        workunits: Workunits::Count(1),
        replication: 1,
        quorum: None,
        max_replicas: None,
        lease_s: 60,
        profile: Default::default(),
        trust: Default::default(),
        on_release: Default::default(),
        attempts: Default::default(),
        on: None,
        cores_permille: Share::WHOLE,
        gpus: 0,
    }
}

//! A render is retried with more cores after its postflight was lost: the run folder, the gate
//! and the agent's decisions together.

use gleaner_agent::harvest::{Harvest, Input, RunFolderState};
use gleaner_agent::{Gate, booked_cores};
use gleaner_hooks::RunDir;
use gleaner_protocol::control::{BrokerMessage, Fragment, Opening};
use gleaner_protocol::farm::Booked;
use gleaner_protocol::{
    AgentSecret, BookingId, Capabilities, Epoch, HostInfo, HostName, KernelName, Origin, Time,
};

const CORES: u32 = 12;

struct Host {
    _folder: tempfile::TempDir,
    run_dir: RunDir,
    harvest: Harvest,
    gate: Gate,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open(folder.path()).expect("opens");
        let info = HostInfo {
            name: HostName::new("render042").expect("plain"),
            origin: Origin::Farm,
            owner: None,
            cores: CORES,
            memory_mib: 1000,
            capabilities: Capabilities {
                kernels: [KernelName::new("noop").expect("plain")].into(),
                commands: [].into(),
                wasm_memory_mib: 0,
                kernel_memory_mib: 0,
                gpu: None,
            },
            kind: None,
            chunk_cache_mib: 0,
        };
        let harvest = Harvest::new(info, AgentSecret::new([9; 16]), 99, None);
        let mut host =
            Self { _folder: folder, run_dir, harvest, gate: Gate::new(Fragment::default()) };
        host.hear(Input::LinkUp);
        host.hear(Input::Broker(BrokerMessage::Welcome { incarnation: 1, adopted: Vec::new() }));
        host.reads_the_folder();
        host
    }

    fn hear(&mut self, input: Input) {
        self.harvest.handle(Time::from_micros(1), input, &mut Vec::new());
        self.harvest.check_invariants().expect("invariants");
        self.gate.set(self.harvest.fragment());
    }

    /// The hook, then the thread that answers it, then the main loop.
    fn preflight(&mut self, cores: u32) -> Epoch {
        let epoch = self.is_asked(cores);
        self.reads_the_folder();
        epoch
    }

    /// The same without the main loop.
    fn is_asked(&mut self, cores: u32) -> Epoch {
        let booked = Booked { cores: Some(cores), memory_mib: None, gpus: None };
        let epoch = self.run_dir.raise_epoch().expect("raises");
        let id = BookingId::new("shot:1").expect("plain");
        self.run_dir.begin_booking(&id, &booked).expect("books");
        self.gate.narrow(Some(epoch), CORES - cores);
        epoch
    }

    fn reads_the_folder(&mut self) {
        let cores_left = self.gate.hear();
        let bookings = self.run_dir.bookings().expect("lists");
        let booked = booked_cores(bookings.iter().map(|booking| booking.resources), CORES);
        let epoch = self.run_dir.epoch().expect("reads");
        let run_folder =
            Some(RunFolderState { epoch, booked, has_fence: false, ..RunFolderState::default() });
        self.hear(Input::RunFolder {
            run_folder,
            stopped: Vec::new(),
            parked: Vec::new(),
            cores_left,
        });
    }

    fn opening(&mut self, epoch: Epoch, cores: u32) {
        let (memory_mib, valid_ms) = (0, 60_000);
        let opening = Opening {
            epoch,
            cores,
            memory_mib,
            booked_cores: 0,
            gpus: None,
            valid_ms,
            ended: Vec::new(),
            seal: None,
        };
        self.hear(Input::Broker(BrokerMessage::Opening(opening)));
    }
}

#[test]
fn an_opening_on_an_older_size_opens_nothing_under_the_render() {
    let mut host = Host::new();
    let first = host.preflight(1);
    host.opening(first, 11);
    assert_eq!(host.gate.slots(), 11, "beside a render of one core");
    // Its postflight is lost; the same attempt is run again, on the whole host.
    let second = host.preflight(12);
    assert_eq!(host.gate.slots(), 0);
    // The monitor knows the new epoch, and still believes in one core.
    host.opening(second, 11);
    assert_eq!(host.gate.slots(), 0, "the host reopened under the render");
    // The other way round nothing is lost either: the larger of both holds until its end.
    let third = host.preflight(1);
    host.opening(third, 11);
    assert_eq!(host.gate.slots(), 0);
}

#[test]
fn a_render_that_ended_before_the_main_loop_looked_leaves_it_closed_until_the_next_opening() {
    let mut host = Host::new();
    let before = host.run_dir.epoch().expect("reads");
    host.opening(before, 12);
    assert_eq!(host.gate.slots(), 12);
    let after = host.is_asked(12);
    host.run_dir.end_booking(&BookingId::new("shot:1").expect("plain")).expect("ends");
    for _ in 0..2 {
        host.reads_the_folder();
        assert_eq!(host.gate.slots(), 0, "what was opened before the render is over");
    }
    host.opening(after, 12);
    assert_eq!(host.gate.slots(), 12);
}

//! Frames of views that are drawn on a GPU, and what becomes of what a runner keeps there.

use gleaner_hooks::{SocketAnswer, SocketRequest};
use gleaner_kernels::view::{Layer, Level, ViewBrick, join};
use gleaner_kernels::volume::Volume;
use gleaner_protocol::farm::Booked;
use gleaner_protocol::job::Comparison;
use gleaner_protocol::{BookingId, ChunkFile, FrameStage, ViewKernel, ViewState, layers_of};

use crate::Story;
use crate::agent::{AgentProcess, AgentThread, Folders, block_on};
use crate::broker::{Broker, Session};
use crate::gpu_faults;
use crate::gpus::{Driver, counts, giving, made, picture, standing};
use crate::releases::hear_fragment;
use crate::views::{chunks, drawn, part, state};
use crate::watch::wait_for_end_of_group;

pub(crate) const STORIES: &[Story] = &[
    ("frames_are_drawn_on_a_gpu_until_a_render_takes_it", frames_are_drawn_on_a_gpu),
    ("a_runner_that_draws_on_a_gpu_does_nothing_else_there", a_runner_that_draws),
    ("a_frame_is_drawn_by_the_processor_where_its_driver_crashes", its_driver_crashes),
    ("a_frame_is_drawn_by_the_processor_where_its_gpu_is_lost", its_gpu_is_lost),
];

/// Enough pixels for a GPU.
const SIZE: [u32; 2] = [320, 240];

/// A volume that is one brick.
struct Turned {
    volume: Volume,
    chunk: ChunkFile,
    state: ViewState,
}

impl Turned {
    fn new(broker: &Broker, folders: &Folders) -> Self {
        let volume = Volume::rippled(48).expect("a volume");
        let mut chunks = chunks(broker, folders, &volume, 1 << 20);
        assert_eq!(chunks.len(), 1);
        let state = ViewState { size: SIZE, ..state([24.0; 3], [90.0, -50.0, 60.0]) };
        Self { volume, chunk: chunks.remove(0), state }
    }

    /// Has a layer drawn, as a processor would.
    async fn draw(&self, broker: &Broker, session: &mut Session) {
        let layer = part(FrameStage::Layer, ViewKernel::Volume, &self.state);
        let token = session.give_chunk(layer, Some(self.chunk.clone())).await;
        let body = drawn(broker, session, token).await;
        let strips = layers_of(&body, 1).expect("whole");
        let bytes = &body[strips[0].clone()];
        let background = self.state.background;
        let rows = 0..SIZE[1];
        let picture = join(&[bytes], background, SIZE, rows).expect("a layer");
        let expected = self.by_processor().over(background);
        let pairs = picture.bytes().iter().zip(expected.bytes());
        let apart = pairs.map(|(one, other)| one.abs_diff(*other)).max();
        assert!(apart <= Some(2), "{apart:?}");
        let lit = expected.bytes().chunks(3).filter(|pixel| pixel[0] > 60).count();
        assert!(lit > 300, "{lit}");
    }

    fn by_processor(&self) -> Layer {
        let mut file = Vec::new();
        self.volume.write_nrrd(&mut file).expect("memory");
        let brick = ViewBrick::read(&file[..], Level::Fine).expect("a brick");
        let scene = brick.scene(&brick.look(&self.state).expect("a look"), None).expect("a scene");
        assert!(scene.is_alike_on_gpus());
        assert!(scene.is_sooner_on_gpus(&self.state, SIZE).expect("a camera"));
        scene.draw(&self.state, SIZE).expect("a layer")
    }
}

fn frames_are_drawn_on_a_gpu() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(giving(&folders, &broker, 4));
        let (mut session, _) = broker.welcome().await;
        let mut turned = Turned::new(&broker, &folders);
        let small = ViewState { size: [16, 16], ..turned.state.clone() };
        let small = part(FrameStage::Whole, ViewKernel::Volume, &small);
        let token = session.give_chunk(small.clone(), Some(turned.chunk.clone())).await;
        drawn(&broker, &mut session, token).await;
        assert_eq!(counts(&folders), (0, 0), "a GPU would be no sooner done");
        turned.draw(&broker, &mut session).await;
        assert_eq!(counts(&folders), (1, 0));
        let groups = folders.groups();
        turned.state.camera.eye = [-60.0, 20.0, 80.0];
        turned.state.transfer[1].opacity = 0.2;
        turned.draw(&broker, &mut session).await;
        assert_eq!((counts(&folders), folders.groups()), ((2, 0), groups.clone()));
        // What is painted, or small, is none of it, and stays where the bricks are.
        let paint = part(FrameStage::Whole, ViewKernel::Synthetic, &turned.state);
        let token = session.give_chunk(paint, None).await;
        drawn(&broker, &mut session, token).await;
        let token = session.give_chunk(small, Some(turned.chunk.clone())).await;
        drawn(&broker, &mut session, token).await;
        assert_eq!((counts(&folders), folders.groups()), ((2, 0), groups.clone()));
        // A render has it at once, though the runner that keeps it has nothing to do, and there is a core
        // left for that.
        let run_dir = folders.run_dir();
        let booking = BookingId::new("gpu").expect("plain");
        let booked = Booked { cores: Some(1), memory_mib: None, gpus: None };
        let epoch = Some(run_dir.raise_epoch().expect("there"));
        run_dir.begin_booking(&booking, &booked).expect("there");
        let answer = folders.ask(&SocketRequest::Preflight { booking, booked, epoch });
        assert!(matches!(answer, SocketAnswer::Released { frozen: 0, .. }), "{answer:?}");
        wait_for_end_of_group(groups[0]);
        while hear_fragment(&mut session).await.cores != 3 {}
        turned.draw(&broker, &mut session).await;
        assert_eq!(counts(&folders), (2, 0), "the processor draws beside the render");
        folders.postflight("gpu");
        while hear_fragment(&mut session).await.cores < 4 {}
        turned.draw(&broker, &mut session).await;
        assert_eq!(counts(&folders), (3, 0));
    });
}

fn a_runner_that_draws() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(giving(&folders, &broker, 1));
        let (mut session, _) = broker.welcome().await;
        let turned = Turned::new(&broker, &folders);
        turned.draw(&broker, &mut session).await;
        let groups = folders.groups();
        assert_eq!((groups.len(), counts(&folders)), (1, (1, 0)));
        // It has the GPU in its turn: what was kept there is gone.
        made(&mut session, picture(&broker, &folders, Comparison::Tolerance)).await;
        assert_eq!(counts(&folders), (2, 0));
        wait_for_end_of_group(groups[0]);
        turned.draw(&broker, &mut session).await;
        assert_eq!(counts(&folders), (3, 0));
    });
}

fn its_driver_crashes() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let driver = Driver::of_software();
        let _agent = driver.agent(&folders, &giving(&folders, &broker, 1));
        let (mut session, hello) = broker.welcome().await;
        assert!(hello.host.capabilities.gpu.is_some());
        let turned = Turned::new(&broker, &folders);
        driver.becomes("abort();");
        turned.draw(&broker, &mut session).await;
        assert_eq!(counts(&folders), (0, 1));
        let trouble = standing(&folders).and_then(|gpu| gpu.trouble).expect("it failed");
        assert!(trouble.contains("SIGABRT"), "{trouble}");
    });
}

fn its_gpu_is_lost() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        // The first two take no samples.
        let driver = gpu_faults::Driver::new("IS_LOST", 4);
        let environment = [("VK_DRIVER_FILES", driver.description.as_path())];
        let config = giving(&folders, &broker, 1);
        let _agent = AgentProcess::start_with(&config, &folders, &environment);
        let (mut session, hello) = broker.welcome().await;
        assert!(hello.host.capabilities.gpu.is_some() && !driver.note.was_read());
        let turned = Turned::new(&broker, &folders);
        turned.draw(&broker, &mut session).await;
        assert!(driver.note.was_read());
        assert_eq!(counts(&folders), (1, 1));
        let trouble = standing(&folders).and_then(|gpu| gpu.trouble).expect("it failed");
        assert!(trouble.contains("was lost"), "{trouble}");
        // For a while nobody tries again.
        turned.draw(&broker, &mut session).await;
        assert_eq!(counts(&folders).0, 1);
    });
}

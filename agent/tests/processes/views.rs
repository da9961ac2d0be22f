//! Frames of views: layers, what joins them, and what becomes of those that are over.

use std::fs;
use std::io::Cursor;

use gleaner_hooks::SocketAnswer;
use gleaner_kernels::view::{Level, ViewBrick, painted_number, picture_file, synthetic};
use gleaner_kernels::volume::{Cutter, Volume, Voxels};
use gleaner_protocol::control::{AbortReason, BrokerMessage, ReleaseReason};
use gleaner_protocol::job::Task;
use gleaner_protocol::{
    ChunkFile, FrameStage, FrameTask, LayerPlace, LeaseToken, PictureCodec, TransferPoint,
    ViewCamera, ViewKernel, ViewState, codec, layers_of,
};

use crate::Story;
use crate::agent::{AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, output};
use crate::releases::{hear_fragment, wait_until_busy};
use crate::watch::wait_for_end_of_group;

pub(crate) const STORIES: &[Story] = &[
    ("layers_of_bricks_are_joined_to_a_picture", layers_are_joined_to_a_picture),
    ("a_frame_that_is_over_leaves_its_runner_as_it_was", a_frame_that_is_over),
    ("a_frame_that_nobody_wants_any_more_is_ended", a_frame_that_nobody_wants),
    ("a_frame_gives_way_to_a_render_and_the_next_is_drawn_after_it", a_frame_gives_way),
];

const SIZE: [u32; 2] = [160, 120];

pub(crate) fn state(middle: [f64; 3], eye: [f64; 3]) -> ViewState {
    let point = |value, opacity| TransferPoint { value, colour: [1.0, 0.8, 0.5], opacity };
    ViewState {
        seq: 77,
        camera: ViewCamera { eye, target: middle, up: [0.0, 0.0, 1.0], fov_degrees: 40.0 },
        transfer: vec![point(90.0, 0.0), point(110.0, 0.4), point(150.0, 0.02)],
        opacity_unit: 1.0,
        shading: None,
        clip: [[0.0, 1.0]; 3],
        background: [0.1, 0.1, 0.2],
        step: 0,
        size: SIZE,
        moving: false,
    }
}

pub(crate) fn part(stage: FrameStage, kernel: ViewKernel, state: &ViewState) -> Task {
    let (state, size) = (state.clone(), state.size);
    Task::Frame(Box::new(FrameTask {
        frame: 5,
        stage,
        kernel,
        state,
        size,
        codec: PictureCodec::Png,
        strips: 1,
    }))
}

/// The bricks of a volume's file, as chunks that the broker has.
pub(crate) fn chunks(
    broker: &Broker,
    folders: &Folders,
    volume: &Volume,
    brick_bytes: usize,
) -> Vec<ChunkFile> {
    let path = folders.path("volume.nrrd");
    let mut file = Vec::new();
    volume.write_nrrd(&mut file).expect("memory");
    fs::write(&path, file).expect("written");
    let mut cutter = Cutter::open(&path, brick_bytes, tempfile::tempfile).expect("a volume");
    let bricks = cutter.bricks();
    let chunk = |index| {
        let file = cutter.brick(0, index, None).expect("cut").bytes;
        let (name, bytes) = ("chunk.nrrd".to_owned(), file.len() as u64);
        ChunkFile { name, digest: broker.put(&file), bytes }
    };
    (0..bricks).map(chunk).collect()
}

/// What a broker answers that has layers of these lengths itself.
fn layers_answer(lengths: &[usize], layers: &[u8]) -> Vec<u8> {
    let places =
        lengths.iter().map(|bytes| LayerPlace::Here(u32::try_from(*bytes).expect("small")));
    let places = codec::encode(&places.collect::<Vec<_>>());
    let length = u32::try_from(places.len()).expect("small").to_le_bytes();
    [&length[..], &places, layers].concat()
}

/// What came of a replica, which reports no file.
pub(crate) async fn drawn(broker: &Broker, session: &mut Session, token: LeaseToken) -> Vec<u8> {
    let report = session.count(token).await;
    assert_eq!(output(&report).files().len(), 0, "it is in no store");
    broker.frames.lock().expect("no panic").parts.remove(&token).expect("brought")
}

fn layers_are_joined_to_a_picture() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        let volume = Volume::rippled(40).expect("a volume");
        let state = state([20.0; 3], [90.0, -60.0, 70.0]);
        let chunks = chunks(&broker, &folders, &volume, 22 * 22 * 22);
        assert!(chunks.len() >= 8, "{}", chunks.len());
        let before = broker.blobs.lock().expect("no panic").len();
        let mut layers = Vec::new();
        for chunk in &chunks {
            let layer = part(FrameStage::Layer, ViewKernel::Volume, &state);
            let token = session.give_chunk(layer, Some(chunk.clone())).await;
            let body = drawn(&broker, &mut session, token).await;
            // In one strip.
            let strips = layers_of(&body, 1).expect("whole");
            layers.push(body[strips[0].clone()].to_vec());
            assert_eq!(strips.len(), 1);
        }
        // It asks for its layers by its own token, which is the next one.
        let next = LeaseToken::new(session.given().0 + 1);
        let places: Vec<usize> = layers.iter().map(Vec::len).collect();
        let answer = layers_answer(&places, &layers.concat());
        broker.frames.lock().expect("no panic").layers.insert(next, answer);
        let join = part(FrameStage::Join, ViewKernel::Volume, &state);
        let token = session.give_chunk(join, None).await;
        let picture = drawn(&broker, &mut session, token).await;
        let mut reader = png::Decoder::new(Cursor::new(picture)).read_info().expect("a picture");
        let mut bytes = vec![0_u8; reader.output_buffer_size().expect("small")];
        reader.next_frame(&mut bytes).expect("a frame");
        let mut file = Vec::new();
        volume.write_nrrd(&mut file).expect("memory");
        let brick = ViewBrick::read(&file[..], Level::Fine).expect("a brick");
        let scene = brick.scene(&brick.look(&state).expect("a look"), None).expect("a scene");
        let whole = scene.draw(&state, SIZE).expect("a layer").over(state.background);
        let apart = bytes.iter().zip(whole.bytes()).map(|(one, other)| one.abs_diff(*other));
        assert!(apart.max() <= Some(1));
        let lit = whole.bytes().chunks(3).filter(|pixel| pixel[0] > 60).count();
        assert!(lit > 300, "{lit}");
        let after = broker.blobs.lock().expect("no panic").len();
        assert_eq!(after, before, "nothing of a frame is a blob");
        let spooled = fs::read_dir(folders.path("work/spool")).expect("there").count();
        assert_eq!(spooled, 0, "nothing of it stays");
        // Nor is its memory kept from a render.
        let groups = folders.groups();
        folders.preflight("r1", None);
        wait_for_end_of_group(groups[0]);
    });
}

fn a_frame_that_is_over() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        let state = state([20.0; 3], [90.0, -60.0, 70.0]);
        let paint = || part(FrameStage::Whole, ViewKernel::Synthetic, &state);
        let token = session.give_chunk(paint(), None).await;
        let picture = drawn(&broker, &mut session, token).await;
        let expected = synthetic(77, SIZE).expect("a picture");
        assert_eq!(painted_number(expected.bytes(), SIZE[0] as usize), 77);
        assert_eq!(picture, picture_file(&expected, PictureCodec::Png).expect("a file"));
        let groups = folders.groups();
        // Nobody has layers for it, then nobody waits for it.
        let join = part(FrameStage::Join, ViewKernel::Volume, &state);
        let token = session.give_chunk(join, None).await;
        // No other host is to try.
        let report = session.count(token).await;
        assert_eq!(crate::broker::failure(&report), "the frame is over");
        broker.frames.lock().expect("no panic").are_over = true;
        session.give_chunk(paint(), None).await;
        assert_eq!(session.hear_refusal().await, "the frame is over");
        broker.frames.lock().expect("no panic").are_over = false;
        // What is malformed is a failure, and nothing worse.
        let next = LeaseToken::new(session.given().0 + 1);
        let layers = layers_answer(&[9], b"GL");
        broker.frames.lock().expect("no panic").layers.insert(next, layers);
        let join = part(FrameStage::Join, ViewKernel::Volume, &state);
        let token = session.give_chunk(join, None).await;
        let report = session.count(token).await;
        let said = crate::broker::failure(&report);
        assert!(said.contains("a layer is cut off"), "{said}");
        // A chunk is no brick.
        let digest = broker.put(b"no brick");
        let chunk = ChunkFile { name: "chunk.nrrd".to_owned(), digest, bytes: 8 };
        let layer = part(FrameStage::Layer, ViewKernel::Volume, &state);
        let token = session.give_chunk(layer, Some(chunk)).await;
        let report = session.count(token).await;
        let said = crate::broker::failure(&report);
        assert!(said.contains("the brick cannot be read"), "{said}");
        let token = session.give_chunk(paint(), None).await;
        drawn(&broker, &mut session, token).await;
        assert_eq!(folders.groups(), groups, "and the runner is none the worse");
    });
}

/// A brick, and a state in which no machine draws it within a story.
fn endless(broker: &Broker, folders: &Folders) -> (ChunkFile, ViewState) {
    // So thin that each of its many rays takes tens of thousands of samples.
    let voxels = Voxels::U8(vec![120; 64 * 64 * 64]);
    let volume = Volume::new([64; 3], [1.0, 1.0, 0.002], voxels).expect("a volume");
    let mut long = state([31.0, 31.0, 0.06], [-7.0, 31.0, 0.06]);
    long.camera.fov_degrees = 1.0;
    long.size = [4096, 1024];
    long.opacity_unit = 1000.0;
    (chunks(broker, folders, &volume, 1 << 20).remove(0), long)
}

fn a_frame_that_nobody_wants() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        let (chunk, long) = endless(&broker, &folders);
        let whole = part(FrameStage::Whole, ViewKernel::Volume, &long);
        let token = session.give_chunk(whole, Some(chunk.clone())).await;
        let groups = wait_until_busy(&folders, 1);
        let reason = AbortReason::Decided;
        session.say(&[BrokerMessage::Abort { token, reason }]).await;
        assert_eq!(session.hear_release().await, ReleaseReason::Aborted);
        wait_for_end_of_group(groups[0]);
        let small = ViewState { size: [16, 16], ..long };
        let small = part(FrameStage::Whole, ViewKernel::Volume, &small);
        let token = session.give_chunk(small, Some(chunk)).await;
        assert_eq!(drawn(&broker, &mut session, token).await[1..4], *b"PNG");
    });
}

fn a_frame_gives_way() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        let (chunk, long) = endless(&broker, &folders);
        let whole = part(FrameStage::Whole, ViewKernel::Volume, &long);
        session.give_chunk(whole, Some(chunk.clone())).await;
        let groups = wait_until_busy(&folders, 1);
        let answer = folders.preflight("r1", None);
        assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
        wait_for_end_of_group(groups[0]);
        assert_eq!(session.hear_release().await, ReleaseReason::Preempted);
        folders.postflight("r1");
        while hear_fragment(&mut session).await.cores == 0 {}
        let small = ViewState { size: [16, 16], ..long };
        let small = part(FrameStage::Whole, ViewKernel::Volume, &small);
        let token = session.give_chunk(small, Some(chunk)).await;
        assert_eq!(drawn(&broker, &mut session, token).await[1..4], *b"PNG");
    });
}

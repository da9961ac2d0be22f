//! Drawing parts of frames of views, in the runner itself, or on a GPU.
//!
//! Whoever turns a volume asks for its bricks again and again: those that were decoded stay in memory for
//! the next frame, and so does what was made ready for one look.
//!
//! # Invariants
//! - What is kept was checked against its address when it was decoded.
//! - It takes no more memory than the order says, beside the brick that is drawn and what a GPU has of its own.

mod device;

use std::io::{self, Read};
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use gleaner_kernels::raycast::Look;
use gleaner_kernels::view::{
    Layer, Level, ViewBrick, ViewError, ViewScene, join, picture_file, synthetic,
};
use gleaner_protocol::limits::FRAME_LAYERS_BYTES_MAX;
use gleaner_protocol::{
    Digest, DigestHasher, FrameStage, FrameTask, ViewKernel, ViewState, layers_of, push_layer,
    strip_rows,
};

use self::device::FrameDevice;
use super::application::News;
use super::device::drawing_fault;
use super::order_files::OrderFiles;
use super::outputs::Collector;
use super::{Fault, FrameInput, FrameOrder, Reply, StagedInput, panic_text, thread_cpu};

/// The name of what a part of a frame is, among the files of its order.
const PART: &str = "part";

/// Bricks that were decoded.
#[derive(Debug, Default)]
pub(super) struct KeptBricks {
    /// Those used last at the end.
    bricks: Vec<Kept>,
    device: FrameDevice,
}

#[derive(Debug)]
struct Kept {
    digest: Digest,
    brick: ViewBrick,
    /// What it was made ready for last.
    ready: Option<(Look, ViewScene)>,
}

/// Why there is no part.
enum Trouble {
    /// Its own doing.
    Failed(String),
    /// This host's.
    CannotRun(String),
    /// Its GPU's.
    Gpu(String, Fault),
}

impl From<ViewError> for Trouble {
    fn from(error: ViewError) -> Self {
        match drawing_fault(&error) {
            Some(fault) => Self::Gpu(error.to_string(), fault),
            None => Self::Failed(error.to_string()),
        }
    }
}

/// Draws a part of a frame. It stops with its process: a render does not wait for it to look up. Where a GPU
/// does not come to its end with it, it says so and no more: the processor begins again.
pub(super) fn run(
    kept: &mut KeptBricks,
    collector: &Collector,
    order: &FrameOrder,
    files: OrderFiles,
    tell: &mut dyn FnMut(News),
) -> Reply {
    let before = thread_cpu();
    std::thread::sleep(Duration::from_micros(order.waits_us));
    let mut may_be_the_gpu = false;
    let mut told = |news: News| {
        may_be_the_gpu |= !matches!(news, News::ComputedBy(None));
        tell(news);
    };
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| draw(kept, order, files, &mut told)));
    let cpu_us = (thread_cpu() - before).as_micros() + order.waits_us;
    match outcome {
        Ok(Ok(bytes)) => match collector.keep_bytes(order.token, PART, bytes) {
            Ok(file) => Reply::Done { files: vec![file], cpu_us, measured: None },
            Err(reason) => Reply::Failed { reason, cpu_us },
        },
        Ok(Err(Trouble::Failed(reason))) => Reply::Failed { reason, cpu_us },
        Ok(Err(Trouble::CannotRun(reason))) => Reply::CannotRun(reason),
        Ok(Err(Trouble::Gpu(reason, of))) => Reply::GpuFailed { reason, of },
        Err(panic) => {
            let reason = format!("drawing a frame panicked: {}", panic_text(&*panic));
            match may_be_the_gpu {
                // It may be the driver's doing: the processor finds out.
                true => Reply::GpuFailed { reason, of: Fault::Unclear },
                false => Reply::Failed { reason, cpu_us },
            }
        }
    }
}

/// The strips of the layer, or the file of the picture or of a strip of it.
fn draw(
    kept: &mut KeptBricks,
    order: &FrameOrder,
    mut files: OrderFiles,
    tell: &mut dyn FnMut(News),
) -> Result<Vec<u8>, Trouble> {
    let FrameTask { stage, kernel, ref state, size, codec, strips, .. } = *order.task;
    let layers_in_strips = |strip: &dyn Fn(u32) -> Vec<u8>| {
        let mut body = Vec::new();
        (0..strips.into()).for_each(|index| push_layer(&mut body, &strip(index)));
        body
    };
    let picture = match (&order.input, stage) {
        (_, FrameStage::Layer) if matches!(kernel, ViewKernel::Paced { .. }) => {
            return Ok(layers_in_strips(&|_| state.seq.to_le_bytes().to_vec()));
        }
        _ if matches!(kernel, ViewKernel::Paced { .. }) => synthetic(state.seq, size)?,
        (FrameInput::Layers(_), _) => {
            let bytes = read_layers(&mut files).map_err(|error| {
                Trouble::CannotRun(format!("the frame's layers cannot be read: {error}"))
            })?;
            let layers = layers_of(&bytes, usize::MAX)
                .ok_or_else(|| Trouble::Failed("the frame's layers end too soon".to_owned()))?;
            let layers: Vec<_> = layers.into_iter().map(|layer| &bytes[layer]).collect();
            join(&layers, state.background, size, strip_rows(size[1], strips, order.index))?
        }
        (FrameInput::Chunk(chunk, bytes), _) => {
            let level = match stage {
                FrameStage::Coarse => Level::Coarse,
                FrameStage::Layer | FrameStage::Whole | FrameStage::Join => Level::Fine,
            };
            kept.bring((chunk, *bytes), level, &mut files, order.bricks_mib << 20)?;
            let layer = kept.layer(order, tell)?;
            kept.shrink(order.bricks_mib << 20);
            if stage == FrameStage::Layer {
                let rows = |index| strip_rows(size[1], strips, index);
                return Ok(layers_in_strips(&|index| layer.encode(!state.moving, rows(index))));
            }
            layer.over(state.background)
        }
        (FrameInput::Nothing, _) if kernel == ViewKernel::Synthetic => synthetic(state.seq, size)?,
        (FrameInput::Nothing, _) => {
            return Err(Trouble::Failed("its job names no chunk to draw".to_owned()));
        }
    };
    Ok(picture_file(&picture, codec)?)
}

impl KeptBricks {
    /// Forgets them all.
    pub(super) fn forget(&mut self) {
        self.bricks.clear();
        self.device.close();
    }

    /// Puts a brick at the end: the one that is kept, or what its file holds.
    fn bring(
        &mut self,
        (chunk, bytes): (&StagedInput, u64),
        level: Level,
        files: &mut OrderFiles,
        bytes_max: u64,
    ) -> Result<(), Trouble> {
        let is_this = |kept: &Kept| kept.digest == chunk.digest && kept.brick.level() == level;
        let kept = match self.bricks.iter().position(is_this) {
            Some(at) => self.bricks.remove(at),
            None => {
                // What is to make way for it does so before it comes.
                self.shrink(bytes_max.saturating_sub(bytes));
                let brick = read_brick(chunk, level, files)?;
                Kept { digest: chunk.digest, brick, ready: None }
            }
        };
        self.bricks.push(kept);
        Ok(())
    }

    /// What is seen of the last brick: as the GPU draws it, where the order gives one and that is soon done
    /// with it, or else the processor.
    fn layer(&mut self, order: &FrameOrder, tell: &mut dyn FnMut(News)) -> Result<Layer, Trouble> {
        let (state, size) = (&order.task.state, order.task.size);
        self.make_ready(state)?;
        let last = self.bricks.last().expect("one was brought");
        let (_, scene) = last.ready.as_ref().expect("made ready");
        let key = (last.digest, last.brick.level());
        match self.device.draw(order, key, scene, tell)? {
            Some(layer) => Ok(layer),
            None => Ok(scene.draw(state, size)?),
        }
    }

    /// Makes the last brick ready to be looked at as a state says.
    fn make_ready(&mut self, state: &ViewState) -> Result<(), Trouble> {
        let (last, others) = self.bricks.split_last_mut().expect("one was brought");
        let look = last.brick.look(state)?;
        let is_this = |ready: &&(Look, ViewScene)| ready.0 == look;
        if last.ready.as_ref().filter(is_this).is_none() {
            let like = others.iter().rev().find_map(|kept| kept.ready.as_ref().filter(is_this));
            let scene = last.brick.scene(&look, like.map(|(_, scene)| scene))?;
            last.ready = Some((look, scene));
        }
        Ok(())
    }

    /// Forgets those used longest ago, until the rest takes no more than so many bytes.
    fn shrink(&mut self, bytes_max: u64) {
        let bytes_max = self.device.share_left(bytes_max);
        let mut bytes = self.bytes();
        let over = self.bricks.iter().take_while(|kept| {
            let is_over = bytes > bytes_max;
            bytes -= kept.brick.bytes();
            is_over
        });
        let over = over.count();
        self.bricks.drain(..over);
    }

    fn bytes(&self) -> u64 {
        self.bricks.iter().map(|kept| kept.brick.bytes()).sum()
    }
}

/// Decodes a chunk, and checks it.
fn read_brick(
    chunk: &StagedInput,
    level: Level,
    files: &mut OrderFiles,
) -> Result<ViewBrick, Trouble> {
    let damaged = |problem: &str| Trouble::CannotRun(format!("chunk {:?}: {problem}", chunk.name));
    let file = files.next().map_err(|error| damaged(&error.to_string()))?;
    let mut file = Hashing { file, hasher: DigestHasher::default() };
    let brick = ViewBrick::read(&mut file, level);
    // What follows is of the content too.
    io::copy(&mut file, &mut io::sink()).map_err(|error| damaged(&error.to_string()))?;
    let (found, expected) = (file.hasher.finish(), chunk.digest);
    if found != expected {
        let problem = format!("the cached file is damaged: it holds {found}, not {expected}");
        return Err(damaged(&problem));
    }
    Ok(brick?)
}

/// A file whose content is hashed as it is read.
struct Hashing<R> {
    file: R,
    hasher: DigestHasher,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

fn read_layers(files: &mut OrderFiles) -> io::Result<Vec<u8>> {
    let file = files.next()?;
    let bytes = file.metadata()?.len().min(FRAME_LAYERS_BYTES_MAX);
    let mut layers = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    file.take(FRAME_LAYERS_BYTES_MAX).read_to_end(&mut layers)?;
    Ok(layers)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gleaner_kernels::volume::{BrickFile, Cutter, Volume};
    use gleaner_protocol::{Content, PictureCodec, TransferPoint, ViewCamera};

    use super::*;
    use crate::run::runner::Order;

    const SIZE: [u32; 2] = [64, 48];

    /// A runner's folders, with a brick in its cache.
    struct Bench {
        base: tempfile::TempDir,
        kept: KeptBricks,
    }

    impl Bench {
        fn new() -> Self {
            let base = tempfile::tempdir().expect("a folder");
            fs::create_dir(base.path().join("spool")).expect("made");
            Self { base, kept: KeptBricks::default() }
        }

        /// The first brick of a volume with ripples.
        fn brick(&self, side: usize) -> FrameInput {
            let path = self.base.path().join("volume.nrrd");
            let mut file = Vec::new();
            Volume::rippled(side).expect("a volume").write_nrrd(&mut file).expect("memory");
            fs::write(&path, file).expect("written");
            let mut cutter = Cutter::open(&path, 1 << 30, tempfile::tempfile).expect("a volume");
            let BrickFile { bytes, .. } = cutter.brick(0, 0, None).expect("cut");
            let source = self.base.path().join(format!("brick-{side}"));
            fs::write(&source, &bytes).expect("written");
            let digest = Digest::of(&bytes);
            let chunk = StagedInput { name: "chunk.nrrd".into(), source, digest };
            FrameInput::Chunk(chunk, bytes.len() as u64)
        }

        fn order(input: &FrameInput, stage: FrameStage, bricks_mib: u64) -> FrameOrder {
            let point = |value, opacity| TransferPoint { value, colour: [1.0; 3], opacity };
            let state = ViewState {
                seq: 1,
                camera: ViewCamera {
                    eye: [60.0, -40.0, 50.0],
                    target: [12.0; 3],
                    up: [0.0, 1.0, 0.0],
                    fov_degrees: 40.0,
                },
                transfer: vec![point(0.0, 0.0), point(100.0, 0.5)],
                opacity_unit: 1.0,
                shading: None,
                clip: [[0.0, 1.0]; 3],
                background: [0.0; 3],
                step: 0,
                size: SIZE,
                moving: true,
            };
            let (kernel, codec) = (ViewKernel::Volume, PictureCodec::Jpeg(75));
            let task = FrameTask { frame: 1, stage, kernel, state, size: SIZE, codec, strips: 1 };
            let (task, input) = (Box::new(task), input.clone());
            FrameOrder {
                token: 7,
                task,
                index: 0,
                input,
                memory_mib: 64,
                bricks_mib,
                waits_us: 0,
                gpu: None,
            }
        }

        fn run(&mut self, order: &FrameOrder) -> Result<Vec<u8>, String> {
            let spool = self.base.path().join("spool");
            let files = OrderFiles::open(&Order::Frame(order.clone())).expect("there");
            match run(&mut self.kept, &Collector::new(spool.clone()), order, files, &mut |_| ()) {
                Reply::Done { files, .. } => Ok(match &files[0].content {
                    Content::Inline(bytes) => bytes.clone(),
                    Content::Stored { .. } => {
                        fs::read(crate::run::runner::spool_path(&spool, 7, PART)).expect("kept")
                    }
                }),
                Reply::Failed { reason, .. } | Reply::CannotRun(reason) => Err(reason),
                other => panic!("{other:?}"),
            }
        }
    }

    fn source(input: &FrameInput) -> &std::path::Path {
        let FrameInput::Chunk(chunk, _) = input else { panic!("a chunk") };
        &chunk.source
    }

    #[test]
    fn a_brick_that_was_decoded_is_not_read_again() {
        let mut bench = Bench::new();
        let brick = bench.brick(24);
        let order = Bench::order(&brick, FrameStage::Layer, 64);
        let first = bench.run(&order).expect("a layer");
        fs::write(source(&brick), "something else").expect("written");
        assert_eq!(bench.run(&order).expect("a layer"), first);
        // Another look, and a picture of it, are of the same brick.
        let mut other = Bench::order(&brick, FrameStage::Whole, 64);
        other.task.state.transfer[1].opacity = 0.01;
        assert_eq!(bench.run(&other).expect("a picture")[..2], [0xff, 0xd8]);
        assert_ne!(bench.run(&order).expect("a layer"), [0; 0]);
        bench.kept.forget();
        let damaged = bench.run(&order).expect_err("damaged");
        assert!(damaged.contains("the cached file is damaged"), "{damaged}");
    }

    #[test]
    fn a_paced_part_takes_as_long_as_it_is_told_and_says_so() {
        let mut bench = Bench::new();
        let brick = bench.brick(24);
        let paced = ViewKernel::Paced { load_us: 7, render_us: 2_000 };
        let mut order = Bench::order(&brick, FrameStage::Layer, 64);
        (order.task.kernel, order.waits_us) = (paced, 2_007);
        let files = OrderFiles::open(&Order::Frame(order.clone())).expect("there");
        let collector = Collector::new(bench.base.path().join("spool"));
        let reply = run(&mut bench.kept, &collector, &order, files, &mut |_| ());
        let Reply::Done { cpu_us, .. } = reply else {
            panic!("it is done");
        };
        assert!(cpu_us >= 2_007);
        assert!(bench.kept.bricks.is_empty(), "nothing is decoded");
        let mut join = Bench::order(&brick, FrameStage::Whole, 64);
        join.task.kernel = paced;
        assert_eq!(bench.run(&join).expect("a picture")[..2], [0xff, 0xd8]);
    }

    #[test]
    fn no_more_is_kept_than_there_is_memory_for() {
        let mut bench = Bench::new();
        let bricks = [80, 81, 82].map(|side| bench.brick(side));
        // One takes two MiB, with what it is made ready by.
        for (mib, kept) in [(0, 0), (1, 0), (3, 1), (5, 2), (64, 3)] {
            for brick in &bricks {
                bench.run(&Bench::order(brick, FrameStage::Layer, mib)).expect("a layer");
            }
            assert_eq!(bench.kept.bricks.len(), kept, "{mib} MiB");
            assert!(bench.kept.bytes() <= mib << 20);
            bench.kept.forget();
        }
        // What was used last stays.
        for at in [0, 1, 0, 2] {
            bench.run(&Bench::order(&bricks[at], FrameStage::Layer, 5)).expect("a layer");
        }
        fs::write(source(&bricks[0]), "gone").expect("written");
        bench.run(&Bench::order(&bricks[0], FrameStage::Layer, 5)).expect("kept");
    }

    #[test]
    fn what_is_no_input_is_told() {
        let mut bench = Bench::new();
        let told = |bench: &mut Bench, order: &FrameOrder| bench.run(order).expect_err("refused");
        let nothing = Bench::order(&FrameInput::Nothing, FrameStage::Layer, 1);
        assert!(told(&mut bench, &nothing).contains("no chunk"));
        let layers = bench.base.path().join("layers");
        fs::write(&layers, [3, 0, 0, 0, 1, 2, 3]).expect("written");
        let join = Bench::order(&FrameInput::Layers(layers.clone()), FrameStage::Join, 1);
        assert!(told(&mut bench, &join).contains("layer 0: it is no layer"));
        fs::write(&layers, [4, 0, 0, 0, 1, 2, 3]).expect("written");
        assert!(told(&mut bench, &join).contains("end too soon"));
    }
}

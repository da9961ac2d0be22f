//! Frames of views: layers of the bricks of a volume with ripples, what joins them, files of pictures.

use std::sync::Arc;

#[cfg(feature = "gpu")]
use gleaner_kernels::view::{DeviceBricks, Layer};
use gleaner_kernels::view::{Level, ViewBrick, ViewScene, join, picture_file};
use gleaner_kernels::volume::{Brick, Volume};
#[cfg(feature = "gpu")]
use gleaner_protocol::boottime;
use gleaner_protocol::{PictureCodec, TransferPoint, ViewCamera, ViewShading, ViewState};

use super::Row;
use super::volume::{FOV_DEGREES, LOOKS, NamedLook, UP, colour, eye};

const RUNS: usize = 20;
/// Voxels along each side of the volume, of two bricks along each side.
const SIDE: usize = 256;
/// Pixels while it is turned, and a quarter of them along each side.
const SIZES: [[u32; 2]; 2] = [[512, 384], [128, 96]];

fn state((_, points, shading): NamedLook, size: [u32; 2]) -> ViewState {
    let (eye, target) = eye(SIDE);
    let transfer = points.iter().map(|(value, opacity)| TransferPoint {
        value: *value,
        colour: colour(*value),
        opacity: *opacity,
    });
    ViewState {
        seq: 1,
        camera: ViewCamera { eye, target, up: UP, fov_degrees: FOV_DEGREES },
        transfer: transfer.collect(),
        opacity_unit: 1.0,
        shading: shading.map(|light| ViewShading {
            ambient: light.ambient,
            diffuse: light.diffuse,
            specular: light.specular,
            shininess: light.shininess,
        }),
        clip: [[0.0, 1.0]; 3],
        background: [0.0; 3],
        step: 0,
        size,
        moving: true,
    }
}

fn scenes(bricks: &[ViewBrick], state: &ViewState) -> Vec<ViewScene> {
    let ready = |brick: &ViewBrick| brick.scene(&brick.look(state).expect("a look"), None);
    bricks.iter().map(|brick| ready(brick).expect("a scene")).collect()
}

fn layers(scenes: &[ViewScene], state: &ViewState) -> Vec<Vec<u8>> {
    let layer = |scene: &ViewScene| scene.draw(state, state.size).expect("a layer");
    scenes.iter().map(|scene| layer(scene).encode(!state.moving, 0..state.size[1])).collect()
}

pub(super) fn bench() {
    let row = |size: &str, work: &(dyn Fn() + Sync)| {
        Row { kernel: "view", size }.measure_one(RUNS, work);
    };
    let volume = Volume::rippled(SIDE).expect("a volume");
    let bricks = Brick::cut(&volume, [2; 3]);
    let voxels = Arc::new(bricks[0].voxels().clone());
    row("128³ decoded brick, made ready for any look", &|| {
        drop(ViewBrick::of(Brick::whole(voxels.clone()), Level::Fine));
    });
    let bricks: Vec<ViewBrick> =
        bricks.into_iter().map(|brick| ViewBrick::of(brick, Level::Fine)).collect();
    for look in LOOKS {
        let name = look.0;
        let first = state(look, SIZES[0]);
        let ready = scenes(&bricks, &first);
        row(&format!("128³ {name}, another look"), &|| drop(scenes(&bricks[..1], &first)));
        for size in SIZES {
            let [width, height] = size;
            let state = state(look, size);
            let files = layers(&ready, &state);
            let bytes: usize = files.iter().map(Vec::len).sum();
            let of = format!("{name}, {width} x {height}");
            row(&format!("128³ {of}, 8 layers"), &|| drop(layers(&ready, &state)));
            let files: Vec<&[u8]> = files.iter().map(|file| &file[..]).collect();
            row(&format!("{of}, join of 8 layers, {} KiB", bytes >> 10), &|| {
                drop(join(&files, state.background, size, 0..size[1]));
            });
        }
    }
    let large = state(LOOKS[2], [1024, 768]);
    let ready = scenes(&bricks, &large);
    let files = layers(&ready, &large);
    let files: Vec<&[u8]> = files.iter().map(|file| &file[..]).collect();
    let picture = join(&files, large.background, large.size, 0..large.size[1]).expect("layers");
    let codecs = [
        ("JPEG 75", PictureCodec::Jpeg(75)),
        ("JPEG 90", PictureCodec::Jpeg(90)),
        ("PNG", PictureCodec::Png),
    ];
    for (name, codec) in codecs {
        let bytes = picture_file(&picture, codec).expect("a file").len();
        row(&format!("{name} of 1024 x 768, {} KiB", bytes >> 10), &|| {
            drop(picture_file(&picture, codec));
        });
    }
}

/// Layers of the same bricks on a GPU, where they stay: of pictures of several sizes, by which it is decided
/// from which on a GPU is sooner done.
#[cfg(feature = "gpu")]
pub(super) fn bench_on_gpu() {
    let Some((gpu, is_real)) = super::gpu("views") else { return };
    println!("\nLayers of frames on {}:\n", gpu.name());
    println!(
        "| look | picture | processor ms | GPU ms | first one, to the GPU ms |\n|---|---|---|---|---|"
    );
    let runs = if is_real { RUNS } else { 5 };
    let volume = Volume::rippled(SIDE).expect("a volume");
    let bricks = Brick::cut(&volume, [2; 3]).into_iter();
    let bricks: Vec<ViewBrick> = bricks.map(|brick| ViewBrick::of(brick, Level::Fine)).collect();
    for look in LOOKS {
        for size in [SIZES[1], [256, 192], SIZES[0], [1024, 768]] {
            let state = state(look, size);
            let ready = scenes(&bricks, &state);
            let mut there = DeviceBricks::new(gpu.clone(), 1 << 32);
            let mut draw = || {
                for (key, scene) in ready.iter().enumerate() {
                    let layer = there.draw(key, scene, &state, size, &boottime);
                    drop(layer.expect("it goes on").expect("it has room"));
                }
            };
            let began = boottime();
            draw();
            let first = boottime().since(began).as_secs_f64() * 1e3;
            let ours = median_ms(runs, &mut || drop(layers_of(&ready, &state)));
            let theirs = median_ms(runs, &mut draw);
            let [width, height] = size;
            let name = look.0;
            println!("| {name} | {width} x {height} | {ours:.1} | {theirs:.1} | {first:.1} |");
        }
    }
}

#[cfg(feature = "gpu")]
fn layers_of(scenes: &[ViewScene], state: &ViewState) -> Vec<Layer> {
    scenes.iter().map(|scene| scene.draw(state, state.size).expect("a layer")).collect()
}

#[cfg(feature = "gpu")]
fn median_ms(runs: usize, work: &mut dyn FnMut()) -> f64 {
    let times = (0..runs).map(|_| {
        let began = boottime();
        work();
        boottime().since(began).as_secs_f64() * 1e3
    });
    super::median(times.collect())
}

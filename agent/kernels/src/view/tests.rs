use std::fs;
use std::io::Cursor;

use gleaner_protocol::{
    PictureCodec, TransferPoint, ViewCamera, ViewShading, ViewState, strip_rows,
};
use zune_jpeg::JpegDecoder;

use super::{
    Layer, LayerError, Level, PackedLayer, RgbPicture, ViewBrick, ViewError, join, painted_number,
    picture_file, synthetic,
};
use crate::raycast::tests::{FOG, SHELL, ball};
use crate::volume::{Brick, Cutter, Volume};

pub(super) const SIZE: [u32; 2] = [122, 100];
const GREY: [f32; 3] = [0.2, 0.3, 0.4];

/// What is seen of a ball from somewhere.
pub(super) fn state(points: &[(f32, f32)], eye: [f64; 3]) -> ViewState {
    let transfer = points.iter().map(|(value, opacity)| {
        let share = (value / 255.0).clamp(0.0, 1.0);
        TransferPoint { value: *value, colour: [1.0, share, 1.0 - share], opacity: *opacity }
    });
    ViewState {
        seq: 1,
        camera: ViewCamera {
            eye,
            target: [12.0, 12.0, 18.0],
            up: [0.1, 1.0, 0.2],
            fov_degrees: 40.0,
        },
        transfer: transfer.collect(),
        opacity_unit: 1.0,
        shading: None,
        clip: [[0.0, 1.0]; 3],
        background: GREY,
        step: 0,
        size: SIZE,
        moving: false,
    }
}

fn layer(brick: Brick, state: &ViewState) -> Layer {
    let brick = ViewBrick::of(brick, Level::Fine);
    let scene = brick.scene(&brick.look(state).expect("a look"), None).expect("a scene");
    scene.draw(state, SIZE).expect("a layer")
}

fn whole(volume: &Volume, state: &ViewState) -> RgbPicture {
    layer(Brick::whole(volume.clone().into()), state).over(state.background)
}

/// All rows of a picture.
const ROWS: std::ops::Range<u32> = 0..SIZE[1];

fn joined(layers: &[Layer], is_deep: bool) -> RgbPicture {
    strip_of(layers, is_deep, ROWS)
}

fn strip_of(layers: &[Layer], is_deep: bool, rows: std::ops::Range<u32>) -> RgbPicture {
    let files: Vec<_> = layers.iter().map(|layer| layer.encode(is_deep, rows.clone())).collect();
    let files: Vec<&[u8]> = files.iter().map(|file| &file[..]).collect();
    join(&files, GREY, SIZE, rows).expect("layers")
}

/// The largest difference between two pictures, and how many channels differ.
fn apart(one: &RgbPicture, other: &RgbPicture) -> (u8, usize) {
    let by = one.bytes().iter().zip(other.bytes()).map(|(one, other)| one.abs_diff(*other));
    (by.clone().max().unwrap_or(0), by.filter(|by| *by > 0).count())
}

/// What differs from the background.
fn seen(picture: &RgbPicture) -> Vec<bool> {
    let behind = RgbPicture::plain(picture.size(), GREY);
    let pairs = picture.bytes().chunks(3).zip(behind.bytes().chunks(3));
    pairs
        .map(|(one, other)| one.iter().zip(other).any(|(one, other)| one.abs_diff(*other) > 8))
        .collect()
}

#[test]
fn layers_of_bricks_joined_are_the_picture_of_the_whole() {
    let volume = ball([25, 24, 23]);
    let lit = ViewShading { ambient: 0.2, diffuse: 0.7, specular: 0.3, shininess: 20 };
    for (points, shading) in [(&SHELL[..], Some(lit)), (&SHELL[..], None), (&FOG[..], None)] {
        // From outside, and from within: one brick has the eye in it.
        for eye in [[60.0, -40.0, 30.0], [-50.0, 11.0, 20.0], [9.3, 12.2, 11.7]] {
            for clip in [[[0.0, 1.0]; 3], [[0.2, 0.7], [0.0, 0.55], [0.35, 1.0]]] {
                let state = ViewState { shading, clip, ..state(points, eye) };
                let single = whole(&volume, &state);
                let bricks = Brick::cut(&volume, [2, 2, 2]).into_iter();
                let mut layers: Vec<Layer> = bricks.map(|brick| layer(brick, &state)).collect();
                layers.rotate_left(3);
                let (deep, _) = apart(&joined(&layers, true), &single);
                assert!(deep <= 1, "{eye:?} {clip:?}: {deep}");
                let (shallow, _) = apart(&joined(&layers, false), &single);
                assert!(shallow <= 2, "{eye:?} {clip:?}: {shallow}");
                assert!(seen(&single).contains(&true), "{eye:?} {clip:?}: nothing is seen");
            }
        }
    }
}

#[test]
fn strips_one_below_the_other_are_the_picture() {
    let volume = ball([25, 24, 23]);
    // From aside, so that bricks show in some strips only.
    let state = state(&SHELL, [60.0, -70.0, 30.0]);
    let layers: Vec<Layer> =
        Brick::cut(&volume, [2, 2, 2]).into_iter().map(|brick| layer(brick, &state)).collect();
    for is_deep in [false, true] {
        let whole = joined(&layers, is_deep);
        for strips in 1..=7_u8 {
            let strips = (0..strips.into()).map(|at| strip_rows(SIZE[1], strips, at));
            let bytes: Vec<u8> =
                strips.flat_map(|rows| strip_of(&layers, is_deep, rows).bytes().to_vec()).collect();
            assert_eq!(bytes, whole.bytes());
        }
    }
    // What has pixels elsewhere is not of the strip.
    let all = layers[0].encode(false, ROWS);
    let refused = join(&[&all], GREY, SIZE, 0..16);
    let of_which = matches!(refused, Err(ViewError::Layer { index: 0, source: LayerError::Place }));
    assert!(of_which, "{refused:?}");
    assert!(matches!(join(&[], GREY, SIZE, 100..200), Err(ViewError::Size([122, 0]))));
}

#[test]
fn a_clip_hides_what_is_beyond_it() {
    let volume = ball([25, 24, 23]);
    let whole_of = |clip| whole(&volume, &ViewState { clip, ..state(&SHELL, [12.0, 12.0, 90.0]) });
    let shown = |clip| seen(&whole_of(clip));
    let all = shown([[0.0, 1.0]; 3]);
    let count = |of: &[bool]| of.iter().filter(|seen| **seen).count();
    // Seen along z, the half at the left is hidden by x, and what is behind by nothing.
    let half = shown([[0.5, 1.0], [0.0, 1.0], [0.0, 1.0]]);
    assert!(half.iter().zip(&all).all(|(half, all)| *all || !half));
    let share = count(&half) as f64 / count(&all) as f64;
    assert!((0.4..0.6).contains(&share), "{share}");
    assert_eq!(count(&shown([[0.5, 0.5], [0.0, 1.0], [0.0, 1.0]])), 0);
    // A slab of a voxel is seen.
    let slab = shown([[0.0, 1.0], [0.0, 1.0], [0.5, 0.5 + 1.0 / 22.0]]);
    assert!(count(&slab) > 0);
}

#[test]
fn the_coarse_level_lies_over_the_fine_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ball.nrrd");
    let volume = ball([90, 100, 110]);
    let mut file = Vec::new();
    volume.write_nrrd(&mut file).expect("memory");
    fs::write(&path, file).expect("written");
    let mut cutter = Cutter::open(&path, 64 << 20, tempfile::tempfile).expect("a volume");
    let files = [cutter.brick(0, 0, None), cutter.coarse()].map(|file| file.expect("cut").bytes);
    let solid = [(0.0, 0.0), (60.0, 0.0), (61.0, 0.9), (255.0, 0.9)];
    for (eye, clip) in [
        ([300.0, -100.0, 250.0], [[0.0, 1.0]; 3]),
        ([44.0, 50.0, -180.0], [[0.0, 1.0], [0.0, 0.5], [0.0, 1.0]]),
        ([-250.0, 60.0, 90.0], [[0.0, 1.0], [0.0, 1.0], [0.4, 1.0]]),
    ] {
        let mut state = ViewState { clip, ..state(&solid, eye) };
        state.camera.target = [44.5, 49.5, 82.0];
        let [fine, coarse] =
            [(&files[0], Level::Fine), (&files[1], Level::Coarse)].map(|(file, level)| {
                let brick = ViewBrick::read(&file[..], level).expect("a brick");
                let scene =
                    brick.scene(&brick.look(&state).expect("a look"), None).expect("a scene");
                seen(&scene.draw(&state, SIZE).expect("a layer").over(GREY))
            });
        let both = fine.iter().zip(&coarse).filter(|(fine, coarse)| **fine && **coarse).count();
        let any = fine.iter().zip(&coarse).filter(|(fine, coarse)| **fine || **coarse).count();
        assert!(any > 300, "{eye:?}: {any}");
        assert!(both as f64 > 0.85 * any as f64, "{eye:?}: {both} of {any}");
    }
}

#[test]
fn what_is_no_layer_is_refused() {
    let volume = ball([25, 24, 23]);
    let layer = layer(Brick::whole(volume.into()), &state(&SHELL, [60.0, -40.0, 30.0]));
    for is_deep in [false, true] {
        let file = layer.encode(is_deep, ROWS);
        assert!(PackedLayer::read(&file, SIZE).is_ok());
        for length in 0..file.len() {
            assert!(PackedLayer::read(&file[..length], SIZE).is_err(), "{length}");
        }
        let longer = [&file[..], &[0]].concat();
        assert_eq!(
            PackedLayer::read(&longer, SIZE).map(drop),
            Err(LayerError::Length(longer.len()))
        );
        let other = PackedLayer::read(&file, [122, 99]).map(drop);
        assert_eq!(other, Err(LayerError::Size(SIZE, [122, 99])));
        // Whatever a byte is instead, it is a layer or none, and no picture panics on it.
        for at in 0..file.len().min(600) {
            for by in [1, 0x80, 0xff] {
                let mut spoilt = file.clone();
                spoilt[at] ^= by;
                let _ = join(&[&spoilt, &file], GREY, SIZE, ROWS);
            }
        }
        let mut nowhere = file.clone();
        nowhere[13..21].copy_from_slice(&f64::NAN.to_le_bytes());
        let refused = join(&[&file, &nowhere], GREY, SIZE, ROWS);
        let of_which =
            matches!(refused, Err(ViewError::Layer { index: 1, source: LayerError::Depth }));
        assert!(of_which, "{refused:?}");
    }
    assert!(matches!(join(&[], GREY, [5000, 5000], 0..5000), Err(ViewError::Size(_))));
    assert_eq!(join(&[], GREY, SIZE, ROWS).expect("no layers"), RgbPicture::plain(SIZE, GREY));
}

#[test]
fn a_brick_of_which_nothing_is_seen_takes_no_bytes() {
    let volume = ball([25, 24, 23]);
    let clear = layer(Brick::whole(volume.into()), &state(&[(0.0, 0.0)], [60.0, -40.0, 30.0]));
    assert_eq!(clear.encode(true, ROWS).len(), 0);
    assert_eq!(joined(&[clear], true), RgbPicture::plain(SIZE, GREY));
}

#[test]
fn what_is_no_brick_is_refused() {
    let read = |bytes: &[u8]| ViewBrick::read(bytes, Level::Fine);
    assert!(matches!(read(b"GIF89a"), Err(ViewError::Read(_))));
    let mut file = Vec::new();
    ball([9, 8, 7]).write_nrrd(&mut file).expect("memory");
    assert!(read(&file).is_ok());
    assert!(matches!(read(&file[..file.len() - 1]), Err(ViewError::Read(_))));
}

fn decoded(file: Vec<u8>) -> Vec<u8> {
    JpegDecoder::new(Cursor::new(file)).decode().expect("a picture")
}

#[test]
fn a_painted_number_is_read_back_after_any_codec() {
    for size in [[512, 384], [128, 96], [200, 100]] {
        for seq in [0, 1, 0xffff, 0x5aa5, 0xa53c, 77] {
            let picture = synthetic(seq, size).expect("a picture");
            assert_eq!(painted_number(picture.bytes(), size[0] as usize), seq);
            for quality in [75, 90] {
                let file = picture_file(&picture, PictureCodec::Jpeg(quality)).expect("a file");
                let read = painted_number(&decoded(file), size[0] as usize);
                assert_eq!(read, seq, "{size:?} at {quality}");
            }
        }
    }
    let later = synthetic((1 << 16) + 5, [512, 384]).expect("a picture");
    assert_eq!(painted_number(later.bytes(), 512), 5, "the lowest bits are painted");
}

#[test]
fn files_show_the_picture() {
    let state = state(&SHELL, [60.0, -40.0, 30.0]);
    let picture = whole(&ball([25, 24, 23]), &state);
    let file = picture_file(&picture, PictureCodec::Png).expect("a file");
    let mut reader = png::Decoder::new(Cursor::new(file)).read_info().expect("a picture");
    let mut bytes = vec![0; reader.output_buffer_size().expect("small")];
    reader.next_frame(&mut bytes).expect("a frame");
    assert_eq!(bytes, picture.bytes());
    let file = picture_file(&picture, PictureCodec::Jpeg(95)).expect("a file");
    let far =
        decoded(file).iter().zip(picture.bytes()).filter(|(a, b)| a.abs_diff(**b) > 12).count();
    assert!(far * 100 < bytes.len(), "{far} of {}", bytes.len());
}

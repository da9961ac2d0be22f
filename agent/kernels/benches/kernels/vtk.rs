//! The same pictures by VTK's fixed-point ray caster, where python3 has it: one of VTK's and one of
//! ours by turns, on one thread, so that what else runs disturbs both alike.
//!
//! How far each is from a picture with sixteen times as many samples stands beside it. VTK's time is
//! that of its rays alone: what it does once for a volume or a camera, and showing the picture, is
//! left out.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use gleaner_kernels::image::Image;
use gleaner_kernels::volume::{Volume, Voxels};
use rustix::time::ClockId;
use serde_json::json;
use tempfile::TempDir;

use super::peer::Peer;
use super::volume::{FOV_DEGREES, LOOKS, NamedLook, UP, camera, colour, eye, frame, look, scene};
use super::{median, median_ms};

const SCRIPT: &str = include_str!("vtk.py");
const SIZE: [usize; 2] = [512, 512];
const RUNS: usize = 10;
/// How much finer the samples of the picture are that both are compared with.
const FINER: f64 = 16.0;
/// Files.
const VOLUME: &str = "volume";
const PICTURE: &str = "picture";

pub(super) fn bench() {
    println!("\nPictures of 512 x 512 beside VTK's:\n");
    let mut is_first = true;
    for side in [128, 256] {
        let volume = Arc::new(Volume::rippled(side).expect("a volume"));
        let folder = TempDir::new().expect("a folder");
        let Voxels::U8(voxels) = volume.voxels() else { panic!("bytes") };
        fs::write(folder.path().join(VOLUME), voxels).expect("written");
        for named in &LOOKS {
            let Some(vtk) = start(side, named, folder.path()) else { return };
            if is_first {
                println!(
                    "| picture | VTK {}, ms CPU | ours | times as fast | VTK's error, rms | largest | ours, rms | largest |",
                    vtk.name
                );
                println!("|---|---|---|---|---|---|---|---|");
            }
            is_first = false;
            print(side, &volume, named, vtk, folder.path());
        }
    }
}

/// Prints a line.
fn print(side: usize, volume: &Arc<Volume>, named: &NamedLook, mut vtk: Peer, folder: &Path) {
    let (name, points, light) = *named;
    let camera = camera(side, SIZE);
    let of = |step| scene(volume, &look(points, step, light));
    let ready = of(1.0);
    let ours_ms =
        || median_ms(1, ClockId::ThreadCPUTime, &|| (), &|()| drop(frame(&ready, &camera)));
    let times: Vec<(f64, f64)> = (0..RUNS).map(|_| (vtk.turn_ms(), ours_ms())).collect();
    let theirs = median(times.iter().map(|(theirs, _)| *theirs).collect());
    let ours = median(times.iter().map(|(_, ours)| *ours).collect());
    let fine = numbers(&frame(&of(1.0 / FINER), &camera).image);
    let [by_vtk, by_us] = [picture(vtk, folder), numbers(&frame(&ready, &camera).image)]
        .map(|picture| difference(&picture, &fine));
    println!(
        "| {side}³ {name} | {theirs:.1} | {ours:.1} | {:.2} | {:.2} | {:.1} | {:.2} | {:.1} |",
        theirs / ours,
        by_vtk.0,
        by_vtk.1,
        by_us.0,
        by_us.1
    );
}

/// VTK, ready to take pictures, where it is there.
fn start(side: usize, (_, points, light): &NamedLook, folder: &Path) -> Option<Peer> {
    let points: Vec<_> = points
        .iter()
        .map(|(value, opacity)| {
            let [red, green, blue] = colour(*value);
            [*value, red, green, blue, *opacity]
        })
        .collect();
    let light =
        light.map(|light| json!([light.ambient, light.diffuse, light.specular, light.shininess]));
    let (eye, target) = eye(side);
    let scene = json!({
        "volume": folder.join(VOLUME),
        "picture": folder.join(PICTURE),
        "side": side,
        "points": points,
        "light": light,
        "eye": eye,
        "target": target,
        "up": UP,
        "fov_degrees": FOV_DEGREES,
        "size": SIZE,
    });
    Peer::start(SCRIPT, &scene.to_string())
}

/// The last picture that VTK took.
fn picture(vtk: Peer, folder: &Path) -> Vec<f32> {
    vtk.end();
    let bytes = fs::read(folder.join(PICTURE)).expect("a picture");
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn numbers(image: &Image) -> Vec<f32> {
    image.pixels().as_flattened().to_vec()
}

/// The root of the mean square of all channels' differences, and the largest, in steps of eight
/// bits.
fn difference(picture: &[f32], fine: &[f32]) -> (f64, f64) {
    assert_eq!(picture.len(), fine.len(), "pictures of one size");
    let parts = picture.iter().zip(fine).map(|(a, b)| 255.0 * f64::from(a - b).abs());
    let squares: f64 = parts.clone().map(|part| part * part).sum();
    ((squares / fine.len() as f64).sqrt(), parts.fold(0.0, f64::max))
}

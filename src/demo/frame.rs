//! One picture of the volume: a ray through each pixel, light gathered along it.
//!
//! # Invariants
//! - The same frame has the same pixels, however many threads render it.

use std::f32::consts::TAU;
use std::io;
use std::sync::Mutex;
use std::thread;

use super::vector::Vec3;
use super::volume::Volume;

/// Pixels of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// Frames in which the camera goes round once.
const FRAMES_PER_TURN: u32 = 96;
/// Distance between two samples, in voxels.
const STEP: f32 = 0.4;
/// Distance between two samples on the way to the light, in voxels.
const SHADOW_STEP: f32 = 2.0;
/// Samples on the way to the light.
const SHADOW_SAMPLES: u32 = 8;
/// Distance for which the transfer function's opacities hold, in voxels.
const OPACITY_DISTANCE: f32 = 1.0;
/// How much of the opacity on the way to the light counts.
const SHADOW_DEPTH: f32 = 0.62;
/// Densities that are told apart.
const LOOK_ENTRIES: usize = 1024;
/// Light that still comes through where a ray ends early.
const DARK_ENOUGH: f32 = 0.004;
/// Rays per pixel along each axis.
const RAYS: usize = 2;

/// What a density looks like: (density, colour, opacity over one voxel), in between linear.
const LOOK: [(f32, Vec3, f32); 11] = [
    (0.00, Vec3::new(0.02, 0.08, 0.40), 0.0),
    (0.07, Vec3::new(0.02, 0.12, 0.60), 0.0),
    (0.13, Vec3::new(0.03, 0.22, 0.90), 0.030),
    (0.19, Vec3::new(0.03, 0.30, 0.80), 0.006),
    (0.29, Vec3::new(0.02, 0.60, 0.55), 0.008),
    (0.35, Vec3::new(0.02, 0.85, 0.50), 0.17),
    (0.42, Vec3::new(0.10, 0.80, 0.30), 0.03),
    (0.54, Vec3::new(1.00, 0.55, 0.02), 0.04),
    (0.64, Vec3::new(1.00, 0.36, 0.01), 0.50),
    (0.80, Vec3::new(1.00, 0.10, 0.02), 0.80),
    (1.00, Vec3::new(1.00, 0.80, 0.45), 0.95),
];

/// Renders a frame with so many threads: red, green and blue of each pixel, row by row.
pub(super) fn render(volume: &Volume, frame: u32, size: Size, threads: usize) -> Vec<u8> {
    let camera = Camera::of_frame(volume, frame, size);
    let scene = Scene { volume, look: Look::new(STEP), shadow: Look::new(SHADOW_STEP) };
    let mut pixels = vec![0; size.width * size.height * 3];
    let rows = Mutex::new(pixels.chunks_mut(size.width * 3).enumerate());
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let next = rows.lock().expect("no row is rendered under the lock").next();
                    let Some((y, row)) = next else { return };
                    for (x, pixel) in row.chunks_mut(3).enumerate() {
                        pixel.copy_from_slice(&camera.pixel(&scene, x, y));
                    }
                }
            });
        }
    });
    pixels
}

/// Encodes pixels as PNG.
///
/// # Errors
/// The writer fails.
pub(super) fn write_png(pixels: &[u8], size: Size, to: impl io::Write) -> io::Result<()> {
    let side = |pixels: usize| u32::try_from(pixels).map_err(io::Error::other);
    let mut encoder = png::Encoder::new(to, side(size.width)?, side(size.height)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    Ok(writer.finish()?)
}

struct Camera {
    eye: Vec3,
    forward: Vec3,
    /// Half the picture's width and height, one focal length ahead.
    right: Vec3,
    up: Vec3,
    size: Size,
    light: Vec3,
}

impl Camera {
    fn of_frame(volume: &Volume, frame: u32, size: Size) -> Self {
        let angle = (frame % FRAMES_PER_TURN) as f32 / FRAMES_PER_TURN as f32 * TAU + 0.6;
        let centre = Vec3::all((volume.side() - 1) as f32 / 2.0);
        let outward = Vec3::new(angle.cos(), 0.35 + 0.12 * angle.sin(), angle.sin()).unit();
        let eye = centre + outward * (volume.side() as f32 * 1.62);
        let forward = (centre - eye).unit();
        let right = forward.cross(Vec3::new(0.0, 1.0, 0.0)).unit();
        let up = right.cross(forward);
        let half_height = 0.335;
        let half_width = half_height * size.width as f32 / size.height as f32;
        let light = (up * 0.8 - right * 0.7 - forward * 0.6).unit();
        Self { eye, forward, right: right * half_width, up: up * half_height, size, light }
    }

    fn pixel(&self, scene: &Scene<'_>, x: usize, y: usize) -> [u8; 3] {
        let mut sum = Vec3::default();
        for ray in 0..RAYS * RAYS {
            let offset = |index: usize| (index as f32 + 0.5) / RAYS as f32;
            let u = (x as f32 + offset(ray % RAYS)) / self.size.width as f32 * 2.0 - 1.0;
            let v = 1.0 - (y as f32 + offset(ray / RAYS)) / self.size.height as f32 * 2.0;
            let direction = (self.forward + self.right * u + self.up * v).unit();
            sum = sum + self.light_along(scene, direction, backdrop(u, v));
        }
        let mean = sum * (1.0 / (RAYS * RAYS) as f32);
        mean.to_array().map(|value| (to_screen(value) * 255.0 + 0.5) as u8)
    }

    /// What arrives at the eye, nearest first, until nothing more shines through.
    fn light_along(&self, scene: &Scene<'_>, direction: Vec3, backdrop: Vec3) -> Vec3 {
        let edge = (scene.volume.side() - 1) as f32;
        let Some((near, far)) = crossing(self.eye, direction, edge) else { return backdrop };
        let mut gathered = Vec3::default();
        let mut through = 1.0_f32;
        let steps = ((far - near) / STEP) as u32;
        for step in 0..steps {
            let point = self.eye + direction * (near + (step as f32 + 0.5) * STEP);
            let (colour, opacity) = scene.look.of(scene.volume.at(point));
            if opacity <= 0.0 {
                continue;
            }
            let light = self.shade(scene, point, direction, colour);
            gathered = gathered + light * (through * opacity);
            through *= 1.0 - opacity;
            if through < DARK_ENOUGH {
                return gathered;
            }
        }
        gathered + backdrop * through
    }

    /// The colour of a point as its surface, which the gradient stands on, reflects the light.
    fn shade(&self, scene: &Scene<'_>, point: Vec3, direction: Vec3, colour: Vec3) -> Vec3 {
        let gradient = scene.volume.gradient(point);
        let strength = (gradient.length() * 18.0).min(1.0);
        // Towards the eye, for a shell has no inside.
        let outward = -gradient.unit();
        let normal = if outward.dot(direction) > 0.0 { -outward } else { outward };
        let lit = self.light_at(scene, point);
        let diffuse = normal.dot(self.light).max(0.0) * lit;
        let half = (self.light - direction).unit();
        let highlight = normal.dot(half).max(0.0).powi(40) * lit * 0.55;
        let rim = (1.0 - normal.dot(-direction).max(0.0)).powi(3) * 0.25;
        let surface = colour * (0.16 + 1.15 * diffuse + rim) + Vec3::all(highlight);
        let haze = colour * (0.45 + 0.35 * lit);
        haze.mix(surface, strength)
    }

    /// How much of the light reaches a point through what lies in between.
    fn light_at(&self, scene: &Scene<'_>, point: Vec3) -> f32 {
        let mut through = 1.0;
        for sample in 1..=SHADOW_SAMPLES {
            let between = point + self.light * (sample as f32 * SHADOW_STEP);
            let (_, opacity) = scene.shadow.of(scene.volume.at(between));
            through *= 1.0 - opacity * SHADOW_DEPTH;
            if through < 0.05 {
                break;
            }
        }
        0.15 + 0.85 * through
    }
}

struct Scene<'a> {
    volume: &'a Volume,
    look: Look,
    shadow: Look,
}

/// The transfer function for samples at one distance: colour and opacity by density.
struct Look {
    entries: Vec<(Vec3, f32)>,
}

impl Look {
    /// A sample stands for less or more than the way for which the table's opacities hold.
    fn new(step: f32) -> Self {
        let entries = (0..LOOK_ENTRIES).map(|entry| {
            let (colour, opacity) = look(entry as f32 / (LOOK_ENTRIES - 1) as f32);
            (colour, 1.0 - (1.0 - opacity).powf(step / OPACITY_DISTANCE))
        });
        Self { entries: entries.collect() }
    }

    fn of(&self, density: f32) -> (Vec3, f32) {
        let entry = (density * (LOOK_ENTRIES - 1) as f32 + 0.5) as usize;
        self.entries[entry.min(LOOK_ENTRIES - 1)]
    }
}

/// Colour and opacity of a density over [`OPACITY_DISTANCE`].
fn look(density: f32) -> (Vec3, f32) {
    let above = LOOK.iter().position(|(at, ..)| density < *at).unwrap_or(LOOK.len() - 1).max(1);
    let ((low, colour, opacity), (high, next_colour, next_opacity)) =
        (LOOK[above - 1], LOOK[above]);
    let share = ((density - low) / (high - low)).clamp(0.0, 1.0);
    (colour.mix(next_colour, share), opacity + (next_opacity - opacity) * share)
}

/// Distances at which a ray enters and leaves the cube from 0 to `edge`.
fn crossing(eye: Vec3, direction: Vec3, edge: f32) -> Option<(f32, f32)> {
    let (mut near, mut far) = (0.0_f32, f32::INFINITY);
    for (from, along) in eye.to_array().into_iter().zip(direction.to_array()) {
        let (one, other) = (-from / along, (edge - from) / along);
        near = near.max(one.min(other));
        far = far.min(one.max(other));
    }
    (near < far).then_some((near, far))
}

/// A dark room, lighter in its middle.
fn backdrop(u: f32, v: f32) -> Vec3 {
    let middle = (1.0 - 0.55 * (u * u + (v + 0.2) * (v + 0.2))).max(0.0);
    Vec3::new(0.002, 0.003, 0.006).mix(Vec3::new(0.016, 0.022, 0.042), middle)
}

/// Brightness as a screen wants it: bright parts bent down, then gamma.
fn to_screen(value: f32) -> f32 {
    let bent = value * (1.0 + value * 0.12) / (1.0 + value * 0.30);
    bent.clamp(0.0, 1.0).powf(1.0 / 2.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Size = Size { width: 24, height: 18 };

    #[test]
    fn the_number_of_threads_changes_no_pixel() {
        let volume = Volume::neghip();
        let one = render(&volume, 7, SMALL, 1);
        assert_eq!(one, render(&volume, 7, SMALL, 3));
        assert_ne!(one, render(&volume, 8, SMALL, 1), "the camera turns");
        assert_eq!(one, render(&volume, 7 + FRAMES_PER_TURN, SMALL, 1), "and comes round");
    }

    #[test]
    fn a_ray_past_the_cube_sees_the_room() {
        let eye = Vec3::new(-10.0, 5.0, 5.0);
        assert!(crossing(eye, Vec3::new(0.0, 1.0, 0.0), 10.0).is_none());
        assert_eq!(crossing(eye, Vec3::new(1.0, 0.0, 0.0), 10.0), Some((10.0, 20.0)));
    }

    #[test]
    fn the_picture_reads_back_as_it_was_written() {
        let pixels = render(&Volume::neghip(), 0, SMALL, 1);
        let mut file = Vec::new();
        write_png(&pixels, SMALL, &mut file).expect("to memory");
        let mut reader = png::Decoder::new(io::Cursor::new(file)).read_info().expect("a picture");
        let mut read = vec![0; pixels.len()];
        reader.next_frame(&mut read).expect("its pixels");
        assert_eq!(read, pixels);
    }
}

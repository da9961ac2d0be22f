//! What takes pictures on a GPU.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use wgpu::{
    BindGroup, BindingResource, BindingType, Buffer, BufferUsages, Extent3d, Texture,
    TextureDescriptor, TextureDimension, TextureFormat, TextureSampleType, TextureUsages,
    TextureViewDescriptor, TextureViewDimension,
};

use super::super::scene::Scene;
use super::super::transfer::TABLE_ENTRIES_MAX;
use super::tile::{DeviceTile, DeviceView};
use crate::gpu::{Gpu, GpuError, Program, READ, Staging, UNIFORM, WRITTEN, side};
use crate::image::Rgba;
use crate::limits::{
    DEVICE_BRICK_BYTES_MAX, DEVICE_RAY_SAMPLES, DEVICE_SIDE_MAX, DEVICE_TILES_MAX, MACRO_CELL,
    THROUGH_MIN, TILE,
};
use crate::volume::Voxels;

/// Takes pictures of volumes of one type of voxels on a GPU. It is made once, and handed on from
/// brick to brick.
#[derive(Debug)]
pub struct Caster {
    gpu: Arc<Gpu>,
    format: TextureFormat,
    program: Program,
    look: Buffer,
    view: Buffer,
    table: Buffer,
    tiles: Buffer,
    pixels: Buffer,
    back: Buffer,
    staging: Staging,
    tiles_max: usize,
}

/// What a ray's opacity is said to be where the device cannot tell which samples it takes.
pub(super) const UNSURE: f32 = -1.0;

/// A scene's look as the device reads it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DeviceLook {
    last: [f32; 3],
    first: f32,
    spacing: [f32; 3],
    scale: f32,
    blocks: [u32; 3],
    is_lit: u32,
    ambient: f32,
    diffuse: f32,
    specular: f32,
    shininess: u32,
    entry_last: f32,
    _to_its_size: [u32; 3],
}

/// What voxels are on a device.
pub(super) struct VoxelType {
    format: TextureFormat,
    /// In programs.
    name: &'static str,
    pub(super) sampled: TextureSampleType,
}

impl VoxelType {
    pub(super) const fn of(voxels: &Voxels) -> Self {
        let exact = TextureSampleType::Float { filterable: false };
        let (format, name, sampled) = match voxels {
            Voxels::U8(_) => (TextureFormat::R8Uint, "u32", TextureSampleType::Uint),
            Voxels::U16(_) => (TextureFormat::R16Uint, "u32", TextureSampleType::Uint),
            Voxels::F32(_) => (TextureFormat::R32Float, "f32", exact),
        };
        Self { format, name, sampled }
    }

    /// What takes a sample of them.
    pub(super) fn source(&self) -> String {
        format!("alias Voxel = {};\n{}", self.name, include_str!("sample.wgsl"))
    }
}

/// How a program is given a texture of three dimensions.
pub(super) const fn texture(sample_type: TextureSampleType) -> BindingType {
    BindingType::Texture {
        sample_type,
        view_dimension: TextureViewDimension::D3,
        multisampled: false,
    }
}

/// Bytes of one voxel.
const fn voxel_bytes(voxels: &Voxels) -> usize {
    match voxels {
        Voxels::U8(_) => 1,
        Voxels::U16(_) => 2,
        Voxels::F32(_) => 4,
    }
}

impl Caster {
    /// Gets a GPU ready to take pictures of such voxels, of so many pixels in a row and so many rows.
    ///
    /// # Errors
    /// It has no memory left, was lost, or refuses.
    pub fn new(gpu: Arc<Gpu>, voxels: &Voxels, size: [usize; 2]) -> Result<Self, GpuError> {
        let tiles = size[0].div_ceil(TILE) * size[1].div_ceil(TILE);
        let tiles_max = tiles.min(DEVICE_TILES_MAX);
        let pixels = tiles_max * TILE * TILE;
        let of = VoxelType::of(voxels);
        gpu.clone().checked("a picture's tiles", || {
            let textures = [texture(TextureSampleType::Uint), texture(of.sampled)];
            let bindings = [&[UNIFORM, READ, READ, READ, WRITTEN], &textures[..]].concat();
            let program = Program::new(&gpu, "march", &source(&of), &bindings);
            let read = BufferUsages::STORAGE | BufferUsages::COPY_DST;
            let uniform = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
            let mapped = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
            Ok(Self {
                look: gpu.buffer("look", size_of::<DeviceLook>(), uniform),
                view: gpu.buffer("view", size_of::<DeviceView>(), read),
                table: gpu.buffer("table", TABLE_ENTRIES_MAX * size_of::<Rgba>(), read),
                tiles: gpu.buffer("tiles", tiles_max * size_of::<DeviceTile>(), read),
                pixels: gpu.buffer(
                    "pixels",
                    pixels * size_of::<Rgba>(),
                    read | BufferUsages::COPY_SRC,
                ),
                back: gpu.buffer("back", pixels * size_of::<Rgba>(), mapped),
                staging: Staging::new(
                    &gpu,
                    size_of::<DeviceView>()
                        + tiles_max * size_of::<DeviceTile>()
                        + pixels * size_of::<Rgba>(),
                ),
                gpu: gpu.clone(),
                format: of.format,
                program,
                tiles_max,
            })
        })
    }

    /// The device.
    #[must_use]
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Voxels that one brick may have, along each side and in all.
    #[must_use]
    pub fn brick_max(gpu: &Gpu, voxels: &Voxels) -> (usize, usize) {
        let side = gpu.device().limits().max_texture_dimension_3d;
        let side = usize::try_from(side).unwrap_or(usize::MAX).min(DEVICE_SIDE_MAX);
        (side, DEVICE_BRICK_BYTES_MAX.min(gpu.data_bytes_max()) / voxel_bytes(voxels))
    }

    /// The look of the scene that is there.
    pub(super) const fn look(&self) -> &Buffer {
        &self.look
    }

    /// Tiles that are cast at once, at most.
    pub(super) const fn tiles_max(&self) -> usize {
        self.tiles_max
    }

    /// Room for a scene's voxels and for the distances of its blocks, and what binds both.
    pub(super) fn room(&self, scene: &Scene) -> Result<([Texture; 2], BindGroup), GpuError> {
        let size = scene.brick.voxels().size();
        let what = format!("a brick of {} x {} x {} voxels", size[0], size[1], size[2]);
        self.gpu.checked(&what, || {
            let voxels = self.texture(size, self.format);
            let distances = self.texture(scene.blocks, TextureFormat::R8Uint);
            let views = [&distances, &voxels]
                .map(|texture| texture.create_view(&TextureViewDescriptor::default()));
            let buffers = [&self.look, &self.view, &self.table, &self.tiles, &self.pixels];
            let resources = buffers
                .map(|buffer| BindingResource::Buffer(buffer.as_entire_buffer_binding()))
                .into_iter()
                .chain(views.iter().map(BindingResource::TextureView));
            let bound = self.program.bind(&self.gpu, resources);
            let queue = self.gpu.queue();
            queue.write_buffer(&self.look, 0, bytemuck::bytes_of(&device_look(scene)));
            let entries = &scene.table.entries[..scene.table.clear as usize];
            queue.write_buffer(&self.table, 0, bytemuck::cast_slice(entries));
            Ok(([voxels, distances], bound))
        })
    }

    fn texture(&self, [width, height, depth]: [usize; 3], format: TextureFormat) -> Texture {
        self.gpu.device().create_texture(&TextureDescriptor {
            label: Some("brick"),
            size: Extent3d {
                width: side(width),
                height: side(height),
                depth_or_array_layers: side(depth),
            },
            mip_level_count: 1,
            sample_count: 1,
            dimension: TextureDimension::D3,
            format,
            usage: TextureUsages::TEXTURE_BINDING | TextureUsages::COPY_DST,
            view_formats: &[],
        })
    }

    /// Goes on with the rays of some tiles: `show` gets what each pixel of theirs has seen now, or
    /// that the device is [not sure](UNSURE). What these saw before is in `pixels`, or that has none.
    pub(super) fn cast<T>(
        &self,
        bound: &BindGroup,
        view: &DeviceView,
        tiles: &[DeviceTile],
        pixels: &[Rgba],
        show: impl FnOnce(&[Rgba]) -> T,
    ) -> Result<T, GpuError> {
        let bytes = (tiles.len() * TILE * TILE * size_of::<Rgba>()) as u64;
        self.gpu.checked("rays", || {
            let parcels = [
                (&self.view, 0, bytemuck::bytes_of(view)),
                (&self.tiles, 0, bytemuck::cast_slice(tiles)),
                (&self.pixels, 0, bytemuck::cast_slice(pixels)),
            ];
            let sent = if pixels.is_empty() { &parcels[..2] } else { &parcels };
            let copy = self.staging.packed(&self.gpu, sent)?;
            let submission = self.gpu.submitted("rays", |commands| {
                copy(commands);
                self.program.dispatch(commands, bound, tiles.len());
                commands.copy_buffer_to_buffer(&self.pixels, 0, &self.back, 0, bytes);
            });
            self.gpu.looked(&self.back, bytes, submission, |seen| {
                // What is mapped begins where any number may.
                show(bytemuck::cast_slice(seen))
            })
        })
    }
}

/// Samples that a ray takes before it looks again whether there is anything to see.
const BATCH: u32 = 8;

/// The shader for one type of voxels.
fn source(of: &VoxelType) -> String {
    let (sample, ray, march) = (of.source(), include_str!("ray.wgsl"), include_str!("march.wgsl"));
    format!(
        "{sample}\
         const BLOCK: f32 = {MACRO_CELL}.0;\n\
         const BATCH: u32 = {BATCH}u;\n\
         const THROUGH_MIN: f32 = {THROUGH_MIN:?};\n\
         const SAMPLES_MAX: f32 = {DEVICE_RAY_SAMPLES}.0;\n\
         const UNSURE: f32 = {UNSURE:?};\n\
         {ray}\n{march}"
    )
}

fn device_look(scene: &Scene) -> DeviceLook {
    let voxels = scene.brick.voxels();
    let light = scene.shading.as_ref();
    DeviceLook {
        last: voxels.size().map(|side| ((side - 1) as f32).next_down()),
        first: scene.table.first,
        spacing: scene.proportions,
        scale: scene.table.scale,
        blocks: scene.blocks.map(side),
        is_lit: light.is_some().into(),
        ambient: light.map_or(0.0, |light| light.ambient),
        diffuse: light.map_or(0.0, |light| light.diffuse),
        specular: light.map_or(0.0, |light| light.specular),
        shininess: light.map_or(0, |light| light.shininess.into()),
        entry_last: scene.table.last,
        _to_its_size: [0; 3],
    }
}

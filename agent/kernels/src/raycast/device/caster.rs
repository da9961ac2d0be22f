//! What takes pictures on a GPU.

use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};
use wgpu::{
    BindGroup, BindingResource, BindingType, Buffer, BufferUsages, CommandEncoder, Extent3d,
    Texture, TextureDescriptor, TextureDimension, TextureFormat, TextureSampleType, TextureUsages,
    TextureViewDescriptor, TextureViewDimension,
};

use super::super::scene::Scene;
use super::tile::{DeviceTile, DeviceView};
use crate::gpu::{Gpu, GpuError, Program, READ, Staging, UNIFORM, WRITTEN, side};
use crate::image::{Rgba, RgbaBytes};
use crate::limits::{
    DEVICE_BRICK_BYTES_MAX, DEVICE_RAY_SAMPLES, DEVICE_SIDE_MAX, DEVICE_TILES_MAX, MACRO_CELL,
    THROUGH_MIN, TILE,
};
use crate::volume::Voxels;

/// Takes pictures of volumes of one type of voxels on a GPU. It is made once for all bricks that are
/// there.
#[derive(Debug)]
pub struct Caster {
    gpu: Arc<Gpu>,
    format: TextureFormat,
    program: Program,
    view: Buffer,
    tiles: Buffer,
    pixels: Buffer,
    show: Show,
    mapped: Mutex<Mapped>,
    tiles_max: usize,
}

/// Turns pixels into those of eight bits a channel.
#[derive(Debug)]
struct Show {
    program: Program,
    shown: Buffer,
    bound: BindGroup,
}

/// What is written and read here, by one at a time.
#[derive(Debug)]
struct Mapped {
    staging: Staging,
    back: Buffer,
}

/// Room for a scene on a device, with how it is looked at.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) voxels: Texture,
    pub(super) distances: Texture,
    pub(super) look: Buffer,
    /// Binds all of it.
    pub(super) bound: BindGroup,
}

/// Words of a tile in eight bits a channel: its pixels, and what is said of each row.
const TILE_WORDS: usize = TILE * TILE + TILE;
const SHOWN_BYTES: usize = TILE_WORDS * size_of::<u32>();

/// A tile in eight bits a channel.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ShownTile {
    pub(super) rows: [[RgbaBytes; TILE]; TILE],
    flags: [u32; TILE],
}

impl ShownTile {
    /// Bits of the pixels in a row that are left to the processor.
    pub(super) const fn unsure(&self, row: usize) -> u32 {
        self.flags[row] & 0xff
    }

    /// How many pixels show something, of those that are sure.
    pub(super) fn seen(&self) -> usize {
        self.flags.iter().map(|flags| (flags >> TILE).count_ones() as usize).sum()
    }
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
    pub fn new(gpu: Arc<Gpu>, voxels: &Voxels, size: [usize; 2]) -> Result<Arc<Self>, GpuError> {
        let tiles = size[0].div_ceil(TILE) * size[1].div_ceil(TILE);
        let tiles_max = tiles.min(DEVICE_TILES_MAX);
        let pixels = tiles_max * TILE * TILE;
        let of = VoxelType::of(voxels);
        gpu.clone().checked("a picture's tiles", || {
            let textures = [texture(TextureSampleType::Uint), texture(of.sampled)];
            let bindings = [&[UNIFORM, READ, READ, READ, WRITTEN], &textures[..]].concat();
            let program = Program::new(&gpu, "march", &source(&of), &bindings);
            let read = BufferUsages::STORAGE | BufferUsages::COPY_DST;
            let mapped = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
            let made = BufferUsages::STORAGE | BufferUsages::COPY_SRC;
            let rays = gpu.buffer("pixels", pixels * size_of::<Rgba>(), read | made);
            Ok(Arc::new(Self {
                view: gpu.buffer("view", size_of::<DeviceView>(), read),
                tiles: gpu.buffer("tiles", tiles_max * size_of::<DeviceTile>(), read),
                show: Show::new(&gpu, &rays, gpu.buffer("shown", tiles_max * SHOWN_BYTES, made)),
                pixels: rays,
                mapped: Mutex::new(Mapped {
                    back: gpu.buffer("back", pixels * size_of::<Rgba>(), mapped),
                    staging: Staging::new(
                        &gpu,
                        size_of::<DeviceView>()
                            + tiles_max * size_of::<DeviceTile>()
                            + pixels * size_of::<Rgba>(),
                    ),
                }),
                gpu: gpu.clone(),
                format: of.format,
                program,
                tiles_max,
            }))
        })
    }

    /// Gets a GPU ready to take pictures of such voxels, of any size: of a large one it takes a part at a
    /// time.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn of_largest(gpu: Arc<Gpu>, voxels: &Voxels) -> Result<Arc<Self>, GpuError> {
        Self::new(gpu, voxels, [DEVICE_TILES_MAX * TILE, TILE])
    }

    /// Whether it takes pictures of such voxels.
    pub(crate) fn is_for(&self, voxels: &Voxels) -> bool {
        self.format == VoxelType::of(voxels).format
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

    /// Tiles that are cast at once, at most.
    pub(super) const fn tiles_max(&self) -> usize {
        self.tiles_max
    }

    /// Room for a scene's voxels and for the distances of its blocks, with its look.
    pub(super) fn room(&self, scene: &Scene) -> Result<Room, GpuError> {
        let size = scene.brick.voxels().size();
        let what = format!("a brick of {} x {} x {} voxels", size[0], size[1], size[2]);
        self.gpu.checked(&what, || Ok(self.room_with(scene, self.texture(size, self.format))))
    }

    /// Room for another look at voxels that are there.
    pub(super) fn room_beside(&self, scene: &Scene, voxels: &Texture) -> Result<Room, GpuError> {
        self.gpu.checked("a look", || Ok(self.room_with(scene, voxels.clone())))
    }

    fn room_with(&self, scene: &Scene, voxels: Texture) -> Room {
        let gpu = &self.gpu;
        let distances = self.texture(scene.blocks, TextureFormat::R8Uint);
        let uniform = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
        let look = gpu.buffer("look", size_of::<DeviceLook>(), uniform);
        let read = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let entries: &[u8] =
            bytemuck::cast_slice(&scene.table.entries[..scene.table.clear as usize]);
        let table = gpu.buffer("table", entries.len(), read);
        let views = [&distances, &voxels]
            .map(|texture| texture.create_view(&TextureViewDescriptor::default()));
        let buffers = [&look, &self.view, &table, &self.tiles, &self.pixels];
        let resources = buffers
            .map(|buffer| BindingResource::Buffer(buffer.as_entire_buffer_binding()))
            .into_iter()
            .chain(views.iter().map(BindingResource::TextureView));
        let bound = self.program.bind(gpu, resources);
        gpu.queue().write_buffer(&look, 0, bytemuck::bytes_of(&device_look(scene)));
        gpu.queue().write_buffer(&table, 0, entries);
        Room { voxels, distances, look, bound }
    }

    /// Bytes that a brick takes there.
    #[must_use]
    pub fn brick_bytes(voxels: &Voxels, sides: [usize; 3]) -> usize {
        sides.iter().fold(voxel_bytes(voxels), |bytes, side| bytes.saturating_mul(*side))
    }

    /// Bytes that a scene takes there.
    pub(crate) fn scene_bytes(scene: &Scene) -> usize {
        let voxels = scene.brick.voxels();
        Self::brick_bytes(voxels.voxels(), voxels.size())
            .saturating_add(scene.distances.len() + size_of_val(&*scene.table.entries))
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
        let bytes = tiles.len() * TILE * TILE * size_of::<Rgba>();
        let back = |commands: &mut CommandEncoder, back: &Buffer| {
            commands.copy_buffer_to_buffer(&self.pixels, 0, back, 0, bytes as u64);
        };
        // What is mapped begins where any number may.
        let show = |seen: &[u8]| show(bytemuck::cast_slice(seen));
        self.perform(bound, (view, tiles, pixels), (bytes, back), show)
    }

    /// Casts the rays of some tiles, which saw nothing before: `show` gets each in eight bits a channel.
    pub(super) fn cast_in_bytes<T>(
        &self,
        bound: &BindGroup,
        view: &DeviceView,
        tiles: &[DeviceTile],
        show: impl FnOnce(&[ShownTile]) -> T,
    ) -> Result<T, GpuError> {
        let bytes = tiles.len() * SHOWN_BYTES;
        let Show { program, shown, bound: bound_to_show } = &self.show;
        let back = |commands: &mut CommandEncoder, back: &Buffer| {
            // A row for each of so many invocations.
            let groups = (tiles.len() * TILE).div_ceil(TILE * TILE);
            program.dispatch(commands, bound_to_show, groups);
            commands.copy_buffer_to_buffer(shown, 0, back, 0, bytes as u64);
        };
        let show = |seen: &[u8]| show(bytemuck::cast_slice(seen));
        self.perform(bound, (view, tiles, &[]), (bytes, back), show)
    }

    /// Tiles of pixels in eight bits a channel.
    #[cfg(test)]
    pub(super) fn shown(&self, pixels: &[Rgba]) -> Vec<ShownTile> {
        let tiles = pixels.len() / (TILE * TILE);
        let bytes = (tiles * SHOWN_BYTES) as u64;
        let Mapped { staging, back } = &*self.mapped.lock().expect("nobody panicked");
        let made = self.gpu.checked("pixels", || {
            let parcel = (&self.pixels, 0, bytemuck::cast_slice(pixels));
            let copy = staging.packed(&self.gpu, &[parcel])?;
            let submission = self.gpu.submitted("pixels", |commands| {
                copy(commands);
                self.show.program.dispatch(commands, &self.show.bound, tiles.div_ceil(TILE));
                commands.copy_buffer_to_buffer(&self.show.shown, 0, back, 0, bytes);
            });
            self.gpu.read(back, bytes, submission)
        });
        bytemuck::pod_collect_to_vec(&made.expect("the device goes on"))
    }

    /// Casts rays, and has so many bytes of what comes of them brought back.
    fn perform<T>(
        &self,
        bound: &BindGroup,
        (view, tiles, pixels): (&DeviceView, &[DeviceTile], &[Rgba]),
        (bytes, bring): (usize, impl FnOnce(&mut CommandEncoder, &Buffer)),
        show: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, GpuError> {
        let Mapped { staging, back } = &*self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        self.gpu.checked("rays", || {
            let parcels = [
                (&self.view, 0, bytemuck::bytes_of(view)),
                (&self.tiles, 0, bytemuck::cast_slice(tiles)),
                (&self.pixels, 0, bytemuck::cast_slice(pixels)),
            ];
            let sent = if pixels.is_empty() { &parcels[..2] } else { &parcels };
            let copy = staging.packed(&self.gpu, sent)?;
            let submission = self.gpu.submitted("rays", |commands| {
                copy(commands);
                self.program.dispatch(commands, bound, tiles.len());
                bring(commands, back);
            });
            self.gpu.looked(back, bytes as u64, submission, show)
        })
    }
}

impl Show {
    fn new(gpu: &Gpu, pixels: &Buffer, shown: Buffer) -> Self {
        let source = format!(
            "const TILE_WORDS = {TILE_WORDS}u;\n\
             const UNSURE = {}u;\n{}",
            UNSURE.to_bits(),
            include_str!("show.wgsl")
        );
        let program = Program::new(gpu, "show", &source, &[READ, WRITTEN]);
        let buffers = [pixels, &shown];
        let bound = program.bind(
            gpu,
            buffers.map(|buffer| BindingResource::Buffer(buffer.as_entire_buffer_binding())),
        );
        Self { program, shown, bound }
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

//! A graphics processor, reached through Vulkan.
//!
//! [`Gpu::open`] chooses one and makes it ready. What it is given is waited for before anything
//! else is: one dispatch at a time, so that no more than that is ever beyond recall.
//!
//! # Invariants
//! Whatever a driver says is an error with the device's name, never a panic: each use is in
//! `Gpu::checked`, and a wait ends.

mod about;
mod choice;
mod error;
mod memory;
mod program;
mod staging;

#[cfg(test)]
pub(crate) mod tests;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use gleaner_protocol::{GpuInfo, PciAddress};
use wgpu::{
    Adapter, Backends, Buffer, BufferSlice, BufferUsages, CommandEncoder, CommandEncoderDescriptor,
    Device, DeviceDescriptor, ErrorFilter, Extent3d, Instance, InstanceDescriptor, InstanceFlags,
    Limits, MapMode, MemoryHints, PollError, PollStatus, PollType, Queue, SubmissionIndex,
    TexelCopyBufferLayout, Texture,
};

pub use error::GpuError;
pub(crate) use program::{Program, READ, UNIFORM, WRITTEN};
pub(crate) use staging::Staging;

use self::about::about;
use self::choice::{Candidate, choose};
use self::memory::{Memory, room_bytes};
use crate::limits::{DEVICE_UPLOAD_BYTES, DEVICE_WAIT_MAX};

/// A graphics processor that is ready to compute.
#[derive(Debug)]
pub struct Gpu {
    info: GpuInfo,
    device: Device,
    queue: Queue,
    /// Bytes of its memory that what is computed on it may take for its data.
    data_bytes_max: usize,
    /// Why it is gone.
    lost: Arc<OnceLock<String>>,
}

impl Gpu {
    /// Opens the GPU whose name has `wanted` in it, or the strongest kind that there is. Devices
    /// that are only software, such as llvmpipe, are used when they are named.
    ///
    /// # Errors
    /// There is none with a Vulkan driver, none of that name, or it cannot be used.
    pub fn open(wanted: Option<&str>) -> Result<Arc<Self>, GpuError> {
        Self::open_beside(wanted, None, 0)
    }

    /// As [`Gpu::open`], with `reserve_mib` of what is free of its memory left to others; with
    /// `place`, one that is there and no other.
    ///
    /// # Errors
    /// As for [`Gpu::open`]; where there is none at that place; and where too little of its memory is
    /// left to compute with.
    pub fn open_beside(
        wanted: Option<&str>,
        place: Option<PciAddress>,
        reserve_mib: u64,
    ) -> Result<Arc<Self>, GpuError> {
        let adapter = chosen(wanted, place)?;
        let info = about(&adapter);
        let data_bytes_max = room_bytes(&info.name, Memory::of(&adapter), reserve_mib)?;
        Self::ready(&adapter, info, data_bytes_max).map(Arc::new)
    }

    /// Opens the GPU that [`Gpu::open`] would, however little of its memory is free now, and says what
    /// it is. It is not let go of before this process ends, for that may hang.
    ///
    /// # Errors
    /// As for [`Gpu::open`], but for want of memory.
    pub fn look(wanted: Option<&str>) -> Result<GpuInfo, GpuError> {
        let adapter = chosen(wanted, None)?;
        let gpu = Self::ready(&adapter, about(&adapter), 0)?;
        let info = gpu.info.clone();
        std::mem::forget((gpu, adapter));
        Ok(info)
    }

    fn ready(adapter: &Adapter, info: GpuInfo, data_bytes_max: usize) -> Result<Self, GpuError> {
        let refused = |problem: String| GpuError::Refused { device: info.name.clone(), problem };
        // What every device has that computes at all, and textures as large as this one allows.
        let limits = Limits::downlevel_defaults().using_resolution(adapter.limits());
        let device = now(adapter.request_device(&DeviceDescriptor {
            label: Some("kernels"),
            required_limits: limits,
            // Little more than what is asked for, so that what is planned is what is taken.
            memory_hints: MemoryHints::MemoryUsage,
            ..DeviceDescriptor::default()
        }));
        let (device, queue) = device
            .ok_or_else(|| refused("it does not answer".to_owned()))?
            .map_err(|error| refused(error.to_string()))?;
        let lost = Arc::new(OnceLock::new());
        device.set_device_lost_callback({
            let lost = lost.clone();
            move |_, reason| {
                let _ = lost.set(reason);
            }
        });
        // Otherwise the library panics: these are errors outside of `checked`, where nothing is
        // awaited from a device, such as when it drops what a lost one had.
        device.on_uncaptured_error(Arc::new(|_| ()));
        Ok(Self { info, device, queue, data_bytes_max, lost })
    }

    /// What its driver calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// What is known of it.
    #[must_use]
    pub const fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// Bytes that the data of what is computed may take there, so that others have what is left to
    /// them.
    pub(crate) const fn data_bytes_max(&self) -> usize {
        self.data_bytes_max
    }

    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Does something with it, on the caller's own thread, and finds out whether that went well.
    /// `what` says in a word or two what memory is for.
    pub(crate) fn checked<T>(
        &self,
        what: &str,
        work: impl FnOnce() -> Result<T, GpuError>,
    ) -> Result<T, GpuError> {
        let filters = [ErrorFilter::Internal, ErrorFilter::Validation, ErrorFilter::OutOfMemory];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let result = work();
        // All of them, the last one first: that is how they are stacked.
        let found: Vec<wgpu::Error> =
            scopes.into_iter().rev().filter_map(|scope| now(scope.pop()).flatten()).collect();
        // A lost device refuses nothing, and is told of by whoever waits for it.
        let _ = self.poll(PollType::Poll);
        if let Some(problem) = self.lost.get() {
            return Err(GpuError::of_lost(&self.info.name, what, problem));
        }
        match found.into_iter().next() {
            Some(error) => Err(GpuError::of(&self.info.name, what, &error)),
            None => result,
        }
    }

    /// Waits until what was submitted is done.
    pub(crate) fn wait(&self, submission: SubmissionIndex) -> Result<(), GpuError> {
        let wait =
            PollType::Wait { submission_index: Some(submission), timeout: Some(DEVICE_WAIT_MAX) };
        self.polled(wait)
    }

    /// Lets the library look after the device, and finds out whether that is still there.
    fn polled(&self, how: PollType) -> Result<(), GpuError> {
        match self.poll(how) {
            Some(Ok(_)) => Ok(()),
            Some(Err(PollError::Timeout)) => Err(self.hung()),
            Some(Err(error)) => Err(self.failed(&error.to_string())),
            None => Err(self.gone(self.lost.get().map_or("", String::as_str))),
        }
    }

    /// What the library hears of the device. Where that is lost meanwhile it panics, with nothing
    /// of its own held.
    fn poll(&self, how: PollType) -> Option<Result<PollStatus, PollError>> {
        catch_unwind(AssertUnwindSafe(|| self.device.poll(how))).ok()
    }

    /// Copies the first `bytes` of a buffer that can be mapped, once what was submitted is done.
    pub(crate) fn read(
        &self,
        buffer: &Buffer,
        bytes: u64,
        submission: SubmissionIndex,
    ) -> Result<Vec<u8>, GpuError> {
        self.looked(buffer, bytes, submission, <[u8]>::to_vec)
    }

    /// What `look` makes of the first `bytes` of a buffer that can be mapped, once what was submitted
    /// is done.
    pub(crate) fn looked<T>(
        &self,
        buffer: &Buffer,
        bytes: u64,
        submission: SubmissionIndex,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, GpuError> {
        let part = buffer.slice(..bytes);
        self.map(part, MapMode::Read, Some(submission))?;
        let view = part.get_mapped_range().map_err(|error| self.failed(&error.to_string()))?;
        let made = look(&view);
        drop(view);
        buffer.unmap();
        Ok(made)
    }

    /// Maps a part of a buffer that can be, once what was submitted is done; with nothing of that,
    /// one that nothing uses any more.
    fn map(
        &self,
        part: BufferSlice<'_>,
        mode: MapMode,
        submission: Option<SubmissionIndex>,
    ) -> Result<(), GpuError> {
        let (tell, told) = sync_channel(1);
        part.map_async(mode, move |mapped| {
            let _ = tell.send(mapped);
        });
        match submission {
            Some(submission) => self.wait(submission)?,
            None => self.polled(PollType::Poll)?,
        }
        // Whoever waits for a device may be the one who is told, so this may come later.
        let mapped = told.recv_timeout(DEVICE_WAIT_MAX).map_err(|_| self.hung())?;
        mapped.map_err(|error| self.failed(&error.to_string()))
    }

    /// Submits a copy of so many bytes of `from` to the beginning of `to`.
    pub(crate) fn copied(
        &self,
        from: &Buffer,
        first: u64,
        to: &Buffer,
        bytes: u64,
    ) -> SubmissionIndex {
        self.submitted("copy", |commands| {
            commands.copy_buffer_to_buffer(from, first, to, 0, bytes);
        })
    }

    /// Submits commands, all at once: each submission costs a device as much as a tenth of a
    /// millisecond, whatever is in it.
    pub(crate) fn submitted(
        &self,
        label: &str,
        encode: impl FnOnce(&mut CommandEncoder),
    ) -> SubmissionIndex {
        let described = CommandEncoderDescriptor { label: Some(label) };
        let mut commands = self.device.create_command_encoder(&described);
        encode(&mut commands);
        self.queue.submit([commands.finish()])
    }

    /// Writes layers of a texture of one number a voxel. `bytes` are those of all its layers.
    pub(crate) fn upload(
        &self,
        texture: &Texture,
        layers: Range<usize>,
        bytes: &[u8],
    ) -> Result<(), GpuError> {
        let size = texture.size();
        let layer_bytes = bytes.len() / size.depth_or_array_layers as usize;
        let at_once = (DEVICE_UPLOAD_BYTES / layer_bytes.max(1)).max(1);
        for first in layers.clone().step_by(at_once) {
            let end = (first + at_once).min(layers.end);
            let mut place = texture.as_image_copy();
            place.origin.z = side(first);
            self.queue.write_texture(
                place,
                &bytes[first * layer_bytes..end * layer_bytes],
                TexelCopyBufferLayout {
                    offset: 0,
                    bytes_per_row: Some(side(layer_bytes) / size.height),
                    rows_per_image: Some(size.height),
                },
                Extent3d { depth_or_array_layers: side(end - first), ..size },
            );
            self.wait(self.queue.submit([]))?;
        }
        Ok(())
    }

    /// A buffer of so many bytes.
    pub(crate) fn buffer(&self, label: &str, bytes: usize, usage: BufferUsages) -> Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: bytes as u64,
            usage,
            mapped_at_creation: false,
        })
    }

    fn gone(&self, problem: &str) -> GpuError {
        GpuError::Lost { device: self.info.name.clone(), problem: problem.to_owned() }
    }

    fn hung(&self) -> GpuError {
        GpuError::Hung { device: self.info.name.clone() }
    }

    fn failed(&self, problem: &str) -> GpuError {
        match self.lost.get() {
            Some(problem) => self.gone(problem),
            None => {
                GpuError::Failed { device: self.info.name.clone(), problem: problem.to_owned() }
            }
        }
    }
}

/// The device that is meant.
fn chosen(wanted: Option<&str>, place: Option<PciAddress>) -> Result<Adapter, GpuError> {
    let mut settings = InstanceDescriptor::new_without_display_handle();
    settings.backends = Backends::VULKAN;
    settings.flags = InstanceFlags::empty();
    // Its thresholds of memory are not set: they hold for each of a device's heaps, and so for the
    // small window that a processor has into the large one, which no brick fits into.
    let instance = Instance::new(settings);
    let mut adapters = now(instance.enumerate_adapters(Backends::VULKAN)).unwrap_or_default();
    let candidates: Vec<Candidate> = adapters
        .iter()
        .map(Adapter::get_info)
        .map(|info| Candidate {
            kind: info.device_type,
            pci: info.device_pci_bus_id.parse().ok(),
            name: info.name,
        })
        .collect();
    let chosen = choose(&candidates, wanted, place)?;
    Ok(adapters.swap_remove(chosen))
}

/// A length as a device counts it; what does not fit is refused by its limits.
pub(crate) fn side(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// What a future brings at once. Outside of browsers those of the library never wait.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

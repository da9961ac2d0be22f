//! What is on its way to a device.

use wgpu::{Buffer, BufferUsages, CommandEncoderDescriptor, MapMode, SubmissionIndex};

use super::{Gpu, GpuError};

/// Room that is written to here and copied from by a device. It is asked for once: who sends
/// something through it needs no memory for that, and so cannot run out of it.
#[derive(Debug)]
pub(crate) struct Staging(Buffer);

/// Where to, from which byte on, and what. Both are multiples of four bytes.
pub(crate) type Parcel<'a> = (&'a Buffer, usize, &'a [u8]);

impl Staging {
    /// Room for so many bytes.
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Self {
        Self(gpu.buffer("staging", bytes, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC))
    }

    /// Submits copies of parcels, which have room in it all together. What was sent before has to be
    /// there.
    ///
    /// # Panics
    /// They do not have room.
    pub(crate) fn send(
        &self,
        gpu: &Gpu,
        parcels: &[Parcel<'_>],
    ) -> Result<SubmissionIndex, GpuError> {
        let bytes: usize = parcels.iter().map(|(_, _, bytes)| bytes.len()).sum();
        let part = self.0.slice(..bytes as u64);
        gpu.map(part, MapMode::Write, None)?;
        let view = part.get_mapped_range_mut();
        let mut view = view.map_err(|error| gpu.failed(&error.to_string()))?;
        let described = CommandEncoderDescriptor { label: Some("staging") };
        let mut commands = gpu.device().create_command_encoder(&described);
        let mut first = 0;
        for (to, at, bytes) in parcels {
            let end = first + bytes.len();
            view.slice(first..end).copy_from_slice(bytes);
            let length = bytes.len() as u64;
            commands.copy_buffer_to_buffer(&self.0, first as u64, to, *at as u64, length);
            first = end;
        }
        drop(view);
        self.0.unmap();
        Ok(gpu.queue().submit([commands.finish()]))
    }
}

//! What is on its way to a device.

use wgpu::{Buffer, BufferUsages, CommandEncoder, MapMode};

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

    /// Writes parcels, which have room in it all together, and says how they get there. What was
    /// sent before has to be there.
    ///
    /// # Panics
    /// They do not have room.
    pub(crate) fn packed<'a>(
        &self,
        gpu: &Gpu,
        parcels: &[Parcel<'a>],
    ) -> Result<impl FnOnce(&mut CommandEncoder) + use<'_, 'a>, GpuError> {
        let bytes: usize = parcels.iter().map(|(_, _, bytes)| bytes.len()).sum();
        let part = self.0.slice(..bytes as u64);
        gpu.map(part, MapMode::Write, None)?;
        let view = part.get_mapped_range_mut();
        let mut view = view.map_err(|error| gpu.failed(&error.to_string()))?;
        let mut copies = Vec::with_capacity(parcels.len());
        let mut first = 0;
        for (to, at, bytes) in parcels {
            let end = first + bytes.len();
            view.slice(first..end).copy_from_slice(bytes);
            copies.push((first as u64, *to, *at as u64, bytes.len() as u64));
            first = end;
        }
        drop(view);
        self.0.unmap();
        Ok(move |commands: &mut CommandEncoder| {
            for (first, to, at, length) in copies {
                commands.copy_buffer_to_buffer(&self.0, first, to, at, length);
            }
        })
    }

    /// Sends parcels, as [packed](Self::packed), and waits until they are there.
    pub(crate) fn send(&self, gpu: &Gpu, parcels: &[Parcel<'_>]) -> Result<(), GpuError> {
        let copy = self.packed(gpu, parcels)?;
        gpu.wait(gpu.submitted("staging", copy))
    }
}

//! Memory of a module: what its memories and tables take together.

use wasmtime::ResourceLimiter;

use super::halt::Halt;

/// Counts it.
#[derive(Debug)]
pub(super) struct Limiter {
    bytes: usize,
    bytes_max: usize,
    /// More was asked for.
    refused: bool,
}

/// What an element of a table takes.
const ELEMENT_BYTES: usize = size_of::<usize>();

/// How the runtime says that no host could let a memory grow so far; it has no type for it.
const BEYOND_ITS_TYPE: &str = "exceeds memory type's limits";

impl Limiter {
    /// Lets this much be taken, in MiB.
    pub(super) fn new(memory_mib: u32) -> Self {
        let bytes_max = usize::try_from(u64::from(memory_mib) << 20).unwrap_or(usize::MAX);
        Self { bytes: 0, bytes_max, refused: false }
    }

    /// Whether more was asked for than may be taken.
    pub(super) fn has_refused(&self) -> bool {
        self.refused
    }

    /// Takes more, if it fits.
    fn grow(&mut self, more: usize) -> bool {
        let fits = self.bytes.checked_add(more).is_some_and(|bytes| bytes <= self.bytes_max);
        if fits {
            self.bytes += more;
        }
        self.refused |= !fits;
        fits
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        Ok(self.grow(desired.saturating_sub(current)))
    }

    /// What the limit lets through and this host does not have must not look to the module like
    /// the limit: elsewhere it would go on. More than a memory can ever have is another matter.
    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        if error.to_string().contains(BEYOND_ITS_TYPE) {
            return Ok(());
        }
        Err(Halt::Host(format!("no memory: {error}")).into())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        Ok(self.grow(desired.saturating_sub(current).saturating_mul(ELEMENT_BYTES)))
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(Halt::Host(format!("no memory for a table: {error}")).into())
    }

    fn instances(&self) -> usize {
        1
    }
}

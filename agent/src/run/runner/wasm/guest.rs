//! A module's memory, as host functions see it.

use std::ops::Range;

use super::errno::Errno;

/// The memory.
pub(super) struct Guest<'a>(&'a mut [u8]);

impl<'a> Guest<'a> {
    pub(super) fn new(memory: &'a mut [u8]) -> Self {
        Self(memory)
    }

    fn range(&self, address: u32, length: usize) -> Result<Range<usize>, Errno> {
        let start = address as usize;
        let end = start.checked_add(length).filter(|end| *end <= self.0.len());
        Ok(start..end.ok_or(Errno::Fault)?)
    }

    /// So many bytes at an address.
    pub(super) fn bytes(&self, address: u32, length: u32) -> Result<&[u8], Errno> {
        let range = self.range(address, length as usize)?;
        Ok(&self.0[range])
    }

    /// So many bytes at an address.
    pub(super) fn bytes_mut(&mut self, address: u32, length: u32) -> Result<&mut [u8], Errno> {
        let range = self.range(address, length as usize)?;
        Ok(&mut self.0[range])
    }

    /// A text.
    pub(super) fn text(&self, address: u32, length: u32) -> Result<&str, Errno> {
        std::str::from_utf8(self.bytes(address, length)?).map_err(|_| Errno::IlSeq)
    }

    /// Writes bytes.
    pub(super) fn put(&mut self, address: u32, bytes: &[u8]) -> Result<(), Errno> {
        let range = self.range(address, bytes.len())?;
        self.0[range].copy_from_slice(bytes);
        Ok(())
    }

    /// Reads a number, little end first.
    pub(super) fn u32_at(&self, address: u32) -> Result<u32, Errno> {
        let range = self.range(address, 4)?;
        Ok(u32::from_le_bytes(self.0[range].try_into().expect("four bytes")))
    }

    /// Reads a number, little end first.
    pub(super) fn u64_at(&self, address: u32) -> Result<u64, Errno> {
        let range = self.range(address, 8)?;
        Ok(u64::from_le_bytes(self.0[range].try_into().expect("eight bytes")))
    }

    /// Writes a number, little end first.
    pub(super) fn put_u32(&mut self, address: u32, value: u32) -> Result<(), Errno> {
        self.put(address, &value.to_le_bytes())
    }

    /// Writes a number, little end first.
    pub(super) fn put_u64(&mut self, address: u32, value: u64) -> Result<(), Errno> {
        self.put(address, &value.to_le_bytes())
    }

    /// The buffers of a list of them: address and length each.
    pub(super) fn buffers(&self, list: u32, count: u32) -> Result<Vec<(u32, u32)>, Errno> {
        if count > BUFFERS_MAX {
            return Err(Errno::Inval);
        }
        (0..count)
            .map(|index| {
                let at = list.checked_add(index * 8).ok_or(Errno::Fault)?;
                let length_at = at.checked_add(4).ok_or(Errno::Fault)?;
                let (address, length) = (self.u32_at(at)?, self.u32_at(length_at)?);
                self.range(address, length as usize)?;
                Ok((address, length))
            })
            .collect()
    }
}

/// Most buffers that one call reads or writes.
const BUFFERS_MAX: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_touched() {
        let mut memory = [0_u8; 64];
        let mut guest = Guest::new(&mut memory);
        assert_eq!(guest.put_u64(57, 1), Err(Errno::Fault));
        assert_eq!(guest.put_u64(56, 1), Ok(()));
        assert_eq!(guest.bytes(u32::MAX, u32::MAX), Err(Errno::Fault));
        assert_eq!(guest.bytes(64, 0), Ok(&[][..]));
        guest.put_u32(0, 60).and_then(|()| guest.put_u32(4, 5)).expect("inside");
        assert_eq!(guest.buffers(0, 1), Err(Errno::Fault));
        assert_eq!(guest.buffers(u32::MAX - 3, 1), Err(Errno::Fault));
        assert_eq!(guest.buffers(0, 1025), Err(Errno::Inval));
    }
}

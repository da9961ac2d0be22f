//! Reading no more than what a header promised.

use std::io::{BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use super::file::ReadError;
use crate::limits::SKIPPED_BYTES_MAX;

/// What every gzip file begins with.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The content of `file`, unpacked where it is gzip.
pub(super) fn unpacked<'a>(file: impl Read + 'a) -> Result<Box<dyn BufRead + 'a>, ReadError> {
    let mut file = BufReader::new(file);
    let is_gzip = file.fill_buf().map_err(ReadError::Read)?.starts_with(&GZIP_MAGIC);
    Ok(if is_gzip { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) })
}

/// Reads exactly the `expected` bytes that are left. A file that goes on is read no further, so
/// that one that unpacks without end costs no more than what its header promised; one that ends
/// early costs no more than what is there.
pub(super) fn read_exactly(file: impl Read, expected: usize) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(expected).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(ReadError::Read)?;
    match bytes.len() {
        found if found < expected => Err(ReadError::Short { expected, found }),
        found if found > expected => Err(ReadError::Long { expected }),
        _ => Ok(bytes),
    }
}

/// Passes over `bytes` of a file. What unpacks without end costs no more here than a large volume.
pub(super) fn skip(file: &mut impl Read, bytes: u64) -> Result<(), ReadError> {
    if bytes > SKIPPED_BYTES_MAX {
        return Err(ReadError::Skipped { bytes });
    }
    let skipped = std::io::copy(&mut file.take(bytes), &mut std::io::sink());
    match skipped.map_err(ReadError::Read)? {
        skipped if skipped < bytes => Err(ReadError::Short {
            expected: usize::try_from(bytes).unwrap_or(usize::MAX),
            found: usize::try_from(skipped).unwrap_or(usize::MAX),
        }),
        _ => Ok(()),
    }
}

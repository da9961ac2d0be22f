//! Reading no more than what a header promised.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

use super::file::ReadError;
use crate::limits::{EXTRA_COUNTED_MAX, RESERVED_MAX, SKIPPED_BYTES_MAX};

/// What every gzip file begins with.
pub(super) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The content of `file`, unpacked where it is gzip.
pub(super) fn unpacked<'a>(file: impl Read + 'a) -> Result<Box<dyn BufRead + 'a>, ReadError> {
    let mut file = BufReader::new(file);
    let is_gzip = file.fill_buf().map_err(ReadError::Read)?.starts_with(&GZIP_MAGIC);
    Ok(if is_gzip { Box::new(BufReader::new(Unpacker::new(file))) } else { Box::new(file) })
}

/// The content of a gzip file: of one member, or of many one after the other. Zeros behind the last
/// one are padding, as for other programs.
struct Unpacker<R> {
    /// None once all is read.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Unpacker<R> {
    fn new(file: R) -> Self {
        Self { member: Some(GzDecoder::new(file)) }
    }
}

impl<R: BufRead> Read for Unpacker<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            let mut file = self.member.take().map(GzDecoder::into_inner).expect("it is there");
            if skip_zeros(&mut file)? {
                self.member = Some(GzDecoder::new(file));
            }
        }
        Ok(0)
    }
}

/// Whether there is another member of a gzip file, after zeros or at once.
fn skip_zeros(file: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let buffer = file.fill_buf()?;
        let zeros = buffer.iter().take_while(|byte| **byte == 0).count();
        match buffer.get(zeros) {
            Some(byte) if *byte == GZIP_MAGIC[0] => {
                file.consume(zeros);
                return Ok(true);
            }
            Some(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "after its gzip data comes something that is neither gzip nor zeros: cut it off",
                ));
            }
            None if zeros == 0 => return Ok(false),
            None => file.consume(zeros),
        }
    }
}

/// Reads exactly the `expected` bytes that are left. Of a file that goes on nothing more is held, and
/// no more than a few MiB are counted, so that one that unpacks without end costs little more than
/// what its header promised; one that ends early costs no more than what is there, and room for a chunk.
pub(super) fn read_exactly(mut file: impl Read, expected: usize) -> Result<Vec<u8>, ReadError> {
    // Room that is never written to takes no memory.
    let mut bytes = Vec::with_capacity(expected.min(RESERVED_MAX));
    let limit = u64::try_from(expected).unwrap_or(u64::MAX);
    file.by_ref().take(limit).read_to_end(&mut bytes).map_err(ReadError::Read)?;
    if bytes.len() < expected {
        return Err(ReadError::Short { expected, found: bytes.len() });
    }
    let extra = io::copy(&mut file.take(EXTRA_COUNTED_MAX), &mut io::sink());
    check_extra(expected, extra.map_err(ReadError::Read)?)?;
    Ok(bytes)
}

/// Refuses bytes after those that a header promises.
pub(super) fn check_extra(expected: usize, extra: u64) -> Result<(), ReadError> {
    match extra.min(EXTRA_COUNTED_MAX) {
        0 => Ok(()),
        extra => Err(ReadError::Long { expected, extra }),
    }
}

/// Reads the last `expected` bytes that have so many others behind them. No more than these are held.
pub(super) fn read_last(
    file: impl Read,
    expected: usize,
    behind: u64,
) -> Result<Vec<u8>, ReadError> {
    let short = |found: usize| ReadError::Short { expected, found };
    let Some(behind) = usize::try_from(behind).ok().filter(|_| behind <= SKIPPED_BYTES_MAX) else {
        return Err(short(0));
    };
    let held = expected.checked_add(behind).ok_or(short(0))?;
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    let (mut last, mut skipped) = (VecDeque::new(), 0_u64);
    loop {
        let buffer = file.fill_buf().map_err(ReadError::Read)?;
        let read = buffer.len();
        if read == 0 {
            break;
        }
        last.extend(buffer);
        file.consume(read);
        let over = last.len().saturating_sub(held);
        last.drain(..over);
        skipped += over as u64;
        if skipped > SKIPPED_BYTES_MAX {
            return Err(ReadError::Skipped { bytes: skipped });
        }
    }
    if last.len() < held {
        return Err(short(last.len().saturating_sub(behind)));
    }
    last.truncate(expected);
    Ok(last.into())
}

/// What is read of a file in one go.
const BUFFER_BYTES: usize = 64 << 10;

/// Passes over `bytes` of a file. What unpacks without end costs no more here than a large volume.
pub(super) fn skip(file: &mut impl Read, bytes: u64) -> Result<(), ReadError> {
    check_skip(bytes)?;
    let skipped = io::copy(&mut file.take(bytes), &mut io::sink());
    check_skipped(skipped.map_err(ReadError::Read)?, bytes)
}

/// Refuses to pass over more than is passed over.
pub(super) const fn check_skip(bytes: u64) -> Result<(), ReadError> {
    if bytes > SKIPPED_BYTES_MAX { Err(ReadError::Skipped { bytes }) } else { Ok(()) }
}

/// Refuses a file that has only so many of the bytes that are passed over.
pub(super) fn check_skipped(there: u64, bytes: u64) -> Result<(), ReadError> {
    if there >= bytes {
        return Ok(());
    }
    let [expected, found] = [bytes, there].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    Err(ReadError::Short { expected, found })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn member(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn read(file: &[u8], expected: usize) -> Result<Vec<u8>, String> {
        let file = unpacked(file).expect("it opens");
        read_exactly(file, expected).map_err(|error| error.to_string())
    }

    #[test]
    fn zeros_behind_gzip_data_are_padding_and_other_members_are_data() {
        let (one, two) = (member(&[1, 2]), member(&[3]));
        for zeros in [0, 1, 7, 512, 100_000] {
            let padded = [&one[..], &vec![0; zeros]].concat();
            assert_eq!(read(&padded, 2), Ok(vec![1, 2]), "{zeros}");
            let both = [&padded[..], &two, &vec![0; zeros]].concat();
            assert_eq!(read(&both, 3), Ok(vec![1, 2, 3]), "{zeros}");
        }
        let told = read(&[&one[..], b"\0\0more"].concat(), 2).expect_err("refused");
        assert!(told.contains("neither gzip nor zeros: cut it off"), "{told}");
        let told = read(&[&one[..], &one[..1]].concat(), 2).expect_err("refused");
        assert!(told.starts_with("read: "), "{told}");
    }

    #[test]
    fn how_long_a_file_is_that_goes_on_is_told() {
        let told = read(&[7; 1024], 960).expect_err("refused");
        assert!(told.contains("goes on after the 960 bytes"), "{told}");
        assert!(told.contains("there are 1024"), "{told}");
        let without_end = member(&vec![0; 64 << 20]);
        let told = read(&without_end, 8).expect_err("refused");
        assert!(told.contains("there are 16777224 or more"), "{told}");
    }
}

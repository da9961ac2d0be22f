//! Text of a table's file, in UTF-8 whatever it was saved in.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};

/// What is read of a file in one go.
const BUFFER_BYTES: usize = 64 << 10;

/// A table's text: without the mark that some programs put before it, and in UTF-8 where it is in
/// UTF-16.
pub(super) fn text<'a>(file: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    let begins = file.fill_buf()?;
    // A letter of a table in UTF-16 without a mark has a byte that is zero.
    let (mark, order) = match *begins {
        [0xef, 0xbb, 0xbf, ..] => (3, None),
        [0xff, 0xfe, ..] => (2, Some(u16::from_le_bytes as fn([u8; 2]) -> u16)),
        [0xfe, 0xff, ..] => (2, Some(u16::from_be_bytes as _)),
        [1..=255, 0, ..] => (0, Some(u16::from_le_bytes as _)),
        [0, 1..=255, ..] => (0, Some(u16::from_be_bytes as _)),
        _ => (0, None),
    };
    file.consume(mark);
    Ok(match order {
        None => Box::new(file),
        Some(unit) => {
            let utf16 = Utf16 { file, unit, high: None, ready: Vec::new(), at: 0 };
            Box::new(BufReader::with_capacity(BUFFER_BYTES, utf16))
        }
    })
}

/// A text in UTF-16, as UTF-8.
struct Utf16<R> {
    file: R,
    /// A unit by its bytes.
    unit: fn([u8; 2]) -> u16,
    /// The first half of a letter of two units.
    high: Option<u16>,
    /// What is ready to be read, from `at` on.
    ready: Vec<u8>,
    at: usize,
}

impl<R: BufRead> Utf16<R> {
    /// Makes more ready; nothing where the text has ended.
    fn fill(&mut self) -> io::Result<()> {
        self.ready.clear();
        self.at = 0;
        let mut bytes = [0; 4096];
        let mut length = 0;
        while length < bytes.len() {
            match self.file.read(&mut bytes[length..])? {
                0 => break,
                read => length += read,
            }
        }
        let (units, rest) = bytes[..length].as_chunks::<2>();
        if !rest.is_empty() {
            return Err(io::Error::other("it is UTF-16 and ends in the middle of a letter"));
        }
        let units = self.high.take().into_iter().chain(units.iter().map(|unit| (self.unit)(*unit)));
        for letter in char::decode_utf16(units) {
            match letter {
                Ok(letter) => {
                    self.ready.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                // The other half may come with what is read next.
                Err(half) if length == bytes.len() && half.unpaired_surrogate() < 0xdc00 => {
                    self.high = Some(half.unpaired_surrogate());
                }
                Err(_) => self.ready.extend_from_slice("\u{fffd}".as_bytes()),
            }
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Utf16<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.ready.len() {
            self.fill()?;
        }
        let left = &self.ready[self.at..];
        let length = left.len().min(into.len());
        into[..length].copy_from_slice(&left[..length]);
        self.at += length;
        Ok(length)
    }
}

/// A cell as text: in UTF-8, or else in Latin-1, in which each byte is a letter.
pub(super) fn decoded(cell: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(cell) {
        Ok(cell) => Cow::Borrowed(cell),
        Err(_) => Cow::Owned(cell.iter().map(|byte| char::from(*byte)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> String {
        let mut read = String::new();
        text(bytes).expect("it opens").read_to_string(&mut read).expect("text");
        read
    }

    #[test]
    fn a_text_is_the_same_in_every_encoding() {
        // Long enough that a letter of two units is at the end of a piece.
        let long = format!("{}é\u{1f33e},2\n", "a".repeat(2046));
        for expected in ["a,b\n1,2\n", "größe\n1\n", &long] {
            let utf16 = |mark: bool, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
                let mark = mark.then_some(0xfeff);
                mark.into_iter().chain(expected.encode_utf16()).flat_map(bytes).collect()
            };
            assert_eq!(read(expected.as_bytes()), expected);
            assert_eq!(read(format!("\u{feff}{expected}").as_bytes()), expected);
            for mark in [true, false] {
                assert_eq!(read(&utf16(mark, u16::to_le_bytes)), expected);
                assert_eq!(read(&utf16(mark, u16::to_be_bytes)), expected);
            }
        }
        assert_eq!(read(b""), "");
        assert_eq!(read(b"1"), "1");
        let torn = text(&[0xff, 0xfe, b'1', 0, b'2'][..]).and_then(|mut text| {
            let mut read = String::new();
            text.read_to_string(&mut read)
        });
        assert!(torn.expect_err("refused").to_string().contains("middle of a letter"));
    }
}

//! Volumes in NIfTI files of single precision, as kernels write them.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::kind::RELATIVE;
use crate::limits::UNPACKED_BYTES_MAX;

/// Length of the header, with the four bytes that say that nothing more is in it.
const HEADER_BYTES: usize = 352;
/// What a header of the first version, lowest byte first, begins with.
const BEGIN: [u8; 4] = 348_i32.to_le_bytes();
/// Where it says what numbers follow, and that they are of single precision.
const KIND: (usize, [u8; 2]) = (70, 16_i16.to_le_bytes());
/// Where it says that they follow at once.
const OFFSET: (usize, [u8; 4]) = (108, (HEADER_BYTES as f32).to_le_bytes());

/// Whether two files are alike.
pub(crate) fn are_alike(one: &[u8], other: &[u8]) -> bool {
    let (Some(of_one), Some(of_other)) = (numbers(one), numbers(other)) else { return false };
    if one.len() != other.len() || one[..HEADER_BYTES] != other[..HEADER_BYTES] {
        return false;
    }
    let finite = of_one.clone().filter(|number| number.is_finite());
    let scale = finite.fold(0.0_f64, |scale, number| scale.max(f64::from(number).abs()));
    let near = |(a, b): (f32, f32)| {
        a.to_bits() == b.to_bits() || (f64::from(a) - f64::from(b)).abs() <= RELATIVE * scale
    };
    of_one.zip(of_other).all(near)
}

/// Whether two files that are packed are alike.
pub(crate) fn packed_are_alike(one: &[u8], other: &[u8]) -> bool {
    let (Some(one), Some(other)) = (unpacked(one), unpacked(other)) else { return false };
    are_alike(&one, &other)
}

fn unpacked(file: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = UNPACKED_BYTES_MAX as u64;
    MultiGzDecoder::new(file).take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() <= UNPACKED_BYTES_MAX).then_some(bytes)
}

/// What a file holds, if it is one whose numbers can be compared.
fn numbers(file: &[u8]) -> Option<impl Iterator<Item = f32> + Clone> {
    let (header, data) = file.split_at_checked(HEADER_BYTES)?;
    let says = |at: usize, bytes: &[u8]| header[at..].starts_with(bytes);
    let (words, rest) = data.as_chunks::<4>();
    let can_be =
        says(0, &BEGIN) && says(KIND.0, &KIND.1) && says(OFFSET.0, &OFFSET.1) && rest.is_empty();
    can_be.then(|| words.iter().map(|word| f32::from_le_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn file(numbers: &[f32]) -> Vec<u8> {
        let mut file = vec![0; HEADER_BYTES];
        file[..4].copy_from_slice(&BEGIN);
        file[KIND.0..][..2].copy_from_slice(&KIND.1);
        file[OFFSET.0..][..4].copy_from_slice(&OFFSET.1);
        file.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        file
    }

    #[test]
    fn numbers_are_near_as_seen_from_the_largest() {
        let one = file(&[1000.0, 0.5, f32::NAN]);
        assert!(are_alike(&one, &file(&[1000.0004, 0.5009, f32::NAN])));
        assert!(!are_alike(&one, &file(&[1000.0, 0.502, f32::NAN])));
        assert!(!are_alike(&one, &file(&[1000.0, 0.5, 0.0])));
        assert!(!are_alike(&one, &file(&[1000.0, f32::INFINITY, f32::NAN])));
        assert!(!are_alike(&one, &file(&[1000.0, 0.5])));
    }

    #[test]
    fn another_header_or_kind_of_numbers_is_another_file() {
        let (one, mut other) = (file(&[1.0]), file(&[1.000_000_1]));
        assert!(are_alike(&one, &other));
        other[80] = 1;
        assert!(!are_alike(&one, &other), "another spacing");
        for at in [0, KIND.0, OFFSET.0] {
            let changed = |numbers: &[f32]| {
                let mut file = file(numbers);
                file[at] += 1;
                file
            };
            assert!(!are_alike(&changed(&[1.0]), &changed(&[1.000_000_1])), "{at}");
        }
    }

    #[test]
    fn packed_files_are_compared_by_what_is_in_them() {
        let packed = |file: &[u8], level| {
            let mut encoder = GzEncoder::new(Vec::new(), level);
            encoder.write_all(file).expect("memory");
            encoder.finish().expect("memory")
        };
        let one = packed(&file(&[1.0; 100]), Compression::none());
        assert!(packed_are_alike(&one, &packed(&file(&[1.000_000_1; 100]), Compression::best())));
        assert!(!packed_are_alike(&one, &packed(&file(&[1.1; 100]), Compression::best())));
        assert!(!packed_are_alike(&one, &one[..one.len() - 20]), "torn");
    }
}

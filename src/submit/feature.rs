//! Numbers that say how large a job's work is: `--feature`, and what the headers of its inputs say.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use flate2::read::GzDecoder;
use gleaner_protocol::{Feature, check_feature_name};

/// As much of an input is looked at, in bytes.
const HEADER_BYTES_MAX: u64 = 4 << 10;
/// Names of the sides of a volume, in their order.
const SIDES: [&str; 4] = ["dim_x", "dim_y", "dim_z", "dim_t"];

/// NAME=VALUE.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NamedFeature {
    pub(super) name: String,
    pub(super) value: Feature,
}

impl FromStr for NamedFeature {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) =
            text.split_once('=').ok_or("give NAME=VALUE, such as --feature samples=64")?;
        check_feature_name(name).map_err(|error| error.to_string())?;
        let value =
            value.parse().map_err(|error: gleaner_protocol::FeatureError| error.to_string())?;
        Ok(Self { name: name.to_owned(), value })
    }
}

/// The sides of the volume in a file, where it is one whose header is known: NIfTI, plain or packed
/// with gzip, and NRRD.
pub(super) fn sides(path: &Path) -> BTreeMap<String, Feature> {
    let beginning = |input: &mut dyn Read| {
        let mut header = Vec::new();
        input.take(HEADER_BYTES_MAX).read_to_end(&mut header).ok()?;
        Some(header)
    };
    let header = File::open(path).ok().and_then(|mut file| {
        let header = beginning(&mut file)?;
        match header.starts_with(&[0x1f, 0x8b]) {
            // Cut off, it ends in an error behind what was unpacked.
            true => {
                let mut unpacked = vec![0; 352];
                GzDecoder::new(&header[..]).read_exact(&mut unpacked).ok()?;
                Some(unpacked)
            }
            false => Some(header),
        }
    });
    let sides = header.and_then(|header| nifti(&header).or_else(|| nrrd(&header)));
    let sides = SIDES.into_iter().zip(sides.unwrap_or_default());
    sides
        .filter_map(|(name, side)| Some((name.to_owned(), Feature::try_from(side).ok()?)))
        .collect()
}

/// The sides in a header of NIfTI-1, in either order of bytes.
fn nifti(header: &[u8]) -> Option<Vec<f64>> {
    let bytes = |at: usize| Some([*header.get(at)?, *header.get(at + 1)?]);
    let is_little = header.starts_with(&348_i32.to_le_bytes());
    if !is_little && !header.starts_with(&348_i32.to_be_bytes()) {
        return None;
    }
    if !matches!(header.get(344..347)?, b"n+1" | b"ni1") {
        return None;
    }
    let number = |at| {
        let bytes = bytes(at)?;
        Some(if is_little { i16::from_le_bytes(bytes) } else { i16::from_be_bytes(bytes) })
    };
    let count = usize::try_from(number(40)?).ok()?.min(SIDES.len());
    (1..=count).map(|side| Some(f64::from(number(40 + 2 * side)?))).collect()
}

/// The sides in a header of NRRD.
fn nrrd(header: &[u8]) -> Option<Vec<f64>> {
    if !header.starts_with(b"NRRD000") {
        return None;
    }
    let mut lines = header.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    let sizes = lines.find_map(|line| line.strip_prefix(b"sizes:"))?;
    let sizes = std::str::from_utf8(sizes).ok()?.split_whitespace();
    sizes.map(|size| size.parse::<u32>().ok().map(f64::from)).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn of(content: &[u8]) -> Vec<(String, f64)> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("input");
        std::fs::write(&path, content).expect("written");
        sides(&path).into_iter().map(|(name, side)| (name, side.get())).collect()
    }

    fn named(sides: &[f64]) -> Vec<(String, f64)> {
        let named = SIDES.iter().zip(sides).map(|(name, side)| ((*name).to_owned(), *side));
        // In the order of their names, as they travel.
        named.collect::<BTreeMap<_, _>>().into_iter().collect()
    }

    #[test]
    fn the_sides_of_a_volume_are_in_its_header() {
        let nifti = |write: fn(i16) -> [u8; 2], first: [u8; 4]| {
            let mut header = vec![0; 352];
            header[..4].copy_from_slice(&first);
            header[344..348].copy_from_slice(b"n+1\0");
            for (at, number) in [4, 64, 48, 32, 7].into_iter().enumerate() {
                header[40 + 2 * at..42 + 2 * at].copy_from_slice(&write(number));
            }
            header
        };
        let sides = named(&[64.0, 48.0, 32.0, 7.0]);
        let little = nifti(i16::to_le_bytes, 348_i32.to_le_bytes());
        assert_eq!(of(&little), sides);
        assert_eq!(of(&nifti(i16::to_be_bytes, 348_i32.to_be_bytes())), sides);
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&[little, vec![7; 100_000]].concat()).expect("packed");
        assert_eq!(of(&packed.finish().expect("packed")), sides);
        let header = b"NRRD0004\n# a comment\ntype: short\ndimension: 3\nsizes: 8 9 10\nencoding: raw\n\n\xff";
        assert_eq!(of(header), named(&[8.0, 9.0, 10.0]));
    }

    #[test]
    fn what_is_no_volume_has_no_sides() {
        let gzip = GzEncoder::new(Vec::new(), Compression::default()).finish().expect("packed");
        for content in
            [&b""[..], b"kernel,part", &348_i32.to_le_bytes(), b"NRRD0004\nsizes: x\n", &gzip]
        {
            assert!(of(content).is_empty(), "{content:?}");
        }
        assert!(sides(Path::new("/nowhere/x")).is_empty());
    }

    #[test]
    fn a_feature_is_a_name_and_a_finite_number() {
        let feature: NamedFeature = "samples=64".parse().expect("one");
        assert_eq!((feature.name.as_str(), feature.value.get()), ("samples", 64.0));
        for (text, says) in [
            ("samples", "NAME=VALUE"),
            ("samples=many", "no finite number"),
            ("samples=inf", "no finite number"),
            ("=1", "no name of a feature"),
        ] {
            assert!(text.parse::<NamedFeature>().expect_err(text).contains(says), "{text}");
        }
    }
}

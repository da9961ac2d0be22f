//! How often values are in a volume, as its coarse level says.
//!
//! A coarse level is an NRRD file as `gleaner dataset add` writes it: a short header, an empty line,
//! then voxels as they are. Anything else has no histogram here.

use schemars::JsonSchema;
use serde::Serialize;

/// Counts of values in equal parts of a range.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Histogram {
    /// The smallest and the largest value.
    pub(crate) range: [f32; 2],
    /// How many voxels have a value in each part.
    pub(crate) counts: Vec<u64>,
}

const PARTS: usize = 256;
/// Longest header that is read.
const HEADER_BYTES_MAX: usize = 4 << 10;

impl Histogram {
    /// Of a coarse level whose values are in this range.
    pub(crate) fn of(file: &[u8], range: [f32; 2]) -> Option<Self> {
        let head = &file[..file.len().min(HEADER_BYTES_MAX)];
        let end = head.windows(2).position(|pair| pair == b"\n\n")?;
        let header = std::str::from_utf8(&head[..end]).ok()?;
        let field = |name: &str| header.lines().find_map(|line| line.strip_prefix(name));
        (field("encoding: ")? == "raw").then_some(())?;
        let voxels = &file[end + 2..];
        let mut counts = vec![0_u64; PARTS];
        let [low, high] = range;
        let scale = if high > low { (PARTS - 1) as f32 / (high - low) } else { 0.0 };
        let mut count = |value: f32| {
            if value.is_finite() {
                let at = ((value - low) * scale).round().clamp(0.0, (PARTS - 1) as f32);
                counts[at as usize] += 1;
            }
        };
        match field("type: ")? {
            "uint8" => voxels.iter().for_each(|voxel| count(f32::from(*voxel))),
            "uint16" => voxels
                .as_chunks::<2>()
                .0
                .iter()
                .for_each(|voxel| count(f32::from(u16::from_le_bytes(*voxel)))),
            "float" => {
                voxels
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .for_each(|voxel| count(f32::from_le_bytes(*voxel)));
            }
            _ => return None,
        }
        Some(Self { range, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_what_is_no_coarse_level_is_not() {
        let file = |kind: &str, voxels: &[u8]| {
            let header = format!("NRRD0005\ntype: {kind}\ndimension: 3\nencoding: raw\n\n");
            [header.as_bytes(), voxels].concat()
        };
        let of = |kind, voxels: &[u8], range| Histogram::of(&file(kind, voxels), range);
        let counted = of("uint8", &[0, 0, 255, 128], [0.0, 255.0]).expect("a histogram");
        assert_eq!((counted.counts[0], counted.counts[128], counted.counts[255]), (2, 1, 1));
        let wide = of("uint16", &[0, 1, 0, 2, 9], [256.0, 512.0]).expect("a histogram");
        assert_eq!((wide.counts[0], wide.counts[255]), (1, 1));
        let flat =
            of("float", &[&1_f32.to_le_bytes()[..], &f32::NAN.to_le_bytes()].concat(), [1.0; 2]);
        assert_eq!(flat.expect("a histogram").counts.iter().sum::<u64>(), 1);
        assert_eq!(of("int8", &[0], [0.0, 1.0]), None);
        assert_eq!(Histogram::of(b"NRRD", [0.0, 1.0]), None);
    }
}

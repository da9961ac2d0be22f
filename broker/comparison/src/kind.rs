//! Kinds of files that are floating point.
//!
//! | name ends in | alike where |
//! |---|---|
//! | `.png` | there are no chunks but `IHDR`, `IDAT` and `IEND`, headers are equal, eight bits a channel, and each pixel differs in opacity, and in what shows of each colour at that opacity, by at most one step of 255 |
//! | `.exr` | headers are equal with all their attributes, one layer in one resolution, and each channel of each pixel differs by at most 1/255 |
//! | `.csv` | lines and fields are as many, text is equal, and numbers differ by at most a millionth of the largest one in their column |
//! | `.nii`, `.nii.gz` | headers are equal, of single precision, and numbers differ by at most a millionth of the largest one |
//!
//! The largest one is that of the first of the two files. Numbers that are none, and infinite ones,
//! are like themselves only. What cannot be read so, or is larger than the limits, is like nothing.

use crate::{exr_file, png_file, table, volume};

/// Most by which a channel of a picture may differ, where white is 1.
pub(crate) const CHANNEL: f32 = 1.0 / 255.0;
/// Most by which a number may differ, as a share of the largest one beside it.
pub(crate) const RELATIVE: f64 = 1e-6;

/// What a file of floating point is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A picture in whole steps.
    Png,
    /// A picture in floating point.
    Exr,
    /// Numbers as text.
    Table,
    /// A volume, or several.
    Volume,
    /// The same, packed.
    PackedVolume,
}

impl Kind {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Png, ".png"),
        (Self::Exr, ".exr"),
        (Self::Table, ".csv"),
        (Self::Volume, ".nii"),
        (Self::PackedVolume, ".nii.gz"),
    ];

    /// That of a file by its name; none where files of this name are alike only if they are equal.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let ends = |end: &str| {
            let tail = name.len().checked_sub(end.len()).and_then(|at| name.get(at..));
            tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end))
        };
        Self::ALL.into_iter().find(|(_, end)| ends(end)).map(|(kind, _)| kind)
    }

    /// What its files' names end in.
    pub(crate) fn end(self) -> &'static str {
        let of = Self::ALL.into_iter().find(|(kind, _)| *kind == self);
        of.expect("all kinds are listed").1
    }

    /// Whether two files of it are alike. For a comparer only: decoders take what memory a file
    /// asks for.
    pub(crate) fn are_alike(self, one: &[u8], other: &[u8]) -> bool {
        one == other
            || match self {
                Self::Png => png_file::are_alike(one, other),
                Self::Exr => exr_file::are_alike(one, other),
                Self::Table => table::are_alike(one, other),
                Self::Volume => volume::are_alike(one, other),
                Self::PackedVolume => volume::packed_are_alike(one, other),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_known_by_what_a_name_ends_in() {
        for name in ["mesh.ply", "result", "csv", "a.csv.txt", "", "ü", "a.gz"] {
            assert_eq!(Kind::of(name), None, "{name:?}");
        }
        for (kind, end) in Kind::ALL {
            assert_eq!(Kind::of(&format!("map-1{end}")), Some(kind));
            assert_eq!(Kind::of(&format!("ü{}", end.to_uppercase())), Some(kind));
            assert_eq!(Kind::of(kind.end()), Some(kind));
        }
    }

    #[test]
    fn what_cannot_be_read_is_like_its_equal_only() {
        for (kind, _) in Kind::ALL {
            assert!(kind.are_alike(b"\xff\x01", b"\xff\x01"), "{kind:?}");
            assert!(!kind.are_alike(b"\xff\x01", b"\xff\x02"), "{kind:?}");
            assert!(!kind.are_alike(b"", b"\xff\x02"), "{kind:?}");
        }
    }
}

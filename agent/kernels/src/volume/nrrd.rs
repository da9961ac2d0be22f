//! NRRD files ("nearly raw raster data"), of three dimensions, raw or packed by gzip.
//!
//! No crate that is kept alive reads them, and the header is a few lines of text.
//!
//! Source: Definition of NRRD File Format, Teem.

use std::io::{BufRead, Read};

use super::bounded::{read_exactly, skip, unpacked};
use super::file::ReadError;
use super::scalar::Endian;
use super::{Grid, ScalarType, Volume, VolumeError, voxel_count};
use crate::limits::HEADER_BYTES_MAX;
use crate::memory::bytes_of;

/// What the header of an NRRD file says.
#[derive(Debug, Clone, PartialEq)]
pub struct NrrdHeader {
    scalar: ScalarType,
    size: [usize; 3],
    spacing: [f64; 3],
    endian: Endian,
    is_packed: bool,
    byte_skip: u64,
    data_file: Option<String>,
}

/// Reads an NRRD file with its data in it.
///
/// # Errors
/// Its header says something that is not read here, header and data disagree, or it is not a
/// volume.
pub fn read_nrrd(file: impl Read) -> Result<Volume, ReadError> {
    let mut file = std::io::BufReader::new(file);
    let header = read_header(&mut file)?;
    header.read_data(file)
}

/// Reads the header of a file that has its data in it.
pub(super) fn read_header(file: &mut impl BufRead) -> Result<NrrdHeader, ReadError> {
    let mut text = Vec::new();
    while !text.ends_with(b"\n\n") && !text.ends_with(b"\n\r\n") {
        let left = HEADER_BYTES_MAX.saturating_sub(text.len() as u64);
        if left == 0 {
            return Err(ReadError::header(format!("no empty line in {HEADER_BYTES_MAX} bytes")));
        }
        let read = file.take(left).read_until(b'\n', &mut text).map_err(ReadError::Read)?;
        if read == 0 {
            return Err(ReadError::header("it ends before the empty line that ends a header"));
        }
    }
    let header = NrrdHeader::parse(&text)?;
    if header.data_file.is_some() {
        return Err(ReadError::header("its data is in another file: name it .nhdr"));
    }
    Ok(header)
}

impl NrrdHeader {
    /// From the lines of a header.
    ///
    /// # Errors
    /// It is not one, or says something that is not read here.
    pub fn parse(text: &[u8]) -> Result<Self, ReadError> {
        let text = str::from_utf8(text).map_err(|_| ReadError::header("not text"))?;
        let mut lines = text.lines().map(str::trim_end);
        if !lines.next().is_some_and(|first| first.starts_with("NRRD000")) {
            return Err(ReadError::header("it does not begin with NRRD000"));
        }
        let mut fields = Fields::default();
        for line in lines.take_while(|line| !line.is_empty()) {
            // `key:=value` is a remark for people, as is a comment.
            if line.starts_with('#') || line.contains(":=") {
                continue;
            }
            let (key, value) = line
                .split_once(": ")
                .ok_or_else(|| ReadError::header(format!("not a field: {:?}", brief(line))))?;
            fields.take(&key.to_ascii_lowercase(), value.trim())?;
        }
        fields.header()
    }

    /// The file that holds the data, where it is not this one.
    #[must_use]
    pub fn data_file(&self) -> Option<&str> {
        self.data_file.as_deref()
    }

    /// What it says of the volume.
    ///
    /// # Errors
    /// That is none.
    pub(super) fn grid(&self) -> Result<Grid, VolumeError> {
        let read_bytes = bytes_of(&[voxel_count(self.size)?, self.scalar.read_bytes()]);
        Ok(Grid { size: self.size, spacing: self.spacing, read_bytes })
    }

    /// Reads the data that this header describes.
    ///
    /// # Errors
    /// Header and data disagree, or it is not a volume.
    pub fn read_data(&self, data: impl Read) -> Result<Volume, ReadError> {
        let count = voxel_count(self.size)?;
        let expected = count
            .checked_mul(self.scalar.bytes())
            .ok_or(ReadError::Volume(VolumeError::TooLarge(self.size)))?;
        let mut data: Box<dyn Read> =
            if self.is_packed { Box::new(unpacked(data)?) } else { Box::new(data) };
        skip(&mut data, self.byte_skip)?;
        let bytes = read_exactly(data, expected)?;
        let (voxels, _) = self.scalar.voxels(bytes, self.size, self.endian, None)?;
        Ok(Volume::new(self.size, self.spacing, voxels)?)
    }
}

/// The fields that matter, as far as they were read.
#[derive(Default)]
struct Fields {
    scalar: Option<ScalarType>,
    dimension: Option<usize>,
    size: Option<[usize; 3]>,
    spacing: Option<[f64; 3]>,
    endian: Option<Endian>,
    is_packed: Option<bool>,
    byte_skip: u64,
    data_file: Option<String>,
}

impl Fields {
    fn take(&mut self, key: &str, value: &str) -> Result<(), ReadError> {
        let wrong = |right: &str| {
            ReadError::header(format!("{key}: {:?} is not read here, {right} is", brief(value)))
        };
        match key {
            "type" => {
                self.scalar = Some(scalar(value).ok_or_else(|| wrong("a type such as uint8"))?);
            }
            "dimension" => self.dimension = value.parse().ok(),
            "sizes" => {
                self.size = Some(three(value).ok_or_else(|| wrong("three whole numbers"))?);
            }
            "spacings" => {
                self.spacing = Some(three(value).ok_or_else(|| wrong("three numbers"))?);
            }
            "space directions" => {
                let vectors = vectors(value).ok_or_else(|| wrong("three vectors"))?;
                check_right_angles(&vectors)?;
                self.spacing = Some(vectors.each_ref().map(|vector| length(vector)));
            }
            "endian" => {
                self.endian = Some(match value {
                    "little" => Endian::Little,
                    "big" => Endian::Big,
                    _ => return Err(wrong("little or big")),
                });
            }
            "encoding" => {
                self.is_packed = Some(match value {
                    "raw" => false,
                    "gzip" | "gz" => true,
                    _ => return Err(wrong("raw or gzip")),
                });
            }
            "byte skip" | "byteskip" => {
                self.byte_skip = value.parse().map_err(|_| wrong("a number from 0"))?;
            }
            "line skip" | "lineskip" if value != "0" => return Err(wrong("0")),
            "data file" | "datafile" if is_list(value) => {
                return Err(ReadError::header(format!(
                    "{key}: {:?} are many files, and one is read: put their data into one, one after \
                     the other",
                    brief(value)
                )));
            }
            "data file" | "datafile" => self.data_file = Some(value.to_owned()),
            // Units, origins, labels and whatever else does not change how samples are read.
            _ => (),
        }
        Ok(())
    }

    fn header(self) -> Result<NrrdHeader, ReadError> {
        let missing = |field: &str| ReadError::header(format!("no `{field}`"));
        if self.dimension != Some(3) {
            return Err(ReadError::header("`dimension` is not 3"));
        }
        let scalar = self.scalar.ok_or_else(|| missing("type"))?;
        if self.endian.is_none() && scalar.bytes() > 1 {
            return Err(missing("endian"));
        }
        Ok(NrrdHeader {
            scalar,
            size: self.size.ok_or_else(|| missing("sizes"))?,
            spacing: self.spacing.unwrap_or([1.0; 3]),
            endian: self.endian.unwrap_or_default(),
            is_packed: self.is_packed.ok_or_else(|| missing("encoding"))?,
            byte_skip: self.byte_skip,
            data_file: self.data_file,
        })
    }
}

fn brief(text: &str) -> String {
    text.chars().take(60).collect()
}

fn scalar(name: &str) -> Option<ScalarType> {
    Some(match name {
        "signed char" | "int8" | "int8_t" => ScalarType::I8,
        "uchar" | "unsigned char" | "uint8" | "uint8_t" => ScalarType::U8,
        "short" | "short int" | "signed short" | "signed short int" | "int16" | "int16_t" => {
            ScalarType::I16
        }
        "ushort" | "unsigned short" | "unsigned short int" | "uint16" | "uint16_t" => {
            ScalarType::U16
        }
        "int" | "signed int" | "int32" | "int32_t" => ScalarType::I32,
        "uint" | "unsigned int" | "uint32" | "uint32_t" => ScalarType::U32,
        "float" => ScalarType::F32,
        "double" => ScalarType::F64,
        _ => return None,
    })
}

fn three<T: std::str::FromStr>(text: &str) -> Option<[T; 3]> {
    let numbers: Option<Vec<T>> =
        text.split_whitespace().map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// Vectors such as `(1,0,0) (0,1,0) (0,0,2.5)`.
fn vectors(text: &str) -> Option<[Vec<f64>; 3]> {
    let vectors: Option<Vec<Vec<f64>>> = text
        .split(')')
        .map(str::trim)
        .filter(|vector| !vector.is_empty())
        .map(|vector| {
            let numbers = vector.strip_prefix('(')?.split(',');
            numbers.map(|number| number.trim().parse().ok()).collect()
        })
        .collect();
    vectors?.try_into().ok()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|number| number * number).sum::<f64>().sqrt()
}

/// Refuses axes that lean towards each other: voxels are taken to be apart along three axes at right
/// angles.
fn check_right_angles(vectors: &[Vec<f64>; 3]) -> Result<(), ReadError> {
    for [a, b] in [[0, 1], [0, 2], [1, 2]] {
        let (one, other) = (&vectors[a], &vectors[b]);
        let lengths = [length(one), length(other)];
        let shares =
            one.iter().zip(other).map(|(one, other)| one / lengths[0] * (other / lengths[1]));
        let cosine: f64 = shares.sum();
        // A vector without a direction has no length, or none that is a number, which is told of it.
        if cosine.abs() > COSINE_MAX {
            let [a, b] = [a, b].map(|axis| ["x", "y", "z"][axis]);
            let degrees = libm::acos(cosine.clamp(-1.0, 1.0)).to_degrees();
            return Err(ReadError::header(format!(
                "space directions: {a} and {b} are {degrees:.2} degrees apart, and axes at right angles \
                 are read: resample it to such"
            )));
        }
    }
    Ok(())
}

/// How far axes may be from right angles: what rounding to four digits makes of them.
const COSINE_MAX: f64 = 1e-3;

/// Whether a data file is many: those that are listed after the header, or that have numbers in their
/// names.
fn is_list(name: &str) -> bool {
    let is_listed = name.split_whitespace().next() == Some("LIST");
    let numbered = |after: &str| {
        let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.strip_prefix('d').is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
    };
    is_listed || name.split('%').skip(1).any(numbered)
}

#[cfg(test)]
mod tests {
    use super::super::Voxels;
    use super::*;

    const HEADER: &str = "NRRD0004\n# a comment\ntype: short\ndimension: 3\nsizes: 2 1 2\n\
         space directions: (3,0,4) (0,2,0) (-1.2,0,0.9)\nendian: big\nencoding: raw\nmodality:=CT\n\n";

    #[test]
    fn a_file_with_its_data_in_it_is_read() {
        let mut file = HEADER.as_bytes().to_vec();
        file.extend([0, 1, 0xff, 0xff, 0, 3, 1, 0]);
        let volume = read_nrrd(&file[..]).expect("a volume");
        assert_eq!(volume.voxels(), &Voxels::F32(vec![1.0, -1.0, 3.0, 256.0]));
        assert_eq!((volume.size(), volume.spacing()), ([2, 1, 2], [5.0, 2.0, 1.5]));
        file.pop();
        let told = read_nrrd(&file[..]).expect_err("it is short").to_string();
        assert!(told.contains("after 7 of the 8"), "{told}");
    }

    #[test]
    fn what_is_not_read_here_is_told() {
        for (from, to, expected) in [
            ("dimension: 3", "dimension: 4", "dimension"),
            ("type: short", "type: block", "type"),
            ("encoding: raw", "encoding: bzip2", "raw or gzip"),
            ("endian: big\n", "", "endian"),
            ("sizes: 2 1 2", "sizes: 2 1", "three whole numbers"),
            ("sizes: 2 1 2", "sizes: 2 0 2", "is empty"),
            ("NRRD0004", "NRRDX", "NRRD000"),
            ("\n\n", "\n", "empty line"),
            ("(0,2,0)", "0,2,0", "three vectors"),
        ] {
            let mut file = HEADER.replace(from, to).into_bytes();
            file.extend([0; 8]);
            let told = read_nrrd(&file[..]).expect_err("it is refused").to_string();
            assert!(told.contains(expected), "{to}: {told}");
        }
    }

    /// What is told of a header with other `space directions`, if it is refused.
    fn told_of_axes(directions: &str) -> Option<String> {
        let text = HEADER.replace("(3,0,4) (0,2,0) (-1.2,0,0.9)", directions);
        NrrdHeader::parse(text.as_bytes()).err().map(|error| error.to_string())
    }

    #[test]
    fn axes_that_are_not_at_right_angles_are_refused() {
        let sheared = told_of_axes("(1,0,0) (0,1,0) (1,0,1)").expect("refused");
        assert!(sheared.contains("x and z are 45.00 degrees apart"), "{sheared}");
        let sheared = told_of_axes("(0,0,2) (0,1,-1) (1,0,0)").expect("refused");
        assert!(sheared.contains("x and y are 135.00 degrees apart"), "{sheared}");
        let twice = told_of_axes("(1,0,0) (0,1,0) (0,1,0)").expect("refused");
        assert!(twice.contains("y and z are 0.00 degrees apart"), "{twice}");
        // Turned, mirrored and rounded ones are at right angles.
        for directions in [
            "(0.8,0.6,0) (-0.6,0.8,0) (0,0,-3)",
            "(0,0,1) (0,1,0) (1,0,0)",
            "(1,0.0009,0) (0,1,0) (0,0,1)",
        ] {
            assert_eq!(told_of_axes(directions), None, "{directions}");
        }
        assert!(told_of_axes("(1,0.0011,0) (0,1,0) (0,0,1)").is_some());
    }

    #[test]
    fn an_axis_without_a_length_is_refused() {
        for directions in
            ["(0,0,0) (0,1,0) (0,0,1)", "(1e200,0,0) (0,1,0) (0,0,1)", "(nan,0,0) (0,1,0) (0,0,1)"]
        {
            let text = HEADER.replace("(3,0,4) (0,2,0) (-1.2,0,0.9)", directions);
            let file = [text.as_bytes(), &[0; 8]].concat();
            let told = read_nrrd(&file[..]).expect_err("refused").to_string();
            assert!(told.contains("give three distances"), "{directions}: {told}");
        }
    }

    #[test]
    fn data_in_many_files_is_told_to_be_put_into_one() {
        let parsed = |name: &str| {
            let text = HEADER.replace("endian", &format!("data file: {name}\nendian"));
            NrrdHeader::parse(text.as_bytes()).map(|header| header.data_file)
        };
        for many in ["LIST", "LIST 2", "slice%03d.raw 1 20 1", "%d.raw 0 3 1 2", "a-%02d"] {
            let told = parsed(many).expect_err("refused").to_string();
            assert!(told.contains(many) && told.contains("put their data into one"), "{told}");
        }
        for one in ["LISTED.raw", "50%dose.raw", "100%.raw", "a b.raw"] {
            assert_eq!(parsed(one).expect("a header").as_deref(), Some(one));
        }
    }

    #[test]
    fn what_is_beyond_single_precision_is_not_told_to_be_missing() {
        let header = HEADER.replace("short", "double").replace("sizes: 2 1 2", "sizes: 3 1 1");
        let data: Vec<u8> = [1.0, 1e300, -1e300].map(f64::to_be_bytes).concat();
        let told = read_nrrd(&[header.as_bytes(), &data].concat()[..]).expect_err("refused");
        let told = told.to_string();
        assert!(told.contains("2 voxels are beyond single precision"), "{told}");
        assert!(told.contains("(1, 0, 0)") && !told.contains("missing"), "{told}");
    }
}

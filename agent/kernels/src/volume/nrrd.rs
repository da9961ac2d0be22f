//! NRRD files ("nearly raw raster data"), of three axes of space, raw or packed by gzip.
//!
//! No crate that is kept alive reads them, and the header is a few lines of text.
//!
//! Source: Definition of NRRD File Format, Teem.

use std::borrow::Cow;
use std::io::{BufRead, Read};

use super::bounded::{read_exactly, read_last, skip, unpacked};
use super::brick_file::{BrickPlace, BrickRemarks};
use super::file::{DataPlace, ReadError};
use super::nrrd_axes::{AxisFields, vectors};
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
    byte_skip: ByteSkip,
    data_file: Option<String>,
    brick: Option<BrickPlace>,
}

/// Where the data begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteSkip {
    /// After so many bytes, unpacked ones where the data is packed.
    Before(u64),
    /// So that it ends before the last so many bytes.
    Behind(u64),
}

/// Reads an NRRD file with its data in it.
///
/// # Errors
/// Its header says something that is not read here, header and data disagree, or it is not a
/// volume.
pub fn read_nrrd(file: impl Read) -> Result<Volume, ReadError> {
    let mut file = std::io::BufReader::new(file);
    let (header, _) = read_header(&mut file)?;
    header.read_data(file)
}

/// Reads the header of a file that has its data in it, and how many bytes it has.
pub(super) fn read_header(file: &mut impl BufRead) -> Result<(NrrdHeader, u64), ReadError> {
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
    Ok((header, text.len() as u64))
}

impl NrrdHeader {
    /// From the lines of a header.
    ///
    /// # Errors
    /// It is not one, or says something that is not read here.
    pub fn parse(text: &[u8]) -> Result<Self, ReadError> {
        // What some editors put before a text to say that it is UTF-8.
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        if !lines.next().is_some_and(|first| first.starts_with(b"NRRD000")) {
            return Err(ReadError::header("it does not begin with NRRD000"));
        }
        let mut fields = Fields::default();
        for line in lines.take_while(|line| !line.is_empty()) {
            let line = &*decoded(line);
            // `key:=value` is a remark for people, as is a comment; some are of bricks.
            if line.starts_with('#') || line.contains(":=") {
                fields.brick.take(line)?;
                continue;
            }
            let (key, value) = line
                .split_once(':')
                .ok_or_else(|| ReadError::header(format!("not a field: {:?}", brief(line))))?;
            fields.take(&key.trim().to_ascii_lowercase(), value.trim())?;
        }
        fields.header()
    }

    /// The file that holds the data, where it is not this one.
    #[must_use]
    pub fn data_file(&self) -> Option<&str> {
        self.data_file.as_deref()
    }

    /// Which part of another volume it is, where it is one.
    pub(super) const fn brick(&self) -> Option<&BrickPlace> {
        self.brick.as_ref()
    }

    /// How samples stand in it.
    pub(super) const fn samples(&self) -> (ScalarType, Endian) {
        (self.scalar, self.endian)
    }

    /// Bytes behind its data, where that is counted from its end.
    pub(super) const fn behind(&self) -> Option<u64> {
        match self.byte_skip {
            ByteSkip::Before(_) => None,
            ByteSkip::Behind(bytes) => Some(bytes),
        }
    }

    /// What it says of the volume.
    ///
    /// # Errors
    /// That is none.
    pub(super) fn grid(&self) -> Result<Grid, VolumeError> {
        let read_bytes = bytes_of(&[voxel_count(self.size)?, self.scalar.read_bytes()]);
        Ok(Grid { size: self.size, spacing: self.spacing, read_bytes })
    }

    /// Bytes of all voxels.
    fn data_bytes(&self) -> Result<usize, VolumeError> {
        let bytes = voxel_count(self.size)?.checked_mul(self.scalar.bytes());
        bytes.ok_or(VolumeError::TooLarge(self.size))
    }

    /// Where its data is in a file, from where data may begin there.
    ///
    /// # Errors
    /// It is not a volume.
    pub(super) fn data_place(&self) -> Result<DataPlace, VolumeError> {
        let expected = self.data_bytes()?;
        let (before, may_be_more) = match self.byte_skip {
            ByteSkip::Before(bytes) => (bytes, false),
            ByteSkip::Behind(_) => (0, true),
        };
        Ok(DataPlace { before, expected, may_be_more, is_raw: !self.is_packed })
    }

    /// Reads the data that this header describes.
    ///
    /// # Errors
    /// Header and data disagree, or it is not a volume.
    pub fn read_data(&self, data: impl Read) -> Result<Volume, ReadError> {
        let expected = self.data_bytes()?;
        let mut data: Box<dyn Read> =
            if self.is_packed { Box::new(unpacked(data)?) } else { Box::new(data) };
        let bytes = match self.byte_skip {
            ByteSkip::Before(bytes) => {
                skip(&mut data, bytes)?;
                read_exactly(data, expected)?
            }
            ByteSkip::Behind(bytes) => read_last(data, expected, bytes)?,
        };
        let (voxels, _) = self.scalar.voxels(bytes, self.size, self.endian, None)?;
        Ok(Volume::new(self.size, self.spacing, voxels)?)
    }
}

/// The fields that matter, as far as they were read.
#[derive(Default)]
struct Fields {
    scalar: Option<ScalarType>,
    axes: AxisFields,
    endian: Option<Endian>,
    is_packed: Option<bool>,
    byte_skip: Option<ByteSkip>,
    data_file: Option<String>,
    brick: BrickRemarks,
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
            "dimension" => {
                self.axes.dimension = Some(value.parse().map_err(|_| wrong("a whole number"))?);
            }
            "space dimension" => {
                let dimension = value.parse().map_err(|_| wrong("a whole number"))?;
                self.axes.space_dimension = Some(dimension);
            }
            "sizes" => {
                self.axes.sizes = Some(all(value).ok_or_else(|| wrong("a whole number per axis"))?);
            }
            "kinds" => {
                self.axes.kinds = Some(value.split_whitespace().map(str::to_owned).collect());
            }
            "spacings" => {
                self.axes.spacings = Some(all(value).ok_or_else(|| wrong("a number per axis"))?);
            }
            "space directions" => {
                let vectors = vectors(value);
                self.axes.directions =
                    Some(vectors.ok_or_else(|| wrong("a vector or none per axis"))?);
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
                let bytes: i64 = value.parse().map_err(|_| wrong("a whole number"))?;
                self.byte_skip = Some(match u64::try_from(bytes) {
                    Ok(bytes) => ByteSkip::Before(bytes),
                    // -1 is the end of the data, -2 a byte before it.
                    Err(_) => ByteSkip::Behind((bytes + 1).unsigned_abs()),
                });
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
        let scalar = self.scalar.ok_or_else(|| missing("type"))?;
        if self.endian.is_none() && scalar.bytes() > 1 {
            return Err(missing("endian"));
        }
        let axes = self.axes.space_axes()?;
        Ok(NrrdHeader {
            scalar,
            size: axes.size,
            spacing: axes.spacing,
            endian: self.endian.unwrap_or_default(),
            is_packed: self.is_packed.ok_or_else(|| missing("encoding"))?,
            byte_skip: self.byte_skip.unwrap_or(ByteSkip::Before(0)),
            data_file: self.data_file,
            brick: self.brick.place(axes.size)?,
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
        "longlong"
        | "long long"
        | "long long int"
        | "signed long long"
        | "signed long long int"
        | "int64"
        | "int64_t" => ScalarType::I64,
        "ulonglong" | "unsigned long long" | "unsigned long long int" | "uint64" | "uint64_t" => {
            ScalarType::U64
        }
        "float" => ScalarType::F32,
        "double" => ScalarType::F64,
        _ => return None,
    })
}

fn all<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
    text.split_whitespace().map(|number| number.parse().ok()).collect()
}

/// A line as text: in UTF-8, or else in Latin-1, in which each byte is a letter.
fn decoded(line: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(line) {
        Ok(line) => Cow::Borrowed(line),
        Err(_) => Cow::Owned(line.iter().map(|byte| char::from(*byte)).collect()),
    }
}

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
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

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
            ("dimension: 3", "dimension: 4", "`dimension` is 4"),
            ("dimension: 3", "dimension: x", "dimension"),
            ("type: short", "type: block", "type"),
            ("encoding: raw", "encoding: bzip2", "raw or gzip"),
            ("endian: big\n", "", "endian"),
            ("sizes: 2 1 2", "sizes: 2 1", "`sizes` has 2 entries"),
            ("sizes: 2 1 2", "sizes: 2 1 x", "a whole number per axis"),
            ("sizes: 2 1 2", "sizes: 2 0 2", "is empty"),
            ("NRRD0004", "NRRDX", "NRRD000"),
            ("\n\n", "\n", "empty line"),
            ("(0,2,0)", "0,2,0", "a vector or none per axis"),
            ("encoding: raw", "encoding: raw\nbyte skip: end", "a whole number"),
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

    /// The volume of a file with other lines at the end of its header, or what is told.
    fn read(lines: &str, data: &[u8]) -> Result<Voxels, String> {
        let header = "NRRD0005\ntype: uint8\ndimension: 3\nsizes: 2 1 2\n";
        let file = [header.as_bytes(), lines.as_bytes(), b"\n", data].concat();
        read_nrrd(&file[..])
            .map(|volume| volume.voxels().clone())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn data_may_be_counted_from_the_end_of_the_file() {
        let expected = Ok(Voxels::U8(vec![1, 2, 3, 4]));
        let long = [&[9; 100_000][..], &[1, 2, 3, 4]].concat();
        assert_eq!(read("encoding: raw\nbyte skip: -1\n", &long), expected);
        assert_eq!(read("encoding: raw\nbyte skip: -1\n", &[1, 2, 3, 4]), expected);
        assert_eq!(read("encoding: raw\nbyteskip: -3\n", &[1, 2, 3, 4, 8, 8]), expected);
        let packed = |bytes: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(bytes).expect("memory");
            encoder.finish().expect("memory")
        };
        assert_eq!(read("encoding: gzip\nbyte skip: -1\n", &packed(&long)), expected);
        assert_eq!(read("encoding: gzip\nbyte skip: 2\n", &packed(&long[99_998..])), expected);
        let short = read("encoding: raw\nbyte skip: -1\n", &[1, 2, 3]).expect_err("refused");
        assert!(short.contains("after 3 of the 4 bytes"), "{short}");
        let short = read("encoding: raw\nbyte skip: -3\n", &[1, 2, 3, 4, 5]).expect_err("refused");
        assert!(short.contains("after 3 of the 4 bytes"), "{short}");
        for far in ["-9223372036854775808", "-9223372036854775807"] {
            let lines = format!("encoding: raw\nbyte skip: {far}\n");
            let told = read(&lines, &[1, 2, 3, 4]).expect_err("refused");
            assert!(told.contains("after 0 of the 4 bytes"), "{told}");
        }
    }

    #[test]
    fn a_header_may_have_letters_of_any_encoding() {
        let expected = Ok(Voxels::U8(vec![1, 2, 3, 4]));
        let header = b"# 0.65 \xb5m, Gr\xf6\xdfe\ncontent: caf\xe9\nort:=K\xf6ln\nunits:\n";
        let file = [
            &b"NRRD0005\ntype: uint8\ndimension: 3\nsizes: 2 1 2\n"[..],
            header,
            b"encoding: raw\n\n\x01\x02\x03\x04",
        ]
        .concat();
        let volume = read_nrrd(&file[..]).expect("a volume");
        assert_eq!(Ok(volume.voxels().clone()), expected);
        assert_eq!(read("# µm\nencoding: raw\n", &[1, 2, 3, 4]), expected);
        let header = NrrdHeader::parse(
            b"\xef\xbb\xbfNRRD0005\r\ntype: uint8\r\ndimension: 3\r\nsizes: 1 1 1\r\n\
              encoding: raw\r\ndata file: Gr\xf6\xdfe.raw\r\n",
        );
        assert_eq!(header.expect("a header").data_file(), Some("Größe.raw"));
    }

    #[test]
    fn whole_numbers_of_64_bits_are_read_where_they_are_exact() {
        let header = HEADER.replace("short", "int64").replace("sizes: 2 1 2", "sizes: 2 1 1");
        let read = |numbers: [i64; 2]| {
            let data = numbers.map(i64::to_be_bytes).concat();
            read_nrrd(&[header.as_bytes(), &data].concat()[..])
        };
        let volume = read([-5, 1 << 24]).expect("a volume");
        assert_eq!(volume.voxels(), &Voxels::F32(vec![-5.0, 16_777_216.0]));
        let told = read([0, (1 << 53) + 1]).expect_err("refused").to_string();
        assert!(told.contains("1 voxels are whole numbers beyond 2^53"), "{told}");
        assert!(told.contains("(1, 0, 0)"), "{told}");
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

//! Where the voxels of scans are in space.

use nifti::NiftiHeader;

/// Where the voxels of a scan are in a body or an atlas, as the header of a NIfTI-1 file says it. What
/// is computed of scans is as they are: it is carried along, and nothing is turned or moved by it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Orientation {
    /// The code of the unit of lengths.
    unit: u8,
    /// Which of the first four numbers of `pixdim` are below zero: the handedness of axes that are
    /// turned by the quaternion, and how voxels along x, y and z follow each other.
    is_mirrored: [bool; 4],
    /// What the quaternion and the rows lead to: `qform_code`, `sform_code`.
    codes: [i16; 2],
    /// Its b, c and d, and how far voxels are moved along x, y, z.
    quaternion: [f32; 6],
    /// From a voxel's index to its place.
    rows: [[f32; 4]; 3],
}

impl Default for Orientation {
    /// Millimetres from the first voxel on, which may be anywhere.
    fn default() -> Self {
        Self {
            unit: MILLIMETRES,
            is_mirrored: [false; 4],
            codes: [0; 2],
            quaternion: [0.0; 6],
            rows: [[0.0; 4]; 3],
        }
    }
}

impl Orientation {
    /// What a header says.
    pub(super) fn of(header: &NiftiHeader) -> Self {
        let NiftiHeader { quatern_b, quatern_c, quatern_d, .. } = header;
        let NiftiHeader { quatern_x, quatern_y, quatern_z, .. } = header;
        Self {
            unit: header.xyzt_units & UNIT_BITS,
            is_mirrored: [0, 1, 2, 3].map(|at| header.pixdim[at] < 0.0),
            codes: [header.qform_code, header.sform_code],
            quaternion: [quatern_b, quatern_c, quatern_d, quatern_x, quatern_y, quatern_z]
                .map(|number| *number),
            rows: [header.srow_x, header.srow_y, header.srow_z],
        }
    }

    /// The first four numbers of `pixdim`.
    pub(super) fn pixdim(&self, spacing: [f64; 3]) -> [f32; 4] {
        let [x, y, z] = spacing.map(|spacing| spacing as f32);
        let mut pixdim = [1.0, x, y, z];
        for (number, is_mirrored) in pixdim.iter_mut().zip(self.is_mirrored) {
            if is_mirrored {
                *number = -*number;
            }
        }
        pixdim
    }

    /// The code of the unit of lengths, without one of time.
    pub(super) const fn unit(&self) -> u8 {
        self.unit
    }

    /// Bytes of a header from [`Self::FIRST_BYTE`] on.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let codes = self.codes.iter().flat_map(|code| code.to_le_bytes());
        let numbers = self.quaternion.iter().chain(self.rows.as_flattened());
        codes.chain(numbers.flat_map(|number| number.to_le_bytes())).collect()
    }

    /// Where a header says what the quaternion leads to, and the rest after it.
    pub(super) const FIRST_BYTE: usize = 252;
}

/// What `xyzt_units` says of lengths; its other bits are of time.
const UNIT_BITS: u8 = 7;
const MILLIMETRES: u8 = 2;

#[cfg(test)]
mod tests {
    use super::super::nifti_file::tests::file;
    use super::super::read_nifti_series;

    /// A scan of which a voxel is at another place than its index says: left is right in it.
    fn scan() -> Vec<u8> {
        let mut file = file(2, 8, [4, 2, 1, 2, 2], 0.0, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(76, &(-1_f32).to_be_bytes());
        // Micrometres and milliseconds.
        put(123, &[3 | 16]);
        put(252, &[1_i16, 4].map(i16::to_be_bytes).concat());
        let quaternion = [0.0_f32, 1.0, 0.5, 90.0, -126.0, -72.0];
        put(256, &quaternion.map(f32::to_be_bytes).concat());
        let rows = [-2.0_f32, 0.0, 0.1, 90.0, 0.0, 2.0, 0.0, -126.0, 0.0, 0.25, 2.0, -72.0];
        put(280, &rows.map(f32::to_be_bytes).concat());
        file
    }

    /// The same header in the other order of bytes, over the same bytes of data.
    fn swapped(mut file: Vec<u8>) -> Vec<u8> {
        let fields = [(0, 4, 1), (40, 2, 8), (70, 2, 2), (76, 4, 11), (252, 2, 2), (256, 4, 18)];
        for (from, bytes, count) in fields {
            file[from..from + bytes * count].chunks_mut(bytes).for_each(<[u8]>::reverse);
        }
        file
    }

    #[test]
    fn where_a_scan_is_comes_back_from_either_order_of_bytes() {
        let (big, little) = (scan(), swapped(scan()));
        let read = [&big, &little].map(|file| read_nifti_series(&file[..]).expect("a series"));
        assert_eq!(read[0], read[1]);
        for series in read {
            let mut written = Vec::new();
            series.write_nifti(&mut written).expect("memory");
            // Byte for byte as in the scan: codes, quaternion and rows, handedness and spacing.
            assert_eq!(written[252..328], little[252..328]);
            assert_eq!(written[76..88], little[76..88]);
            // Micrometres, and seconds of no meaning.
            assert_eq!(written[123], 3 | 8);
            assert_eq!(read_nifti_series(&written[..]).expect("a series"), series);
        }
    }

    #[test]
    fn what_is_computed_of_scans_is_where_they_are() {
        let scans = read_nifti_series(&scan()[..]).expect("a series");
        let map = super::super::Series::new(scans.size(), scans.spacing(), scans.data().clone());
        let map = map.expect("a series");
        assert_ne!(map.orientation(), scans.orientation());
        assert_eq!(map.oriented(scans.orientation()), scans);
    }
}

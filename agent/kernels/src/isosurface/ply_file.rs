//! PLY files, as Greg Turk's description of the format has them.

use std::io::Write;

use super::mesh::{Mesh, MeshError};

/// Writes a mesh as binary PLY, lowest byte first, with normals.
///
/// # Errors
/// `file` cannot be written.
pub fn write_ply(mesh: &Mesh, mut file: impl Write) -> Result<(), MeshError> {
    writeln!(file, "ply\nformat binary_little_endian 1.0")?;
    writeln!(file, "element vertex {}", mesh.positions().len())?;
    for name in ["x", "y", "z", "nx", "ny", "nz"] {
        writeln!(file, "property float {name}")?;
    }
    writeln!(file, "element face {}", mesh.triangles().len())?;
    writeln!(file, "property list uchar int vertex_indices\nend_header")?;
    for (position, normal) in mesh.positions().iter().zip(mesh.normals()) {
        for number in position.iter().chain(normal) {
            file.write_all(&number.to_le_bytes())?;
        }
    }
    for corners in mesh.triangles() {
        // How many corners the face has, then each of them.
        file.write_all(&[3])?;
        for corner in corners {
            file.write_all(&corner.to_le_bytes())?;
        }
    }
    Ok(file.flush()?)
}

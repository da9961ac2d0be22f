//! PLY files.

use std::io::Write;

use ply_rs_bw::ply::{
    Addable, ElementDef, Encoding, Header, PropertyAccess, PropertyDef, PropertyType, ScalarType,
};
use ply_rs_bw::writer::Writer;

use super::mesh::{Mesh, MeshError};

/// One line of the file.
enum Element {
    Vertex([f32; 3], [f32; 3]),
    Face([i32; 3]),
}

impl PropertyAccess for Element {
    fn new() -> Self {
        Self::Face([0; 3])
    }

    fn get_float(&self, name: &str) -> Option<f32> {
        let Self::Vertex(position, normal) = self else { return None };
        Some(match name {
            "x" => position[0],
            "y" => position[1],
            "z" => position[2],
            "nx" => normal[0],
            "ny" => normal[1],
            "nz" => normal[2],
            _ => return None,
        })
    }

    fn get_list_int(&self, _name: &str) -> Option<&[i32]> {
        match self {
            Self::Face(corners) => Some(corners),
            Self::Vertex(..) => None,
        }
    }
}

/// Writes a mesh as binary PLY, lowest byte first, with normals.
///
/// # Errors
/// `file` cannot be written.
pub fn write_ply(mesh: &Mesh, mut file: impl Write) -> Result<(), MeshError> {
    let mut vertex = ElementDef::new("vertex".into());
    vertex.count = mesh.positions().len();
    for name in ["x", "y", "z", "nx", "ny", "nz"] {
        let number = PropertyType::Scalar(ScalarType::Float);
        vertex.properties.add(PropertyDef::new(name.into(), number));
    }
    let mut face = ElementDef::new("face".into());
    face.count = mesh.triangles().len();
    let list = PropertyType::List(ScalarType::UChar, ScalarType::Int);
    face.properties.add(PropertyDef::new("vertex_indices".into(), list));
    let mut header = Header::new();
    header.encoding = Encoding::BinaryLittleEndian;
    header.elements.add(vertex.clone());
    header.elements.add(face.clone());

    let writer = Writer::<Element>::new();
    writer.write_header(&mut file, &header)?;
    for (position, normal) in mesh.positions().iter().zip(mesh.normals()) {
        let element = Element::Vertex(*position, *normal);
        writer.write_little_endian_element(&mut file, &element, &vertex)?;
    }
    for corners in mesh.triangles() {
        // A mesh has fewer vertices than a sign takes away.
        let element = Element::Face(corners.map(u32::cast_signed));
        writer.write_little_endian_element(&mut file, &element, &face)?;
    }
    Ok(file.flush()?)
}

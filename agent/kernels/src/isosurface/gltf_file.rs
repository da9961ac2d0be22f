//! Binary glTF files.
//!
//! Source: The Khronos Group, "glTF 2.0 Specification", 2021, section 4 for the container.

use std::io::Write;

use serde_json::{Value, json};

use super::mesh::{Mesh, MeshError};

/// Numbers of the specification.
const FLOAT: u32 = 5126;
const UNSIGNED_INT: u32 = 5125;
const ARRAY_BUFFER: u32 = 34962;
const ELEMENT_ARRAY_BUFFER: u32 = 34963;
const TRIANGLES: u32 = 4;
/// The bytes of the file's header, and of the header of each of its chunks.
const FILE_HEADER_BYTES: usize = 12;
const CHUNK_HEADER_BYTES: usize = 8;

/// Writes a mesh as one binary glTF file, with normals. A mesh without triangles is a scene with
/// nothing in it, as the format has no empty meshes.
///
/// # Errors
/// `file` cannot be written, or the mesh is larger than the format's 4 GiB.
pub fn write_glb(mesh: &Mesh, mut file: impl Write) -> Result<(), MeshError> {
    let (description, numbers) = if mesh.triangles().is_empty() {
        (json!({ "asset": { "version": "2.0" }, "scene": 0, "scenes": [{}] }), Vec::new())
    } else {
        (describe(mesh), numbers(mesh))
    };
    let mut text = description.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(4), b' ');
    let mut bytes = FILE_HEADER_BYTES + CHUNK_HEADER_BYTES + text.len();
    if !numbers.is_empty() {
        bytes += CHUNK_HEADER_BYTES + numbers.len();
    }
    let length = |bytes: usize| u32::try_from(bytes).map_err(|_| MeshError::TooLarge);
    file.write_all(b"glTF")?;
    file.write_all(&2_u32.to_le_bytes())?;
    file.write_all(&length(bytes)?.to_le_bytes())?;
    let mut chunk = |kind: &[u8; 4], content: &[u8]| -> Result<(), MeshError> {
        file.write_all(&length(content.len())?.to_le_bytes())?;
        file.write_all(kind)?;
        Ok(file.write_all(content)?)
    };
    chunk(b"JSON", &text)?;
    if !numbers.is_empty() {
        chunk(b"BIN\0", &numbers)?;
    }
    Ok(file.flush()?)
}

/// The mesh's positions, normals and corners, one behind the other. Each number has four bytes.
fn numbers(mesh: &Mesh) -> Vec<u8> {
    let vectors = mesh.positions().iter().chain(mesh.normals()).flatten();
    let mut bytes: Vec<u8> = vectors.flat_map(|number| number.to_le_bytes()).collect();
    bytes.extend(mesh.triangles().iter().flatten().flat_map(|corner| corner.to_le_bytes()));
    bytes
}

/// Says where in [`numbers`] what stands.
fn describe(mesh: &Mesh) -> Value {
    let (vertices, corners) = (mesh.positions().len(), 3 * mesh.triangles().len());
    let (vector_bytes, corner_bytes) = (12 * vertices, 4 * corners);
    let extreme = |pick: fn(f32, f32) -> f32, start: f32| -> [f32; 3] {
        mesh.positions().iter().fold([start; 3], |extreme, position| {
            [0, 1, 2].map(|axis| pick(extreme[axis], position[axis]))
        })
    };
    let view = |offset: usize, length: usize, target: u32| json!({ "buffer": 0, "byteOffset": offset, "byteLength": length, "target": target });
    json!({
        "asset": { "version": "2.0" },
        "scene": 0,
        "scenes": [{ "nodes": [0] }],
        "nodes": [{ "mesh": 0 }],
        "meshes": [{ "primitives": [{
            "attributes": { "POSITION": 0, "NORMAL": 1 },
            "indices": 2,
            "mode": TRIANGLES,
        }] }],
        "accessors": [
            {
                "bufferView": 0,
                "componentType": FLOAT,
                "count": vertices,
                "type": "VEC3",
                "min": extreme(f32::min, f32::MAX),
                "max": extreme(f32::max, f32::MIN),
            },
            { "bufferView": 1, "componentType": FLOAT, "count": vertices, "type": "VEC3" },
            { "bufferView": 2, "componentType": UNSIGNED_INT, "count": corners, "type": "SCALAR" },
        ],
        "bufferViews": [
            view(0, vector_bytes, ARRAY_BUFFER),
            view(vector_bytes, vector_bytes, ARRAY_BUFFER),
            view(2 * vector_bytes, corner_bytes, ELEMENT_ARRAY_BUFFER),
        ],
        "buffers": [{ "byteLength": 2 * vector_bytes + corner_bytes }],
    })
}

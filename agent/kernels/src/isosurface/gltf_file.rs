//! glTF files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;

use gltf::binary::{Glb, Header};
use gltf::json;
use json::accessor::{ComponentType, GenericComponentType, Type};
use json::buffer::{Target, View};
use json::mesh::{Mode, Primitive, Semantic};
use json::validation::Checked::Valid;
use json::validation::USize64;

use super::mesh::{Mesh, MeshError};

/// Writes a mesh as one binary glTF file, with normals. A mesh without triangles is a scene with
/// nothing in it, as the format has no empty meshes.
///
/// # Errors
/// `file` cannot be written, or the mesh is larger than the format's 4 GiB.
pub fn write_glb(mesh: &Mesh, file: impl Write) -> Result<(), MeshError> {
    let mut root = json::Root::default();
    let mut bytes = Vec::new();
    let mut nodes = Vec::new();
    if !mesh.triangles().is_empty() {
        nodes.push(describe(mesh, &mut root, &mut bytes));
    }
    let scene = json::Scene { extensions: None, extras: Default::default(), nodes };
    root.scene = Some(root.push(scene));
    let text = json::serialize::to_vec(&root)?;
    let padded = |length: usize| length.next_multiple_of(4);
    // The writer puts in the file's own length.
    let length =
        u32::try_from(padded(text.len()) + bytes.len()).map_err(|_| MeshError::TooLarge)?;
    let glb = Glb {
        header: Header { magic: *b"glTF", version: 2, length },
        json: Cow::Owned(text),
        bin: (!bytes.is_empty()).then_some(Cow::Owned(bytes)),
    };
    Ok(glb.to_writer(file)?)
}

/// Puts a mesh's numbers behind each other, and says where they are.
fn describe(mesh: &Mesh, root: &mut json::Root, bytes: &mut Vec<u8>) -> json::Index<json::Node> {
    let vectors = |vectors: &[[f32; 3]]| -> Vec<u8> {
        vectors.iter().flatten().flat_map(|number| number.to_le_bytes()).collect()
    };
    let (positions, normals) = (vectors(mesh.positions()), vectors(mesh.normals()));
    let indices = mesh.triangles().iter().flatten().flat_map(|at| at.to_le_bytes());
    let indices: Vec<u8> = indices.collect();
    let buffer = root.push(json::Buffer {
        byte_length: USize64::from(positions.len() + normals.len() + indices.len()),
        uri: None,
        extensions: None,
        extras: Default::default(),
    });
    let mut view = |root: &mut json::Root, part: &[u8], target: Target| {
        let view = View {
            buffer,
            byte_length: USize64::from(part.len()),
            byte_offset: Some(USize64::from(bytes.len())),
            byte_stride: None,
            target: Some(Valid(target)),
            extensions: None,
            extras: Default::default(),
        };
        bytes.extend_from_slice(part);
        root.push(view)
    };
    let positions = view(root, &positions, Target::ArrayBuffer);
    let normals = view(root, &normals, Target::ArrayBuffer);
    let indices = view(root, &indices, Target::ElementArrayBuffer);

    let corner = |pick: fn(f32, f32) -> f32, start: f32| {
        let corner = mesh.positions().iter().fold([start; 3], |corner, position| {
            [0, 1, 2].map(|axis| pick(corner[axis], position[axis]))
        });
        Some(json::Value::from(corner.to_vec()))
    };
    let vertices = mesh.positions().len();
    let (low, high) = (corner(f32::min, f32::MAX), corner(f32::max, f32::MIN));
    let mut accessor = |view, count: usize, component, kind, min, max| {
        root.push(json::Accessor {
            buffer_view: Some(view),
            byte_offset: None,
            count: USize64::from(count),
            component_type: Valid(GenericComponentType(component)),
            type_: Valid(kind),
            min,
            max,
            normalized: false,
            sparse: None,
            extensions: None,
            extras: Default::default(),
        })
    };
    let positions = accessor(positions, vertices, ComponentType::F32, Type::Vec3, low, high);
    let normals = accessor(normals, vertices, ComponentType::F32, Type::Vec3, None, None);
    let corners = 3 * mesh.triangles().len();
    let indices = accessor(indices, corners, ComponentType::U32, Type::Scalar, None, None);

    let attributes = [(Valid(Semantic::Positions), positions), (Valid(Semantic::Normals), normals)];
    let primitive = Primitive {
        attributes: BTreeMap::from(attributes),
        indices: Some(indices),
        material: None,
        mode: Valid(Mode::Triangles),
        targets: None,
        extensions: None,
        extras: Default::default(),
    };
    let mesh = root.push(json::Mesh {
        primitives: vec![primitive],
        weights: None,
        extensions: None,
        extras: Default::default(),
    });
    root.push(json::Node { mesh: Some(mesh), ..Default::default() })
}

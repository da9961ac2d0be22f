//! PLY files, as Greg Turk's description of the format has them.
//!
//! The mesh of a brick has with each vertex the edge of the grid that it is on, in two properties that
//! other programs pass over: by these, meshes of bricks are put together.

use std::io::Write;

use super::mesh::{Mesh, MeshError};

/// Properties of each vertex.
const VERTEX: [&str; 6] = ["float x", "float y", "float z", "float nx", "float ny", "float nz"];
/// More of those of a brick's mesh: the number of the edge, its lower half first.
const EDGE: [&str; 2] = ["uint edge_low", "uint edge_high"];
/// Bytes of a vertex of a brick's mesh, and of a triangle.
const VERTEX_BYTES: usize = 4 * (VERTEX.len() + EDGE.len());
const FACE_BYTES: usize = 1 + 3 * 4;
/// Longest header that is read, in bytes.
const HEADER_BYTES_MAX: usize = 1024;

/// Writes a mesh as binary PLY, lowest byte first, with normals.
///
/// # Errors
/// `file` cannot be written.
pub fn write_ply(mesh: &Mesh, file: impl Write) -> Result<(), MeshError> {
    write(mesh, false, file)
}

/// The same of a brick's mesh, to be put together with others.
///
/// # Errors
/// `file` cannot be written.
pub fn write_ply_part(mesh: &Mesh, file: impl Write) -> Result<(), MeshError> {
    write(mesh, true, file)
}

fn header(vertices: usize, faces: usize, is_part: bool) -> String {
    let more: &[&str] = if is_part { &EDGE } else { &[] };
    let properties = VERTEX.iter().chain(more).map(|of| format!("property {of}\n"));
    format!(
        "ply\nformat binary_little_endian 1.0\nelement vertex {vertices}\n{}element face {faces}\n\
         property list uchar int vertex_indices\nend_header\n",
        properties.collect::<String>()
    )
}

fn write(mesh: &Mesh, is_part: bool, mut file: impl Write) -> Result<(), MeshError> {
    let (vertices, faces) = (mesh.positions().len(), mesh.triangles().len());
    file.write_all(header(vertices, faces, is_part).as_bytes())?;
    for (vertex, (position, normal)) in mesh.positions().iter().zip(mesh.normals()).enumerate() {
        for number in position.iter().chain(normal) {
            file.write_all(&number.to_le_bytes())?;
        }
        if is_part {
            // The lowest byte first is the lower half first.
            file.write_all(&mesh.edges[vertex].to_le_bytes())?;
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

/// Reads what [`write_ply_part`] has written; nothing else.
///
/// # Errors
/// It is something else.
pub fn read_ply_part(bytes: &[u8]) -> Result<Mesh, MeshError> {
    let none = |why: &str| MeshError::NoPart(why.to_owned());
    let end = b"end_header\n";
    let head = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
    let at = head.windows(end.len()).position(|part| part == end);
    let at = at.ok_or_else(|| none("it has no header of a PLY file"))? + end.len();
    let text = str::from_utf8(&bytes[..at]).map_err(|_| none("its header is no text"))?;
    let count = |element: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(element));
        line.and_then(|count| count.trim().parse::<usize>().ok())
    };
    let counts = count("element vertex ").zip(count("element face "));
    let (vertices, faces) = counts.ok_or_else(|| none("it does not say how much is in it"))?;
    if text != header(vertices, faces, true) {
        return Err(none("its vertices have no edges: only meshes of a dataset's bricks do"));
    }
    let lengths = vertices.checked_mul(VERTEX_BYTES).zip(faces.checked_mul(FACE_BYTES));
    let body = &bytes[at..];
    let is_whole =
        lengths.is_some_and(|(vertex, face)| vertex.checked_add(face) == Some(body.len()));
    if !is_whole {
        return Err(none("it has another length than its header says"));
    }
    let (of_vertices, of_faces) = body.split_at(vertices * VERTEX_BYTES);
    let number = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(*bytes[4 * at..].first_chunk().expect("it is long enough"))
    };
    let mut mesh = Mesh::default();
    for vertex in of_vertices.chunks_exact(VERTEX_BYTES) {
        let float = |at: usize| f32::from_bits(number(vertex, at));
        let edge = u64::from(number(vertex, 6)) | u64::from(number(vertex, 7)) << 32;
        mesh.push([0, 1, 2].map(float), [3, 4, 5].map(float), edge)?;
    }
    for face in of_faces.chunks_exact(FACE_BYTES) {
        let corners = [0, 1, 2].map(|at| number(&face[1..], at));
        if face[0] != 3 || corners.iter().any(|corner| *corner as usize >= vertices) {
            return Err(none("a face of it is no triangle of its vertices"));
        }
        mesh.push_triangle(corners)?;
    }
    Ok(mesh)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::JoinedMesh;
    use super::super::tests::surface;
    use super::*;
    use crate::volume::{Brick, Volume, Voxels};

    fn cut(brick: Brick) -> Mesh {
        surface(brick, 100.0)
    }

    #[test]
    fn meshes_of_bricks_go_through_files_and_are_that_of_the_whole() {
        let voxels = (0..1331_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let volume = Volume::new([11; 3], [1.0, 0.5, 2.0], Voxels::U8(voxels)).expect("a volume");
        let (mut joined, mut triangles) = (JoinedMesh::default(), 0);
        for brick in Brick::cut(&volume, [2, 3, 2]) {
            let mut file = Vec::new();
            write_ply_part(&cut(brick), &mut file).expect("memory");
            let part = read_ply_part(&file).expect("our own");
            triangles += part.triangles().len();
            joined.add(&part).expect("it is small");
        }
        let whole = cut(Brick::whole(Arc::new(volume)));
        let places = |mesh: &Mesh| {
            let place = |at: &u32| mesh.positions()[*at as usize].map(f32::to_bits);
            let mut all: Vec<_> =
                mesh.triangles().iter().map(|corners| corners.each_ref().map(place)).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(places(joined.whole()), places(&whole));
        assert_eq!(joined.whole().positions().len(), whole.positions().len());
        assert_eq!(triangles, whole.triangles().len(), "each is one brick's");
    }

    #[test]
    fn what_is_no_mesh_of_a_brick_is_told() {
        let mesh = Mesh {
            positions: vec![[0.0; 3]; 3],
            normals: vec![[1.0; 3]; 3],
            triangles: vec![[0, 1, 2]],
            edges: vec![1, 2, 3],
        };
        let (mut plain, mut part) = (Vec::new(), Vec::new());
        write_ply(&mesh, &mut plain).expect("memory");
        write_ply_part(&mesh, &mut part).expect("memory");
        assert_eq!(read_ply_part(&part).expect("our own"), mesh);
        let told = |bytes: &[u8]| read_ply_part(bytes).expect_err("refused").to_string();
        assert!(told(&plain).contains("no edges"));
        assert!(told(b"").contains("no header"));
        assert!(told(&part[..part.len() - 1]).contains("another length"));
        let mut wrong = part.clone();
        let last = wrong.len() - 1;
        wrong[last] = 9;
        assert!(told(&wrong).contains("no triangle"));
        let text =
            String::from_utf8_lossy(&part).replace("vertex 3", "vertex 18446744073709551615");
        assert!(told(text.as_bytes()).contains("another length"));
    }
}

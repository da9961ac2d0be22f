use std::collections::HashMap;
use std::io::Cursor;
use std::sync::Arc;

use gleaner_protocol::Time;
use ply_rs_bw::parser::Parser;
use ply_rs_bw::ply::DefaultElement;

use super::{IsosurfaceError, IsosurfacePlan, Mesh, write_glb, write_ply};
use crate::volume::{Brick, Volume, Voxels};
use crate::{Outcome, Pace, Preempt, run};

pub(super) fn surface(brick: Brick, value: f32) -> Mesh {
    let plan = IsosurfacePlan::new(brick, value).expect("a finite value");
    match run(plan, &Preempt::new(), &mut Pace::new(), || Time::ZERO, &mut |_| ()) {
        Ok(Outcome::Done(mesh)) => mesh,
        other => panic!("{other:?}"),
    }
}

fn volume(size: [usize; 3], spacing: [f64; 3], field: impl Fn([f32; 3]) -> f32) -> Volume {
    let mut samples = Vec::new();
    for z in 0..size[2] {
        for y in 0..size[1] {
            for x in 0..size[0] {
                samples.push(field([x as f32, y as f32, z as f32]));
            }
        }
    }
    Volume::new(size, spacing, Voxels::F32(samples)).expect("a volume")
}

/// Larger towards the middle: the surface of -r is a ball of radius r.
fn ball(at: [f32; 3]) -> f32 {
    -at.iter().map(|part| (part - 9.3).powi(2)).sum::<f32>().sqrt()
}

/// Values without any order, so that all cases occur.
fn noise(at: [f32; 3]) -> f32 {
    let [x, y, z] = at.map(|part| part as u32);
    let mixed = (x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca77)).wrapping_add(z);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d);
    ((mixed ^ mixed >> 12) % 1000) as f32
}

/// How often each side of a triangle is there, in its direction.
fn sides(mesh: &Mesh) -> HashMap<(u32, u32), u32> {
    let mut sides = HashMap::new();
    for [a, b, c] in mesh.triangles() {
        for side in [(*a, *b), (*b, *c), (*c, *a)] {
            *sides.entry(side).or_default() += 1;
        }
    }
    sides
}

/// Asserts that there are no holes but those at the rim of the volume.
fn assert_closed(mesh: &Mesh, size: [usize; 3]) {
    let sides = sides(mesh);
    let is_rim = |vertex: u32| {
        let position = mesh.positions()[vertex as usize];
        (0..3).any(|axis| position[axis] == 0.0 || position[axis] == (size[axis] - 1) as f32)
    };
    for ((a, b), count) in &sides {
        assert_eq!(*count, 1, "a side is used twice in one direction");
        let is_paired = sides.contains_key(&(*b, *a));
        assert!(is_paired || (is_rim(*a) && is_rim(*b)), "a hole at {a} {b}");
    }
}

#[test]
fn a_ball_is_a_closed_surface_of_its_radius_that_faces_outwards() {
    let mesh = surface(Brick::whole(Arc::new(volume([20; 3], [1.0; 3], ball))), -6.5);
    assert_closed(&mesh, [20; 3]);
    let sides = sides(&mesh);
    // Euler's formula for a ball.
    let (vertices, triangles) = (mesh.positions().len(), mesh.triangles().len());
    assert_eq!(vertices + triangles - sides.len() / 2, 2);
    for (position, normal) in mesh.positions().iter().zip(mesh.normals()) {
        let out = position.map(|part| part - 9.3);
        let length = out.iter().map(|part| part * part).sum::<f32>().sqrt();
        assert!((length - 6.5).abs() < 0.02, "{length}");
        let facing: f32 = (0..3).map(|axis| out[axis] / length * normal[axis]).sum();
        assert!(facing > 0.99, "{facing}");
    }
    let mut area = 0.0;
    for corners in mesh.triangles() {
        let [a, b, c] = corners.map(|at| mesh.positions()[at as usize]);
        let (u, v) = ([0, 1, 2].map(|i| b[i] - a[i]), [0, 1, 2].map(|i| c[i] - a[i]));
        let cross = [0, 1, 2].map(|i| {
            let (j, k) = ((i + 1) % 3, (i + 2) % 3);
            u[j] * v[k] - u[k] * v[j]
        });
        let normal = mesh.normals()[corners[0] as usize];
        let facing: f32 = (0..3).map(|axis| cross[axis] * normal[axis]).sum();
        assert!(facing >= 0.0, "a triangle faces inwards");
        area += cross.iter().map(|part| part * part).sum::<f32>().sqrt() / 2.0;
    }
    let expected = 4.0 * std::f32::consts::PI * 6.5 * 6.5;
    assert!((area / expected - 1.0).abs() < 0.01, "{area} {expected}");
}

#[test]
fn a_surface_has_no_holes_whatever_the_values_are() {
    for (value, size) in [(500.5, [9, 8, 7]), (300.5, [12, 3, 5]), (750.0, [6, 6, 6])] {
        let mesh = surface(Brick::whole(Arc::new(volume(size, [1.0; 3], noise))), value);
        assert!(mesh.triangles().len() > 50);
        assert_closed(&mesh, size);
    }
}

#[test]
fn meshes_of_bricks_joined_are_the_mesh_of_the_whole() {
    let size = [11, 10, 9];
    for field in [noise as fn([f32; 3]) -> f32, ball] {
        let volume = volume(size, [1.0; 3], field);
        let value = if field(Default::default()) < 0.0 { -4.2 } else { 500.5 };
        let whole = surface(Brick::whole(Arc::new(volume.clone())), value);
        let bricks = Brick::cut(&volume, [3, 2, 2]).into_iter();
        let parts: Vec<Mesh> = bricks.map(|brick| surface(brick, value)).collect();
        let joined = Mesh::join(&parts).expect("small");
        assert_eq!(joined.positions().len(), whole.positions().len());
        assert_eq!(joined.triangles().len(), whole.triangles().len());
        assert_closed(&joined, size);
        // Vertex by vertex, to the bit.
        let places = |mesh: &Mesh| -> HashMap<u64, ([u32; 3], [u32; 3])> {
            let vertices = mesh.positions.iter().zip(&mesh.normals);
            let bits = vertices.map(|(p, n)| (p.map(f32::to_bits), n.map(f32::to_bits)));
            mesh.edges.iter().copied().zip(bits).collect()
        };
        assert_eq!(places(&joined), places(&whole));
    }
}

#[test]
fn a_value_that_voxels_have_is_inside() {
    // One voxel of 7 in the middle of zeros, and its surface of 7: the smallest there is.
    let one = |at: [f32; 3]| if at == [2.0; 3] { 7.0 } else { 0.0 };
    let mesh = surface(Brick::whole(Arc::new(volume([5; 3], [2.0; 3], one))), 7.0);
    assert_eq!((mesh.positions().len(), mesh.triangles().len()), (6, 8));
    assert!(mesh.positions().iter().all(|position| *position == [4.0; 3]));
    assert!(mesh.normals().iter().flatten().all(|part| part.is_finite()));
}

#[test]
fn every_triangle_of_the_samples_surface_has_an_area_and_every_vertex_its_own_place() {
    let example = crate::application::Application::Isosurface.example();
    assert!(example.contains("\nvalue = 100.5\n"), "{example}");
    // What voxels have at the value before it is what the example warns of.
    for (value, is_sound) in [(100.5, true), (100.0, false)] {
        let mesh = surface(Brick::whole(Arc::new(Volume::rippled(64).expect("small"))), value);
        let mut places: Vec<_> =
            mesh.positions().iter().map(|place| place.map(f32::to_bits)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len() == mesh.positions().len(), is_sound);
        let area = |corners: &[u32; 3]| {
            let [a, b, c] = corners.map(|at| mesh.positions()[at as usize].map(f64::from));
            let side = |to: [f64; 3]| [0, 1, 2].map(|axis| to[axis] - a[axis]);
            let (u, v) = (side(b), side(c));
            (0..3)
                .map(|i| (u[(i + 1) % 3] * v[(i + 2) % 3] - u[(i + 2) % 3] * v[(i + 1) % 3]).abs())
                .sum::<f64>()
        };
        assert!(mesh.triangles().len() > 1000);
        assert_eq!(mesh.triangles().iter().all(|corners| area(corners) > 0.0), is_sound);
    }
}

#[test]
fn nothing_comes_of_a_sheet_or_of_a_value_that_is_nowhere() {
    let sheet = Brick::whole(Arc::new(volume([4, 4, 1], [1.0; 3], noise)));
    assert!(surface(sheet, 500.5).triangles().is_empty());
    assert_eq!([[3, 3, 0], [3, 0, 3], [0, 3, 3]].map(IsosurfacePlan::bytes), [0; 3]);
    assert_eq!(IsosurfacePlan::bytes([16_383, 16_383, 1]), 2 * 13 * (1 << 28));
    let none = Brick::whole(Arc::new(volume([4, 4, 4], [1.0; 3], noise)));
    assert!(surface(none.clone(), 2000.0).triangles().is_empty());
    let error = IsosurfacePlan::new(none, f32::NAN).expect_err("refused");
    assert!(matches!(error, IsosurfaceError::Value(_)));
}

#[test]
fn files_of_a_mesh_are_read_back() {
    let mesh = surface(Brick::whole(Arc::new(volume([9; 3], [1.0; 3], noise))), 500.5);
    let mut file = Vec::new();
    write_ply(&mesh, &mut file).expect("memory");
    let ply = Parser::<DefaultElement>::new().read_ply(&mut Cursor::new(file)).expect("a mesh");
    assert_eq!(ply.payload["vertex"].len(), mesh.positions().len());
    assert_eq!(ply.payload["face"].len(), mesh.triangles().len());

    let mut file = Vec::new();
    write_glb(&mesh, &mut file).expect("memory");
    let glb = gltf::binary::Glb::from_slice(&file).expect("a file");
    let root = gltf::json::Root::from_slice(&glb.json).expect("a description");
    let counts: Vec<u64> = root.accessors.iter().map(|accessor| accessor.count.0).collect();
    let (vertices, corners) = (mesh.positions().len() as u64, 3 * mesh.triangles().len() as u64);
    assert_eq!(counts, [vertices, vertices, corners]);
    let bytes = glb.bin.expect("numbers");
    let last = &bytes[24 * mesh.positions().len()..][..12];
    let first: Vec<u32> =
        last.as_chunks::<4>().0.iter().map(|at| u32::from_le_bytes(*at)).collect();
    assert_eq!(first, mesh.triangles()[0]);

    let mut empty = Vec::new();
    write_glb(&Mesh::default(), &mut empty).expect("memory");
    assert!(gltf::binary::Glb::from_slice(&empty).is_ok());
}

/// The whole of what is read.
fn brick(header: &str, bytes: impl std::io::Read) -> Brick {
    let header = crate::volume::RawHeader::from_toml(header).expect("a header");
    Brick::whole(Arc::new(crate::volume::read_raw(&header, bytes).expect("a volume")))
}

fn assert_counts(brick: &Brick, known: &[(f32, usize, usize)]) {
    for (value, vertices, triangles) in known {
        let mesh = surface(brick.clone(), *value);
        let counts = (mesh.positions().len(), mesh.triangles().len());
        assert_eq!(counts, (*vertices, *triangles), "{value}");
    }
}

/// Counts as `vtkFlyingEdges3D` of VTK 9.7 makes them, which has the same inside.
#[test]
fn surfaces_of_a_protein_have_as_many_vertices_and_triangles_as_is_known() {
    const FILE: &str = "neghip_64x64x64_uint8.raw.gz";
    let header = format!("file = \"{FILE}\"\nsize = [64, 64, 64]\ntype = \"u8\"\n");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/demo/data");
    let protein = brick(&header, std::fs::File::open(folder.join(FILE)).expect("data"));
    let known = [
        (20.5, 22_047, 43_878),
        (60.5, 14_006, 27_834),
        (128.0, 8_393, 16_656),
        (128.5, 8_297, 16_466),
    ];
    assert_counts(&protein, &known);
}

/// Counts as `vtkFlyingEdges3D` of VTK 9.7.2 makes them: of bone, of skin and of what is between.
#[test]
fn surfaces_of_a_head_have_as_many_vertices_and_triangles_as_is_known() {
    const FILE: &str = "headsq_64x64x93_uint16le.raw.gz";
    let header = format!(
        "file = \"{FILE}\"\nsize = [64, 64, 93]\ntype = \"u16\"\nspacing = [3.2, 3.2, 1.5]\n"
    );
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let head = brick(&header, std::fs::File::open(folder.join(FILE)).expect("data"));
    let known = [
        (500.5, 29_051, 57_686),
        (1150.0, 39_420, 78_476),
        (1150.5, 39_428, 78_492),
        (2000.5, 21_856, 42_814),
        (3000.5, 794, 1_520),
    ];
    assert_counts(&head, &known);
}

/// Counts as `vtkFlyingEdges3D` of VTK 9.7.2 makes them; between voxels' values, those of
/// `vtkMarchingCubes` too. Two bytes a voxel, spacing that is not the same along all axes, and
/// jumps that make cells of all kinds.
#[test]
fn surfaces_of_two_bytes_a_voxel_have_as_many_vertices_and_triangles_as_is_known() {
    let header = "file = \"-\"\nsize = [64, 48, 40]\ntype = \"u16\"\nspacing = [3.2, 3.2, 1.5]\n";
    let mut bytes = Vec::new();
    for at in 0..64 * 48 * 40_u32 {
        let [x, y, z] = [at % 64, at / 64 % 48, at / 64 / 48];
        let squares = 5 * x * x + 7 * y * y + 11 * z * z;
        let voxel = (squares + 13 * x * y + 17 * y * z + 19 * z * x) % 4096;
        bytes.extend(u16::try_from(voxel).expect("two bytes").to_le_bytes());
    }
    let known = [
        (500.5, 86_994, 164_660),
        (1000.0, 158_061, 307_848),
        (2048.5, 202_188, 363_276),
        (3000.0, 167_909, 237_444),
        (4000.5, 16_244, 20_840),
    ];
    assert_counts(&brick(header, bytes.as_slice()), &known);
}

//! Which triangles cut a cell, for each way in which its corners can be inside or outside.
//!
//! Corner numbers have a bit for each axis: bit 0 is set at the end along x, bit 1 along y, bit 2
//! along z. An edge is its axis and its corner with that axis' bit clear.

use std::sync::LazyLock;

/// An edge of a cell: the axis along which it leads, and the corner from which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) axis: u8,
    pub(super) corner: u8,
}

/// The triangles of each case, by the edges that their vertices are on. A bit of a case says
/// whether the corner of that number is inside.
pub(super) static CASES: LazyLock<[Vec<[Edge; 3]>; 256]> =
    LazyLock::new(|| std::array::from_fn(|case| triangles(case as u8)));

/// The corners of the faces, around as seen from outside of the cell.
const FACES: [[u8; 4]; 6] =
    [[0, 4, 6, 2], [1, 3, 7, 5], [0, 1, 5, 4], [2, 6, 7, 3], [0, 2, 3, 1], [4, 5, 7, 6]];

impl Edge {
    fn between(a: u8, b: u8) -> Self {
        Self { axis: (a ^ b).trailing_zeros() as u8, corner: a & b }
    }

    /// Whether both are edges of one face.
    fn shares_face(self, other: Self) -> bool {
        (0..3_u8).any(|axis| {
            let side = |edge: Self| edge.corner >> axis & 1;
            self.axis != axis && other.axis != axis && side(self) == side(other)
        })
    }

    /// From 0 to 23; half of the numbers are no edge.
    fn number(self) -> usize {
        usize::from(self.axis) * 8 + usize::from(self.corner)
    }
}

/// Follows the cuts from face to face around the cell, and fans out the polygons.
fn triangles(case: u8) -> Vec<[Edge; 3]> {
    let is_inside = |corner: u8| case >> corner & 1 == 1;
    // On a face, a cut goes from the edge where the inside ends to the one where it began: around
    // the corners inside, as seen from there. An edge is the end on one of its two faces and the
    // beginning on the other, so that the cuts of all faces make closed polygons.
    let mut next: [Option<Edge>; 24] = [None; 24];
    for face in FACES {
        for end in 0..4 {
            let (last, after) = (face[end], face[(end + 1) % 4]);
            if !is_inside(last) || is_inside(after) {
                continue;
            }
            let mut first = end;
            while is_inside(face[(first + 3) % 4]) {
                first = (first + 3) % 4;
            }
            let began = Edge::between(face[(first + 3) % 4], face[first]);
            next[Edge::between(last, after).number()] = Some(began);
        }
    }
    let mut triangles = Vec::new();
    for start in 0..24 {
        let mut polygon = Vec::new();
        let mut at = start;
        while let Some(edge) = next[at].take() {
            polygon.push(edge);
            at = edge.number();
        }
        // From the corner that has the fewest sides within a face: the neighbour may have the same.
        let count = polygon.len();
        let within = |from: usize| {
            let others = (2..count - 1).map(|i| polygon[(from + i) % count]);
            others.filter(|other| polygon[from].shares_face(*other)).count()
        };
        let Some(from) = (0..count).min_by_key(|from| within(*from)) else { continue };
        let corner = |i: usize| polygon[(from + i) % count];
        triangles.extend((1..count - 1).map(|i| [corner(0), corner(i + 1), corner(i)]));
    }
    triangles
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Triangles of each case in VTK 9.7, with corners numbered as here, as digits.
    const KNOWN: &str = "\
        0112122312232332122323342334344312232334233434432332344334434552\
        1223233423343443233432433445435223343445344545543443435245545421\
        1223233423343443233434453445455423343445342345323443455445325241\
        2334344534452332344543544552324134454552453434212332324134212110";

    #[test]
    fn each_case_has_as_many_triangles_as_is_known() {
        let counts: String = CASES.iter().map(|triangles| triangles.len().to_string()).collect();
        assert_eq!(counts, KNOWN);
    }

    #[test]
    fn each_cut_edge_is_used_and_no_other() {
        for (case, triangles) in CASES.iter().enumerate() {
            for axis in 0..3_u8 {
                for corner in (0..8_u8).filter(|corner| corner >> axis & 1 == 0) {
                    let is_cut = case >> corner & 1 != case >> (corner | 1 << axis) & 1;
                    let edge = Edge { axis, corner };
                    let is_used = triangles.iter().flatten().any(|used| *used == edge);
                    assert_eq!(is_used, is_cut, "{case}: {edge:?}");
                }
            }
        }
    }

    #[test]
    fn no_side_within_a_cell_is_on_a_face() {
        for (case, triangles) in CASES.iter().enumerate() {
            let mut sides = Vec::new();
            for [a, b, c] in triangles {
                sides.extend([(*a, *b), (*b, *c), (*c, *a)]);
            }
            for (a, b) in &sides {
                let is_within = sides.contains(&(*b, *a));
                assert!(!(is_within && a.shares_face(*b)), "{case}: {a:?} {b:?}");
            }
        }
    }
}

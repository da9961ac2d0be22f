//! The triangles of each case, for a device.

use super::super::cases::{CASES, Edge};

/// A case as `cells.wgsl` has it.
pub(super) type Case = [u32; 4];

/// All cases.
pub(super) fn table() -> Vec<Case> {
    CASES.iter().map(|triangles| case(triangles)).collect()
}

/// Where the numbers of edges and triangles are in the second word.
const EDGES_SHIFT: usize = 16;
const TRIANGLES_SHIFT: usize = 20;

fn case(triangles: &[[Edge; 3]]) -> Case {
    let mut order: Vec<Edge> = Vec::new();
    let mut packed = [0; 4];
    for (at, edge) in triangles.iter().flatten().enumerate() {
        let place = order.iter().position(|known| known == edge).unwrap_or_else(|| {
            put(&mut packed[..2], order.len(), number(*edge));
            order.push(*edge);
            order.len() - 1
        });
        put(&mut packed[2..], at, place as u32);
    }
    packed[1] |= (order.len() as u32) << EDGES_SHIFT | (triangles.len() as u32) << TRIANGLES_SHIFT;
    packed
}

/// Puts four bits at a place.
fn put(words: &mut [u32], place: usize, bits: u32) {
    words[place / 8] |= bits << (4 * (place % 8));
}

/// From 0 to 11: the axis, and a bit for each of the two others, the lower axis first.
fn number(edge: Edge) -> u32 {
    let mut others = (0..3_u8).filter(|axis| *axis != edge.axis);
    let mut end = || others.next().map_or(0, |axis| u32::from(edge.corner >> axis & 1));
    let (first, second) = (end(), end());
    u32::from(edge.axis) << 2 | second << 1 | first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_what_there_was() {
        let nibble = |words: &[u32], at: usize| words[at / 8] >> (4 * (at % 8)) & 15;
        for (triangles, packed) in CASES.iter().zip(table()) {
            assert_eq!(packed[1] >> TRIANGLES_SHIFT, triangles.len() as u32);
            let edges = packed[1] >> EDGES_SHIFT & 15;
            let mut last = None;
            for (at, edge) in triangles.iter().flatten().enumerate() {
                let place = nibble(&packed[2..], at);
                assert_eq!(nibble(&packed[..2], place as usize), number(*edge));
                // In the order in which they are named first.
                assert!(place <= last.map_or(0, |last: u32| last + 1), "{place} after {last:?}");
                last = last.max(Some(place));
            }
            assert_eq!(last.map_or(0, |last| last + 1), edges);
        }
    }
}

//! Where copies lie at first.

use crate::dice::Dice;

/// The servers of each chunk's `copies` copies: every server has as many copies as the others,
/// or one more, and no two of one chunk; beyond that it is chance.
pub(super) fn place(
    dice: &mut Dice,
    servers: usize,
    chunks: usize,
    copies: usize,
) -> Vec<Vec<usize>> {
    let mut counts = vec![0_usize; servers];
    let mut order: Vec<usize> = (0..servers).collect();
    let mut places = Vec::with_capacity(chunks);
    for _ in 0..chunks {
        dice.shuffle(&mut order);
        order.sort_by_key(|server| counts[*server]);
        let mut place = order[..copies].to_vec();
        place.sort_unstable();
        place.iter().for_each(|server| counts[*server] += 1);
        places.push(place);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_spread_evenly_and_never_twice_on_a_server() {
        for (servers, chunks, copies) in [(80, 800, 2), (80, 800, 3), (7, 50, 3), (3, 4, 3)] {
            let places = place(&mut Dice::new(5, 1), servers, chunks, copies);
            let mut counts = vec![0; servers];
            for place in &places {
                assert_eq!(place.len(), copies);
                assert!(place.windows(2).all(|pair| pair[0] < pair[1]));
                place.iter().for_each(|server| counts[*server] += 1);
            }
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(most.expect("servers") - least.expect("servers") <= 1);
        }
    }
}

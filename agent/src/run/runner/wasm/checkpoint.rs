//! Checkpoints: bytes that a module saves, and gets back when its workunit runs again.
//!
//! Clock and randomness are saved beside the module's own bytes, so that what it does next is
//! what it would have done.

use gleaner_protocol::limits::WASM_CHECKPOINT_BYTES_MAX;

use super::random::Random;
use super::state::Clock;

/// What one run of a module has of them.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// The module's bytes as an earlier run saved them.
    pub(super) found: Option<Vec<u8>>,
    /// What was saved last and has not been handed over.
    pub(super) pending: Option<Vec<u8>>,
}

/// Bytes before the module's own: clock, randomness.
const HEADER: usize = 16;

/// What is kept for a module that saves `bytes`; none if there are too many.
pub(super) fn encode(clock: Clock, random: &Random, bytes: &[u8]) -> Option<Vec<u8>> {
    (bytes.len() <= WASM_CHECKPOINT_BYTES_MAX).then(|| {
        let mut kept = Vec::with_capacity(HEADER + bytes.len());
        kept.extend_from_slice(&clock.nanos().to_le_bytes());
        kept.extend_from_slice(&random.drawn().to_le_bytes());
        kept.extend_from_slice(bytes);
        kept
    })
}

/// Clock, words drawn, and the module's bytes; none if it is not one of ours.
pub(super) fn decode(kept: &[u8]) -> Option<(Clock, u64, Vec<u8>)> {
    let (nanos, rest) = kept.split_first_chunk()?;
    let (drawn, bytes) = rest.split_first_chunk()?;
    let clock = Clock::at(u64::from_le_bytes(*nanos));
    Some((clock, u64::from_le_bytes(*drawn), bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_whole() {
        let mut random = Random::new(3, 0);
        random.fill(&mut [0; 20]);
        let kept = encode(Clock::at(5_000), &random, b"mine").expect("small");
        assert_eq!(decode(&kept), Some((Clock::at(5_000), 3, b"mine".to_vec())));
        assert_eq!(decode(&kept[..15]), None);
        assert!(
            encode(Clock::default(), &random, &vec![0; WASM_CHECKPOINT_BYTES_MAX + 1]).is_none()
        );
    }
}

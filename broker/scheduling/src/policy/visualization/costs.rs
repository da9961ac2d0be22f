//! What tasks are expected to take before any was measured.

use gleaner_protocol::Span;

/// What a test run measured: the times that the *Estimate* table begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestRun {
    /// Rendering one chunk that is in memory, and compositing: the constant α.
    pub render: Span,
    /// Loading so much of a chunk.
    pub load_per_mib: Span,
}

/// A part of a small picture, and a chunk over a network of a gigabit a second.
impl Default for TestRun {
    fn default() -> Self {
        Self { render: Span::from_millis(20), load_per_mib: Span::from_millis(10) }
    }
}

impl TestRun {
    /// Loading a chunk of this size.
    #[must_use]
    pub fn load(&self, chunk_bytes: u64) -> Span {
        const MIB: u128 = 1 << 20;
        let micros = u128::from(self.load_per_mib.as_micros()) * u128::from(chunk_bytes) / MIB;
        Span::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_take_as_long_as_chunks_are_large() {
        let run = TestRun { render: Span::ZERO, load_per_mib: Span::from_millis(4) };
        assert_eq!(run.load(512 << 20), Span::from_millis(2048));
        assert_eq!(run.load(1 << 19), Span::from_millis(2));
        assert_eq!(run.load(0), Span::ZERO);
        assert!(run.load(u64::MAX) > Span::from_secs(1 << 35));
    }
}

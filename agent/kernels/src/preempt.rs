//! The wish that work should stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says whether work should stop. Clones are one token: what one is told, all know.
///
/// # Invariants
/// Once asked, always asked.
#[derive(Debug, Clone, Default)]
pub struct Preempt(Arc<AtomicBool>);

impl Preempt {
    /// A token that nobody has used.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the work to stop. Safe in a signal handler: it stores one flag.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether somebody asked.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

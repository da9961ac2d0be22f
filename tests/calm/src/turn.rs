//! Who runs beside whom.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::limit::is_timing;

static TURN: RwLock<()> = RwLock::new(());

/// Held as long as a test runs, or measures.
#[derive(Debug)]
pub enum Turn {
    /// Others run too.
    Shared {
        /// Holds off who is to be alone.
        _guard: RwLockReadGuard<'static, ()>,
    },
    /// Nobody else does.
    Alone {
        /// Holds off all others.
        _guard: RwLockWriteGuard<'static, ()>,
    },
}

impl Turn {
    /// Beside others.
    #[must_use]
    pub fn shared() -> Self {
        Self::Shared { _guard: TURN.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Beside no other: for what would fail beside others, or make them fail. All cores but one have
    /// nothing to do until those have ended that run, so few tests should need it.
    #[must_use]
    pub fn alone() -> Self {
        Self::Alone { _guard: TURN.write().unwrap_or_else(PoisonError::into_inner) }
    }

    /// For what only measures times: beside no other where limits of time are asserted.
    #[must_use]
    pub fn measuring() -> Self {
        if is_timing() { Self::alone() } else { Self::shared() }
    }
}

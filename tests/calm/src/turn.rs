//! Who runs beside whom.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

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

    /// Beside no other.
    #[must_use]
    pub fn alone() -> Self {
        Self::Alone { _guard: TURN.write().unwrap_or_else(PoisonError::into_inner) }
    }
}

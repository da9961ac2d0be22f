//! Measuring times on a machine that does other things as well.
//!
//! Tests of this program run side by side, except those that measure: each of these waits until
//! it is alone, and holds the others off. What else disturbs the machine is measured beside
//! the thing itself, by the time that starting any process takes then, and is allowed for.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gleaner_protocol::Span;

use crate::patience::timed;
use crate::program::{gleaner, run};

static TURN: RwLock<()> = RwLock::new(());

/// Held as long as a test runs, or measures.
#[derive(Debug)]
pub(crate) enum Turn {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

impl Turn {
    /// Beside others.
    pub(crate) fn shared() -> Self {
        Self::Shared { _guard: TURN.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Beside no other.
    pub(crate) fn alone() -> Self {
        Self::Alone { _guard: TURN.write().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// Times of one thing, and of starting processes in between.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    took: Vec<Span>,
    starts: Vec<Span>,
}

/// What starting this program takes at most on a machine that does nothing else.
const CALM_START: Span = Span::from_millis(10);
/// How often a hook waits for its turn on a core, about: for itself and for whom it asks.
const WAITS: u64 = 4;

impl Measured {
    pub(crate) fn add(&mut self, took: Span) {
        self.took.push(took);
        let (start, said) = timed(|| run(&mut gleaner(["--version"])));
        said.ok();
        self.starts.push(start);
    }

    /// Prints the figures. The median must be at most `limit`, with an allowance for a machine on
    /// which everything takes longer.
    #[track_caller]
    pub(crate) fn is_at_most(&self, limit: Span, what: &str) {
        let (usual, start) = (median(&self.took), median(&self.starts));
        let longest = self.took.iter().max().expect("some");
        eprintln!(
            "{what}: median {usual}, longest {longest} of {}; any process: median {start}",
            self.took.len(),
        );
        let noise = Span::from_micros(start.as_micros().saturating_sub(CALM_START.as_micros()));
        let allowed = limit + noise.times(WAITS);
        assert!(usual <= allowed, "{what}: {usual} is more than {limit} (here {allowed})");
    }
}

fn median(spans: &[Span]) -> Span {
    let mut spans = spans.to_vec();
    spans.sort_unstable();
    spans[spans.len() / 2]
}

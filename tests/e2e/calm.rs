//! Measuring how long programs take on a machine that does other things as well.
//!
//! What disturbs it is measured beside the thing itself, by the time that starting any process takes
//! then, and is allowed for.

use gleaner_calm::in_some_awaited_round;
use gleaner_protocol::Span;

use crate::patience::timed;
use crate::program::{gleaner, run};

/// Times of one thing, and of starting processes in between.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    took: Vec<Span>,
    starts: Vec<Span>,
}

/// What starting this program takes at most on a machine that does nothing else. One that is not
/// optimised has seven times as many addresses to relocate.
const CALM_START: Span = Span::from_millis(if cfg!(debug_assertions) { 10 } else { 4 });
/// How often a hook waits for its turn on a core, about: for itself and for whom it asks.
const WAITS: u64 = 4;
/// Starts renders in turn where nothing is harvested, and where something is each time; the one may
/// take so much longer than the other.
pub(crate) async fn starts_as_fast(
    what: &str,
    (renders, limit): (usize, Span),
    plain: impl Fn() -> Span,
    is_harvested: impl AsyncFn(),
    harvested: impl Fn() -> Span,
) {
    in_some_awaited_round(async || {
        let mut with = Vec::new();
        let mut without = Measured::default();
        for _ in 0..renders {
            without.add(plain());
            is_harvested().await;
            with.push(harvested());
        }
        without.others_take_at_most(&with, limit, what)
    })
    .await;
}

impl Measured {
    pub(crate) fn add(&mut self, took: Span) {
        self.took.push(took);
        let (start, said) = timed(|| run(&mut gleaner(["--version"])));
        said.ok();
        self.starts.push(start);
    }

    /// Prints the figures. The median of `others`, measured in turn with these, must be at most
    /// `limit` above the median of these, with the same allowance.
    pub(crate) fn others_take_at_most(
        &self,
        others: &[Span],
        limit: Span,
        what: &str,
    ) -> Result<(), String> {
        let (usual, with, start) = (median(&self.took), median(others), median(&self.starts));
        eprintln!(
            "{what}: median {with} of {}; without: median {usual} of {}; any process: median \
             {start}",
            others.len(),
            self.took.len(),
        );
        let allowed = limit + allowance(start);
        (with <= usual + allowed).then_some(()).ok_or_else(|| {
            format!("{what}: {with} is more than {limit} (here {allowed}) above {usual}")
        })
    }

    /// Prints the figures. The median must be at most `limit`, with an allowance for a machine on
    /// which everything takes longer.
    pub(crate) fn is_at_most(&self, limit: Span, what: &str) -> Result<(), String> {
        let (usual, start) = (median(&self.took), median(&self.starts));
        let longest = self.took.iter().max().expect("some");
        eprintln!(
            "{what}: median {usual}, longest {longest} of {}; any process: median {start}",
            self.took.len(),
        );
        let allowed = limit + allowance(start);
        (usual <= allowed)
            .then_some(())
            .ok_or_else(|| format!("{what}: {usual} is more than {limit} (here {allowed})"))
    }
}

fn allowance(start: Span) -> Span {
    let noise = Span::from_micros(start.as_micros().saturating_sub(CALM_START.as_micros()));
    noise.times(WAITS)
}

fn median(spans: &[Span]) -> Span {
    let mut spans = spans.to_vec();
    spans.sort_unstable();
    spans[spans.len() / 2]
}

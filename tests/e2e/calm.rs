//! Measuring how long programs take on a machine that does other things as well.
//!
//! What disturbs it is measured beside the thing itself, by the time that starting any process takes
//! then, and is allowed for.

use gleaner_calm::{in_some_awaited_round, repeats, within};
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
        for _ in 0..repeats(renders) {
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

    /// Prints the figures. Of `others`, measured in turn with these, each is compared with the one just
    /// before it: the median of how much longer they took must be at most `limit`, with the same
    /// allowance.
    pub(crate) fn others_take_at_most(
        &self,
        others: &[Span],
        limit: Span,
        what: &str,
    ) -> Result<(), String> {
        let (usual, with) = (median(&self.took), median(others));
        let pairs = others.iter().zip(&self.took);
        let longer: Vec<Span> = pairs
            .map(|(with, without)| {
                Span::from_micros(with.as_micros().saturating_sub(without.as_micros()))
            })
            .collect();
        let (longer, allowed) = (median(&longer), limit + self.allowance());
        eprintln!(
            "{what}: median {with} of {}; without: median {usual} of {}; longer by: median {longer}; {}",
            others.len(),
            self.took.len(),
            self.of_any_process(),
        );
        within(&format!("{what}: longer than without ({limit} where all is calm)"), longer, allowed)
    }

    /// Prints the figures. The median must be at most `limit`, with an allowance for a machine on
    /// which everything takes longer.
    pub(crate) fn is_at_most(&self, limit: Span, what: &str) -> Result<(), String> {
        let usual = median(&self.took);
        let longest = self.took.iter().max().expect("some");
        eprintln!(
            "{what}: median {usual}, longest {longest} of {}; {}",
            self.took.len(),
            self.of_any_process(),
        );
        let allowed = limit + self.allowance();
        within(&format!("{what} ({limit} where all is calm)"), usual, allowed)
    }

    fn of_any_process(&self) -> String {
        format!("any process: median {}", median(&self.starts))
    }

    /// For what else the machine does: how much longer programs start here than where it does nothing.
    fn allowance(&self) -> Span {
        let noise = median(&self.starts).as_micros().saturating_sub(CALM_START.as_micros());
        Span::from_micros(noise).times(WAITS)
    }
}

fn median(spans: &[Span]) -> Span {
    let mut spans = spans.to_vec();
    spans.sort_unstable();
    spans[spans.len() / 2]
}

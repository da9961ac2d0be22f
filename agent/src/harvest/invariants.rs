//! What is always true of an agent's decisions.

use std::collections::BTreeSet;

use gleaner_protocol::Origin;
use thiserror::Error;

use super::held::Held;
use super::{Harvest, places};

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{check}: {detail}")]
pub struct Violation {
    /// Which.
    pub check: &'static str,
    /// How.
    pub detail: String,
}

impl Harvest {
    /// Checks, by name:
    /// - `slots`: each slot is empty or runs exactly one held replica;
    /// - `fragment`: no more run than the fragment has slots, what is in slots has no more memory and GPUs
    ///   than it has, and it is what is due;
    /// - `farm`: a farm host without an opening gives nothing; no host gives more than it has
    ///   less what is booked;
    /// - `owner`: no more is given than the owner allows, but for what runs already;
    /// - `requests`: what runs and what was asked for fit into the fragment; nothing is asked
    ///   for without a link;
    /// - `parked`: the count of what takes no slot is that of what does not;
    /// - `heirs`: those that go on from where others were are held;
    /// - `unacked`: the counts of waiting reports are those of the reports that wait.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        self.check_slots()?;
        self.check_parked()?;
        self.check_fragment()?;
        let stray = self.heirs.iter().find(|token| !self.held.contains_key(token));
        ensure("heirs", stray.is_none(), || format!("{stray:?} is not held"))?;
        self.check_unacked()
    }

    fn check_slots(&self) -> Result<(), Violation> {
        let running: Vec<u32> = self
            .held
            .values()
            .filter_map(|held| match held {
                Held::Running { slot, .. } => Some(*slot),
                _ => None,
            })
            .collect();
        let distinct: BTreeSet<u32> = running.iter().copied().collect();
        let all: BTreeSet<u32> = self.empty.union(&distinct).copied().collect();
        let whole = all == (0..places(self.host.cores)).collect();
        let good = distinct.len() == running.len() && self.empty.is_disjoint(&distinct) && whole;
        ensure("slots", good, || format!("running {running:?}, empty {:?}", self.empty))
    }

    fn check_fragment(&self) -> Result<(), Violation> {
        let Self { fragment, requested, .. } = self;
        let taken = self.taken();
        let running = taken.cores_touched();
        let good = running <= fragment.cores && *fragment == self.due_fragment();
        ensure("fragment", good, || format!("{taken} are taken of {fragment:?}"))?;
        let (kept, given) = (self.kept(), fragment.kept());
        ensure("fragment", kept.fits(given), || format!("{kept:?} are had of {given:?}"))?;
        let free = self.run_folder.map_or(0, |g| self.host.cores.saturating_sub(g.booked));
        let closed = self.host.origin == Origin::Farm && self.opened.is_none();
        let good = fragment.cores <= if closed { 0 } else { free };
        ensure("farm", good, || format!("{fragment:?} of {free} free, opened {:?}", self.opened))?;
        let good = fragment.cores <= self.allowed.max(running);
        ensure("owner", good, || format!("{fragment:?} of {} allowed", self.allowed))?;
        let fit = *requested <= self.left().cores_touched();
        let good = fit && (*requested == 0 || self.link.is_up());
        ensure("requests", good, || format!("{requested} beside {running} in {fragment:?}"))
    }

    fn check_parked(&self) -> Result<(), Violation> {
        let count = self.parked_tokens().len();
        ensure("parked", count == self.parked as usize, || format!("{count}, not {}", self.parked))
    }

    fn check_unacked(&self) -> Result<(), Violation> {
        let waiting = self.held.values().filter(|held| !held.is_running());
        let count = waiting.clone().count();
        let bytes: u64 = waiting.map(Held::bytes).sum();
        let good = (count, bytes) == (self.unacked, self.unacked_bytes);
        ensure("unacked", good, || format!("{count} reports of {bytes} bytes wait"))
    }
}

#[cfg(feature = "sabotage")]
impl Harvest {
    /// Breaks `unacked`, and nothing else: only for tests, which show that the check sees it.
    pub fn miscount_reports(&mut self) {
        self.unacked += 1;
    }
}

fn ensure(
    check: &'static str,
    good: bool,
    detail: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if good { Ok(()) } else { Err(Violation { check, detail: detail() }) }
}

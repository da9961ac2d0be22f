//! The scenario `studio`: everything at once on one farm, all lanes in one scheduling core.
//!
//! The hosts ([`farm`]) are those of a render farm, whose renders take half of a host or all of it
//! for a while, and desktops, whose owners come and go: fragments shrink, close, and open after a
//! quiet period. The load ([`loads`]) is that of all lanes, taken from the scenarios of each family:
//! users turn volumes and have animations made, jobs are due, a dataset is worked through whose chunks
//! lie in copies on hosts, a batch takes other times on each kind of host, and background work without
//! end is replicated. The world ([`world`]) has the real core with the default policies of all lanes.
//! A host does with replicas what an agent does ([`host`]): it freezes, kills or lets them save when a
//! render comes, as their job says, parks them for another lane, and lets them go on.
//!
//! What a lane gets beside the others stands beside its *solo* run: the same load of that lane alone,
//! in the same core, on the same hosts with the same renders. `rendering` and `deadline` have all that
//! the farm gives then. `dataset` and `batch` have what is left to them: from what each host gives, the
//! cores are taken that the lanes before them held of it in the run of all lanes, as their mean over
//! some seconds at a time ([`leftover`]). What runs there shares the cores that are left, and what has
//! no core stands still until there is one. `background` has no solo run: it is told what part of the
//! core-time that other lanes left came to something.
//!
//! Left out, and so no part of any figure: the way between broker and agents takes no time, and loads
//! of volumes do not share the links that carry copies of chunks.
//!
//! # Invariants
//! - The same seed gives the same run on any machine, and all runs of a seed have the same renders and
//!   the same loads.

mod farm;
mod figures;
mod host;
mod leftover;
mod loads;
mod scenario;
mod tally;
#[cfg(test)]
mod tests;
mod world;

use crate::scenario::Scenario;

/// The scenarios, in the order of listing.
pub(crate) const SCENARIOS: &[&dyn Scenario] = &[&scenario::Studio];

//! Scenarios of the family `fragment`: replicated workunits on what a render farm leaves, beside
//! desktops that come and go.
//!
//! Renders take whole hosts ([`availability`]); what they leave opens after a quiet period.
//! Desktops are slower and leave without a word. Some hosts give wrong outputs ([`answers`]). All
//! policies see the same renders and the same desktops; what differs is their core, and what a
//! host does with a replica when a render comes ([`system`]).

mod answers;
mod availability;
mod figures;
mod hosts;
mod scenario;
mod system;
mod world;

#[cfg(test)]
mod tests;

use crate::scenario::Scenario;

/// The scenarios, in the order of listing.
pub(crate) const SCENARIOS: &[&dyn Scenario] = &[&scenario::SHORT, &scenario::LONG];

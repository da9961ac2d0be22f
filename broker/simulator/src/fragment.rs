//! Scenarios of the family `fragment`: replicated workunits on what a render farm leaves, beside
//! desktops that come and go.
//!
//! Renders take whole hosts ([`availability`]); what they leave opens after a quiet period.
//! Desktops are slower and leave without a word. Some hosts give wrong outputs ([`answers`]). All
//! policies see the same renders and the same desktops; what differs is their core, and what a
//! host does with a replica when a render comes, and how soon a desktop is missed: parameters say
//! whose hosts do so. By default that is `gleaner` alone, of which it is a part. What it brings
//! apart from the policy is seen where all or none freeze (`frozen`). Completion rate of `gleaner`
//! over that of `plain`, means of five seeds:
//!
//! | `frozen` | short | long |
//! |---|---|---|
//! | `gleaner`, the default | 3.6 | 5.7 |
//! | `all` | 3.2 | 2.7 |
//! | `all`, and `reconnect_grace_of=all` | 3.3 | 2.9 |
//! | `none` | 3.2 | 1.6 |
//!
//! So short workunits gain by the votes, and long ones as much by not being killed.

mod answers;
pub(crate) mod availability;
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

//! What holds harvested work on a host: control groups, where the kernel has them.
//!
//! An agent has one [`Enclosure`]: a group of its own in each hierarchy that it uses, with a
//! [`Leaf`] in it for each slot. What is put into a leaf cannot leave it, whatever it forks or
//! whichever session it begins, so a leaf is frozen, limited and killed as a whole.
//!
//! Hosts differ: one has the unified hierarchy with all controllers, another the old ones, a
//! third both with the controllers spread over them, a container none at all; and an ordinary
//! user gets what was delegated. So nothing is assumed: each [`Ability`] is tried when the
//! enclosure is opened, and taken from the hierarchy that grants it. What is missing is missing
//! with a reason and, where there is one, the command that mends it; the agent then does without
//! (process groups, scheduling classes, resource limits, signals).
//!
//! ```text
//! /sys/fs/cgroup[/CONTROLLER]/OWN GROUP/gleaner-NAME/        the enclosure
//! /sys/fs/cgroup[/CONTROLLER]/OWN GROUP/gleaner-NAME/SLOT/   a leaf
//! ```
//!
//! # Invariants
//! - Nothing outside a folder `gleaner-*` of a control group file system is ever written, but the
//!   controllers that a group passes on to its children, and the agent's own move out of a group
//!   that must be empty for that.
//! - An enclosure that is opened again is empty: what an earlier agent left in it is killed first.

mod ability;
mod aside;
mod at_work;
mod dir;
mod enclosure;
mod hierarchy;
mod leaf;
mod limits;
mod memory_peak;
mod mend;
mod mounts;
mod topology;

pub use ability::{Ability, Provider};
pub use at_work::{agents_name, enclosures_at_work};
pub use enclosure::{AbilityReport, Choice, ChoiceParseError, Enclosure, EnclosureError, Report};
pub use leaf::{Leaf, LeafLimits, Marks};
pub use memory_peak::MemoryPeak;
pub use mounts::{Mount, mounts, parse_mounts};
pub use topology::Topology;

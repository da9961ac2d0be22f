//! Stories of an agent's decisions, the invariants checked after each event.

mod farm;
mod host;
mod links;
mod owner;
mod random;
mod work;

//! Stories of an agent's decisions, the invariants checked after each event.

mod farm;
mod host;
mod kept;
mod links;
mod outage;
mod owner;
mod parked;
mod random;
mod shares;
mod work;

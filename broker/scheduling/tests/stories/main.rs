//! What the scheduling core does, told as stories. Every step checks every invariant.

mod bad_input;
mod builders;
mod explain;
mod forgotten;
mod hosts;
mod leases;
mod order;
mod restart;
mod saved;
mod story;
mod trust;
mod votes;

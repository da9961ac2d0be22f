//! What the scheduling core does, told as stories. Every step checks every invariant.

mod attempts;
mod back_off;
mod bad_input;
mod builders;
mod caps;
mod demands;
mod due;
mod explain;
mod forgotten;
mod frames;
mod gone;
mod hosts;
mod insurance;
mod lanes;
mod leases;
mod on;
mod order;
mod quotas;
mod restart;
mod saved;
mod story;
mod tries;
mod trust;
mod voices;
mod voters;
mod votes;

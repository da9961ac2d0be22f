//! The monitor's rules, without a network: stories, and disorder.

mod comparison;
mod disorder;
mod extra_polls;
mod farm;
mod names;
mod orders;
mod others_bookings;
mod restarts;
mod same_names;
mod silent_hosts;
mod stories;
mod told_hosts;
mod watched_workers;
mod whole_cores;

//! The monitor's rules, without a network: stories, and disorder.

mod disorder;
mod farm;
mod stories;

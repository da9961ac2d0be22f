//! The core against models of the published algorithms, in random worlds, and in stories.
//!
//! They are one program: some of them are single long tests, which other tests run beside.

mod fair;
mod mixed;
mod naive;
mod random;
mod replication;
mod stories;

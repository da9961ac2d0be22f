//! The broker: keeps jobs, gives out replicas, decides workunits.
//!
//! - The store ([`Committer`] over [`SledJournal`]) keeps what was accepted and decided.
//! - The blob store ([`LocalBlobs`]) keeps inputs and outputs under their digests.
//! - Beside it lies what replicas saved on the way, for those that take their place.
//! - The driver's [`Dispatcher`] turns what links and callers say into inputs of the scheduling
//!   core, and its effects into what is to be written ([`pack`]) and said; [`Recovery`] turns what
//!   was written back into a core. Both need no runtime, so that simulators drive them too.
//! - Outputs of floating point are compared by processes of their own ([`gleaner_comparison`]): every
//!   executable that calls [`run`] calls [`run_as_comparer_if_asked`] first.
//! - The server ([`gleaner_serve`]) listens, guards the door and answers errors as JSON.

pub mod limits;

mod api;
mod blobs;
mod broker;
mod classes;
mod collect;
mod config;
mod control_link;
mod driver;
mod events;
mod kernel_times;
mod metrics;
mod results_check;
mod states;
mod store;

pub use blobs::{BlobContent, BlobError, BlobStore, LocalBlobs};
pub use broker::{BrokerError, run};
pub use config::{Config, ConfigError, DEFAULT_TOML};
pub use driver::{
    Decided, Dispatcher, DriverGone, DriverHandle, Forgotten, Letters, LinkId, LinkMessage,
    PreparedReport, RecordError, Recovery, pack,
};
pub use gleaner_comparison::run_as_comparer_if_asked;
pub use store::{
    Admission, After, Batch, Commit, Committer, DataFolder, DataSync, Journal, Recovered, Replayed,
    SledJournal, SmallBlobs, SnapshotDone, SnapshotWriter, StoreError, StoreOptions, StoreState,
    SyncStep, open_sealed, seal,
};

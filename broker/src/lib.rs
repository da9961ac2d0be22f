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
//! - People and machines are told apart by their keys ([`gleaner_identity`]).
//! - The server ([`gleaner_serve`]) listens, guards the door and answers errors as JSON.

pub mod limits;

mod api;
mod archive;
mod blobs;
mod broker;
mod budgets;
mod classes;
mod collect;
mod config;
mod control_link;
mod datasets;
mod driver;
mod events;
mod farm_history;
mod farm_state;
mod farm_stop;
mod history;
mod kernel_times;
mod metrics;
mod own_certificate;
mod people;
mod pictures;
mod predict;
mod promises;
mod results_check;
mod sealed_file;
mod states;
mod store;
mod usage;
mod views;
mod wall_clock;

pub use archive::{ArchiveError, Moved, export, import};
pub use blobs::{BlobContent, BlobError, BlobStore, BucketError, LocalBlobs, RemovedBlobs};
pub use broker::{BrokerError, run};
pub use config::{
    AtEnd, BucketConfig, Config, ConfigError, DEFAULT_TOML, OwnerLimits, ProjectSettings,
};
pub use datasets::{ChunkTable, DatasetsError};
pub use driver::{
    ContentRefusal, ContentUse, Decided, Dispatcher, DriverGone, DriverHandle, Forgotten,
    FrameLease, FrameNews, FrameStep, Letters, LinkId, LinkMessage, PreparedReport, RecordError,
    Recovery, compact, pack,
};
pub use gleaner_comparison::run_as_comparer_if_asked;
pub use metrics::{CoreFigures, Metrics, Waits};
pub use own_certificate::OwnCertificateError;
pub use people::{BookError, PeopleError};
pub use store::{
    Admission, After, Batch, Commit, Committer, Compact, Compaction, DataFolder, DataSync, Journal,
    Past, Recovered, Replayed, SledJournal, SmallBlobs, SnapshotWriter, StoreError, StoreOptions,
    StoreState, SyncStep, open_sealed, seal,
};
pub use usage::{EndedReplica, OutputMark, UsageRecord};
pub use views::{
    Drawings, ForWhom, FrameBoard, Layer, Outcome, Part, PartRefusal, Picture, Scene, WaitsFor,
};

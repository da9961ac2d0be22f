//! What the broker must not forget: an ordered journal of opaque records, and small blobs beside
//! it.
//!
//! [`Journal`] is the interface, [`SledJournal`] the one that lives in a local folder, and
//! [`Committer`] the thread that lets many callers share one sync.
//!
//! ```text
//!  data folder
//!  ├── lock         held while a broker runs, names its process
//!  ├── meta         format, release, the folder's id and secret, starts so far, the live snapshot
//!  ├── mark         last acknowledged sequence, rewritten after each commit
//!  ├── ballast      given up when the disk is so full that nothing could be written
//!  ├── sled/        commits, in the tree `journal`
//!  ├── outputs/     small blobs in segments
//!  └── snapshots/   one file, what the journal began with when it was last shortened
//! ```
//!
//! Opening reads the journal from its snapshot on, and where the small blobs are; it copies nothing.
//! What is not as it was written is refused, and stays refused. But the engine itself may overwrite
//! what follows a flipped bit in its log while it opens: such a folder comes back from a backup.
//!
//! # Invariants
//! - What was acknowledged is on disk: a commit is written and its file synced before anyone is told.
//! - Sequences have no gaps. A gap, a bad checksum, a short value, an unknown version or an end
//!   before the mark is an error that names the place; nothing is skipped.
//! - A commit that was cut off by a kill was never acknowledged. It can only be the last one and
//!   lie behind the mark; it is removed.
//! - After an error the journal takes nothing until the broker is restarted. A full disk is no
//!   such error: commits wait until there is space.
//! - At every moment one complete snapshot (or none) and all records after it are valid.

mod ballast;
mod committer;
mod engine;
mod entries;
mod error;
mod folder;
mod free_space;
mod journal;
mod mark;
mod meta;
mod parts;
mod past;
mod sealed;
mod sled_journal;
mod small_blobs;
mod snapshot;
mod sync_step;

pub use committer::{After, Batch, Committer, Compact, Compaction, StoreState};
pub use error::StoreError;
pub use folder::DataFolder;
pub(crate) use folder::{remove_folder, sync_folder};
pub(crate) use free_space::FreeSpace;
pub use journal::{Admission, Commit, Journal, SnapshotWriter};
pub(crate) use meta::Identity;
pub use past::{Past, Replayed};
pub use sealed::{open as open_sealed, seal};
pub use sled_journal::{Recovered, SledJournal, StoreOptions};
pub(crate) use small_blobs::Segment;
pub use small_blobs::SmallBlobs;
pub use sync_step::{DataSync, SyncStep};

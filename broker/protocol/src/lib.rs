//! What Gleaner's parts say to each other.
//!
//! Every message that crosses a process boundary is defined here and nowhere else: the
//! control link between agent and broker ([`control`]), farm events and host samples
//! ([`farm`]), the broker's HTTP interface ([`api`]) and what a job is ([`job`]); so is what the
//! monitor writes down of a farm ([`recording`]). The crate
//! holds data and checks, no behaviour: agent, monitor and hooks know this crate and nothing
//! else of the broker.
//!
//! Binary messages are postcard behind a version byte ([`codec`]), and so is what the broker stores,
//! with a version of its own ([`stored`]); HTTP bodies are JSON.
//! Bounds on sizes and counts stand in [`limits`].

pub mod api;
pub mod codec;
pub mod control;
pub mod farm;
pub mod job;
pub mod limits;
pub mod people;
pub mod recording;
pub mod stored;

mod account;
mod agent_metrics;
mod agent_secret;
mod booking_name;
mod dataset;
mod digest;
mod epoch;
mod error_chain;
mod gpu;
mod host;
mod hours;
mod ids;
mod kept;
mod kernel_time;
mod layers;
mod limits_change;
mod memory_size;
mod one_host;
mod output;
mod peer_key;
mod pieces;
mod profile;
mod share;
mod student;
mod time;
mod trust;
mod view;
mod view_recording;

pub use account::Account;
pub use agent_metrics::{AgentMetrics, ChunkBytes, HookCalls, ReplicaEnds};
pub use agent_secret::{AGENT_SECRET_HEADER, AgentSecret, AgentSecretError};
pub use booking_name::{booking_of, condor_job};
pub use dataset::{
    BrickedVolume, CHUNK_FILE, Chunk, ChunkFile, DatasetError, DatasetKind, DatasetManifest,
};
pub use digest::{Digest, DigestHasher, DigestParseError};
pub use epoch::Epoch;
pub use error_chain::error_chain;
pub use gpu::{GpuInfo, GpuKind, PciAddress, PciAddressError};
pub use host::{Capabilities, HostInfo, Origin};
pub use hours::{Hours, HoursError, LocalTime};
pub use ids::{
    BookingId, DataSize, DatasetId, DatasetName, HostKind, HostName, JobId, KernelName, LeaseToken,
    NameError, OwnerName, ProjectName, ReplicaId, WorkunitId,
};
pub use kept::Kept;
pub use kernel_time::{Computer, KernelTime, KernelTimeError, Measured};
pub use layers::{KeptLayer, LayerAnswer, LayerPlace, layers_of, push_layer};
pub use limits_change::{Limit, LimitsChange};
pub use memory_size::mib_of;
pub use output::{Content, Manifest, ManifestError, OutputFile, check_file_name};
pub use peer_key::PeerKey;
pub use pieces::{PIECE_BYTES, Pieces, PiecesBuilder};
pub use profile::{
    ChunkId, Feature, FeatureError, Profile, ProfileError, Promised, Reads, check_feature_name,
};
pub use share::Share;
pub use student::student_975;
pub use time::{Span, Time, boot_id, boottime};
pub use trust::Trust;
pub use view::{
    FRAME_KERNEL, FrameHeader, FrameStage, FrameStrip, FrameTask, NewView, PictureCodec,
    STRIP_ROWS, SYNTHETIC_BITS, SYNTHETIC_SQUARES, TransferPoint, ViewCamera, ViewKernel, ViewNews,
    ViewShading, ViewState, ViewStateError, ViewStatus, ViewWish, strip_rows, strips_max,
};
pub use view_recording::{
    RecordedVolume, RecordingHead, RecordingLine, RecordingStep, VIEW_RECORDING_VERSION,
};

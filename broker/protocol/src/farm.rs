//! What is said about the farm: by hooks and agents to the monitor, and by the monitor to the
//! broker. JSON over HTTP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::control::{BrokerMessage, Opening};
use crate::limits::OPENING_ENDED_MAX;
use crate::{BookingId, Epoch, HostName, Origin};

/// A render starts or ends on a host. Hook to monitor: `POST /v1/events` of the monitor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookEvent {
    /// The host.
    pub host: HostName,
    /// Starts or ends.
    pub kind: HookKind,
    /// Which attempt of which render.
    pub booking: BookingId,
    /// What it books; empty in a postflight.
    #[serde(default)]
    pub resources: Booked,
    /// The host's epoch after this event.
    pub epoch: Epoch,
    /// How long the hook took from its start until nothing harvested was in the render's way, in
    /// microseconds; in a preflight, where it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_us: Option<u64>,
    /// Whether the render failed; in a postflight, where the farm says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
}

/// What the monitor answers to a [`HostSample`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SampleAnswer {
    /// Always: a sample that is refused gets an error.
    pub accepted: bool,
    /// Whether somebody has stopped all harvest of the farm.
    #[serde(default)]
    pub stopped: bool,
}

/// Which hook spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookKind {
    /// Before a render.
    Preflight,
    /// After it.
    Postflight,
}

/// What a render books of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Booked {
    /// Cores; the whole host where the farm does not say.
    #[serde(default)]
    pub cores: Option<u32>,
    /// Memory in MiB, where the farm says.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// GPUs, where the farm says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
}

/// What an agent sees on its host. Agent to monitor: `POST /v1/samples` of the monitor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSample {
    /// The host.
    pub host: HostName,
    /// Which side it is on.
    pub origin: Origin,
    /// Cores it has for renders and harvest together.
    pub cores: u32,
    /// Its memory, in MiB.
    pub memory_mib: u64,
    /// Its epoch.
    pub epoch: Epoch,
    /// Renders that its run folder knows to be running.
    pub bookings: Vec<SampledBooking>,
    /// Whether the agent is told of all that the farm's workers start, and books it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watches: bool,
    /// Of the bookings, those whose processes the agent itself sees to live: whoever does not list them, they
    /// run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alive: Vec<BookingId>,
    /// CPU use of the whole host in percent of all its cores, harvested work included.
    pub cpu_percent: f32,
    /// Memory in use, in MiB.
    pub used_memory_mib: u64,
    /// Harvested replicas that run now.
    pub replicas: u32,
}

/// A booking as the host's run folder has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampledBooking {
    /// Which attempt of which render.
    pub booking: BookingId,
    /// What it books.
    pub resources: Booked,
}

/// Monitor to broker: `POST /v1/farm/events` of the broker, a JSON array of these in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum FarmEvent {
    /// A host has cores that the farm does not use; also confirms that it still has.
    FragmentOpened {
        /// The host.
        host: HostName,
        /// Its epoch when this was decided.
        epoch: Epoch,
        /// Free cores, the reserve taken off.
        cores: u32,
        /// Free memory likewise, in MiB.
        memory_mib: u64,
        /// Cores that renders have booked there.
        #[serde(default)]
        booked_cores: u32,
        /// GPUs likewise; none where one of them does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpus: Option<u32>,
        /// For how long, in milliseconds.
        valid_ms: u64,
        /// Bookings that its run folder still has although they have ended.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ended: Vec<BookingId>,
        /// By whom all that is said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<Box<OpeningSeal>>,
    },
    /// A host has none any more. It need not be signed: nobody gains by it.
    FragmentClosed {
        /// The host.
        host: HostName,
        /// Why, for people.
        reason: String,
    },
}

/// That the farm's monitor says something: whoever carries it can neither make it nor change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpeningSeal {
    /// When it was signed, in milliseconds of UTC.
    pub at_ms: u64,
    /// [`Opening::sealed_text`], signed with the monitor's key.
    pub signed: String,
}

impl FarmEvent {
    /// Whose it is.
    #[must_use]
    pub const fn host(&self) -> &HostName {
        let (Self::FragmentOpened { host, .. } | Self::FragmentClosed { host, .. }) = self;
        host
    }

    /// The host, and what it is told. Openings are confirmed again and again: ended bookings beyond
    /// [`OPENING_ENDED_MAX`] come with the next.
    #[must_use]
    pub fn into_message(self) -> (HostName, BrokerMessage) {
        match self {
            Self::FragmentOpened {
                host,
                epoch,
                cores,
                memory_mib,
                booked_cores,
                gpus,
                valid_ms,
                mut ended,
                seal,
            } => {
                ended.truncate(OPENING_ENDED_MAX);
                let opening =
                    Opening { epoch, cores, memory_mib, booked_cores, gpus, valid_ms, ended, seal };
                (host, BrokerMessage::Opening(opening))
            }
            Self::FragmentClosed { host, reason } => (host, BrokerMessage::Closing { reason }),
        }
    }
}

//! What the agent's decisions ask its driver to do.

use std::sync::Arc;

use gleaner_protocol::control::{AgentMessage, Fragment, Lease};
use gleaner_protocol::job::Task;
use gleaner_protocol::{Digest, Epoch, LeaseToken, LimitsChange, Time};

/// Something to be done, in the order of emission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Tell the broker. Only while a link stands.
    Send(AgentMessage),
    /// Give this from now on: nothing may start beyond it.
    Fragment(Fragment),
    /// Run a replica in an empty slot, if the host still stands at this epoch.
    Start {
        /// Where.
        slot: u32,
        /// Which.
        lease: Lease,
        /// What.
        task: Arc<Task>,
        /// The epoch of the fragment that it runs in.
        epoch: Epoch,
        /// When it was taken: of two, the younger is ended first.
        since: Time,
        /// Whether a render freezes it only, and [`Input::RunFolder`](super::Input::RunFolder) tells.
        parks: bool,
    },
    /// Freeze what runs in a slot, or is about to, in no slot's place.
    Park {
        /// Where.
        slot: u32,
        /// What is expected to run there.
        token: LeaseToken,
    },
    /// Let what is frozen in a slot run on, if the host still stands at this epoch.
    Thaw {
        /// Where.
        slot: u32,
        /// What is expected to be frozen there.
        token: LeaseToken,
        /// The epoch of the fragment that it runs in.
        epoch: Epoch,
    },
    /// Let what a render has frozen in a slot run on until [`Input::Saved`](super::Input::Saved),
    /// on cores that are not booked, unless another render comes.
    Save {
        /// Where.
        slot: u32,
        /// What is expected to be frozen there.
        token: LeaseToken,
        /// The epoch of the fragment beside which it runs.
        epoch: Epoch,
    },
    /// Hold a replica to limits from now on: what is in a slot, or is about to be.
    Limit {
        /// Where.
        slot: u32,
        /// Which.
        token: LeaseToken,
        /// What changes.
        limits: LimitsChange,
    },
    /// End what runs in a slot at once. Its end is not to be told any more.
    Stop {
        /// Where.
        slot: u32,
        /// What is expected to run there.
        token: LeaseToken,
    },
    /// Bring the large files of an output to the broker.
    Store {
        /// Whose.
        token: LeaseToken,
        /// Names, addresses and lengths.
        files: Vec<(String, Digest, u64)>,
    },
    /// Remove the large files of an output, and stop bringing them anywhere.
    Discard {
        /// Whose.
        token: LeaseToken,
    },
    /// End the link: the broker broke a rule.
    EndLink {
        /// Which.
        reason: &'static str,
    },
}

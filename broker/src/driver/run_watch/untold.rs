//! Replicas that the broker has ended, until their agents say what CPU time they took.

use std::collections::VecDeque;

use gleaner_protocol::{HostName, LeaseToken};
use rustc_hash::FxHashMap;

use crate::limits::UNTOLD_MAX;
use crate::usage::EndedReplica;

/// The last of them: as many as replicas may run, or [`UNTOLD_MAX`].
#[derive(Debug, Default)]
pub(in crate::driver) struct Untold {
    all: FxHashMap<LeaseToken, EndedReplica>,
    /// The oldest first; some may have been told of.
    order: VecDeque<LeaseToken>,
}

impl Untold {
    /// One was ended, and recorded so, where at most `most` run together.
    pub(super) fn note(&mut self, token: LeaseToken, ended: EndedReplica, most: usize) {
        while self.order.front().is_some_and(|oldest| !self.all.contains_key(oldest)) {
            self.order.pop_front();
        }
        self.all.insert(token, ended);
        self.order.push_back(token);
        while self.order.len() > most.max(UNTOLD_MAX) {
            self.order.pop_front().and_then(|oldest| self.all.remove(&oldest));
        }
    }

    /// A host says what one of them took: no more than it had. Nothing where it is none of the host's, or
    /// has been told before.
    pub(in crate::driver) fn told(
        &mut self,
        host: &HostName,
        token: LeaseToken,
        cpu_us: u64,
    ) -> Option<EndedReplica> {
        self.all.get(&token).filter(|ended| ended.host == *host)?;
        let ended = self.all.remove(&token)?;
        Some(EndedReplica { cpu_us: cpu_us.min(ended.slot_us), ..ended })
    }
}

//! The gate of a host: how much may run, as the thread that answers hooks and the main loop have
//! left it between them.
//!
//! # Invariants
//! - Only the main loop opens it, and never over what a hook has done that the main loop has not heard
//!   of: an epoch that it raised, or what it left.

use gleaner_protocol::control::Fragment;
use gleaner_protocol::{Epoch, Share};

/// What may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gate {
    stands: Fragment,
    /// The least that hooks have left since the main loop began to read what hooks have written down;
    /// none where none has narrowed it.
    unheard: Option<u32>,
}

impl Gate {
    /// A gate that lets a fragment through.
    #[must_use]
    pub fn new(fragment: Fragment) -> Self {
        Self { stands: fragment, unheard: None }
    }

    /// Cores that may be used.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.stands.cores
    }

    /// Whether a replica, taken at `epoch`, may begin with which all take this much.
    #[must_use]
    pub fn admits(&self, taken: Share, epoch: Epoch) -> bool {
        taken <= Share::cores(self.stands.cores) && self.stands.epoch == epoch
    }

    /// Whether anything may run at `epoch`.
    #[must_use]
    pub fn is_open_at(&self, epoch: Epoch) -> bool {
        self.stands.cores > 0 && self.stands.epoch == epoch
    }

    /// The main loop is about to read what hooks have written down, which they do before they ask, and
    /// may have taken away again. The least that they have left since the last time.
    pub fn hear(&mut self) -> Option<u32> {
        self.unheard.take()
    }

    /// The main loop lets this much run, by what it has read last. Of two that disagree on the epoch
    /// the newer one stands, and what it does not know of stays closed.
    pub fn set(&mut self, fragment: Fragment) {
        let same_life = self.stands.epoch.incarnation == fragment.epoch.incarnation;
        let is_newer = !same_life || fragment.epoch.count >= self.stands.epoch.count;
        if is_newer && self.unheard.is_none() {
            self.stands = fragment;
        } else {
            self.stands.cores = self.stands.cores.min(fragment.cores);
        }
    }

    /// A hook leaves at most `slots_left`. `epoch` is the host's from now on, where it is known;
    /// where it is not, nothing begins any more until the gate is set again.
    pub fn narrow(&mut self, epoch: Option<Epoch>, slots_left: u32) {
        self.unheard = Some(self.unheard.map_or(slots_left, |least| least.min(slots_left)));
        self.stands.cores = self.stands.cores.min(slots_left);
        match epoch {
            Some(epoch) if epoch.incarnation != self.stands.epoch.incarnation => {
                self.stands = Fragment { epoch, cores: 0, ..Fragment::default() };
            }
            Some(epoch) => {
                self.stands.epoch.count = self.stands.epoch.count.max(epoch.count);
            }
            None => self.stands.epoch = Epoch::default(),
        }
    }
}

//! One recorded run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::{APPLICATION_BYTES_MAX, FEATURES_MAX};

/// What a host's kind is called where it has none.
pub const ANY_KIND: &str = "any";

/// One replica of an application: what it worked on, and how long it took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The application: a kernel, the path of a program, a module.
    pub application: String,
    /// The kind of its host, or [`ANY_KIND`].
    pub kind: String,
    /// How large its work was, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, f64>,
    /// CPU time, in microseconds; 0 where it is not known.
    pub cpu_us: u64,
    /// What went by while it ran, in microseconds; 0 where it is not known.
    pub wall_us: u64,
    /// Most memory that it took, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_mib: Option<u64>,
    /// Whether it came to its end: else its times are lower bounds.
    pub ended: bool,
    /// When, in UTC milliseconds.
    pub at_ms: u64,
}

/// Which of a run's times is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// What went by while it ran.
    Wall,
    /// CPU time.
    Cpu,
}

impl Run {
    /// The run as a history takes it: its name not too long, its features finite and not too many.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let end = self.application.floor_char_boundary(APPLICATION_BYTES_MAX);
        self.application.truncate(end);
        self.features.retain(|_, value| value.is_finite());
        while self.features.len() > FEATURES_MAX {
            self.features.pop_last();
        }
        self
    }

    /// How long it took by a clock, or at least took, in microseconds; none where that is not
    /// known.
    #[must_use]
    pub fn time_us(&self, clock: Clock) -> Option<u64> {
        let time_us = match clock {
            Clock::Wall => self.wall_us,
            Clock::Cpu => self.cpu_us,
        };
        (time_us > 0).then_some(time_us)
    }

    /// The logarithm of that.
    pub(crate) fn log_time(&self, clock: Clock) -> Option<f64> {
        self.time_us(clock).map(|time_us| libm::log(time_us as f64))
    }
}

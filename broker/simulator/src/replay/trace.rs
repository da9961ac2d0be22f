//! A recorded farm: which cores of which hosts were busy, over time.

use gleaner_protocol::{Span, Time};

use super::log::LogError;
use crate::limits::REPLAY_CHANGES_MAX;

/// What a host was like from a moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Occupation {
    /// From when on.
    pub(crate) at: Time,
    /// Which host, by its place in [`Trace::hosts`].
    pub(crate) host: u32,
    /// Cores that it has; 0 while nobody knows of it.
    pub(crate) cores: u32,
    /// Of these, busy with the farm's own work; at most `cores`.
    pub(crate) busy: u32,
    /// The fewest idle cores that it had at this moment, before it came to be like this.
    pub(crate) least_idle: u32,
    /// Whether work began or ended, so that a quiet period begins.
    pub(crate) disturbed: bool,
    /// Whether nothing of it may be given before that quiet period is over.
    pub(crate) shut: bool,
}

impl Occupation {
    /// Cores that the farm does not use.
    pub(crate) fn idle(&self) -> u32 {
        self.cores - self.busy
    }
}

/// What is known of a host over the whole log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceHost {
    pub(crate) name: String,
    /// Most cores that it had.
    pub(crate) cores: u32,
}

/// A recorded farm.
///
/// # Invariants
/// - Occupations are in order of time, at most one per host and moment, none before
///   [`Time::ZERO`] or after `end`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) hosts: Vec<TraceHost>,
    pub(crate) changes: Vec<Occupation>,
    /// When the log ends; it begins at [`Time::ZERO`].
    pub(crate) end: Time,
    /// Jobs or renders that ran.
    pub(crate) jobs: u64,
    /// Most cores that were busy at once.
    pub(crate) peak_busy: u64,
    /// Core-time that the log gives to jobs beyond the cores that it says there are.
    pub(crate) overbooked_core_us: u64,
    /// Core-time that a monitor gave away, where the log is a monitor's.
    pub(crate) told_core_us: Option<u128>,
}

/// Core-time of a whole trace, in core-microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CoreTime {
    pub(crate) known: u128,
    pub(crate) busy: u128,
}

impl Trace {
    /// Puts changes of hosts into the order and form that a trace has. Times count from `begin`.
    ///
    /// # Errors
    /// There is nothing in it, or too much.
    pub(crate) fn new(
        path: &str,
        hosts: Vec<TraceHost>,
        mut changes: Vec<Occupation>,
        begin: Time,
        end: Time,
    ) -> Result<Self, LogError> {
        if hosts.is_empty() || changes.is_empty() || end <= begin {
            return Err(LogError::empty(path, "hosts that were busy or idle for a while"));
        }
        if changes.len() > REPLAY_CHANGES_MAX {
            let most = format!("at most {REPLAY_CHANGES_MAX} beginnings and ends of work");
            return Err(LogError::file(path, format!("there are {}", changes.len()), most));
        }
        changes.sort_by_key(|change| change.at);
        let mut hosts = hosts;
        let mut merged: Vec<Occupation> = Vec::with_capacity(changes.len());
        let mut newest: Vec<Option<usize>> = vec![None; hosts.len()];
        for change in changes {
            let at = Time::ZERO + change.at.since(begin);
            let change = Occupation { at, ..change };
            let host = &mut hosts[change.host as usize];
            host.cores = host.cores.max(change.cores);
            let newest = &mut newest[change.host as usize];
            match newest.map(|index| &mut merged[index]).filter(|last| last.at == at) {
                Some(last) => {
                    *last = Occupation {
                        least_idle: last.least_idle.min(change.least_idle),
                        disturbed: last.disturbed || change.disturbed,
                        shut: last.shut || change.shut,
                        ..change
                    };
                }
                None => {
                    *newest = Some(merged.len());
                    merged.push(change);
                }
            }
        }
        let end = Time::ZERO + end.since(begin);
        let mut trace = Self { hosts, changes: merged, end, ..Self::default() };
        trace.peak_busy = trace.count_peak();
        Ok(trace)
    }

    /// How long it is.
    pub(crate) fn length(&self) -> Span {
        self.end.since(Time::ZERO)
    }

    /// Cores of all hosts together.
    pub(crate) fn cores(&self) -> u64 {
        self.hosts.iter().map(|host| u64::from(host.cores)).sum()
    }

    /// Sums of what is known, and of what was busy.
    pub(crate) fn core_time(&self) -> CoreTime {
        let mut sums = CoreTime::default();
        let mut last: Vec<Option<Occupation>> = vec![None; self.hosts.len()];
        let mut add = |from: Occupation, until: Time| {
            let span = u128::from(until.since(from.at).as_micros());
            sums.known += span * u128::from(from.cores);
            sums.busy += span * u128::from(from.busy);
        };
        for change in &self.changes {
            if let Some(before) = last[change.host as usize].replace(*change) {
                add(before, change.at);
            }
        }
        last.into_iter().flatten().for_each(|before| add(before, self.end));
        sums
    }

    fn count_peak(&self) -> u64 {
        let mut busy: Vec<u32> = vec![0; self.hosts.len()];
        let (mut now, mut peak) = (0_u64, 0_u64);
        for (index, change) in self.changes.iter().enumerate() {
            let before = std::mem::replace(&mut busy[change.host as usize], change.busy);
            now = now + u64::from(change.busy) - u64::from(before);
            // Hosts that change at one moment change together.
            if self.changes.get(index + 1).is_none_or(|next| next.at > change.at) {
                peak = peak.max(now);
            }
        }
        peak
    }
}

//! What the farm's administrator has ordered, as it holds now.
//!
//! Orders only ever take away: they bar hosts and keep resources, and nothing in them can open
//! what the state of a host keeps closed. What they say depends on the time of day and on a stop,
//! so the driver makes them anew when either changes, and tells the monitor.

mod pattern;
mod plan;
mod settings;
mod stop;

use std::sync::Arc;

use gleaner_protocol::HostName;
use jiff::civil::Date;

use crate::comparison::{Arm, HoldOut};
use pattern::Pattern;

pub use pattern::PatternError;
pub use plan::{Plan, PlanError};
pub use settings::{GroupSettings, ScheduleSettings};
pub use stop::{Stop, StopError};

/// What holds for the hosts of the farm.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Orders {
    /// Nothing is harvested anywhere.
    pub stop: Option<Stop>,
    /// What holds for some of the hosts.
    pub(crate) groups: Vec<GroupOrder>,
    /// What the others are called, whose quiet period is learned together; none where it is not.
    pub(crate) rest_learns: Option<Arc<str>>,
    /// Who is held out today, where harvest is compared with none.
    pub hold_out: Option<HoldOut>,
}

/// What holds for the hosts of one group, the schedules of this hour included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupOrder {
    pub(crate) name: Arc<str>,
    hosts: Arc<[Pattern]>,
    /// Why none of them is harvested.
    barred: Option<Arc<str>>,
    reserve_cores: u32,
    reserve_memory_mib: u64,
    /// How many that render nothing are kept free of harvest.
    pub(crate) reserve_hosts: u32,
    /// None where nothing is said of it.
    learns_quiet: Option<bool>,
}

/// What the orders mean for one host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Standing {
    /// Why it is not harvested at all.
    pub(crate) barred: Option<Arc<str>>,
    /// The stop of the farm, which bars it before everything else does.
    pub(crate) stop: Option<Arc<str>>,
    /// Cores that are never given, at least.
    pub(crate) reserve_cores: u32,
    /// Memory that is never given, at least, in MiB.
    pub(crate) reserve_memory_mib: u64,
    /// Places of its groups that keep hosts free.
    pub(crate) reserves: Vec<usize>,
    /// The first of its groups whose quiet period is learned; that of all hosts without a group, where
    /// none of its says anything.
    pub(crate) learns_quiet: Option<Arc<str>>,
    /// What it is drawn for, and on which day, where it is compared with others: only where nothing
    /// else bars it.
    pub(crate) drawn: Option<(Arm, Date)>,
}

impl Orders {
    /// That nothing is harvested, and nothing else.
    #[must_use]
    pub const fn stopped(stop: Stop) -> Self {
        Self { stop: Some(stop), groups: Vec::new(), rest_learns: None, hold_out: None }
    }

    /// Why no host at all is harvested.
    pub(crate) fn bar_to_all(&self) -> Option<Arc<str>> {
        self.stop.as_ref().map(|stop| stop.to_string().into())
    }

    /// Whether the quiet period of this group's hosts is learned.
    pub(crate) fn learns_quiet_of(&self, group: &str) -> bool {
        let is_rest = self.rest_learns.as_deref() == Some(group);
        let is_it = |known: &GroupOrder| known.learns_quiet == Some(true) && *known.name == *group;
        is_rest || self.groups.iter().any(is_it)
    }

    /// What they mean for `host`, where `bar_to_all` is what [`Orders::bar_to_all`] gives.
    pub(crate) fn standing(&self, host: &HostName, bar_to_all: Option<&Arc<str>>) -> Standing {
        let stop = bar_to_all.cloned();
        let mut standing = Standing { barred: stop.clone(), stop, ..Standing::default() };
        let mut is_said = false;
        for (place, group) in self.groups.iter().enumerate() {
            if !group.hosts.iter().any(|pattern| pattern.matches(host)) {
                continue;
            }
            standing.barred = standing.barred.or_else(|| group.barred.clone());
            standing.reserve_cores = standing.reserve_cores.max(group.reserve_cores);
            standing.reserve_memory_mib = standing.reserve_memory_mib.max(group.reserve_memory_mib);
            is_said |= group.learns_quiet.is_some();
            if group.learns_quiet == Some(true) && standing.learns_quiet.is_none() {
                standing.learns_quiet = Some(group.name.clone());
            }
            if group.reserve_hosts > 0 {
                standing.reserves.push(place);
            }
        }
        if !is_said {
            standing.learns_quiet = self.rest_learns.clone();
        }
        if let Some(hold_out) = self.hold_out.as_ref().filter(|_| standing.barred.is_none()) {
            let arm = hold_out.arm(host);
            standing.drawn = Some((arm, hold_out.day));
            if arm == Arm::HeldOut {
                let why = format!("held out of harvest on {}, for comparison", hold_out.day);
                standing.barred = Some(why.into());
            }
        }
        standing
    }
}

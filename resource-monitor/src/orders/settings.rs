//! Groups of hosts and schedules, as an administrator writes them.

use serde::{Deserialize, Serialize};

/// A `[[group]]`: hosts with rules of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSettings {
    /// What schedules and people call it.
    pub name: String,
    /// Its hosts: names in which `*` and `?` are wildcards.
    pub hosts: Vec<String>,
    /// Whether they may be harvested at all.
    #[serde(default = "yes")]
    pub harvest: bool,
    /// Cores of each that are never given away, at least.
    #[serde(default)]
    pub reserve_cores: u32,
    /// Memory of each that is never given away, at least, in MiB.
    #[serde(default)]
    pub reserve_memory_mib: u64,
    /// How many hosts that render nothing are kept free of harvest.
    #[serde(default)]
    pub reserve_hosts: u32,
    /// Whether the quiet period of its hosts is learned.
    #[serde(default = "yes")]
    pub learn_quiet: bool,
}

/// A `[[schedule]]`: rules that hold in some hours of the week.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSettings {
    /// What people call it.
    pub name: String,
    /// The time zone of its hours, as in `Europe/Berlin`.
    pub time_zone: String,
    /// Spans of the week, as in `mon-fri 08:00-18:00`.
    pub hours: Vec<String>,
    /// For which groups it holds; every host where it names none.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Whether hosts may be harvested in these hours.
    #[serde(default = "yes")]
    pub harvest: bool,
    /// As of a group, in these hours.
    #[serde(default)]
    pub reserve_cores: u32,
    /// As of a group, in these hours.
    #[serde(default)]
    pub reserve_memory_mib: u64,
    /// As of a group, in these hours; of the whole farm where no group is named.
    #[serde(default)]
    pub reserve_hosts: u32,
}

const fn yes() -> bool {
    true
}

//! What an administrator wrote about groups and hours, checked; and what of it holds at a time.
//!
//! # Invariants
//! - Groups and schedules only take away: of several that hold for a host each does.
//! - Hours are what a clock on the wall of their time zone shows. An hour that is skipped in spring
//!   is never seen, so a span that would end in it ends when it is skipped; one that comes twice in
//!   autumn counts twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use gleaner_protocol::limits::CORES_MAX;
use gleaner_protocol::{Hours, LocalTime};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use thiserror::Error;

use super::pattern::{Pattern, PatternError};
use super::{GroupOrder, GroupSettings, Orders, ScheduleSettings, Stop};
use crate::comparison::Lottery;
use crate::limits::{GROUP_HOSTS_MAX, GROUPS_MAX, RULE_NAME_CHARS_MAX, SCHEDULES_MAX};

/// What the hosts are called together that are in no group.
const REST: &str = "other hosts";

/// All groups and schedules.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    groups: Vec<Group>,
    schedules: Vec<Schedule>,
    lottery: Option<Lottery>,
}

#[derive(Debug, Clone)]
struct Group {
    name: Arc<str>,
    hosts: Arc<[Pattern]>,
    /// What is said of it; nothing of every host, in which a schedule puts them.
    learns_quiet: Option<bool>,
    rule: Rule,
}

/// What is taken away.
#[derive(Debug, Clone, Copy)]
struct Rule {
    harvest: bool,
    reserve_cores: u32,
    reserve_memory_mib: u64,
    reserve_hosts: u32,
}

#[derive(Debug, Clone)]
struct Schedule {
    name: Arc<str>,
    zone: TimeZone,
    hours: Hours,
    /// Places in the plan's groups.
    groups: Vec<usize>,
    rule: Rule,
}

impl Plan {
    /// As it was written.
    ///
    /// # Errors
    /// What makes no sense, where it stands, and what would.
    pub fn new(
        groups: &[GroupSettings],
        schedules: &[ScheduleSettings],
    ) -> Result<Self, PlanError> {
        bounded("group", groups.len(), GROUPS_MAX)?;
        bounded("schedule", schedules.len(), SCHEDULES_MAX)?;
        let mut names = BTreeSet::new();
        let mut plan = Self::default();
        for settings in groups {
            let place = Place::new("group", &settings.name, &mut names)?;
            plan.groups.push(group(&place, settings)?);
        }
        let mut names = BTreeSet::new();
        for settings in schedules {
            let place = Place::new("schedule", &settings.name, &mut names)?;
            plan.add_schedule(&place, settings, groups)?;
        }
        Ok(plan)
    }

    /// What holds now.
    #[must_use]
    pub fn orders(&self, now: Timestamp, stop: Option<Stop>) -> Orders {
        let mut orders: Vec<GroupOrder> = self.groups.iter().map(Group::order).collect();
        for schedule in self.schedules.iter().filter(|schedule| schedule.holds(now)) {
            for at in &schedule.groups {
                let why = || format!("the schedule {:?} leaves it alone now", schedule.name);
                orders[*at].add(schedule.rule, why);
            }
        }
        let hold_out = self.lottery.as_ref().map(|lottery| lottery.at(now));
        Orders { stop, groups: orders, rest_learns: Some(REST.into()), hold_out }
    }

    /// With hosts held out of harvest, each day others.
    #[must_use]
    pub fn with_lottery(mut self, lottery: Option<Lottery>) -> Self {
        self.lottery = lottery;
        self
    }

    /// By which hosts are held out of harvest.
    pub(crate) const fn lottery(&self) -> Option<&Lottery> {
        self.lottery.as_ref()
    }

    fn add_schedule(
        &mut self,
        place: &Place,
        settings: &ScheduleSettings,
        written: &[GroupSettings],
    ) -> Result<(), PlanError> {
        let zone = TimeZone::get(&settings.time_zone).map_err(|_| {
            let (key, value) = ("time_zone", format!("{:?}", settings.time_zone));
            place.refuse(
                key,
                value,
                "the name of a time zone that this system knows (tzdata), as in \"Europe/Berlin\""
                    .into(),
            )
        })?;
        let hours = || format!("{:?}", settings.hours);
        if settings.hours.is_empty() {
            let expected = "spans of the week, as in [\"mon-fri 08:00-18:00\"]";
            return Err(place.refuse("hours", hours(), expected.into()));
        }
        let parsed = Hours::parse(settings.hours.iter().map(String::as_str))
            .map_err(|error| place.refuse("hours", hours(), error.to_string()))?;
        let rule = Rule {
            harvest: settings.harvest,
            reserve_cores: settings.reserve_cores,
            reserve_memory_mib: settings.reserve_memory_mib,
            reserve_hosts: settings.reserve_hosts,
        };
        rule.check(place)?;
        if !rule.takes_something() {
            let expected = "harvest = false, or a reserve of cores, memory or hosts: as it stands the schedule changes nothing";
            return Err(place.refuse("harvest", "true".into(), expected.into()));
        }
        let mut groups = Vec::new();
        for name in &settings.groups {
            // Those come first in the plan; behind them, what a schedule for every host adds.
            let known = written.iter().position(|group| group.name == *name);
            groups.push(known.ok_or_else(|| no_group(place, name, written))?);
        }
        if settings.groups.is_empty() {
            groups.push(self.groups.len());
            let (name, hosts) = ("every host".into(), Arc::from([Pattern::any()]));
            self.groups.push(Group { name, hosts, learns_quiet: None, rule: Rule::NOTHING });
        }
        let name = settings.name.as_str().into();
        self.schedules.push(Schedule { name, zone, hours: parsed, groups, rule });
        Ok(())
    }
}

fn no_group(place: &Place, name: &str, written: &[GroupSettings]) -> PlanError {
    let known = written.iter().map(|group| group.name.as_str());
    let nearest = known
        .max_by(|a, b| strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b)));
    let expected = match nearest {
        Some(near) => format!("the name of a [[group]], such as {near:?}"),
        None => {
            "the name of a [[group]], of which there is none; leave it out for every host".into()
        }
    };
    place.refuse("groups", format!("{name:?}"), expected)
}

fn group(place: &Place, settings: &GroupSettings) -> Result<Group, PlanError> {
    let count = settings.hosts.len();
    if !(1..=GROUP_HOSTS_MAX).contains(&count) {
        let expected = format!("1 to {GROUP_HOSTS_MAX} names of hosts");
        return Err(place.refuse("hosts", format!("a list of {count}"), expected));
    }
    let hosts: Result<Vec<_>, PatternError> =
        settings.hosts.iter().map(|text| Pattern::parse(text)).collect();
    let hosts = hosts.map_err(|source| PlanError::Pattern { place: place.0.clone(), source })?;
    let rule = Rule {
        harvest: settings.harvest,
        reserve_cores: settings.reserve_cores,
        reserve_memory_mib: settings.reserve_memory_mib,
        reserve_hosts: settings.reserve_hosts,
    };
    rule.check(place)?;
    let (name, learns_quiet) = (settings.name.as_str().into(), Some(settings.learn_quiet));
    Ok(Group { name, hosts: hosts.into(), learns_quiet, rule })
}

impl Group {
    fn order(&self) -> GroupOrder {
        let mut order = GroupOrder {
            name: self.name.clone(),
            hosts: self.hosts.clone(),
            barred: None,
            reserve_cores: 0,
            reserve_memory_mib: 0,
            reserve_hosts: 0,
            learns_quiet: self.learns_quiet,
        };
        order.add(self.rule, || format!("the group {:?} is never harvested", self.name));
        order
    }
}

impl GroupOrder {
    fn add(&mut self, rule: Rule, why: impl FnOnce() -> String) {
        if !rule.harvest && self.barred.is_none() {
            self.barred = Some(why().into());
        }
        self.reserve_cores = self.reserve_cores.max(rule.reserve_cores);
        self.reserve_memory_mib = self.reserve_memory_mib.max(rule.reserve_memory_mib);
        self.reserve_hosts = self.reserve_hosts.max(rule.reserve_hosts);
    }
}

impl Rule {
    const NOTHING: Self =
        Self { harvest: true, reserve_cores: 0, reserve_memory_mib: 0, reserve_hosts: 0 };

    const fn takes_something(&self) -> bool {
        let Self { harvest, reserve_cores, reserve_memory_mib, reserve_hosts } = *self;
        !harvest || reserve_cores > 0 || reserve_memory_mib > 0 || reserve_hosts > 0
    }

    fn check(&self, place: &Place) -> Result<(), PlanError> {
        if self.reserve_cores > CORES_MAX {
            let expected = format!("at most the {CORES_MAX} cores that a host can have");
            let cores = self.reserve_cores.to_string();
            return Err(place.refuse("reserve_cores", cores, expected));
        }
        Ok(())
    }
}

impl Schedule {
    fn holds(&self, now: Timestamp) -> bool {
        let shown = now.to_zoned(self.zone.clone());
        let weekday = u8::try_from(shown.weekday().to_monday_zero_offset()).unwrap_or_default();
        let minute = i16::from(shown.hour()) * 60 + i16::from(shown.minute());
        self.hours.contain(LocalTime { weekday, minute: u16::try_from(minute).unwrap_or_default() })
    }
}

/// Where something stands, for errors.
struct Place(String);

impl Place {
    fn new<'a>(
        table: &'static str,
        name: &'a str,
        names: &mut BTreeSet<&'a str>,
    ) -> Result<Self, PlanError> {
        let place = Self(format!("[[{table}]] {name:.100?}"));
        let chars = name.chars().count();
        let is_plain = !name.chars().any(char::is_control) && name.trim() == name;
        if chars == 0 || chars > RULE_NAME_CHARS_MAX || !is_plain {
            let expected = format!("a name of 1 to {RULE_NAME_CHARS_MAX} characters");
            return Err(place.refuse("name", format!("{name:.100?}"), expected));
        }
        if table == "group" && name == REST {
            let expected = "another name: this one is of the hosts in no group".to_owned();
            return Err(place.refuse("name", format!("{name:?}"), expected));
        }
        if !names.insert(name) {
            let expected = format!("a name that no other [[{table}]] has");
            return Err(place.refuse("name", format!("{name:?}"), expected));
        }
        Ok(place)
    }

    fn refuse(&self, key: &'static str, value: String, expected: String) -> PlanError {
        PlanError::Value { place: self.0.clone(), key, value, expected }
    }
}

fn bounded(table: &'static str, count: usize, max: usize) -> Result<(), PlanError> {
    if count > max { Err(PlanError::TooMany { table, count, max }) } else { Ok(()) }
}

/// A group or a schedule without sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// More than are taken.
    #[error("{count} tables [[{table}]] are more than {max}: let one name several patterns")]
    TooMany {
        /// Which table.
        table: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// Not the name of hosts.
    #[error("{place}: hosts: {source}")]
    Pattern {
        /// In which table.
        place: String,
        /// Why not.
        source: PatternError,
    },
    /// A value without sense.
    #[error("{place}: {key} = {value} will not do; expected {expected}")]
    Value {
        /// In which table.
        place: String,
        /// Of which key.
        key: &'static str,
        /// The value.
        value: String,
        /// What would do.
        expected: String,
    },
}

#[cfg(test)]
mod tests;

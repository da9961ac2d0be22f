//! What was measured: of each day its sums, of today each host.
//!
//! # Invariants
//! - A host counts on a day for one arm, the one that it was drawn for.
//! - Time, renders, delays and failures count only while a host is in an arm.
//! - A host that gets no renders counts as much as any other by the share of its time that it rendered:
//!   that is where a farm that books none on harvested hosts shows.
//! - What cannot be measured is left out, not taken for zero: a host that rendered too little has no
//!   rate, one whose hooks say no delays has no delay.
//! - Renders count by what the monitor makes of its news; delays and failures count as hooks tell them,
//!   one that is told twice twice.

use std::collections::BTreeMap;

use gleaner_protocol::{HostName, Span, Time};
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::estimate::{MetricView, Sums, compare};
use super::hold_out::Arm;
use crate::limits::{COMPARED_DAYS_MAX, COMPARED_PRESENCE_MIN, COMPARED_RENDERING_MIN};
use crate::monitor::Rendering;

/// The sums of a day, of one arm.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmDay {
    rendering_hours: Sums,
    renders_per_hour: Sums,
    delay_ms: Sums,
    failed_percent: Sums,
}

/// A day that is over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Day {
    day: Date,
    harvested: ArmDay,
    held_out: ArmDay,
}

/// What a host did today while it was in its arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostDay {
    arm: Arm,
    /// Time in which it was in its arm, and of that the time in which it rendered.
    present_us: u64,
    rendering_us: u64,
    /// Renders that ended.
    ended: u64,
    /// Preflights that said how long they took, and how long that was together.
    delays: u64,
    delay_us: u64,
    /// Postflights that said how the render had ended, and of these, failures.
    told: u64,
    failed: u64,
}

/// What is known of a host now.
#[derive(Debug, Clone, Copy)]
struct Present {
    arm: Option<Arm>,
    renders: bool,
    since: Time,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Ledger {
    seed: u64,
    days: BTreeMap<Date, Day>,
    today: Option<Date>,
    hosts: BTreeMap<HostName, HostDay>,
    present: BTreeMap<HostName, Present>,
}

/// The ledger, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerFile {
    /// Of the lottery: the draws of a day must not change within it.
    seed: u64,
    days: Vec<Day>,
    today: Option<Date>,
    hosts: BTreeMap<HostName, HostDay>,
}

impl Ledger {
    /// The first one.
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            seed,
            days: BTreeMap::new(),
            today: None,
            hosts: BTreeMap::new(),
            present: BTreeMap::new(),
        }
    }

    /// Goes on with what was kept.
    pub(crate) fn restore(file: LedgerFile) -> Self {
        let LedgerFile { seed, days, today, hosts } = file;
        let days = days.into_iter().map(|day| (day.day, day)).collect();
        Self { seed, days, today, hosts, present: BTreeMap::new() }
    }

    /// To be kept.
    pub(crate) fn file(&mut self, now: Time) -> LedgerFile {
        self.count_time(now);
        LedgerFile {
            seed: self.seed,
            days: self.days.values().copied().collect(),
            today: self.today,
            hosts: self.hosts.clone(),
        }
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// It is this day from now on. To be said before anything of that day is.
    pub(crate) fn begin_day(&mut self, now: Time, day: Date) {
        if self.today == Some(day) {
            return;
        }
        self.count_time(now);
        let hosts = std::mem::take(&mut self.hosts);
        if let Some(over) = self.today.replace(day) {
            self.add(over, hosts.values());
        }
        // Who is drawn today is said next.
        self.present.values_mut().for_each(|present| present.arm = None);
    }

    /// What a host does from now on, and what has ended on it.
    pub(crate) fn hear(&mut self, now: Time, rendering: &Rendering) {
        let Rendering { host, arm, renders, ended } = rendering;
        let next = Present { arm: *arm, renders: *renders, since: now };
        if let Some(before) = self.present.insert(host.clone(), next) {
            self.count(host, before, now);
        }
        if let Some(today) = self.host_day(host, *arm) {
            today.ended += u64::from(*ended);
        }
    }

    /// A preflight said how long it took until the render had its cores.
    pub(crate) fn hear_delay(&mut self, host: &HostName, delay_us: u64) {
        if let Some(today) = self.host_day(host, self.arm(host)) {
            today.delays += 1;
            today.delay_us = today.delay_us.saturating_add(delay_us);
        }
    }

    /// A postflight said how its render had ended.
    pub(crate) fn hear_end(&mut self, host: &HostName, has_failed: bool) {
        if let Some(today) = self.host_day(host, self.arm(host)) {
            today.told += 1;
            today.failed += u64::from(has_failed);
        }
    }

    /// Hosts of an arm, now.
    pub(crate) fn now_in(&self, arm: Arm) -> impl Iterator<Item = &HostName> {
        self.present.iter().filter(move |(_, now)| now.arm == Some(arm)).map(|(host, _)| host)
    }

    /// What the days that are over say.
    pub(crate) fn metrics(&self) -> Vec<MetricView> {
        let metric = |name, more_is_better, of: fn(&ArmDay) -> Sums| {
            let days = self.days.values().map(|day| (of(&day.harvested), of(&day.held_out)));
            compare(name, more_is_better, days)
        };
        vec![
            metric("hours of 24 that a host rendered", true, |arm| arm.rendering_hours),
            metric("renders ended per hour of rendering", true, |arm| arm.renders_per_hour),
            metric("ms until a render has its cores", false, |arm| arm.delay_ms),
            metric("% of renders that failed", false, |arm| arm.failed_percent),
        ]
    }

    fn arm(&self, host: &HostName) -> Option<Arm> {
        self.present.get(host)?.arm
    }

    /// What a host did today in the arm that it is in.
    fn host_day(&mut self, host: &HostName, arm: Option<Arm>) -> Option<&mut HostDay> {
        let arm = arm.filter(|_| self.today.is_some())?;
        let new = HostDay {
            arm,
            present_us: 0,
            rendering_us: 0,
            ended: 0,
            delays: 0,
            delay_us: 0,
            told: 0,
            failed: 0,
        };
        // A host that is drawn otherwise within a day counts no more on it.
        Some(self.hosts.entry(host.clone()).or_insert(new)).filter(|today| today.arm == arm)
    }

    /// Counts the time of every host up to now.
    fn count_time(&mut self, now: Time) {
        let present = std::mem::take(&mut self.present);
        for (host, present) in &present {
            self.count(host, *present, now);
        }
        let from_now = |(host, present)| (host, Present { since: now, ..present });
        self.present = present.into_iter().map(from_now).collect();
    }

    fn count(&mut self, host: &HostName, present: Present, now: Time) {
        let Present { arm, renders, since } = present;
        if let Some(today) = self.host_day(host, arm) {
            let passed = now.since(since).as_micros();
            today.present_us += passed;
            today.rendering_us += if renders { passed } else { 0 };
        }
    }

    /// Adds hosts to a day; the oldest days go where there are too many.
    fn add<'a>(&mut self, day: Date, hosts: impl Iterator<Item = &'a HostDay>) {
        let new = Day { day, harvested: ArmDay::default(), held_out: ArmDay::default() };
        let sums = self.days.entry(day).or_insert(new);
        for host in hosts {
            let arm = match host.arm {
                Arm::Harvested => &mut sums.harvested,
                Arm::HeldOut => &mut sums.held_out,
            };
            let (present, rendering) =
                (Span::from_micros(host.present_us), Span::from_micros(host.rendering_us));
            if present >= COMPARED_PRESENCE_MIN {
                arm.rendering_hours.add(24.0 * rendering.as_secs_f64() / present.as_secs_f64());
            }
            if rendering >= COMPARED_RENDERING_MIN {
                arm.renders_per_hour.add(host.ended as f64 * 3_600.0 / rendering.as_secs_f64());
            }
            if host.delays > 0 {
                arm.delay_ms.add(host.delay_us as f64 / 1_000.0 / host.delays as f64);
            }
            if host.told > 0 {
                arm.failed_percent.add(host.failed as f64 * 100.0 / host.told as f64);
            }
        }
        while self.days.len() > COMPARED_DAYS_MAX {
            self.days.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Span = Span::from_secs(3_600);

    struct Farm {
        ledger: Ledger,
        now: Time,
    }

    impl Farm {
        fn new() -> Self {
            Self { ledger: Ledger::new(7), now: Time::from_micros(1) }
        }

        fn day(&mut self, day: i8) {
            self.ledger.begin_day(self.now, jiff::civil::date(2026, 3, day));
        }

        fn says(&mut self, host: &str, arm: Option<Arm>, renders: bool, ended: u32) {
            let host = HostName::new(host).expect("a name");
            self.ledger.hear(self.now, &Rendering { host, arm, renders, ended });
        }

        fn hours(&mut self, hours: u64) {
            self.now = self.now + HOUR.times(hours);
        }

        fn rate(&self, day: i8, arm: Arm) -> Sums {
            let day = self.ledger.days[&jiff::civil::date(2026, 3, day)];
            match arm {
                Arm::Harvested => day.harvested.renders_per_hour,
                Arm::HeldOut => day.held_out.renders_per_hour,
            }
        }
    }

    #[test]
    fn renders_are_counted_by_the_hour_that_a_host_rendered() {
        let mut farm = Farm::new();
        farm.day(1);
        farm.says("a", Some(Arm::Harvested), true, 0);
        farm.says("b", Some(Arm::HeldOut), true, 0);
        farm.hours(4);
        farm.says("a", Some(Arm::Harvested), false, 8);
        farm.says("b", Some(Arm::HeldOut), true, 2);
        farm.hours(4);
        farm.day(2);
        assert_eq!(farm.rate(1, Arm::Harvested), Sums { hosts: 1, sum: 2.0 });
        assert_eq!(farm.rate(1, Arm::HeldOut), Sums { hosts: 1, sum: 0.25 });
    }

    #[test]
    fn a_host_that_gets_no_renders_counts_by_its_time() {
        let mut farm = Farm::new();
        for day in 1..=6 {
            farm.day(day);
            // Its manager takes the load of harvest for its own, and books it half as long.
            farm.says("a", Some(Arm::Harvested), true, 0);
            farm.says("b", Some(Arm::Harvested), false, 0);
            farm.says("c", Some(Arm::HeldOut), true, 0);
            farm.says("d", Some(Arm::HeldOut), false, 0);
            farm.hours(6);
            farm.says("a", Some(Arm::Harvested), false, 1);
            farm.says("d", Some(Arm::HeldOut), true, 0);
            farm.hours(6 + u64::from(day.unsigned_abs() % 2));
            farm.says("c", Some(Arm::HeldOut), false, 1);
            farm.says("d", Some(Arm::HeldOut), false, 1);
            // In the rest of the day a stop bars all.
            for host in ["a", "b", "c", "d"] {
                farm.says(host, None, false, 0);
            }
            farm.hours(12);
        }
        farm.day(7);
        let day = farm.ledger.days[&jiff::civil::date(2026, 3, 2)];
        assert_eq!(day.harvested.rendering_hours, Sums { hosts: 2, sum: 12.0 });
        assert_eq!(day.held_out.rendering_hours, Sums { hosts: 2, sum: 36.0 });
        let metrics = farm.ledger.metrics();
        let hours = metrics.iter().find(|metric| metric.name.starts_with("hours of 24"));
        let hours = hours.expect("it is compared");
        let found = hours.difference.expect("six days");
        assert!(hours.more_is_better && found.high < -10.0, "{found:?}");
        let others = metrics.iter().filter(|metric| metric.name != hours.name);
        assert!(others.filter_map(|metric| metric.difference).all(|found| found.high >= 0.0));
    }

    #[test]
    fn a_host_that_stays_in_its_arm_loses_no_time_at_midnight() {
        let mut farm = Farm::new();
        farm.day(1);
        farm.says("a", Some(Arm::Harvested), true, 0);
        farm.hours(12);
        farm.day(2);
        farm.says("a", Some(Arm::Harvested), true, 0);
        farm.hours(12);
        farm.says("a", Some(Arm::Harvested), false, 6);
        farm.day(3);
        assert_eq!(farm.rate(1, Arm::Harvested), Sums { hosts: 1, sum: 0.0 });
        assert_eq!(farm.rate(2, Arm::Harvested), Sums { hosts: 1, sum: 0.5 });
    }

    #[test]
    fn time_in_which_something_else_bars_a_host_is_none() {
        let mut farm = Farm::new();
        farm.day(1);
        farm.says("a", Some(Arm::HeldOut), true, 0);
        farm.hours(2);
        // A stop, in which a render ends.
        farm.says("a", None, true, 0);
        farm.hours(6);
        farm.says("a", None, true, 5);
        farm.says("a", Some(Arm::HeldOut), true, 0);
        farm.hours(1);
        farm.says("a", Some(Arm::HeldOut), false, 6);
        farm.day(2);
        assert_eq!(farm.rate(1, Arm::HeldOut), Sums { hosts: 1, sum: 2.0 });
    }

    #[test]
    fn what_was_not_measured_is_no_zero() {
        let mut farm = Farm::new();
        farm.day(1);
        let a = HostName::new("a").expect("a name");
        farm.ledger.hear_delay(&a, 5_000);
        farm.says("a", Some(Arm::Harvested), false, 0);
        farm.ledger.hear_delay(&a, 3_000);
        farm.ledger.hear_delay(&a, 5_000);
        farm.ledger.hear_end(&a, true);
        farm.ledger.hear_end(&a, false);
        farm.hours(20);
        farm.day(2);
        let day = farm.ledger.days.first_key_value().expect("a day").1.harvested;
        assert_eq!(day.renders_per_hour.hosts, 0, "it rendered nothing");
        assert_eq!(day.delay_ms, Sums { hosts: 1, sum: 4.0 }, "it was in no arm at first");
        assert_eq!(day.failed_percent, Sums { hosts: 1, sum: 50.0 });
    }

    #[test]
    fn a_restart_goes_on_within_the_day() {
        let mut farm = Farm::new();
        farm.day(1);
        farm.says("a", Some(Arm::HeldOut), true, 0);
        farm.hours(3);
        let text = serde_json::to_vec(&farm.ledger.file(farm.now)).expect("plain");
        farm.hours(10);
        farm.ledger = Ledger::restore(serde_json::from_slice(&text).expect("its own"));
        assert_eq!(farm.ledger.seed(), 7);
        farm.day(1);
        farm.says("a", Some(Arm::HeldOut), true, 0);
        farm.hours(1);
        farm.says("a", Some(Arm::HeldOut), true, 8);
        farm.day(2);
        // Not the ten hours in which nobody looked.
        assert_eq!(farm.rate(1, Arm::HeldOut), Sums { hosts: 1, sum: 2.0 });
    }

    #[test]
    fn the_oldest_days_go() {
        let mut farm = Farm::new();
        let first = jiff::civil::date(2026, 1, 1);
        for number in 0..=COMPARED_DAYS_MAX {
            let days = jiff::Span::new().days(i64::try_from(number).expect("few"));
            farm.ledger.begin_day(farm.now, first.checked_add(days).expect("a date"));
        }
        farm.day(31);
        assert_eq!(farm.ledger.days.len(), COMPARED_DAYS_MAX);
        assert!(!farm.ledger.days.contains_key(&first));
    }
}

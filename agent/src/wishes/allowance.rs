//! How much may run, of what the owner wishes and how the host looks.

use gleaner_protocol::{Hours, Span, Time};

use super::brake::Brake;
use super::{Observation, Preferences, Reason};
use crate::limits::{
    COOLER_C, DISK_STALL_PERMILLE_MAX, MEMORY_FREE_MIB_MIN, MEMORY_FREE_PERMILLE_MIN,
    MEMORY_STALL_PERMILLE_MAX, OTHERS_MILLICORES_MIN, OTHERS_MILLICORES_SPARE,
};

/// What may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Replicas.
    pub(crate) slots: u32,
    /// Whether what is too much may be kept frozen for a time: not where its memory is wanted.
    pub(crate) keep: bool,
    /// Why it is not all that the host has.
    pub(crate) reasons: Vec<Reason>,
}

/// The wishes, and what they remember of the host.
#[derive(Debug)]
pub(crate) struct Wishes {
    preferences: Preferences,
    hours: Option<Hours>,
    cores: u32,
    is_hot: bool,
    program: Brake,
    others: Brake,
    memory_pressure: Brake,
    disk_pressure: Brake,
    memory_limit: Brake,
}

/// The verdict as it grows.
struct Verdict {
    slots: u32,
    keep: bool,
    reasons: Vec<Reason>,
}

impl Verdict {
    fn limit(&mut self, slots: u32, reason: Reason) {
        self.slots = self.slots.min(slots);
        self.reasons.push(reason);
    }
}

impl Wishes {
    /// For a host with `cores`; the preferences have been checked.
    pub(crate) fn new(preferences: Preferences, cores: u32) -> Self {
        Self {
            hours: preferences.hours(),
            preferences,
            cores,
            is_hot: false,
            program: Brake::default(),
            others: Brake::default(),
            memory_pressure: Brake::default(),
            disk_pressure: Brake::default(),
            memory_limit: Brake::default(),
        }
    }

    /// What may run now.
    pub(crate) fn decide(&mut self, now: Time, seen: &Observation) -> Allowance {
        let mut verdict = Verdict { slots: self.cores, keep: true, reasons: Vec::new() };
        self.obey_clock_and_user(seen, &mut verdict);
        self.obey_machine(seen, &mut verdict);
        self.obey_programs(now, seen, &mut verdict);
        self.obey_limits(now, seen, &mut verdict);
        if self.preferences.give_way {
            self.give_way(now, seen, &mut verdict);
        }
        let Verdict { slots, keep, reasons } = verdict;
        Allowance { slots, keep, reasons }
    }

    fn obey_clock_and_user(&self, seen: &Observation, verdict: &mut Verdict) {
        if let Some(hours) = self.hours.as_ref().filter(|hours| !hours.contain(seen.local)) {
            let begins_in_min = hours.minutes_to_change(seen.local).map(|min| min as u64);
            verdict.limit(0, Reason::Hours { begins_in_min });
        }
        let wanted_min = self.preferences.user_away_min;
        if wanted_min > 0 {
            match &seen.user_idle {
                Ok(idle) if *idle < Span::from_secs(u64::from(wanted_min) * 60) => {
                    verdict.limit(0, Reason::UserPresent { idle: *idle, wanted_min });
                }
                Ok(_) => {}
                Err(why) => verdict.limit(0, Reason::UserUnknown(why.clone())),
            }
        }
    }

    fn obey_machine(&mut self, seen: &Observation, verdict: &mut Verdict) {
        if seen.on_battery && !self.preferences.on_battery {
            verdict.limit(0, Reason::OnBattery);
        }
        let max_c = self.preferences.temperature_c_max;
        if max_c == 0 {
            return;
        }
        let Some(now_c) = seen.temperature_c else {
            return verdict.limit(0, Reason::NoSensor);
        };
        let ceiling = i32::try_from(max_c).unwrap_or(i32::MAX);
        self.is_hot = now_c > if self.is_hot { ceiling - COOLER_C } else { ceiling };
        if self.is_hot {
            verdict.limit(0, Reason::Hot { now_c, max_c });
        }
    }

    fn obey_programs(&mut self, now: Time, seen: &Observation, verdict: &mut Verdict) {
        let demand = if seen.program.is_some() { self.cores } else { 0 };
        let reason = seen.program.clone().map(Reason::Program);
        let after = "a program that pauses everything ran";
        self.program.obey(now, demand, reason, after, self.cores, verdict);
    }

    fn obey_limits(&mut self, now: Time, seen: &Observation, verdict: &mut Verdict) {
        let Preferences { network_mib_per_day, disk_mib_max, memory_mib_max, .. } =
            self.preferences;
        // What runs may end, and nothing new begins.
        if network_mib_per_day > 0 && seen.network_mib >= network_mib_per_day {
            let reason =
                Reason::Network { used_mib: seen.network_mib, max_mib: network_mib_per_day };
            verdict.limit(seen.held, reason);
        }
        if disk_mib_max > 0 && seen.own_disk_mib >= disk_mib_max {
            let reason = Reason::Disk { used_mib: seen.own_disk_mib, max_mib: disk_mib_max };
            verdict.limit(seen.held, reason);
        }
        let limits = [memory_mib_max, seen.memory_mib_max];
        if let Some(memory_mib_max) = limits.into_iter().filter(|limit| *limit > 0).min() {
            let over = seen.own_memory_mib > memory_mib_max;
            // The youngest goes, until the rest fits.
            let demand =
                if over { self.cores.saturating_sub(seen.held.saturating_sub(1)) } else { 0 };
            let reason = Reason::Memory { used_mib: seen.own_memory_mib, max_mib: memory_mib_max };
            let after = "tasks took more memory than they may";
            let reason = over.then_some(reason);
            self.memory_limit.obey(now, demand, reason, after, self.cores, verdict);
            verdict.keep &= !over;
        }
    }

    fn give_way(&mut self, now: Time, seen: &Observation, verdict: &mut Verdict) {
        let millicores = seen.others_millicores;
        let others = match millicores {
            ..OTHERS_MILLICORES_MIN => 0,
            busy => (busy - OTHERS_MILLICORES_SPARE).div_ceil(1_000),
        };
        let reason = (others > 0).then_some(Reason::Others { millicores });
        let after = "others computed";
        self.others.obey(now, others.min(self.cores), reason, after, self.cores, verdict);

        let floor = MEMORY_FREE_MIB_MIN.min(seen.memory_mib * MEMORY_FREE_PERMILLE_MIN / 1_000);
        let short = seen.memory_free_mib.is_some_and(|free| free < floor);
        let pressed = short || seen.memory_stall_permille >= MEMORY_STALL_PERMILLE_MAX;
        let reason = pressed.then_some(Reason::MemoryPressure {
            stall_permille: seen.memory_stall_permille,
            free_mib: seen.memory_free_mib,
        });
        let demand = if pressed { self.cores } else { 0 };
        let after = "memory was short";
        self.memory_pressure.obey(now, demand, reason, after, self.cores, verdict);
        verdict.keep &= !pressed;

        let stall_permille = seen.io_stall_permille;
        let pressed = stall_permille >= DISK_STALL_PERMILLE_MAX;
        let demand = if pressed { self.cores } else { 0 };
        let reason = pressed.then_some(Reason::DiskPressure { stall_permille });
        let after = "others waited for a disk";
        self.disk_pressure.obey(now, demand, reason, after, self.cores, verdict);
    }
}

impl Brake {
    /// Presses the brake, and limits the verdict by what it gives up.
    fn obey(
        &mut self,
        now: Time,
        demand: u32,
        cause: Option<Reason>,
        after: &'static str,
        cores: u32,
        verdict: &mut Verdict,
    ) {
        let given_up = self.press(now, demand);
        if given_up > 0 {
            let calm = || Reason::Calm { after, left: self.rest(now).unwrap_or(Span::ZERO) };
            verdict.limit(cores.saturating_sub(given_up), cause.unwrap_or_else(calm));
        }
    }
}

//! How much may run, of what the owner wishes and how the host looks.

use gleaner_protocol::{Hours, Share, Span, Time};

use super::brake::Brake;
use super::{Observation, Preferences, Reason};
use crate::limits::{
    COOLER_C, DISK_STALL_PERMILLE_MAX, MEMORY_FREE_MIB_MIN, MEMORY_FREE_PERMILLE_MIN,
    MEMORY_STALL_PERMILLE_MAX, OTHERS_MILLICORES_MIN, OTHERS_MILLICORES_SPARE, PART_PERMILLE,
};

/// What may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Cores, of the last of which it may be a part.
    pub(crate) room: Share,
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
    cores: Share,
    /// The least of a core that is given up for what others keep busy.
    step: Share,
    is_hot: bool,
    program: Brake<Share>,
    others: Brake<Share>,
    memory_pressure: Brake<Share>,
    disk_pressure: Brake<Share>,
    memory_limit: Brake<Share>,
}

/// The verdict as it grows.
struct Verdict {
    room: Share,
    keep: bool,
    reasons: Vec<Reason>,
}

impl Verdict {
    fn limit(&mut self, room: Share, reason: Reason) {
        self.room = self.room.min(room);
        self.reasons.push(reason);
    }
}

impl Wishes {
    /// For a host with `cores`, which can hold a replica to a part of one, or not; the preferences
    /// have been checked.
    pub(crate) fn new(preferences: Preferences, cores: u32, has_parts: bool) -> Self {
        Self {
            hours: preferences.hours(),
            preferences,
            cores: Share::cores(cores),
            step: if has_parts { Share::permille(PART_PERMILLE) } else { Share::WHOLE },
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
        let mut verdict = Verdict { room: self.cores, keep: true, reasons: Vec::new() };
        self.obey_clock_and_user(seen, &mut verdict);
        self.obey_machine(seen, &mut verdict);
        self.obey_programs(now, seen, &mut verdict);
        self.obey_limits(now, seen, &mut verdict);
        if self.preferences.give_way {
            self.give_way(now, seen, &mut verdict);
        }
        let Verdict { room, keep, reasons } = verdict;
        Allowance { room, keep, reasons }
    }

    fn obey_clock_and_user(&self, seen: &Observation, verdict: &mut Verdict) {
        if let Some(hours) = self.hours.as_ref().filter(|hours| !hours.contain(seen.local)) {
            let begins_in_min = hours.minutes_to_change(seen.local).map(|min| min as u64);
            verdict.limit(Share::NONE, Reason::Hours { begins_in_min });
        }
        let wanted_min = self.preferences.user_away_min;
        if wanted_min > 0 {
            match &seen.user_idle {
                Ok(idle) if idle.span < Span::from_secs(u64::from(wanted_min) * 60) => {
                    verdict.limit(Share::NONE, Reason::UserPresent { idle: *idle, wanted_min });
                }
                Ok(_) => {}
                Err(why) => verdict.limit(Share::NONE, Reason::UserUnknown(why.clone())),
            }
        }
    }

    fn obey_machine(&mut self, seen: &Observation, verdict: &mut Verdict) {
        if let Some(how) = seen.on_battery.clone().filter(|_| !self.preferences.on_battery) {
            verdict.limit(Share::NONE, Reason::OnBattery(how));
        }
        let max_c = self.preferences.temperature_c_max;
        if max_c == 0 {
            return;
        }
        let Some(now_c) = seen.temperature_c else {
            return verdict.limit(Share::NONE, Reason::NoSensor);
        };
        let ceiling = i32::try_from(max_c).unwrap_or(i32::MAX);
        self.is_hot = now_c > if self.is_hot { ceiling - COOLER_C } else { ceiling };
        if self.is_hot {
            verdict.limit(Share::NONE, Reason::Hot { now_c, max_c });
        }
    }

    fn obey_programs(&mut self, now: Time, seen: &Observation, verdict: &mut Verdict) {
        let demand = if seen.program.is_some() { self.cores } else { Share::NONE };
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
            verdict.limit(Share::cores(seen.held), reason);
        }
        if disk_mib_max > 0 && seen.own_disk_mib >= disk_mib_max {
            let reason = Reason::Disk { used_mib: seen.own_disk_mib, max_mib: disk_mib_max };
            verdict.limit(Share::cores(seen.held), reason);
        }
        let limits = [memory_mib_max, seen.memory_mib_max];
        if let Some(memory_mib_max) = limits.into_iter().filter(|limit| *limit > 0).min() {
            let over = seen.own_memory_mib > memory_mib_max;
            // The youngest goes, until the rest fits.
            let fits = Share::cores(seen.held.saturating_sub(1));
            let demand = if over { self.cores.minus(fits) } else { Share::NONE };
            let reason = Reason::Memory { used_mib: seen.own_memory_mib, max_mib: memory_mib_max };
            let after = "tasks took more memory than they may";
            let reason = over.then_some(reason);
            self.memory_limit.obey(now, demand, reason, after, self.cores, verdict);
            verdict.keep &= !over;
        }
    }

    fn give_way(&mut self, now: Time, seen: &Observation, verdict: &mut Verdict) {
        let millicores = seen.others_millicores;
        // Who begins gets whole cores, and what is not used of them comes back by parts.
        let step = if seen.others_rise { Share::WHOLE } else { self.step };
        let others = wanted_by_others(millicores, step);
        let reason = (others > Share::NONE).then_some(Reason::Others { millicores });
        // What renders have booked is not given anyway: others are beside them.
        let left = self.cores.minus(Share::cores(seen.taken_cores));
        self.others.obey(now, others.min(left), reason, "others computed", left, verdict);

        let floor = MEMORY_FREE_MIB_MIN.min(seen.memory_mib * MEMORY_FREE_PERMILLE_MIN / 1_000);
        let short = seen.memory_free_mib.is_some_and(|free| free < floor);
        let pressed = short || seen.memory_stall_permille >= MEMORY_STALL_PERMILLE_MAX;
        let reason = pressed.then_some(Reason::MemoryPressure {
            stall_permille: seen.memory_stall_permille,
            free_mib: seen.memory_free_mib,
        });
        let demand = if pressed { self.cores } else { Share::NONE };
        let after = "memory was short";
        self.memory_pressure.obey(now, demand, reason, after, self.cores, verdict);
        verdict.keep &= !pressed;

        let stall_permille = seen.io_stall_permille;
        let pressed = stall_permille >= DISK_STALL_PERMILLE_MAX;
        let demand = if pressed { self.cores } else { Share::NONE };
        let reason = pressed.then_some(Reason::DiskPressure { stall_permille });
        let after = "others waited for a disk";
        self.disk_pressure.obey(now, demand, reason, after, self.cores, verdict);
    }
}

/// What is given up where others keep so much busy: as much, in steps.
fn wanted_by_others(millicores: u32, step: Share) -> Share {
    match millicores {
        ..OTHERS_MILLICORES_MIN => Share::NONE,
        busy => {
            let steps = (busy - OTHERS_MILLICORES_SPARE).div_ceil(step.as_permille());
            Share::permille(steps.saturating_mul(step.as_permille()))
        }
    }
}

impl Brake<Share> {
    /// Presses the brake, and leaves of these cores what it does not give up.
    fn obey(
        &mut self,
        now: Time,
        demand: Share,
        cause: Option<Reason>,
        after: &'static str,
        cores: Share,
        verdict: &mut Verdict,
    ) {
        let given_up = self.press(now, demand);
        if given_up > Share::NONE {
            let calm = || Reason::Calm { after, left: self.rest(now).unwrap_or(Span::ZERO) };
            verdict.limit(cores.minus(given_up), cause.unwrap_or_else(calm));
        }
    }
}

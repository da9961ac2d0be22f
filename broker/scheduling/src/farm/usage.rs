//! What owners have used of the farm's cores: whoever has used least for their weight comes next.
//!
//! All cores that leases take count, whatever becomes of them, and a week later half as much. So that
//! nobody has to be gone over as time goes by, what is used later is counted as more instead (Cormode,
//! Shkapenyuk, Srivastava, Xu: *Forward Decay: A Practical Time Decay Model for Streaming Systems*,
//! 2009). What runs now counts as if it went on for a minute more: else whoever comes next would get
//! all cores that are free at once. A new owner begins beside the one with jobs who has used least.

use std::collections::BTreeMap;

use gleaner_protocol::{OwnerName, Share, Span, Time};

use crate::limits::USAGE_HALF_LIFE_S;

/// For so many seconds more what runs now counts.
const AHEAD_S: f64 = 60.0;
/// How often what runs is counted.
const SETTLE_EVERY: Span = Span::from_secs(1);
/// Owners that are remembered of whom no job is known.
const IDLE_OWNERS_MAX: usize = 10_000;

/// Number of an owner, for as long as one of its jobs is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OwnerIx(u32);

/// How an owner stands.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnerShare {
    /// Who.
    pub owner: OwnerName,
    /// Part of the farm that it is due, beside others.
    pub weight: u32,
    /// Core-seconds that count now.
    pub used_s: f64,
    /// What its leases hold, in thousandths of cores.
    pub held_permille: u64,
}

impl OwnerShare {
    /// Whoever has the least comes next.
    #[must_use]
    pub fn place(&self) -> f64 {
        (self.used_s + self.held_permille as f64 / 1e3 * AHEAD_S) / f64::from(self.weight)
    }
}

/// What all owners have used.
///
/// # Invariants
/// - `held` of each is the sum over its leases that count for their lanes.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    owners: Vec<Owner>,
    by_name: BTreeMap<OwnerName, OwnerIx>,
    vacant: Vec<OwnerIx>,
    pub(crate) weights: BTreeMap<OwnerName, u32>,
    /// When what runs was counted last.
    settled_at: Time,
    /// Whose place may be another one since it was asked for last.
    changed: Vec<OwnerIx>,
    /// Owners of whom no job is known.
    idle: usize,
}

#[derive(Debug)]
struct Owner {
    name: OwnerName,
    weight: f64,
    /// Core-seconds, each counted by the time of its use.
    used: f64,
    /// When that was brought up to date.
    since: Time,
    held: u64,
    /// Jobs that are known, and those of them that go on.
    jobs: u32,
    active: u32,
    is_changed: bool,
}

/// How much a second counts that is used at this time. It fits for 19 years after the machine's start.
fn growth(at: Time) -> f64 {
    (at.as_micros() as f64 / 1e6 / USAGE_HALF_LIFE_S).exp2()
}

impl OwnerIx {
    /// For tests: the number of one.
    #[cfg(test)]
    pub(crate) const fn of(number: u32) -> Self {
        Self(number)
    }
}

impl Usage {
    /// One more job of an owner is known.
    pub(crate) fn add_job(&mut self, name: &OwnerName, now: Time) -> OwnerIx {
        if self.by_name.contains_key(name) {
            return self.enter(name, 0.0, now);
        }
        // Else whoever invents another name with each job would always come first.
        let with_jobs = self.owners.iter().filter(|of| of.active > 0);
        let places = with_jobs.map(|of| of.used / of.weight);
        let least = places.min_by(f64::total_cmp).unwrap_or(0.0);
        self.enter(name, least, now)
    }

    /// An owner with one job more; a new one begins at this place.
    fn enter(&mut self, name: &OwnerName, place: f64, now: Time) -> OwnerIx {
        if let Some(&owner) = self.by_name.get(name) {
            let entry = self.owner_mut(owner);
            entry.jobs += 1;
            entry.active += 1;
            let was_idle = entry.jobs == 1;
            self.idle -= usize::from(was_idle);
            return owner;
        }
        if self.idle >= IDLE_OWNERS_MAX {
            self.forget_idle();
        }
        let weight = self.weights.get(name).copied().unwrap_or(1).max(1);
        let entry = Owner {
            name: name.clone(),
            weight: f64::from(weight),
            used: place * f64::from(weight),
            since: now,
            held: 0,
            jobs: 1,
            active: 1,
            is_changed: false,
        };
        let owner = match self.vacant.pop() {
            Some(owner) => {
                let is_changed = self.owner_mut(owner).is_changed;
                *self.owner_mut(owner) = Owner { is_changed, ..entry };
                owner
            }
            None => {
                self.owners.push(entry);
                OwnerIx(u32::try_from(self.owners.len() - 1).expect("JOBS_MAX bounds owners"))
            }
        };
        self.by_name.insert(name.clone(), owner);
        owner
    }

    /// A job of an owner has ended.
    pub(crate) fn end_job(&mut self, owner: OwnerIx) {
        self.owner_mut(owner).active -= 1;
    }

    /// A job of an owner that has ended is forgotten.
    pub(crate) fn drop_job(&mut self, owner: OwnerIx) {
        let entry = self.owner_mut(owner);
        entry.jobs -= 1;
        self.idle += usize::from(self.owners[owner.0 as usize].jobs == 0);
    }

    /// Forgets those without jobs that have used least.
    fn forget_idle(&mut self) {
        let mut idle: Vec<(f64, OwnerIx)> = self
            .by_name
            .values()
            .map(|owner| (self.owners[owner.0 as usize].used, *owner))
            .filter(|(_, owner)| self.owners[owner.0 as usize].jobs == 0)
            .collect();
        idle.sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        idle.truncate(idle.len().div_ceil(2));
        self.idle -= idle.len();
        for (_, owner) in idle {
            self.by_name.remove(&self.owners[owner.0 as usize].name);
            self.vacant.push(owner);
        }
    }

    /// An owner has used so many core-seconds before this core began, as they count now.
    pub(crate) fn add_used(&mut self, name: &OwnerName, seconds: f64, now: Time) {
        let owner = self.enter(name, 0.0, now);
        self.end_job(owner);
        self.drop_job(owner);
        self.owner_mut(owner).used += seconds * growth(now);
        self.note_change(owner);
    }

    /// An owner holds so much more, or less, from now on.
    pub(crate) fn hold(&mut self, owner: OwnerIx, now: Time, share: Share, more: bool) {
        self.settle_one(owner, now);
        let entry = self.owner_mut(owner);
        let share = u64::from(share.as_permille());
        entry.held = if more { entry.held + share } else { entry.held.saturating_sub(share) };
        self.note_change(owner);
    }

    fn settle_one(&mut self, owner: OwnerIx, now: Time) {
        let entry = self.owner_mut(owner);
        if entry.held > 0 && entry.since < now {
            let seconds = now.since(entry.since).as_secs_f64();
            entry.used += seconds * entry.held as f64 / 1e3 * growth(now);
        }
        entry.since = now;
    }

    /// Counts what runs, where that was not done for a while.
    pub(crate) fn settle(&mut self, now: Time) {
        if now.since(self.settled_at) < SETTLE_EVERY {
            return;
        }
        self.settled_at = now;
        for at in 0..self.owners.len() {
            if self.owners[at].held > 0 {
                let owner = OwnerIx(u32::try_from(at).expect("JOBS_MAX bounds owners"));
                self.settle_one(owner, now);
                self.note_change(owner);
            }
        }
    }

    fn note_change(&mut self, owner: OwnerIx) {
        let entry = self.owner_mut(owner);
        if !std::mem::replace(&mut entry.is_changed, true) {
            self.changed.push(owner);
        }
    }

    /// Whose place may be another one since this was asked last.
    pub(crate) fn take_changed(&mut self) -> Vec<OwnerIx> {
        let changed = std::mem::take(&mut self.changed);
        for owner in &changed {
            self.owner_mut(*owner).is_changed = false;
        }
        changed
    }

    /// The place of an owner among others: whoever has the least comes first.
    pub(crate) fn place(&self, owner: OwnerIx, now: Time) -> u64 {
        let entry = &self.owners[owner.0 as usize];
        let ahead = entry.held as f64 / 1e3 * AHEAD_S * growth(now);
        // Of numbers that are not negative the bits are in the same order.
        ((entry.used + ahead) / entry.weight).to_bits()
    }

    /// All who are remembered, in the order of their names.
    pub(crate) fn shares(&self, now: Time) -> impl Iterator<Item = OwnerShare> {
        self.by_name.values().map(move |owner| {
            let entry = &self.owners[owner.0 as usize];
            let running = now.since(entry.since).as_secs_f64() * entry.held as f64 / 1e3;
            OwnerShare {
                owner: entry.name.clone(),
                weight: entry.weight as u32,
                used_s: entry.used / growth(now) + running,
                held_permille: entry.held,
            }
        })
    }

    /// What each holds, for those who count it anew.
    pub(crate) fn held(&self) -> BTreeMap<OwnerName, u64> {
        let owners = self
            .by_name
            .iter()
            .map(|(name, owner)| (name.clone(), self.owners[owner.0 as usize].held));
        owners.filter(|(_, held)| *held > 0).collect()
    }

    fn owner_mut(&mut self, owner: OwnerIx) -> &mut Owner {
        &mut self.owners[owner.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_S: u64 = 3_600;

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    fn owner(name: &str) -> OwnerName {
        OwnerName::new(name).expect("a plain name")
    }

    fn used(usage: &Usage, now: Time) -> Vec<(String, u64)> {
        let shares = usage.shares(now);
        shares.map(|of| (of.owner.to_string(), of.used_s.round() as u64)).collect()
    }

    #[test]
    fn what_is_held_counts_and_half_as_much_a_week_later() {
        let mut usage = Usage::default();
        let ann = usage.add_job(&owner("ann"), at(0));
        usage.hold(ann, at(0), Share::cores(2), true);
        usage.hold(ann, at(100), Share::cores(1), false);
        usage.settle(at(150));
        assert_eq!(used(&usage, at(150)), [("ann".into(), 250)]);
        usage.hold(ann, at(150), Share::cores(1), false);
        let week_s = USAGE_HALF_LIFE_S as u64;
        assert_eq!(used(&usage, at(150 + week_s)), [("ann".into(), 125)]);
    }

    #[test]
    fn a_new_name_begins_beside_the_one_with_jobs_who_has_used_least() {
        let mut usage = Usage::default();
        let (ann, bob) = (owner("ann"), owner("bob"));
        usage.weights.insert(owner("eve"), 2);
        let both = [&ann, &bob].map(|name| usage.add_job(name, at(0)));
        for (of, hours) in both.into_iter().zip([3, 1]) {
            usage.hold(of, at(0), Share::WHOLE, true);
            usage.hold(of, at(hours * HOUR_S), Share::WHOLE, false);
        }
        let now = at(4 * HOUR_S);
        let eve = usage.add_job(&owner("eve"), now);
        let places = [&bob, &owner("eve"), &ann].map(|name| usage.place(usage.by_name[name], now));
        assert!(places[0] == places[1] && places[1] < places[2], "{places:?}");
        // Who has no job that goes on is no measure.
        usage.end_job(usage.by_name[&bob]);
        usage.end_job(eve);
        let dan = usage.add_job(&owner("dan"), now);
        assert_eq!(usage.place(dan, now), places[2]);
        // What is known of the time before is what it is.
        usage.add_used(&owner("fay"), 7.0, now);
        assert!(used(&usage, now).contains(&("fay".into(), 7)));
    }

    #[test]
    fn of_many_names_without_jobs_those_who_used_least_are_forgotten() {
        let mut usage = Usage::default();
        for number in 0..IDLE_OWNERS_MAX {
            usage.add_used(&owner(&format!("o{number}")), 1.0 + number as f64, at(0));
        }
        let ann = usage.add_job(&owner("ann"), at(0));
        assert_eq!(usage.by_name.len(), IDLE_OWNERS_MAX / 2 + 1);
        assert!(!usage.by_name.contains_key(&owner("o0")));
        assert!(usage.by_name.contains_key(&owner(&format!("o{}", IDLE_OWNERS_MAX - 1))));
        assert_eq!(usage.take_changed().len(), IDLE_OWNERS_MAX, "each once");
        usage.hold(ann, at(1), Share::WHOLE, true);
        assert_eq!(usage.take_changed(), [ann]);
    }
}

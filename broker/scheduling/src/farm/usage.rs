//! What accounts have used of the farm's cores: whoever has used least for their weight comes next. All
//! owners of a project are one account.
//!
//! All cores that leases take count, whatever becomes of them, and a week later half as much. So that
//! nobody has to be gone over as time goes by, what is used later is counted as more instead (Cormode,
//! Shkapenyuk, Srivastava, Xu: *Forward Decay: A Practical Time Decay Model for Streaming Systems*,
//! 2009). What runs now counts as if it went on for a minute more: else whoever comes next would get
//! all cores that are free at once. A new account begins beside the one with jobs who has used least.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{Account, Share, Span, Time};

use super::Farm;
use crate::ability::{AbilityIx, Need};
use crate::limits::USAGE_HALF_LIFE_S;

/// For so many seconds more what runs now counts.
const AHEAD_S: f64 = 60.0;
/// How often what runs is counted.
const SETTLE_EVERY: Span = Span::from_secs(1);
/// Owners that are remembered of whom no job is known.
const IDLE_ACCOUNTS_MAX: usize = 10_000;

/// Number of an account, for as long as one of its jobs is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AccountIx(u32);

/// How an account stands.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountShare {
    /// Who.
    pub account: Account,
    /// Part of the farm that it is due, beside others.
    pub weight: u32,
    /// Core-seconds that count now.
    pub used_s: f64,
    /// What its leases hold, in thousandths of cores.
    pub held_permille: u64,
    /// How it is limited.
    pub limit: AccountLimit,
}

impl AccountShare {
    /// Whoever has the least comes next.
    #[must_use]
    pub fn place(&self) -> f64 {
        (self.used_s + self.held_permille as f64 / 1e3 * AHEAD_S) / f64::from(self.weight)
    }
}

/// How an account is limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountLimit {
    /// Cores that its replicas may hold at once; any number, where there is none.
    pub cores: Option<u32>,
}

/// Why an account gets nothing more for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtLimit {
    /// It holds so many cores, in thousandths, of so many that it may.
    Cap { held: u64, cores: u32 },
    /// It was told to wait.
    HeldBack,
}

/// A limited account that may hold more than it could.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Freed {
    /// What it held before, in thousandths of cores.
    pub(crate) held: u64,
    /// Of the hosts, those from this number on are yet to be asked.
    pub(crate) from: usize,
}

/// What all accounts have used.
///
/// # Invariants
/// - `held` of each is the sum over its leases that count for their lanes.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    accounts: Vec<Entry>,
    by_name: BTreeMap<Account, AccountIx>,
    vacant: Vec<AccountIx>,
    pub(crate) weights: BTreeMap<Account, u32>,
    /// Those that may be told to hold no more than so much.
    pub(crate) limited: BTreeMap<Account, AccountLimit>,
    /// Cores that each owner may hold who is not one of those; any number, where there is none.
    pub(crate) owner_cores: Option<u32>,
    /// Those that get nothing more for now.
    held_back: BTreeSet<Account>,
    /// Limited ones that may hold something more since this was asked last.
    freed: BTreeMap<Account, Freed>,
    /// When what runs was counted last.
    settled_at: Time,
    /// Whose place may be another one since it was asked for last.
    changed: Vec<AccountIx>,
    /// Owners of whom no job is known.
    idle: usize,
}

#[derive(Debug)]
struct Entry {
    name: Account,
    weight: f64,
    /// Core-seconds, each counted by the time of its use.
    used: f64,
    /// When that was brought up to date.
    since: Time,
    held: u64,
    /// Jobs that are known, and those of them that go on.
    jobs: u32,
    active: u32,
    /// Those of the jobs that go on.
    workunits: u64,
    is_changed: bool,
}

/// How much a second counts that is used at this time. It fits for 19 years after the machine's start.
fn growth(at: Time) -> f64 {
    (at.as_micros() as f64 / 1e6 / USAGE_HALF_LIFE_S).exp2()
}

impl AccountIx {
    /// For tests: the number of one.
    #[cfg(test)]
    pub(crate) const fn of(number: u32) -> Self {
        Self(number)
    }
}

impl Usage {
    /// One more job of an account is known.
    pub(crate) fn add_job(&mut self, name: &Account, workunits: u32, now: Time) -> AccountIx {
        let account = self.enter_beside(name, now);
        self.account_mut(account).workunits += u64::from(workunits);
        account
    }

    /// An account with one job more; a new one begins beside the one with jobs who has used least.
    fn enter_beside(&mut self, name: &Account, now: Time) -> AccountIx {
        if self.by_name.contains_key(name) {
            return self.enter(name, 0.0, now);
        }
        // Else whoever invents another name with each job would always come first.
        let with_jobs = self.accounts.iter().filter(|of| of.active > 0);
        let places = with_jobs.map(|of| of.used / of.weight);
        let least = places.min_by(f64::total_cmp).unwrap_or(0.0);
        self.enter(name, least, now)
    }

    /// An account with one job more; a new one begins at this place.
    fn enter(&mut self, name: &Account, place: f64, now: Time) -> AccountIx {
        if let Some(&account) = self.by_name.get(name) {
            let entry = self.account_mut(account);
            entry.jobs += 1;
            entry.active += 1;
            let was_idle = entry.jobs == 1;
            self.idle -= usize::from(was_idle);
            return account;
        }
        if self.idle >= IDLE_ACCOUNTS_MAX {
            self.forget_idle();
        }
        let weight = self.weights.get(name).copied().unwrap_or(1).max(1);
        let entry = Entry {
            name: name.clone(),
            weight: f64::from(weight),
            used: place * f64::from(weight),
            since: now,
            held: 0,
            jobs: 1,
            active: 1,
            workunits: 0,
            is_changed: false,
        };
        let account = match self.vacant.pop() {
            Some(account) => {
                let is_changed = self.account_mut(account).is_changed;
                *self.account_mut(account) = Entry { is_changed, ..entry };
                account
            }
            None => {
                self.accounts.push(entry);
                AccountIx(u32::try_from(self.accounts.len() - 1).expect("JOBS_MAX bounds accounts"))
            }
        };
        self.by_name.insert(name.clone(), account);
        account
    }

    /// How many jobs of an account go on.
    pub(crate) fn open_jobs(&self, name: &Account) -> u32 {
        self.by_name.get(name).map_or(0, |account| self.accounts[account.0 as usize].active)
    }

    /// How many workunits those of its jobs have together that go on.
    pub(crate) fn workunits(&self, name: &Account) -> u64 {
        self.by_name.get(name).map_or(0, |account| self.accounts[account.0 as usize].workunits)
    }

    /// How an account stands, and how many others with jobs come before it.
    pub(crate) fn standing(&self, account: AccountIx, now: Time) -> (AccountShare, usize) {
        let place = self.place(account, now);
        let others = self.by_name.values().filter(|other| {
            self.accounts[other.0 as usize].active > 0 && self.place(**other, now) < place
        });
        (self.share_of(account, now), others.count())
    }

    /// A job of an account has ended.
    pub(crate) fn end_job(&mut self, account: AccountIx, workunits: u32) {
        let entry = self.account_mut(account);
        entry.active -= 1;
        entry.workunits -= u64::from(workunits);
    }

    /// A job of an account that has ended is forgotten.
    pub(crate) fn drop_job(&mut self, account: AccountIx) {
        let entry = self.account_mut(account);
        entry.jobs -= 1;
        self.idle += usize::from(self.accounts[account.0 as usize].jobs == 0);
    }

    /// Forgets those without jobs that have used least.
    fn forget_idle(&mut self) {
        let mut idle: Vec<(f64, AccountIx)> = self
            .by_name
            .values()
            .map(|account| (self.accounts[account.0 as usize].used, *account))
            .filter(|(_, account)| self.accounts[account.0 as usize].jobs == 0)
            .collect();
        idle.sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        idle.truncate(idle.len().div_ceil(2));
        self.idle -= idle.len();
        for (_, account) in idle {
            self.by_name.remove(&self.accounts[account.0 as usize].name);
            self.vacant.push(account);
        }
    }

    /// An account has used so many core-seconds before this core began, as they count now.
    pub(crate) fn add_used(&mut self, name: &Account, seconds: f64, now: Time) {
        let account = self.enter(name, 0.0, now);
        self.end_job(account, 0);
        self.drop_job(account);
        self.account_mut(account).used += seconds * growth(now);
        self.note_change(account);
    }

    /// An account holds so much more, or less, from now on.
    pub(crate) fn hold(&mut self, account: AccountIx, now: Time, share: Share, more: bool) {
        self.settle_one(account, now);
        let entry = self.account_mut(account);
        let share = u64::from(share.as_permille());
        let held = entry.held;
        entry.held = if more { entry.held + share } else { entry.held.saturating_sub(share) };
        if !more && (!self.limited.is_empty() || self.owner_cores.is_some()) {
            let name = &self.accounts[account.0 as usize].name;
            if self.limit_of(name).is_some_and(|limit| limit.cores.is_some()) {
                let freed = self.freed.entry(name.clone()).or_insert(Freed { held, from: 0 });
                *freed = Freed { held: freed.held.max(held), from: 0 };
            }
        }
        self.note_change(account);
    }

    /// How an account is limited, if it is.
    pub(crate) fn limit_of(&self, name: &Account) -> Option<AccountLimit> {
        let of_owners = AccountLimit { cores: self.owner_cores };
        let is_limited =
            |_: &AccountLimit| self.owner_cores.is_some() && matches!(name, Account::Owner(_));
        self.limited.get(name).copied().or_else(|| Some(of_owners).filter(is_limited))
    }

    /// Why an account may not hold this much more, where it may not.
    pub(crate) fn at_limit(&self, name: &Account, share: Share) -> Option<AtLimit> {
        let limit = self.limit_of(name)?;
        if self.held_back.contains(name) {
            return Some(AtLimit::HeldBack);
        }
        let cores = limit.cores?;
        let held = self.by_name.get(name).map_or(0, |of| self.accounts[of.0 as usize].held);
        let wanted = held + u64::from(share.as_permille());
        (wanted > u64::from(cores) * 1_000).then_some(AtLimit::Cap { held, cores })
    }

    /// These get nothing more from now on, and all others do.
    pub(crate) fn hold_back(&mut self, accounts: BTreeSet<Account>) {
        let before = std::mem::replace(&mut self.held_back, accounts);
        let freed = Freed { held: u64::MAX, from: 0 };
        self.freed.extend(before.difference(&self.held_back).map(|of| (of.clone(), freed)));
    }

    /// Limited accounts that may hold something more since this was asked last.
    pub(crate) fn take_freed(&mut self) -> BTreeMap<Account, Freed> {
        std::mem::take(&mut self.freed)
    }

    /// One of these has hosts left that are yet to be asked, unless it was freed anew meanwhile.
    pub(crate) fn ask_on(&mut self, name: Account, freed: Freed) {
        self.freed.entry(name).or_insert(freed);
    }

    /// Whether an account could not hold this much more when it held so much, and now it can.
    pub(crate) fn may_again(&self, name: &Account, before: u64, share: Share) -> bool {
        let cap = self.limit_of(name).and_then(|limit| limit.cores);
        let wanted = before.saturating_add(share.as_permille().into());
        let could_not = before == u64::MAX || cap.is_some_and(|of| wanted > u64::from(of) * 1_000);
        could_not && self.at_limit(name, share).is_none()
    }

    /// Whether there are any.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    fn settle_one(&mut self, account: AccountIx, now: Time) {
        let entry = self.account_mut(account);
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
        for at in 0..self.accounts.len() {
            if self.accounts[at].held > 0 {
                let account = AccountIx(u32::try_from(at).expect("JOBS_MAX bounds accounts"));
                self.settle_one(account, now);
                self.note_change(account);
            }
        }
    }

    fn note_change(&mut self, account: AccountIx) {
        let entry = self.account_mut(account);
        if !std::mem::replace(&mut entry.is_changed, true) {
            self.changed.push(account);
        }
    }

    /// Whose place may be another one since this was asked last.
    pub(crate) fn take_changed(&mut self) -> Vec<AccountIx> {
        let changed = std::mem::take(&mut self.changed);
        for account in &changed {
            self.account_mut(*account).is_changed = false;
        }
        changed
    }

    /// The place of an account among others: whoever has the least comes first.
    pub(crate) fn place(&self, account: AccountIx, now: Time) -> u64 {
        let entry = &self.accounts[account.0 as usize];
        let ahead = entry.held as f64 / 1e3 * AHEAD_S * growth(now);
        // Of numbers that are not negative the bits are in the same order.
        ((entry.used + ahead) / entry.weight).to_bits()
    }

    /// All who are remembered, in the order of their names.
    pub(crate) fn shares(&self, now: Time) -> impl Iterator<Item = AccountShare> {
        self.by_name.values().map(move |account| self.share_of(*account, now))
    }

    fn share_of(&self, account: AccountIx, now: Time) -> AccountShare {
        let entry = &self.accounts[account.0 as usize];
        let running = now.since(entry.since).as_secs_f64() * entry.held as f64 / 1e3;
        AccountShare {
            account: entry.name.clone(),
            weight: entry.weight as u32,
            used_s: entry.used / growth(now) + running,
            held_permille: entry.held,
            limit: self.limit_of(&entry.name).unwrap_or_default(),
        }
    }

    /// What each holds, for those who count it anew.
    pub(crate) fn held(&self) -> BTreeMap<Account, u64> {
        let accounts = self
            .by_name
            .iter()
            .map(|(name, account)| (name.clone(), self.accounts[account.0 as usize].held));
        accounts.filter(|(_, held)| *held > 0).collect()
    }

    fn account_mut(&mut self, account: AccountIx) -> &mut Entry {
        &mut self.accounts[account.0 as usize]
    }
}

impl Farm {
    /// What a job asks for.
    pub(crate) fn need_of(&self, spec: &JobSpec) -> Need {
        let account = spec.account();
        let is_limited = self.usage.limit_of(&account).is_some();
        Need { limited: is_limited.then_some(account), ..Need::of(spec) }
    }

    /// Why whoever asks for this may hold no more of it for now, where that is so. Other lanes than
    /// background have promised what they do.
    pub(crate) fn at_limit(&self, lane: Lane, ability: AbilityIx) -> Option<AtLimit> {
        let need = self.abilities.need(ability).filter(|_| lane == Lane::Background)?;
        self.usage.at_limit(need.limited.as_ref()?, need.share)
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::OwnerName;

    use super::*;

    const HOUR_S: u64 = 3_600;

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    fn account(name: &str) -> Account {
        Account::Owner(OwnerName::new(name).expect("a plain name"))
    }

    fn used(usage: &Usage, now: Time) -> Vec<(String, u64)> {
        let shares = usage.shares(now);
        shares.map(|of| (of.account.to_string(), of.used_s.round() as u64)).collect()
    }

    #[test]
    fn what_is_held_counts_and_half_as_much_a_week_later() {
        let mut usage = Usage::default();
        let ann = usage.add_job(&account("ann"), 1, at(0));
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
        let (ann, bob) = (account("ann"), account("bob"));
        usage.weights.insert(account("eve"), 2);
        let both = [&ann, &bob].map(|name| usage.add_job(name, 1, at(0)));
        for (of, hours) in both.into_iter().zip([3, 1]) {
            usage.hold(of, at(0), Share::WHOLE, true);
            usage.hold(of, at(hours * HOUR_S), Share::WHOLE, false);
        }
        let now = at(4 * HOUR_S);
        let eve = usage.add_job(&account("eve"), 1, now);
        let places =
            [&bob, &account("eve"), &ann].map(|name| usage.place(usage.by_name[name], now));
        assert!(places[0] == places[1] && places[1] < places[2], "{places:?}");
        // Who has no job that goes on is no measure.
        usage.end_job(usage.by_name[&bob], 1);
        usage.end_job(eve, 1);
        let dan = usage.add_job(&account("dan"), 1, now);
        assert_eq!(usage.place(dan, now), places[2]);
        // What is known of the time before is what it is.
        usage.add_used(&account("fay"), 7.0, now);
        assert!(used(&usage, now).contains(&("fay".into(), 7)));
    }

    #[test]
    fn of_many_names_without_jobs_those_who_used_least_are_forgotten() {
        let mut usage = Usage::default();
        for number in 0..IDLE_ACCOUNTS_MAX {
            usage.add_used(&account(&format!("o{number}")), 1.0 + number as f64, at(0));
        }
        let ann = usage.add_job(&account("ann"), 1, at(0));
        assert_eq!(usage.by_name.len(), IDLE_ACCOUNTS_MAX / 2 + 1);
        assert!(!usage.by_name.contains_key(&account("o0")));
        assert!(usage.by_name.contains_key(&account(&format!("o{}", IDLE_ACCOUNTS_MAX - 1))));
        assert_eq!(usage.take_changed().len(), IDLE_ACCOUNTS_MAX, "each once");
        usage.hold(ann, at(1), Share::WHOLE, true);
        assert_eq!(usage.take_changed(), [ann]);
    }
}

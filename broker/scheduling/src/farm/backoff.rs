//! Hosts that get nothing of an ability for a while, because what they were given of it came to
//! nothing.
//!
//! # Invariants
//! - An ability that a host backs off from is not among its abilities, and the time when that ends
//!   is noted.

use std::collections::BTreeSet;
use std::sync::Arc;

use gleaner_protocol::{JobId, Span, Time};

use super::hosts::Hosts;
use super::{Host, HostIx};
use crate::ability::AbilityIx;
use crate::limits::{BACKOFF_FIRST, BACKOFF_MOST};

/// What a host has failed or refused in a row, of one ability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    /// Of what.
    pub(crate) ability: AbilityIx,
    /// Whose replica was the last one.
    pub(crate) job: JobId,
    /// Failures and refusals since its last output.
    pub in_a_row: u32,
    /// Of these, those of this job that halved the host's quota.
    pub(crate) halved: u32,
    /// When it gets some again.
    pub until: Time,
    /// Whether it gets none now.
    pub is_on: bool,
    /// Whether it offers the ability at all, as it said when it connected last.
    pub(crate) is_offered: bool,
    /// What the last replica came to, in its words.
    pub why: Arc<str>,
}

/// Whether the next back-off is longer than the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Twice as long.
    Doubled,
    /// As short as the first.
    First,
}

/// How long a host backs off after so many failures in a row.
fn length(in_a_row: u32) -> Span {
    let factor = 1_u64.checked_shl(in_a_row.saturating_sub(1)).unwrap_or(u64::MAX);
    BACKOFF_FIRST.times(factor).min(BACKOFF_MOST)
}

impl Host {
    /// Whether it offers an ability, back-offs aside.
    pub(crate) fn offers(&self, ability: AbilityIx) -> bool {
        self.abilities.contains(ability) || self.backs_off(ability).is_some_and(|of| of.is_offered)
    }

    /// Its back-off from an ability, if it gets none of it now.
    pub(crate) fn backs_off(&self, ability: AbilityIx) -> Option<&Backoff> {
        self.backoffs.iter().find(|of| of.is_on && of.ability == ability)
    }
}

impl Hosts {
    /// A host gets nothing of an ability for a while.
    pub(crate) fn back_off(
        &mut self,
        now: Time,
        host: HostIx,
        ability: AbilityIx,
        job: JobId,
        why: &Arc<str>,
        step: Step,
    ) {
        let entry = self.get(host);
        let before = entry.backoffs.iter().find(|of| of.ability == ability);
        let in_a_row = match (before, step) {
            (Some(before), Step::Doubled) => before.in_a_row.saturating_add(1),
            _ => 1,
        };
        let of_job = before.filter(|before| before.job == job);
        let halved = of_job.map_or(0, |of| of.halved) + u32::from(step == Step::Doubled);
        let is_offered = entry.offers(ability);
        self.clear_backoff(host, ability);
        let until = now + length(in_a_row);
        self.set_ability(host, ability, false);
        let why = Arc::clone(why);
        let backoff =
            Backoff { ability, job, in_a_row, halved, until, is_on: true, is_offered, why };
        self.entry(host).backoffs.push(backoff);
        self.backoff_ends.insert((until, host, ability));
    }

    /// A host did something of an ability: it may have all of it, and what came before counts no
    /// more.
    pub(crate) fn clear_backoff(&mut self, host: HostIx, ability: AbilityIx) {
        self.end_backoff(host, ability);
        let backoffs = &mut self.entry(host).backoffs;
        if !backoffs.is_empty() {
            backoffs.retain(|of| of.ability != ability);
        }
    }

    /// A host may have something of an ability again.
    pub(crate) fn end_backoff(&mut self, host: HostIx, ability: AbilityIx) {
        let mut backoffs = self.entry(host).backoffs.iter_mut();
        let Some(of) = backoffs.find(|of| of.is_on && of.ability == ability) else { return };
        of.is_on = false;
        let (until, is_offered) = (of.until, of.is_offered);
        self.backoff_ends.remove(&(until, host, ability));
        if is_offered {
            self.set_ability(host, ability, true);
        }
    }

    /// The back-off that ends first.
    pub(crate) fn first_backoff(&self) -> Option<(Time, HostIx, AbilityIx)> {
        self.backoff_ends.first().copied()
    }

    /// Notes the end of a back-off that there is not.
    #[cfg(feature = "sabotage")]
    pub(crate) fn note_backoff_end(&mut self, until: Time, host: HostIx, ability: AbilityIx) {
        self.backoff_ends.insert((until, host, ability));
    }

    /// When back-offs end, of whom and from what.
    pub(crate) fn backoff_ends(&self) -> &BTreeSet<(Time, HostIx, AbilityIx)> {
        &self.backoff_ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_back_off_is_twice_as_long_up_to_the_longest() {
        let seconds = |in_a_row| length(in_a_row).as_millis() / 1_000;
        assert_eq!([1, 2, 3, 4, 11].map(seconds), [1, 2, 4, 8, 1_024]);
        assert_eq!([13, 64, 65, u32::MAX].map(seconds), [3_600; 4]);
    }
}
